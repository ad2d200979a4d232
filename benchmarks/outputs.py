"""Random outputs of many schemas, each read by an independent validator: none may be invalid.

    python benchmarks/outputs.py CASES.jsonl.gz [--schemas 1000] [--each 100] [--whitespace compact] [--parts N --part K]
                                 [--json OUT]

CASES: one JSON object a line with ``name`` and ``schema``. Schemas are taken at even distances until ``--schemas`` of them both compile
here and are understood by jsonschema-rs (formats on); each gives ``--each`` random outputs. An invalid one is listed with what is wrong.
Two causes are told apart, because they are not the machine's: numbers that the validator rounds to doubles (it is asked again with
exact decimals by jsonschema), and an undeclared name that is repeated to meet ``minProperties`` (docs/json-schema.md, departures).
"""

from __future__ import annotations

import argparse
import collections
import decimal
import gzip
import itertools
import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import numpy as np

from stcc.compiler import CompileError, Options, compile_json_schema
from stcc.runtime import load
from stcc.runtime.sampling import Walker

SECONDS_A_SCHEMA = 20.0


def read_schemas(path: Path) -> list[tuple[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [(case["name"], case["schema"]) for case in map(json.loads, lines)]


def spread(count: int) -> Iterator[int]:
    """All numbers below ``count``, so that every beginning of the sequence is spread evenly (a golden-ratio walk)."""
    step = next(step for step in range(int(count * 0.618) or 1, count + 1) if np.gcd(step, count) == 1)
    return (number * step % count for number in range(count))


def prepared(schema: Any, options: Options) -> tuple[Walker, Any] | None:
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True, ignore_unknown_formats=True)
    except Exception:  # what the validator does not understand is not a test of ours
        return None
    try:
        return Walker(load(compile_json_schema(schema, options=options)).machine), validator
    except CompileError:
        return None


def cause(schema: Any, text: str) -> str:
    """Why the validator calls ``text`` invalid."""
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = collections.Counter(name for name, _ in pairs)
        repeated.extend(name for name, times in names.items() if times > 1)
        return dict(pairs)

    try:
        exact = json.loads(text, parse_float=Decimal, object_pairs_hook=members)
    except decimal.InvalidOperation:
        return "an exponent that decimals do not reach, 0 or infinity to the validator"
    try:
        with decimal.localcontext(prec=max(28, len(text))):  # multipleOf divides
            errors = list(jsonschema.validators.validator_for(schema)(schema).iter_errors(exact))
    except Exception as error:  # what that validator does not understand
        return f"INVALID: {type(error).__name__}: {str(error)[:80]}"
    if not errors:
        return "rounding of the validator"
    if repeated and all(error.validator == "minProperties" for error in errors):
        return "an undeclared name repeated under minProperties"
    return f"INVALID: {errors[0].validator}: {errors[0].message[:80]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--max-bytes", type=int, default=400)
    parser.add_argument("--whitespace", default="compact")
    parser.add_argument("--parts", type=int, default=1, help="share the work between so many processes")
    parser.add_argument("--part", type=int, default=0, help="which of them this is, from 0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases = read_schemas(arguments.cases)
    options = Options(whitespace=arguments.whitespace, time_limit=SECONDS_A_SCHEMA)
    causes: collections.Counter[str] = collections.Counter()
    listed: list[dict[str, str]] = []
    schemas = outputs = 0
    for number in itertools.islice(spread(len(cases)), arguments.part, None, arguments.parts):
        if schemas >= arguments.schemas // arguments.parts:
            break
        name, schema = cases[number]
        ready = prepared(schema, options)
        if ready is None:
            continue
        walker, validator = ready
        rng, end = np.random.default_rng(number), time.monotonic() + SECONDS_A_SCHEMA
        made = 0
        while made < arguments.each and time.monotonic() < end:
            text = walker.output(rng, arguments.max_bytes).decode()
            made += 1
            if not validator.is_valid(json.loads(text)):
                why = cause(schema, text)
                causes[why.split(":")[0]] += 1
                listed.append({"name": name, "cause": why, "text": text[:300]})
        schemas, outputs = schemas + 1, outputs + made
    print(f"{outputs:,} outputs of {schemas:,} schemas, {sum(causes.values())} called invalid by jsonschema-rs")
    for why, count in causes.most_common():
        print(f"{count:6} {why}")
    for entry in listed:
        print(f"       {entry['name']}: {entry['cause']}: {entry['text'][:120]}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"outputs": outputs, "schemas": schemas, "causes": causes, "invalid": listed}))
    sys.exit(1 if causes["INVALID"] else 0)


if __name__ == "__main__":
    main()
