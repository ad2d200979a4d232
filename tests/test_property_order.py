"""Property orders: relaxed accepts every order of plain objects, some order of any valid object, and never an invalid text."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_json_schema import NAMES, SCALARS, SCHEMAS, VALUES, accepted, machine_of, spelled

from stcc.compiler import Options, compile_json_schema, stepping
from stcc.compiler.errors import SourceError, UnsatisfiableError
from stcc.compiler.frontends.json_schema.unordered import MOST_OWED

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def test_relaxed_is_what_flexible_whitespace_implies() -> None:
    schema = {"properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": False}
    swapped = b'{"b":1,"a":2}'
    assert stepping.accepts(machine_of(schema, whitespace="flexible"), swapped)
    assert stepping.accepts(machine_of(schema, property_order="relaxed"), swapped)
    assert not stepping.accepts(machine_of(schema), swapped)
    assert not stepping.accepts(machine_of(schema, whitespace="flexible", property_order="declared"), swapped)
    with pytest.raises(SourceError):
        machine_of(schema, property_order="loose")


@settings(max_examples=200, deadline=None, suppress_health_check=_SLOW)
@given(SCHEMAS, st.lists(VALUES, min_size=6, max_size=10))
def test_some_order_is_accepted_iff_valid(schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    try:
        machine = machine_of(json.dumps(schema), property_order="relaxed")
    except UnsatisfiableError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert accepted(machine, value) == validator.is_valid(value), (schema, value)


VALUE_SCHEMAS = [{}, {"type": "integer"}, {"type": "string", "maxLength": 40}, {"items": {"type": "null"}}]
PLAIN = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, st.sampled_from(VALUE_SCHEMAS))},
    optional={
        "required": st.lists(NAMES, max_size=3, unique=True),
        "additionalProperties": st.sampled_from([False, {"type": "null"}]),
        "patternProperties": st.just({"^a": {"minimum": 0}}),
        "propertyNames": st.just({"maxLength": 1}),
        "minProperties": st.just(1),
        "maxProperties": st.integers(0, 3),
    },
)
OBJECTS = st.dictionaries(NAMES, st.one_of(SCALARS, st.just([None])), max_size=4)


@settings(max_examples=200, deadline=None, suppress_health_check=_SLOW)
@given(PLAIN, st.lists(OBJECTS, min_size=6, max_size=10))
def test_plain_objects_come_in_any_order(schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    try:
        machine = machine_of(json.dumps(schema), property_order="relaxed")
    except UnsatisfiableError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert stepping.accepts(machine, spelled(value)) == validator.is_valid(value), (schema, value)


@settings(max_examples=300, deadline=None, suppress_health_check=_SLOW)
@given(SCHEMAS, st.lists(st.lists(st.tuples(NAMES, SCALARS), min_size=2, max_size=4), min_size=6, max_size=10))
def test_repeated_declared_names_never_make_a_text_invalid(schema: Any, members: list[list[tuple[str, Any]]]) -> None:
    declaring = {"allOf": [schema], "properties": {name: {} for name in ("a", "b", "ab", "")}}
    validator = jsonschema.Draft202012Validator(declaring)
    try:
        machine = machine_of(json.dumps(declaring), property_order="relaxed")
    except UnsatisfiableError:
        return
    for pairs in members:
        text = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}"
        if stepping.accepts(machine, text.encode()):
            assert validator.is_valid(json.loads(text)), (schema, text)


def test_the_last_of_several_equal_names_counts() -> None:
    """Where a failing member is asked for, an earlier one that fails must not do."""
    machine = machine_of({"properties": {"a": {}}, "not": {"properties": {"a": {"const": 1}}}}, property_order="relaxed")
    assert stepping.accepts(machine, b'{"a":2}') and not stepping.accepts(machine, b'{"a":2,"a":1}')
    others = {"properties": {"a": {}}, "not": {"properties": {"b": {}}, "additionalProperties": {"type": "null"}}}
    machine = machine_of(others, property_order="relaxed")
    assert stepping.accepts(machine, b'{"a":2}') and not stepping.accepts(machine, b'{"a":2,"a":null}')
    counted = machine_of({"properties": {"a": {}, "b": {}}, "minProperties": 2}, property_order="relaxed")
    assert stepping.accepts(counted, b'{"b":1,"a":1}') and not stepping.accepts(counted, b'{"a":2,"a":1}')


def test_names_may_repeat_until_one_settles_an_alternative() -> None:
    """A discriminator is barred once it ruled a branch out; the other names of both branches are not."""
    branch = {"properties": {"x": {"type": "integer"}, "y": {}}, "required": ["k"]}
    branches = [{**branch, "properties": {**branch["properties"], "k": {"const": kind}}} for kind in (1, 2)]
    machine = machine_of({"type": "object", "oneOf": branches}, property_order="relaxed")
    for text in (b'{"x":1,"k":1}', b'{"k":2,"x":1,"x":2}', b'{"y":0,"x":1,"y":1,"k":2,"x":3}'):
        assert stepping.accepts(machine, text), text
    for text in (b'{"k":1,"k":2}', b'{"k":1,"k":1}', b'{"k":3}', b'{"x":1}'):
        assert not stepping.accepts(machine, text), text


def test_plain_objects_may_repeat_a_name() -> None:
    """The last one counts, and each value is checked; what is owed stays owed until it is there."""
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"], "additionalProperties": False}
    machine = machine_of(schema, property_order="relaxed")
    for text in (b'{"b":1}', b'{"a":1,"b":1,"a":2}', b'{"b":1,"b":2}'):
        assert stepping.accepts(machine, text), text
    for text in (b'{"a":1,"a":2}', b'{"b":1,"a":"1","a":1}', b'{"b":1,"c":1}'):
        assert not stepping.accepts(machine, text), text


@pytest.mark.parametrize("owed", [MOST_OWED, MOST_OWED + 1])
def test_many_required_names(owed: int) -> None:
    """Up to the limit required names come in any order, beyond it as declared."""
    names = [f"n{number}" for number in range(owed)]
    machine = machine_of({"properties": {name: {"type": "integer"} for name in names}, "required": names}, property_order="relaxed")
    assert stepping.accepts(machine, spelled(dict.fromkeys(names, 1)))
    assert stepping.accepts(machine, spelled(dict.fromkeys(reversed(names), 1))) == (owed <= MOST_OWED)
    assert not stepping.accepts(machine, spelled(dict.fromkeys(names[1:], 1)))


def test_alternatives_that_would_take_too_many_states_are_free_where_it_is_known_which_holds() -> None:
    """In order of appearance until few alternatives are left, in any order from then on."""
    names = [f"n{number:02}" for number in range(48)]
    branches = [
        {"properties": {"kind": {"const": kind}, **{name: {"const": kind} for name in names[kind:kind + 6]}},
         "required": ["kind"], "additionalProperties": False}
        for kind in range(36)
    ]
    machine = machine_of({"type": "object", "oneOf": branches}, property_order="relaxed")
    for kind in (0, 17, 35):
        own = names[kind:kind + 6]
        assert stepping.accepts(machine, spelled({"kind": kind, **dict.fromkeys(own, kind)}))
        assert stepping.accepts(machine, spelled({"kind": kind, **dict.fromkeys(reversed(own), kind)}))
        assert not stepping.accepts(machine, spelled({"kind": kind, **dict.fromkeys(own, kind + 1)}))
        assert not stepping.accepts(machine, spelled(dict.fromkeys(own, kind)))
    many = [{"properties": {name: {"const": place}}, "required": [name]} for place, name in enumerate(names)]
    machine = machine_of({"properties": dict.fromkeys(names, {}), "anyOf": many, "required": names[::4]}, property_order="relaxed")
    whole = {name: place for place, name in enumerate(names)}
    assert stepping.accepts(machine, spelled(whole)) and not stepping.accepts(machine, spelled(dict(reversed(whole.items()))))


def test_what_does_not_fit_in_relaxed_order_compiles_in_declared_order() -> None:
    names = [f"n{number:02}" for number in range(12)]
    branches = [{"properties": {name: {"maxLength": number}}, "required": [name]} for number, name in enumerate(names)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "oneOf": branches}
    small = compile_json_schema(schema, options=Options(property_order="relaxed", max_states=3_000))
    assert small.metadata.warnings[0]["keyword"] == "properties" and "declared order" in small.metadata.warnings[0]["message"]
    assert dict(small.metadata.options)["property_order"] == "declared"
    assert not compile_json_schema(schema, options=Options(property_order="declared", max_states=3_000)).metadata.warnings
