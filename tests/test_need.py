"""Token needs against breadth-first search over configurations, and the recurrence of ``stcc.compiler.binding.need``."""

from __future__ import annotations

import itertools
import random
from functools import cache

import numpy as np
import pytest
from binding_cases import GRAMMARS, inner_states, linked, nasty_vocabulary, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_actions import Applied, reachable, token_of_action

from stcc.compiler import compile_json_schema
from stcc.compiler.binding import need
from stcc.compiler.binding.actions import token_actions
from stcc.compiler.binding.need import token_needs
from stcc.compiler.errors import BudgetError
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.options import Deadline
from stcc.compiler.stepping import TERMINATED, Configuration, initial, may_end, run
from stcc.formats.artifact import Artifact
from stcc.formats.binding import MOVE, POPPED, UNREACHABLE
from stcc.formats.machine import Machine
from stcc.formats.vocabulary import Vocabulary
from stcc.runtime import load
from stcc.runtime.errors import BudgetUnavailable

Row = dict["int | None", int]


class Recurrence:
    """Rows, ``F`` and costs as the module's text defines them, as plain dictionaries over records and ``None`` for *finish*."""

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        self.machine, self.actions = machine, token_actions(machine, vocabulary)
        self.needs, self.applied = token_needs(machine, self.actions), Applied(machine, self.actions)
        kinds = self.actions.record_kind.tolist()
        self.leaving = [record for record, kind in enumerate(kinds) if kind != MOVE]
        self.moves: dict[int, Row] = {record: {} for record, kind in enumerate(kinds) if kind == MOVE}
        self.below = cache(self._below)
        before = None
        while before != self.moves:
            before = dict(self.moves)
            for record in self.moves:
                self.moves[record] = self.carried(record)

    def row(self, value: int | None) -> Row:
        if value is None or value < 0:
            return {}
        if value < self.machine.states:
            kinds: list[int | None] = [*self.needs.need_kinds.tolist(), None]
            costs = [*self.needs.need_leave[value].tolist(), int(self.needs.need_finish[value])]
            return {kind: cost for kind, cost in zip(kinds, costs, strict=True) if cost < UNREACHABLE}
        record = value - self.machine.states
        return self.moves.get(record, {record: 0})

    def carried(self, record: int) -> Row:
        low, high = self.actions.record_push_offsets[record: record + 2]
        row = self.row(int(self.actions.record_head[record]))
        for site in reversed(self.actions.record_pushes[low:high].tolist()):
            around: Row = {}
            for kind, first in row.items():
                for column, rest in self.row(None if kind is None else self.landing(kind, site)).items():
                    around[column] = min(around.get(column, UNREACHABLE), first + rest)
            row = around
        return row

    def landing(self, kind: int, site: int) -> int | None:
        state = int(self.machine.returns[site, self.actions.record_head[kind]])
        function = int(self.actions.record_function[kind])
        return state if function < 0 or state < 0 else self.applied.suffixes[function].get(state)

    def _below(self, stack: tuple[int, ...]) -> Row:
        if not stack:
            ends = [kind for kind in self.leaving if self.actions.record_kind[kind] == POPPED and self.actions.record_head[kind] == 0]
            return {None: 0, **dict.fromkeys(ends, 0)}
        return {kind: self.cost(self.landing(kind, stack[-1]), stack[:-1]) for kind in self.leaving}

    def cost(self, value: int | None, stack: tuple[int, ...]) -> int:
        below = self.below(stack)
        return min((first + below.get(column, UNREACHABLE) for column, first in self.row(value).items()), default=UNREACHABLE)

    def need(self, state: int, stack: tuple[int, ...]) -> int:
        return self.cost(state, stack)


def fewest_tokens(machine: Machine, texts: list[bytes], start: Configuration, limit: int) -> int:
    """Fewest tokens from ``start`` to an ending, by breadth-first search of bytes; ``limit + 1`` if more than ``limit``."""
    seen, layer = {start}, {start}
    for count in range(limit + 1):
        if any(may_end(machine, configuration) for configuration in layer):
            return count
        if count < limit:
            following = {run(machine, text, configuration) for configuration in layer for text in texts}
            layer = {configuration for configuration in following if configuration is not None} - seen
            seen |= layer
    return limit + 1


def spelled(vocabulary: Vocabulary) -> list[bytes]:
    return sorted({vocabulary.token(int(token)) for token in vocabulary.byte_order})


@settings(max_examples=200, deadline=None)
@given(random_machines(), random_vocabularies())
def test_random_machines_against_search(machine: Machine, vocabulary: Vocabulary) -> None:
    texts, limit = spelled(vocabulary)[:10], 3
    recurrence = Recurrence(machine, Vocabulary.from_tokens(texts, []))
    for depth in range(3):
        for stack in itertools.product(range(machine.sites), repeat=depth):
            for state in inner_states(machine):
                expected = fewest_tokens(machine, texts, Configuration(state, stack), limit)
                assert min(recurrence.need(state, stack), limit + 1) == expected, (state, stack)


def equal_both_ways(machine: Machine, vocabulary: Vocabulary) -> bool:
    """Whether frames all at once and frames site by site, with shared rows, come to the same needs."""
    actions = token_actions(machine, vocabulary)
    ways = []
    for few in (-1, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(need, "_FEW_KINDS", few)
            ways.append(token_needs(machine, actions))
    return all(np.array_equal(getattr(ways[0], name), getattr(ways[1], name)) for name in ("need_finish", "need_kinds", "need_leave"))


@settings(max_examples=200, deadline=None)
@given(random_machines(), random_vocabularies())
def test_rows_shared_by_frames_change_nothing(machine: Machine, vocabulary: Vocabulary) -> None:
    assert equal_both_ways(machine, vocabulary)


@pytest.mark.parametrize("name", GRAMMARS)
def test_rows_shared_by_frames_change_nothing_in_grammars(name: str) -> None:
    assert equal_both_ways(linked(GRAMMARS[name]), nasty_vocabulary())


@pytest.mark.parametrize("name", GRAMMARS)
def test_grammars_against_search(name: str) -> None:
    machine, vocabulary, limit = linked(GRAMMARS[name]), nasty_vocabulary(), 3
    recurrence, texts = Recurrence(machine, vocabulary), spelled(vocabulary)
    configurations = reachable(machine, 3)
    for configuration in random.Random(5).sample(configurations, min(25, len(configurations))):
        expected = fewest_tokens(machine, texts, configuration, limit)
        assert min(recurrence.need(*configuration), limit + 1) == expected, configuration


def test_single_bytes_need_the_shortest_text() -> None:
    bytes_ = Vocabulary.from_tokens([bytes([byte]) for byte in range(256)], [])
    for name, shortest in (("closed form", b'{"n":"","k":true,"c":[]}'), ("tree", b'{"n":"","c":[]}'), ("any JSON", b"0")):
        machine = linked(GRAMMARS[name])
        recurrence = Recurrence(machine, bytes_)
        assert recurrence.need(machine.start, ()) == len(shortest)
        for length in range(len(shortest)):
            after = run(machine, shortest[:length])
            assert after is not None and recurrence.need(*after) == len(shortest) - length


def test_calls_one_after_another() -> None:
    """Thirty calls in a row: what a call costs depends on all that follow it."""
    callee = RuleBuilder("pair")
    end = callee.node()
    callee.literal(0, b"{}", end)
    callee.exit(end, 0)
    root, node = RuleBuilder("#"), 0
    for _ in range(30):
        following, comma = root.node(), root.node()
        root.call(node, 1, [following])
        root.literal(following, b",", comma)
        node = comma
    root.exit(node, 0)
    machine = linked(Grammar((root.build(), callee.build())))
    for tokens, total in (([b"{", b"}", b","], 90), ([b"{", b"}", b",", b"},{"], 32)):
        recurrence = Recurrence(machine, Vocabulary.from_tokens(tokens, []))
        assert machine.sites and recurrence.need(machine.start, ()) == total


@settings(max_examples=200, deadline=None)
@given(random_machines(), random_vocabularies())
def test_narrow_costs_are_wide_ones(machine: Machine, vocabulary: Vocabulary) -> None:
    actions = token_actions(machine, vocabulary)
    narrow = token_needs(machine, actions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(need, "NARROW", UNREACHABLE)
        wide = token_needs(machine, actions)
    assert all(np.array_equal(getattr(narrow, name), getattr(wide, name)) for name in ("need_finish", "need_kinds", "need_leave"))


def test_more_tokens_than_narrow_costs_hold() -> None:
    """A text of 20,000 bytes, without a stack, and as 100 calls, one after the other, of a rule of 200 bytes that leaves in four ways."""
    plain = RuleBuilder("#")
    end = plain.node()
    plain.literal(0, b"a" * 20_000, end)
    plain.exit(end, 0)
    callee = RuleBuilder("long", 4)
    for exit_, last in enumerate(b"bcde"):
        end = callee.node()
        callee.literal(0, b"a" * 199 + bytes([last]), end)
        callee.exit(end, exit_)
    root, node = RuleBuilder("#"), 0
    for _ in range(100):
        following = root.node()
        root.call(node, 1, [following] * 4)
        node = following
    root.exit(node, 0)
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"c", b"d", b"e", b"ba", b"caa", b"eaaa"], [])
    for machine, least in ((linked(Grammar((plain.build(),))), 20_000), (linked(Grammar((root.build(), callee.build()))), 20_000 - 99 * 3)):
        assert Recurrence(machine, vocabulary).need(machine.start, ()) == least


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12), st.sampled_from([1, 16, 1 << 17]), st.integers(0, 5))
def test_least_rows_of_pieces(seed: int, pieces: int, cells: int, few: int) -> None:
    rng = np.random.default_rng(seed)
    slots, columns = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    table = rng.integers(0, 100, (slots, columns)).astype(np.int16)
    lengths = rng.integers(1, 9, pieces)
    starts, slot = np.cumsum(lengths) - lengths, rng.integers(0, slots, int(lengths.sum())).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(need, "_GATHERED_CELLS", cells)
        patch.setattr(need, "_FEW_PIECES", few)
        found = need._fewest(table, slot, starts)
    for row, low, length in zip(found, starts.tolist(), lengths.tolist(), strict=True):
        assert row.tolist() == table[slot[low: low + length]].min(axis=0).tolist()


def test_deep_nesting_ends_in_few_tokens() -> None:
    """Closing 300 arrays takes 300 single brackets, or a tenth with a token of ten."""
    machine = linked(GRAMMARS["any JSON"])
    opened = run(machine, b"[" * 300)
    assert opened is not None
    for longest in (1, 10):
        recurrence = Recurrence(machine, Vocabulary.from_tokens([b"]" * longest, b"]", b"[", b"1"], []))
        for depth in range(len(opened.stack)):  # the cache keeps the recursion flat
            recurrence.below(opened.stack[:depth])
        assert recurrence.need(*opened) == 300 // longest


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_feasible_budget_ends_valid(name: str) -> None:
    """Adversarial random tokens whose cost fits never lead to a dead end, and the limit is never passed."""
    machine, vocabulary = linked(GRAMMARS[name]), nasty_vocabulary()
    recurrence, rng = Recurrence(machine, vocabulary), random.Random(name)
    of_token = sorted(set(token_of_action(vocabulary, recurrence.actions)))
    least = recurrence.need(machine.start, ())
    for budget in range(least, least + 12):
        current, left = initial(machine), budget
        while not may_end(machine, current) or (left and current.state != TERMINATED and rng.random() < 0.8):
            row = recurrence.applied.rows[current.state]
            fitting = [action for action in of_token if action in row and 1 + recurrence.cost(row[action], current.stack) <= left]
            if not fitting:
                assert may_end(machine, current)
                break
            following = recurrence.applied.apply(rng.choice(fitting), current)
            assert following is not None
            current, left = following, left - 1
        assert left >= 0 and may_end(machine, current)


def test_arrays_are_well_formed() -> None:
    machine, vocabulary = linked(GRAMMARS["any JSON"]), nasty_vocabulary()
    actions = token_actions(machine, vocabulary)
    needs = token_needs(machine, actions)
    assert needs.need_finish.dtype == needs.need_kinds.dtype == needs.need_leave.dtype == np.int32
    assert needs.need_leave.shape == (machine.states, len(needs.need_kinds)) and (np.diff(needs.need_kinds) > 0).all()
    assert (actions.record_kind[needs.need_kinds] != MOVE).all()
    assert (needs.need_leave >= 1).all() and (needs.need_leave <= UNREACHABLE).all()


def test_without_a_stack_there_are_no_kinds() -> None:
    machine = linked(GRAMMARS["closed form"])
    needs = token_needs(machine, token_actions(machine, nasty_vocabulary()))
    assert needs.need_leave.shape == (machine.states, 0) and (needs.need_finish[machine.accepting] == 0).all()


def test_unreachable_without_the_tokens() -> None:
    machine = linked(GRAMMARS["closed form"])
    needs = token_needs(machine, token_actions(machine, Vocabulary.from_tokens([b"{", b'"'], [])))
    assert needs.need_finish[machine.start] == UNREACHABLE


def test_a_table_too_large_is_left_out_and_budgets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = nasty_vocabulary()
    monkeypatch.setattr(need, "MAX_CELLS", 100)
    artifact = compile_json_schema(True, vocabularies=[vocabulary])
    assert "budget" in artifact.metadata.warnings[0]["message"]
    read = Artifact.from_bytes(artifact.to_bytes())
    assert read.binding(vocabulary.fingerprint).has_no_needs and read.metadata.warnings == artifact.metadata.warnings
    grammar = load(read, vocabulary=vocabulary)
    assert len(grammar.matcher().allowed_tokens())
    with pytest.raises(BudgetUnavailable, match="max_tokens"):
        grammar.matcher(max_tokens=100)


def test_deadline() -> None:
    rule = linked(GRAMMARS["any JSON"])
    with pytest.raises(BudgetError, match="took more than"):
        deadline = Deadline(1e-9)
        for _ in range(64):
            token_needs(rule, token_actions(rule, nasty_vocabulary()), deadline)
