"""How much of JSON Schema is honoured: schemas compiled, valid instances accepted, invalid ones refused; every miss
listed with its cause.

    python benchmarks/coverage.py CASES.jsonl.gz [--remotes FILE.json.gz] [--quick] [--every N] [--offset K] [--json OUT] [--list]

CASES: one JSON object a line, ``{name, schema, tests: [{valid, data | text}], refuse?}`` (MaskBench, the
JSON-Schema-Test-Suite by groups). A group passes when its schema compiles, every valid instance is accepted and every
invalid one refused (or, with ``refuse``, when compiling it fails). Texts are read byte by byte; ``masks.py`` reads
them token by token, beside llguidance and xgrammar. A false reject that disappears when the members of the instance
are put in another order is counted as ``order``.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stcc.compiler import CompileError, Options, compile_json_schema
from stcc.runtime import Grammar, load

TIME_LIMIT = 30
MOST_ORDERS = 300


class LateError(Exception):
    """A case took longer than TIME_LIMIT seconds."""


def read_cases(path: Path, every: int, offset: int) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % every == offset:
                yield json.loads(line)


def text_of(test: dict[str, Any]) -> bytes:
    text = test["text"] if "text" in test else json.dumps(test["data"], ensure_ascii=False)
    return str(text).encode("utf-8", "surrogatepass")


def accepts(grammar: Grammar, text: bytes) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_accepting()


def orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for parts in itertools.product(*(list(itertools.islice(orders(value[key]), 24)) for key in keys)):
                yield dict(zip(keys, parts, strict=True))
    elif isinstance(value, list):
        for parts in itertools.product(*(list(itertools.islice(orders(item), 24)) for item in value)):
            yield list(parts)
    else:
        yield value


def only_order(grammar: Grammar, test: dict[str, Any]) -> bool:
    if "data" not in test:
        return False
    return any(accepts(grammar, text_of({"data": order})) for order in itertools.islice(orders(test["data"]), MOST_ORDERS))


def check(case: dict[str, Any], options: Options) -> tuple[str, float]:
    """The cause why a case fails, empty if it passes; and the seconds its compile took."""
    started = time.perf_counter()
    try:
        grammar = load(compile_json_schema(case["schema"], options=options))
    except CompileError as error:
        seconds = time.perf_counter() - started
        return ("" if case.get("refuse") else f"refused: {type(error).__name__} {error.keyword}: {error.message[:60]}"), seconds
    seconds = time.perf_counter() - started
    if case.get("refuse"):
        return "false accept: compiled what has to be refused", seconds
    for test in case["tests"]:
        found = accepts(grammar, text_of(test))
        if found and not test["valid"]:
            return "false accept", seconds
        if not found and test["valid"]:
            return ("order" if only_order(grammar, test) else "false reject"), seconds
    return "", seconds


def _late(*_: object) -> None:
    raise LateError


def run(cases: Iterator[dict[str, Any]], options: Options) -> list[dict[str, Any]]:
    signal.signal(signal.SIGALRM, _late)
    results = []
    for case in cases:
        signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
        started = time.perf_counter()
        try:
            cause, seconds = check(case, options)
        except LateError:
            cause, seconds = "timeout", time.perf_counter() - started
        except Exception as error:  # a crash is a finding, not the end of the run
            cause, seconds = f"crash: {type(error).__name__}: {error}"[:120], time.perf_counter() - started
        signal.setitimer(signal.ITIMER_REAL, 0)
        results.append({"name": case["name"], "cause": cause, "seconds": round(seconds, 4)})
    return results


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    causes = collections.Counter(result["cause"] for result in results)
    times = sorted(result["seconds"] for result in results)
    passing = causes.pop("", 0)
    return {
        "cases": len(results),
        "passing": passing,
        "share": round(passing / max(1, len(results)), 4),
        "causes": dict(causes.most_common()),
        "compile_seconds": {"p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "max": times[-1]} if times else {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--remotes", type=Path)
    parser.add_argument("--quick", action="store_true", help="every 40th case")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true", help="name every case that does not pass")
    parser.add_argument("--property-order", default="auto")
    arguments = parser.parse_args()
    remotes = json.loads(gzip.decompress(arguments.remotes.read_bytes())) if arguments.remotes else {}
    options = Options(whitespace="flexible", schemas=remotes, time_limit=TIME_LIMIT, property_order=arguments.property_order)
    results = run(read_cases(arguments.cases, 40 if arguments.quick else arguments.every, arguments.offset), options)
    report = summary(results)
    print(f"{report['passing']} of {report['cases']} pass ({report['share']:.1%}); compile seconds {report['compile_seconds']}")
    for cause, count in report["causes"].items():
        print(f"{count:6} {cause}")
        if arguments.list:
            print("       " + ", ".join(result["name"] for result in results if result["cause"] == cause))
    if arguments.json:
        arguments.json.write_text(json.dumps({"summary": report, "results": results}))
    sys.exit(1 if any("false accept" in cause for cause in report["causes"]) else 0)


if __name__ == "__main__":
    main()
