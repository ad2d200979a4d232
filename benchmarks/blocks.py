"""Passes of certified blocks and of regions read ahead, against sequential greedy decoding, on SmolLM2.

In: the six schemas of the samples, each in three phrasings. Every output is decoded three ways in one process, interleaved: one token after
the other, in certified blocks (Theorem 23), and with finite regions read ahead. Out: per schema the passes and seconds of each, whether
the tokens are the same, and how much of the first draft was right. Also what a copy of the prompt's cache costs, and what the prompt cache
saves when the prompt is read again.

    python benchmarks/blocks.py [--quick] [--json OUT]

``--quick`` takes the first phrasing and shorter outputs. A pass over many rows or places takes longer than one over a single token where
the device is busy with one already: passes saved need not be time saved, and both are printed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from stcc.compiler import compile_json_schema
from stcc.runtime import load
from stcc.runtime.decode import generate
from stcc.runtime.decoding.blocks import BlockDecoder
from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.prompt_cache import PromptCache
from stcc.runtime.decoding.region_decode import RegionDecoder
from stcc.runtime.decoding.rows import copy_cache
from stcc.runtime.models import load_model, model_vocabulary

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
NAMES = ("person", "tool_call", "product", "event", "classification", "contact_card")
PHRASINGS = ("{task}", "{task}\n\nAnswer with the JSON object only.", "Read the text and give the facts in it as JSON.\n\n{task}")
MOST_TOKENS, QUICK_TOKENS = 160, 96


def prompts(name: str, quick: bool) -> list[str]:
    """The sample's task in each phrasing."""
    task = (SAMPLES / f"{name}.prompt.txt").read_text(encoding="utf-8").strip()
    return [phrasing.format(task=task) for phrasing in (PHRASINGS[:1] if quick else PHRASINGS)]


def measure(loaded: Any, quick: bool) -> list[dict[str, Any]]:
    """One record an output."""
    model, vocabulary = DecodingModel(loaded.model), model_vocabulary(loaded)
    limit = QUICK_TOKENS if quick else MOST_TOKENS
    records = []
    for name in NAMES:
        grammar = load(compile_json_schema((SAMPLES / f"{name}.schema.json").read_text(encoding="utf-8")), vocabulary=vocabulary)
        blocks, regions = BlockDecoder(model, grammar), RegionDecoder(model, grammar)
        for number, prompt in enumerate(prompts(name, quick)):
            tokens = loaded.prompt_tokens(prompt)
            started = time.perf_counter()
            sequential = generate(model, grammar, tokens, max_tokens=limit).finish()
            seconds = time.perf_counter() - started
            block, region = blocks.decode(tokens, limit), regions.decode(tokens, limit)
            records.append({
                "schema": name, "phrasing": number, "tokens": len(sequential.tokens), "passes": sequential.statistics.passes,
                "seconds": seconds, "valid": sequential.valid, "blocks_identical": block.tokens == sequential.tokens,
                "regions_identical": region.tokens == sequential.tokens, "blocks_passes": block.statistics.passes,
                "wave_steps": block.statistics.wave_steps, "certificates": block.statistics.certificates,
                "first_accepted": block.statistics.first_accepted, "first_places": block.statistics.first_places,
                "blocks_seconds": block.statistics.seconds, "blocks_row_steps": block.statistics.row_steps,
                "blocks_places": block.statistics.places, "regions_passes": region.statistics.passes,
                "regions_row_steps": region.statistics.row_steps, "regions_seconds": region.statistics.seconds,
            })
    return records


def measure_caches(loaded: Any) -> dict[str, float]:
    """Milliseconds: a prompt read, fetched from the prompt cache, and the first pass on a copy against one on the cache itself."""
    import mlx.core as mx

    model = DecodingModel(loaded.model)
    tokens = loaded.prompt_tokens((SAMPLES / "event.prompt.txt").read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {"read": [], "fetch": [], "pass": [], "pass_on_copy": []}

    def clock(key: str, action: Any) -> None:
        started = time.perf_counter()
        action()
        found[key].append((time.perf_counter() - started) * 1e3)

    for _ in range(5):
        stored, cache = PromptCache(model), model.make_cache()
        clock("read", lambda: model.prefill(tokens, cache))  # noqa: B023
        stored.insert(tokens, cache)
        clock("fetch", lambda: mx.eval([layer.state for layer in stored.fetch(tokens)[0]]))  # noqa: B023
        kept = copy_cache(cache)
        mx.eval(model.last(mx.array(tokens[-1:]), cache))
        clock("pass", lambda: mx.eval(model.last(mx.array(tokens[-1:]), cache)))  # noqa: B023
        clock("pass_on_copy", lambda: mx.eval(model.last(mx.array(tokens[-1:]), copy_cache(kept))))  # noqa: B023
    return {key: round(sorted(values)[len(values) // 2], 2) for key, values in found.items()} | {"prompt_tokens": len(tokens)}


def total(records: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The sums over one schema's outputs, or over all."""
    summed: dict[str, Any] = {"schema": name, "outputs": len(records)}
    for key, value in records[0].items():
        if key not in ("schema", "phrasing"):
            summed[key] = round(sum(record[key] for record in records), 2 if isinstance(value, float) else None)
    return summed


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    loaded = load_model("smollm2")
    records, caches = measure(loaded, options.quick), measure_caches(loaded)
    rows = [total([record for record in records if record["schema"] == name], name) for name in NAMES] + [total(records, "all")]
    print(f"{'schema':16}{'tokens':>7} | {'sequential':>10}{'s':>7} | "
          f"{'blocks':>7}{'waves':>6}{'cert':>5}{'first right':>12}{'same':>6}{'s':>7} | {'regions':>7}{'rows':>6}{'same':>6}{'s':>7}")
    for row in rows:
        print(f"{row['schema']:16}{row['tokens']:7} | {row['passes']:10}{row['seconds']:7.1f} | {row['blocks_passes']:7}"
              f"{row['wave_steps']:6}{row['certificates']:5}{row['first_accepted']:6} of {row['first_places']:<3}"
              f"{row['blocks_identical']:3}/{row['outputs']:<2}{row['blocks_seconds']:7.1f} | "
              f"{row['regions_passes']:7}{row['regions_row_steps']:6}"
              f"{row['regions_identical']:3}/{row['outputs']:<2}{row['regions_seconds']:7.1f}")
    whole = rows[-1]
    print(f"passes saved: blocks {whole['passes'] - whole['blocks_passes']} of {whole['passes']}, "
          f"regions {whole['passes'] - whole['regions_passes']} of {whole['passes']}; valid {whole['valid']} of {whole['outputs']}")
    print(f"a prompt of {caches['prompt_tokens']} tokens: read {caches['read']} ms, fetched {caches['fetch']} ms; "
          f"a pass {caches['pass']} ms, on a copy of the cache {caches['pass_on_copy']} ms")
    if options.json:
        options.json.write_text(json.dumps({"outputs": records, "caches": caches}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
