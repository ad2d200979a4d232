"""Valid outputs under token limits on SmolLM2: Table 11 and Appendix G of the few-path paper.

    python benchmarks/budgets.py [--quick] [--json OUT] [--model NAME]

Six schemas of the samples with limits 2, 4, .. up to their full answer, and four recursive ones in steps of six from eight. For each limit:
is it feasible (not below ``need``, the fewest tokens of a valid output), is the output under our rule valid (judged by the jsonschema
library), and would the unlimited output, cut at the limit, be. A limit that is not feasible must be refused before decoding. An answer that
reaches ``MOST_TOKENS`` counts as full there. With room for the full answer the output must be that answer.

The prompt is read once a schema, and its cache copied for every limit. ``--quick``: one schema of each kind, every fourth limit.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema

from stcc.compiler import compile_json_schema
from stcc.runtime import load
from stcc.runtime.decode import DecodingModel, Generation, generate
from stcc.runtime.decoding.rows import copy_cache
from stcc.runtime.errors import BudgetTooSmall
from stcc.runtime.models import load_model, model_vocabulary

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
REGULAR = ("person", "tool_call", "product", "event", "classification", "contact_card")
RECURSIVE = ("tree", "thread", "directory", "expression")
MOST_TOKENS = 120


def is_valid(schema: Any, text: bytes) -> bool:
    """Judged by the jsonschema library."""
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))
    except ValueError:
        return False


def measure(loaded: Any, model: DecodingModel, name: str, first: int, step: int) -> dict[str, Any]:
    """One schema under the limits from ``first`` up to its full answer, in steps."""
    source = json.loads((SAMPLES / f"{name}.schema.json").read_text(encoding="utf-8"))
    grammar = load(compile_json_schema(source), vocabulary=model_vocabulary(loaded))
    prompt = loaded.prompt_tokens((SAMPLES / f"{name}.prompt.txt").read_text(encoding="utf-8").strip())
    read = model.make_cache()
    model.prefill(prompt[:-1], read)

    def decode(limit: int) -> Generation:
        return generate(model, grammar, prompt, max_tokens=limit, cache=copy_cache(read), cached=len(prompt) - 1).finish()

    full = decode(MOST_TOKENS)
    row: dict[str, Any] = {"schema": name, "full": len(full.tokens), "complete": full.stop_reason != "length", "need": grammar.need(),
                           "limits": 0, "feasible": 0, "valid": 0, "cut_valid": 0, "refused": 0, "shorter": 0}
    for limit in range(first, len(full.tokens) + 1, step):
        print(f"\r{name}: {limit} of {len(full.tokens)}   \r", end="", file=sys.stderr, flush=True)
        row["limits"] += 1
        if limit < row["need"]:
            try:
                decode(limit)
            except BudgetTooSmall:
                row["refused"] += 1
            continue
        done = decode(limit)
        row["feasible"] += 1
        row["valid"] += is_valid(source, done.text) and done.valid and len(done.tokens) <= limit
        row["shorter"] += done.tokens != full.tokens
        spelled = b"".join(grammar.vocabulary.token(token) for token in full.tokens[:limit]) if grammar.vocabulary else b""
        row["cut_valid"] += is_valid(source, spelled)
    roomy = decode(MOST_TOKENS if not row["complete"] else min(len(full.tokens) + grammar.need() + 8, MOST_TOKENS))
    row["unchanged_with_room"] = roomy.tokens == full.tokens
    return row


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    loaded = load_model(options.model)
    model, scale = DecodingModel(loaded.model), 4 if options.quick else 1
    rows: list[dict[str, Any]] = []
    print(f"{'schema':16}{'full':>6}{'need':>6}{'limits':>8}{'feasible':>10}{'valid':>7}{'cut valid':>11}{'refused':>9}{'room':>9}")
    for names, first, step in ((REGULAR, 2, 2), (RECURSIVE, 8, 6)):
        own: list[dict[str, Any]] = []
        for name in names[:1] if options.quick else names:
            own.append(measure(loaded, model, name, first, step * scale))
            show(own[-1])
        counts = ("limits", "feasible", "valid", "cut_valid", "refused", "shorter")
        rows += [*own, {"schema": "all", **{key: sum(row[key] for row in own) for key in counts}}]
        show(rows[-1])
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def show(row: dict[str, Any]) -> None:
    """Print one row of the table."""
    room = "" if "full" not in row else "same" if row["unchanged_with_room"] else "DIFFERS"
    print(f"{row['schema']:16}{row.get('full', ''):>6}{row.get('need', ''):>6}{row['limits']:8}{row['feasible']:10}{row['valid']:7}"
          f"{row['cut_valid']:11}{row['refused']:9}{room:>9}", flush=True)


if __name__ == "__main__":
    main()
