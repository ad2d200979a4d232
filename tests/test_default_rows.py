"""Rows kept by default states: the same masks, transitions and files' contents as rows written out, made in memory or read."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest
from binding_cases import nasty_vocabulary
from specification_reader import read_binding

from stcc.compiler import Options, compile_json_schema
from stcc.compiler.binding import values
from stcc.formats import Artifact
from stcc.formats.binding import Binding
from stcc.formats.binding_checks import verify_binding
from stcc.formats.binding_sections import StoredBinding
from stcc.formats.errors import FormatError
from stcc.formats.row_patterns import LayeredBinding, layered_rows, row_patterns
from stcc.runtime import Grammar, load

NAMES = [f"{first}{second}" for first in ("meta", "stat", "spec", "{x", '},"') for second in ("data", "us", "ial", "istics")]
INNER = {"type": "object", "properties": {"ab": True, "abc": {"type": "integer"}}}
SCHEMA = {"type": "object", "properties": {name: INNER for name in NAMES},
          "additionalProperties": {"type": ["string", "null"]}}
VOCABULARY = nasty_vocabulary()
ROW_ARRAYS = ("row_offsets", "row_actions", "row_values")


def bound(*, defaults: bool) -> Artifact:
    with pytest.MonkeyPatch.context() as patch:
        if not defaults:
            patch.setattr(values, "default_states", lambda machine: np.arange(machine.states, dtype=np.int32))
        return compile_json_schema(SCHEMA, options=Options(whitespace="flexible", property_order="declared"), vocabularies=[VOCABULARY])


LAYERED, PLAIN = bound(defaults=True), bound(defaults=False)
STORED = Artifact.from_bytes(LAYERED.to_bytes())


def binding(artifact: Artifact) -> Binding:
    return artifact.binding_for(VOCABULARY)


def test_the_kinds_of_bindings_are_what_they_are_called() -> None:
    assert type(binding(LAYERED)) is LayeredBinding and type(binding(PLAIN)) is Binding and type(binding(STORED)) is StoredBinding
    assert layered_rows(binding(PLAIN)).default is None
    for artifact in (LAYERED, STORED):
        rows = layered_rows(binding(artifact))
        assert rows.default is not None and np.count_nonzero(rows.default != np.arange(len(rows.default))) > 50
        assert len(rows.listed()[1]) < 0.8 * len(rows.expanded()[1]) <= 0.8 * rows.most_entries()


@pytest.mark.parametrize("artifact", [LAYERED, STORED], ids=["made", "stored"])
def test_the_same_numbers_as_rows_written_out(artifact: Artifact) -> None:
    plain = binding(PLAIN)
    for field in dataclasses.fields(Binding):
        np.testing.assert_array_equal(getattr(binding(artifact), field.name), getattr(plain, field.name), field.name)
    for state in range(artifact.machine.states):
        for found, expected in zip(layered_rows(binding(artifact)).live(state), layered_rows(plain).live(state), strict=True):
            np.testing.assert_array_equal(found, expected)
    flat = row_patterns(binding(artifact))
    assert flat.default is None and np.array_equal(flat.base, plain.row_values) and np.array_equal(flat.offsets, plain.row_offsets)
    assert verify_binding(binding(artifact), artifact.machine) == []


def test_files() -> None:
    data = LAYERED.to_bytes()
    assert STORED.to_bytes() == data and len(data) < len(PLAIN.to_bytes())
    read = read_binding(data, 0)
    for name in ROW_ARRAYS:
        assert read[name] == getattr(binding(PLAIN), name).tolist()


@pytest.mark.parametrize("source", [LAYERED, STORED], ids=["made", "stored"])
@pytest.mark.parametrize("warm", [False, True])
def test_the_same_masks_along_random_outputs(source: Artifact, warm: bool) -> None:
    grammar, plain = load(source, VOCABULARY, warm=warm), load(PLAIN, VOCABULARY, warm=False)
    choice = random.Random(7)
    visited = set()
    for _ in range(60):
        visited |= walk(grammar, plain, choice)
    default = layered_rows(binding(source)).default
    assert default is not None and len({state for state in visited if default[state] != state}) > 10


def walk(grammar: Grammar, plain: Grammar, choice: random.Random) -> set[int]:
    """A part of a declared name, then a random output, read by both; the states it passed."""
    first, second, name = grammar.matcher(), plain.matcher(), choice.choice(NAMES)
    start = json.dumps({name: 0})[:2 + choice.randint(1, len(name))].encode()
    assert first.accept_bytes(start) and second.accept_bytes(start)
    states = {first.state}
    for _ in range(12):
        allowed = first.allowed_tokens()
        np.testing.assert_array_equal(allowed, second.allowed_tokens())
        usable = [token for token in allowed.tolist() if token not in VOCABULARY.stop_token_ids]
        if not usable:
            break
        token = choice.choice(usable)
        assert first.accept_token(token) and second.accept_token(token)
        states.add(first.state)
    return states


def changed(**parts: object) -> LayeredBinding:
    made = binding(LAYERED)
    arrays = {field.name: getattr(made, field.name) for field in dataclasses.fields(Binding) if field.name not in ROW_ARRAYS}
    return LayeredBinding(dataclasses.replace(layered_rows(made), **parts), **arrays)  # type: ignore[arg-type]


def test_broken_defaults_are_refused() -> None:
    rows, states = layered_rows(binding(LAYERED)), LAYERED.machine.states
    assert rows.default is not None
    heir = int(np.flatnonzero(rows.default != np.arange(states))[0])
    chained, outside, below = rows.default.copy(), rows.default.copy(), rows.default.copy()
    chained[rows.default[heir]] = heir
    outside[heir], below[heir] = states, -1
    dead = rows.base.copy()
    dead[rows.span(int(rows.default[heir]))[0]] = -1
    for parts in ({"default": chained}, {"default": outside}, {"default": below}, {"default": rows.default[:-1]}, {"base": dead}):
        assert verify_binding(changed(**parts), LAYERED.machine) != [], parts
    with pytest.raises(FormatError):
        PLAIN.with_binding(changed(base=dead))
