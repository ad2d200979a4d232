"""Mask rows of one bound machine: which tokens may follow in a configuration, packed.

In: a ``Binding``, the ``TokenSets`` of its vocabulary and the machine's ``Stacks``. Out: rows, int32 ``[words]``, shared by all matchers
of a grammar and kept by number up to a byte budget.

A state's live actions either live whatever the stack says (moves) or depend on it (records POPPED and EXPOSED); of those the level's
``Verdicts`` say which are alive. What is left, and whether the output may end, decides the row, and names it: states that admit the same
actions share one. A repeated row costs two dictionary look-ups and a copy.

A fresh row is made from the tokens of its actions (``ActionTokens``, 5-60 us). ``warm`` makes the rows of all states beforehand
(``WarmRows``); what is left to do then, where a state meets a stack for the first time, is to add the few tokens of its leaving actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.row_patterns import layered_rows
from stcc.runtime.action_tokens import ActionRuns, ActionTokens
from stcc.runtime.stack import Level, Stacks
from stcc.runtime.token_sets import Row, TokenSets
from stcc.runtime.transitions import Transitions
from stcc.runtime.verdicts import Verdicts, VerdictTable
from stcc.runtime.warm_rows import MOST_BYTES, WarmRows, make_warm_rows

if TYPE_CHECKING:
    from stcc.formats.binding import Binding

Int32 = npt.NDArray[np.int32]
Entry = tuple[Int32, bool]

ROW_BYTES = 64 << 20
"""Bytes of rows kept."""
MOST_KEYS = 1 << 18
WARM_STATES = 1 << 12
"""States whose row on the empty stack is made beforehand."""
WARM_VERDICTS = 8
"""Kinds of stacks, by what they allow, whose rows are made beforehand."""
WARM_SITES = 32
"""Call sites from which those stacks are built."""
_NONE = np.zeros(0, np.int32)


class Masks:
    """Rows by configuration; one for all matchers of a grammar.

    ``rows`` is public because a matcher's hot path reads it itself: a call would double its cost.

    Attributes:
        binding: the binding.
        stacks: the machine's stacks.
        sets: the vocabulary's token sets.
        states: number of machine states; a value from there on is a record.
        transitions: token transitions.
        rows: number -> (row, whether it masks anything); a level's ``keys`` holds the number of each state seen on it.
    """

    def __init__(self, binding: Binding, stacks: Stacks, sets: TokenSets) -> None:
        self.binding, self.stacks, self.sets = binding, stacks, sets
        self.states = stacks.machine.states
        self.rows: dict[int, Entry] = {}
        self._runs = ActionRuns(binding, sets)
        self.transitions = Transitions(binding, stacks, sets)
        self.value, self.land, self.suffix_value = self.transitions.value, self.transitions.land, self.transitions.suffix_value
        self.patterns = layered_rows(binding)
        self.live = self.patterns.live
        self.verdicts = VerdictTable(binding, stacks.machine)
        self._warm: WarmRows | None = None
        self._contents: dict[Hashable, int] = {}
        self._most_rows = max(16, ROW_BYTES // (4 * sets.words))
        self._numbers = itertools.count()
        self._kept = 0
        self._last_word = np.int32(-1 if sets.size % 32 == 0 else (1 << sets.size % 32) - 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held. It grows with the states met, up to ``ROW_BYTES`` and the rows made beforehand."""
        beforehand = len(self._warm.rows) if self._warm is not None else 0
        return 4 * self.sets.words * (len(self.rows) + beforehand)

    @cached_property
    def tokens(self) -> ActionTokens:
        """The tokens of the actions."""
        return ActionTokens(self._runs)

    def row(self, state: int, level: Level) -> Entry:
        """The row of a configuration, and whether it masks anything. int32 ``[words]``, shared: not to be written to."""
        key = level.keys.get(state)
        entry = None if key is None else self.rows.get(key)
        return self._find(state, level) if entry is None else entry

    def _find(self, state: int, level: Level) -> Entry:
        verdicts = level.verdicts or self.verdicts.of(level)
        may_end = state == -1 or (state >= 0 and verdicts is self.verdicts.bottom and self.stacks.ends[state] != 0)
        warm = self._warm
        if warm is not None and state >= 0 and warm.shape[state] >= 0:
            return self._find_warm(warm, state, verdicts, may_end)
        actions = self._alive(state, verdicts)
        key = self._number(actions.tobytes() + (b"$" if may_end else b""), state, verdicts)  # four bytes an action: unambiguous
        entry = self.rows.get(key)
        return self._keep(key, self.joined(actions, may_end)) if entry is None else entry

    def _find_warm(self, warm: WarmRows, state: int, verdicts: Verdicts, may_end: bool) -> Entry:
        """The row of a state whose row without leaving actions is at hand."""
        shape = warm.shape[state]
        leaving = warm.leaving[shape]
        if leaving is None:
            key = self._number((shape, may_end), state, verdicts)
        else:
            alive = verdicts.alive[leaving.columns]
            key = self._number((shape, may_end, alive.tobytes()), state, verdicts)
        entry = self.rows.get(key)
        if entry is None:
            row = warm.rows[shape]
            if leaving is not None and alive.any():
                row = row.copy()
                chosen = alive[leaving.which]
                np.add.at(row, leaving.words[chosen], leaving.bits[chosen])
            entry = self._keep(key, row | self.sets.stops if may_end else row)
        return entry

    def _number(self, content: Hashable, state: int, verdicts: Verdicts) -> int:
        """The number of the row that ``content`` names, remembered for the state."""
        key = self._contents.get(content)
        if key is None:
            # numbers are never used twice, so a level that remembers a forgotten one finds no row and comes back here; two threads that
            # meet here agree on one (a counter's next and setdefault are each one step under the interpreter lock)
            key = self._contents.setdefault(content, next(self._numbers))
        if self._kept < MOST_KEYS:
            self._kept += 1
            verdicts.keys[state] = key
        return key

    def _keep(self, key: int, row: Row) -> Entry:
        whole = row[-1] == self._last_word and bool((row[:-1] == -1).all())
        if len(self.rows) >= self._most_rows:
            for old in list(self.rows)[: self._most_rows // 2]:
                self.rows.pop(old, None)
            self._contents = {content: number for content, number in list(self._contents.items()) if number in self.rows}
        entry = self.rows[key] = (row, not whole)
        return entry

    def alive(self, state: int, level: Level) -> Int32:
        """The actions that lead somewhere from a configuration, rising. int32."""
        return self._alive(state, level.verdicts or self.verdicts.of(level))

    def _alive(self, state: int, verdicts: Verdicts) -> Int32:
        if state < 0:
            return _NONE
        actions, values = self.live(state)
        alive = verdicts.alive[self.verdicts.column[values]]
        return actions if alive.all() else actions[alive]

    def joined(self, actions: Int32, may_end: bool) -> Row:
        """The row of some actions' tokens, with the stop tokens where the output may end. int32 ``[words]``, not to be written to."""
        # the first row is read off the runs: most of opening a file for one mask would be making the tokens of all actions
        row = self.tokens.union(actions) if self.rows else self._runs.union(actions)
        return row | self.sets.stops if may_end else row

    # beforehand

    def warm(self) -> None:
        """Make the rows of all states beforehand, as far as the budgets of ``warm_rows`` reach: the states met first come first.

        Where rows depend on the stack, for the stacks of up to ``WARM_VERDICTS`` kinds too, as long as there is room for rows.
        """
        if self._warm is not None:
            return
        self.transitions.warm()
        warm = self._warm = make_warm_rows(self.patterns, self.verdicts, self.tokens, self.sets)
        if min(warm.shape, default=0) < 0:  # the rows of some states are made when they are met
            self.tokens.prepare()
        bottom = self.verdicts.of(self.stacks.bottom)
        room = max(MOST_BYTES // (4 * self.sets.words), 1)
        for state, shape in enumerate(warm.shape[:WARM_STATES]):
            if shape >= 0 and len(self.rows) < room:
                self._find_warm(warm, state, bottom, self.stacks.ends[state] != 0)
        shapes = [(state, warm.shape[state]) for state in warm.leaving_states]
        columns = [leaving.columns for _, shape in shapes if (leaving := warm.leaving[shape]) is not None]
        bounds = np.cumsum([0, *map(len, columns)]).tolist()
        gathered = np.concatenate([np.zeros(0, np.intp), *columns])
        for verdicts in self._nearest_verdicts(bottom):
            alive = verdicts.alive[gathered].tobytes()  # of all shapes at once: most of them have met these verdicts before
            for (state, shape), low, high in zip(shapes, bounds, bounds[1:], strict=False):
                if (shape, False, alive[low:high]) in self._contents:
                    continue
                if len(self.rows) >= room:
                    return
                self._find_warm(warm, state, verdicts, False)

    def _nearest_verdicts(self, bottom: Verdicts) -> list[Verdicts]:
        """The verdicts of the shallowest stacks, breadth first."""
        sites = range(min(self.stacks.machine.sites, WARM_SITES))
        found = [bottom]
        known = {bottom}
        for below in found:  # grows while it is walked
            for site in sites if len(found) <= WARM_VERDICTS else ():
                above = self.verdicts.pushed(below, site)
                if above not in known:
                    known.add(above)
                    found.append(above)
        return found[1:WARM_VERDICTS + 1]
