"""The server workloads of ``stcc bench``: many agents, or many requests, at once, against mlx-lm's own server with llguidance.

In: a model's name and sizes. Out: a row for each server: seconds, requests, tokens, and how many calls satisfied their tool's schema. Each
server is a process of its own with the same weights; both get the same conversations, decode greedily, and are asked in turns. *Agents*
(section 5 of the few-path paper, in small): each has a task and three typed tools of its own, calls one, is told what it found, and calls
again, each turn beside those of all others. *Requests*: one call each, all at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from stcc.runtime.errors import ConstraintError

START_SECONDS = 300
ANSWER_SECONDS = 900
PEER = "mlx_lm.server + llguidance"
OURS = "stcc serve"
_TASKS = ("the weather in Oslo", "a flight from Rome to Paris", "the price of 3 kg of apples", "a room for two nights",
          "the way to the station", "a table for four", "the next train to Bern", "a book on chess")
_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("place", {"type": "string", "maxLength": 12}), ("count", {"type": "integer", "minimum": 0, "maximum": 99}),
    ("unit", {"enum": ["metric", "imperial"]}), ("exact", {"type": "boolean"}), ("code", {"type": "string", "pattern": "^[A-Z]{3}$"}),
)


class WorkloadError(ConstraintError):
    """A server did not start, or did not answer."""


@dataclass(frozen=True)
class Server:
    """A server that listens: its name, its URL and the number of its process."""

    name: str
    url: str
    pid: int = 0


@dataclass
class Reply:
    """What one request brought: tokens, calls as (name, arguments), and the assistant's turn as the server takes it back."""

    tokens: int
    calls: list[tuple[str, str]]
    turn: dict[str, Any]


def tools_of(number: int) -> list[dict[str, Any]]:
    """Three tools with three typed arguments each, no two agents' alike."""
    def tool(place: int) -> dict[str, Any]:
        chosen = [_KINDS[(number + place + step) % len(_KINDS)] for step in range(3)]
        return {"type": "function", "function": {
            "name": f"{('find', 'book', 'report')[place]}_{number}", "description": f"Does step {place + 1}.",
            "parameters": {"type": "object", "properties": dict(chosen), "required": [name for name, _ in chosen],
                           "additionalProperties": False}}}

    return [tool(place) for place in range(3)]


def conversation(number: int) -> list[dict[str, Any]]:
    """The beginning of an agent's conversation."""
    return [{"role": "system", "content": f"You are agent {number}. Use your tools."},
            {"role": "user", "content": f"Take care of {_TASKS[number % len(_TASKS)]}."}]


@cache
def _grammars(number: int) -> dict[str, Any]:
    """Tool -> the grammar of its arguments as compact JSON."""
    from stcc.runtime.load import load
    from stcc.runtime.seam import compile_schema

    return {tool["function"]["name"]: load(compile_schema(tool["function"]["parameters"])) for tool in tools_of(number)}


def satisfied(call: tuple[str, str], number: int) -> bool:
    """Whether a call names one of an agent's tools and its arguments satisfy the schema."""
    grammar = _grammars(number).get(call[0])
    try:
        text = json.dumps(json.loads(call[1]), separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        return False
    matcher = grammar.matcher() if grammar is not None else None
    return matcher is not None and matcher.accept_bytes(text.encode()) and matcher.is_accepting()


def ask(server: Server, messages: list[dict[str, Any]], tools: list[dict[str, Any]], max_tokens: int) -> Reply:
    """One request that must call a tool. WorkloadError if it is not answered."""
    body = {"model": "default", "messages": messages, "tools": tools, "tool_choice": "required", "max_tokens": max_tokens, "temperature": 0,
            **({"parallel_tool_calls": False} if server.name == OURS else {})}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            found = json.load(response)
    except (OSError, ValueError) as error:
        detail = error.read().decode("utf-8", "replace")[:300] if hasattr(error, "read") else str(error)
        raise WorkloadError(f"{server.name} did not answer: {detail}", "see what it wrote to standard error") from error
    message = found["choices"][0]["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    if calls:
        turn = {"role": "assistant", "content": message.get("content"), "tool_calls": message["tool_calls"]}
        return Reply(found["usage"]["completion_tokens"], calls, turn)
    text = message.get("content") or ""
    return Reply(found["usage"]["completion_tokens"], calls_in(text), {"role": "assistant", "content": text})


def calls_in(text: str) -> list[tuple[str, str]]:
    """The hermes calls in a text, for a server that does not read them itself."""
    from stcc.runtime.seam import call_format
    from stcc.runtime.server.replies import ReplyReader

    reader = ReplyReader(call_format("hermes"), {})
    return [(call.name, call.arguments) for reading in (reader.feed(text.encode()), reader.finish()) for call in reading.calls]


def agent(server: Server, number: int, turns: int, max_tokens: int) -> list[tuple[Reply, bool]]:
    """The replies of one agent, each with whether its first call is a valid one."""
    messages, tools, found = conversation(number), tools_of(number), []
    for turn in range(turns):
        reply = ask(server, messages, tools, max_tokens)
        found.append((reply, bool(reply.calls) and satisfied(reply.calls[0], number)))
        ids = [call["id"] for call in reply.turn.get("tool_calls", [])]
        results: list[dict[str, Any]] = [{"role": "tool", "content": f'{{"step": {turn + 1}, "ok": true}}', "tool_call_id": name}
                                         for name in ids or ["call"]]
        messages = [*messages, reply.turn, *results]
    return found


def measure(servers: list[Server], agents: int, turns: int, max_tokens: int, rounds: int,
            say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row for each server; each round asks them in turns, after one agent for warming up."""
    seconds: dict[str, list[float]] = {server.name: [] for server in servers}
    rows = {}
    for server in servers:
        say(f"warming up {server.name}")
        agent(server, 0, 1, max_tokens)
    for number in range(rounds):
        for server in servers:
            say(f"{server.name}, round {number + 1} of {rounds}")
            started = time.perf_counter()
            with ThreadPoolExecutor(agents) as pool:
                replies = [reply for found in pool.map(lambda each, asked=server: agent(asked, each, turns, max_tokens), range(agents))
                           for reply in found]
            seconds[server.name].append(time.perf_counter() - started)
            rows[server.name] = {"requests": len(replies), "tokens": sum(reply.tokens for reply, _ in replies),
                                 "valid": sum(valid for _, valid in replies)}
    return [{"server": name, "seconds": round(statistics.median(taken), 3), **rows[name],
             "tokens_per_second": round(rows[name]["tokens"] / statistics.median(taken), 2)} for name, taken in seconds.items()]


# ---- servers


@contextlib.contextmanager
def servers_of(model: str, peer: bool) -> Iterator[list[Server]]:
    """Both servers, or ours alone, while the block runs. WorkloadError if one does not start."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(ours(model))]
        if peer:
            found.append(stack.enter_context(theirs(model)))
        yield found


@contextlib.contextmanager
def ours(model: str, *options: str) -> Iterator[Server]:
    """``stcc serve`` on a free port."""
    code = "from stcc.runtime.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", model, "--port", "0", "--temp", "0", "--tool-format", "hermes", *options]
    with _process(command, re.compile(r"serving .* on (http://\S+)")) as (url, pid):
        yield Server(OURS, url, pid)


@contextlib.contextmanager
def theirs(model: str) -> Iterator[Server]:
    """mlx-lm's server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "stcc.runtime.server.peer", model, str(port)]
    with _process(command, re.compile(r"Starting httpd at \S+ on port (\d+)")) as (_, pid):
        yield Server(PEER, f"http://127.0.0.1:{port}", pid)


@contextlib.contextmanager
def _process(command: list[str], started: re.Pattern[str]) -> Iterator[tuple[str, int]]:
    """What ``started`` found in the server's messages, and the number of its process."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=dict(os.environ))
    drain = ThreadPoolExecutor(1)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        found = None
        for line in process.stderr:
            lines.append(line)
            if found := started.search(line):
                break
        if found is None:
            raise WorkloadError(f"{command[2]} did not start: {''.join(lines[-3:]).strip()}", "run it by itself to see why")
        drain.submit(process.stderr.read)
        yield found[1], process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        drain.shutdown(wait=True)
