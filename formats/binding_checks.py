"""Whether every index of a binding is in range: after this a kernel may use them unchecked.

In: a binding and the machine it belongs to. Out: the broken invariants, as one sentence each; empty when it is sound. The checks
come in four families that can be run apart, since a stored binding is decoded family by family. Whether the actions are *right* is
the compiler's affair.

Cost: O(size of the arrays), no loops over entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE, Binding
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import RowPatterns, layered_rows

Array = npt.NDArray[Any]
Checks = list[tuple[bool, str]]


def verify_binding(binding: Binding, machine: Machine) -> list[str]:
    """Every broken invariant of the first family that has one; empty when all indices are in range.

    Later families index with what earlier ones passed.
    """
    for family in FAMILIES.values():
        broken = family(binding, machine)
        if broken:
            return broken
    return []


def verify_tokens(binding: Binding, machine: Machine) -> list[str]:
    """The broken invariants of ``run_*``."""
    starts, action = binding.run_starts, binding.run_action
    return _broken([
        (binding.actions >= 1, "there is at least the dead action"),
        (starts.shape == action.shape and starts.ndim == 1, "each run has an action"),
        (starts.size == 0 or int(starts[0]) == 0, "the first run starts at 0"),
        (_rising(starts) and _within(starts, binding.vocabulary_size), "run starts rise and are positions in the byte order"),
        (_within(action, binding.actions), "run actions are in range"),
    ])


def verify_rows(binding: Binding, machine: Machine) -> list[str]:
    """The broken invariants of ``row_*`` (by pattern, for a stored binding), ``record_*`` and ``suffix_*``."""
    records, targets = len(binding.record_kind), machine.states + len(binding.record_kind)
    rows = layered_rows(binding)
    broken = _broken([
        (len(rows.pattern) == machine.states and _within(rows.pattern, len(rows.offsets) - 1), "each state has a row"),
        (_spans(rows.offsets, len(rows.offsets) - 1, rows.actions, rows.base, rows.follows), "row offsets rise over the states' entries"),
        (_spans(binding.record_push_offsets, records, binding.record_pushes), "push offsets rise over the records' pushes"),
        (_spans(binding.suffix_offsets, len(binding.suffix_offsets) - 1, binding.suffix_states, binding.suffix_values),
         "suffix offsets rise over the functions' entries"),
        (len(binding.record_head) == len(binding.record_function) == records, "each record has a head and a function"),
    ])
    if broken:
        return broken
    return _broken([
        (_rising_within(rows.actions, rows.offsets), "actions rise within a row"),
        (_within(rows.actions, binding.actions, low=1), "row actions are in range"),
        (_defaults_hold(rows, machine.states), "a default is its own default, and only who has one lists dead actions"),
        (_row_values_within(rows, machine.states, targets), "row values are states or records"),
        (_rising_within(binding.suffix_states, binding.suffix_offsets), "return states rise within a suffix function"),
        (_within(binding.suffix_states, machine.states), "return states are in range"),
        (_within(binding.suffix_values, targets), "suffix values are states or records"),
        (_within(binding.record_pushes, machine.sites), "pushed call sites are in range"),
        *_record_checks(binding, machine),
    ])


def _defaults_hold(rows: RowPatterns, states: int) -> bool:
    """Whether defaults are states that are their own default, and no other state's pattern has a dead action."""
    dead = (rows.base == -1) & (rows.follows == 0)
    own = np.arange(states)
    if rows.default is not None:
        default = rows.default
        if len(default) != states or not _within(default, states) or bool((default[default] != default).any()):
            return False
        own = own[default == own]
    if not dead.any():
        return True
    lists_dead = np.diff(np.concatenate((np.zeros(1, np.int64), np.cumsum(dead)))[rows.offsets]) > 0
    return not bool(lists_dead[rows.pattern[own]].any())


def _row_values_within(rows: RowPatterns, states: int, targets: int) -> bool:
    """Whether every value is in range at every state that has its pattern: it is if it is at the first and at the last of them."""
    follows = rows.follows != 0
    lowest_base = 0 if rows.default is None else -1
    if not follows.any():
        return _within(rows.base, targets, lowest_base)
    numbers, lengths = np.arange(states, dtype=np.int32), np.diff(rows.offsets)
    first, last = np.zeros(len(lengths), np.int32), np.zeros(len(lengths), np.int32)
    last[rows.pattern] = numbers  # of equal indices the last assignment stays
    first[rows.pattern[::-1]] = numbers[::-1]
    moving = low = high = rows.base
    if not follows.all():
        if not _within(moving[~follows], targets, lowest_base):
            return False
        low, high = np.where(follows, moving, states), np.where(follows, moving, -states)
    filled = lengths > 0
    starts = rows.offsets[:-1][filled]
    # bases are below 2**30, so that nothing wraps around
    lowest, highest = np.minimum.reduceat(low, starts) + first[filled], np.maximum.reduceat(high, starts) + last[filled]
    return int(lowest.min()) >= 0 and int(highest.max()) < states


def _record_checks(binding: Binding, machine: Machine) -> Checks:
    kind, head, function = binding.record_kind, binding.record_head, binding.record_function
    moves, exposed, popped = kind == MOVE, kind == EXPOSED, kind == POPPED
    pushes = np.diff(binding.record_push_offsets)
    exits = max(machine.returns.shape[1], 1)  # the root's exit 0 exists without any call site
    return [
        (bool((moves | exposed | popped).all()), "records are moves, pops or exposed suffixes"),
        (_within(head[moves], machine.states), "a move record leads to a state"),
        (_within(head[~moves], exits), "a record's exit is in range"),
        (_within(function[exposed], len(binding.suffix_offsets) - 1), "an exposed record names a suffix function"),
        (bool((function[~exposed] == -1).all()), "only exposed records name a suffix function"),
        (bool((pushes[~moves] == 0).all()), "only move records push"),
    ]


def verify_plans(binding: Binding, machine: Machine) -> list[str]:
    """The broken invariants of ``plan_*`` and ``cover``."""
    return _broken([
        (_spans(binding.plan_offsets, machine.states, binding.plan_tokens), "plan offsets rise over the states' tokens"),
        (_within(binding.plan_tokens, binding.vocabulary_size), "plan tokens are token ids"),
        (binding.cover.shape == (machine.states,), "cover has one entry a state"),
    ])


def verify_need(binding: Binding, machine: Machine) -> list[str]:
    """The broken invariants of ``need_*``."""
    kinds = binding.need_kinds
    if binding.has_no_needs:
        return _broken([(not len(kinds) and not binding.need_leave.size, "without need_finish there are no other needs")])
    broken = _broken([
        (_within(kinds, len(binding.record_kind)), "need kinds are records"),
        (binding.need_finish.shape == (machine.states,), "need_finish has one entry a state"),
        (binding.need_leave.shape == (machine.states, len(kinds)), "need_leave has one entry a state and kind"),
        (_within(binding.need_finish, UNREACHABLE + 1) and _within(binding.need_leave, UNREACHABLE + 1), "needs are counts or UNREACHABLE"),
    ])
    return broken or _broken([(bool((binding.record_kind[kinds] != MOVE).all()), "need kinds leave their rule")])


FAMILIES = {"tokens": verify_tokens, "rows": verify_rows, "plans": verify_plans, "need": verify_need}


def _broken(checks: Checks) -> list[str]:
    return [text for holds, text in checks if not holds]


def _within(values: Array, limit: int, low: int = 0) -> bool:
    return values.size == 0 or (int(values.min()) >= low and int(values.max()) < limit)


def _rising(values: Array) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _spans(offsets: Array, count: int, *flat: Array) -> bool:
    """Whether ``offsets`` rise (weakly) from 0 over ``count`` spans to the length of each of ``flat``."""
    return (offsets.ndim == 1 and len(offsets) == count + 1 >= 1 and int(offsets[0]) == 0
            and all(int(offsets[-1]) == len(array) for array in flat) and bool((offsets[1:] >= offsets[:-1]).all()))


def _rising_within(values: Array, offsets: Array) -> bool:
    """Whether ``values`` rise within each span of ``offsets``."""
    if len(values) < 2:
        return True
    rises = values[1:] > values[:-1]
    inner = offsets[1:-1]
    inner = inner[(inner > 0) & (inner < len(values))]
    rises[inner - 1] = True  # a span may start anywhere
    return bool(rises.all())
