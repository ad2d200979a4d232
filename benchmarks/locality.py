"""Locality: Assumption 1 of Theorem 20, tried on random strings of every tokenizer.

    python benchmarks/locality.py [--quick] [--json OUT] [--tokenizers DIR] [--names qwen3,llama3,gemma3,gptoss] [--pairs N]

Plans commit a block of forced text because more text cannot move its boundaries. That rests on three properties of the pre-tokenizer,
which ``stcc.compiler.binding.locality`` tries on N random (string, character) pairs a tokenizer (100,000; 5,000 with ``--quick``):
appending a character keeps the blocks before the last one (``append``), cutting at a boundary and starting anew finds the same boundaries
(``restart``), and a boundary that holds behind every left context holds behind random text too (``left``). ``skipped`` pairs hold text
that the tokenizer rewrites; nothing is planned there. The exit status is 1 if there is a violation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from stcc.compiler import vocabulary_from_tokenizer
from stcc.compiler.binding.canonical import canonical_encoder
from stcc.compiler.binding.locality import check_locality

TOKENIZERS = Path(__file__).resolve().parents[1] / "../shared/tokenizers"
NAMES = "qwen3,llama3,gemma3,gptoss"
PAIRS, QUICK_PAIRS = 100_000, 5_000
PROPERTIES = ("append", "restart", "left")


def measure(folder: Path, pairs: int, seed: int) -> dict[str, Any]:
    """The report on one tokenizer. ValueError if its pack holds no encoder record."""
    encoder = canonical_encoder(vocabulary_from_tokenizer(folder))
    if encoder is None:
        raise ValueError(f"{folder.name}: its blocks are not known, so nothing is planned for it")
    started = time.perf_counter()
    report = check_locality(encoder, pairs, seed)
    found = Counter(kind for kind, _, _ in report.violations)
    return {"pairs": report.pairs, "skipped": report.skipped, **{kind: found[kind] for kind in PROPERTIES},
            "examples": [list(violation) for violation in report.violations[:5]], "seconds": round(time.perf_counter() - started, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", type=Path, default=TOKENIZERS)
    parser.add_argument("--names", default=NAMES)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PAIRS} pairs in place of {PAIRS}")
    parser.add_argument("--json", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    names = [name for name in arguments.names.split(",") if (arguments.tokenizers / name / "tokenizer.json").is_file()]
    if not names:
        parser.error(f"{arguments.tokenizers} holds none of {arguments.names}")
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    result: dict[str, dict[str, Any]] = {}
    print("| tokenizer | pairs | skipped | append | restart | left | s |\n|---|---|---|---|---|---|---|")
    for name in names:
        one = result[name] = measure(arguments.tokenizers / name, pairs, arguments.seed)
        counts = " | ".join(f"{one[column]:,}" for column in ("pairs", "skipped", *PROPERTIES, "seconds"))
        print(f"| {name} | {counts} |", flush=True)
        for example in one["examples"]:
            print(example, file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(any(one[kind] for one in result.values() for kind in PROPERTIES))


if __name__ == "__main__":
    sys.exit(main())
