"""From code points to UTF-8 bytes: spells an automaton over classes of code points as a DFA over bytes.

In: rows ``state x character class`` and a *partition*, which says in which class each code point lies. Out: the DFA over the
UTF-8 bytes of the same strings; surrogates, which have no UTF-8 form, are dead. If the rows are minimal and trim, so is the result:
states inside a character are shared wherever their remaining bytes lead to the same states, found by comparing whole rows,
last byte first. All array work, O(states x places where the class changes).

A partition's *shape* is the trie of its UTF-8 forms, three levels of 64 continuation bytes: rows of the last level hold classes, rows of
the others hold row numbers of the level below, -1 is dead. Equal rows are stored once, so a stretch without changes costs one row.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError

Int32 = npt.NDArray[np.int32]
Array = npt.NDArray[np.generic]

_CODE_POINTS = 0x110000
_CONTINUATION = slice(0x80, 0xC0)
_CELLS = 1 << 21  # cells compared at once: 8 MiB


@dataclass(frozen=True)
class Partition:
    """Classes of code points: from ``starts[i]`` up to ``starts[i + 1]`` they lie in ``classes[i]``; -1 is no class.

    ``starts`` rises from 0; neighbouring stretches differ in class.
    """

    starts: tuple[int, ...]
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Level:
    """Rows of one level, int32 ``[rows, 64]``, and the same with equal columns once: ``rows == columns[:, place]``."""

    rows: Int32
    columns: Int32
    place: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class _Shape:
    """The class of each ASCII byte; the levels, of which number k reads k + 1 continuation bytes; and (lead byte, level, row)."""

    ascii: Int32
    levels: tuple[_Level, ...]
    leads: tuple[tuple[int, int, int], ...]


class _ShapeBuilder:
    def __init__(self, partition: Partition) -> None:
        self.starts, self.classes = _without_surrogates(partition)
        self.rows: tuple[dict[tuple[int, ...], int], ...] = ({}, {}, {})

    def row(self, level: int, low: int, floor: int = 0) -> int:
        """Number of the row that covers ``64 ** (level + 1)`` code points from ``low``; those below ``floor`` are dead."""
        size = 64 ** level
        first = bisect_right(self.starts, low) - 1
        if floor <= low and (first + 1 == len(self.starts) or self.starts[first + 1] >= low + 64 * size):
            return self._uniform(level, self.classes[first])
        places = range(low, low + 64 * size, size)
        if level == 0:
            cells = tuple(self.classes[bisect_right(self.starts, place) - 1] for place in places)
        else:
            cells = tuple(-1 if place < floor else self.row(level - 1, place) for place in places)
        return self._number(level, cells)

    def _uniform(self, level: int, class_: int) -> int:
        for depth in range(level + 1):
            class_ = self._number(depth, (class_,) * 64)
        return class_

    def _number(self, level: int, cells: tuple[int, ...]) -> int:
        if max(cells) < 0:
            return -1
        return self.rows[level].setdefault(cells, len(self.rows[level]))

    def build(self) -> _Shape:
        """The finished shape."""
        ascii_ = np.array([self.classes[bisect_right(self.starts, point) - 1] for point in range(128)], np.int32)
        leads = [(lead, 0, self.row(0, (lead & 0x1F) << 6)) for lead in range(0xC2, 0xE0)]
        leads += [(lead, 1, self.row(1, (lead & 0x0F) << 12, 0x800)) for lead in range(0xE0, 0xF0)]
        leads += [(lead, 2, self.row(2, (lead & 0x07) << 18, 0x10000)) for lead in range(0xF0, 0xF5)]
        levels = tuple(_level(np.array(list(rows), np.int32).reshape(-1, 64)) for rows in self.rows)
        return _Shape(ascii_, levels, tuple(entry for entry in leads if entry[2] >= 0))


def _level(rows: Int32) -> _Level:
    if not len(rows):
        return _Level(rows, rows[:, :1], np.zeros(64, np.intp))
    columns, place = np.unique(rows, axis=1, return_inverse=True)
    return _Level(rows, columns, place.reshape(-1))


def _without_surrogates(partition: Partition) -> tuple[list[int], list[int]]:
    starts, classes = list(partition.starts), list(partition.classes)
    for edge in (0xD800, 0xE000):
        place = bisect_right(starts, edge) - 1
        if starts[place] != edge:
            starts.insert(place + 1, edge)
            classes.insert(place + 1, classes[place])
    classes = [-1 if 0xD800 <= start < 0xE000 else class_ for start, class_ in zip(starts, classes, strict=True)]
    return [*starts, _CODE_POINTS], [*classes, -1]


@lru_cache(maxsize=64)
def _shape(partition: Partition) -> _Shape:
    return _ShapeBuilder(partition).build()


def merged(partition: Partition, representative: Int32) -> Partition:
    """The partition whose class ``c`` is renamed ``representative[c]``; stretches that become equal join."""
    starts: list[int] = []
    classes: list[int] = []
    for start, class_ in zip(partition.starts, partition.classes, strict=True):
        name = int(representative[class_]) if class_ >= 0 else -1
        if not classes or classes[-1] != name:
            starts.append(start)
            classes.append(name)
    return Partition(tuple(starts), tuple(classes))


def encode_utf8(table: Int32, accept: Int32, start: int, partition: Partition, *, max_states: int = 200_000) -> Dfa:
    """The DFA over UTF-8 bytes of the automaton ``table`` (int32 ``[states, character classes]``, -1 dead) with labels ``accept``.

    The states of the result begin with those of ``table``. BudgetError past ``max_states``.
    """
    table, representative = _distinct_columns(table)
    shape = _shape(merged(partition, representative))
    states = len(table)
    inner: list[Int32] = []  # per level: distinct rows over the 64 continuation bytes, cells numbered as states of the result
    numbers: list[Int32] = []  # per level: state of the result for (state, row of the shape)
    below, total = table, states
    for level in shape.levels:
        rows, inverse = _distinct_rows(below, level, max_states)
        inner.append(rows)
        below = np.where(inverse >= 0, inverse + total, -1).astype(np.int32)
        numbers.append(below)
        total += len(rows)
        if total > max_states:
            raise _too_many(max_states)
    return _assembled(table, accept, start, shape, inner, numbers, total)


def _assembled(table: Int32, accept: Int32, start: int, shape: _Shape, inner: list[Int32], numbers: list[Int32], total: int) -> Dfa:
    """Put the columns of all 256 bytes together, equal ones once."""
    keys: dict[tuple[int, ...], int] = {}
    byte_class = np.zeros(256, np.uint8)
    continuation = np.concatenate([level.rows for level in shape.levels]).T
    entries: dict[int, tuple[int, ...]] = {byte: (0, int(class_)) for byte, class_ in enumerate(shape.ascii.tolist())}
    entries.update({0x80 + place: (1, *column) for place, column in enumerate(continuation.tolist())})
    entries.update({lead: (2, level, row) for lead, level, row in shape.leads})
    dead = (0, -1)
    first_byte: list[int] = []
    for byte in range(256):
        key = entries.get(byte, dead)
        if key not in keys:
            keys[key] = len(keys)
            first_byte.append(byte)
        byte_class[byte] = keys[key]
    result = np.full((total, len(keys)), -1, np.int32)
    states = len(table)
    padded = _padded(table)
    for class_, (key, byte) in enumerate(zip(keys, first_byte, strict=True)):
        if key[0] == 0:
            result[:states, class_] = padded[:, key[1]]
        elif key[0] == 2:
            result[:states, class_] = numbers[key[1]][:, key[2]]
        elif total > states:
            result[states:, class_] = np.concatenate([rows[:, byte - 0x80] for rows in inner])
    labels = np.full(total, -1, np.int32)
    labels[:states] = accept
    return Dfa(byte_class, result, labels, start)


def _padded(table: Int32) -> Int32:
    """The table with a dead last column, so that class -1 is dead."""
    return np.concatenate([table, np.full((len(table), 1), -1, np.int32)], axis=1)


def _distinct_columns(table: Int32) -> tuple[Int32, Int32]:
    """Distinct live columns in order of appearance, and for each old column its new one (-1 if dead)."""
    columns = np.ascontiguousarray(table.T)
    found: dict[bytes, int] = {}
    chosen: list[int] = []
    representative = np.full(len(columns), -1, np.int32)
    for place, column in enumerate(columns):
        if column.max(initial=-1) < 0:
            continue
        key = column.tobytes()
        if key not in found:
            found[key] = len(chosen)
            chosen.append(place)
        representative[place] = found[key]
    return np.ascontiguousarray(columns[chosen].T), representative


def _distinct_rows(below: Int32, level: _Level, max_states: int) -> tuple[Int32, Int32]:
    """Of rows ``below[state, level.rows[row]]`` the distinct live ones, int32 ``[n, 64]``, and ``[states, rows]`` which one (-1: dead)."""
    states, (rows, width) = len(below), level.columns.shape
    padded = _padded(below)
    step = max(1, _CELLS // max(1, rows * width))
    seen: dict[bytes, int] = {}
    inverse = np.full((states, rows), -1, np.int32)
    for low in range(0, states if rows else 0, step):
        cells = np.ascontiguousarray(padded[low:low + step][:, level.columns]).reshape(-1, width)
        keys = cells.view(np.dtype((np.void, width * 4))).reshape(-1)
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        number = np.array([-1 if cells[at].max() < 0 else seen.setdefault(cells[at].tobytes(), len(seen)) for at in first], np.int32)
        inverse[low:low + step] = number[back.reshape(-1)].reshape(-1, rows)
        if len(seen) > max_states:
            raise _too_many(max_states)
    distinct = np.frombuffer(b"".join(seen), np.int32).reshape(-1, width)
    return distinct[:, level.place], inverse


def _too_many(max_states: int) -> BudgetError:
    return BudgetError(f"the automaton needs more than {max_states} states", hint="raise max_states, or simplify the pattern")
