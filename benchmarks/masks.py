"""Masks on real schemas: ours, llguidance and xgrammar over the same MaskBench cases, in one process.

    python benchmarks/masks.py --cases maskbench.jsonl.gz --tokenizer DIR [--quick] [--json OUT] [--engines stcc,llguidance,xgrammar]
                               [--rounds N] [--count N] [--every N] [--offset K]

CASES is a .jsonl(.gz) of ``{name, schema, tests: [{valid, data}]}``; DIR holds tokenizer.json and tokenizer_config.json. Peers take part
if they are installed (``pip install llguidance xgrammar transformers``). The first 400 cases are used, 60 with ``--quick``.

Protocol, case by case and, within a case, engine by engine, so that all engines meet the same load of the machine: compile the schema
(flexible whitespace), then for every test feed the tokens of ``json.dumps(data)``; one sample is filling the mask, looking up the token,
and advancing. A case *passes* if every valid instance is taken and may end, and every invalid one is refused or may not end; a *false
accept* takes an invalid one. Times of two engines are compared over the cases that both compile, so that an engine gains nothing by
refusing hard schemas. What an engine prepares while it compiles (our warm rows, xgrammar's mask cache) is in its compile time.

Two clocks read every sample: *wall* is what a user waits, *cpu* is the thread's own time, which other programs on shared cores disturb
less. Before a case is timed, every engine has compiled and decoded a small schema (so that its tokenizer is ready), and garbage is
collected and the survivors frozen before each engine's turn, alike for all, so that no engine pays for another's objects.

An interrupt costs the program it hits 30-80 us even on the CPU clock, and hits one sample in some hundreds: the highest percentiles of a
fast engine are the machine's. So each case is run in ``--rounds`` (3), compile included; one pair of tables shows the first round as it
was, another the least time that each sample took, which no interrupt survives.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib.util
import itertools
import json
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

CASES, QUICK_CASES = 400, 60
CLOCKS = ("wall", "cpu")
WARM_UP = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
TIME_LIMIT = 30.0
"""Seconds an engine may spend on one case."""
DEFAULT_CASES = Path(__file__).resolve().parents[1] / "../shared/data/maskbench-dev.jsonl.gz"
DEFAULT_TOKENIZER = Path(__file__).resolve().parents[1] / "../shared/tokenizers/llama3"


class Engine(Protocol):
    """What a peer has to be able to do."""

    def compile(self, schema: Any) -> None: ...
    def reset(self) -> None: ...
    def mask(self) -> None: ...
    def allowed(self, token: int) -> bool: ...
    def advance(self, token: int) -> None: ...
    def may_end(self) -> bool: ...


class Stcc:
    module = "stcc"

    def __init__(self, folder: Path) -> None:
        from stcc.compiler import Options, compile_json_schema, vocabulary_from_tokenizer
        from stcc.runtime import allocate_token_bitmask, load

        self._load, self._compile, self._options = load, compile_json_schema, Options(whitespace="flexible")
        self._vocabulary = vocabulary_from_tokenizer(str(folder))
        self._bitmask = allocate_token_bitmask(1, self._vocabulary.size)
        self._words = self._bitmask.view(np.uint32)

    def compile(self, schema: Any) -> None:
        self._grammar = self._load(self._compile(schema, options=self._options), vocabulary=self._vocabulary)

    def reset(self) -> None:
        self._matcher = self._grammar.matcher()

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bitmask, 0)

    def allowed(self, token: int) -> bool:
        return bool(int(self._words[0, token >> 5]) >> (token & 31) & 1)

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ValueError("refused a token that its mask allowed")

    def may_end(self) -> bool:
        return self._matcher.is_accepting()


class Llguidance:
    module = "llguidance"

    def __init__(self, folder: Path) -> None:
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self._module, self._fill, self._stop = llguidance, fill_next_token_bitmask, stop_token(folder)
        self._tokenizer = llguidance.LLTokenizer((folder / "tokenizer.json").read_text("utf-8"), eos_token=self._stop)
        self._bitmask = allocate_token_bitmask(1, self._tokenizer.vocab_size)
        self._words = self._bitmask.view(np.uint32)

    def compile(self, schema: Any) -> None:
        self._first = self._module.LLMatcher(self._tokenizer, json.dumps({"grammars": [{"json_schema": schema}]}))
        if self._first.is_error():
            raise ValueError(self._first.get_error())

    def reset(self) -> None:
        self._matcher = self._first.deep_copy()

    def mask(self) -> None:
        self._fill(self._matcher, self._bitmask, 0)

    def allowed(self, token: int) -> bool:
        return bool(int(self._words[0, token >> 5]) >> (token & 31) & 1)

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())

    def may_end(self) -> bool:
        self.mask()
        return self.allowed(self._stop) or bool(self._matcher.is_stopped())


class Xgrammar:
    module = "xgrammar"

    def __init__(self, folder: Path) -> None:
        import xgrammar
        from transformers import PreTrainedTokenizerFast

        self._module, self._stop = xgrammar, stop_token(folder)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer), stop_token_ids=[self._stop])
        self._bitmask = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self._words = self._bitmask.numpy().view(np.uint32)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def compile(self, schema: Any) -> None:
        self._compiler.clear_cache()
        self._grammar = self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)

    def reset(self) -> None:
        self._matcher = self._module.GrammarMatcher(self._grammar)

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bitmask)

    def allowed(self, token: int) -> bool:
        return bool(int(self._words[0, token >> 5]) >> (token & 31) & 1)

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ValueError("refused a token that its mask allowed")

    def may_end(self) -> bool:
        if self._matcher.is_terminated():
            return True
        self.mask()
        return self.allowed(self._stop)


ENGINES: dict[str, Callable[[Path], Engine]] = {"stcc": Stcc, "llguidance": Llguidance, "xgrammar": Xgrammar}


def stop_token(folder: Path) -> int:
    """The id of the tokenizer's end-of-sequence token."""
    text = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["eos_token"]
    text = text["content"] if isinstance(text, dict) else text
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return int(added[text] if text in added else tokenizer["model"]["vocab"][text])


@dataclass
class Outcome:
    """One engine on one case: microseconds of every sample by kind of time, seconds of the compile, what went wrong ("" if nothing)."""

    samples: dict[str, list[float]] = field(default_factory=lambda: {clock: [] for clock in CLOCKS})
    seconds: float = 0.0
    compiled: bool = False
    fault: str = ""


class OutOfTime(Exception):  # noqa: N818
    pass


def _out_of_time(*_: object) -> None:
    raise OutOfTime


def run_case(engine: Engine, schema: Any, tests: list[tuple[list[int], bool]]) -> Outcome:
    """Compile and feed every test, under the time limit, with collected garbage out of the way."""
    outcome = Outcome()
    gc.collect()
    gc.freeze()
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
    try:
        started = time.perf_counter()
        engine.compile(schema)
        outcome.seconds, outcome.compiled = time.perf_counter() - started, True
        for tokens, valid in tests:
            taken = feed(engine, tokens, outcome.samples)
            if taken != valid:
                outcome.fault = "false accept" if taken else "false reject"
                break
    except OutOfTime:
        outcome.fault = "out of time"
    except Exception as error:  # a peer may raise anything, and each kind counts as a fault of its own
        outcome.fault = f"{'raised' if outcome.compiled else 'compile'}: {type(error).__name__}"
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        outcome.fault = f"panicked: {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return outcome


def run_rounds(engine: Engine, schema: Any, tests: list[tuple[list[int], bool]], rounds: int) -> Outcome:
    """The case ``rounds`` times, each from its compile on: the first outcome, with the least time of each sample beside the first."""
    outcome = run_case(engine, schema, tests)
    least = {clock: outcome.samples[clock] for clock in CLOCKS}
    for _ in range(rounds - 1):
        again = run_case(engine, schema, tests)
        outcome.fault = outcome.fault or again.fault
        for clock in CLOCKS:
            least[clock] = [min(pair) for pair in zip(least[clock], again.samples[clock], strict=False)]
    if rounds > 1:
        outcome.samples |= {f"{clock} (least of {rounds} rounds)": least[clock] for clock in CLOCKS}
    return outcome


def feed(engine: Engine, tokens: list[int], samples: dict[str, list[float]]) -> bool:
    """Whether the engine takes the whole text and may end there."""
    engine.reset()
    wall, cpu = samples["wall"], samples["cpu"]
    for token in tokens:
        cpu_started, started = time.thread_time_ns(), time.perf_counter_ns()
        engine.mask()
        good = engine.allowed(token)
        if good:
            engine.advance(token)
        ended = time.perf_counter_ns()
        cpu.append((time.thread_time_ns() - cpu_started) / 1e3)
        wall.append((ended - started) / 1e3)
        if not good:
            return False
    return engine.may_end()


def read_cases(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """The first ``most`` cases of a .jsonl or .jsonl.gz file."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for line in itertools.islice(lines, most):
            yield json.loads(line)


def times(samples: list[float]) -> dict[str, float]:
    """Mean and percentiles of microseconds."""
    if not samples:
        return {"masks": 0}
    array = np.array(samples)
    shown = {"masks": len(array), "mean": float(array.mean()), "max": float(array.max())}
    return shown | {name: float(np.percentile(array, at)) for name, at in (("p50", 50), ("p99", 99), ("p99.9", 99.9))}


def summary(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """Each engine's coverage and times, and each peer's times over ours on the cases that both compile."""
    engines: dict[str, Any] = {}
    for name, own in outcomes.items():
        compiled = [outcome for outcome in own if outcome.compiled]
        faults = [outcome.fault for outcome in own]
        engines[name] = {
            "cases": len(own), "compiled": len(compiled), "passing": faults.count(""), "false_accepts": faults.count("false accept"),
            "false_rejects": faults.count("false reject"), "compile_ms_mean": 1e3 * float(np.mean([one.seconds for one in compiled] or
            [0])), "us": {clock: times([sample for one in own for sample in one.samples[clock]]) for clock in own[0].samples},
        }
    versus = {name: compared(outcomes["stcc"], outcomes[name]) for name in outcomes if name != "stcc" and "stcc" in outcomes}
    return {"engines": engines, "versus": versus, "python": platform.python_version(), "machine": platform.machine()}


def compared(ours: list[Outcome], peer: list[Outcome]) -> dict[str, Any]:
    """The times of both over the cases that both compile, and how many times faster we are, by kind of time."""
    both = [pair for pair in zip(ours, peer, strict=True) if pair[0].compiled and pair[1].compiled]
    found: dict[str, Any] = {"cases": len(both)}
    for clock in ours[0].samples:
        own, other = (times([sample for pair in both for sample in pair[side].samples[clock]]) for side in (0, 1))
        found[clock] = {"stcc": own, "peer": other,
                        "times_faster": {key: other[key] / own[key] for key in ("mean", "p50", "p99", "p99.9") if own.get(key)}}
    return found


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = ["| engine | cases | passing | false accepts | false rejects | compile ms |", "|---|---|---|---|---|---|"]
    for name, one in result["engines"].items():
        share = 100 * one["passing"] / max(1, one["cases"])
        lines.append(f"| {name} | {one['cases']} | {one['passing']} ({share:.1f} %) | {one['false_accepts']} | {one['false_rejects']} "
                     f"| {one['compile_ms_mean']:.3g} |")
    for clock in next(iter(result["engines"].values()))["us"]:
        lines += ["", f"| mask + advance, us of {clock} | masks | mean | p50 | p99 | p99.9 | max |", "|---|---|---|---|---|---|---|"]
        for name, one in result["engines"].items():
            us = one["us"][clock]
            shown = " | ".join(f"{us.get(key, float('nan')):.1f}" for key in ("mean", "p50", "p99", "p99.9", "max"))
            lines.append(f"| {name} | {us['masks']} | {shown} |")
        for name, one in result["versus"].items():
            ratios = ", ".join(f"{key} {value:.2g}x" for key, value in one[clock]["times_faster"].items())
            lines.append(f"\n{name} / stcc, {clock} over the {one['cases']} cases that both compile: {ratios}")
    return "\n".join(lines)


def warm_up(engines: dict[str, Engine], tokens: list[int]) -> None:
    """Let every engine prepare what it prepares once for its tokenizer."""
    for name, engine in engines.items():
        outcome = run_case(engine, WARM_UP, [(tokens, True)])
        if outcome.fault:
            print(f"{name}: {outcome.fault} on the schema for warming up", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES)
    parser.add_argument("--tokenizer", type=Path, default=DEFAULT_TOKENIZER)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CASES} cases in place of {CASES}")
    parser.add_argument("--count", type=int, default=CASES, help=f"how many cases ({CASES})")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case")
    parser.add_argument("--offset", type=int, default=0, help="leave so many cases out at the beginning")
    parser.add_argument("--rounds", type=int, default=3, help="times that each case is run")
    parser.add_argument("--json", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    for path in (arguments.cases, arguments.tokenizer):
        if not path.exists():
            parser.error(f"{path} does not exist")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(arguments.tokenizer / "tokenizer.json"))
    engines: dict[str, Engine] = {}
    for name in arguments.engines.split(","):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed; left out", file=sys.stderr)
        else:
            engines[name] = ENGINES[name](arguments.tokenizer)
    signal.signal(signal.SIGALRM, _out_of_time)
    warm_up(engines, tokenizer.encode('{"name": "Ada"}', add_special_tokens=False).ids)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in engines}
    count = QUICK_CASES if arguments.quick else arguments.count
    first, every = arguments.offset, arguments.every
    for case in itertools.islice(read_cases(arguments.cases, first + count * every), first, None, every):
        texts = [(test.get("text") or json.dumps(test["data"], ensure_ascii=False), bool(test["valid"])) for test in case["tests"]]
        tests = [(tokenizer.encode(text, add_special_tokens=False).ids, valid) for text, valid in texts]
        for name, engine in engines.items():
            outcomes[name].append(run_rounds(engine, case["schema"], tests, arguments.rounds))
    result = summary(outcomes)
    print(table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
