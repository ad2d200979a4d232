"""Replies that are calls or an answer: both languages and nothing else, in every format that can tell them apart; grammars joined."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tools_formats import DISTINCT
from tool_cases import PARSERS, TOOLS, accepts, problems

from stcc.compiler import CompileError, compile_json_schema, compile_regex, compile_tools
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.frontends.tools import FORMATS
from stcc.compiler.frontends.tools.beginnings import machine_grammar, without_beginnings
from stcc.compiler.ir import Grammar, RuleBuilder, verify_grammar
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.compiler.pipeline import dfa_grammar
from stcc.compiler.stepping import accepts as steps_accept
from stcc.compiler.trim import trim
from stcc.compiler.union import either, sequence
from stcc.runtime.sampling import Walker

ANSWER = {"type": "object", "properties": {"text": {"type": "string"}, "more": {"type": "array", "items": {"$ref": "#"}}},
          "required": ["text"], "additionalProperties": False}
SPLIT = [name for name in DISTINCT if FORMATS[name].preamble is not None]
BARE = [name for name in DISTINCT if FORMATS[name].preamble is None]


def is_answer(format: str, reply: str) -> bool:
    try:
        jsonschema.validate(json.loads(reply.removeprefix(FORMATS[format].text.open)), ANSWER)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def sampled_calls(format: str) -> Iterator[tuple[Any, str]]:
    """Random replies that are no answers, read; both kinds must come."""
    rng, seen = np.random.default_rng(3), set()
    outputs = Walker(compile_tools(TOOLS, format=format, answer=ANSWER).machine)
    for _ in range(24):
        reply = outputs.output(rng, 400).decode()
        if is_answer(format, reply):
            seen.add("answer")
            continue
        seen.add("calls")
        yield PARSERS[format](reply), reply
    assert seen == {"answer", "calls"}


@pytest.mark.parametrize("format", SPLIT)
def test_samples_are_calls_or_answers(format: str) -> None:
    for parsed, reply in sampled_calls(format):
        assert parsed.calls and not parsed.text.strip(), reply
        assert all(problems(call) == [] for call in parsed.calls), reply


@pytest.mark.parametrize("format", ["hermes", "qwen3_coder"])
def test_what_is_neither_is_not_admitted(format: str) -> None:
    artifact = compile_tools(TOOLS, format=format, answer=ANSWER)
    for text in ('{"text": "a", "more": [{"text": "b"}]}', '{"text": "<tool_call>"}'):
        assert accepts(artifact, text)
    for text in ("", "hello", "{}", '{"text": 1}', 'Sure. {"text": "a"}', '{"text": "a"}\n<tool_call>'):
        assert not accepts(artifact, text)


def test_choices_with_an_answer() -> None:
    call = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    answer = '{"text": "a"}'
    for choice, calls, answers in (("auto", True, True), ("required", True, False), ("none", False, True)):
        artifact = compile_tools(TOOLS, format="hermes", tool_choice=choice, answer=ANSWER)
        assert (accepts(artifact, call), accepts(artifact, answer)) == (calls, answers)
    thinking = compile_tools(TOOLS, format="hermes", answer=ANSWER, reasoning=True)
    for reply in (call, answer):
        assert accepts(thinking, reply) and accepts(thinking, "<think>\nhm</think>\n\n" + reply)
    opened = compile_tools([], format="hermes", answer=ANSWER, reasoning="open")
    assert accepts(opened, "hm</think>\n\n" + answer) and not accepts(opened, answer)


@pytest.mark.parametrize("format", BARE)
def test_bare_calls_and_answers(format: str) -> None:
    """Where calls are JSON objects without a mark, an answer does not begin with a tool's name and the word for its arguments."""
    call = '{"name": "get_time", "parameters": {}}'
    anything = compile_tools(TOOLS, format=format, answer={"type": "object"})
    for text in (call, "{}", '{"name": "get_time"}', '{"name": "get_time", "more": [{"parameters": {}}]}',
                 '{"name": "get_times", "parameters": {"z": 1}}', '{"parameters": {}, "name": "get_time"}'):
        assert accepts(anything, text), text
    for text in ('{"name": "get_time", "parameters": {"z": 1}}', '{"name": "get_time", "parameters": 3}', '[{"name": "get_time"}]'):
        assert not accepts(anything, text), text
    typed = compile_tools(TOOLS, format=format, answer=ANSWER)
    assert accepts(typed, '{"text": "a", "more": [{"text": "b"}]}') and accepts(typed, call) and not accepts(typed, "{}")
    assert accepts(compile_tools(TOOLS, format=format, answer=ANSWER, tool_choice="none"), '{"text": "a"}')


@pytest.mark.parametrize("format", BARE)
def test_samples_of_bare_calls_and_answers(format: str) -> None:
    for parsed, reply in sampled_calls(format):
        assert all(problems(call) == [] for call in parsed.calls), reply


@pytest.mark.parametrize("format", DISTINCT)
def test_patterns_as_answers(format: str) -> None:
    """Any text of a pattern is an answer, unless it begins as calls do, or with another mark that readers go by."""
    family = FORMATS[format]
    artifact = compile_tools(TOOLS, format=format, answer=compile_regex(r"[\s\S]*"))
    call = family.section_open + family.head or '{"name": "get_time", "parameters":'
    marks = [call, *(section.open for section in (family.reasoning,) if section is not None)]
    for mark in marks:
        assert not accepts(artifact, family.text.open + mark) and not accepts(artifact, family.text.open + mark + "x")
        assert accepts(artifact, family.text.open + mark[:-1] + "\x7f") and accepts(artifact, family.text.open + "x" + mark)


def test_answers_that_are_all_calls_are_refused() -> None:
    with pytest.raises(CompileError, match="no answer is left"):
        compile_tools(TOOLS, format="hermes", answer=compile_regex("<tool_call>\\n[a-z]*"))


def test_an_artifact_of_tools_is_no_answer() -> None:
    with pytest.raises(CompileError, match="special tokens"):
        compile_tools(TOOLS, format="hermes", answer=compile_tools(TOOLS, format="harmony"))


def test_an_answer_told_apart_only_inside_a_value() -> None:
    """The array opens a nested value, in which the text goes on like a mark."""
    inner = compile_json_schema({"type": "array", "items": {"$ref": "#"}}).machine
    beginning = compile_regex(r"\[\[\[").machine
    with pytest.raises(CompileError, match="value inside"):
        without_beginnings(inner, beginning)


RECURSIVE: list[Any] = [
    ANSWER, {"type": "object"}, {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"enum": [1, "x"]}]}},
    {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "next": {"$ref": "#"}}, "required": ["kind"],
     "oneOf": [{"properties": {"kind": {"const": "a"}}}, {"required": ["next"]}]},
    {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
]


@pytest.mark.parametrize("schema", RECURSIVE, ids=range(len(RECURSIVE)))
def test_machines_turned_back_into_grammars(schema: Any) -> None:
    machine = compile_json_schema(schema).machine
    grammar = machine_grammar(machine)
    assert verify_grammar(grammar) == []
    again = link(trim(grammar, Deadline(60)), Options(), Deadline(60))
    assert again.states <= 2 * machine.states and len(again.unique) == len(machine.unique)
    rng = np.random.default_rng(5)
    for source, other in ((machine, again), (again, machine)):
        for _ in range(20):
            text = Walker(source).output(rng, 120)
            place = int(rng.integers(0, len(text)))
            broken = text[:place] + bytes([int(rng.integers(32, 127))]) + text[place + 1:]
            assert steps_accept(other, text) and steps_accept(other, broken) == steps_accept(source, broken), text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
       st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=3, unique=True))
def test_beginnings_taken_away(words: list[str], beginnings: list[str]) -> None:
    def machine(listed: list[str]) -> Any:
        return compile_regex("|".join(f"({word})" for word in listed)).machine

    grammar = without_beginnings(machine(words), machine(beginnings))
    expected = {word for word in words if not any(word.startswith(beginning) for beginning in beginnings)}
    if not expected:
        with pytest.raises(CompileError, match="satisfy"):
            trim(grammar)
        return
    rest = link(trim(grammar), Options(), Deadline(60))
    texts = ["".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)]
    assert {text for text in texts if steps_accept(rest, text.encode())} == expected


def test_notes_of_the_answer_are_kept() -> None:
    noted = compile_tools([], format="hermes", answer={"type": "string", "format": "no-such-format"})
    assert any(note["keyword"] == "format" for note in noted.metadata.warnings)


# ---- grammars joined, against Python's own sets of strings


WORDS = st.lists(st.text(alphabet="ab", max_size=4), min_size=1, max_size=4, unique=True)


def listed(words: list[str]) -> Grammar:
    return dfa_grammar(compile_pattern("|".join(f"({word})" for word in words), dialect="python", mode="fullmatch"), "#")


def nested(words: list[str]) -> Grammar:
    """``words`` in brackets, through a rule that is called, and that may call itself."""
    inner = RuleBuilder("inner")
    opened, end = inner.node(), inner.node()
    inner.literal(0, b"[", opened)
    for word in words:
        inner.literal(opened, word.encode() + b"]", end)
    closing = inner.node()
    inner.call(opened, 1, [closing])
    inner.literal(closing, b"]", end)
    inner.exit(end, 0)
    outer = RuleBuilder("#")
    done = outer.node()
    outer.call(0, 1, [done])
    outer.exit(done, 0)
    return Grammar((outer.build(), inner.build()))


def accepted(grammar: Grammar, texts: set[str]) -> set[str]:
    assert verify_grammar(grammar) == []
    machine = link(trim(grammar, Deadline(60)), Options(), Deadline(60))
    from stcc.runtime.grammar import Grammar as Loaded

    found = set()
    for text in texts:
        matcher = Loaded(machine).matcher()
        if matcher.accept_bytes(text.encode()) and matcher.is_accepting():
            found.add(text)
    return found


@settings(max_examples=25, deadline=None)
@given(WORDS, WORDS)
def test_joined_grammars(one: list[str], other: list[str]) -> None:
    texts = {"".join(letters) for size in range(6) for letters in itertools.product("ab", repeat=size)}
    texts |= {first + second for first in one for second in other}
    assert accepted(either(listed(one), listed(other)), texts) == set(one) | set(other)
    assert accepted(sequence(listed(one), listed(other)), texts) == {first + second for first in one for second in other}


@settings(max_examples=15, deadline=None)
@given(WORDS, WORDS)
def test_joined_grammars_with_calls(one: list[str], other: list[str]) -> None:
    brackets = {"[" * depth + word + "]" * depth for word in {*one, *other} for depth in (1, 2, 3)}
    mine = {text for text in brackets if text.strip("[]") in one}
    pairs = {(text, word) for text in brackets for word in other}
    texts: set[Any] = brackets | set(other) | {text + word for text, word in pairs} | {word + text for text, word in pairs}
    assert accepted(either(nested(one), listed(other)), texts) == (mine | set(other))
    assert accepted(sequence(nested(one), listed(other)), texts) == {text + word for text in mine for word in other}
    assert accepted(sequence(listed(other), nested(one)), texts) == {word + text for text in mine for word in other}
