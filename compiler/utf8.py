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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.minimize import minimize_dfa
from stcc.formats.distinct import distinct

Int32 = npt.NDArray[np.int32]

_CODE_POINTS = 0x110000
_ASCII_END, _FIRST_LEAD = 0x80, 0xC0  # continuation bytes lie between
_MOST_CLASSES = 256  # the minimiser takes a Dfa, whose classes are uint8
_NARROW = 8  # rows of at most this many cells are compared cell by cell
_CELLS = 1 << 21  # cells compared at once: 8 MiB


@dataclass(frozen=True)
class Partition:
    """Classes of code points: from ``starts[i]`` up to ``starts[i + 1]`` they lie in ``classes[i]``; -1 is no class.

    ``starts`` rises from 0; neighbouring stretches differ in class.
    """

    starts: tuple[int, ...]
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TextDfa(Dfa):
    """A DFA over UTF-8 that remembers the automaton over characters it spells.

    Operations on several of them work on characters, of which there are some eight times fewer states, and spell the result.

    Attributes:
        rows: int32 ``[n, character classes]``; its states are the first n of the DFA, with the same start and labels.
        partition: the class of each code point.
    """

    rows: Int32 = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    partition: Partition = Partition((0,), (-1,))


class CharacterView(NamedTuple):
    """An automaton over characters: int32 rows, labels, the start, and the classes of the rows' columns."""

    rows: Int32
    accept: Int32
    start: int
    partition: Partition


def character_view(dfa: Dfa) -> CharacterView | None:
    """``dfa`` over characters, where that is at hand: it was spelled by ``encode_utf8``, or reads ASCII only."""
    if isinstance(dfa, TextDfa):
        return CharacterView(dfa.rows, dfa.accept[:len(dfa.rows)], dfa.start, dfa.partition)
    if (dfa.table[:, distinct(dfa.byte_class[_ASCII_END:])] >= 0).any():
        return None
    classes = dfa.byte_class[:_ASCII_END].tolist()
    starts = [point for point in range(_ASCII_END) if point == 0 or classes[point] != classes[point - 1]]
    partition = Partition((*starts, _ASCII_END), (*(classes[start] for start in starts), -1))
    return CharacterView(dfa.table, dfa.accept, dfa.start, partition)


def common_partition(views: Sequence[CharacterView]) -> tuple[Partition, list[Int32]]:
    """The coarsest partition that refines those of all ``views``, and each one's rows over its classes."""
    starts = distinct(np.concatenate([view.partition.starts for view in views]))
    columns = [np.array(view.partition.classes)[np.searchsorted(view.partition.starts, starts, side="right") - 1] for view in views]
    numbers: dict[tuple[int, ...], int] = {}
    classes = [numbers.setdefault(signature, len(numbers)) for signature in zip(*(column.tolist() for column in columns), strict=True)]
    kept = [place for place, class_ in enumerate(classes) if place == 0 or class_ != classes[place - 1]]
    partition = Partition(tuple(starts[kept].tolist()), tuple(classes[place] for place in kept))
    chosen = np.array(list(numbers), np.intp)
    return partition, [_padded(view.rows)[:, chosen[:, place]] for place, view in enumerate(views)]


@dataclass(frozen=True, eq=False)
class _Level:
    """Rows of one level, int32 ``[rows, 64]``, and the same with equal columns once: ``rows == columns[:, place]``."""

    rows: Int32
    columns: Int32
    place: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class _Shape:
    """The levels, of which number k reads k + 1 continuation bytes; and (lead byte, level, row) for every lead that is alive."""

    levels: tuple[_Level, ...]
    leads: tuple[tuple[int, int, int], ...]


class _ShapeBuilder:
    def __init__(self, partition: Partition) -> None:
        self.starts, self.classes = _without_surrogates(partition)
        self.rows: tuple[dict[tuple[int, ...], int], ...] = ({}, {}, {})
        self.uniform: dict[tuple[int, int], int] = {}

    def row(self, level: int, low: int, floor: int = 0) -> int:
        """Number of the row that covers ``64 ** (level + 1)`` code points from ``low``; those below ``floor`` are dead."""
        size = 64 ** level
        first = bisect_right(self.starts, low) - 1
        if floor <= low and (first + 1 == len(self.starts) or self.starts[first + 1] >= low + 64 * size):
            return self.uniform_row(level, self.classes[first])
        places = range(low, low + 64 * size, size)
        if level == 0:
            return self.number(level, tuple([self.classes[bisect_right(self.starts, place) - 1] for place in places]))
        return self.number(level, tuple([-1 if place < floor else self.row(level - 1, place) for place in places]))

    def uniform_row(self, level: int, class_: int) -> int:
        """Number of the row under which every code point has class ``class_``."""
        known = self.uniform.get((level, class_))
        if known is None:
            below = class_ if level == 0 else self.uniform_row(level - 1, class_)
            known = self.uniform[level, class_] = self.number(level, (below,) * 64)
        return known

    def number(self, level: int, cells: tuple[int, ...]) -> int:
        """Number of a row; -1 if it is dead."""
        known = self.rows[level].get(cells)
        if known is None:
            if max(cells) < 0:
                return -1
            known = self.rows[level][cells] = len(self.rows[level])
        return known

    def build(self) -> _Shape:
        """The finished shape."""
        leads = [(lead, 0, self.row(0, (lead & 0x1F) << 6)) for lead in range(0xC2, 0xE0)]
        leads += [(lead, 1, self.row(1, (lead & 0x0F) << 12, 0x800)) for lead in range(0xE0, 0xF0)]
        leads += [(lead, 2, self.row(2, (lead & 0x07) << 18, 0x10000)) for lead in range(0xF0, 0xF5)]
        levels = tuple(_level(np.array(list(rows), np.int32).reshape(-1, 64)) for rows in self.rows)
        return _Shape(levels, tuple(entry for entry in leads if entry[2] >= 0))


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


@lru_cache(maxsize=256)
def _shape(partition: Partition) -> _Shape:
    return _ShapeBuilder(partition).build()


def _split(partition: Partition) -> tuple[list[int], list[int], Partition]:
    """The class of each ASCII character; and the rest, with its classes numbered by first occurrence, after their own numbers.

    Most patterns tell no characters beyond ASCII apart, and so share one shape.
    """
    ascii_ = [partition.classes[bisect_right(partition.starts, point) - 1] for point in range(_ASCII_END)]
    names: dict[int, int] = {}
    first = bisect_right(partition.starts, _ASCII_END) - 1
    classes = [class_ if class_ < 0 else names.setdefault(class_, len(names)) for class_ in partition.classes[first:]]
    return ascii_, list(names), Partition((0, *partition.starts[first + 1:]), tuple(classes))


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


def encode_utf8(table: Int32, accept: Int32, start: int, partition: Partition, *, max_states: int = 200_000) -> TextDfa:
    """The DFA over UTF-8 bytes of the automaton ``table`` (int32 ``[states, character classes]``, -1 dead) with labels ``accept``.

    The states of the result begin with those of ``table``. BudgetError past ``max_states``.
    """
    table, representative = _distinct_columns(table)
    partition = merged(partition, representative)
    ascii_, names, rest = _split(partition)
    shape = _shape(rest)
    total = len(table)
    inner: list[Int32] = []  # per level: distinct rows over the 64 continuation bytes, cells numbered as states of the result
    numbers: list[Int32] = []  # per level: state of the result for (state, row of the shape)
    below = np.ascontiguousarray(table[:, names])
    for level in shape.levels:
        rows, inverse = _distinct_rows(below, level, max_states)
        inner.append(rows)
        below = np.where(inverse >= 0, inverse + total, -1).astype(np.int32)
        numbers.append(below)
        total += len(rows)
        if total > max_states:
            raise _too_many(max_states)
    byte_class, columns = _columns(shape, ascii_)
    result = np.full((total, len(columns)), -1, np.int32)
    padded = _padded(table)
    for class_, (byte, level_number, source) in enumerate(columns):
        if level_number < 0:
            result[:len(table), class_] = padded[:, source]
        elif byte >= _FIRST_LEAD:
            result[:len(table), class_] = numbers[level_number][:, source]
        else:
            result[len(table):, class_] = np.concatenate([rows[:, byte - _ASCII_END] for rows in inner])
    labels = np.full(total, -1, np.int32)
    labels[:len(table)] = accept
    return TextDfa(byte_class, result, labels, start, table, partition)


def encode_least(table: Int32, accept: Int32, partition: Partition, *, max_states: int = 200_000) -> Dfa:
    """The minimal trim DFA over UTF-8 of an automaton over characters that need not be either; its start is state 0."""
    classes = table.shape[1]
    if classes > _MOST_CLASSES:
        return minimize_dfa(encode_utf8(table, accept, 0, partition, max_states=max_states))
    least = minimize_dfa(Dfa(np.minimum(np.arange(256), classes - 1).astype(np.uint8), table, accept, 0))
    return encode_utf8(least.table[:, least.byte_class[:classes]], least.accept, least.start, partition, max_states=max_states)


def _columns(shape: _Shape, ascii_: list[int]) -> tuple[npt.NDArray[np.uint8], list[tuple[int, int, int]]]:
    """Classes of the 256 bytes, and of each class its first byte and where its column comes from.

    That is (byte, -1, character class) for an ASCII byte or one that never occurs, (byte, level, row) for a lead byte.
    """
    rows = np.concatenate([level.rows for level in shape.levels]).T.tolist()
    leads = {byte: (level, row) for byte, level, row in shape.leads}
    keys: dict[tuple[int, ...], int] = {}
    columns: list[tuple[int, int, int]] = []
    byte_class = []
    for byte in range(256):
        source = (-1, ascii_[byte]) if byte < _ASCII_END else leads.get(byte, (-1, -1))
        inside = _ASCII_END <= byte < _FIRST_LEAD and max(rows[byte - _ASCII_END], default=-1) >= 0
        key = (-2, *rows[byte - _ASCII_END]) if inside else source
        if key not in keys:
            keys[key] = len(columns)
            columns.append((byte, 0, 0) if inside else (byte, *source))
        byte_class.append(keys[key])
    return np.array(byte_class, np.uint8), columns


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
    if not rows or not states:
        return np.zeros((0, 64), np.int32), np.full((states, rows), -1, np.int32)
    padded = _padded(below)
    step = max(1, _CELLS // (rows * width))
    distinct, inverse = np.zeros((0, width), np.int32), np.zeros(0, np.intp)
    for low in range(0, states, step):
        cells = padded[low:low + step][:, level.columns].reshape(-1, width)
        first, group = _grouped(cells)
        if not low:
            distinct, inverse = cells[first], group
            continue
        cells = np.concatenate([distinct, cells[first]])
        kept, merged_group = _grouped(cells)
        inverse = np.concatenate([merged_group[inverse], merged_group[len(distinct):][group]])
        distinct = cells[kept]
        if len(distinct) > max_states + 1:  # one may be dead
            raise _too_many(max_states)
    dead = (distinct < 0).all(axis=1)
    number = np.where(dead, -1, np.cumsum(~dead) - 1).astype(np.int32)
    return distinct[~dead][:, level.place], number[inverse].reshape(states, rows)


def _grouped(cells: Int32) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first row of each group of equal rows, rising, and the group of each row."""
    keys: npt.NDArray[Any]
    if cells.shape[1] <= _NARROW:
        keys = cells[:, 0].astype(np.int64)
        for column in cells.T[1:]:
            _, ranks = np.unique(keys, return_inverse=True)
            keys = ranks.reshape(-1) * (int(cells.max()) + 2) + column
    else:
        keys = np.ascontiguousarray(cells).view(np.dtype((np.void, cells.shape[1] * 4))).reshape(-1)
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return first[order], rank[back.reshape(-1)]


def _too_many(max_states: int) -> BudgetError:
    return BudgetError(f"the automaton needs more than {max_states} states",
                       hint="raise max_states (--max-states), or simplify the pattern")
