"""Byte needs: the fewest bytes that finish a valid output, from any configuration of one machine.

In: a machine's ``Stacks``. They are the token needs of ``stcc.runtime.budget`` with single bytes for tokens (Proposition 2 of the few-path
paper, made exact for several exits): ``leave[q, e]`` is the fewest bytes from ``q`` to a state that may end its rule through exit ``e``;
the last column counts to a state where the output may end. A stack level holds the fewest bytes that finish after leaving it by each
exit. They are exact where a state that returns lazily and the return state share no byte, as in every compiled machine (the L(1)
conditions). Cost: a backward search over the table, a few milliseconds for a thousand states, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE
from stcc.formats.machine import end_states
from stcc.runtime.stack import Level, Stacks
from stcc.runtime.token_sets import expand

if TYPE_CHECKING:
    from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]


class ByteNeeds:
    """Fewest bytes that finish a valid output, from any configuration of one machine."""

    def __init__(self, stacks: Stacks) -> None:
        self._machine = stacks.machine
        self._exits = max(1, self._machine.returns.shape[1], int(self._machine.exits.max(initial=-1)) + 1)
        self._leave = self._search()
        self._ends = np.full(self._exits + 1, UNREACHABLE, np.int32)
        self._ends[self._exits] = 0
        self._vectors: dict[Level, Int32] = {}

    def need(self, state: int, level: Level) -> int:
        """Fewest bytes that finish from a configuration."""
        if state < 0:
            return 0
        vector = self._vector(level)
        return int((self._leave[state] + vector).min())

    def _vector(self, level: Level) -> Int32:
        pending = []
        while level not in self._vectors and level.site >= 0:
            pending.append(level)
            level = level.below
        vector = self._vectors.get(level, self._ends)
        for above in reversed(pending):
            vector = self._vectors[above] = self._after(above.site, vector)
        return vector

    def _after(self, site: int, vector: Int32) -> Int32:
        """Bytes to finish after leaving a level pushed by ``site`` through each exit, if ``vector`` is the level below's."""
        landed = self._machine.returns[site]
        costs = np.full(self._exits + 1, UNREACHABLE, np.int32)
        taken = np.flatnonzero(landed >= 0)
        costs[taken] = np.minimum((self._leave[landed[taken]] + vector).min(axis=1), UNREACHABLE)
        return costs

    def _search(self) -> Int32:
        """Least fixpoint of ``leave``, by rounds that look again only at states that may have improved. int32 ``[states, exits + 1]``."""
        machine = self._machine
        leave = np.full((machine.states, self._exits + 1), UNREACHABLE, np.int32)
        ending = np.flatnonzero(machine.exits >= 0)
        leave[ending, machine.exits[ending]] = 0
        leave[np.where(end_states(machine), machine.exits == 0, machine.accepting), self._exits] = 0
        source, target, edge = _edges(machine)
        by_source = np.searchsorted(source, np.arange(machine.states + 1))
        users, uses = _dependencies(machine, source, target, edge)
        changed = np.flatnonzero((leave < UNREACHABLE).any(axis=1))
        while len(changed):
            low = np.searchsorted(uses, changed)
            again = np.unique(users[expand(low, np.searchsorted(uses, changed, "right") - low)])
            counts = by_source[again + 1] - by_source[again]
            again, counts = again[counts > 0], counts[counts > 0]
            if not len(again):
                break
            found = self._relaxed(leave, target, edge, expand(by_source[again], counts))
            best = np.minimum.reduceat(found, np.cumsum(counts) - counts, axis=0)
            np.minimum(best, leave[again], out=best)
            better = (best < leave[again]).any(axis=1)
            changed = np.asarray(again[better], np.intp)
            leave[changed] = best[better]
        return leave

    def _relaxed(self, leave: Int32, target: Int32, edge: Int32, chosen: npt.NDArray[np.intp]) -> Int32:
        """What leaving costs through each chosen edge. int32 ``[chosen, exits + 1]``."""
        costs = leave[target[chosen]] + 1
        for place in np.flatnonzero(edge[chosen] >= 0).tolist():
            row = leave[target[chosen[place]]]
            for site in reversed(self._machine.pushes(int(edge[chosen[place]]))):
                landed = self._machine.returns[site]
                taken = np.flatnonzero((landed >= 0) & (row[: len(landed)] < UNREACHABLE))
                outer = np.full(self._exits + 1, UNREACHABLE, np.int32)
                if len(taken):
                    outer = np.minimum((row[taken, None] + leave[landed[taken]]).min(axis=0), UNREACHABLE)
                row = outer
            costs[place] = row + 1
        return np.minimum(costs, UNREACHABLE)


def _edges(machine: Machine) -> tuple[Int32, Int32, Int32]:
    """The distinct edges, by source: source, target (the callee's state for an enter edge), enter edge or -1."""
    source, column = np.nonzero(machine.table >= 0)
    cell = machine.table[source, column]
    pairs = np.unique(np.stack([source, cell], axis=1), axis=0) if len(source) else np.zeros((0, 2), np.intp)
    cell = pairs[:, 1].astype(np.int32)
    edge = np.where(cell >= machine.states, cell - machine.states, -1).astype(np.int32)
    target = cell.copy()
    target[edge >= 0] = machine.edge_target[edge[edge >= 0]]
    return pairs[:, 0].astype(np.int32), target, edge


def _dependencies(machine: Machine, source: Int32, target: Int32, edge: Int32) -> tuple[Int32, Int32]:
    """Pairs "the row of ``users`` is computed from the row of ``uses``", sorted by ``uses``."""
    calls = np.flatnonzero(edge >= 0)
    counts = np.diff(machine.edge_push_offsets)[edge[calls]]
    sites = machine.edge_pushes[expand(machine.edge_push_offsets[edge[calls]], counts)]
    landed = machine.returns[sites]
    caller = np.repeat(np.repeat(source[calls], counts), landed.shape[1])
    users = np.concatenate([source, caller[landed.ravel() >= 0]])
    uses = np.concatenate([target, landed.ravel()[landed.ravel() >= 0]])
    order = np.argsort(uses, kind="stable")
    return users[order], uses[order]
