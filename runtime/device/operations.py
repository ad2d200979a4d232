"""Masks and steps by plain MLX operations: the same on every backend, and what the kernels must agree with bit for bit.

In: ``DeviceTables`` and state vectors on the device, int32 ``[66]`` or ``[rows, 66]``. Out: masks and the next state vectors, also on the
device. Nothing here reads a value back: both are functions of arrays, evaluated lazily, so that a loop may enqueue the next step before
this one is done.

    values    of each row's state, for every action at once (mask) or for the action of one token (advance): a binary search in the
              state's row of actions, unrolled to the depth of the longest row
    follow    at most ``rounds`` turns: a value that leaves the rule pops a call site and becomes its landing there
    mask      gather, by each token's action, whether anything is left of its value; stop tokens where the output may end
    advance   write the state, drop the popped call sites, write the pushed ones

Every index is clamped before it is used and what was out of range is dropped afterwards, so that a state vector of any content reads
nothing outside the tables. A row that ``advance`` gives a token which its mask does not allow stays as it is, as a matcher does.

Cost of a mask: some 8 operations a turn of the search and 12 a turn of following, on ``[rows, actions]``, then one gather of ``[rows,
tokens]``.

>>> masks = OperationMasks(build_tables([(machine, binding)], vocabulary))   # doctest: +SKIP
>>> state = mx.array(masks.tables.initial([0]))                              # doctest: +SKIP
>>> logits = mx.where(masks.mask(state), logits, -float("inf"))              # doctest: +SKIP
>>> state = masks.advance(state, mx.argmax(logits, axis=-1))                 # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from stcc.formats.binding import MOVE, POPPED
from stcc.runtime.device.tables import CAPACITY, DEAD_VALUE, ENDED, FREE, TERMINATED, DeviceTables

ARRAYS = ("state_grammar", "accepting", "token_action", "stops", "state_pattern", "pattern_offsets", "pattern_actions", "pattern_base",
          "pattern_follows", "record_kind", "record_head", "record_leave", "record_push_offsets", "record_pushes", "landings")


def pack_mask(mask: Any) -> Any:
    """A Boolean mask as a token bitmask: bool ``[.., tokens]`` to uint32 ``[.., words]``, bit ``t % 32`` of word ``t // 32``."""
    tokens = mask.shape[-1]
    words = (tokens + 31) // 32
    wide = mx.pad(mask.astype(mx.uint32), [(0, 0)] * (mask.ndim - 1) + [(0, words * 32 - tokens)])
    bits = wide.reshape(*mask.shape[:-1], words, 32) << mx.arange(32, dtype=mx.uint32)
    return mx.sum(bits, axis=-1)


def _at(array: Any, index: Any) -> Any:
    """``array[index]`` with the index clamped to the array."""
    return mx.take(array, mx.clip(index, 0, array.shape[0] - 1))


class _Rows:
    """State vectors taken apart: ``q`` and ``kept`` int32 ``[rows, 1]``, ``stack`` int32 ``[rows, 64]``, and which are in range."""

    def __init__(self, state: Any, states: int) -> None:
        self.q, self.kept, self.stack = state[:, 0:1], state[:, 1:2], state[:, 2:]
        self.sound = (self.q >= 0) & (self.q < states) & (self.kept >= 0) & (self.kept <= CAPACITY)


class OperationMasks:
    """Masks and steps of ``tables``.

    Attributes:
        tables: what is on the device.
    """

    def __init__(self, tables: DeviceTables) -> None:
        self.tables = tables
        self._array = {name: mx.array(tables.arrays[name]) for name in ARRAYS}
        self._actions = self._array["token_action"].reshape(tables.grammars, tables.vocabulary_size)
        self._sites = int(tables.arrays["sizes"][2])

    def mask(self, state: Any) -> Any:
        """The tokens that may follow. bool ``[rows, tokens]``, or ``[tokens]`` for a single state vector.

        Args:
            state: int32 ``[rows, 66]`` or ``[66]``.
        """
        if state.ndim == 1:
            return self.mask(state[None])[0]
        rows = _Rows(state, self.tables.states)
        actions = mx.arange(self.tables.actions, dtype=mx.int32)[None]
        value, kept = self._follow(rows, self._values(rows, actions))
        alive = self._fits(value, kept)
        token_actions = mx.take(self._actions, self._grammar(rows)[:, 0], axis=0).astype(mx.int32)
        spelled = mx.take_along_axis(alive, token_actions, axis=1)
        stops = self._may_end(rows) & (self._array["stops"] != 0)[None]
        return spelled | stops | (rows.q == FREE)

    def advance(self, state: Any, token: Any) -> Any:
        """The state vectors after one token each, int32 of the shape of ``state``; a token that is not allowed changes nothing.

        Args:
            state: int32 ``[rows, 66]`` or ``[66]``.
            token: integer ``[rows]``, or a single one.
        """
        if state.ndim == 1:
            return self.advance(state[None], token.reshape(1))[0]
        rows = _Rows(state, self.tables.states)
        column = token.reshape(-1, 1).astype(mx.int32)
        size = self.tables.vocabulary_size
        known = (column >= 0) & (column < size)
        column = mx.clip(column, 0, size - 1)
        action = mx.take_along_axis(mx.take(self._actions, self._grammar(rows)[:, 0], axis=0), column, axis=1).astype(mx.int32)
        value, kept = self._follow(rows, self._values(rows, action))
        moved = known & self._fits(value, kept)
        stopped = known & self._may_end(rows) & (_at(self._array["stops"], column) != 0)
        after = self._after(rows, value, kept)
        ended = mx.concatenate([mx.full(rows.q.shape, TERMINATED, mx.int32), state[:, 1:]], axis=1)
        return mx.where(moved, after, mx.where(stopped, ended, state))

    # inside; all of shape [rows, n], where n is 1 or the number of actions

    def _grammar(self, rows: _Rows) -> Any:
        return _at(self._array["state_grammar"], rows.q)

    def _may_end(self, rows: _Rows) -> Any:
        accepting = _at(self._array["accepting"], rows.q) != 0
        return (rows.q == ENDED) | (rows.sound & (rows.kept == 0) & accepting)

    def _values(self, rows: _Rows, action: Any) -> Any:
        """The value of each action at each row's state, ``DEAD_VALUE`` where it has none: a lower bound in the state's row."""
        array = self._array
        pattern = _at(array["state_pattern"], rows.q)
        past = _at(array["pattern_offsets"], pattern + 1)
        low = mx.broadcast_to(_at(array["pattern_offsets"], pattern), (rows.q.shape[0], action.shape[1]))
        high = past
        for _ in range(self.tables.longest_row.bit_length()):
            middle = (low + high) // 2
            less = (low < high) & (_at(array["pattern_actions"], middle) < action)
            low, high = mx.where(less, middle + 1, low), mx.where(less, high, middle)
        found = rows.sound & (low < past) & (_at(array["pattern_actions"], low) == action)
        value = _at(array["pattern_base"], low) + _at(array["pattern_follows"], low) * rows.q
        return mx.where(found, value, DEAD_VALUE)

    def _follow(self, rows: _Rows, value: Any) -> tuple[Any, Any]:
        """Pop as the values say: afterwards each is dead, ``ENDED``, a state or a MOVE record, and ``kept`` call sites are left."""
        array, states = self._array, self.tables.states
        kept = mx.broadcast_to(rows.kept, value.shape)
        for _ in range(self.tables.rounds):
            record = value - states
            kind, head = _at(array["record_kind"], record), _at(array["record_head"], record)
            leaving = (record >= 0) & (kind != MOVE)
            empty = kept == 0
            site = mx.take_along_axis(rows.stack, mx.clip(kept - 1, 0, CAPACITY - 1), axis=1)
            known = (site >= 0) & (site < self._sites)
            place = _at(array["record_leave"], record) + mx.where(known, site, 0)
            known = known & (place >= 0) & (place < array["landings"].shape[0])
            landed = mx.where(known, _at(array["landings"], place), DEAD_VALUE)
            at_end = mx.where((kind == POPPED) & (head == 0), ENDED, DEAD_VALUE)
            value = mx.where(leaving, mx.where(empty, at_end, landed), value)
            kept = mx.where(leaving & ~empty, kept - 1, kept)
        return value, kept

    def _pushed(self, value: Any) -> Any:
        """How many call sites a MOVE record pushes; 0 for other values."""
        record, offsets = value - self.tables.states, self._array["record_push_offsets"]
        return mx.where(record >= 0, _at(offsets, record + 1) - _at(offsets, record), 0)

    def _fits(self, value: Any, kept: Any) -> Any:
        """Whether a value leads somewhere, onto a stack that a state vector can hold."""
        return (value != DEAD_VALUE) & (kept + self._pushed(value) <= CAPACITY)

    def _after(self, rows: _Rows, value: Any, kept: Any) -> Any:
        """int32 ``[rows, 66]``: the state vectors that values ``[rows, 1]`` lead to; places above the stack are cleared."""
        record, count = value - self.tables.states, self._pushed(value)
        q = mx.where(record >= 0, _at(self._array["record_head"], record), value)
        place = mx.arange(CAPACITY, dtype=mx.int32)[None]
        above = _at(self._array["record_push_offsets"], record) + place - kept
        pushed = mx.where(place < kept + count, _at(self._array["record_pushes"], above), 0)
        return mx.concatenate([q, kept + count, mx.where(place < kept, rows.stack, pushed)], axis=1)
