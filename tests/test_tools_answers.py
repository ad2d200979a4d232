"""Replies that are calls or an answer: both languages and nothing else, in every format that can tell them apart; grammars joined."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tools_formats import DISTINCT
from tool_cases import PARSERS, TOOLS, accepts, problems

from stcc.compiler import CompileError, compile_tools
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.frontends.tools import FORMATS
from stcc.compiler.ir import Grammar, RuleBuilder, verify_grammar
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.compiler.pipeline import dfa_grammar
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


@pytest.mark.parametrize("format", SPLIT)
def test_samples_are_calls_or_answers(format: str) -> None:
    rng, seen = np.random.default_rng(3), set()
    outputs = Walker(compile_tools(TOOLS, format=format, answer=ANSWER).machine)
    for _ in range(24):
        reply = outputs.output(rng, 400).decode()
        if is_answer(format, reply):
            seen.add("answer")
            continue
        parsed = PARSERS[format](reply)
        assert parsed.calls and not parsed.text.strip(), reply
        assert all(problems(call) == [] for call in parsed.calls), reply
        seen.add("calls")
    assert seen == {"answer", "calls"}


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
def test_formats_that_cannot_tell_them_apart_say_so(format: str) -> None:
    with pytest.raises(CompileError, match="two ways"):
        compile_tools(TOOLS, format=format, answer=ANSWER)
    assert accepts(compile_tools(TOOLS, format=format, answer=ANSWER, tool_choice="none"), '{"text": "a"}')


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
