"""Faults that were found and fixed, one test each, named for what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stcc.compiler import BudgetError, CompileError, Options, SourceError, compile_json_schema, stepping
from stcc.formats import Vocabulary
from stcc.runtime import BitmaskError, ConstraintError, load


def accepts(schema: Any, text: str | bytes, **options: Any) -> bool:
    machine = compile_json_schema(schema, options=Options(**options)).machine
    return stepping.accepts(machine, text.encode() if isinstance(text, str) else text)


def test_draft_4_integers_have_no_fraction() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": -3}
    assert accepts(schema, "2") and accepts(schema, "-3")
    assert not accepts(schema, "2.0") and not accepts(schema, "2.")
    assert accepts({"type": "integer", "minimum": -3}, "2.0")


def test_exponents_stay_within_a_double() -> None:
    assert accepts({"type": "number"}, "1.5e199") and accepts({"minimum": 0}, "1E-999")
    for text in ("1e400", "1e+200", "2E0999", "-3e1000"):
        assert not accepts({"type": "number"}, text) and not accepts({"maximum": 0}, text)


def test_many_numbers_in_an_enum_are_one_automaton() -> None:
    numbers = list(range(0, 60_000, 3))
    machine = compile_json_schema({"enum": numbers}, options=Options(time_limit=30)).machine
    for text in (b"0", b"30", b"59997", b"30.0"):
        assert stepping.accepts(machine, text)
    assert not stepping.accepts(machine, b"31") and not stepping.accepts(machine, b"60000")


def test_long_names_and_constants_stop_before_they_fill_memory() -> None:
    for schema in ({"properties": {f"{i:06d}{'x' * 90}": {"type": "null"} for i in range(5_000)}}, {"const": "z" * 300_000}):
        with pytest.raises(BudgetError) as caught:
            compile_json_schema(schema)
        assert caught.value.pointer == "#" and "max_states" in caught.value.hint


def test_words_with_common_ends_share_them() -> None:
    artifact = compile_json_schema({"enum": [f"{i:05d}{'y' * 40}" for i in range(20_000)]})
    assert artifact.machine.states < 100


def test_a_thousand_optional_properties_take_linear_time() -> None:
    names = [f"p{i}" for i in range(1_000)]
    machine = compile_json_schema({"properties": {n: {"type": "null"} for n in names}, "additionalProperties": False}).machine
    assert stepping.accepts(machine, b'{"p3":null,"p997":null}') and not stepping.accepts(machine, b'{"p997":null,"p3":null}')


def test_running_out_of_time_names_the_place() -> None:
    schema = {"properties": {f"p{i}": {"type": "null"} for i in range(900)}, "minProperties": 450, "additionalProperties": False}
    with pytest.raises(BudgetError) as caught:
        compile_json_schema(schema, options=Options(time_limit=0.2))
    assert caught.value.pointer == "#"


def test_messages_stay_readable_however_long_the_source() -> None:
    with pytest.raises(BudgetError) as caught:
        compile_json_schema({"type": "string", "pattern": "z" * 1_100_000})
    assert "pattern" in str(caught.value) and len(str(caught.value)) < 1_000
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    with pytest.raises(BudgetError) as caught:
        compile_json_schema({"enum": [nested]})
    assert caught.value.pointer.startswith("#/enum/0") and len(str(caught.value)) < 1_000


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_thousands_of_alternatives(keyword: str) -> None:
    assert accepts({keyword: [{"const": f"v{i}"} for i in range(3_000)]}, '"v2999"')
    assert not accepts({keyword: [{"const": i} for i in range(3_000)]}, "3000")
    assert not accepts({"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}, {"const": 1}]}, '"a"')
    required = [{"required": [name], "properties": {name: {"type": "null"}}} for name in (f"k{i:02}" for i in range(40))]
    schema = {keyword: required, "type": "object", "additionalProperties": False, "properties": {f"k{i:02}": {} for i in range(40)}}
    assert accepts(schema, '{"k07":null}') and not accepts(schema, '{"k07":1}')
    assert accepts(schema, '{"k07":null,"k39":null}') == (keyword == "anyOf")


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ('{"maximum":1e999999999999999999999}', BudgetError, "1e999999999999999999999"),
        ('{"minLength":' + "9" * 5000 + "}", BudgetError, "999"),
        ({"minimum": 10**5000}, BudgetError, "bits"),
        ('{"type":"null","type":"string"}', SourceError, "type"),
        ('{"minimum":1,"minimum":true}', SourceError, "minimum"),
        ({"$id": 5}, SourceError, "$id"),
        ({"$schema": []}, SourceError, "$schema"),
        ({"$defs": []}, SourceError, "$defs"),
        ({"minContains": "x"}, SourceError, "minContains"),
    ],
)
def test_what_no_schema_holds_is_named(text: Any, error: type[CompileError], word: str) -> None:
    with pytest.raises(error) as caught:
        compile_json_schema(text)
    assert word in str(caught.value) and len(str(caught.value)) < 1_000


def test_names_that_repeat_the_same_value_are_harmless() -> None:
    assert accepts('{"type":"null","type":"null"}', "null")


def test_drafts_are_known_by_either_scheme_and_others_are_noted() -> None:
    assert not accepts({"$schema": "https://json-schema.org/draft-04/schema", "type": "integer"}, "1.0")
    artifact = compile_json_schema({"$schema": "http://example.com/", "type": "integer"})
    assert [note["keyword"] for note in artifact.metadata.warnings] == ["$schema"]


def test_a_long_chain_of_definitions_is_written_once_or_so() -> None:
    links = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}, "maxItems": 1} for i in range(1_500)}
    machine = compile_json_schema({"$ref": "#/$defs/d0", "$defs": links | {"d1500": {"type": "null"}}}).machine
    assert stepping.accepts(machine, b"[" * 1_500 + b"null" + b"]" * 1_500)
    assert not stepping.accepts(machine, b"[" * 1_501 + b"null" + b"]" * 1_501)


def test_counting_far_stops_before_it_fills_memory() -> None:
    with pytest.raises(BudgetError) as caught:
        compile_json_schema({"type": "array", "contains": {"const": 1}, "minContains": 10**5}, options=Options(max_states=20_000))
    assert caught.value.pointer == "#"


def test_text_in_place_of_bytes_is_a_typed_error() -> None:
    matcher = load(compile_json_schema({"type": "boolean"})).matcher()
    with pytest.raises(ConstraintError, match="bytes"):
        matcher.accept_bytes("true")  # type: ignore[arg-type]


def test_a_read_only_bitmask_is_a_typed_error() -> None:
    vocabulary = Vocabulary.from_tokens([b"true", b"false", b""], [2])
    matcher = load(compile_json_schema({"type": "boolean"}, vocabularies=[vocabulary]), vocabulary=vocabulary).matcher()
    bitmask = np.zeros((1, 1), np.int32)
    bitmask.flags.writeable = False
    with pytest.raises(BitmaskError, match="read-only"):
        matcher.fill_next_token_bitmask(bitmask)


@pytest.mark.parametrize(("draft", "keyword"), [("draft-04", "id"), ("draft-07", "$id")])
def test_a_base_with_an_empty_fragment_names_the_document(draft: str, keyword: str) -> None:
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#", keyword: "http://example.com/person#",
        "$ref": "#/definitions/age", "definitions": {"age": {"type": "integer"}},
    }
    assert accepts(schema, "3") and not accepts(schema, '"3"')


def test_keywords_of_later_drafts_ask_for_nothing() -> None:
    schema = {"properties": {"a": {"const": 1}}, "if": {"required": ["a"]}, "then": {"required": ["b"]}}
    assert accepts({"$schema": "http://json-schema.org/draft-04/schema#", **schema}, '{"a":2}')
    assert not accepts({"$schema": "http://json-schema.org/draft-06/schema#", **schema}, '{"a":2}')
    assert accepts({"$schema": "http://json-schema.org/draft-06/schema#", **schema}, '{"a":1}')
    assert not accepts({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, '{"a":1}')
    warnings = compile_json_schema({"$schema": "http://json-schema.org/draft-04/schema#", **schema}).metadata.warnings
    assert {note["keyword"] for note in warnings} == {"const", "if", "then"}
