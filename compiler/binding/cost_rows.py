"""Rows of least costs, equal ones once, and their (min, +) product: what the fixpoint of ``stcc.compiler.binding.need`` works on.

In: how many values have a row of their own, how many *frames* have a row that is computed from others. After it: ``table[slot[v]]`` is the
row of value ``v``. States and records own a slot, whose row may be lowered in place; a frame points at the slot of an equal row, which
is never changed, so two frames of one slot cost alike and what was computed from one holds for the other. On a Snowplow schema 87,644
frames have 3,100 rows: the blocks of a long string leave by the same ends, wherever in the string they stand.

Memory: room for two rows a frame, of which only those in use are touched.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
_PRODUCT_CELLS = 1 << 16  # sums of a product formed at once: 256 KiB, so that they stay in the cache
_MOVED_ROWS = 1 << 12  # rows moved at once


class CostRows:
    """The rows of all values.

    Attributes:
        table: int32 ``[slots, columns]``, as far as slots are in use.
        slot: int32 ``[values + 1]``, where the row of each value is; the last value is dead, and so is every frame at first.
    """

    def __init__(self, owned: npt.NDArray[np.intp], values: int, frames: int, columns: int) -> None:
        """Give each of the values ``owned`` a slot, and the value ``values``, all of them unreachable.

        At most ``frames`` other values have a row.
        """
        self._base = len(owned) + 1
        self._frames, self._used = frames, self._base
        self.table: Int32 = np.empty((self._base + 2 * frames, columns), np.int32)
        self.table[: self._base] = UNREACHABLE
        self.slot: Int32 = np.full(values + 1, len(owned), np.int32)
        self.slot[owned] = np.arange(len(owned))
        self._numbers: dict[tuple[bytes, bytes], int] = {}

    def reachable(self) -> Bool:
        """bool ``[values + 1]``: whether the row of each value has a cost."""
        alive: Bool = np.asarray((self.table[: self._used] < UNREACHABLE).any(axis=1))
        return alive[self.slot]

    def make_room(self) -> None:
        """Let go of rows that no value points at, if a new row for every frame might not fit otherwise."""
        if self._used - self._base <= self._frames:
            return
        live = np.unique(self.slot[self.slot >= self._base])
        for low in range(0, len(live), _MOVED_ROWS):  # forwards: a row only moves to a lower place
            part = live[low: low + _MOVED_ROWS]
            self.table[self._base + low: self._base + low + len(part)] = self.table[part]
        number = np.full(self._used, -1, np.int32)
        number[: self._base] = np.arange(self._base)
        number[live] = np.arange(self._base, self._base + len(live))
        self.slot = number[self.slot]
        self._numbers = {key: int(number[slot]) for key, slot in self._numbers.items() if number[slot] >= 0}
        self._used = self._base + len(live)

    def representatives(self, values: Int32) -> Int32:
        """A slot for each value, one for all of those with equal rows."""
        slots = self.slot[values]
        met = np.zeros(self._used, np.bool_)
        met[slots] = True
        distinct = np.flatnonzero(met)
        chosen = np.empty(self._used, np.int32)
        chosen[distinct] = distinct[first_equal(self.table[distinct])]
        return chosen[slots]

    def around(self, inner: Int32, landed: Int32) -> Int32:
        """Leave a row by some column, then go on from where that lands: the slots of the sums.

        Args:
            inner: ``[n]``, slots of the rows to leave.
            landed: ``[columns - 1]``, the slot of the row behind each column but the last, through which nothing is left.

        Returns:
            int32 ``[n]``.
        """
        columns, sums = product(self.table[inner, :-1], self.table, landed)
        if not len(columns):
            return np.full(len(inner), self._base - 1, np.int32)
        where = columns.tobytes()
        return np.array([self._place(where, columns, row) for row in sums], np.int32)

    def _place(self, where: bytes, columns: npt.NDArray[np.intp], row: Int32) -> int:
        """The slot of the row that has ``row`` at ``columns``."""
        key = where, row.tobytes()
        slot = self._numbers.get(key)
        if slot is None:
            slot = self._numbers[key] = self._used
            self._used += 1
            self.table[slot] = UNREACHABLE
            self.table[slot, columns] = row
        return slot


def product(leave: Int32, table: Int32, landed: Int32) -> tuple[npt.NDArray[np.intp], Int32]:
    """(min, +) product of rows of costs with the rows of ``table`` at ``landed``.

    Args:
        leave: ``[n, k]``, costs of leaving.
        table: ``[slots, columns]``.
        landed: ``[k]``, slots.

    Returns:
        The columns reached, few: those of the rule that the call stands in; and int32 ``[n, columns]``.
    """
    used = np.flatnonzero((leave < UNREACHABLE).any(axis=0))
    least, landed = _gathered(leave[:, used], landed[used])
    rows = table[landed]
    columns = np.flatnonzero((rows < UNREACHABLE).any(axis=0))
    result = np.full((len(leave), len(columns)), UNREACHABLE, np.int32)
    if not len(columns):
        return columns, result
    rows = rows[:, columns]
    block = max(1, _PRODUCT_CELLS // rows.size)
    for low in range(0, len(leave), block):
        sums = least[low: low + block, :, None] + rows
        np.minimum(sums.min(axis=1), UNREACHABLE, out=result[low: low + block])
    return columns, result


def _gathered(leave: Int32, landed: Int32) -> tuple[Int32, Int32]:
    """Columns of equal ``landed`` as one: the least of their costs, and where they land."""
    order = np.argsort(landed, kind="stable")
    rising = landed[order]
    starts = np.flatnonzero(np.diff(rising, prepend=-1))
    if len(starts) == len(landed):
        return leave, landed
    return np.minimum.reduceat(leave[:, order], starts, axis=1), rising[starts]


def first_equal(rows: Int32) -> Int32:
    """The first row that equals each row; by hashing, since rows are wide."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), number) for number, row in enumerate(rows)], np.int32)
