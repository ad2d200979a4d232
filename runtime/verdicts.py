"""Verdicts: which of the values that leave a rule are alive on a stack, for all of them at once.

In: a ``Binding`` and its ``Machine``. Out: for every stack level its ``Verdicts``: one Boolean a *leaving* record (POPPED or EXPOSED).
What a record does on a level depends on the site that pushed it and, where the token closes more than one rule, on the verdicts below:

    landing of record r at site s        a state, or a MOVE: alive         dead: dead
                                         another leaving record r2: what the level below says of r2

So the vector of a level is one gather from the vector below, with an index row that belongs to the site. Levels with equal vectors
share one ``Verdicts`` object: any JSON, nested at random to depth 13, has five. A mask depends on the state and that object only.

Cost: a gather of (leaving records) Booleans for each pair of (verdicts below, site), once; some 20 us for each site, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import EXPOSED, MOVE, POPPED

if TYPE_CHECKING:
    from stcc.formats.binding import Binding
    from stcc.formats.machine import Machine
    from stcc.runtime.stack import Level

Index = npt.NDArray[np.intp]

MOST_SHARED = 1 << 12
"""Distinct vectors kept for sharing; past it levels still work, with an object of their own."""


class Verdicts:
    """The verdicts of one or more levels.

    Attributes:
        alive: bool ``[leaving + 2]``: of each leaving record, then False (dead whatever the stack), then True.
        above: site -> verdicts of the level that it pushes on this one.
        keys: state -> number of its mask row on such a level; filled by ``Masks``.
    """

    __slots__ = ("above", "alive", "keys")

    def __init__(self, alive: npt.NDArray[np.bool_]) -> None:
        self.alive = alive
        self.above: dict[int, Verdicts] = {}
        self.keys: dict[int, int] = {}


class VerdictTable:
    """The verdicts of all levels of one bound machine.

    Attributes:
        leaving: number of POPPED and EXPOSED records.
        column: intp ``[states + records]``, place in ``Verdicts.alive`` of each value: a leaving record's own, else the last.
        bottom: the verdicts of the empty stack.
    """

    __slots__ = ("_columns", "_exposed", "_functions", "_heads", "_machine", "_shared", "_suffix_keys", "_suffix_values", "bottom",
                 "column", "leaving")

    def __init__(self, binding: Binding, machine: Machine) -> None:
        kind, states = binding.record_kind, machine.states
        leaving = np.flatnonzero(kind != MOVE)
        self._machine, self.leaving = machine, len(leaving)
        self.column = np.full(states + len(kind), self.leaving + 1, np.intp)
        self.column[states + leaving] = np.arange(self.leaving)
        self._heads = binding.record_head[leaving]
        self._exposed = np.flatnonzero(kind[leaving] == EXPOSED)
        self._functions = binding.record_function[leaving][self._exposed].astype(np.int64)
        functions = np.arange(len(binding.suffix_offsets) - 1, dtype=np.int64)
        # functions one after the other and states rising within each: the keys rise
        self._suffix_keys = functions.repeat(np.diff(binding.suffix_offsets)) * states + binding.suffix_states
        self._suffix_values = binding.suffix_values
        self._columns: dict[int, Index] = {}
        self._shared: dict[bytes, Verdicts] = {}
        alive = np.zeros(self.leaving + 2, np.bool_)
        alive[-1] = True
        alive[:-2] = (kind[leaving] == POPPED) & (self._heads == 0)  # the text ends with the token
        self.bottom = Verdicts(alive)

    def of(self, level: Level) -> Verdicts:
        """The verdicts of ``level``, kept with it."""
        pending = []
        while level.verdicts is None and level.site >= 0:
            pending.append(level)
            level = level.below
        found = level.verdicts
        if found is None:
            found = level.verdicts = self.bottom
            level.keys = found.keys
        for above in reversed(pending):
            found = self.pushed(found, above.site)
            above.verdicts, above.keys = found, found.keys
        return found

    def pushed(self, below: Verdicts, site: int) -> Verdicts:
        """The verdicts of the level that ``site`` pushes on one with verdicts ``below``."""
        found = below.above.get(site)
        if found is None:
            columns = self._columns.get(site)
            if columns is None:
                columns = self._columns[site] = self._landing_columns(site)
            alive = below.alive[columns]
            key = alive.tobytes()
            found = self._shared.get(key)
            if found is None:
                found = Verdicts(alive)
                if len(self._shared) < MOST_SHARED:
                    found = self._shared.setdefault(key, found)
            below.above[site] = found
        return found

    def _landing_columns(self, site: int) -> Index:
        """intp ``[leaving + 2]``: where in the vector below the verdict of each record on a level of ``site`` stands."""
        landed = self._machine.returns[site][self._heads]
        exposed, states = self._exposed, self._machine.states
        if len(exposed):
            keys = self._functions * states + landed[exposed]
            places = self._suffix_keys.searchsorted(keys)
            np.minimum(places, max(len(self._suffix_keys) - 1, 0), out=places)
            read = np.full(len(exposed), -1, np.int32)
            if len(self._suffix_keys):
                known = (self._suffix_keys[places] == keys) & (landed[exposed] >= 0)
                read[known] = self._suffix_values[places[known]]
            landed[exposed] = read
        columns = np.empty(self.leaving + 2, np.intp)
        columns[-2:] = self.leaving, self.leaving + 1
        columns[:-2] = np.where(landed >= 0, self.column[landed], self.leaving)
        return columns
