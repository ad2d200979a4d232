"""``uniqueItems`` over items of any number: acceptance against jsonschema, masks against trying every token, walks that must end valid."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np
import pytest
from binding_cases import GRAMMARS, linked
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_cases import bound
from tokenizer_cases import TRAINED

from stcc.compiler import Options, UnsatisfiableError, UnsupportedError, compile_json_schema, vocabulary_from_tokenizer
from stcc.formats import Artifact, Vocabulary
from stcc.runtime import ConstraintError, Grammar, Matcher, allocate_token_bitmask, load
from stcc.runtime.device import DeviceLimitError, build_tables
from stcc.runtime.sampling import Walker
from stcc.runtime.unique_costs import UniqueBudgetError, goes_further

UNIQUE = {"type": "array", "uniqueItems": True}
STRINGS = {"type": "string"}
ITEMS: list[Any] = [
    STRINGS, True, {"type": "integer"}, {"type": "number"}, {"type": ["string", "null", "boolean"]}, {"type": "string", "maxLength": 1},
    {"enum": [f"v{number}" for number in range(14)]}, {"anyOf": [{"enum": ["a", "b", 1]}, {"type": "string", "pattern": "^[ab]{1,2}$"}]},
    {"type": "integer", "minimum": 0, "maximum": 3},
    {"type": "object", "properties": {"a": STRINGS, "b": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "properties": {"k": {"enum": ["x", "y"]}}, "required": ["k"], "additionalProperties": False},
    {"type": "object"}, {"type": "array", "items": {"type": "boolean"}},
    {"type": "array", "items": {"type": "string", "maxLength": 1}, "maxItems": 1},
    {"type": "object", "maxProperties": 1, "propertyNames": {"maxLength": 1}, "additionalProperties": {"enum": [1, "x"]}},
    {"type": "array", "items": {"enum": ["a", "b", 0, True]}, "maxItems": 2},
]
SCHEMAS: list[Any] = [
    *({**UNIQUE, "items": items} for items in ITEMS),
    {**UNIQUE, "items": {**UNIQUE, "items": STRINGS}},
    {**UNIQUE, "items": {**UNIQUE, "items": {"type": "string", "maxLength": 1}}},
    {**UNIQUE, "items": {"properties": {"t": {**UNIQUE, "items": STRINGS}}, "required": ["t"], "additionalProperties": False}},
    {"properties": {"p": {**UNIQUE, "items": STRINGS}, "q": {"items": STRINGS}}, "type": "object", "additionalProperties": False},
    {**UNIQUE, "prefixItems": [STRINGS, {"type": "integer"}], "items": {"enum": ["a", "b", *range(14)]}, "minItems": 3},
    {**UNIQUE, "items": STRINGS, "minItems": 2, "maxItems": 3},
    {"$defs": {"t": {**UNIQUE, "items": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "boolean"}]}}}, "$ref": "#/$defs/t"},
]
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2, 3, -1, 10, "", "a", "b", "ab", "v1", "v11", "v12", "x", "\n", "é", '"'])
NAMES = st.sampled_from(["a", "b", "k", "t"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=6)
REPEATS = st.lists(VALUES, min_size=1, max_size=3).flatmap(lambda pool: st.lists(st.sampled_from(pool), max_size=4))


def grammar_of(schema: Any, vocabulary: Vocabulary | None = None, **options: Any) -> Grammar:
    machine = compile_json_schema(schema, options=Options(property_order="any", **options)).machine
    return Grammar(machine) if vocabulary is None else bound(machine, vocabulary)


COMPILED = [grammar_of(schema) for schema in SCHEMAS]
FLEXIBLE = [grammar_of(schema, whitespace="flexible") for schema in SCHEMAS]


def accepts(grammar: Grammar, text: bytes) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_accepting()


def accepts_bytewise(grammar: Grammar, text: bytes) -> bool:
    matcher = grammar.matcher()
    return all(matcher.accept_bytes(text[place:place + 1]) for place in range(len(text))) and matcher.is_accepting()


def exact(text: str) -> int | Decimal:
    value = Decimal(text)
    return int(value) if value == value.to_integral_value() else value


def spelled(value: Any, **how: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **how).encode()


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_acceptance(number: int, data: st.DataObject) -> None:
    value = data.draw(REPEATS | st.lists(REPEATS, max_size=3) | st.fixed_dictionaries({}, optional={"p": REPEATS, "q": REPEATS}))
    valid = jsonschema.Draft202012Validator(SCHEMAS[number]).is_valid(value)
    for grammar, text in ((COMPILED[number], spelled(value, separators=(",", ":"))), (FLEXIBLE[number], spelled(value))):
        assert accepts(grammar, text) == valid, text
        assert accepts_bytewise(grammar, text) == valid, text


PARTS = st.sampled_from(ITEMS) | st.builds(lambda items: {**UNIQUE, "items": items}, st.sampled_from(ITEMS))
RANDOM = st.fixed_dictionaries(
    {"type": st.just("array"), "uniqueItems": st.just(True), "items": PARTS | st.builds(lambda *parts: {"anyOf": parts}, PARTS, PARTS)},
    optional={"prefixItems": st.lists(PARTS, max_size=2), "minItems": st.integers(0, 3), "maxItems": st.integers(2, 4),
              "contains": st.sampled_from(ITEMS[:8])})


@settings(max_examples=60, deadline=None)
@given(schema=RANDOM, values=st.lists(REPEATS, min_size=5, max_size=5), seed=st.integers(0, 1 << 30))
def test_random_schemas(schema: Any, values: list[Any], seed: int) -> None:
    try:
        grammar = grammar_of(schema)
    except (UnsupportedError, UnsatisfiableError):
        return
    validator = jsonschema.Draft202012Validator(schema)
    for value in values:
        assert accepts_bytewise(grammar, spelled(value, separators=(",", ":"))) == validator.is_valid(value), value
    text = Walker(grammar.machine).output(np.random.default_rng(seed), 60)
    assert accepts_bytewise(grammar, text) and validator.is_valid(json.loads(text, parse_float=exact)), text


@pytest.mark.parametrize(("text", "valid"), [
    (b"[1,1.0]", False), (b"[10,1e1]", False), (b"[100E-1,10]", False), (b"[1,true,[1],{}]", True), (b"[0,-0.0]", False), (b"[1,-1]", True),
    (b'["\\u0001","\\u0002"]', True), (b'["\\u001f","\\u001F"]', False), (b'["\\n","n"]', True),
    (b'[{"a":1,"b":2},{"b":2.0,"a":1}]', False),
    (b'[{"a":1},{"a":2}]', True), (b"[[1],[1,1]]", True), (b"[[[]],[[]]]", False), (b'["1",1]', True), (b"[null,null]", False),
    (b'[{"a":1},{"a":2,"a":1}]', False), (b'[{"a":1},{"a":1,"a":2}]', True), (b'[{"o":{"a":1}},{"o":{"a":2,"b":3,"a":1}}]', True),
    (b'[{"o":{"a":1}},{"o":{"a":2,"a":1}}]', False), (b"[0.1,0.10]", False), (b"[12345678901234567890,12345678901234567891]", True),
    (b'["a\\"","a\\\\"]', True), (b"[0.5,5e-1]", False),
])
def test_equality_of_values(text: bytes, valid: bool) -> None:
    assert accepts(COMPILED[1], text) == accepts_bytewise(COMPILED[1], text) == valid


def test_the_mark_survives_the_file() -> None:
    artifact = compile_json_schema(SCHEMAS[0])
    read = Artifact.from_bytes(artifact.to_bytes())
    assert len(read.machine.unique) == 1 and np.array_equal(read.machine.unique, artifact.machine.unique)
    assert b"machine.unique" not in compile_json_schema({"type": "array", "items": STRINGS}).to_bytes()
    assert accepts(load(read), b'["a","b"]') and not accepts(load(read), b'["a","a"]')


@pytest.mark.parametrize("schema", [
    {"not": UNIQUE}, {"anyOf": [{**UNIQUE, "items": STRINGS}, {"type": "array", "items": {"type": "integer"}, "minItems": 2}]},
    {"if": UNIQUE, "then": True, "else": {"maxItems": 2}},
    {**UNIQUE, "items": {"type": "boolean"}, "prefixItems": [STRINGS], "minItems": 4},
    {**UNIQUE, "prefixItems": [{"enum": ["a", "b"]}, {"const": "a"}, STRINGS], "minItems": 2},
])
def test_what_is_refused(schema: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_json_schema(schema)
    assert caught.value.keyword == "uniqueItems" and caught.value.pointer and caught.value.hint


def test_alternatives_that_are_not_arrays_do_not_matter() -> None:
    array = {**UNIQUE, "items": STRINGS}
    grammar = grammar_of({"oneOf": [array, STRINGS, {"type": "object", "additionalProperties": array}]})
    assert accepts(grammar, b'"a"') and accepts(grammar, b'["a","b"]') and accepts(grammar, b'{"x":["a"],"y":["a"]}')
    assert not accepts(grammar, b'["a","a"]') and not accepts(grammar, b'{"x":["a","a"]}')


# tokens

PIECES = rb'''
    "," "] [" "a" "a", "a","a" ["a","b" ["a","a" ],[ ]] [[ "} "},{" {"a":" {"k":"x"} ":" v1 v1" v1","v1 "v1 ab ab"
    a","a"] 1, 1,1 11 true true, true,true ], ," ,"a [1,1 1] 1.0 .0 .0, null, [] [],[] {} {}, {"t":[ "]} \n \"
    \u00 1f 1F 1F" "x" 0, ", "],[" {"p":[" "],"q":[" [true false ": "k" a"],["a"
'''
SMALL = [*(bytes([byte]) for byte in range(0x20, 0x7F)), *PIECES.split(), b"\xc3", b"\xa9", b'\xc3\xa9"', b"<end>"]
VOCABULARY = Vocabulary.from_tokens(SMALL, [len(SMALL) - 1])


def allowed(matcher: Matcher) -> list[int]:
    bitmask = allocate_token_bitmask(1, matcher.grammar.vocabulary.size)
    matcher.fill_next_token_bitmask(bitmask)
    return np.flatnonzero(np.unpackbits(bitmask[0].view(np.uint8), bitorder="little")).tolist()


def tried(matcher: Matcher) -> list[int]:
    found = []
    for token in range(matcher.grammar.vocabulary.size):
        if matcher.accept_token(token):
            found.append(token)
            matcher.rollback(1)
    return found


def favourite(matcher: Matcher, tokens: list[int], rng: np.random.Generator) -> int:
    """A token, mostly one that goes on with few different texts, so that items repeat."""
    texts = {token: matcher.grammar.vocabulary.token(token) for token in tokens}
    few = [token for token, text in texts.items() if set(text) <= set(b'[]{},:"abv1xktrue.0')]
    return int(rng.choice(few if few and rng.random() < 0.9 else tokens))


SMALL_GRAMMARS = [grammar_of(schema, VOCABULARY) for schema in SCHEMAS]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_masks_are_the_tokens_that_are_accepted(number: int, seed: int) -> None:
    matcher, rng = SMALL_GRAMMARS[number].matcher(), np.random.default_rng(seed)
    for _ in range(25):
        tokens = allowed(matcher)
        assert tokens == tried(matcher), (matcher.state, [VOCABULARY.token(token) for token in set(tokens) ^ set(tried(matcher))])
        assert tokens or matcher.is_accepting()
        assert matcher.allowed_bytes() == bytes(byte for byte in range(256) if matcher.fork().accept_bytes(bytes([byte])))
        tokens = [token for token in tokens if token != len(SMALL) - 1]
        if not tokens:
            break
        assert matcher.accept_token(favourite(matcher, tokens, rng))


REAL = vocabulary_from_tokenizer(TRAINED["byte-level"])
REAL_GRAMMARS = [grammar_of(schema, REAL) for schema in SCHEMAS]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_walks_end_valid(number: int) -> None:
    validator, rng = jsonschema.Draft202012Validator(SCHEMAS[number]), np.random.default_rng(number)
    for _ in range(4):
        matcher, text = REAL_GRAMMARS[number].matcher(), b""
        for step in range(60):
            tokens = allowed(matcher)
            assert tokens
            stops = [token for token in tokens if token in REAL.stop_token_ids]
            if stops and (step > 30 or len(stops) == len(tokens)):
                break
            token = favourite(matcher, [token for token in tokens if token not in stops], rng)
            assert matcher.accept_token(token)
            text += REAL.token(token)
        if matcher.is_accepting():
            assert validator.is_valid(json.loads(text, parse_float=exact)), text


def test_rollback_fork_and_reset_keep_the_items() -> None:
    matcher = SMALL_GRAMMARS[0].matcher()
    assert matcher.accept_bytes(b'["a"') and matcher.accept_bytes(b',"b"')
    twin = matcher.fork()
    assert twin.accept_bytes(b',"c') and not matcher.accept_bytes(b',"b"') and matcher.accept_bytes(b',"c"')
    assert twin.accept_bytes(b'"') and not twin.accept_bytes(b',"c"')
    matcher.rollback(2)
    assert matcher.accept_bytes(b',"c"') and matcher.accept_bytes(b',"b"') and not matcher.accept_bytes(b',"a"')
    assert not twin.accept_bytes(b',"b"') and twin.accept_bytes(b',"d"]') and twin.is_accepting()
    matcher.reset()
    assert matcher.accept_bytes(b'["c","a","b"]')


def test_what_is_forced_stops_before_what_must_not_follow() -> None:
    grammar = grammar_of({**UNIQUE, "items": {"enum": [f"item{number:02}" for number in range(30)]}})
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'["item0' + b'0"') and matcher.allowed_bytes() == b",]"
    assert matcher.accept_bytes(b",") and matcher.forced_bytes() == b'"item'
    assert matcher.accept_bytes(b'"item0') and matcher.allowed_bytes() == b"123456789"


def test_a_device_and_a_bare_configuration_are_refused() -> None:
    grammar = SMALL_GRAMMARS[0]
    with pytest.raises(DeviceLimitError, match="uniqueItems"):
        build_tables([(grammar.machine, grammar.binding)], VOCABULARY)
    matcher = grammar.matcher()
    matcher.accept_bytes(b'["a')
    with pytest.raises(ConstraintError):
        grammar.matcher().move_to(matcher.configuration())


def test_an_output_that_is_hastened_still_differs() -> None:
    matcher = PLAIN_GRAMMARS[0].matcher()
    assert matcher.accept_bytes(b'["","a","')
    matcher.hasten()
    steps = 0
    while not matcher.is_accepting():
        assert matcher.accept_token(allowed(matcher)[0])
        steps += 1
    assert steps <= 4


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_samples_are_valid(number: int) -> None:
    walker, rng = Walker(COMPILED[number].machine), np.random.default_rng(number)
    validator = jsonschema.Draft202012Validator(SCHEMAS[number])
    for _ in range(8):
        text = walker.output(rng, 60)
        assert accepts(COMPILED[number], text) and validator.is_valid(json.loads(text, parse_float=exact)), text


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(GRAMMARS)), seed=st.integers(0, 1 << 30))
def test_marks_where_none_belong_do_no_harm(name: str, seed: int) -> None:
    rng, machine = np.random.default_rng(seed), linked(GRAMMARS[name])
    unique = np.flatnonzero(rng.random(machine.states) < 0.5).astype(np.int32)
    grammar = bound(dataclasses.replace(machine, unique=unique, several=np.zeros(len(unique), np.bool_)), VOCABULARY)
    matcher = grammar.matcher()
    for _ in range(12):
        tokens = [token for token in allowed(matcher) if matcher.fork().accept_token(token)]
        if not tokens:
            break
        matcher.accept_token(int(rng.choice(tokens)))
        matcher.forced_bytes(), matcher.forced_tokens(), matcher.allowed_bytes()


def test_many_items_and_deep_ones() -> None:
    grammar = COMPILED[1]
    matcher = grammar.matcher()
    assert matcher.accept_bytes(spelled([*range(3000)], separators=(",", ":"))[:-1])
    assert not matcher.accept_bytes(b",17]") and matcher.accept_bytes(b",-17]")
    deep = b"[" * 2000 + b"]" * 2000
    assert accepts(grammar, b"[" + deep + b",[" + deep + b"]]") and not accepts(grammar, b"[" + deep + b"," + deep + b"]")


def test_budgets_that_cannot_be_kept_are_refused() -> None:
    several = next(number for number in range(len(SCHEMAS)) if COMPILED[number].machine.several.any())
    for grammar in (SMALL_GRAMMARS[0], grammar_of(SCHEMAS[several], PLAIN_VOCABULARY)):
        with pytest.raises(UniqueBudgetError):
            grammar.matcher(max_tokens=50)


BUDGETED = [number for number in range(len(SCHEMAS)) if not COMPILED[number].machine.several.any()]
PLAIN = [text for text in SMALL if not goes_further(text)]
PLAIN_VOCABULARY = Vocabulary.from_tokens(PLAIN, [len(PLAIN) - 1])
PLAIN_GRAMMARS = {number: grammar_of(SCHEMAS[number], PLAIN_VOCABULARY) for number in BUDGETED}


@pytest.mark.parametrize("number", BUDGETED)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1 << 30), more=st.integers(0, 9))
def test_budgets_end_valid(number: int, seed: int, more: int) -> None:
    grammar, rng = PLAIN_GRAMMARS[number], np.random.default_rng(seed)
    matcher, text = grammar.matcher(max_tokens=grammar.need() + more), b""
    stop = PLAIN_VOCABULARY.stop_token_ids[0]
    while True:
        tokens = allowed(matcher)
        assert tokens == tried(matcher), [PLAIN_VOCABULARY.token(token) for token in set(tokens) ^ set(tried(matcher))]
        assert tokens
        tokens = [token for token in tokens if token != stop]
        if not tokens or (matcher.is_accepting() and rng.random() < 0.3):
            break
        token = favourite(matcher, tokens, rng)
        assert matcher.accept_token(token)
        text += PLAIN_VOCABULARY.token(token)
    assert matcher.is_accepting() and jsonschema.Draft202012Validator(SCHEMAS[number]).is_valid(json.loads(text, parse_float=exact)), text


def test_masks_among_many_strings_most_of_them_taken() -> None:
    """More strings than are listed one by one, with common beginnings, some of them spelled in several ways, until none is left."""
    names = [f"{first}{number}{last}" for first in ("a", "ab", "v\x01") for number in range(23) for last in ("", "b", "\x02")]
    grammar = grammar_of({**UNIQUE, "items": {"enum": names}}, VOCABULARY)
    rng, order = np.random.default_rng(11), list(names)
    rng.shuffle(order)
    matcher, kept = grammar.matcher(), 3
    assert matcher.accept_bytes(b"[" + b",".join(spelled(name) for name in order[kept:]) + b",")
    for _ in range(100):
        found = allowed(matcher)
        assert found == tried(matcher) and found, "a mask is what may be accepted, and never empty"
        assert matcher.accept_token(int(rng.choice(found)))
        if matcher.is_accepting():
            break
    assert matcher.is_accepting()
    full = grammar.matcher()
    assert full.accept_bytes(b"[" + b",".join(map(spelled, order))) and not full.accept_bytes(b",") and full.accept_bytes(b"]")
