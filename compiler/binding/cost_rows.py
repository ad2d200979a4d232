"""Rows of least costs, equal ones once, and their (min, +) product: what the fixpoint of ``stcc.compiler.binding.need`` works on.

In: how many values have a row of their own, how many *frames* have a row that is computed from others. After it: ``table[slot[v]]`` is the
row of value ``v``. States and records own a slot, whose row may be lowered in place; a frame points at the slot of an equal row, which
is never changed, so two frames of one slot cost alike and what was computed from one holds for the other. On a Snowplow schema 87,644
frames have 3,100 rows: the blocks of a long string leave by the same ends, wherever in the string they stand.

Costs are *narrow*, 16 bits, unless a schema needs 8,192 tokens or more: half the memory, and with minima of whole rows by array operations
a fifth of the time. Whoever adds costs looks whether sums may be added again; ``TooFarError`` says to start again with wide ones.

Memory: room for two rows a frame, of which only those in use are touched.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE
from stcc.formats.distinct import distinct

Int32 = npt.NDArray[np.int32]
Costs = npt.NDArray[np.int16] | npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
_PRODUCT_CELLS = 1 << 16  # sums of a product formed at once: 256 KiB, so that they stay in the cache
_MOVED_ROWS = 1 << 12  # rows moved at once
NARROW = (1 << 14) - 1
"""What unreachable is among narrow costs: two such costs and one more can be added in int16."""


class TooFarError(Exception):
    """A cost is reachable, but more than half of what unreachable is."""


def check_near(costs: Costs, unreachable: int) -> None:
    """Raises TooFarError unless any two of the costs that are reachable add up to something reachable."""
    if ((costs > unreachable // 2) & (costs < unreachable)).any():
        raise TooFarError


def widened(costs: Costs, unreachable: int) -> Int32:
    """The costs as int32, ``UNREACHABLE`` where they are ``unreachable``."""
    wide = costs.astype(np.int32)
    wide[costs >= unreachable] = UNREACHABLE
    return wide


class CostRows:
    """The rows of all values.

    Attributes:
        table: int16 or int32 ``[slots, columns]``, as far as slots are in use.
        slot: int32 ``[values + 1]``, where the row of each value is; the last value is dead, and so is every frame at first.
    """

    def __init__(self, owned: npt.NDArray[np.intp], values: int, frames: int, columns: int, unreachable: int = UNREACHABLE) -> None:
        """Give each of the values ``owned`` a slot, and the value ``values``, all of them ``unreachable``, ``NARROW`` or ``UNREACHABLE``.

        At most ``frames`` other values have a row.
        """
        self.unreachable = unreachable
        self._base = len(owned) + 1
        self._frames, self._used = frames, self._base
        shape = self._base + 2 * frames, columns
        self.table: Costs = np.empty(shape, np.int16) if unreachable == NARROW else np.empty(shape, np.int32)
        self.table[: self._base] = unreachable
        self.slot: Int32 = np.full(values + 1, len(owned), np.int32)
        self.slot[owned] = np.arange(len(owned))
        self._numbers: dict[tuple[bytes, bytes], int] = {}

    def reachable(self) -> Bool:
        """bool ``[values + 1]``: whether the row of each value has a cost."""
        alive: Bool = np.asarray((self.table[: self._used] < self.unreachable).any(axis=1))
        return alive[self.slot]

    def make_room(self) -> None:
        """Let go of rows that no value points at, if a new row for every frame might not fit otherwise."""
        if self._used - self._base <= self._frames:
            return
        live = distinct(self.slot[self.slot >= self._base])
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

        Raises:
            TooFarError: a sum is more than half of unreachable.
        """
        columns, sums = product(self.table[inner, :-1], self.table, landed, self.unreachable)
        check_near(sums, self.unreachable)
        if not len(columns):
            return np.full(len(inner), self._base - 1, np.int32)
        where = columns.tobytes()
        return np.array([self._place(where, columns, row) for row in sums], np.int32)

    def _place(self, where: bytes, columns: npt.NDArray[np.intp], row: Costs) -> int:
        """The slot of the row that has ``row`` at ``columns``."""
        key = where, row.tobytes()
        slot = self._numbers.get(key)
        if slot is None:
            slot = self._numbers[key] = self._used
            self._used += 1
            self.table[slot] = self.unreachable
            self.table[slot, columns] = row
        return slot


def product(leave: Costs, table: Costs, landed: Int32, unreachable: int = UNREACHABLE) -> tuple[npt.NDArray[np.intp], Costs]:
    """(min, +) product of rows of costs with the rows of ``table`` at ``landed``.

    Args:
        leave: ``[n, k]``, costs of leaving.
        table: ``[slots, columns]``.
        landed: ``[k]``, slots.

    Returns:
        The columns reached, few: those of the rule that the call stands in; and ``[n, columns]``.
    """
    used = np.flatnonzero((leave < unreachable).any(axis=0))
    least, landed = _gathered(leave[:, used], landed[used])
    rows = table[landed]
    columns = np.flatnonzero((rows < unreachable).any(axis=0))
    result = np.full((len(leave), len(columns)), unreachable, table.dtype)
    if not len(columns):
        return columns, result
    rows = rows[:, columns]
    block = max(1, _PRODUCT_CELLS // rows.size)
    for low in range(0, len(leave), block):
        sums = least[low: low + block, :, None] + rows
        np.minimum(sums.min(axis=1), unreachable, out=result[low: low + block])
    return columns, result


def _gathered(leave: Costs, landed: Int32) -> tuple[Costs, Int32]:
    """Columns of equal ``landed`` as one: the least of their costs, and where they land."""
    order = np.argsort(landed, kind="stable")
    rising = landed[order]
    starts = np.flatnonzero(np.diff(rising, prepend=-1))
    if len(starts) == len(landed):
        return leave, landed
    return np.minimum.reduceat(leave[:, order], starts, axis=1), rising[starts]


def first_equal(rows: Costs) -> Int32:
    """The first row that equals each row; by hashing, since rows are wide."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), number) for number, row in enumerate(rows)], np.int32)
