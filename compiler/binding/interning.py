"""Functions and records of token actions, each distinct one once.

In: rows and fields. Out: numbers, dense from 0, equal exactly for equal contents. Cost: a dictionary access each; MOVE records, of which a
machine with many call sites has a hundred thousand, are interned in batches and keyed by one integer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler.errors import BudgetError
from stcc.formats.binding import MOVE

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

DEAD = 0  # the function that is alive nowhere
MAX_ENTRIES = 1 << 26  # entries over all functions: 512 MiB


class Functions:
    """Interned functions: ``[n, 2]`` int32 rows (state, value), states rising. Function 0 is dead everywhere.

    A function's key is the bytes of its rows, and the rows are a view of the key.

    Attributes:
        rows: of each function.
        ids: key -> function.
    """

    def __init__(self, max_entries: int) -> None:
        self.rows: list[Int32] = []
        self._sizes: Int32 = np.zeros(64, np.int32)
        self.ids: dict[bytes, int] = {}
        self._room = self._max = max_entries
        self.intern(b"")

    def __len__(self) -> int:
        return len(self.rows)

    def sizes(self, functions: Int64) -> Int32:
        """int32: how many rows each of the functions has."""
        return self._sizes[functions]

    def intern(self, key: bytes) -> int:
        """The function whose rows have these bytes. BudgetError past the entries budget."""
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.rows)
            self.rows.append(np.frombuffer(key, np.int32).reshape(-1, 2))
            if found == len(self._sizes):
                self._sizes = np.concatenate((self._sizes, np.zeros_like(self._sizes)))
            self._sizes[found] = len(key) >> 3
            self._room -= len(key) >> 3
            if self._room < 0:
                raise BudgetError(f"token actions need more than {self._max} entries", source="<binding>",
                                  hint="lower the largest maxLength, maxItems or repetition count")
        return found

    def keep(self, functions: set[int]) -> None:
        """Let go of the rows of all other functions, and of the keys."""
        self.ids.clear()
        for number in range(len(self.rows)):
            if number not in functions:
                self.rows[number] = _NO_ROWS


_NO_ROWS: Int32 = np.zeros((0, 2), np.int32)


class Records:
    """Interned records, as parallel lists; see ``stcc.formats.binding`` for the kinds.

    Attributes:
        kind, head, function: of each record.
        stack: of each record, the index of its pushes among ``stacks``.
        stacks: the distinct pushes, the empty one first; each but that has its parent, all sites but the last, among them.
    """

    def __init__(self, states: int) -> None:
        self.kind: list[int] = []
        self.head: list[int] = []
        self.function: list[int] = []
        self.stack: list[int] = []
        self.stacks: list[tuple[int, ...]] = [()]
        self._states = states
        self._moves: dict[int, int] = {}
        self._others: dict[tuple[int, int, int], int] = {}
        self._stack_ids: dict[tuple[int, int], int] = {}
        self._tops: Int32 = np.zeros((2, 64), np.int32)  # of each stack: its parent, its last site
        self._columns: Int32 = np.zeros((3, 64), np.int32)
        self._filled = 0

    def __len__(self) -> int:
        return len(self.kind)

    def leaving(self, kind: int, exit_: int, function: int = -1) -> int:
        """Index of the POPPED or EXPOSED record with these fields."""
        found = self._others.get((kind, exit_, function))
        if found is None:
            found = self._others[kind, exit_, function] = len(self.kind)
            self._add(kind, [exit_], function, [0])
        return found

    def push(self, stack: int, site: int) -> int:
        """The index among ``stacks`` of the stack of this index with one more site."""
        found = self._stack_ids.get((stack, site))
        if found is None:
            found = self._stack_ids[stack, site] = len(self.stacks)
            self.stacks.append((*self.stacks[stack], site))
            if found == self._tops.shape[1]:
                self._tops = np.concatenate((self._tops, np.zeros_like(self._tops)), axis=1)
            self._tops[:, found] = stack, site
        return found

    def parents(self, stacks: Int32) -> Int32:
        """The index of each stack without its last site."""
        parents: Int32 = self._tops[0].take(stacks)
        return parents

    def last_sites(self, stacks: Int32) -> Int32:
        """The last site of each stack."""
        sites: Int32 = self._tops[1].take(stacks)
        return sites

    def moves(self, keys: list[int]) -> list[int]:
        """Indices of the MOVE records with the distinct keys ``stack * states + state``."""
        found = list(map(self._moves.get, keys))
        fresh = [key for key, known in zip(keys, found, strict=True) if known is None]
        if fresh:
            self._moves.update(zip(fresh, range(len(self.kind), len(self.kind) + len(fresh)), strict=True))
            self._add(MOVE, [key % self._states for key in fresh], -1, [key // self._states for key in fresh])
        return list(map(self._moves.__getitem__, keys))

    def _add(self, kind: int, heads: list[int], function: int, stacks: list[int]) -> None:
        self.kind += [kind] * len(heads)
        self.head += heads
        self.function += [function] * len(heads)
        self.stack += stacks

    def columns(self) -> tuple[Int32, Int32, Int32]:
        """int32 ``[records]`` each: head, index of the pushes among ``stacks`` (0 unless a MOVE), function. At least one place long."""
        low, high = self._filled, len(self.kind)
        if high > self._columns.shape[1]:
            more = np.zeros((3, max(high, 2 * self._columns.shape[1]) - self._columns.shape[1]), np.int32)
            self._columns = np.concatenate((self._columns, more), axis=1)
        self._columns[:, low:high] = self.head[low:], self.stack[low:], self.function[low:]
        self._filled = high
        return self._columns[0], self._columns[1], self._columns[2]
