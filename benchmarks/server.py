"""``stcc serve`` with the official ``openai`` client: is every answer valid, equal to the same request alone, and how fast is it?

    python benchmarks/server.py [--quick] [--json OUT] [--model smollm2] [--rounds N] [--requests 1000]
        [--no-peer] [--parts conformity,memory]

Three parts. *Conformity*: JSON schemas plain and recursive, tools required, named and auto, tools with response_format, a stream, a
preloaded artifact, each alone and then eight at once with eight grammars; every answer is validated by jsonschema, and compared with the
same request alone (greedy). *Throughput*: the eight at once against mlx-lm's own server with llguidance as a logits processor, the same
float32 weights, each server in a process of its own, rounds interleaved; both give compact JSON. *Memory*: the resident memory of a
server of its own over many small requests, constrained ones with ever new schemas among them, after each tenth of them.

On Linux, MLX's CPU backend wants OpenBLAS: LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema

from stcc.runtime.commands.workloads import ours, theirs

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99999}, "b": {"type": "integer",
                                                                                                         "maximum": 99999,
                                                                                                    "minimum": 0}},
        "required": ["a", "b"]}}},
]
MAX_TOKENS = 96
WARM_TOKENS = 40
PARTS = ("conformity", "throughput", "memory")
MEMORY_CACHE = "64m"
"""Small, so that it is full soon: what grows afterwards grows for another reason."""
Case = tuple[dict[str, Any], Callable[[Any], None]]


def sample(name: str) -> tuple[Any, str]:
    return json.loads((SAMPLES / f"{name}.schema.json").read_text()), (SAMPLES / f"{name}.prompt.txt").read_text().strip()


def schema_case(name: str) -> Case:
    schema, prompt = sample(name)

    def check(choice: Any) -> None:
        jsonschema.validate(json.loads(choice.message.content), schema)

    request = {"messages": [{"role": "user", "content": prompt}],
               "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}
    return request, check


def check_calls(choice: Any, names: tuple[str, ...] = ("get_weather", "add"), needed: bool = True) -> None:
    calls = choice.message.tool_calls or []
    assert calls or not needed, choice
    assert (choice.finish_reason == "tool_calls") == bool(calls), choice
    parameters = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    for call in calls:
        assert call.function.name in names, call
        jsonschema.validate(json.loads(call.function.arguments), parameters[call.function.name])


def check_union(choice: Any, schema: Any) -> None:
    if choice.message.tool_calls:
        check_calls(choice)
    else:
        jsonschema.validate(json.loads(choice.message.content), schema)


def tool_case(choice: Any, content: str, check: Callable[[Any], None]) -> Case:
    return {"messages": [{"role": "user", "content": content}], "tools": TOOLS, "tool_choice": choice}, check


def cases() -> dict[str, Case]:
    person, prompt = sample("person")
    weather = "What is the weather in Oslo, in celsius?"
    union = ({"messages": [{"role": "user", "content": prompt}], "tools": TOOLS,
              "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": person}}},
             lambda choice: check_union(choice, person))
    artifact = ({"messages": [{"role": "user", "content": "Write a date."}], "extra_body": {
        "response_format": {"type": "stc", "artifact": "iso_date"}}},
        lambda choice: _assert(re.fullmatch(r"\d{4}-\d{2}-\d{2}", choice.message.content)))
    return {
        "json_schema, plain": schema_case("person"), "json_schema, recursive": schema_case("thread"),
        "json_schema, nested": schema_case("event"),
        "tools, required": tool_case("required", weather, check_calls),
        "tools, named": tool_case({"type": "function", "function": {"name": "add"}}, "What is 17 and 25?",
                                  lambda choice: check_calls(choice, ("add",))),
        "tools, auto": tool_case("auto", weather, lambda choice: check_calls(choice, needed=False)),
        "tools and response_format": union, "a preloaded artifact": artifact,
    }


def _assert(holds: Any) -> None:
    assert holds


# ---- servers


@contextlib.contextmanager
def serving(model: str, folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """The URL and the process id of ``stcc serve``."""
    with ours(model, "--artifacts", str(folder), *options) as server:
        yield server.url, server.pid


# ---- parts


def client(url: str) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)


def ask(api: Any, request: dict[str, Any], limit: int = MAX_TOKENS, **more: Any) -> Any:
    return api.chat.completions.create(model="default", max_tokens=limit, temperature=0, **request, **more)


def said(choice: Any) -> Any:
    calls = choice.message.tool_calls
    return [(call.function.name, call.function.arguments) for call in calls] if calls else choice.message.content


def conformity(url: str, streamed_cases: int) -> dict[str, Any]:
    api, rows, alone = client(url), [], {}
    for name, (request, check) in cases().items():
        started = time.perf_counter()
        answer = ask(api, request)
        seconds = time.perf_counter() - started
        choice, usage = answer.choices[0], answer.usage
        check(choice)
        alone[name] = said(choice)
        forced = usage.completion_tokens_details.model_dump().get("forced_tokens", 0)
        rows.append({"case": name, "seconds": round(seconds, 2), "tokens": usage.completion_tokens, "forced": forced,
                     "finish": choice.finish_reason})
        print(f"  {name:28} valid  {usage.completion_tokens:4} tokens, {forced:3} forced, {seconds:5.2f} s, {choice.finish_reason}")
    streamed = streams(api, alone, streamed_cases)
    with ThreadPoolExecutor(8) as pool:
        together = dict(zip(cases(), pool.map(lambda case: ask(api, case[0]), cases().values()), strict=True))
    for name, answer in together.items():
        cases()[name][1](answer.choices[0])
    equal = sum(said(answer.choices[0]) == alone[name] for name, answer in together.items())
    print(f"  eight at once: all valid, {equal} of {len(together)} equal to the same request alone")
    print(f"  streams that say the same: {streamed} of {streamed_cases}")
    return {"cases": rows, "together_equal": equal, "together": len(together), "streams_equal": streamed}


def streams(api: Any, alone: dict[str, Any], count: int) -> int:
    """How many of the last ``count`` cases say the same when they are streamed."""
    equal = 0
    for name, (request, _) in list(cases().items())[-count:]:
        content, calls = "", []
        for chunk in ask(api, request, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                content += choice.delta.content or ""
                calls += [(call.function.name, call.function.arguments) for call in choice.delta.tool_calls or []]
        equal += (calls or content) == alone[name]
    return equal


def speed_requests() -> list[dict[str, Any]]:
    return [schema_case(name)[0] for name in ("person", "event", "product", "contact_card", "classification", "tool_call", "thread",
                                              "directory")]


def throughput(urls: dict[str, str], rounds: int) -> dict[str, Any]:
    """Eight requests at once, eight grammars; tokens a second of all together."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in urls}
    for number in range(rounds + 1):  # the first warms up: compiled grammars, prompt caches
        limit = MAX_TOKENS if number else WARM_TOKENS
        for name, url in urls.items():
            api = client(url)
            started = time.perf_counter()
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda request, api=api, limit=limit: ask(api, request, limit),
                                        speed_requests()))
            seconds = time.perf_counter() - started
            if number:
                found[name].append({"seconds": seconds, "tokens": sum(answer.usage.completion_tokens for answer in answers)})
    rows = {}
    for name, runs in found.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        tokens = statistics.median(run["tokens"] for run in runs)
        rows[name] = {"seconds": round(seconds, 2), "tokens": tokens, "tokens_per_second": round(tokens / seconds, 1)}
        print(f"  {name:24} {seconds:6.2f} s for {tokens:.0f} tokens: {tokens / seconds:.1f} tokens/s")
    return rows


def resident(pid: int) -> float:
    """MB."""
    status = Path(f"/proc/{pid}/status")
    if not status.is_file():
        return float("nan")
    return int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]


def memory(url: str, pid: int, requests: int) -> dict[str, Any]:
    """Resident memory after each tenth of many small requests; every fifth brings a schema of its own."""
    api, seen = client(url), []

    def one(number: int) -> None:
        schema = {"type": "object", "properties": {f"k{number % 400}": {"type": "boolean"}}, "required": [f"k{number % 400}"],
                  "additionalProperties": False}
        constrained = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
        request = {"messages": [{"role": "user", "content": f"Say {number % 50}."}], **(constrained if number % 5 == 0 else {})}
        api.chat.completions.create(model="default", max_tokens=24 if number % 5 == 0 else 2, temperature=0, **request)

    step = max(1, requests // 10)
    with ThreadPoolExecutor(16) as pool:
        for start in range(0, requests, step):
            list(pool.map(one, range(start, min(start + step, requests))))
            seen.append(round(resident(pid), 1))
    print(f"  resident after each {step} requests: {', '.join(f'{size:.0f}' for size in seen)} MB")
    health = json.load(urllib.request.urlopen(f"{url}/health"))
    assert health["outputs"] == 0, health
    return {"requests": requests, "resident_mb": seen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *given: sys.exit(1))  # so that the servers are stopped too
    rounds, requests = (1, 100) if options.quick else (options.rounds, options.requests)
    report: dict[str, Any] = {}
    parts = options.parts.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"--parts are of {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        subprocess.run([sys.executable, "-c", "from stcc.runtime.cli import main; main()", "compile", str(SAMPLES / "iso_date.regex"), "-o",
                        str(Path(scratch) / "iso_date.stc")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = stack.enter_context(serving(options.model, Path(scratch)))[0] if set(parts) - {"memory"} else ""
        if "conformity" in parts:
            print("conformity, with the openai client")
            report["conformity"] = conformity(url, 2 if options.quick else len(cases()))
        if "throughput" in parts:
            print("throughput, eight requests at once with eight grammars")
            urls = {"stcc serve": url}
            if not options.no_peer:
                urls["mlx_lm.server + llguidance"] = stack.enter_context(theirs(options.model)).url
            report["throughput"] = throughput(urls, rounds)
        if "memory" in parts:
            print(f"memory, a server with a prompt cache of {MEMORY_CACHE}")
            with serving(options.model, Path(scratch), "--prompt-cache", MEMORY_CACHE) as (url, pid):
                report["memory"] = memory(url, pid, requests)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
