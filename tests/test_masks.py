"""Masks against stepping every token's bytes, at every reachable configuration."""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import pytest
from binding_cases import GRAMMARS, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_cases import Oracle, bound, configuration_of, nasty

import stcc.runtime.action_tokens as action_tokens_module
import stcc.runtime.token_sets as token_sets_module
from stcc.formats.machine import Machine
from stcc.formats.vocabulary import Vocabulary
from stcc.runtime import BitmaskError, Grammar, VocabularyRequired, allocate_token_bitmask
from stcc.runtime.token_sets import TokenSets, expand


def bits(row: np.ndarray) -> list[int]:
    """Ids whose bit is set, computed one by one."""
    return [word * 32 + bit for word, value in enumerate(row.tolist()) for bit in range(32) if value >> bit & 1]


def walk(grammar: Grammar, rng: random.Random, steps: int) -> int:
    """Compare the mask along one random walk; how many masks were compared."""
    oracle, matcher = Oracle(grammar.machine, grammar.vocabulary), grammar.matcher()
    bitmask = np.full((3, (grammar.vocabulary.size + 31) // 32), -1, np.int32)
    for compared in range(steps):
        expected = oracle.allowed(configuration_of(matcher))
        restricts = matcher.fill_next_token_bitmask(bitmask, 1)
        assert bits(bitmask[1]) == expected == matcher.allowed_tokens().tolist()
        assert restricts == (len(expected) < grammar.vocabulary.size)
        assert bits(bitmask[0]) == bits(bitmask[2]) == list(range(bitmask.shape[1] * 32))
        choices = [token for token in expected if token not in grammar.vocabulary.stop_token_ids]
        if not choices:
            return compared + 1
        assert matcher.accept_token(rng.choice(choices))
    return steps


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_along_random_outputs(name: str) -> None:
    grammar, rng = nasty(name), random.Random(name)
    assert sum(walk(grammar, rng, 30) for _ in range(12)) > 40


@settings(max_examples=80, deadline=None)
@given(random_machines(), random_vocabularies())
def test_masks_of_random_machines(machine: Machine, vocabulary: Vocabulary) -> None:
    grammar, rng = bound(machine, vocabulary), random.Random(0)
    for _ in range(4):
        walk(grammar, rng, 8)


@settings(max_examples=30, deadline=None)
@given(random_machines(), random_vocabularies())
def test_packed_and_scattered_actions_give_the_same_rows(machine: Machine, vocabulary: Vocabulary) -> None:
    before = action_tokens_module.LARGE_ACTION
    action_tokens_module.LARGE_ACTION = 2  # almost every action keeps a packed row
    try:
        walk(bound(machine, vocabulary), random.Random(1), 8)
    finally:
        action_tokens_module.LARGE_ACTION = before


def test_rows_are_shared_and_bounded() -> None:
    grammar = nasty("any JSON")
    grammar.masks._most_rows = 16
    rng = random.Random(5)
    for _ in range(30):
        walk(grammar, rng, 20)
        assert len(grammar.masks.rows) <= 16


def test_states_that_admit_the_same_actions_share_a_row() -> None:
    grammar = nasty("tree")
    for opened in (b'{"n":"', b'{"n":"","c":[{"n":"', b'{"n":"a","c":[{"n":"","c":[{"n":"x'):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(opened)
        matcher.allowed_tokens()
    assert len(grammar.masks.rows) < 3


def test_a_wider_bitmask_is_cleared_beyond_the_vocabulary() -> None:
    grammar = nasty("closed form")
    matcher, words = grammar.matcher(), (grammar.vocabulary.size + 31) // 32
    wide = np.full((2, words + 5), -1, np.int32)
    matcher.fill_next_token_bitmask(wide, -1)
    assert bits(wide[1]) == matcher.allowed_tokens().tolist() and (wide[0] == -1).all()
    single = np.full(words, -1, np.int32)
    matcher.fill_next_token_bitmask(single)
    assert bits(single) == matcher.allowed_tokens().tolist()


@pytest.mark.parametrize("bitmask, index", [
    (np.zeros((1, 3), np.int32), 0), (np.zeros((1, 99), np.int64), 0), (np.zeros((1, 99), np.uint32), 0),
    (np.zeros((2, 99), np.int32), 2), (np.zeros((1, 1, 99), np.int32), 0), ([0] * 99, 0),
])
def test_bitmasks_that_do_not_fit(bitmask: object, index: int) -> None:
    with pytest.raises(BitmaskError):
        nasty("closed form").matcher().fill_next_token_bitmask(bitmask, index)


def test_an_index_past_the_last_row_of_an_exact_bitmask() -> None:
    grammar = nasty("closed form")
    with pytest.raises(BitmaskError, match="no row 4"):
        grammar.matcher().fill_next_token_bitmask(allocate_token_bitmask(4, grammar.vocabulary.size), 4)


def test_without_a_vocabulary_masks_are_refused_and_bytes_work() -> None:
    matcher = Grammar(nasty("closed form").machine, name="form").matcher()
    with pytest.raises(VocabularyRequired, match="form"):
        matcher.fill_next_token_bitmask(np.zeros((1, 4), np.int32))
    assert matcher.accept_bytes(b'{"n":"') and not matcher.accept_bytes(b"\n")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 500), unique=True).map(sorted), max_size=12))
def test_rows_from_references_hold_exactly_the_tokens_between_the_bounds(sets_of_bounds: list[list[int]]) -> None:
    tokens = [bytes([97 + number * 7 % 26, 97 + number // 26]) for number in range(500)]
    vocabulary = Vocabulary.from_tokens(tokens, [])
    before, token_sets_module.MANY_FLIPS = token_sets_module.MANY_FLIPS, 20  # so that references come and go
    try:
        sets = TokenSets(vocabulary)
        for bounds in sets_of_bounds:
            pairs = list(zip(bounds[::2], bounds[1::2], strict=False))
            ranks = [rank for low, high in pairs for rank in range(low, high)]
            row = sets.row(np.array([bound for pair in pairs for bound in pair], np.int32))
            assert bits(row) == sorted(vocabulary.byte_order[ranks].tolist())
            assert not row.flags.writeable and len(sets._kept) <= token_sets_module.REFERENCES
    finally:
        token_sets_module.MANY_FLIPS = before


def test_tokens_by_length_and_ranges() -> None:
    sets = TokenSets(Vocabulary.from_tokens([bytes([97 + number % 26, 97 + number // 26]) for number in range(200)], []))
    assert bits(sets.at_least(2)) == list(range(200)) and bits(sets.at_least(3)) == []
    assert expand(np.array([3, 50]), np.array([2, 3])).tolist() == [3, 4, 50, 51, 52]
    assert expand(np.array([], np.int32), np.array([], np.int32)).tolist() == []


def test_threads_that_share_a_grammar_see_the_same_masks() -> None:
    shared = nasty("any JSON with blanks")
    shared.masks._most_rows = 16  # so that rows are forgotten while others are made
    outcomes: list[list[list[int]]] = []

    def decode(seed: int) -> None:
        rng, matcher, seen = random.Random(seed), shared.matcher(), []
        for _ in range(60):
            seen.append(matcher.allowed_tokens().tolist())
            choices = [token for token in seen[-1] if token not in shared.vocabulary.stop_token_ids]
            if not choices or not matcher.accept_token(rng.choice(choices)):
                break
        outcomes.append(seen)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=decode, args=(number % 3,)) for number in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(outcomes) == 9 and len({repr(seen) for seen in outcomes}) == 3


@settings(max_examples=80, deadline=None)
@given(random_machines(), random_vocabularies(), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_joined_actions_whatever_was_joined_before(machine: Machine, vocabulary: Vocabulary, large: int, bases: int, prepared: bool,
                                                   seed: int) -> None:
    """Sets of actions with large ones among them: from bases, from prepared rows and from the runs, all the same tokens."""
    before = action_tokens_module.LARGE_ACTION, action_tokens_module.MOST_BASES, action_tokens_module.FEW_ACTIONS
    action_tokens_module.LARGE_ACTION, action_tokens_module.MOST_BASES, action_tokens_module.FEW_ACTIONS = large, bases, seed % 3
    try:
        runs, rng = bound(machine, vocabulary).masks._runs, np.random.default_rng(seed)
        tokens = action_tokens_module.ActionTokens(runs)
        if prepared:
            tokens.prepare()
        for _ in range(12):
            actions = 1 + np.flatnonzero(rng.random(max(tokens.actions - 1, 0)) < rng.random()).astype(np.int32)
            row = tokens.union(actions)
            assert row.tolist() == runs.union(actions).tolist()
            assert tokens.union(actions).tolist() == row.tolist()
    finally:
        action_tokens_module.LARGE_ACTION, action_tokens_module.MOST_BASES, action_tokens_module.FEW_ACTIONS = before
