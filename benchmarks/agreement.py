"""Masks on the device against the host matcher, bit for bit, on real vocabularies: every sample, at every configuration of random outputs.

    python benchmarks/agreement.py [--quick] [--tokenizers DIR] [--names qwen3,gemma3] [--outputs N] [--sanitize] [--json OUT]

For each grammar N random valid outputs (200) are cut into random tokens; every configuration on the way counts, each distinct one once,
since a mask depends on nothing else. At each of them the mask of (a) plain MLX operations, (b) the walk kernel and (c) the action kernel is
compared with ``fill_next_token_bitmask``, and the state that operations advance to, by the output's own token or by one that may be
refused, with the matcher's. A token that would leave more than 64 call sites on the stack, on its way or at its end, is one that device
masks leave out; a difference counts as *wrong* unless it is such a token. *Batched*: rows of all grammars in random order, and free rows,
on one table of all grammars.

Where there is no Metal the kernels' text is compiled by g++ (tests/metal_shim), with the address and undefined-behaviour sanitizers if
asked for. Every column named ``wrong`` must be 0; the exit status is 1 if one is not. ``--quick``: five outputs of three grammars.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from trie_walk import random_tokens, tokens_by_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from metal_shim import shim  # noqa: E402

from stcc.compiler import vocabulary_from_tokenizer  # noqa: E402
from stcc.formats import Vocabulary  # noqa: E402
from stcc.runtime import Grammar, Matcher, allocate_token_bitmask, load  # noqa: E402
from stcc.runtime.device.kernels import KernelMasks  # noqa: E402
from stcc.runtime.device.operations import OperationMasks  # noqa: E402
from stcc.runtime.device.tables import CAPACITY, FREE, TERMINATED, DeviceTables, build_tables  # noqa: E402
from stcc.runtime.sampling import Walker  # noqa: E402
from stcc.runtime.seam import compile_file  # noqa: E402

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]

ROOT = Path(__file__).resolve().parents[1]
TOKENIZERS = ROOT / "../shared/tokenizers"
QUICK_GRAMMARS = ("person", "thread", "semver")
MORE_BYTES = (20, 120, 400)
"""Bytes that a random output may have beyond the shortest one, in turn."""
ROWS = {"operations": 16, "kernels": 64}
"""Rows of one call."""
MIXED_ROWS, FREE_ROWS = 400, 8
FAST_FLAGS = ("-std=c++17", "-O2", "-Wno-unused-variable")
MOST_STACK = 56
"""Configurations deeper than this are left out: what a token pushes might not fit."""


class Row(NamedTuple):
    """One configuration: its state vector, the host's mask, a token, the state vector after it; and what reads a token's bytes there."""

    state: Int32
    allowed: Bool
    token: int
    after: Int32
    matcher: Matcher | None

    def peak(self, token: int) -> int:
        """The most call sites on the stack while the bytes of ``token`` are read."""
        assert self.matcher is not None and self.matcher.grammar.vocabulary is not None
        configuration, most = self.matcher.configuration(), 0
        for byte in self.matcher.grammar.vocabulary.token(token):
            following = self.matcher.grammar.stacks.step(*configuration, byte)
            assert following is not None
            configuration = following
            most = max(most, configuration[1].depth)
        return most


Rows = list[Row]


def sources(quick: bool) -> dict[str, Path]:
    """The samples by name."""
    found = [path for kind in ("schema.json", "regex", "tools.json") for path in sorted((ROOT / "samples").glob(f"*.{kind}"))]
    return {path.name.split(".")[0]: path for path in found if not quick or path.name.split(".")[0] in QUICK_GRAMMARS}


def host_mask(bits: npt.NDArray[np.int32], tokens: int) -> Bool:
    """One row of a bitmask, a bool a token."""
    return np.unpackbits(bits.view(np.uint8), bitorder="little")[:tokens].astype(np.bool_)


def along_outputs(grammar: Grammar, tables: DeviceTables, number: int, outputs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Each distinct configuration along random outputs."""
    vocabulary = grammar.vocabulary
    assert vocabulary is not None
    walker, spelled, bits = Walker(grammar.machine), tokens_by_bytes(vocabulary), allocate_token_bitmask(1, vocabulary.size)
    seen = set()
    for turn in range(outputs):
        text = walker.output(rng, MORE_BYTES[turn % len(MORE_BYTES)])
        matcher = grammar.matcher()
        for token in [*random_tokens(text, spelled, rng), vocabulary.stop_token_ids[0]]:
            key = matcher.state, tuple(matcher.stack)
            if key not in seen and len(matcher.stack) <= MOST_STACK:
                seen.add(key)
                bits[:] = 0
                matcher.fill_next_token_bitmask(bits, 0)
                before = tables.configuration(number, matcher.state, matcher.stack)
                tried = token if rng.random() < 0.5 else int(rng.integers(vocabulary.size))
                probe = matcher.fork()
                probe.accept_token(tried)
                after = tables.configuration(number, probe.state, probe.stack)
                yield Row(before, host_mask(bits[0], vocabulary.size), tried, after, matcher.fork())
            assert matcher.accept_token(token)


def wrong_masks(masks: Any, rows: Rows, size: int) -> int:
    """Bits in which masks differ from the host's, but for tokens that do not fit the stack."""
    wrong = 0
    for low in range(0, len(rows), size):
        part = rows[low: low + size]
        found = np.array(masks.mask(mx.array(np.stack([row.state for row in part]))))
        for place, token in np.argwhere(found != np.stack([row.allowed for row in part])).tolist():
            row = part[place]
            wrong += not row.allowed[token] or row.matcher is None or row.peak(token) <= CAPACITY
    return wrong


def wrong_steps(masks: OperationMasks, rows: Rows, size: int) -> int:
    """Rows that advance to another configuration than the host's; a terminated row's stack means nothing."""
    wrong = 0
    for low in range(0, len(rows), size):
        part = rows[low: low + size]
        moved = np.array(masks.advance(mx.array(np.stack([row.state for row in part])), mx.array([row.token for row in part])))
        same = moved == np.stack([row.after for row in part])
        same[moved[:, 0] == TERMINATED, 1:] = True
        wrong += int((~same.all(axis=1)).sum())
    return wrong


def compared(tables: DeviceTables, rows: Rows) -> dict[str, int]:
    """Differences of the three sources, and of advancing."""
    operations = OperationMasks(tables)
    return {
        "operations wrong": wrong_masks(operations, rows, ROWS["operations"]),
        "walk wrong": wrong_masks(KernelMasks(tables, "walk"), rows, ROWS["kernels"]),
        "action wrong": wrong_masks(KernelMasks(tables, "action"), rows, ROWS["kernels"]),
        "steps wrong": wrong_steps(operations, rows, ROWS["operations"]),
    }


def tables_of(grammars: list[Grammar], vocabulary: Vocabulary) -> DeviceTables:
    return build_tables([(grammar.machine, grammar.binding) for grammar in grammars], vocabulary)


def free_rows(vocabulary: Vocabulary) -> Rows:
    """Rows without a grammar, which allow everything and stay as they are."""
    state = np.zeros(66, np.int32)
    state[0] = FREE
    return [Row(state, np.ones(vocabulary.size, np.bool_), token, state, None) for token in range(FREE_ROWS)]


def measure(name: str, vocabulary: Vocabulary, files: dict[str, Path], outputs: int) -> list[dict[str, Any]]:
    """One row a grammar and one for all of them batched."""
    grammars = {sample: load(compile_file(path), vocabulary=vocabulary) for sample, path in files.items()}
    rng, report, mixed = np.random.default_rng(7), [], []
    together = tables_of(list(grammars.values()), vocabulary)
    for number, (sample, grammar) in enumerate(grammars.items()):
        started = time.perf_counter()
        alone = tables_of([grammar], vocabulary)
        rows = list(along_outputs(grammar, alone, 0, outputs, rng))
        report.append({"tokenizer": name, "grammar": sample, "states": grammar.machine.states, "configurations": len(rows),
                       **compared(alone, rows), "seconds": time.perf_counter() - started})
        show(report[-1])
        share = max(1, MIXED_ROWS // len(grammars))
        mixed += list(along_outputs(grammar, together, number, max(1, outputs // 20), rng))[:share]
    started, mixed = time.perf_counter(), mixed + free_rows(vocabulary)
    rows = [mixed[place] for place in rng.permutation(len(mixed))]
    states = sum(row["states"] for row in report)
    report.append({"tokenizer": name, "grammar": "all, batched", "states": states, "configurations": len(rows),
                   **compared(together, rows), "seconds": time.perf_counter() - started})
    show(report[-1])
    return report


def show(row: dict[str, Any]) -> None:
    counts = " ".join(f"{name} {count}" for name, count in row.items() if name.endswith("wrong"))
    print(f"{row['tokenizer']:8}{row['grammar']:16}{row['states']:7} states{row['configurations']:7} configurations   {counts}"
          f"{row['seconds']:8.1f} s", flush=True)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tokenizers", type=Path, default=TOKENIZERS)
    parser.add_argument("--names", default="qwen3,gemma3")
    parser.add_argument("--grammars", default="", help="these samples only, by name, comma between")
    parser.add_argument("--outputs", type=int, default=200)
    parser.add_argument("--sanitize", action="store_true", help="compile the kernels with sanitizers, some five times slower")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not mx.metal.is_available():
        if shim.COMPILER is None:
            parser.error("without Metal, g++ is needed to run the kernels' text")
        shim.FLAGS = shim.FLAGS if options.sanitize else FAST_FLAGS
        mx.metal.is_available, mx.fast.metal_kernel = (lambda: True), shim.metal_kernel  # type: ignore[assignment]
    files, report = sources(options.quick), []
    if options.grammars:
        files = {name: files[name] for name in options.grammars.split(",")}
    for name in options.names.split(","):
        report += measure(name, vocabulary_from_tokenizer(options.tokenizers / name), files, 5 if options.quick else options.outputs)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    wrong = sum(count for row in report for name, count in row.items() if name.endswith("wrong"))
    print(f"{sum(row['configurations'] for row in report):,} configurations, {wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
