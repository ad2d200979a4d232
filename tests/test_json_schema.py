"""The JSON Schema front end against jsonschema: a text is accepted iff its value is valid, property order aside."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stcc.compiler import stepping
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsatisfiableError, UnsupportedError
from stcc.compiler.options import Options
from stcc.compiler.pipeline import compile_json_schema
from stcc.formats.machine import Machine, verify_machine


def machine_of(schema: Any, **options: Any) -> Machine:
    machine = compile_json_schema(schema, options=Options(**options)).machine
    assert verify_machine(machine) == []
    return machine


def spelled(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def orders(value: Any) -> Iterator[Any]:
    """The value with the members of its objects in every order."""
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for parts in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, parts, strict=True))
    elif isinstance(value, list):
        for parts in itertools.product(*(list(orders(item)) for item in value)):
            yield list(parts)
    else:
        yield value


def accepted(machine: Machine, value: Any) -> bool:
    return any(stepping.accepts(machine, spelled(order)) for order in orders(value))


CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [None, 1, "x", [], {}, [1, {"a": None}]], []),
    (
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
        [{"name": "Ada", "age": 36}, {"name": "", "age": -1}],
        [{"name": "Ada"}, {"name": 1, "age": 1}, {"name": "", "age": 1.5}, {"name": "", "age": 1, "x": 1}, [], None],
    ),
    ({"properties": {"a": {"type": "integer"}}}, [1, [], {}, {"a": 1}, {"b": "x"}, {"a": 2, "b": 1}], [{"a": "x"}, {"a": 1.5, "b": 1}]),
    ({"type": ["integer", "null"]}, [1, None, -3], ["", True, 1.5]),
    (
        {"enum": [1, "a", None, True, [1, 2], {"k": [False]}]},
        [1, "a", None, True, [1, 2], {"k": [False]}],
        [2, "b", False, [1], {"k": []}, {}, {"k": [False], "l": 1}],
    ),
    ({"const": {"a": {"b": 1}}}, [{"a": {"b": 1}}], [{"a": {"b": 2}}, {"a": {}}, {}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü", "🐈🐈"], ["a", "abcd", "🐈"]),
    ({"type": "string", "pattern": "^a+$", "minLength": 2}, ["aa", "aaaa"], ["a", "b", "aab"]),
    ({"type": "string", "pattern": "b"}, ["b", "abc", 'x\nb"'], ["", "ac"]),
    ({"type": "string", "not": {"pattern": "b"}}, ["", "ac"], ["b", "abc"]),
    ({"type": "integer", "minimum": 3, "exclusiveMaximum": 12, "multipleOf": 3}, [3, 6, 9], [0, 12, 4, 15, -3]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}, [0.1, 1, 1.5], [0, -1, 1.51, 2]),
    ({"minimum": 0, "exclusiveMinimum": True, "$schema": "http://json-schema.org/draft-04/schema#"}, [1, "x"], [0, -1]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}, [[True], [True, False]], [[], [1], [True] * 3]),
    ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2]], [[2], [1, 2, 3], [1, 1]]),
    (
        {"items": [{"const": 1}], "additionalItems": {"const": 2}, "$schema": "http://json-schema.org/draft-07/schema#"},
        [[], [1], [1, 2, 2], "x"],
        [[2], [1, 1]],
    ),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 2}, [[1, 1], [1, 0, 1]], [[1], [], [1, 1, 1], [0]]),
    ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, [None, True], [1, "null"]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [2, 3, 9], [6, 1, 0, "x"]),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
        [{"a": 1}, {"b": 1}, {"a": 1, "c": 2}],
        [{}, {"a": 1, "b": 1}],
    ),
    ({"not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}, [{}, {"a": 1}, {"b": "x"}], [3, {"a": "x"}, {"a": "", "b": 1}]),
    (
        {"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}},
        [{"k": 1, "x": 0}, {"k": 2, "y": 0}, {"y": 0}, 7],
        [{"k": 1}, {"k": 1, "y": 0}, {"k": 2, "x": 0}, {}],
    ),
    (
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}},
        [{}, {"a": 1, "b": 1}, {"c": 1}],
        [{"a": 1}, {"c": 1, "b": 1}],
    ),
    (
        {"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "additionalProperties": False},
        [{}, {"x": 1}, {"xy": 7}, {"y": 5.5}],
        [{"x": "s"}, {"xy": 1}, {"z": 1}, {"y": 1}],
    ),
    (
        {"properties": {"foo": {"maximum": 3}}, "patternProperties": {"f.o": {"minimum": 2}}},
        [{"foo": 2}, {"fxo": 2}, {"foo": "x"}],
        [{"foo": 1}, {"foo": 4}, {"fxo": 1}],
    ),
    ({"propertyNames": {"maxLength": 1}}, [{}, {"a": 1}, {"": 1, "b": 2}], [{"ab": 1}]),
    ({"minProperties": 1, "maxProperties": 2}, [{"a": 1}, {"a": 1, "b": 1}], [{}, {"a": 1, "b": 2, "c": 3}]),
    (
        {
            "$defs": {
                "n": {
                    "type": "object",
                    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                    "required": ["v", "c"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/n",
        },
        [{"v": 1, "c": []}, {"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
        [{"v": 1}, {"v": 1, "c": [{"v": "x", "c": []}]}],
    ),
    (
        {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 2}, "b": {"type": "null"}}}]},
        [{"a": 1}, {"b": None}, {"a": 2, "b": None}],
        [{"a": 0}, {"a": 3}, {"b": 1}],
    ),
    (
        {
            "type": "object",
            "properties": {'q"\\\n': {"const": 1}, "é": {"const": 2}},
            "required": ['q"\\\n'],
            "additionalProperties": False,
        },
        [{'q"\\\n': 1}, {'q"\\\n': 1, "é": 2}],
        [{}, {"é": 2}],
    ),
    ({"type": "object", "properties": {"__proto__": {"type": "integer"}}}, [{"__proto__": 1}, {}], [{"__proto__": "x"}]),
    ({"format": "date", "type": "string"}, ["2024-02-29"], ["2023-02-29", "x"]),
]


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_cases(number: int, whitespace: str) -> None:
    schema, good, bad = CASES[number]
    machine = machine_of(schema, whitespace=whitespace)
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(
        schema, format_checker=jsonschema.FormatChecker()
    )
    for value in good:
        assert validator.is_valid(value)
        assert accepted(machine, value), value
    for value in bad:
        assert not accepted(machine, value), value


def test_whitespace_modes() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"const": 1}}}, "additionalProperties": False}
    texts = {"compact": b'{"a":[1,1]}', "spaced": b'{"a": [1, 1]}', "flexible": b'{ "a"\t:\n[ 1 ,1 ]\r}'}
    for mode, text in texts.items():
        machine = machine_of(schema, whitespace=mode)
        for other, sample in texts.items():
            assert stepping.accepts(machine, sample) == (other == mode or (mode == "flexible")), (mode, other)
        assert stepping.accepts(machine, text)


def test_closed_option() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}}
    machine = machine_of(schema, additional_properties="closed")
    assert stepping.accepts(machine, b'{"a":{"b":1}}')
    assert not stepping.accepts(machine, b'{"a":{"c":1}}')
    assert not stepping.accepts(machine, b'{"c":1}')


def test_free_keys_cannot_spell_declared_ones() -> None:
    machine = machine_of({"properties": {"a": {"type": "integer"}, "b\n": {"type": "integer"}}})
    for text in (b'{"x":1,"a":"s"}', b'{"b\\n":"s"}', b'{"b\\u000a":"s"}', b'{"b\\u000A":"s"}', b'{"a":1,"a":"s"}'):
        assert not stepping.accepts(machine, text), text
    for text in (b'{"x":1}', b'{"b\\u000a":1}', b'{"aa":"s"}', b'{"b\\r":"s"}'):
        assert stepping.accepts(machine, text), text


def test_any_order() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {}}, "required": ["a", "b"], "maxProperties": 3}
    declared, free = machine_of(schema), machine_of(schema, property_order="any")
    for text, in_declared, in_any in (
        (b'{"a":1,"b":null}', True, True),
        (b'{"b":null,"a":1}', False, True),
        (b'{"x":1,"b":null,"a":1}', False, True),
        (b'{"b":null,"x":0,"a":1,"c":1}', False, False),
        (b'{"b":null,"a":1,"b":null}', False, False),
        (b'{"b":null}', False, False),
    ):
        assert stepping.accepts(declared, text) == in_declared, text
        assert stepping.accepts(free, text) == in_any, text
    with pytest.raises(BudgetError) as caught:
        machine_of({"properties": {f"p{i}": {} for i in range(16)}, "additionalProperties": False}, property_order="any")
    assert "declared" in caught.value.hint


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.deferred(lambda: SCHEMAS), st.lists(st.deferred(lambda: VALUES), min_size=6, max_size=10))
def test_any_order_accepts_as_written(schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    try:
        machine = machine_of(json.dumps(schema), property_order="any")
    except UnsatisfiableError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert stepping.accepts(machine, spelled(value)) == validator.is_valid(value), (schema, value)


def test_many_constants_are_told_apart_in_one_product() -> None:
    tools = [
        {
            "type": "object",
            "properties": {
                "name": {"const": f"tool_{i}"},
                "arguments": {
                    "type": "object",
                    "properties": {f"a{i}": {"type": "string"}},
                    "required": [f"a{i}"],
                    "additionalProperties": False,
                },
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for i in range(25)
    ]
    machine = machine_of({"oneOf": tools})
    assert stepping.accepts(machine, b'{"name":"tool_7","arguments":{"a7":"x"}}')
    assert not stepping.accepts(machine, b'{"name":"tool_7","arguments":{"a8":"x"}}')


UNEVALUATED: list[tuple[Any, list[Any], list[Any]]] = [
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": {"type": "null"}}, [{"a": 1, "b": None}], [{"b": 1}]),
    (
        {
            "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}],
            "unevaluatedProperties": False,
        },
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [{"a": "x"}, {"a": "x", "b": 1}, {"a": 1, "c": 1}, {}],
    ),
    (
        {
            "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
            "then": {"properties": {"x": {}}},
            "else": {"patternProperties": {"^y": {}}},
            "unevaluatedProperties": False,
        },
        [{"k": 1, "x": 1}, {"yy": 1}],
        [{"k": 1, "y": 1}, {"k": 2, "y": 1}, {"x": 1}],
    ),
    (
        {"prefixItems": [{}], "contains": {"type": "null"}, "unevaluatedItems": {"type": "string"}},
        [[1, None, "x"], [None]],
        [[1, 2, None], [1, "x"]],
    ),
    (
        {"anyOf": [{"prefixItems": [True, {"const": 1}]}, {"prefixItems": [True, True, {"const": 2}]}], "unevaluatedItems": False},
        [[0, 1], [0, 1, 2], [0, 5, 2], [0]],
        [[0, 5, 3], [0, 1, 2, 4]],
    ),
    (
        {"$dynamicRef": "#node", "$defs": {"n": {"$dynamicAnchor": "node", "type": ["array", "null"], "items": {"$dynamicRef": "#node"}}}},
        [None, [None, [None]]],
        [1, [1]],
    ),
]


@pytest.mark.parametrize("number", range(len(UNEVALUATED)))
def test_unevaluated_and_dynamic(number: int) -> None:
    schema, good, bad = UNEVALUATED[number]
    machine, validator = machine_of(schema), jsonschema.Draft202012Validator(schema)
    for value in good + bad:
        assert validator.is_valid(value) == (value in good), value
        assert accepted(machine, value) == (value in good), value


def test_unique_items_among_few() -> None:
    machine = machine_of({"type": "array", "items": {"enum": [1, 1.0, "a", True, [1]]}, "uniqueItems": True, "minItems": 1})
    for value, valid in (
        ([1, "a"], True),
        ([1, 1], False),
        ([[1], True, 1, "a"], True),
        ([[1], [1]], False),
        ([True, 1], True),
        ([], False),
        (["a", 1, "a"], False),
    ):
        assert stepping.accepts(machine, spelled(value)) == valid, value
    assert not stepping.accepts(machine, b"[1,1.0]")
    small = machine_of({"items": {"enum": list(range(20))}, "uniqueItems": True, "maxItems": 2})
    assert stepping.accepts(small, b"[3,4]") and not stepping.accepts(small, b"[3,3]")


def test_integer_spellings() -> None:
    machine = machine_of({"type": "integer"})
    assert stepping.accepts(machine, b"10") and stepping.accepts(machine, b"1.0") and not stepping.accepts(machine, b"1.5")
    assert not stepping.accepts(machine, b"01")


@pytest.mark.parametrize(
    ("schema", "error", "place"),
    [
        ("{", SourceError, "line 1"),
        ("[]", SourceError, "object or a Boolean"),
        ({"type": "strin"}, SourceError, "type"),
        ({"minLength": -1}, SourceError, "minLength"),
        ({"properties": []}, SourceError, "properties"),
        ({"$ref": "#/$defs/missing"}, SourceError, "#/$defs/missing"),
        ({"$ref": "https://example.com/other.json"}, SourceError, "Options.schemas"),
        ({"$ref": "#"}, SourceError, "back to itself"),
        ({"type": "string", "pattern": "("}, SourceError, "pattern"),
        ({"type": "string", "pattern": "(a)\\1"}, UnsupportedError, "pattern"),
        ({"not": {"type": "array", "uniqueItems": True}}, UnsupportedError, "uniqueItems"),
        ({"items": {"enum": list(range(40))}, "uniqueItems": True, "minItems": 41}, UnsupportedError, "uniqueItems"),
        ({"enum": []}, UnsatisfiableError, "#"),
        (False, UnsatisfiableError, "#"),
        ({"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]}, UnsatisfiableError, "#"),
        (
            {"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}}, "$ref": "#/$defs/n"},
            UnsatisfiableError,
            "#",
        ),
        ({"type": "string", "minLength": 3, "maxLength": 2}, UnsatisfiableError, "#"),
        ({"type": "string", "pattern": "^(a|b)*a(a|b){25}$"}, BudgetError, "pattern"),
        ({"const": "\ud800"}, UnsupportedError, "surrogate"),
    ],
)
def test_bad_schemas(schema: Any, error: type[CompileError], place: str) -> None:
    with pytest.raises(error) as caught:
        compile_json_schema(schema)
    assert place in str(caught.value), str(caught.value)
    assert caught.value.message


def test_unenforced_is_recorded() -> None:
    artifact = compile_json_schema({"not": {"type": "array", "uniqueItems": True}}, options=Options(unenforced="warn"))
    assert [note["keyword"] for note in artifact.metadata.unenforced] == ["uniqueItems"]


def test_unknown_keywords_warn_once() -> None:
    artifact = compile_json_schema({"x-a": 1, "properties": {"p": {"x-a": 2, "format": "color-ish", "type": "string"}}})
    assert sorted(note["keyword"] for note in artifact.metadata.warnings) == ["format", "x-a"]


def test_deep_nesting_is_a_typed_error() -> None:
    schema: Any = {}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    with pytest.raises(BudgetError):
        compile_json_schema(schema)
    with pytest.raises(CompileError):
        compile_json_schema("[" * 100_000)
    assert compile_json_schema(schema, options=Options(max_depth=250)).machine.states > 200


def test_remote_documents() -> None:
    machine = compile_json_schema(
        {"$ref": "https://example.com/a.json#/$defs/x"},
        options=Options(
            schemas={"https://example.com/a.json": {"$defs": {"x": {"$ref": "b.json"}}}, "https://example.com/b.json": {"type": "integer"}}
        ),
    ).machine
    assert stepping.accepts(machine, b"7") and not stepping.accepts(machine, b'"7"')


def test_ids_are_bases() -> None:
    schema = {"$id": "https://example.com/root.json", "$ref": "item.json", "$defs": {"i": {"$id": "item.json", "type": "null"}}}
    assert stepping.accepts(machine_of(schema), b"null")


def test_outlines_dialect() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    machine = machine_of(schema, dialect="outlines")
    assert stepping.accepts(machine, b'{"a": true}') or stepping.accepts(machine, b'{"a":true}')
    assert not stepping.accepts(machine, b'{"a":1}')


# ---- made schemas

NAMES = st.sampled_from(["a", "b", "ab", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 7), st.sampled_from([0.5, 2.5]), st.sampled_from(["", "a", "b", "ab", "ba"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=3)), max_leaves=5
)


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    keyword = {
        "type": st.sampled_from(["string", "integer", "number", "object", "array", "boolean", "null", ["object", "string"]]),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": st.integers(-1, 4),
        "exclusiveMaximum": st.integers(2, 6),
        "multipleOf": st.sampled_from([2, 0.5]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(["a", "^b", "^a?$"]),
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b"]), inner, max_size=1),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 2),
        "propertyNames": inner,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
        "items": inner,
        "prefixItems": several,
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "contains": inner,
        "maxContains": st.integers(1, 2),
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    return st.dictionaries(st.sampled_from(sorted(keyword)), st.just(None), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: keyword[name] for name in chosen})
    )


SCHEMAS = st.recursive(st.one_of(st.booleans(), st.just({}), schemas(st.booleans())), schemas, max_leaves=6)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SCHEMAS, st.lists(VALUES, min_size=6, max_size=10))
def test_accepted_iff_valid(schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    try:
        machine = machine_of(json.dumps(schema))
    except UnsatisfiableError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert accepted(machine, value) == validator.is_valid(value), (schema, value)


def test_bounds_are_exact_decimals() -> None:
    machine = machine_of('{"maximum": 0.1, "minimum": 0.1, "type": "number"}')
    assert stepping.accepts(machine, b"0.1") and not stepping.accepts(machine, b"0.1000000000000000055")
    assert Decimal("0.1") != Decimal(0.1)
