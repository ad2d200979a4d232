"""Token budgets: what finishing costs from any configuration, so that every mask keeps a valid ending in reach.

In: a ``Binding`` (its ``need_*`` sections) and a ``Machine``. Out: ``Needs``: the fewest tokens that finish from a configuration, and
through each live action of a state. With ``r`` tokens left a token may be allowed if and only if ``1 + need(after it) <= r`` (Theorem
21); stop tokens are free. After it: under such masks every output that starts with ``need <= r`` ends valid, whatever the model picks.

A *cost row* says what finishing costs from a value on some stack level, as a function of that level: entry ``c`` of the first columns is
the fewest tokens up to leaving the level by record ``c`` (POPPED or EXPOSED), the last column the fewest up to an end inside it, which
counts only on the empty stack. A level holds one vector ``F`` over the same columns, what remains after each, and the cost is ``min(row
+ F)``:

    row(state q)        = need_leave[q] at the columns of need_kinds, need_finish[q] in the last
    row(record)         = 0 at its own column, for POPPED and EXPOSED
    row(MOVE(p, q))     = row(q) carried through the landings at the pushed sites, innermost first
    F(empty stack)      = 0 for POPPED(0) and the last column
    F(stack + s)[k]     = min(row(landing of k at s) + F(stack))

A landing may itself be a MOVE that pushes again (the token ``},{`` closes one item and opens the next), so rows of MOVE records are a least
fixpoint; costs are positive, so it exists and rounds reach it. It is computed for the records met, never for all.

Cost: a vector once per level, a few microseconds; a state's costs once per level; afterwards a comparison per live action and step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE
from stcc.runtime.stack import Level

if TYPE_CHECKING:
    from stcc.formats.machine import Machine
    from stcc.runtime.masks import Masks

Int32 = npt.NDArray[np.int32]


class Needs:
    """Costs of finishing, for one bound machine; shared by its matchers. Filled on demand with values that depend on their key alone."""

    def __init__(self, machine: Machine, masks: Masks) -> None:
        self._machine, self._masks, self._binding = machine, masks, masks.binding
        binding, self._states = masks.binding, masks.states
        leaving = np.flatnonzero(binding.record_kind != MOVE)
        self._leaving = leaving.astype(np.int32)
        self._column = np.full(len(binding.record_kind), -1, np.int32)
        self._column[leaving] = np.arange(len(leaving), dtype=np.int32)
        self._last = len(leaving)
        self._listed = self._column[binding.need_kinds]
        self._landed: dict[int, Int32] = {}
        self._moves: dict[int, Int32] = {}
        ends = np.full(self._last + 1, UNREACHABLE, np.int32)
        ends[self._last] = 0
        ends[self._column[leaving[(binding.record_kind[leaving] == POPPED) & (binding.record_head[leaving] == 0)]]] = 0
        self._ends = ends

    def need(self, state: int, level: Level) -> int:
        """Fewest tokens that finish a valid output from a configuration; 0 where it may end, ``UNREACHABLE`` where nothing does."""
        if state < 0:
            return 0
        known = level.needs.get(state)
        if known is None:
            known = level.needs[state] = int(self._costs(np.array([state], np.int32), self.vector(level))[0])
        return known

    def live_costs(self, state: int, level: Level) -> tuple[Int32, int]:
        """Tokens to finish through each live action of ``state``, itself included, and the greatest of those that the stack leaves alive.

        int32 ``[entries]``, in the order of ``Masks.live``; above ``UNREACHABLE`` where the stack makes the action dead, or where the
        vocabulary cannot spell any ending.
        """
        known = level.costs.get(state)
        if known is None:
            costs = 1 + self._costs(self._masks.live(state)[1], self.vector(level))
            finite = costs[costs < UNREACHABLE]
            all_finish = len(finite) == len(self._masks.alive(state, level))
            known = level.costs[state] = (costs, int(finite.max(initial=0)) if all_finish else UNREACHABLE)
        return known

    def vector(self, level: Level) -> Int32:
        """``F`` of a level: fewest tokens to finish after leaving it by each column. int32 ``[columns]``."""
        if level.finish is not None:
            return level.finish
        pending = []
        while level.finish is None and level.site >= 0:
            pending.append(level)
            level = level.below
        vector = self._ends if level.finish is None else level.finish
        level.finish = vector
        for above in reversed(pending):
            landed = self._costs(self._landings(above.site), vector)
            vector = np.append(landed, np.int32(UNREACHABLE))
            above.finish = vector
        return vector

    def _costs(self, values: Int32, vector: Int32) -> Int32:
        """Cost of finishing from each value on a level whose ``F`` is ``vector``. int32, one a value; -1 values cost ``UNREACHABLE``."""
        costs = np.full(len(values), UNREACHABLE, np.int32)
        states = np.flatnonzero((values >= 0) & (values < self._states))
        if len(states):
            at = values[states]
            found = self._binding.need_finish[at] + vector[self._last]
            if len(self._listed):
                np.minimum(found, (self._binding.need_leave[at] + vector[self._listed]).min(axis=1), out=found)
            costs[states] = found
        for place in np.flatnonzero(values >= self._states).tolist():
            record = int(values[place]) - self._states
            column = self._column[record]
            costs[place] = vector[column] if column >= 0 else (self._move_row(record) + vector).min()
        return np.minimum(costs, UNREACHABLE, out=costs)

    def _landings(self, site: int) -> Int32:
        """Where each leaving record lands at ``site``: a value on the level below, or -1. int32 ``[columns - 1]``."""
        known = self._landed.get(site)
        if known is None:
            binding, returns = self._binding, self._machine.returns
            known = np.full(self._last, -1, np.int32)
            for column, record in enumerate(self._leaving.tolist()):
                state = int(returns[site, binding.record_head[record]])
                if state >= 0 and binding.record_kind[record] == EXPOSED:
                    state = self._masks.suffix_value(int(binding.record_function[record]), state)
                known[column] = state
            self._landed[site] = known
        return known

    # rows of MOVE records

    def _move_row(self, record: int) -> Int32:
        """The cost row of a MOVE record, int32 ``[columns]``."""
        row = self._moves.get(record)
        if row is None:
            rows = self._fixpoint(self._reached(record))
            self._moves.update(rows)
            row = rows[record]
        return row

    def _pushes(self, record: int) -> list[int]:
        low, high = self._binding.record_push_offsets[record], self._binding.record_push_offsets[record + 1]
        sites: list[int] = self._binding.record_pushes[low:high].tolist()
        return sites

    def _reached(self, record: int) -> list[int]:
        """The MOVE records whose rows the row of ``record`` depends on, itself first, without those already known."""
        found = {record: None}
        pending = [record]
        while pending:
            for site in self._pushes(pending.pop()):
                landed = self._landings(site)
                for other in (landed[landed >= self._states] - self._states).tolist():
                    if self._column[other] < 0 and other not in found and other not in self._moves:
                        found[other] = None
                        pending.append(other)
        return list(found)

    def _fixpoint(self, records: list[int]) -> dict[int, Int32]:
        rows = {record: np.full(self._last + 1, UNREACHABLE, np.int32) for record in records}
        changed = True
        while changed:
            changed = False
            for record in records:
                row = self._carried(record, rows)
                if (row < rows[record]).any():
                    rows[record], changed = row, True
        return rows

    def _carried(self, record: int, rows: dict[int, Int32]) -> Int32:
        row = self._row(int(self._binding.record_head[record]), rows)
        for site in reversed(self._pushes(record)):
            landed = self._landings(site)
            leaving = np.flatnonzero((row[: self._last] < UNREACHABLE) & (landed >= 0))
            carried = np.full(self._last + 1, UNREACHABLE, np.int32)
            for column in leaving.tolist():
                np.minimum(carried, row[column] + self._row(int(landed[column]), rows), out=carried)
            row = carried
        return row

    def _row(self, value: int, rows: dict[int, Int32]) -> Int32:
        row = np.full(self._last + 1, UNREACHABLE, np.int32)
        if value < self._states:
            row[self._listed] = self._binding.need_leave[value]
            row[self._last] = self._binding.need_finish[value]
        elif self._column[value - self._states] >= 0:
            row[self._column[value - self._states]] = 0
        else:
            row = rows.get(value - self._states, self._moves.get(value - self._states, row))
        return row
