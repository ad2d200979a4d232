"""Long string bounds, counted in blocks on the stack: exact at every boundary, in any spelling, and small."""

from __future__ import annotations

import json

import pytest

from stcc.compiler import stepping
from stcc.compiler.frontends.json_schema.counting import SHORTEST, block_size
from stcc.compiler.pipeline import compile_json_schema
from stcc.formats.machine import Machine

BOUNDS = [(0, SHORTEST), (0, 64), (1, 255), (40, 47), (64, 64), (50, None), (100, None), (0, 512), (511, 513), (16, 1024), (1000, 1000)]


def machine_of(low: int, high: int | None) -> Machine:
    bounds = {"minLength": low} if high is None else {"minLength": low, "maxLength": high}
    properties = {"s": {"type": "string", **bounds}, "t": {}}
    return compile_json_schema({"type": "object", "properties": properties, "required": ["s"], "additionalProperties": False}).machine


def accepted(machine: Machine, text: str) -> bool:
    spelled = json.dumps({"s": text}, separators=(",", ":"), ensure_ascii=False).encode()
    return stepping.accepts(machine, spelled) and stepping.accepts(machine, spelled[:-1] + b',"t":[1]}')


@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize("character", ["a", "é", "🐈", "\n", '"', "\x01"])
def test_boundaries(low: int, high: int | None, character: str) -> None:
    machine = machine_of(low, high)
    size = block_size(low if high is None else high)
    most = low + 3 * size if high is None else high
    lengths = {0, 1, low - 1, low, low + 1, size - 1, size, size + 1, 2 * size, most - 1, most, most + 1, most + size}
    for length in sorted(length for length in lengths if length >= 0):
        valid = low <= length and (high is None or length <= high)
        assert accepted(machine, character * length) == valid, length


def test_every_length_of_a_small_bound() -> None:
    machine = machine_of(37, 70)
    for length in range(90):
        assert accepted(machine, "x" * length) == (37 <= length <= 70), length


def test_a_long_bound_is_small() -> None:
    assert machine_of(1, 65536).states < 5_000


def test_bounds_share_blocks() -> None:
    one = compile_json_schema({"prefixItems": [{"type": "string", "maxLength": 300}], "items": False}).machine
    strings = [{"type": "string", "maxLength": 300 + number} for number in range(0, 160, 16)]
    many = compile_json_schema({"prefixItems": strings, "items": False}).machine
    assert many.states < 2.5 * one.states
