"""Tool grammars: how long a set of typed tools takes to compile and bind, how large it is, and what peers take for the same set.

    python benchmarks/tools.py [--quick] [--json OUT] [--tokenizer DIR] [--formats qwen3,qwen3_coder] [--rounds N]

Sets of 20 and 100 tools with five typed arguments each (a string, a bounded integer, a number, an enum, a list of strings; two required).
Ours: ``compile_tools``, then ``bind`` on the tokenizer's vocabulary, from the JSON text to a bound file. Peers take part if they are
installed: xgrammar compiles a structural tag (``<tool_call>`` triggers a call whose body is one tool's JSON object; its cache is off);
llguidance a Lark grammar of the same calls with ``%json`` arguments, and fills one mask inside a call, since it compiles lazily. Every
engine's tokenizer is ready before the clock starts, and a set of one tool has been compiled. Times are the least and the median of
``--rounds``, wall and the process's own CPU time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from stcc.compiler import bind, compile_tools, vocabulary_from_tokenizer

DEFAULT_TOKENIZER = Path(__file__).resolve().parents[1] / "../shared/tokenizers/qwen3"
SETS = (20, 100)


def tools(count: int) -> list[dict[str, Any]]:
    """A set of typed tools; no two schemas are equal."""
    found = []
    for number in range(count):
        properties = {
            f"text_{number}": {"type": "string", "description": f"Text {number}."},
            f"count_{number}": {"type": "integer", "minimum": 0, "maximum": 1000},
            f"ratio_{number}": {"type": "number"},
            f"kind_{number}": {"enum": [f"first_{number}", f"second_{number}", "other"]},
            f"tags_{number}": {"type": "array", "items": {"type": "string"}},
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)[:2], "additionalProperties": False}
        found.append({"type": "function", "function": {"name": f"tool_{number}", "parameters": parameters}})
    return found


def timed(run: Callable[[], Any], rounds: int) -> tuple[dict[str, float], Any]:
    """Least and median seconds of ``run``, wall and CPU, and what it gave last."""
    wall, cpu, result = [], [], None
    for _ in range(rounds):
        cpu_started, started = time.process_time(), time.perf_counter()
        result = run()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    return {"wall": min(wall), "wall_median": statistics.median(wall), "cpu": min(cpu)}, result


def ours(folder: Path, formats: list[str], sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Our rows: one for each format and set."""
    vocabulary = vocabulary_from_tokenizer(str(folder))
    rows = []
    for format in formats:
        bind(compile_tools(tools(1), format=format), vocabulary)
        for size in sizes:
            source = json.dumps(tools(size))
            compiled, artifact = timed(lambda source=source, format=format: compile_tools(source, format=format), rounds)
            bound_in, bound = timed(lambda artifact=artifact: bind(artifact, vocabulary), rounds)
            rows.append({"engine": "stcc", "format": format, "tools": size, "states": artifact.machine.states,
                         "portable_bytes": len(artifact.to_bytes()), "bound_bytes": len(bound.to_bytes()),
                         "compile": compiled, "bind": bound_in, "total": {key: compiled[key] + bound_in[key] for key in compiled}})
    return rows


def xgrammar_row(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """xgrammar, with its own cache off."""
    import xgrammar
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer), max_threads=1, cache_enabled=False)

    def tags(listed: list[dict[str, Any]]) -> dict[str, Any]:
        parts = [{"type": "tag", "begin": f'<tool_call>\n{{"name": "{one["function"]["name"]}", "arguments": ',
                  "content": {"type": "json_schema", "json_schema": one["function"]["parameters"]}, "end": "}\n</tool_call>"}
                 for one in listed]
        return {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": parts}}

    def compile_set(listed: list[dict[str, Any]]) -> Any:
        return compiler.compile_structural_tag(tags(listed))

    compile_set(tools(1))
    total, compiled = timed(lambda: compile_set(tools(size)), rounds)
    return {"engine": f"xgrammar {metadata.version('xgrammar')}", "format": "hermes", "tools": size, "total": total,
            "memory_bytes": int(compiled.memory_size_bytes)}


def llguidance_row(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """llguidance: the grammar, then one mask inside a call."""
    import llguidance
    from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

    tokenizer = llguidance.LLTokenizer((folder / "tokenizer.json").read_text("utf-8"), eos_token=None)
    bitmask = allocate_token_bitmask(1, tokenizer.vocab_size)

    def lark(listed: list[dict[str, Any]]) -> str:
        names = [f"c{number}" for number in range(len(listed))]
        rules = [f'start: call ("\\n" call)*\ncall: <tool_call> "\\n" ({" | ".join(names)}) "\\n" </tool_call>']
        for name, one in zip(names, listed, strict=True):
            head = json.dumps(f'{{"name": "{one["function"]["name"]}", "arguments": ')
            rules.append(f'{name}: {head} %json {json.dumps(one["function"]["parameters"])} "}}"')
        return "\n".join(rules)

    def compile_set(listed: list[dict[str, Any]]) -> Any:
        matcher = llguidance.LLMatcher(tokenizer, json.dumps({"grammars": [{"lark_grammar": lark(listed)}]}))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        for token in tokenizer.tokenize_str('<tool_call>\n{"name": "tool_0", "arguments": {"'):
            matcher.consume_token(token)
        fill_next_token_bitmask(matcher, bitmask, 0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    compile_set(tools(1))
    total, _ = timed(lambda: compile_set(tools(size)), rounds)
    return {"engine": f"llguidance {metadata.version('llguidance')}", "format": "hermes", "tools": size, "total": total}


def peer_rows(folder: Path, sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Rows of the peers that are installed; what stops one is in its row."""
    rows: list[dict[str, Any]] = []
    for name, row in (("xgrammar", xgrammar_row), ("llguidance", llguidance_row)):
        for size in sizes:
            try:
                rows.append(row(folder, size, rounds))
            except ImportError:
                rows.append({"engine": name, "tools": size, "problem": "not installed"})
            except Exception as error:  # peers raise many kinds
                rows.append({"engine": name, "tools": size, "problem": f"{type(error).__name__}: {str(error)[:200]}"})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    heads = ("engine", "format", "tools", "states", "compile s", "bind s", "together s: wall / cpu", "bound bytes")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        if "problem" in row:
            lines.append(f"| {row['engine']} | | {row['tools']} | | | | {row['problem']} | |")
            continue
        parts = [f"{row[part]['wall']:.2f}" if part in row else "" for part in ("compile", "bind")]
        size = row.get("bound_bytes", row.get("memory_bytes"))
        lines.append(f"| {row['engine']} | {row['format']} | {row['tools']} | {row.get('states', '')} | {' | '.join(parts)} "
                     f"| {row['total']['wall']:.2f} / {row['total']['cpu']:.2f} | {f'{size:,}' if size else ''} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, default=DEFAULT_TOKENIZER)
    parser.add_argument("--formats", default="qwen3,qwen3_coder,harmony")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20 tools, one format, one round")
    parser.add_argument("--json", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    if not (arguments.tokenizer / "tokenizer.json").is_file():
        parser.error(f"{arguments.tokenizer} holds no tokenizer.json")
    sizes, rounds = (SETS[:1], 1) if arguments.quick else (SETS, arguments.rounds)
    formats = arguments.formats.split(",")[: 1 if arguments.quick else None]
    rows = ours(arguments.tokenizer, formats, sizes, rounds) + peer_rows(arguments.tokenizer, sizes, rounds)
    print(table(rows))
    if arguments.json:
        result = {"rows": rows, "python": platform.python_version(), "machine": platform.machine()}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
