"""``contentEncoding`` and ``contentMediaType``: strings that hold JSON, against json and base64; when they are enforced and when left."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runtime_cases import bound
from tokenizer_cases import TRAINED

from stcc.compiler import Options, SourceError, UnsatisfiableError, UnsupportedError, compile_json_schema, vocabulary_from_tokenizer
from stcc.compiler.ir import Grammar as Rules
from stcc.compiler.ir import RuleBuilder
from stcc.compiler.respelling import encoded, escaped, openings
from stcc.compiler.scalars.encodings import ENCODINGS, encoded_texts
from stcc.runtime import Grammar, allocate_token_bitmask
from stcc.runtime.sampling import Walker

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
PLAIN = {"contentMediaType": "application/json"}
BASE64 = {"contentMediaType": "application/json", "contentEncoding": "base64"}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 999) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=8,
)
CODECS = {"base16": (base64.b16encode, base64.b16decode), "base32": (base64.b32encode, base64.b32decode),
          "base64": (base64.b64encode, lambda text: base64.b64decode(text, validate=True))}


def compiled(contents: dict[str, Any], **options: Any) -> Any:
    return compile_json_schema({"$schema": DRAFT_7, **contents}, options=Options(**options))


GRAMMARS = {name: Grammar(compiled({"type": "string", **contents}).machine) for name, contents in (("plain", PLAIN), ("base64", BASE64))}


def accepts(grammar: Grammar, text: str | bytes) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text if isinstance(text, bytes) else text.encode()) and matcher.is_accepting()


def refuse_constant(name: str) -> Any:
    raise ValueError(name)


def is_json(text: str | bytes) -> bool:
    """Whether ``text`` is JSON in UTF-8; Python's reader takes constants that JSON lacks, and other encodings of bytes."""
    try:
        json.loads(text.decode() if isinstance(text, bytes) else text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def decoded(name: str, text: str) -> bytes | None:
    """The content of a canonical text in an encoding, or None."""
    encode, decode = CODECS[name]
    try:
        content = decode(text.encode())
    except (binascii.Error, ValueError):
        return None
    return content if encode(content) == text.encode() else None


@st.composite
def nearly_json(draw: st.DrawFn) -> str:
    text = json.dumps(draw(JSON_VALUES), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 1])))
    text = draw(st.sampled_from(["", " ", "\n\t"])) + text + draw(st.sampled_from(["", "\r", "  "]))
    for _ in range(draw(st.integers(0, 2))):
        place, put = draw(st.integers(0, len(text))), draw(st.sampled_from(["", *'"\\[]{},:0-+.eEu \t\n/x', "null", "\x01", "é"]))
        text = text[:place] + put + text[place + draw(st.integers(0, 1)):]
    return text


@given(nearly_json())
@example("{:}")
@example('{"foo": "bar"}')
@example('"\\"\\\\\\/\\u000a"')
@example("1e99999")
@example("[" * 40 + "]" * 40)
def test_a_string_that_holds_json(text: str) -> None:
    assert accepts(GRAMMARS["plain"], json.dumps(text, ensure_ascii=False)) == is_json(text)


@given(nearly_json())
def test_escapes_of_either_kind(text: str) -> None:
    """What has to be escaped may be spelled in each way that other strings admit."""
    spelled = json.dumps(text, ensure_ascii=False).replace("\\n", "\\u000A").replace("\\t", "\\u0009")
    assert json.loads(spelled) != text or accepts(GRAMMARS["plain"], spelled) == is_json(text)


@given(nearly_json().map(str.encode) | st.binary(max_size=6))
@example(b'{"foo": "bar"}\n')
@example(b"{:}\n")
@example(b'"\xff"')
def test_a_string_that_holds_json_in_base64(content: bytes) -> None:
    assert accepts(GRAMMARS["base64"], b'"' + base64.b64encode(content) + b'"') == is_json(content)


@given(nearly_json(), st.integers(0, 200), st.sampled_from([*"ABg0/=+ -\\", "=="]))
def test_mutilated_base64(text: str, place: int, put: str) -> None:
    spelled = base64.b64encode(text.encode()).decode()
    spelled = spelled[:place] + put + spelled[place + 1:]
    content = decoded("base64", spelled)
    assert accepts(GRAMMARS["base64"], json.dumps(spelled)) == (content is not None and is_json(content))


@pytest.mark.parametrize("name", ENCODINGS)
@given(content=st.binary(max_size=12), place=st.integers(0, 20), put=st.sampled_from(["", *"ABCZaz09+/=-_ \n"]))
def test_encodings(name: str, content: bytes, place: int, put: str) -> None:
    text = CODECS[name][0](content).decode()
    assert encoded_texts(name).match(text.encode()) == 0
    text = text[:place] + put + text[place + 1:]
    assert (encoded_texts(name).match(text.encode()) == 0) == (decoded(name, text) is not None)


def test_an_encoding_alone_is_regular_and_combines() -> None:
    grammar = Grammar(compiled({"type": "string", "contentEncoding": "BASE64", "maxLength": 4, "not": {"const": "AAAA"}}).machine)
    assert [accepts(grammar, f'"{text}"') for text in ("", "QUJD", "QUI=")] == [True] * 3
    assert not any(accepts(grammar, f'"{text}"') for text in ("AAAA", "QUJDQUJD", "Q"))
    either = Grammar(compiled({"anyOf": [{"type": "string", "contentEncoding": "base16"}, {"const": "x"}]}).machine)
    assert [accepts(either, f'"{text}"') for text in ("", "0F", "x", "0f", "F")] == [True, True, True, False, False]


def test_anything_but_strings_passes() -> None:
    grammar = Grammar(compiled(BASE64).machine)
    assert [accepts(grammar, text) for text in ("100", "null", "[1]", '"e30="', '"{}"')] == [True, True, True, True, False]


@pytest.mark.parametrize("contents", [PLAIN, BASE64])
def test_inside_containers_and_beside_other_types(contents: dict[str, Any]) -> None:
    properties = {"p": {"type": ["string", "null"], **contents}, "q": {"items": {"type": "string", **contents}}}
    schema = {"properties": properties, "type": "object", "additionalProperties": False}
    grammar = Grammar(compiled(schema).machine)
    good, bad = ('"e30="', '"e31="') if contents is BASE64 else ('"{}"', '"{"')
    assert accepts(grammar, f'{{"p":{good},"q":[{good},{good}]}}') and accepts(grammar, '{"p":null,"q":[]}')
    assert not accepts(grammar, f'{{"p":{bad},"q":[]}}') and not accepts(grammar, f'{{"q":[{good},{bad}]}}')


@pytest.mark.parametrize("media", ["application/json", "Application/JSON; charset=utf-8", "application/ld+json"])
def test_media_types_of_json(media: str) -> None:
    grammar = Grammar(compiled({"type": "string", "contentMediaType": media}).machine)
    assert accepts(grammar, '"[]"') and not accepts(grammar, '"["')


@pytest.mark.parametrize("draft", ["https://json-schema.org/draft/2019-09/schema",
                                   "https://json-schema.org/draft/2020-12/schema", None])
def test_other_drafts_take_them_as_annotations_unless_asked(draft: str | None) -> None:
    schema = {**({"$schema": draft} if draft else {}), "type": "string", **BASE64}
    assert accepts(Grammar(compile_json_schema(schema).machine), '"{:}"')
    assert not accepts(Grammar(compile_json_schema(schema, options=Options(content="enforce")).machine), '"{:}"')


def test_annotate() -> None:
    made = compiled({"type": "string", **BASE64}, content="annotate")
    assert accepts(Grammar(made.machine), '"{:}"') and not made.metadata.warnings and made.metadata.options["content"] == "annotate"


LEFT = [
    {"type": "string", **PLAIN, "maxLength": 9}, {"type": "string", "not": PLAIN, "pattern": "^a"}, {"propertyNames": PLAIN},
    {"type": "string", "oneOf": [PLAIN, {"pattern": "^a"}]}, {"type": "string", "contentEncoding": "base32", **PLAIN},
]


@pytest.mark.parametrize("schema", LEFT)
def test_where_json_cannot_be_enforced_it_is_said(schema: dict[str, Any]) -> None:
    if "not" in schema:  # an annotation holds, so that nothing is left
        with pytest.raises(UnsatisfiableError):
            compiled(schema)
    else:
        assert [note["keyword"] for note in compiled(schema).metadata.warnings] == ["contentMediaType"]
    with pytest.raises(UnsupportedError) as refused:
        compiled(schema, content="enforce")
    assert refused.value.keyword == "contentMediaType" and refused.value.hint
    if "not" not in schema:
        made = compiled(schema, content="enforce", unenforced="warn")
        assert [note["keyword"] for note in made.metadata.unenforced] == ["contentMediaType"]


def test_what_is_left_still_has_its_encoding() -> None:
    grammar = Grammar(compiled({"type": "string", **BASE64, "maxLength": 8}).machine)
    assert [accepts(grammar, f'"{text}"') for text in ("e30=", "ezp9", "{}", "e30")] == [True, True, False, False]


def test_a_schema_of_the_content_is_refused_where_content_is_enforced() -> None:
    schema = {"type": "string", **PLAIN, "contentSchema": {"type": "object"}}
    with pytest.raises(UnsupportedError, match="contentSchema"):
        compile_json_schema(schema, options=Options(content="enforce"))
    assert compile_json_schema({**schema, "contentSchema": True}, options=Options(content="enforce"))
    assert compile_json_schema(schema).metadata.warnings == ()


@pytest.mark.parametrize("schema", [{"contentEncoding": 1}, {"contentMediaType": ["application/json"]}])
def test_values_of_the_wrong_type(schema: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="expected a string"):
        compiled(schema)


@pytest.mark.parametrize(("schema", "message"), [
    ({"contentEncoding": "quoted-printable", **PLAIN}, "unknown encoding 'quoted-printable'"),
    ({"contentMediaType": "text/html"}, "unknown media type"),
])
def test_what_is_not_known_is_an_annotation_with_a_warning(schema: dict[str, Any], message: str) -> None:
    made = compiled({"type": "string", **schema})
    assert [message in note["message"] for note in made.metadata.warnings] == [True] and accepts(Grammar(made.machine), '"<"')


@pytest.mark.parametrize("contents", [PLAIN, BASE64])
def test_walks_hold_json(contents: dict[str, Any]) -> None:
    made = compiled({"type": "array", "items": {"type": "string", **contents}, "minItems": 1})
    walker, rng = Walker(made.machine), np.random.default_rng(3)
    for _ in range(60):
        for text in json.loads(walker.output(rng, 120)):
            assert is_json(base64.b64decode(text, validate=True) if contents is BASE64 else text), text


@pytest.mark.parametrize("contents", [PLAIN, BASE64])
def test_masks_are_the_tokens_that_may_be_read(contents: dict[str, Any]) -> None:
    """Bound to a trained vocabulary, along random outputs: a token is allowed exactly if its bytes are read and lead on."""
    machine = compiled({"type": "string", **contents}).machine
    vocabulary = vocabulary_from_tokenizer(TRAINED["byte-level"])
    grammar, free, rng = bound(machine, vocabulary), Grammar(machine), np.random.default_rng(5)
    bitmask, tokens = allocate_token_bitmask(1, vocabulary.size), [vocabulary.token(number) for number in range(vocabulary.size)]
    for _ in range(4):
        text = Walker(machine).output(rng, 60)
        matcher, read = grammar.matcher(), b""
        for token in TRAINED["byte-level"].encode(text.decode()).ids:
            matcher.fill_next_token_bitmask(bitmask, 0)
            allowed = np.unpackbits(bitmask.view(np.uint8)[0], bitorder="little")[:vocabulary.size].astype(bool)
            expected = [bool(each) and free.matcher().accept_bytes(read + each) for each in tokens]
            assert [found for each, found in zip(tokens, allowed.tolist(), strict=True) if each] == \
                [found for each, found in zip(tokens, expected, strict=True) if each]
            assert allowed[list(vocabulary.stop_token_ids)].all() == accepts(free, read)
            assert matcher.accept_token(token)
            read += tokens[token]


def test_marked_arrays_cannot_be_respelled() -> None:
    builder = RuleBuilder("#/p")
    opened = builder.node()
    builder.byte(0, ord("["), ord("["), opened)
    builder.exit(opened, 0)
    builder.mark(opened, True)
    rule = builder.build()
    with pytest.raises(ValueError, match="#/p"):
        escaped(rule, lambda callee, context: callee)
    with pytest.raises(ValueError, match="#/p"):
        encoded(rule, ENCODINGS["base64"], 0, openings(Rules((rule,))), lambda callee, context: callee)


def test_openings_through_calls_and_empty_rules() -> None:
    first, second = RuleBuilder("#"), RuleBuilder("#/empty")
    end = first.node()
    first.byte(0, ord("a"), ord("c"), end)
    first.call(0, 1, (end,))
    first.exit(end, 0)
    second.exit(0, 0)
    found = openings(Rules((first.build(), second.build())))
    assert found[1].all() and found[0].all()
    second = RuleBuilder("#/z")
    last = second.node()
    second.byte(0, ord("z"), ord("z"), last)
    second.exit(last, 0)
    assert np.flatnonzero(openings(Rules((first.build(), second.build())))[0]).tolist() == [97, 98, 99, 122]


def test_what_is_left_is_named_where_it_is() -> None:
    plain = {"type": "string", **PLAIN}
    schema = {"type": "object", "properties": {"a": plain, "b": {**plain, "maxLength": 5}, "c": {**plain, "pattern": "x"}}}
    made = compiled(schema)
    assert [note["pointer"] for note in made.metadata.warnings] == ["#/properties/b", "#/properties/c"]
    with pytest.raises(UnsupportedError) as refused:
        compiled({"type": "object", "properties": {"a": plain, "b": {**plain, "maxLength": 5}}}, content="enforce")
    assert refused.value.pointer == "#/properties/b"
    warned = compiled(schema, content="enforce", unenforced="warn").metadata.unenforced
    assert [note["pointer"] for note in warned] == ["#/properties/b", "#/properties/c"]


def test_older_drafts_have_no_such_keywords() -> None:
    schema = {"$schema": "http://json-schema.org/draft-06/schema#", "type": "string", **PLAIN}
    made = compile_json_schema(schema, options=Options(content="enforce"))
    assert accepts(Grammar(made.machine), '"{"') and "not a keyword of draft 6" in made.metadata.warnings[0]["message"]
    assert compiled({"type": "string", **PLAIN, "contentSchema": {"type": "object"}}, content="enforce").metadata.warnings


@pytest.mark.parametrize("content_schema", [1, "x", [], False])
def test_a_content_schema_that_asks_for_something(content_schema: Any) -> None:
    with pytest.raises(UnsupportedError, match="contentSchema"):
        compile_json_schema({"type": "string", **PLAIN, "contentSchema": content_schema}, options=Options(content="enforce"))
