"""Long arrays, counted in blocks on the stack: exact at every boundary, wherever they stand, and small."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from stcc.compiler import stepping
from stcc.compiler.frontends.json_schema.counted_arrays import SHORTEST, CountedArray
from stcc.compiler.options import Options
from stcc.compiler.pipeline import compile_json_schema
from stcc.formats.machine import Machine

ITEMS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "integer"}, [7, -12]),
    ({"type": "string", "maxLength": 40}, ["", "é" * 40]),
    (
        {"type": "object", "properties": {"k": {"type": "array", "maxItems": 40}}, "required": ["k"], "additionalProperties": False},
        [{"k": [1] * 40}],
    ),
    ({}, [[], None, {"a": [1]}]),
]
SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": "), "flexible": (" ,\n", "\t: ")}


def machine_of(items: dict[str, Any], low: int, high: int | None, **options: Any) -> Machine:
    array = {"type": "array", "items": items, "minItems": low, **({} if high is None else {"maxItems": high})}
    schema = {"type": "object", "properties": {"a": array, "b": {}}, "required": ["a"], "additionalProperties": False}
    return compile_json_schema(schema, options=Options(**options)).machine


def accepted(machine: Machine, value: list[Any], whitespace: str = "compact") -> bool:
    spelled = json.dumps({"a": value, "b": 0}, separators=SEPARATORS[whitespace], ensure_ascii=False).encode()
    without = json.dumps({"a": value}, separators=SEPARATORS[whitespace], ensure_ascii=False).encode()
    results = [stepping.accepts(machine, text) for text in (spelled, without)]
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("order", ["declared", "relaxed"])
@pytest.mark.parametrize("whitespace", sorted(SEPARATORS))
@pytest.mark.parametrize(("items", "values"), ITEMS)
def test_boundaries(items: dict[str, Any], values: list[Any], whitespace: str, order: str) -> None:
    for low, high in ((0, SHORTEST), (35, 64), (50, None)):
        machine = machine_of(items, low, high, whitespace=whitespace, property_order=order)
        assert machine.sites
        size = CountedArray(low, high, 1).size
        top = low + 2 * size if high is None else high
        for length in sorted({0, 1, low - 1, low, size - 1, size, size + 1, 2 * size, top - 1, top, top + 1, top + size}):
            if length >= 0:
                value = (values * (length + 1))[:length]
                assert accepted(machine, value, whitespace) == (low <= length and (high is None or length <= high)), length


def test_every_length() -> None:
    machine = machine_of({"type": "boolean"}, 37, 70)
    for length in range(90):
        assert accepted(machine, [True] * length) == (37 <= length <= 70), length


def test_items_are_checked_everywhere() -> None:
    machine = machine_of({"type": "integer"}, 0, 50)
    for length in (1, 7, 8, 9, 49, 50):
        for place in {0, length // 2, length - 1}:
            value: list[Any] = [1] * length
            value[place] = "1"
            assert accepted(machine, [1] * length) and not accepted(machine, value)


def test_at_the_root_nested_and_recursive() -> None:
    schema = {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}, "minItems": 1, "maxItems": 40}]}
        },
    }
    machine = compile_json_schema(schema).machine
    valid = jsonschema.Draft202012Validator(schema)
    inner = [None] * 40
    for value in (None, [], [None], [inner] * 40, [inner] * 41, [[*inner, None]], [[[[inner]]], None], [[[]]], [1], [[None, 1]]):
        assert stepping.accepts(machine, json.dumps(value, separators=(",", ":")).encode()) == valid.is_valid(value), value


def test_several_bounds_meet() -> None:
    schema = {
        "type": "array",
        "allOf": [{"maxItems": 60}, {"minItems": 36, "items": {"minimum": 2}}, {"maxItems": 50, "items": {"type": "integer"}}],
    }
    machine = compile_json_schema(schema).machine
    for length in (35, 36, 50, 51, 60):
        assert stepping.accepts(machine, json.dumps([2] * length, separators=(",", ":")).encode()) == (36 <= length <= 50)
    assert not stepping.accepts(machine, json.dumps([1] * 40, separators=(",", ":")).encode())


def test_a_long_bound_is_small() -> None:
    item = {"type": "string", "pattern": "^[a-f0-9]{24}$"}
    assert machine_of(item, 0, 1000).states < 1_000  # 26,000 in line
    assert machine_of(item, 1, 10_000).states < 4_000
