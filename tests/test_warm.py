"""Warm grammars: rows made beforehand equal those of byte-by-byte stepping, whatever the budgets; and when ``load`` warms."""

from __future__ import annotations

import random

import numpy as np
import pytest
from binding_cases import GRAMMARS, linked, nasty_vocabulary, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_cases import Oracle, bound, configuration_of, nasty

import stcc.runtime.masks as masks_module
import stcc.runtime.warm_rows as warm_rows_module
from stcc.compiler.stepping import Configuration, step
from stcc.formats import Artifact, Vocabulary
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import row_patterns
from stcc.runtime import Grammar, load
from stcc.runtime.stack import Level


def compare_along_walks(grammar: Grammar, seed: int, walks: int = 4, steps: int = 12) -> None:
    oracle, rng = Oracle(grammar.machine, grammar.vocabulary), random.Random(seed)
    for _ in range(walks):
        matcher = grammar.matcher()
        for _ in range(steps):
            expected = oracle.allowed(configuration_of(matcher))
            assert matcher.allowed_tokens().tolist() == expected
            choices = [token for token in expected if token not in grammar.vocabulary.stop_token_ids]
            if not choices:
                break
            assert matcher.accept_token(rng.choice(choices))


@pytest.mark.parametrize("name", GRAMMARS)
def test_warm_rows_are_those_of_stepping(name: str) -> None:
    grammar = nasty(name)
    grammar.warm()
    made = dict(grammar.masks.rows)
    compare_along_walks(grammar, 3, walks=12, steps=30)
    assert made and all(grammar.masks.rows[key] is entry for key, entry in made.items())


@settings(max_examples=60, deadline=None)
@given(random_machines(), random_vocabularies(), st.sampled_from([0, 20, 1 << 24]), st.sampled_from([0, 9, 1 << 20]), st.integers(0, 9))
def test_budgets_change_nothing_but_what_is_ready(machine: Machine, vocabulary: Vocabulary, most_bytes: int, most_entries: int,
                                                  seed: int) -> None:
    before = warm_rows_module.MOST_BYTES, warm_rows_module.MOST_ENTRIES
    warm_rows_module.MOST_BYTES, warm_rows_module.MOST_ENTRIES = most_bytes, most_entries
    try:
        grammar = bound(machine, vocabulary)
        grammar.warm()
        compare_along_walks(grammar, seed)
    finally:
        warm_rows_module.MOST_BYTES, warm_rows_module.MOST_ENTRIES = before


def test_rows_of_a_machine_without_a_stack_are_all_ready() -> None:
    grammar = nasty("closed form")
    assert grammar.machine.sites == 0
    grammar.warm()
    ready = set(grammar.masks.rows)
    compare_along_walks(grammar, 1, walks=20, steps=40)
    assert set(grammar.masks.rows) == ready


def test_rows_that_were_forgotten_are_made_again() -> None:
    grammar = nasty("any JSON")
    grammar.masks._most_rows = 16
    grammar.warm()
    compare_along_walks(grammar, 7, walks=10, steps=30)
    assert len(grammar.masks.rows) <= 16


def test_the_kinds_of_stacks_made_beforehand_are_bounded() -> None:
    before, masks_module.WARM_VERDICTS = masks_module.WARM_VERDICTS, 1
    try:
        grammar = nasty("any JSON")
        grammar.warm()
        compare_along_walks(grammar, 8)
    finally:
        masks_module.WARM_VERDICTS = before


@settings(max_examples=40, deadline=None)
@given(random_machines(), random_vocabularies(), st.lists(st.integers(0, 99), max_size=5))
def test_verdicts_say_what_landings_do(machine: Machine, vocabulary: Vocabulary, pushes: list[int]) -> None:
    """The vector of a level, against following each record against the stack."""
    grammar = bound(machine, vocabulary)
    masks, level = grammar.masks, grammar.stacks.bottom
    for site in pushes if machine.sites else []:
        level = grammar.stacks.push(level, site % machine.sites)
    alive = masks.verdicts.of(level).alive
    for value in range(machine.states, machine.states + len(masks.binding.record_kind)):
        assert alive[masks.verdicts.column[value]] == (masks.land(value, level) is not None)


def test_stacks_that_allow_the_same_share_their_verdicts() -> None:
    grammar = nasty("any JSON")
    table, level, seen = grammar.masks.verdicts, grammar.stacks.bottom, set()
    for depth in range(40):
        level = grammar.stacks.push(level, depth % grammar.machine.sites)
        seen.add(id(table.of(level)))
    assert len(seen) < 40 and table.of(Level(level.site, level.below)) is table.of(level)


@pytest.mark.parametrize("name", GRAMMARS)
def test_stored_rows_are_patterns_of_the_rows_they_came_from(name: str) -> None:
    grammar = nasty(name)
    artifact = Artifact.create("regex", grammar.machine, {}, [grammar.binding])
    stored = Artifact.from_bytes(artifact.to_bytes()).binding(grammar.binding.fingerprint)
    made, read = row_patterns(grammar.binding), row_patterns(stored)
    assert len(read.offsets) <= len(made.offsets)
    for state in range(grammar.machine.states):
        low, high = grammar.binding.row_offsets[state:state + 2]
        for rows in (made, read):
            actions, values = rows.live(state)
            np.testing.assert_array_equal(actions, grammar.binding.row_actions[low:high])
            np.testing.assert_array_equal(values, grammar.binding.row_values[low:high])


@pytest.mark.parametrize("warm", [None, True, False])
def test_load_warms_what_was_bound_here_and_not_what_was_read(warm: bool | None) -> None:
    vocabulary, machine = nasty_vocabulary(), linked(GRAMMARS["closed form"])
    artifact = Artifact.create("regex", machine, {}, [bound(machine, vocabulary).binding])
    made, read = load(artifact, vocabulary, warm=warm), load(artifact.to_bytes(), vocabulary, warm=warm)
    assert bool(made.masks.rows) == (warm is not False) and bool(read.masks.rows) == (warm is True)
    for grammar in (made, read):
        compare_along_walks(grammar, 5)


def test_every_token_moves_as_its_bytes_do() -> None:
    grammar = nasty("tree")
    for state in range(grammar.machine.states):
        for token in range(grammar.vocabulary.size):
            value = grammar.masks.value(state, token)
            if 0 <= value < grammar.machine.states:
                here: Configuration | None = Configuration(state, ())
                for byte in grammar.vocabulary.token(token):
                    assert here is not None
                    here = step(grammar.machine, here, byte)
                assert here == Configuration(value, ())
