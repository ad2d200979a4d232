"""Values and functions of token actions: what reading bytes does, interned, and one byte more.

In: a machine. Out: a growing algebra of *values* (what some bytes do from one state) and *functions* (states to values), closed on
demand under "read one more byte class". After ``resolve`` the memo ``following`` holds the function that follows each asked
pair. Cost: a gather per live entry of a pair; each distinct pair is computed once.

A value is ``move((), q)``, spelled ``q``, or a record ``states + i``:

    step(move(p, q), b)    = settle(p, q2) along q -b-> q2; settle(p + pushes, q2) through an enter edge; if q refuses b and may
                             end its rule (lazily): read b at the return state of p's last site, or exposed(e, identity) where p is empty
    step(popped(e), b)     = step(exposed(e, identity), b)
    step(exposed(e, f), b) = exposed(e, f then b)               dead if that function is dead on every return state of exit e
    settle(p, q)           = move(p, q), unless q is an end state of exit e: then popped(e) if p is empty,
                             else move(p[:-1], returns[p[-1]][e])

A function on the states of a machine is stored by its values at the states that are their own *default* (``defaults``), where it is alive,
and by its *exceptions*: the other states whose value is not their default's; -1 is a dead one. Reading on makes no exception, for
step(f(q)) = step(f(default(q))) where f(q) = f(default(q)), so exceptions only ever become fewer, and equal functions have equal rows.

Return states never end their rule (``verify_machine``), so one byte pops at most one site and ``settle`` never chains. An exposed record
only names functions made before it; hence a pair only ever waits for pairs of earlier functions, and ``resolve`` ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.defaults import default_states
from stcc.compiler.binding.interning import DEAD, MAX_ENTRIES, Functions, Records
from stcc.compiler.options import Deadline
from stcc.formats.binding import EXPOSED, POPPED
from stcc.formats.distinct import distinct
from stcc.formats.machine import Machine, end_states

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

DEAD_VALUE, UNKNOWN = -1, -2
_NONE: Int64 = np.zeros(0, np.int64)
_LONG = 1 << 9  # entries from which a function is composed by itself: 3.1 -> 1.7 s in all on 16,566 states with open objects
_CHUNK = 1 << 17  # entries composed at once: bounds the temporaries to some 4 MiB, which stay in the caches


class _Short(NamedTuple):
    """Pairs whose functions have few rows: those rows one after the other, the class of each, where each pair's end, the steps of their
    values, and where those were unknown."""

    pairs: Int64
    rows: Int32
    classes: Int64
    ends: Int64
    stepped: Int32
    places: npt.NDArray[np.intp]


class _Stepped(NamedTuple):
    """Pairs on their way: the steps (value * classes + class, distinct) that were unknown; pairs with long rows, each with the steps of its
    values and where those were unknown; the other pairs."""

    unknown: Int64
    long: list[tuple[int, Int32, npt.NDArray[np.intp]]]
    short: _Short | None = None


class Algebra:
    """The values and functions of one machine.

    Attributes:
        functions: interned functions.
        records: interned records; the value of record i is ``states + i``.
        following: int32 ``[capacity, classes]``, function x class -> function, -1 where not resolved yet. Replaced when it grows.
        identity: the function that reading nothing is.
        default: int32 ``[states]``, the default of each state.
        has_defaults: whether a state has another one than itself.
    """

    def __init__(self, machine: Machine, deadline: Deadline | None = None, max_entries: int = MAX_ENTRIES) -> None:
        self.machine, self.deadline = machine, deadline
        self.functions, self.records = Functions(max_entries), Records(machine.states)
        self.following: Int32 = np.full((64, machine.classes), -1, np.int32)
        self.following[DEAD] = DEAD
        self._states, self._classes = machine.states, machine.classes
        self._ends = end_states(machine)
        self._ends_or_dead = np.append(self._ends, False)  # -1 is dead
        self._lazy = np.append((machine.exits >= 0) & ~self._ends, False)
        self.default = default_states(machine)
        self._excepted: npt.NDArray[np.bool_] = self.default != np.arange(machine.states)
        self.has_defaults = bool(self._excepted.any())
        self._exceptions: dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = {}
        self._steps = self._plain_steps()
        self.identity = self._identity(np.flatnonzero(~self._ends))
        on_returns = [self._identity(distinct(column[column >= 0])) for column in machine.returns.T]
        self._on_returns: Int64 = np.array([*on_returns, DEAD], np.int64)  # behind the last exit: one that nobody returns from

    def _identity(self, states: npt.NDArray[np.intp]) -> int:
        rows = np.empty((len(states), 2), np.int32)
        rows[:] = states[:, None]
        return self._function(rows.tobytes())

    def _function(self, key: bytes) -> int:
        if self.deadline is not None:
            self.deadline.check()
        function = self.functions.intern(key)
        if function >= len(self.following):
            self.following = np.concatenate((self.following, np.full_like(self.following, -1)))
        return function

    def _leaving(self, kind: int, exit_: int, function: int = -1) -> int:
        """The value of a POPPED or EXPOSED record."""
        value = self._states + self.records.leaving(kind, exit_, function)
        self._make_room()
        return value

    def _make_room(self) -> None:
        """Let ``_steps`` have a column for every value, and one for dead."""
        width = self._steps.shape[1]
        if self._states + len(self.records) + 1 > width:
            wider = np.empty((self._classes, max(self._states + len(self.records) + 64, width + width // 2)), np.int32)
            wider[:, : width - 1] = self._steps[:, :-1]
            wider[:, width - 1: -1] = UNKNOWN
            wider[:, -1] = DEAD_VALUE
            self._steps = wider

    def _plain_steps(self) -> Int32:
        """Class x value -> value: plain states' steps by array operations, room for records behind them; the last column is dead's."""
        machine, ends = self.machine, self._ends
        room = 64 + len(machine.edge_target) + int(machine.exits.max(initial=0))
        fresh = UNKNOWN if machine.sites else DEAD_VALUE  # without a stack nothing is read after the end
        self._steps = np.full((self._classes, self._states + room), fresh, np.int32)
        self._steps[:, -1] = DEAD_VALUE
        landed = np.arange(self._states, dtype=np.int32)
        for exit_ in distinct(machine.exits[ends]).tolist():
            wanted = machine.sites or exit_ == 0  # without a stack the text would end through an exit that does not accept
            landed[ends & (machine.exits == exit_)] = self._leaving(POPPED, exit_) if wanted else DEAD_VALUE
        edges = np.arange(len(machine.edge_target), dtype=np.int32)
        entered = self._settle(self._pushed(np.zeros(len(edges), np.int32), edges), machine.edge_target)
        cells = np.concatenate((landed, entered, np.array([DEAD_VALUE], np.int32)))  # cell -1 is the last
        steps = self._steps
        steps[:, : self._states] = cells[machine.table.T]
        lazy = np.flatnonzero(self._lazy[:-1]) if machine.sites else np.zeros(0, np.intp)
        steps[:, lazy] = np.where(machine.table[lazy].T < 0, UNKNOWN, steps[:, lazy])
        return steps

    def finish(self, owned: list[int]) -> None:
        """Let go of all but the functions ``owned`` and those that records name, and of the memos: nothing more is asked."""
        self._steps = self.following = np.zeros((0, 0), np.int32)
        self.functions.keep({*owned, *self.records.function})

    # -- one byte more ------------------------------------------------------------------------------------------------------

    def resolve(self, pairs: Int64) -> None:
        """Fill ``following`` for pairs ``function * classes + class``, rising and distinct. Cost: their entries, once."""
        waiting: list[_Stepped | Int64] = [pairs]
        while waiting:
            part = waiting.pop()
            if isinstance(part, _Stepped):
                needed = self._fill_steps(part.unknown) if len(part.unknown) else _NONE
                if len(needed):
                    waiting += part, needed
                else:
                    self._compose(part)
                continue
            chunks = list(self._chunks(part[self.following.ravel()[part] < 0]))
            waiting += chunks[:0:-1]
            if chunks:
                waiting.append(self._step(chunks[0]))

    def _step(self, pairs: Int64) -> _Stepped:
        """The rows of the functions of ``pairs``, and the steps of their values as far as they are known."""
        is_long = self.functions.sizes(pairs // self._classes) >= _LONG
        unknown, long = [_NONE], []
        for pair in pairs[is_long].tolist():
            function, class_ = divmod(pair, self._classes)
            rows = self.functions.rows[function]
            stepped = self._steps[class_].take(rows[:, 1])  # of one class: a contiguous row, which stays in the cache
            places = np.flatnonzero(stepped == UNKNOWN) if stepped.min() == UNKNOWN else _NONE
            if len(places):
                unknown.append(rows[places, 1].astype(np.int64) * self._classes + class_)
            long.append((pair, stepped, places))
        pairs = pairs[~is_long]
        if not len(pairs):
            return _Stepped(distinct(np.concatenate(unknown)), long)
        rows, classes, ends = self._entries(pairs)
        stepped = self._cells(rows[:, 1], classes)
        places = np.flatnonzero(stepped == UNKNOWN)
        unknown.append(rows[places, 1].astype(np.int64) * self._classes + classes[places])
        return _Stepped(distinct(np.concatenate(unknown)), long, _Short(pairs, rows, classes, ends, stepped, places))

    def _compose(self, part: _Stepped) -> None:
        """Intern the functions that follow, now that all steps are known."""
        if self.deadline is not None:
            self.deadline.check_now()
        for pair, stepped, places in part.long:
            self._compose_long(pair, stepped, places)
        if part.short is not None:
            self._compose_short(part.short)

    def _compose_long(self, pair: int, stepped: Int32, places: npt.NDArray[np.intp]) -> None:
        """Intern the function that follows a pair whose values have these steps, those at ``places`` since then known."""
        function, class_ = divmod(pair, self._classes)
        rows = self.functions.rows[function]
        if len(places):
            stepped[places] = self._steps[class_].take(rows[places, 1])
        kept_ = stepped >= 0
        if self.has_defaults:
            exceptions, usual = self._exceptions_of(function)
            if len(exceptions):
                padded = np.empty(len(stepped) + 1, np.int32)
                padded[:-1], padded[-1] = stepped, DEAD_VALUE
                kept_[exceptions] = stepped.take(exceptions) != padded.take(usual)
        alive = kept_.nonzero()[0]
        kept = np.empty((len(alive), 2), np.int32)
        kept[:, 0] = rows[:, 0].take(alive)
        kept[:, 1] = stepped.take(alive)
        found = self._function(kept.tobytes())
        self.following[function, class_] = found

    def _exceptions_of(self, function: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Which rows of a function are exceptions, and which row is that of the default of each; one past the last where that is dead."""
        known = self._exceptions.get(function)
        if known is None:
            states = self.functions.rows[function][:, 0]
            exceptions = np.flatnonzero(self._excepted[states])
            wanted = self.default[states[exceptions]]
            places = np.minimum(states.searchsorted(wanted), len(states) - 1)
            known = self._exceptions[function] = exceptions, np.where(states[places] == wanted, places, len(states))
        return known

    def _chunks(self, pairs: Int64) -> Iterator[Int64]:
        """The pairs in pieces of about ``_CHUNK`` entries."""
        piece = np.cumsum(self.functions.sizes(pairs // self._classes), dtype=np.int64) // _CHUNK
        if not len(piece) or piece[0] == piece[-1]:
            yield from (pairs,) if len(pairs) else ()
            return
        yield from np.split(pairs, np.flatnonzero(np.diff(piece)) + 1)

    def _entries(self, pairs: Int64) -> tuple[Int32, Int64, Int64]:
        """Rows of the pairs' functions one after the other, each row's class, where each pair's rows end."""
        functions, classes = np.divmod(pairs, self._classes)
        parts = [self.functions.rows[function] for function in functions.tolist()]
        sizes = self.functions.sizes(functions)
        return np.concatenate(parts), np.repeat(classes, sizes), np.cumsum(sizes)

    def _compose_short(self, short: _Short) -> None:
        """``_compose_long`` for many pairs at once."""
        rows, stepped, ends, places = short.rows, short.stepped, short.ends, short.places
        stepped[places] = self._cells(rows[places, 1], short.classes[places])
        alive = np.flatnonzero(self._differ(rows[:, 0], stepped, ends) if self.has_defaults else stepped >= 0)
        kept = rows[alive]
        kept[:, 1] = stepped[alive]
        keys, low = kept.tobytes(), 0
        found = []
        known = self.functions.ids.get
        for high in (np.searchsorted(alive, ends) * 8).tolist():
            key = keys[low:high]
            number = known(key)  # nearly always
            found.append(self._function(key) if number is None else number)
            low = high
        self.following.ravel()[short.pairs] = found

    def _cells(self, values: Int32, classes: Int64) -> Int32:
        """The steps of values by classes; one gather from the flat table takes half the time of one by two indices."""
        cells: Int32 = self._steps.ravel().take(classes * self._steps.shape[1] + values)
        return cells

    def _differ(self, states: Int32, stepped: Int32, ends: Int64) -> npt.NDArray[np.bool_]:
        """Which entries of several functions' rows, each of which stops at its ``ends``, stay: those alive, of exceptions those that still
        differ from their default's value."""
        kept = stepped >= 0
        exceptions = np.flatnonzero(self._excepted[states])
        if len(exceptions):
            base = np.repeat(np.arange(len(ends), dtype=np.int64) * self._states, np.diff(ends, prepend=0))
            keys = base + states  # rising
            wanted = base[exceptions] + self.default[states[exceptions]]
            places = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
            usual = np.where(keys[places] == wanted, stepped[places], DEAD_VALUE)
            kept[exceptions] = stepped[exceptions] != usual
        return kept

    def _fill_steps(self, steps: Int64) -> Int64:
        """Compute the steps (value * classes + class), as far as possible; the pairs of earlier functions that the rest waits for."""
        if self.deadline is not None:
            self.deadline.check_now()
        values, classes = np.divmod(steps, self._classes)
        moves = self._are_moves(values)
        self._fill_moves(values[moves], classes[moves])
        return self._fill_ends(values[~moves], classes[~moves])

    def _are_moves(self, values: Int64) -> npt.NDArray[np.bool_]:
        """Whether each value is a MOVE record."""
        _, stacks, _ = self.records.columns()
        records = values - self._states
        return (records >= 0) & (stacks[np.maximum(records, 0)] > 0)

    def _fill_moves(self, values: Int64, classes: Int64) -> None:
        """Compute the steps of MOVE records by classes."""
        heads, stacks, _ = self.records.columns()
        stepped = self._step_moves(stacks[values - self._states], heads[values - self._states], classes)
        self._steps[classes, values] = stepped

    def _fill_ends(self, values: Int64, classes: Int64) -> Int64:
        """Compute steps of states that end their rule, POPPED and EXPOSED records, as far as the functions behind them are known.

        Returns the pairs that the others wait for.
        """
        heads, _, functions = self.records.columns()
        plain = values < self._states
        records = np.where(plain, 0, values - self._states)
        exits = np.where(plain, self.machine.exits[np.where(plain, values, 0)], heads[records])
        behind = np.where(plain, -1, functions[records])
        behind = np.where(behind < 0, self._on_returns[np.minimum(exits, len(self._on_returns) - 1)], behind)
        rests = self.following[behind, classes]
        stepped = np.full(len(values), DEAD_VALUE, np.int32)
        alive = np.flatnonzero(rests > DEAD)
        keys, place = np.unique(exits[alive] * np.int64(len(self.following)) + rests[alive], return_inverse=True)
        found = [self._leaving(EXPOSED, *divmod(key, len(self.following))) for key in keys.tolist()]
        stepped[alive] = np.array(found, np.int32)[place]
        known = rests >= 0
        self._steps[classes[known], values[known]] = stepped[known]
        return distinct(behind[~known] * self._classes + classes[~known])

    def _step_moves(self, stacks: Int32, states: Int32, classes: Int64) -> Int32:
        """The values of ``move(stacks, states)``, stacks not empty, after one byte of each of the classes."""
        cells = self.machine.table[states, classes]
        leaving = np.flatnonzero((cells < 0) & self._lazy[states])
        if len(leaving):
            stacks = stacks.copy()
            returned = self._returned(stacks[leaving], self.machine.exits[states[leaving]])
            stacks[leaving] = self.records.parents(stacks[leaving])
            cells[leaving] = np.where(returned >= 0, self.machine.table[returned, classes[leaving]], DEAD_VALUE)
        entering = np.flatnonzero(cells >= self._states)
        if len(entering):
            edges = cells[entering] - self._states
            stacks = stacks.copy()
            stacks[entering] = self._pushed(stacks[entering], edges)
            cells[entering] = self.machine.edge_target[edges]
        return self._settle(stacks, cells)

    def _returned(self, stacks: Int32, exits: npt.NDArray[np.int16]) -> Int32:
        """The states that follow the last site of each stack by each exit, -1 where none does."""
        states: Int32 = self.machine.returns[self.records.last_sites(stacks), exits]
        return states

    def _pushed(self, stacks: Int32, edges: Int32) -> Int32:
        """Each stack with the sites of each edge opened on it."""
        keys, place = np.unique(stacks.astype(np.int64) * max(1, len(self.machine.edge_target)) + edges, return_inverse=True)
        found = np.empty(len(keys), np.int32)
        for number, key in enumerate(keys.tolist()):
            stack, edge = divmod(key, len(self.machine.edge_target))
            for site in self.machine.pushes(edge):
                stack = self.records.push(stack, site)
            found[number] = stack
        return found[place]

    def _settle(self, stacks: Int32, states: Int32) -> Int32:
        """``move(stacks, states)``, returned from at once where a state is an end state; -1 is a dead state."""
        ended = self._ends_or_dead[states]
        values = states.copy()
        open_ = stacks > 0
        inner = np.flatnonzero(ended & open_)
        if len(inner):
            stacks = stacks.copy()
            values[inner] = self._returned(stacks[inner], self.machine.exits[states[inner]])
            stacks[inner] = self.records.parents(stacks[inner])
        outer = np.flatnonzero(ended & ~open_)
        for exit_ in distinct(self.machine.exits[states[outer]]).tolist():
            values[outer[self.machine.exits[states[outer]] == exit_]] = self._leaving(POPPED, exit_)
        moved = np.flatnonzero((stacks > 0) & (values >= 0))
        keys, place = np.unique(stacks[moved].astype(np.int64) * self._states + values[moved], return_inverse=True)
        values[moved] = np.array(self.records.moves(keys.tolist()), np.int32)[place] + np.int32(self._states)
        self._make_room()
        return values
