"""The reply reader against the reference parsers of ``tool_cases``, on sampled replies cut in random pieces; stop strings and guards."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tools_formats import DISTINCT
from tool_cases import PARSERS, SCHEMAS, walker

pytest.importorskip("mlx.core", reason="MLX is not installed")

from stcc.compiler.frontends.tools import FORMATS  # noqa: E402
from stcc.runtime.server.guards import TAILS, Watch, repeated_tail  # noqa: E402
from stcc.runtime.server.job import Guards  # noqa: E402
from stcc.runtime.server.replies import Reading, ReplyReader, only_strings  # noqa: E402
from stcc.runtime.server.stops import StopStrings  # noqa: E402
from stcc.runtime.server.wide import WIDEST, paying_width  # noqa: E402

SAMPLES = 12
SECTIONS = {"hermes", "qwen3_coder", "glm4", "mistral_v11", "harmony", "deepseek_v3", "deepseek_v31", "kimi_k2"}


def read(reader: ReplyReader, text: bytes, rng: random.Random) -> Reading:
    """All that the reader says of ``text``, fed in pieces."""
    total, place = Reading(), 0
    while place < len(text):
        size = rng.choice((1, 2, 3, 7, 40))
        add(total, reader.feed(text[place:place + size]))
        place += size
    add(total, reader.finish())
    return total


def add(total: Reading, part: Reading) -> None:
    total.content += part.content
    total.reasoning += part.reasoning
    total.calls += part.calls


@pytest.mark.parametrize("format", DISTINCT)
@pytest.mark.parametrize("required", [False, True])
def test_sampled_replies_are_read_as_the_reference_reads_them(format: str, required: bool) -> None:
    reasoning = format in SECTIONS and not required
    outputs = walker(format, tool_choice="required" if required else "auto", text=not required, reasoning=reasoning)
    rng, pieces = np.random.default_rng(5), random.Random(7)
    for _ in range(SAMPLES):
        text = outputs.output(rng, 320)
        expected = PARSERS[format](text.decode())
        found = read(ReplyReader(FORMATS[format], SCHEMAS), text, pieces)
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == expected.calls, text
        assert found.content == ("" if not expected.text else found.content)
        assert found.content.strip() == expected.text.strip(), text
        assert found.reasoning.strip() == (expected.reasoning or "").strip(), text


def test_arguments_are_passed_on_as_they_were_written() -> None:
    arguments = '{"a": 1e400, "b": 0.10000000000000000001}'
    text = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'
    assert read(ReplyReader(FORMATS["hermes"], SCHEMAS), text.encode(), random.Random(0)).calls[0].arguments == arguments


def test_answers_may_hold_what_looks_like_a_call() -> None:
    answer = json.dumps({"text": "<tool_call>\n{}\n</tool_call>"})
    for reader, content in ((ReplyReader(FORMATS["hermes"], {}, answers=True), answer),
                            (ReplyReader(None, {}), answer), (ReplyReader(FORMATS["hermes"], {}, calls=False), answer)):
        found = read(reader, answer.encode(), random.Random(1))
        assert found.content == content and not found.calls
    thought = f"<think>\nhm</think>\n\n{answer}"
    found = read(ReplyReader(FORMATS["hermes"], {}, answers=True), thought.encode(), random.Random(2))
    assert (found.reasoning, found.content) == ("hm", answer)
    opened = read(ReplyReader(FORMATS["hermes"], {}, answers=True, opened=True), b"hm</think>\n\n" + answer.encode(), random.Random(3))
    assert (opened.reasoning, opened.content) == ("hm", answer)


@pytest.mark.parametrize("space", ["", " ", "\n\t "])
def test_bare_calls_and_answers_are_told_apart_by_their_beginning(space: str) -> None:
    def spaced(text: str) -> str:
        return text.replace("~", space)

    calls = ['~{~"name"~:~"add"~,~"parameters"~:~{"a": 1}~}', '{"name":~"note",~"parameters":~{}}']
    answers = ['{"name":~"ad d",~"parameters":~{"a": 1}}', '{"name":~"adds",~"parameters":~{}}', '{"name":~"add"}',
               '{"name":~"add",~"x":~1}', "{}", "{", '{"name":~"add",~"parameters"~', "hello {}", '~["name"]',
               '{"parameters":~{},~"name":~"add"}']
    for text, called in ((spaced(text), group is calls) for group in (calls, answers) for text in group):
        for seed in range(4):
            found = read(ReplyReader(FORMATS["llama3"], SCHEMAS, answers=True), text.encode(), random.Random(seed))
            assert (len(found.calls), found.content) == ((1, "") if called else (0, text)), text


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="<tool_cal>{}é🙂\n", max_size=60), st.integers(0, 1000))
def test_free_text_that_holds_no_call_is_content_whole(text: str, seed: int) -> None:
    found = read(ReplyReader(FORMATS["hermes"], {}), text.encode(), random.Random(seed))
    if "<tool_call>\n" not in text:
        assert found.content == text and not found.calls


@pytest.mark.parametrize(("schema", "expected"), [
    ({"type": "string"}, True), ({"type": ["string"]}, True), ({"type": ["string", "null"]}, False), ({"const": "a"}, True),
    ({"const": 1}, False),
    ({"enum": ["a", 1]}, False), ({"enum": ["a"]}, True), ({"$ref": "#/$defs/s"}, True), ({"$ref": "#/$defs/loop"}, False), ({}, False),
    (True, False), ({"anyOf": [{"type": "string"}, {"const": "a"}]}, True), ({"anyOf": [{"type": "string"}, {}]}, False),
    ({"allOf": [{"maxLength": 3}, {"type": "string"}]}, True), ({"$ref": "#/$defs/none"}, False),
])
def test_what_admits_only_strings(schema: object, expected: bool) -> None:
    root = {"$defs": {"s": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert only_strings(schema, root) == expected


# ---- stop strings


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="ab", max_size=30), strings=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
       cuts=st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_stop_strings_cut_where_the_first_of_them_is_complete(text: str, strings: list[str], cuts: list[int]) -> None:
    stops, shown, met, place, turn = StopStrings([string.encode() for string in strings]), b"", False, 0, 0
    while place < len(text) and not met:
        size = cuts[turn % len(cuts)]
        piece, met = stops.feed(text[place:place + size].encode())
        shown += piece
        place, turn = place + size, turn + 1
    if not met:
        shown += stops.rest()
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(string) for string in strings)]
    assert met == bool(ends)
    if not met:
        assert shown == text.encode()
    else:  # a piece may complete several at once: then the one that begins first counts
        seen = text[:place]
        assert shown.decode() == seen[:min(seen.find(string) for string in strings if string in seen)]


def test_text_is_held_back_only_while_it_could_become_a_stop_string() -> None:
    stops = StopStrings([b"\n\n", b"END"])
    assert stops.feed(b"one E") == (b"one ", False)
    assert stops.feed(b"x\n") == (b"Ex", False)
    assert stops.feed(b"\nrest") == (b"", True)


# ---- guards


@settings(max_examples=100, deadline=None)
@given(head=st.lists(st.integers(0, 3), max_size=20), unit=st.lists(st.integers(0, 3), min_size=1, max_size=16), times=st.integers(1, 4))
def test_repeated_tails(head: list[int], unit: list[int], times: int) -> None:
    tokens = head + unit * times
    expected = next((size for size in TAILS if len(tokens) >= 3 * size
                     and tokens[-size:] == tokens[-2 * size:-size] == tokens[-3 * size:-2 * size]), 0)
    assert repeated_tail(tokens) == expected


def test_a_watch_sees_repeated_calls_and_too_many() -> None:
    call = b'<tool_call>\n{"name": "f", "arguments": {"a": %d}}\n</tool_call>'
    watch = Watch(Guards("hermes", 3, repeats=True), FORMATS["hermes"])
    assert watch.sees([1], b"I will.\n" + call % 1) == ""
    assert watch.sees([1], b"\n" + call % 2) == ""
    assert watch.sees([1], b"\n" + call % 1) == "repeated_call"
    watch = Watch(Guards("hermes", 2), FORMATS["hermes"])
    assert [watch.sees([1], call % 1), watch.sees([1], b"\n" + call % 2)] == ["", "calls"]


# ---- wide passes


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.floats(0, 5), st.floats(0.01, 2))
def test_the_width_that_pays(forced: list[int], roll: float, slope: float) -> None:
    def worth(width: int) -> float:
        padded = any(1 + count < width for count in forced)
        return sum(min(1 + count, width) for count in forced) / (1 + slope * (len(forced) * width - 1) + roll * padded)

    width = paying_width(forced, roll, slope)
    assert 1 <= width <= min(1 + max(forced), WIDEST)
    assert worth(width) >= max(worth(other) for other in range(1, min(1 + max(forced), WIDEST) + 1)) - 1e-9
