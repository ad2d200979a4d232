"""The algebra and the JSON escape step against brute force over short words, and against the ``json`` module."""

from __future__ import annotations

import itertools
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.escape import json_escape
from stcc.compiler.frontends.regex import compile_pattern
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.options import Deadline

LETTERS = b"ab\x00"
WORDS = [bytes(letters) for length in range(5) for letters in itertools.product(LETTERS, repeat=length)]


@st.composite
def dfas(draw: st.DrawFn, labels: int = 2) -> Dfa:
    """Any DFA over two letters and "every other byte", neither trim nor minimal."""
    states = draw(st.integers(1, 5))
    byte_class = np.zeros(256, np.uint8)
    classes = draw(st.integers(1, 3))
    byte_class[list(b"ab")] = draw(st.sampled_from({1: [(0, 0)], 2: [(0, 1), (1, 0), (1, 1)], 3: [(1, 2), (2, 1)]}[classes]))
    cells = draw(st.lists(st.integers(-1, states - 1), min_size=classes * states, max_size=classes * states))
    accept = draw(st.lists(st.integers(-1, labels - 1), min_size=states, max_size=states))
    return Dfa(byte_class, np.array(cells, np.int32).reshape(states, classes), np.array(accept, np.int32), draw(st.integers(0, states - 1)))


def is_minimal(dfa: Dfa) -> bool:
    least = minimize_dfa(dfa)
    return dfa.states == least.states and dfa.classes == least.classes


@given(dfas(), dfas())
@settings(max_examples=120, deadline=None)
def test_boolean_operations_are_those_of_the_word_sets(left: Dfa, right: Dfa) -> None:
    results = {
        "intersect": (algebra.intersect(left, right), lambda a, b: 0 if a >= 0 and b >= 0 else -1),
        "union": (algebra.union(left, right), lambda a, b: 0 if a >= 0 or b >= 0 else -1),
        "difference": (algebra.difference(left, right), lambda a, b: a if b < 0 else -1),
        "complement": (algebra.complement(left, right), lambda a, b: 0 if a < 0 <= b else -1),
    }
    for name, (found, expected) in results.items():
        assert is_minimal(found), name
        for word in WORDS:
            assert found.match(word) == expected(left.match(word), right.match(word)), (name, word)


@given(st.lists(dfas(), min_size=1, max_size=3), st.one_of(st.none(), dfas(1)), st.lists(st.integers(-1, 2), min_size=27, max_size=27))
@settings(max_examples=100, deadline=None)
def test_products_give_the_label_of_the_label_vector(parts: list[Dfa], universe: Dfa | None, chosen: list[int]) -> None:
    table = dict(zip(itertools.product((-1, 0, 1), repeat=len(parts)), chosen, strict=False))
    calls = []

    def label(vector: tuple[int, ...]) -> int:
        calls.append(vector)
        return table[vector]

    found = algebra.product(parts, label, universe=universe)
    assert len(calls) == len(set(calls)), "one call per distinct vector"
    assert is_minimal(found)
    for word in WORDS:
        inside = universe is None or universe.match(word) >= 0
        assert found.match(word) == (table[tuple(part.match(word) for part in parts)] if inside else -1), word


@given(dfas(), dfas(), dfas())
@settings(max_examples=80, deadline=None)
def test_concatenation_splits_words_every_way(first: Dfa, second: Dfa, third: Dfa) -> None:
    found = algebra.concatenate(first, second, third)
    assert is_minimal(found)
    for word in WORDS:
        labels = [third.match(word[b:]) for a in range(len(word) + 1) for b in range(a, len(word) + 1)
                  if first.match(word[:a]) >= 0 and second.match(word[a:b]) >= 0]
        assert found.match(word) == min((label for label in labels if label >= 0), default=-1), word


@given(st.dictionaries(st.binary(max_size=4), st.integers(0, 3), max_size=8), st.binary(max_size=4))
@settings(max_examples=80, deadline=None)
def test_literals_are_exactly_their_words(words: dict[bytes, int], other: bytes) -> None:
    found = algebra.literals(words)
    assert is_minimal(found)
    for word in [*words, other, *(word[:-1] for word in words), *(word + b"x" for word in words)]:
        assert found.match(word) == words.get(word, -1)


def test_a_word_may_use_every_byte() -> None:
    word = bytes(range(256))
    assert algebra.literal(word).match(word) == 0
    assert algebra.literal(word).match(word[:-1] + b"\0") == -1


@given(dfas(), st.dictionaries(st.integers(0, 1), st.integers(-1, 5)))
@settings(max_examples=60, deadline=None)
def test_relabelling_maps_every_label(dfa: Dfa, labels: dict[int, int]) -> None:
    found = algebra.relabel(dfa, labels)
    for word in WORDS:
        assert found.match(word) == labels.get(dfa.match(word), -1)


@given(dfas(), dfas())
@settings(max_examples=80, deadline=None)
def test_emptiness_equivalence_and_shortest_words(left: Dfa, right: Dfa) -> None:
    # Automata of five states that differ do so on a word of at most nine letters; one that accepts, accepts one of at most four.
    accepted = [word for word in WORDS if left.match(word) >= 0]
    assert algebra.is_empty(left) == (not accepted)
    example = algebra.shortest(left)
    assert (example is None) == (not accepted)
    if example is not None:
        assert left.match(example) >= 0 and len(example) == len(accepted[0])
    apart = algebra.product((left, right), lambda labels: 0 if labels[0] != labels[1] else -1)
    assert algebra.equivalent(left, right) == algebra.is_empty(apart)
    assert algebra.equivalent(left, minimize_dfa(left))


def plain(dfa: Dfa) -> Dfa:
    """The same without its characters, so that operations work on bytes."""
    return Dfa(dfa.byte_class, dfa.table, dfa.accept, dfa.start)


TEXTS = st.one_of(
    st.sampled_from(["^a*$", "é|b", "^.{2}$", "[^a]$", r"\s", "😀", "^[a-é]+$", "^$", "(?!)", "^[^]*$"]).map(compile_pattern),
    st.dictionaries(st.text("aé😀", max_size=2).map(str.encode), st.integers(0, 1), max_size=3).map(algebra.literals),
    st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(1, 3))).map(lambda bounds: algebra.length_between(*bounds)),
)


@given(TEXTS, TEXTS, st.sampled_from(["intersect", "union", "difference", "complement"]))
@settings(max_examples=120, deadline=None)
def test_operations_on_characters_are_those_on_bytes(left: Dfa, right: Dfa, name: str) -> None:
    operation = getattr(algebra, name)
    found = operation(left, right)
    assert is_minimal(found)
    assert algebra.equivalent(found, operation(plain(left), plain(right)))
    assert algebra.equivalent(algebra.intersect(operation(found, right), left), algebra.intersect(operation(plain(found), right), left))


def test_text_with_more_characters_than_byte_classes() -> None:
    words = {chr(0x4E00 + 3 * place).encode(): place % 7 for place in range(300)}
    found = algebra.difference(algebra.literals(words), algebra.literal("一".encode()))
    for word, label in words.items():
        assert found.match(word) == (label if word != "一".encode() else -1)
    assert is_minimal(found)


def test_examples_are_readable() -> None:
    assert algebra.shortest(compile_pattern("^.{3}$")) == b"aaa"
    assert algebra.shortest(algebra.literals({b"aa": 0, b"b": 1}), label=0) == b"aa"
    assert algebra.shortest(algebra.literals({})) is None


@given(st.binary(max_size=6))
@settings(max_examples=200, deadline=None)
def test_utf8_strings_are_what_python_decodes(data: bytes) -> None:
    try:
        data.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    assert (algebra.utf8_strings().match(data) == 0) == valid


def test_every_short_byte_string_is_judged_as_python_does() -> None:
    strings = algebra.utf8_strings()
    for length in (1, 2):
        for data in itertools.product(range(256), repeat=length):
            text = bytes(data)
            assert (strings.match(text) == 0) == (text.decode(errors="ignore").encode() == text), text
    for lead, second in itertools.product((0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5), range(0x7F, 0xC1)):
        text = bytes([lead, second, 0x80, 0x80][:3 if lead < 0xF0 else 4])
        assert (strings.match(text) == 0) == (text.decode(errors="ignore").encode() == text), text


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (2, 4), (3, None), (0, None), (4, 2)])
def test_lengths_count_code_points(low: int, high: int | None) -> None:
    found = algebra.length_between(low, high)
    assert is_minimal(found)
    for length in range(7):
        for text in ("é" * length, "a" * length, "😀" * length, "\u0800" * length):
            assert (found.match(text.encode()) == 0) == (low <= length and (high is None or length <= high))


def test_long_lengths_are_fast() -> None:
    before = time.process_time()
    found = algebra.length_between(0, 10_000, max_states=150_000)
    assert time.process_time() - before < 1
    assert found.match(b"a" * 10_000) == 0 and found.match(b"a" * 10_001) == -1


def test_limits_are_kept() -> None:
    long = algebra.length_between(0, 300)
    with pytest.raises(BudgetError, match="max_states"):
        algebra.intersect(long, compile_pattern("ab"), max_states=100)
    with pytest.raises(BudgetError, match="max_states"):
        algebra.length_between(0, 10_001, max_states=50_000)
    with pytest.raises(BudgetError, match="time_limit"):
        algebra.union(long, compile_pattern("ab"), deadline=Deadline(1e-9))


AWKWARD = st.sampled_from('"\\/\b\t\n\f\r\x00\x01\x1f\x7fabfnrtu01é😀')
TEXT = st.text(st.one_of(AWKWARD, st.characters(exclude_categories=("Cs",))), max_size=5)


def spellings(character: str) -> list[str]:
    """Every spelling that the escape step should allow, written down from its specification."""
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    found = [short[character]] if character in short else []
    if ord(character) < 0x20:
        found += sorted({f"\\u{ord(character):04x}", f"\\u{ord(character):04X}"})
    return found or [character]


@given(st.dictionaries(TEXT, st.integers(0, 2), min_size=1, max_size=5), st.booleans())
@settings(max_examples=120, deadline=None)
def test_exactly_the_specified_spellings_are_accepted(words: dict[str, int], closing: bool) -> None:
    raw = algebra.literals({text.encode(): label for text, label in words.items()})
    spelled = json_escape(raw, closing_quote=closing)
    end = '"' if closing else ""
    for text, label in words.items():
        choices = list(itertools.islice(itertools.product(*(spellings(character) for character in text)), 40))
        for spelling in map("".join, choices):
            assert json.loads(f'"{spelling}"') == text
            assert spelled.match((spelling + end).encode()) == label
        assert spelled.match((json.dumps(text, ensure_ascii=False)[1:-1] + end).encode()) == label
    if closing:
        ends = spelled.accept >= 0
        assert (spelled.table[ends] < 0).all()
    assert minimize_dfa(spelled).states <= spelled.states


EDITS = st.tuples(st.integers(0, 20), st.sampled_from([*'"\\/ubfnrt01aAé\n\x00\x7f', "\\u00", "\\u001F", "\\u0061", "\\/"]))


@given(TEXT, st.lists(EDITS, max_size=3))
@settings(max_examples=200, deadline=None)
def test_whatever_is_accepted_is_json_and_spelled_as_specified(text: str, edits: list[tuple[int, str]]) -> None:
    spelled = json_escape(algebra.utf8_strings(), closing_quote=False)
    candidate = json.dumps(text, ensure_ascii=False)[1:-1]
    for place, inserted in edits:
        candidate = candidate[:place] + inserted + candidate[place:]
    try:
        content = json.loads(f'"{candidate}"')
    except json.JSONDecodeError:
        content = None
    fine = content is not None and any(
        candidate == "".join(choice) for choice in itertools.product(*(spellings(character) for character in content)))
    assert (spelled.match(candidate.encode()) == 0) == fine, candidate


def test_escapes_share_their_states() -> None:
    assert json_escape(algebra.utf8_strings(), closing_quote=True).states <= algebra.utf8_strings().states + 8
    long = algebra.length_between(0, 1000)
    assert json_escape(long, closing_quote=True).states <= long.states + 5 * 1001 + 1
