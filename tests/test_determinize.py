"""Subset construction against direct simulation of the nondeterministic automaton."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.determinize import determinize, determinize_dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.nfa import Nfa, lower
from stcc.compiler.options import Deadline

LETTERS = b"ab"


@st.composite
def automata(draw: st.DrawFn) -> Nfa:
    nodes = draw(st.integers(1, 7))
    node = st.integers(0, nodes - 1)
    byte_class = np.zeros(256, np.uint8)
    byte_class[list(LETTERS)] = [1, 2]
    table = np.full((nodes, 3), -1, np.int32)
    table[:, 1:] = draw(st.lists(st.lists(st.integers(-1, nodes - 1), min_size=2, max_size=2), min_size=nodes, max_size=nodes))
    epsilons = draw(st.lists(st.lists(node, max_size=3), min_size=nodes, max_size=nodes))
    offsets = np.cumsum([0, *map(len, epsilons)]).astype(np.int32)
    accept = np.array(draw(st.lists(st.sampled_from([-1, -1, 0, 1]), min_size=nodes, max_size=nodes)), np.int32)
    return Nfa(byte_class, table, offsets, np.array(sum(epsilons, []), np.int32), accept, (0,))


def simulate(nfa: Nfa, text: bytes) -> int:
    def close(nodes: set[int]) -> set[int]:
        todo = list(nodes)
        while todo:
            node = todo.pop()
            for target in nfa.epsilon_targets[nfa.epsilon_offsets[node]:nfa.epsilon_offsets[node + 1]].tolist():
                if target not in nodes:
                    nodes.add(target)
                    todo.append(target)
        return nodes

    current = close({nfa.starts[0]})
    for byte in text:
        current = close({int(nfa.table[node, nfa.byte_class[byte]]) for node in current} - {-1})
    return min((int(nfa.accept[node]) for node in current if nfa.accept[node] >= 0), default=-1)


@settings(max_examples=200, deadline=None)
@given(automata())
def test_words_keep_their_smallest_label(nfa: Nfa) -> None:
    dfa = determinize_dfa(nfa)
    for length in range(6):
        for letters in itertools.product(LETTERS, repeat=length):
            assert dfa.match(bytes(letters)) == simulate(nfa, bytes(letters))


@settings(max_examples=100, deadline=None)
@given(automata())
def test_every_state_is_reachable_and_named_once(nfa: Nfa) -> None:
    subsets = determinize(nfa)
    if subsets.starts[0] < 0:
        return
    found, todo = {subsets.starts[0]}, [subsets.starts[0]]
    while todo:
        fresh = set(subsets.table[todo.pop()].tolist()) - found - {-1}
        found |= fresh
        todo += fresh
    assert found == set(range(len(subsets.table)))


def nth_from_the_end(distance: int) -> Nfa:
    """The classical family whose subset automaton has 2^distance states: an ``a`` that many letters before the end."""
    rule = RuleBuilder("#/pattern")
    rule.byte(0, 97, 98, 0)
    node = rule.node()
    rule.byte(0, 97, 97, node)
    for _ in range(distance - 1):
        following = rule.node()
        rule.byte(node, 97, 98, following)
        node = following
    rule.exit(node, 0)
    return lower(Grammar((rule.build(),)))


def test_true_nondeterminism_takes_all_its_states() -> None:
    assert determinize_dfa(nth_from_the_end(8)).states == 256


def test_the_budget_stops_growth() -> None:
    with pytest.raises(BudgetError, match="more than 1000 states"):
        determinize_dfa(nth_from_the_end(20), max_states=1000)
    with pytest.raises(BudgetError, match="#/pattern"):
        determinize(nth_from_the_end(20), names=["#/pattern"], max_states=1000)


def test_the_deadline_stops_growth() -> None:
    with pytest.raises(BudgetError, match="took more than"):
        determinize_dfa(nth_from_the_end(20), deadline=Deadline(0.0))


def test_the_empty_language_is_one_dead_state() -> None:
    rule = RuleBuilder("#")
    rule.node()
    dfa = determinize_dfa(lower(Grammar((rule.build(),))))
    assert (dfa.states, dfa.match(b""), dfa.match(b"a")) == (1, -1, -1)


def test_a_chain_of_epsilons_in_either_direction() -> None:
    for order in (range(600), range(599, -1, -1)):
        rule = RuleBuilder("#")
        nodes = [0, *(rule.node() for _ in range(599))]
        chain = [nodes[place] for place in order]
        rule.epsilon(0, chain[0])
        for source, target in itertools.pairwise(chain):
            rule.epsilon(source, target)
        rule.byte(chain[-1], 97, 97, 0)
        rule.exit(chain[-1], 0)
        dfa = determinize_dfa(lower(Grammar((rule.build(),))))
        assert dfa.match(b"aaa") == 0 and dfa.match(b"ab") == -1 and dfa.states <= 2
