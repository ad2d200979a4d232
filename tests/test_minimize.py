"""Minimisation: the same language, truly minimal, canonical, and fast on the long chains that broke plain Moore rounds."""

from __future__ import annotations

import itertools
import re
import time

import interegular
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.dfa import Dfa
from stcc.compiler.minimize import merge_columns, minimize_dfa, refine, reverse_postorder

LETTERS = b"abc"


@st.composite
def dfas(draw: st.DrawFn) -> Dfa:
    states = draw(st.integers(1, 12))
    byte_class = np.zeros(256, np.uint8)
    byte_class[list(LETTERS)] = [1, 2, 3]
    table = np.full((states, 4), -1, np.int32)
    table[:, 1:] = draw(st.lists(st.lists(st.integers(-1, states - 1), min_size=3, max_size=3), min_size=states, max_size=states))
    accept = draw(st.lists(st.sampled_from([-1, -1, 0, 1]), min_size=states, max_size=states))
    return Dfa(byte_class, table, np.array(accept, np.int32), draw(st.integers(0, states - 1)))


def moore(table: list[list[int]], colours: list[int]) -> list[int]:
    """Plain Moore rounds, one state at a time."""
    block = dict(enumerate(colours))
    while True:
        signatures = {state: (block[state], tuple(block.get(target) for target in row)) for state, row in enumerate(table)}
        numbers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures.values()))}
        finer = {state: numbers[signature] for state, signature in signatures.items()}
        if len(numbers) == len(set(block.values())):
            return list(finer.values())
        block = finer


def partition(block: list[int]) -> set[frozenset[int]]:
    return {frozenset(state for state, number in enumerate(block) if number == wanted) for wanted in set(block)}


def words(longest: int) -> list[bytes]:
    return [bytes(letters) for length in range(longest + 1) for letters in itertools.product(LETTERS, repeat=length)]


@settings(max_examples=150, deadline=None)
@given(dfas())
def test_the_language_stays(dfa: Dfa) -> None:
    least = minimize_dfa(dfa)
    assert [least.match(word) for word in words(5)] == [dfa.match(word) for word in words(5)]


@settings(max_examples=150, deadline=None)
@given(dfas())
def test_nothing_is_left_to_merge_or_trim(dfa: Dfa) -> None:
    least = minimize_dfa(dfa)
    assert len(set(moore(least.table.tolist(), least.accept.tolist()))) == least.states
    alive = {state for state in range(least.states) if least.accept[state] >= 0}
    for _ in range(least.states):
        alive |= {state for state in range(least.states) if alive & set(least.table[state].tolist())}
    assert len(alive) == least.states or (least.states == 1 and not (least.table >= 0).any())
    assert len({least.table[:, column].tobytes() for column in range(least.classes)}) == least.classes


@settings(max_examples=100, deadline=None)
@given(dfas(), st.randoms(use_true_random=False))
def test_equal_languages_give_equal_arrays(dfa: Dfa, random: object) -> None:
    order = list(range(dfa.states))
    random.shuffle(order)  # type: ignore[attr-defined]
    place = np.append(np.argsort(order), -1).astype(np.int32)
    shuffled = Dfa(dfa.byte_class, place[dfa.table[order]], dfa.accept[order], int(place[dfa.start]))
    first, second = minimize_dfa(dfa), minimize_dfa(shuffled)
    assert np.array_equal(first.table, second.table) and np.array_equal(first.accept, second.accept)
    assert np.array_equal(first.byte_class, second.byte_class)


@settings(max_examples=150, deadline=None)
@given(dfas())
def test_the_partition_is_the_coarsest_stable_one(dfa: Dfa) -> None:
    assert partition(refine(dfa.table, dfa.accept).tolist()) == partition(moore(dfa.table.tolist(), dfa.accept.tolist()))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 39), st.booleans())
def test_long_thin_graphs_reach_the_worklist_and_stay_exact(length: int, copies: int, odd: int, loop: bool) -> None:
    """Copies of a chain whose rounds gain one state each, one state marked: the hashed rounds give up, the worklist must finish."""
    rows = [[-1, -1] for _ in range(length * copies)]
    for copy in range(copies):
        for step in range(length - 1):
            rows[copy * length + step] = [copy * length + step + 1, -1]
        rows[copy * length + length - 1] = [copy * length if loop else -1, ((copy + 1) % copies) * length]
    colours = [0] * len(rows)
    colours[odd % len(rows)] = 1
    assert partition(refine(np.array(rows, np.int32), np.array(colours, np.int32)).tolist()) == partition(moore(rows, colours))


def test_two_chains_of_different_length_are_told_apart() -> None:
    """a^400 and b a^399 b: every state differs from every other only at its far end."""
    rows = [[state + 1, -1] for state in range(400)] + [[-1, -1]]
    block = refine(np.array(rows, np.int32), np.zeros(401, np.int32))
    assert len(set(block.tolist())) == 401


def test_columns_merge_by_first_byte() -> None:
    byte_class = np.zeros(256, np.uint8)
    byte_class[[97, 98, 99]] = [2, 1, 2]
    table, merged = merge_columns(np.array([[-1, 5, 5, 7]], np.int32), byte_class)
    assert table.tolist() == [[-1, 5]] and merged[[0, 97, 98, 99]].tolist() == [0, 1, 1, 1]


def test_reverse_postorder_keeps_branches_together() -> None:
    assert reverse_postorder([[1, 3], [2], [5], [4], [5], []], 0).tolist() == [0, 1, 2, 3, 4, 5]
    assert reverse_postorder([[1], [0, 2], [-1], [0]], 0).tolist() == [0, 1, 2]


@pytest.mark.parametrize("pattern", ["(a|b)*abb", "(ab|a)(bc|c)?", "(a|ab|abc)*", "[ab]{3,7}c", "((a|b)(a|b))*", "a(b|c)*|b(b|c)*"])
def test_interegular_needs_as_many_states(pattern: str) -> None:
    fsm = interegular.parse_pattern(pattern).to_fsm()
    symbols = [fsm.alphabet[letter] for letter in "abc"]
    rows = [[fsm.map.get(state, {}).get(symbol, -1) for symbol in symbols] for state in range(len(fsm.states))]
    byte_class = np.full(256, 3, np.uint8)
    byte_class[list(LETTERS)] = [0, 1, 2]
    accept = np.array([0 if state in fsm.finals else -1 for state in range(len(rows))], np.int32)
    least = minimize_dfa(Dfa(byte_class, np.array([[*row, -1] for row in rows], np.int32), accept, fsm.initial))
    reduced = fsm.reduce()
    assert least.states == sum(reduced.islive(state) for state in reduced.states)
    assert all((least.match(word) == 0) == (re.fullmatch(pattern.encode(), word) is not None) for word in words(6))


def chain(length: int) -> Dfa:
    table = np.full((length, 2), -1, np.int32)
    table[:-1, 1] = np.arange(1, length)
    return Dfa((np.arange(256) == 97).astype(np.uint8), table, np.where(np.arange(length) == length - 1, 0, -1).astype(np.int32))


def bounded_strings(strings: int, longest: int, loop: bool) -> Dfa:
    """Quoted strings one after the other, each of at most ``longest`` characters of one to four bytes."""
    byte_class = np.zeros(256, np.uint8)
    for low, high, number in ((32, 127, 1), (128, 191, 2), (194, 223, 3), (224, 239, 4), (240, 244, 5), (34, 34, 6)):
        byte_class[low:high + 1] = number
    rows: list[list[int]] = []

    def state() -> int:
        rows.append([-1] * 7)
        return len(rows) - 1

    start = last = state()
    for _ in range(strings):
        current, end = state(), state()
        rows[last][6] = current
        for _ in range(longest):
            following, two, three, four = state(), state(), state(), state()
            rows[current] = [-1, following, -1, two, three, four, end]
            rows[two][2], rows[three][2], rows[four][2] = following, two, three
            current = following
        rows[current][6] = end
        last = end
    table = np.array(rows, np.int32)
    if loop:
        table[last] = table[start]
    return Dfa(byte_class, table, np.where(np.arange(len(rows)) == last, 0, -1).astype(np.int32), start)


LONG = {"chain": chain(5000), "strings": bounded_strings(12, 112, False), "loop": bounded_strings(12, 112, True)}


@pytest.mark.parametrize("dfa", LONG.values(), ids=LONG)
def test_chains_of_five_thousand_states_take_no_time(dfa: Dfa) -> None:
    started = time.perf_counter()
    least = minimize_dfa(dfa)
    assert least.states == dfa.states >= 5000
    assert time.perf_counter() - started < 1.0  # 0.05 s where it was measured; plain rounds took 14 s
