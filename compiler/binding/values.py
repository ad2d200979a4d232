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

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.defaults import default_states
from stcc.compiler.binding.interning import DEAD, MAX_ENTRIES, Functions, Records
from stcc.compiler.options import Deadline
from stcc.formats.binding import EXPOSED, MOVE, POPPED
from stcc.formats.machine import Machine, end_states

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

DEAD_VALUE, UNKNOWN = -1, -2
_LONG = 1 << 9  # entries from which a function is composed by itself: 3.1 -> 1.7 s in all on 16,566 states with open objects
_CHUNK = 1 << 20  # entries composed at once: bounds the temporaries to some 32 MiB


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
        self._lazy = np.append((machine.exits >= 0) & ~self._ends, False)  # -1 is dead
        self.default = default_states(machine)
        self._excepted: npt.NDArray[np.bool_] = self.default != np.arange(machine.states)
        self.has_defaults = bool(self._excepted.any())
        self._stepped: Int32 = np.full(machine.states, DEAD_VALUE, np.int32)  # scratch: all dead between uses
        self._waits: npt.NDArray[np.int8] = np.full(64, -1, np.int8)  # of each function, -1 where not looked at yet
        self._returns: list[list[int]] = machine.returns.tolist()
        self._steps = self._plain_steps()
        self.identity = self._identity(np.flatnonzero(~self._ends))
        on_returns = [self._identity(np.unique(column[column >= 0])) for column in machine.returns.T]
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

    def _moved(self, pushes: tuple[int, ...], state: int) -> int:
        """The value of ``move(pushes, state)``."""
        if not pushes:
            return state
        value = self._states + self.records.move(pushes, state)
        self._make_room()
        return value

    def _make_room(self) -> None:
        """Let ``_steps`` have a column for every value, and one for dead."""
        missing = self._states + len(self.records) + 1 - self._steps.shape[1]
        if missing > 0:
            more = np.full((self._classes, max(missing, 64, self._steps.shape[1] // 4)), UNKNOWN, np.int32)
            self._steps = np.concatenate((self._steps[:, :-1], more, self._steps[:, -1:]), axis=1)

    def _plain_steps(self) -> Int32:
        """Class x value -> value: plain states' steps by array operations, room for records behind them; the last column is dead's."""
        machine, ends = self.machine, self._ends
        room = 64 + len(machine.edge_target) + int(machine.exits.max(initial=0))
        fresh = UNKNOWN if machine.sites else DEAD_VALUE  # without a stack nothing is read after the end
        self._steps = np.full((self._classes, self._states + room), fresh, np.int32)
        self._steps[:, -1] = DEAD_VALUE
        landed = np.arange(self._states, dtype=np.int32)
        for exit_ in np.unique(machine.exits[ends]).tolist():
            wanted = machine.sites or exit_ == 0  # without a stack the text would end through an exit that does not accept
            landed[ends & (machine.exits == exit_)] = self._leaving(POPPED, exit_) if wanted else DEAD_VALUE
        entered = [self._settle(machine.pushes(edge), int(target)) for edge, target in enumerate(machine.edge_target)]
        cells = np.concatenate((landed, np.array(entered, np.int32), np.array([DEAD_VALUE], np.int32)))  # cell -1 is the last
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
        waiting = [pairs]
        while waiting:
            pairs = waiting[-1]
            pairs = pairs[self.following.ravel()[pairs] < 0]
            needed = self._fill_steps(pairs) if len(pairs) and self.machine.sites else pairs[:0]
            if len(needed):
                waiting.append(needed)
                continue
            waiting.pop()
            long = self._are_long(pairs)
            for pair in pairs[long].tolist():
                self._compose_long(pair)
            for chunk in self._chunks(pairs[~long]):
                self._compose(chunk)

    def _are_long(self, pairs: Int64) -> npt.NDArray[np.bool_]:
        """Whether each pair's function is worth a gather of its own."""
        return self.functions.sizes(pairs // self._classes) >= _LONG

    def _compose_long(self, pair: int) -> None:
        """As ``_compose`` for one pair: its class's steps are one contiguous row, which stays in the cache."""
        function, class_ = divmod(pair, self._classes)
        rows = self.functions.rows[function]
        stepped = self._steps[class_].take(rows[:, 1])
        alive = np.flatnonzero(self._differ_in_one(rows[:, 0], stepped) if self.has_defaults else stepped >= 0)
        kept = np.empty((len(alive), 2), np.int32)
        kept[:, 0] = rows[:, 0].take(alive)
        kept[:, 1] = stepped.take(alive)
        found = self._function(kept.tobytes())
        self.following[function, class_] = found

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

    def _compose(self, pairs: Int64) -> None:
        """Intern the functions that follow ``pairs``, all of whose value steps are known."""
        rows, classes, ends = self._entries(pairs)
        stepped = self._cells(rows[:, 1], classes)
        alive = np.flatnonzero(self._differ(rows[:, 0], stepped, ends) if self.has_defaults else stepped >= 0)
        kept = rows[alive]
        kept[:, 1] = stepped[alive]
        ends = (np.searchsorted(alive, ends) * 8).tolist()
        keys, low = kept.tobytes(), 0
        found = []
        known = self.functions.ids.get
        if self.deadline is not None:
            self.deadline.check_now()
        for high in ends:
            key = keys[low:high]
            number = known(key)  # nearly always
            found.append(self._function(key) if number is None else number)
            low = high
        self.following.ravel()[pairs] = found

    def _cells(self, values: Int32, classes: Int64) -> Int32:
        """The steps of values by classes; one gather from the flat table takes half the time of one by two indices."""
        cells: Int32 = self._steps.ravel().take(classes * self._steps.shape[1] + values)
        return cells

    def _differ_in_one(self, states: Int32, stepped: Int32) -> npt.NDArray[np.bool_]:
        """Which entries of one function's rows stay: those alive, of exceptions those that still differ from their default's value."""
        kept = stepped >= 0
        exceptions = np.flatnonzero(self._excepted[states])
        if len(exceptions):
            self._stepped[states] = stepped
            kept[exceptions] = stepped[exceptions] != self._stepped[self.default[states[exceptions]]]
            self._stepped[states] = DEAD_VALUE
        return kept

    def _differ(self, states: Int32, stepped: Int32, ends: Int64) -> npt.NDArray[np.bool_]:
        """The same for the rows of several functions, one after the other, each of which stops at its ``ends``."""
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

    def _fill_steps(self, pairs: Int64) -> Int64:
        """Compute the value steps that ``pairs`` use, as far as possible; the pairs of earlier functions that the rest waits for."""
        needed: set[int] = set()
        for chunk in self._chunks(pairs[self._may_wait(pairs // self._classes)]):
            rows, classes, _ = self._entries(chunk)
            unknown = self._cells(rows[:, 1], classes) == UNKNOWN
            steps = np.unique(rows[unknown, 1].astype(np.int64) * self._classes + classes[unknown])
            for step in self._fill_many(steps).tolist():
                if self.deadline is not None:
                    self.deadline.check()
                value, class_ = divmod(step, self._classes)
                pair = self._fill_step(value, class_)
                if pair >= 0:
                    needed.add(pair)
        return np.array(sorted(needed), np.int64)

    def _may_wait(self, functions: Int64) -> npt.NDArray[np.bool_]:
        """Whether each function has a value whose steps are computed on demand."""
        if len(self._waits) < len(self.functions):
            self._waits = np.concatenate((self._waits, np.full(len(self.functions), -1, np.int8)))
        fresh = np.unique(functions[self._waits[functions] < 0])
        if len(fresh):
            values = np.concatenate([self.functions.rows[function][:, 1] for function in fresh.tolist()])
            waits = values >= self._states
            waits |= self._lazy[np.where(waits, -1, values)]
            counts = np.concatenate((np.zeros(1, np.intp), np.cumsum(waits)))[np.cumsum(self.functions.sizes(fresh))]
            self._waits[fresh] = np.diff(counts, prepend=0) > 0
        return self._waits[functions] > 0

    def _fill_many(self, steps: Int64) -> Int64:
        """Compute what array operations can of the steps (value x class), inner moves of MOVE records and what is dead; the other steps."""
        values, classes = np.divmod(steps, self._classes)
        heads, stacks, functions = self.records.columns()
        records = np.maximum(values - self._states, 0)
        moves = (values >= self._states) & (stacks[records] > 0)
        cells = self.machine.table[np.where(moves, heads[records], 0), classes]
        inner = moves & (cells >= 0) & (cells < self._states)
        inner &= ~self._ends[np.where(inner, cells, 0)]
        keys, place = np.unique(stacks[records[inner]].astype(np.int64) * self._states + cells[inner], return_inverse=True)
        found = np.array(self.records.moves(keys.tolist()), np.int32) + np.int32(self._states)
        self._make_room()
        self._steps[classes[inner], values[inner]] = found[place]
        exits = np.where(values < self._states, self.machine.exits[np.minimum(values, self._states - 1)], heads[records])
        suffixes = np.where((values >= self._states) & (functions[records] >= 0), functions[records],
                            self._on_returns[np.minimum(np.where(moves, 0, exits), len(self._on_returns) - 1)])
        dead = np.where(moves, (cells < 0) & ~self._lazy[heads[records]], self.following[suffixes, classes] == DEAD)
        self._steps[classes[dead], values[dead]] = DEAD_VALUE
        left: Int64 = steps[~inner & ~dead]
        return left

    def _fill_step(self, value: int, class_: int) -> int:
        """Compute one value step; the pair it waits for, or -1 when done."""
        record = value - self._states
        if record >= 0 and self.records.kind[record] == MOVE:
            self._steps[class_, value] = self._step_move(self.records.stacks[self.records.stack[record]], self.records.head[record], class_)
            return -1
        exit_ = int(self.machine.exits[value]) if record < 0 else self.records.head[record]
        exposed = record >= 0 and self.records.kind[record] == EXPOSED
        function = self.records.function[record] if exposed else int(self._on_returns[min(exit_, len(self._on_returns) - 1)])
        rest = int(self.following[function, class_])
        if rest < 0:
            return function * self._classes + class_
        # the record first: making one may move the table
        result = DEAD_VALUE if rest == DEAD else self._leaving(EXPOSED, exit_, rest)
        self._steps[class_, value] = result
        return -1

    def _step_move(self, pushes: tuple[int, ...], state: int, class_: int) -> int:
        """The value of ``move(pushes, state)``, pushes not empty, after one byte of ``class_``."""
        cell = int(self.machine.table[state, class_])
        exit_ = int(self.machine.exits[state])
        if cell < 0 and exit_ >= 0 and not self._ends[state]:
            state = self._returns[pushes[-1]][exit_]
            pushes = pushes[:-1]
            cell = int(self.machine.table[state, class_]) if state >= 0 else -1
        if cell < 0:
            return DEAD_VALUE
        if cell < self._states:
            return self._settle(pushes, cell)
        edge = cell - self._states
        return self._settle(pushes + self.machine.pushes(edge), int(self.machine.edge_target[edge]))

    def _settle(self, pushes: tuple[int, ...], state: int) -> int:
        """``move(pushes, state)``, returned from at once where ``state`` is an end state."""
        if self._ends[state]:
            exit_ = int(self.machine.exits[state])
            if not pushes:
                return self._leaving(POPPED, exit_)
            state = self._returns[pushes[-1]][exit_]
            pushes = pushes[:-1]
            if state < 0:
                return DEAD_VALUE
        return self._moved(pushes, state)
