"""Token actions against byte-by-byte stepping: every token, state and stack."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
import pytest
from binding_cases import GRAMMARS, inner_states, linked, nasty_vocabulary, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import compile_json_schema
from stcc.compiler.binding import values
from stcc.compiler.binding.actions import TokenActions, token_actions
from stcc.compiler.binding.bind import bind, bind_machine
from stcc.compiler.binding.defaults import default_states
from stcc.compiler.binding.row_edges import row_edges
from stcc.compiler.errors import BudgetError
from stcc.compiler.options import Deadline
from stcc.compiler.stepping import TERMINATED, Configuration, initial, step
from stcc.formats.artifact import Artifact
from stcc.formats.binding import EXPOSED, MOVE, POPPED
from stcc.formats.binding_checks import verify_binding
from stcc.formats.machine import Machine, end_states
from stcc.formats.vocabulary import Vocabulary

DEPTH = 4


class Applied:
    """Applies actions as the text of ``stcc.formats.binding`` says, one configuration and action at a time."""

    def __init__(self, machine: Machine, actions: TokenActions) -> None:
        self.machine, self.actions = machine, actions
        offsets, listed, values = actions.rows.expanded()
        self.rows = [self._span(offsets, state, listed, values) for state in range(machine.states)]
        self.suffixes = [self._span(actions.suffix_offsets, f, actions.suffix_states, actions.suffix_values)
                         for f in range(len(actions.suffix_offsets) - 1)]

    @staticmethod
    def _span(offsets: np.ndarray, index: int, keys: np.ndarray, values: np.ndarray) -> dict[int, int]:
        low, high = offsets[index], offsets[index + 1]
        return dict(zip(keys[low:high].tolist(), values[low:high].tolist(), strict=True))

    def apply(self, action: int, configuration: Configuration) -> Configuration | None:
        machine, actions, stack = self.machine, self.actions, list(configuration.stack)
        value = self.rows[configuration.state].get(action)
        while value is not None and value >= machine.states:
            record = value - machine.states
            kind, head = actions.record_kind[record], int(actions.record_head[record])
            if kind == MOVE:
                low, high = actions.record_push_offsets[record: record + 2]
                return Configuration(head, (*stack, *actions.record_pushes[low:high].tolist()))
            if not stack:
                return Configuration(TERMINATED) if kind == POPPED and head == 0 else None
            landed = int(machine.returns[stack.pop(), head])
            if landed < 0:
                return None
            value = landed if kind == POPPED else self.suffixes[actions.record_function[record]].get(landed)
        return None if value is None else Configuration(value, tuple(stack))


def token_of_action(vocabulary: Vocabulary, actions: TokenActions) -> list[int]:
    """Action of each spelled token, in byte order."""
    lengths = np.diff(np.append(actions.run_starts, len(vocabulary.byte_order)))
    found: list[int] = np.repeat(actions.run_action, lengths).tolist()
    return found


def reachable(machine: Machine, depth: int) -> list[Configuration]:
    """Configurations that some text leads to, stacks no deeper than ``depth``."""
    bytes_ = np.unique(machine.byte_class, return_index=True)[1].tolist()
    seen, work = {initial(machine)}, [initial(machine)]
    while work:
        current = work.pop()
        for byte in bytes_:
            following = step(machine, current, byte)
            if following is not None and following.state != TERMINATED and len(following.stack) <= depth and following not in seen:
                seen.add(following)
                work.append(following)
    return sorted(seen)


def check_exact(machine: Machine, vocabulary: Vocabulary, configurations: Iterable[Configuration]) -> int:
    """Compare every (configuration, token); how many of them are alive."""
    actions = token_actions(machine, vocabulary)
    applied, of_token = Applied(machine, actions), token_of_action(vocabulary, actions)
    texts = [vocabulary.token(int(token)) for token in vocabulary.byte_order]
    alive = 0
    for configuration in configurations:
        reached: dict[bytes, Configuration | None] = {b"": configuration}
        for text, action in zip(texts, of_token, strict=True):
            for length in range(1, len(text) + 1):
                if text[:length] not in reached:
                    before = reached[text[: length - 1]]
                    reached[text[:length]] = None if before is None else step(machine, before, text[length - 1])
            expected = reached[text]
            assert applied.apply(action, configuration) == expected, (configuration, text)
            alive += expected is not None
    return alive


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_token_at_every_reachable_configuration(name: str) -> None:
    machine, vocabulary = linked(GRAMMARS[name]), nasty_vocabulary()
    configurations = reachable(machine, DEPTH)
    deepest = max(len(configuration.stack) for configuration in configurations)
    assert deepest == (DEPTH if machine.sites else 0)
    by_state_and_depth = configurations if len(configurations) <= 1500 else configurations[:: len(configurations) // 1500 + 1]
    assert check_exact(machine, vocabulary, by_state_and_depth) > len(by_state_and_depth)


@settings(max_examples=300, deadline=None)
@given(random_machines(), random_vocabularies())
def test_random_machines_from_every_state_under_every_stack(machine: Machine, vocabulary: Vocabulary) -> None:
    stacks = [stack for depth in range(4) for stack in itertools.product(range(machine.sites), repeat=depth)]
    check_exact(machine, vocabulary, [Configuration(state, stack) for state in inner_states(machine) for stack in stacks])


@settings(max_examples=30, deadline=None)
@given(random_machines(), random_vocabularies())
def test_arrays_are_well_formed(machine: Machine, vocabulary: Vocabulary) -> None:
    actions = token_actions(machine, vocabulary)
    of_token = token_of_action(vocabulary, actions)
    firsts = [action for action in dict.fromkeys(of_token) if action]
    assert firsts == list(range(1, actions.actions))  # numbered by first appearance, none without a token
    assert (np.diff(actions.run_action) != 0).all()
    offsets, listed, row_values = actions.rows.expanded()
    assert set(listed.tolist()) == set(firsts)  # what no state lists is dead
    for low, high in itertools.pairwise(offsets.tolist()):
        assert (np.diff(listed[low:high]) > 0).all()
    for low, high in itertools.pairwise(actions.suffix_offsets.tolist()):
        assert high > low and (np.diff(actions.suffix_states[low:high]) > 0).all()
    found = np.concatenate((row_values, actions.suffix_values))
    used = np.unique(found[found >= machine.states]) - machine.states
    assert used.tolist() == list(range(len(actions.record_kind)))  # only what is referenced
    exposed = actions.record_kind == EXPOSED
    assert sorted(set(actions.record_function[exposed].tolist())) == list(range(len(actions.suffix_offsets) - 1))
    assert (actions.record_function[~exposed] == -1).all()


@settings(max_examples=200, deadline=None)
@given(random_machines(), random_vocabularies(), st.randoms(use_true_random=False))
def test_whatever_the_defaults(machine: Machine, vocabulary: Vocabulary, source: random.Random) -> None:
    """Any default map gives the same actions, edges and rows, and only its own way of listing them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "default_states", lambda machine: np.arange(machine.states, dtype=np.int32))
        plain = token_actions(machine, vocabulary)
        default = np.arange(machine.states, dtype=np.int32)
        fixed = {*machine.returns.reshape(-1).tolist(), *np.flatnonzero(end_states(machine)).tolist()}
        bases = source.sample(range(machine.states), source.randint(1, machine.states))
        for state in range(machine.states):
            if state not in fixed and state not in bases:
                default[state] = source.choice(bases)
        patch.setattr(values, "default_states", lambda machine: default)
        layered = token_actions(machine, vocabulary)
    same(plain, layered)
    for edges, expected in zip(row_edges(layered.rows), row_edges(plain.rows), strict=True):
        np.testing.assert_array_equal(edges, expected)
    for state in range(machine.states):
        for found, expected in zip(layered.rows.live(state), plain.rows.live(state), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert layered.rows.default is None or len(layered.rows.flat(most=7).actions) <= 7


def test_states_of_a_trie_of_keys_default_to_the_loop_over_other_keys() -> None:
    names = ["metadata", "metrics", "status", "statistics"]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "additionalProperties": {"type": "string"}}
    machine = compile_json_schema(schema).machine
    default = default_states(machine)
    assert (default[default] == default).all()
    apart = np.flatnonzero(default != np.arange(machine.states))
    assert len(apart) >= sum(map(len, {name[:length] for name in names for length in range(1, len(name))})) // 8
    actions = token_actions(machine, nasty_vocabulary())
    own = np.diff(actions.rows.offsets)
    assert own[apart].mean() < own[default[apart]].mean() / 4


def test_actions_are_reproducible() -> None:
    machine, vocabulary = linked(GRAMMARS["tree"]), nasty_vocabulary()
    first, second = token_actions(machine, vocabulary), token_actions(machine, vocabulary)
    same(first, second)


def same(first: TokenActions, second: TokenActions) -> None:
    """Both say the same, number by number."""
    for left, right in zip(first.rows.expanded(), second.rows.expanded(), strict=True):
        np.testing.assert_array_equal(left, right)
    for field in fields(first):
        if field.name != "rows":
            np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name), field.name)


@pytest.mark.parametrize("name", GRAMMARS)
def test_bindings_are_sound_and_replaced_by_fingerprint(name: str) -> None:
    machine, vocabulary = linked(GRAMMARS[name]), nasty_vocabulary()
    binding = bind_machine(machine, vocabulary)
    assert verify_binding(binding, machine) == [] and binding.fingerprint == vocabulary.fingerprint
    once = bind(Artifact.create("regex", machine, {}), vocabulary)
    twice = bind(once, vocabulary)
    assert twice.fingerprints == once.fingerprints == (vocabulary.fingerprint,)
    assert twice.to_bytes() == once.to_bytes()


def test_tokens_with_one_action_share_it() -> None:
    machine = linked(GRAMMARS["closed form"])
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"q", b"aa", b"Z", b'"'], [])
    of_token = token_of_action(vocabulary, token_actions(machine, vocabulary))
    by_text = {vocabulary.token(int(token)): action for token, action in zip(vocabulary.byte_order, of_token, strict=True)}
    assert by_text[b"b"] == by_text[b"q"] != by_text[b'"']
    assert by_text[b"Z"] == 0


def test_a_deep_token_of_a_thousand_brackets() -> None:
    """No depth limit: one token that closes a thousand levels, and every prefix of it."""
    machine = linked(GRAMMARS["any JSON"])
    vocabulary = Vocabulary.from_tokens([b"]" * 1000, b"[" * 1000, b"]" * 999 + b",1"], [])
    actions = token_actions(machine, vocabulary)
    applied, of_token = Applied(machine, actions), token_of_action(vocabulary, actions)
    opened = applied.apply(of_token[[vocabulary.token(int(t))[:1] for t in vocabulary.byte_order].index(b"[")], initial(machine))
    assert opened is not None and len(opened.stack) in (999, 1000)
    for token, action in zip(vocabulary.byte_order, of_token, strict=True):
        text, expected = vocabulary.token(int(token)), opened
        for byte in text:
            following = None if expected is None else step(machine, expected, byte)
            expected = following  # type: ignore[assignment]
        assert applied.apply(action, opened) == expected


def test_no_spelled_tokens() -> None:
    actions = token_actions(linked(GRAMMARS["closed form"]), Vocabulary.from_tokens([b"", b""], [1]))
    assert actions.actions == 1 and len(actions.run_starts) == 0 and len(actions.rows.actions) == 0


def test_entries_budget_and_deadline() -> None:
    machine, vocabulary = linked(GRAMMARS["closed form"]), nasty_vocabulary()
    with pytest.raises(BudgetError, match="more than 50 entries"):
        token_actions(machine, vocabulary, max_entries=50)
    with pytest.raises(BudgetError, match="took more than"):
        token_actions(machine, vocabulary, Deadline(1e-9))


def test_a_long_chain_costs_its_live_entries() -> None:
    """A chain of 20,000 states: entries stay near states x (useful token lengths), not states x actions dense."""
    states = 20_000
    table = np.full((states, 2), -1, np.int32)
    table[:-1, 1] = np.arange(1, states)
    machine = Machine(
        byte_class=(np.arange(256) == 97).astype(np.uint8), table=table, exits=np.full(states, -1, np.int16),
        accepting=np.arange(states) == states - 1, edge_target=np.zeros(0, np.int32), edge_push_offsets=np.zeros(1, np.int32),
        edge_pushes=np.zeros(0, np.int32), returns=np.zeros((0, 1), np.int32), start=0)
    actions = token_actions(machine, Vocabulary.from_tokens([b"a" * length for length in (1, 2, 5)] + [b"b", b"ab"], []))
    assert actions.actions == 4 and len(actions.rows.actions) == 3 * states - (1 + 2 + 5)
