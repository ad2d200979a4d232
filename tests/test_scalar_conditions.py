"""Patterns beside lengths, and many patterns or divisors at once, against ``jsonschema`` and ``re``."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stcc.compiler import stepping
from stcc.compiler.errors import UnsatisfiableError
from stcc.compiler.frontends.json_schema import scalars
from stcc.compiler.frontends.json_schema.counting import local_rows
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.options import Options
from stcc.compiler.pipeline import compile_json_schema
from stcc.compiler.utf8 import character_view
from stcc.formats.machine import Machine

BOUNDED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = r"^(?:\S+\s+){0,9}\S+$"


def string_machine(bounds: dict[str, Any]) -> Machine:
    item = {"type": "string", **bounds}
    return compile_json_schema(
        {"properties": {"s": item, "t": {}}, "required": ["s"], "additionalProperties": False}
    ).machine


def accepted(machine: Machine, text: str) -> bool:
    spelled = json.dumps({"s": text}, separators=(",", ":"), ensure_ascii=False).encode()
    return stepping.accepts(machine, spelled) and stepping.accepts(machine, spelled[:-1] + b',"t":[1]}')


@pytest.fixture(scope="module")
def machines() -> dict[str, tuple[Machine, re.Pattern[str], int, int]]:
    cases = [
        (WORDS, 0, 120),
        (r"^data:(a|bc);[0-9a-z+]*$", 60, 700),
        (r"^\w*x\w{3}$", 40, 90),
        (r"^(ab|ba)*$", 0, 801),
        (r"q", 300, 10_000),
    ]
    return {
        pattern: (
            string_machine({"pattern": pattern, "minLength": low, "maxLength": high}),
            re.compile(pattern, re.ASCII),
            low,
            high,
        )
        for pattern, low, high in cases
    }


def test_blocks_are_what_is_tested(machines: dict[str, tuple[Machine, re.Pattern[str], int, int]]) -> None:
    assert machines[WORDS][0].sites > 100 and machines["q"][0].sites > 100
    assert machines[WORDS][0].states < 4_000  # 20 places of the pattern, 120 counts, 14 states a character: 33,600


@BOUNDED
@given(st.data())
def test_lengths_beside_a_pattern(
    machines: dict[str, tuple[Machine, re.Pattern[str], int, int]], data: st.DataObject
) -> None:
    pattern = data.draw(st.sampled_from(sorted(machines)))
    machine, compiled, low, high = machines[pattern]
    pieces = {WORDS: ["a", "bé", " ", "\t", "🐈", '"', "a" * 12], "q": ["q", "\n", "x" * 99, "ä"]}.get(
        pattern, ["data:", "a;", "bc;", "0", "zz+", "ab", "ba", "x", "xyz1", "_" * 8]
    )
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=14)))
    length = data.draw(st.sampled_from([low - 1, low, low + 1, high - 1, high, high + 1, (low + high) // 2, len(text)]))
    if text and length > 0:
        end = data.draw(st.sampled_from([text, text[-1], "a", "ab", "0"]))
        text = (text + end * length)[:length]
    assert accepted(machine, text) == (low <= len(text) <= high and compiled.search(text) is not None), (pattern, text)


def test_every_count_of_words_and_characters() -> None:
    machine = string_machine({"pattern": r"^(?:\S+\s+){0,5}\S+$", "maxLength": 40})
    for words in range(1, 9):
        for length in range(2 * words - 1, 46):
            text = "a " * (words - 1)
            text += "b" * (length - len(text))
            assert accepted(machine, text) == (words <= 6 and length <= 40), (words, length)


def test_alternatives_of_several_lengths() -> None:
    """One string, told apart by what follows: every alternative has its own bounds and pattern."""
    options = [
        ("short", {"maxLength": 50}),
        ("long", {"minLength": 45, "pattern": "^[a-z]*$"}),
        ("words", {"pattern": r"^\w+( \w+){0,3}$", "maxLength": 300}),
    ]
    schema = {
        "oneOf": [
            {
                "properties": {"s": {"type": "string", **bounds}, "kind": {"const": kind}},
                "required": ["s", "kind"],
                "additionalProperties": False,
            }
            for kind, bounds in options
        ]
    }
    machine = compile_json_schema(schema).machine
    valid = jsonschema.Draft202012Validator(schema)
    for text in ("", "a", "a b c d", "a b c d e", "-"):
        for length in (0, 1, 44, 45, 46, 50, 51, 299, 300, 301, 400):
            for kind, _ in options:
                instance = {"s": (text + "x" * length)[:length] if length else "", "kind": kind}
                spelled = json.dumps(instance, separators=(",", ":")).encode()
                assert stepping.accepts(machine, spelled) == valid.is_valid(instance), instance


def test_a_local_numbering_does_not_depend_on_where() -> None:
    view = character_view(compile_pattern(r"^(?:ab){30}$"))
    assert view is not None
    first = [view.start]
    for _ in range(8):
        first.append(max(view.rows[first[-1]].tolist()))
    for one, other in ((0, 2), (1, 3), (2, 6)):
        rows, order, inner = local_rows(view.rows, first[one], 6)
        again, _, _ = local_rows(view.rows, first[other], 6)
        assert (rows[inner] == again[inner]).all() and len(order) == 7


PARTS = [r"^....$", "ab1", "b12", r"\d\d", "[a|b]", "1.*2", r"^[\w]*$", "ca", "^a", "2$"]
formulas = st.recursive(
    st.sampled_from(PARTS).map(lambda pattern: {"pattern": pattern})
    | st.integers(1, 6).map(lambda most: {"maxLength": most}),
    lambda children: (
        st.builds(
            lambda kind, parts: {kind: parts},
            st.sampled_from(["allOf", "anyOf"]),
            st.lists(children, min_size=2, max_size=3),
        )
        | children.map(lambda child: {"not": child})
    ),
    max_leaves=9,
)


@BOUNDED
@given(formulas, st.lists(st.text("ab12c-", max_size=7), max_size=30))
@example(
    {"allOf": [{"not": {"pattern": "ab1"}}, {"anyOf": [{"pattern": "b12"}, {"maxLength": 3}]}]},
    ["b12", "ab12", "abc", "aaaa"],
)
def test_folding_equals_validation(formula: dict[str, Any], texts: list[str]) -> None:
    schema = {"type": "string", **formula}
    valid = jsonschema.Draft202012Validator(schema)
    least, scalars.AT_ONCE = scalars.AT_ONCE, 1
    try:
        machine = compile_json_schema(schema).machine
    except UnsatisfiableError:
        machine = None
    finally:
        scalars.AT_ONCE = least
    for text in [*texts, "", "ab12", "ca12", "a", "12", "aa2c1b"]:
        found = machine is not None and stepping.accepts(machine, json.dumps(text).encode())
        assert found == valid.is_valid(text), text


def test_a_dozen_patterns_under_alternatives() -> None:
    """Nine conjunctions of three patterns, denied twice: a product of all at once needs more than 200,000 tuples."""
    triples = [
        ("^....$", "ab1", "b12"),
        ("^....$", "bc1", "c12"),
        ("^....$", "ca1", "a12"),
        (r"^[\w]*$", r"\d\d", "[a|b]"),
        (r"^[\w]*$", r"\d\d", "[b|c]"),
        (r"^[\w]*$", r"\d\d", "[c|a]"),
        (r"^[\w]+", "1.*2", "ac"),
        (r"^[\w]+", "1.*2", "a2"),
        (r"^[\w]+", "1.*2", "a1"),
    ]
    refused = [{"not": {"allOf": [{"pattern": pattern} for pattern in triple]}} for triple in triples]
    schema = {
        "type": "string",
        "maxLength": 200,
        "allOf": [{"not": {"allOf": refused[low : low + 3]}} for low in (0, 3, 6)],
    }
    machine = compile_json_schema(schema, options=Options(time_limit=20)).machine
    valid = jsonschema.Draft202012Validator(schema)
    assert [
        text for text in ("ab12", "bc12", "ca12", "ca1", "a12") if stepping.accepts(machine, json.dumps(text).encode())
    ] == ["ca12"]
    assert valid.is_valid("ca12") and not valid.is_valid("ab12")


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "integer",
            "multipleOf": 13.5,
            "not": {"anyOf": [{"multipleOf": n} for n in (2, 13, 5, 7, 11, 37)]},
            "minimum": -999,
            "maximum": -100,
        },
        {
            "type": "number",
            "anyOf": [{"multipleOf": n} for n in (33, 12, 16, 77)],
            "allOf": [{"not": {"multipleOf": 6}}, {"not": {"multipleOf": 25}}],
            "exclusiveMinimum": -300,
            "exclusiveMaximum": 0,
        },
        {"type": "number", "allOf": [{"multipleOf": 6.75}, {"multipleOf": 19}, {"multipleOf": 2.125}]},
        {
            "type": "number",
            "multipleOf": 0.25,
            "allOf": [{"multipleOf": 0.1}],
            "oneOf": [{"minimum": 2}, {"maximum": 3}],
        },
    ],
)
def test_many_divisors(schema: dict[str, Any]) -> None:
    machine = compile_json_schema(schema).machine

    def expected(value: Decimal, part: dict[str, Any]) -> bool:
        tests = {
            "type": lambda kind: kind == "number" or value == value.to_integral_value(),
            "multipleOf": lambda factor: value % Decimal(str(factor)) == 0,
            "minimum": lambda bound: value >= bound,
            "maximum": lambda bound: value <= bound,
            "exclusiveMinimum": lambda bound: value > bound,
            "exclusiveMaximum": lambda bound: value < bound,
            "not": lambda inner: not expected(value, inner),
            "allOf": lambda parts: all(expected(value, inner) for inner in parts),
            "anyOf": lambda parts: any(expected(value, inner) for inner in parts),
            "oneOf": lambda parts: sum(expected(value, inner) for inner in parts) == 1,
        }
        return all(tests[keyword](argument) for keyword, argument in part.items())

    values = (
        [Decimal(n) / 4 for n in range(-4100, 400)]
        + [Decimal(n) * Decimal("8721") / 3 for n in range(-4, 5)]
        + [Decimal("0.5"), Decimal("2.05")]
    )
    for value in values:
        text = f"{value:f}"
        assert stepping.accepts(machine, text.encode()) == expected(value, schema), text
