"""Artifacts: how large they are, and how fast they compile, bind, load and open, for every sample and vocabulary.

    python benchmarks/artifacts.py [--quick] [--json OUT] [--samples DIR] [--tokenizers DIR] [--vocabularies llama3,qwen3,gemma3]

DIR of ``--tokenizers`` holds one folder a tokenizer. For each sample: states, classes and, for each vocabulary, actions, bytes of the
portable and of the bound file, milliseconds to compile, bind and load, and from nothing to the first mask of the bound file (read, check,
decode, fill); for each vocabulary, milliseconds to open its ``.stv``. Loading and opening are medians of repeated runs with a warm file
cache and the vocabulary already open, as in a server that loads its next grammar, on two clocks: wall, and the thread's own CPU time, which
other programs on shared cores disturb less. ``--quick`` takes four samples and the first vocabulary.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stcc.compiler import bind, vocabulary_from_tokenizer
from stcc.formats import Artifact, Vocabulary
from stcc.runtime import allocate_token_bitmask, load
from stcc.runtime.seam import compile_file

ROOT = Path(__file__).resolve().parents[1]
QUICK_SAMPLES = ("person", "form96", "tree", "semver")
VOCABULARIES = "llama3,qwen3,gemma3"


def median_ms(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median milliseconds of ``run``, by clock."""
    run()
    wall, cpu = [], []
    for _ in range(repeats):
        cpu_started, started = time.thread_time_ns(), time.perf_counter_ns()
        run()
        ended = time.perf_counter_ns()
        cpu.append(time.thread_time_ns() - cpu_started)
        wall.append(ended - started)
    return {"wall": statistics.median(wall) / 1e6, "cpu": statistics.median(cpu) / 1e6}


def first_mask(path: Path, vocabulary: Vocabulary) -> Callable[[], object]:
    """What a server does with a grammar it has not seen: open the file, make a matcher, fill its first mask."""
    bitmask = allocate_token_bitmask(1, vocabulary.size)

    def run() -> object:
        return load(path, vocabulary=vocabulary).matcher().fill_next_token_bitmask(bitmask)

    return run


def bound_sizes(artifact: Artifact, vocabulary: Vocabulary, folder: Path, repeats: int) -> dict[str, Any]:
    """Everything measured of one artifact on one vocabulary."""
    started = time.perf_counter()
    bound = bind(artifact, vocabulary)
    seconds = time.perf_counter() - started
    path = folder / "bound.stc"
    bound.save(path)
    return {
        "actions": bound.binding(vocabulary.fingerprint).actions, "bytes": path.stat().st_size, "bind_ms": 1e3 * seconds,
        "load_ms": median_ms(lambda: load(path, vocabulary=vocabulary), repeats),
        "first_mask_ms": median_ms(first_mask(path, vocabulary), repeats),
    }


def measure_sample(source: Path, vocabularies: dict[str, Vocabulary], folder: Path, repeats: int) -> dict[str, Any]:
    """Everything measured of one sample."""
    started = time.perf_counter()
    artifact = compile_file(source)
    seconds = time.perf_counter() - started
    return {
        "states": artifact.machine.states, "classes": artifact.machine.classes, "sites": artifact.machine.sites,
        "bytes": len(artifact.to_bytes()), "compile_ms": 1e3 * seconds,
        "vocabularies": {name: bound_sizes(artifact, vocabulary, folder, repeats) for name, vocabulary in vocabularies.items()},
    }


def open_vocabularies(folder: Path, names: list[str], target: Path, repeats: int) -> tuple[dict[str, Vocabulary], dict[str, Any]]:
    """The vocabularies, read from the packs written for them, and what their packs cost."""
    vocabularies, measured = {}, {}
    for name in names:
        path = target / f"{name}.stv"
        started = time.perf_counter()
        vocabulary_from_tokenizer(str(folder / name)).save(path)
        seconds = time.perf_counter() - started
        measured[name] = {"bytes": path.stat().st_size, "make_ms": 1e3 * seconds,
                          "open_ms": median_ms(lambda path=path: Vocabulary.load(path), repeats)}
        vocabularies[name] = Vocabulary.load(path)
        measured[name]["size"] = vocabularies[name].size
    return vocabularies, measured


def shown(milliseconds: dict[str, float]) -> str:
    """Both clocks."""
    return f"{milliseconds['wall']:.3g} / {milliseconds['cpu']:.3g}"


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    heads = ("sample", "states", "classes", "sites", "portable bytes", "compile ms", "vocabulary", "actions", "bound bytes", "bind ms",
             "load ms: wall / cpu", "open + first mask ms: wall / cpu")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, one in result["samples"].items():
        head = f"| {name} | {one['states']} | {one['classes']} | {one['sites']} | {one['bytes']} | {one['compile_ms']:.3g} "
        lines += [f"{head}| {vocabulary} | {bound['actions']} | {bound['bytes']} | {bound['bind_ms']:.3g} | "
                  f"{shown(bound['load_ms'])} | {shown(bound['first_mask_ms'])} |" for vocabulary, bound in one["vocabularies"].items()]
    lines += ["", "| vocabulary | tokens | .stv bytes | make ms | open ms: wall / cpu |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {one['size']} | {one['bytes']} | {one['make_ms']:.3g} | {shown(one['open_ms'])} |"
              for name, one in result["packs"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, default=ROOT / "samples")
    parser.add_argument("--tokenizers", type=Path, default=ROOT / "../shared/tokenizers")
    parser.add_argument("--vocabularies", default=VOCABULARIES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    names = arguments.vocabularies.split(",")[: 1 if arguments.quick else None]
    for folder in (arguments.samples, *(arguments.tokenizers / name for name in names)):
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    sources = sorted([*arguments.samples.glob("*.schema.json"), *arguments.samples.glob("*.regex")])
    repeats = 20 if arguments.quick else 50
    with tempfile.TemporaryDirectory() as temporary:
        vocabularies, packs = open_vocabularies(arguments.tokenizers, names, Path(temporary), repeats)
        samples = {}
        for source in sources:
            name = source.name.partition(".")[0]
            if not arguments.quick or name in QUICK_SAMPLES:
                samples[name] = measure_sample(source, vocabularies, Path(temporary), repeats)
    result = {"samples": samples, "packs": packs, "python": platform.python_version(), "machine": platform.machine()}
    print(table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
