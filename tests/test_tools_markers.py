"""Text that contains no marker, against brute force and against Proposition 3's expression; values that hold no end marker."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import accepts, function

from stcc.compiler import compile_tools
from stcc.compiler.frontends.tools.markers import endings_cut, not_containing

SETS = [("</parameter>",), ("<tool_call>", "<function="), ("<a>", "<ab", "<b"), ("<|end|>", "<|call|>", "<|channel|>"), ("aa",),
        ("abab", "ba"), ("<<",), ("｜é",)]


def expression(markers: tuple[str, ...]) -> str:
    """Proposition 3 as it is printed, for markers that start with ``<`` and hold no other."""
    rest = [marker[1:] for marker in markers]
    nodes = {tail[:length] for tail in rest for length in range(len(tail) + 1)}
    kept = sorted(node for node in nodes if not any(node.startswith(tail) for tail in rest))
    parts = []
    for node in kept:
        children = sorted({tail[len(node)] for tail in rest if tail.startswith(node) and len(tail) > len(node)})
        parts += [f"{re.escape(node)}[^<{re.escape(''.join(children))}][^<]*", re.escape(node)]
    return f"[^<]*(?:<(?:{'|'.join(parts)}))*"


@pytest.mark.parametrize("markers", SETS)
def test_against_brute_force(markers: tuple[str, ...]) -> None:
    dfa = not_containing(markers)
    alphabet = "".join(dict.fromkeys("".join(markers)))[:4] + "x"
    texts = ["".join(letters) for length in range(7) for letters in itertools.product(alphabet[:5], repeat=length)]
    rng = random.Random(3)
    pieces = [*markers, *(marker[:cut] for marker in markers for cut in range(1, len(marker))), "x", "é", "<", " "]
    texts += ["".join(rng.choices(pieces, k=rng.randint(1, 6))) for _ in range(2000)]
    for text in texts:
        assert (dfa.match(text.encode()) >= 0) == (not any(marker in text for marker in markers)), text


@pytest.mark.parametrize("markers", [markers for markers in SETS if all(re.fullmatch("<[^<]+", marker) for marker in markers)])
def test_against_the_expression_of_the_proposition(markers: tuple[str, ...]) -> None:
    dfa, pattern = not_containing(markers), re.compile(expression(markers))
    rng = random.Random(4)
    pieces = [*markers, *(marker[:cut] for marker in markers for cut in range(1, len(marker))), "x", "<"]
    for _ in range(1500):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 6)))
        assert (dfa.match(text.encode()) >= 0) == (pattern.fullmatch(text) is not None), text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=4), st.text("ab<é", max_size=12))
def test_any_markers(markers: list[str], text: str) -> None:
    assert (not_containing(markers).match(text.encode()) >= 0) == (not any(marker in text for marker in markers))


def test_bytes_that_are_no_text_are_refused() -> None:
    assert not_containing(("<a",)).match(b"\xff") < 0
    assert not_containing(("<a",)).match("é".encode()[:1]) < 0


@pytest.mark.parametrize("marker", ["", "\ud800"])
def test_markers_that_cannot_be_kept_out(marker: str) -> None:
    with pytest.raises(ValueError, match="cannot be kept out"):
        not_containing((marker,))


def test_cut_endings() -> None:
    assert endings_cut(("</a>", "</ab")) == ("</a",)


# ---- values

SAY = [function("say", {"text": {"type": "string"}, "note": {"type": ["string", "null"]}, "list": {"type": "array"}, "free": {}},
                ["text"], additionalProperties=True)]


def said(text: str) -> str:
    return f"<tool_call>\n<function=say>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(("text", "taken"), [
    ("", True), ("two\nlines\n", True), ("a < b </ param", True), ("<parameter=x>", True), ('"quoted" \\ {', True), ("12", True),
    ("</parameter>", False), ("</parameter", False), ("x</parameter\n", False), ("</function>", False), ("</tool_call", False),
    ("<</parameter", False), ("</para</parameter>", False), ("\x00\x1f", True), ("tab\tcr\r", True),
])
def test_tagged_text_swallows_no_end_marker(text: str, taken: bool) -> None:
    assert accepts(compile_tools(SAY, format="qwen3_coder", text=False), said(text)) == taken


@pytest.mark.parametrize(("raw", "taken"), [
    ("null", True), ("nul", True), ("nulls", True), ("12", False), ("-1.5e3", False), ("true", False), (" false ", False), ("[1]", False),
    (' {"a"', False), ('"x"', False), ("1.2.3", True), ("NaN", False), ("- 1", True), ("", True),
])
def test_a_value_of_several_types_is_read_in_one_way(raw: str, taken: bool) -> None:
    reply = said("x").replace("</function>", f"<parameter=note>\n{raw}\n</parameter>\n</function>")
    assert accepts(compile_tools(SAY, format="qwen3_coder", text=False), reply) == taken


@pytest.mark.parametrize("format", ["qwen3_coder", "hermes", "harmony", "glm4"])
def test_no_string_inside_a_value_holds_an_end_marker(format: str) -> None:
    artifact = compile_tools(SAY, format=format, text=False)
    mark = {"harmony": "<|call|>", "glm4": "</arg_value>"}.get(format, "</tool_call>")
    replies = {
        "qwen3_coder": said("x").replace("</function>", "<parameter=list>\n[{}]\n</parameter>\n</function>"),
        "hermes": '<tool_call>\n{"name": "say", "arguments": {"text": "x", "list": [{}]}}\n</tool_call>',
        "harmony": '<|channel|>commentary to=functions.say <|constrain|>json<|message|>{"text": "x", "list": [{}]}<|call|>',
        "glm4": "<tool_call>say\n<arg_key>text</arg_key>\n<arg_value>x</arg_value>\n<arg_key>list</arg_key>\n<arg_value>[{}]</arg_value>\n"
                "</tool_call>",
    }
    for inside, taken in (('"a"', True), ('{"k": 1}', True), (f'"{mark}"', False), (f'"{mark[:-1]}"', False),
                          (f'{{"{mark}": 1}}', False), (f'{{"a": {{"b": "x{mark}"}}}}', False)):
        assert accepts(artifact, replies[format].replace("[{}]", f"[{inside}]")) == taken, inside
    begins = mark[:2] if format == "harmony" else mark[:-2]  # of a special token no value holds even the third character
    assert accepts(artifact, replies[format].replace("[{}]", f'["{begins}"]'))


def test_a_long_bound_counts_beside_the_marker() -> None:
    artifact = compile_tools([function("say", {"text": {"type": "string", "maxLength": 300}})], format="hermes", text=False)
    reply = '<tool_call>\n{"name": "say", "arguments": {"text": "%s"}}\n</tool_call>'
    assert accepts(artifact, reply % ("é" * 300)) and not accepts(artifact, reply % ("é" * 301))
    assert accepts(artifact, reply % ("a" * 290 + "</td>")) and not accepts(artifact, reply % ("a" * 280 + "</tool_call"))
    assert not accepts(artifact, reply % "</tool"), "what is counted holds not even the beginning of a marker"
    assert artifact.machine.states < 5000
