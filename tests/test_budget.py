"""Budgets (Theorem 21) against brute force, with adversarial choices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from binding_cases import GRAMMARS, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_cases import Oracle, bound, configuration_of, nasty

from stcc.compiler.stepping import TERMINATED, Configuration
from stcc.formats.binding import UNREACHABLE
from stcc.formats.machine import Machine
from stcc.formats.vocabulary import Vocabulary
from stcc.runtime import BudgetTooSmall, Grammar

_grammars: dict[str, Grammar] = {}


def grammar_of(name: str) -> Grammar:
    if name not in _grammars:
        _grammars[name] = nasty(name)
    return _grammars[name]


def check_budget(grammar: Grammar, rng: random.Random, budget: int, brute: bool) -> None:
    """Decode with random choices until the budget is used or nothing but stopping is left: the output must be complete.

    With ``brute``, every mask must hold exactly the tokens from which brute force finds an ending that fits.
    """
    oracle, matcher = Oracle(grammar.machine, grammar.vocabulary), grammar.matcher(max_tokens=budget)
    stops = set(grammar.vocabulary.stop_token_ids)
    left = budget
    while True:
        here = configuration_of(matcher)
        allowed = matcher.allowed_tokens().tolist()
        if brute:
            fits = [token for token, after in oracle.after(here).items() if left > 0 and oracle.fewest(after, left - 1) < left]
            assert allowed == sorted([*fits, *(stops if matcher.is_accepting() else ())])
        refused = set(range(grammar.vocabulary.size)) - set(allowed)
        assert not any(matcher.accept_token(token) for token in rng.sample(sorted(refused), min(20, len(refused))))
        choices = [token for token in allowed if token not in stops]
        assert matcher.tokens_left == left and left >= 0
        if not choices:
            assert matcher.is_accepting()
            return
        assert matcher.accept_token(rng.choice(choices))
        left -= 1


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_feasible_budget_ends_valid(name: str) -> None:
    grammar, rng = grammar_of(name), random.Random(name)
    need = grammar.need()
    for budget in [*range(need, need + 12), need + 30, need + 60]:
        for _ in range(3):
            check_budget(grammar, rng, budget, brute=False)
    for budget in range(need):
        with pytest.raises(BudgetTooSmall, match=f"needs {need}"):
            grammar.matcher(max_tokens=budget)


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_hold_exactly_the_tokens_that_can_still_finish(name: str) -> None:
    grammar, rng = grammar_of(name), random.Random(name)
    need = grammar.need()
    assert need == Oracle(grammar.machine, grammar.vocabulary).fewest(Configuration(grammar.machine.start), 12)
    for budget in (need, need + 1, need + 2):
        check_budget(grammar, rng, budget, brute=True)


@settings(max_examples=120, deadline=None)
@given(random_machines(), random_vocabularies(), st.randoms(use_true_random=False))
def test_random_machines(machine: Machine, vocabulary: Vocabulary, rng: random.Random) -> None:
    grammar = bound(machine, vocabulary)
    need = grammar.need()
    found = Oracle(machine, vocabulary).fewest(Configuration(grammar.start[0]), 4)
    assert need == found if found <= 4 else need > 4
    if need < UNREACHABLE:
        for extra in range(3):
            check_budget(grammar, rng, need + extra, brute=need + extra <= 5)


@settings(max_examples=100, deadline=None)
@given(random_machines(), random_vocabularies(), st.randoms(use_true_random=False))
def test_needs_along_the_stack(machine: Machine, vocabulary: Vocabulary, rng: random.Random) -> None:
    """``need`` on stacks that no walk would build, including ones under which nothing finishes."""
    grammar, oracle = bound(machine, vocabulary), Oracle(machine, vocabulary)
    for _ in range(6):
        stack = tuple(rng.randrange(machine.sites) for _ in range(rng.randrange(4))) if machine.sites else ()
        state = rng.choice(np.flatnonzero([grammar.stacks.eager_exit(state) < 0 for state in range(machine.states)]).tolist())
        need = grammar.needs.need(state, grammar.stacks.push_all(grammar.stacks.bottom, stack))
        found = oracle.fewest(Configuration(state, stack), 3)
        assert need == found if found <= 3 else need > 3


def test_masks_with_room_are_the_plain_ones() -> None:
    grammar = grammar_of("tree")
    free, bounded = grammar.matcher(), grammar.matcher(max_tokens=10_000)
    for text in (b'{"n":"', b'ab","c":[', b'{"n":"', b'"', b',"c":[]}'):
        assert free.accept_bytes(text) and bounded.accept_bytes(text)
        assert free.allowed_tokens().tolist() == bounded.allowed_tokens().tolist()


def test_forced_tokens_stop_where_the_ending_would_not_fit() -> None:
    plain = grammar_of("tree")
    vocabulary, machine = plain.vocabulary, plain.machine
    ids = {vocabulary.token(token): token for token in reversed(range(vocabulary.size))}
    planned = [ids[bytes([byte])] for byte in b'{"n":"']  # six tokens where one would do
    offsets = np.zeros(machine.states + 1, np.int32)
    offsets[machine.start + 1:] = len(planned)
    grammar = bound(machine, vocabulary, plan_offsets=offsets, plan_tokens=np.array(planned, np.int32))
    need = grammar.need()
    assert grammar.matcher(max_tokens=need + 100).forced_tokens() == planned
    for budget in range(need, need + 7):
        matcher = grammar.matcher(max_tokens=budget)
        forced = matcher.forced_tokens()
        assert forced == planned[: len(forced)] and all(matcher.accept_token(token) for token in forced)
        assert matcher.need() <= budget - len(forced)
        if len(forced) < len(planned):
            assert not matcher.accept_token(planned[len(forced)])
    assert len(grammar.matcher(max_tokens=need).forced_tokens()) < len(planned)


def test_bytes_are_refused_when_their_ending_would_not_fit() -> None:
    grammar = grammar_of("tree")
    matcher = grammar.matcher(max_tokens=grammar.need())
    assert not matcher.accept_bytes(b'{"n":"","c":[' * 30) and matcher.steps == 0
    assert matcher.accept_bytes(b'{"n":"') and matcher.tokens_left == grammar.need()


def test_rollback_gives_tokens_back() -> None:
    grammar = grammar_of("any JSON")
    matcher = grammar.matcher(max_tokens=5)
    first = int(matcher.allowed_tokens()[0])
    assert matcher.accept_token(first) and matcher.tokens_left == 4
    matcher.rollback(1)
    assert matcher.tokens_left == 5
    assert matcher.accept_token(first)
    matcher.reset()
    assert matcher.tokens_left == 5 and matcher.state != TERMINATED
