"""What a schema costs before the first token: compile, bind to a vocabulary and load, in seconds and in memory, case by case and by stage.

    python benchmarks/cost.py CASES.jsonl.gz --vocab FILE.stv [--quick] [--every N] [--offset K] [--save] [--seconds S] [--gigabytes G]
                              [--property-order ORDER] [--json OUT]

CASES: one JSON object a line with ``name`` and ``schema`` (MaskBench). A worker process takes one case after the other, as a build of
many sources or a server would, so that imports, the vocabulary and its encoder are warm; it is killed after ``--seconds``, and an
allocation beyond ``--gigabytes`` fails. Seconds are CPU time of the worker, which other programs on the machine disturb least; what
refusing a schema takes counts too. Memory is what the resident set grew by at its peak, from a peak that is reset before each case
(Linux). With ``--save`` the bytes of the file are made too, as a stage of its own that the total leaves out.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from stcc.compiler import CompileError, Options, compile_json_schema
from stcc.compiler.pipeline import Trace
from stcc.formats import Vocabulary
from stcc.runtime import load

Value = TypeVar("Value")
STAGES = ("grammar", "trimmed", "inlined", "machine", "actions", "load", "save")
TIME_LIMIT, MEMORY_LIMIT = 30.0, 2.0
SLOWEST = 10
LOST = KILLED, DIED, NO_MEMORY = "killed after the time limit", "the worker died", "out of memory"
WARM_UP = {"type": "object", "properties": {"a": {"type": "string"}}}


class CpuTrace(Trace):
    """A trace in CPU seconds that keeps no stage's value, since keeping them would count as memory."""

    def stage(self, name: str, run: Callable[[], Value]) -> Value:
        started = time.process_time()
        try:
            return run()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - started


def resident() -> tuple[int, int]:
    """Resident set and its peak, in KiB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])


def forget_peak() -> None:
    """Let the peak start again at what is resident now; where the kernel does not allow it, growth is seen past older peaks only."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(case: dict[str, Any], options: Options, vocabulary: Vocabulary, save: bool) -> dict[str, Any]:
    """Seconds and memory of one case."""
    trace = CpuTrace()
    forget_peak()
    before, _ = resident()
    started, on_the_wall, error, size = time.process_time(), time.perf_counter(), "", 0
    try:
        artifact = compile_json_schema(case["schema"], options=options, vocabularies=[vocabulary], trace=trace)
        trace.stage("load", lambda: load(artifact, vocabulary=vocabulary))
    except CompileError as refused:
        error = f"{type(refused).__name__}: {refused.message}"[:80]
    except MemoryError:
        error = NO_MEMORY
    seconds, wall = time.process_time() - started, time.perf_counter() - on_the_wall
    _, peak = resident()
    if save and not error:
        size = len(trace.stage("save", artifact.to_bytes))
    return {"name": case["name"], "seconds": seconds, "wall": wall, "megabytes": max(0, peak - before) / 1024,
            "save_megabytes": max(0, resident()[1] - before) / 1024, "bytes": size, "stages": trace.seconds, "error": error}


def work(pipe: Connection, vocabulary_file: Path, options: Options, gigabytes: float, save: bool) -> None:
    """A worker: cases in, results out, until told to stop by None."""
    vocabulary = Vocabulary.load(vocabulary_file)
    measure({"name": "", "schema": WARM_UP}, options, vocabulary, save)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + int(gigabytes * 2**30),) * 2)
    pipe.send(None)
    while (case := pipe.recv()) is not None:
        pipe.send(measure(case, options, vocabulary, save))


class Worker:
    """One worker process at a time; a fresh one after one had to be killed."""

    def __init__(self, vocabulary: Path, options: Options, gigabytes: float, save: bool) -> None:
        self.arguments = (vocabulary, options, gigabytes, save)
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """The result of one case; the time limit is the worker's own business for a while, then the process ends."""
        limit = self.arguments[1].time_limit
        self.pipe.send(case)
        with contextlib.suppress(EOFError):
            if self.pipe.poll(1.5 * limit + 5):
                result: dict[str, Any] = self.pipe.recv()
                return result
            self.process.kill()
            self.process.join()
            self.start()
            return lost(case, KILLED, 1.5 * limit + 5)
        self.process.join()
        self.start()
        return lost(case, DIED, 0.0)


def lost(case: dict[str, Any], error: str, seconds: float) -> dict[str, Any]:
    return {"name": case["name"], "seconds": seconds, "wall": seconds, "megabytes": 0.0, "save_megabytes": 0.0, "bytes": 0, "stages": {},
            "error": error}


def read_cases(path: Path, every: int, offset: int) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % every == offset:
                case = json.loads(line)
                yield {"name": case["name"], "schema": case["schema"]}


def quantiles(values: list[float]) -> dict[str, float]:
    """p50, p90, p99, the largest and the sum."""
    ordered = sorted(values) or [0.0]
    at = {f"p{percent}": ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in (50, 90, 99)}
    return {**at, "max": ordered[-1], "sum": sum(ordered)}


def summary(results: list[dict[str, Any]], seconds: float, gigabytes: float) -> dict[str, Any]:
    stages = {stage: quantiles([result["stages"].get(stage, 0.0) for result in results]) for stage in STAGES}
    over = [result["name"] for result in results
            if result["seconds"] > seconds or result["megabytes"] > gigabytes * 1024 or result["error"] in LOST]
    return {"cases": len(results), "refused": sum(bool(result["error"]) for result in results), "over": over,
            "seconds": quantiles([result["seconds"] for result in results]), "wall": quantiles([result["wall"] for result in results]),
            "megabytes": quantiles([result["megabytes"] for result in results]),
            "save_megabytes": quantiles([result["save_megabytes"] for result in results]), "stages": stages}


def show(report: dict[str, Any], results: list[dict[str, Any]]) -> None:
    def row(name: str, values: dict[str, float], scale: float, unit: str) -> str:
        return f"{name:>10} " + " ".join(f"{key} {value * scale:10.1f}" for key, value in values.items()) + f" {unit}"

    print(f"{report['cases']} cases, {report['refused']} of them refused; over a limit: {report['over'] or 'none'}")
    print(row("total", report["seconds"], 1e3, "ms CPU"))
    print(row("wall", report["wall"], 1e3, "ms"))
    for stage, values in report["stages"].items():
        print(row(stage, values, 1e3, "ms CPU"))
    print(row("memory", report["megabytes"], 1, "MiB"))
    for title, key in (("slowest", "seconds"), ("largest", "megabytes")):
        print(f"the {title}:")
        for result in sorted(results, key=lambda result: -result[key])[:SLOWEST]:
            stages = " ".join(f"{stage} {spent:.2f}" for stage, spent in result["stages"].items())
            print(f"{result['seconds']:8.2f} s {result['megabytes']:7.0f} MiB  {result['name']}: {stages} {result['error']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="every 40th case")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="make the file's bytes too")
    parser.add_argument("--property-order", default=Options.property_order)
    parser.add_argument("--seconds", type=float, default=TIME_LIMIT)
    parser.add_argument("--gigabytes", type=float, default=MEMORY_LIMIT)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    options = Options(whitespace="flexible", max_states=200_000, time_limit=arguments.seconds, property_order=arguments.property_order)
    worker = Worker(arguments.vocab, options, arguments.gigabytes, arguments.save)
    cases = read_cases(arguments.cases, 40 if arguments.quick else arguments.every, arguments.offset)
    results = [worker.ask(case) for case in cases]
    worker.pipe.send(None)
    report = summary(results, arguments.seconds, arguments.gigabytes)
    show(report, results)
    if arguments.json:
        arguments.json.write_text(json.dumps({"summary": report, "results": results}))


if __name__ == "__main__":
    main()
