"""Rows made beforehand, all in one pass: what every state admits whatever the stack says, and what its leaving actions would add.

In: the row patterns of a binding, its verdict columns and action tokens. Out: ``WarmRows``. States with the same live actions, and the same
leaving records, have one *shape*: 500 states of a typical schema have some 200.

Shapes that hold the same large actions differ in a few hundred tokens (Llama-3, the first 120 MaskBench schemas: 3 such groups a grammar,
340 tokens a shape). So each row starts as a copy of its group's first, and one scatter over all shapes at once adds the tokens that it
has more and takes away those that it has less: every bit is its own, so adding and subtracting do.

Cost: some 10 us a shape, of which the copies are a third. Budgets: ``MOST_BYTES`` of rows, ``MOST_ENTRIES`` entries looked at; states
beyond have shape -1, and their rows are made when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stcc.formats.distinct import distinct
from stcc.formats.row_patterns import RowPatterns
from stcc.runtime.action_tokens import ActionTokens
from stcc.runtime.token_sets import Row, TokenSets, expand
from stcc.runtime.verdicts import VerdictTable

Int32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

MOST_BYTES = 16 << 20
MOST_ENTRIES = 1 << 20


class Leaving(NamedTuple):
    """The leaving actions of a shape and their tokens.

    Attributes:
        columns: intp ``[actions]``, place of each action's verdict.
        which: intp ``[tokens]``, index into ``columns`` of each token's action.
        words: intp ``[tokens]``, word of each token.
        bits: int32 ``[tokens]``, its bit there.
    """

    columns: Index
    which: Index
    words: Index
    bits: Int32


@dataclass(frozen=True, eq=False)
class WarmRows:
    """See the module's text.

    Attributes:
        shape: of each state, -1 for states beyond the budgets.
        rows: row of each shape without its leaving actions, int32 ``[words]``, not to be written to.
        leaving: of each shape, None if it has no leaving actions.
        leaving_states: one state of each shape that has leaving actions.
    """

    shape: list[int]
    rows: list[Row]
    leaving: list[Leaving | None]
    leaving_states: list[int]


@dataclass(frozen=True, eq=False)
class _Entries:
    """The entries of all shapes, one shape after the other: ``shape``, ``action`` and verdict ``column`` of each, intp."""

    shapes: int
    shape: Index
    action: Index
    column: Index


def make_warm_rows(patterns: RowPatterns, verdicts: VerdictTable, tokens: ActionTokens, sets: TokenSets) -> WarmRows:
    """The warm rows of a binding; see the module's text."""
    shape = np.full(len(patterns.pattern), -1, np.int32)
    patterns = patterns.flat(MOST_ENTRIES)
    used = min(len(patterns.actions), MOST_ENTRIES)
    moving = patterns.follows[:used] != 0
    columns = verdicts.column[np.where(moving, 0, patterns.base[:used])]
    columns[moving] = verdicts.leaving + 1
    shape_of, first = _shapes(patterns, columns, verdicts.leaving, MOST_BYTES // (4 * sets.words))
    entries = _entries(patterns, columns, first)
    leaves = entries.column < verdicts.leaving
    shape[:len(patterns.pattern)] = np.array(shape_of, np.int32)[patterns.pattern]
    unfit = distinct(entries.shape[leaves & tokens.is_large[entries.action]])  # rare: their rows are made when needed
    shape[np.isin(shape, unfit)] = -1
    leaving = _leaving(entries, leaves, tokens)
    rows = _rows(entries, ~leaves, tokens, sets) if len(first) else []
    found, states = np.unique(shape, return_index=True)
    leaving_states = [state for number, state in zip(found.tolist(), states.tolist(), strict=True)
                      if number >= 0 and leaving[number] is not None]
    return WarmRows(shape.tolist(), rows, leaving, leaving_states)


def _shapes(patterns: RowPatterns, columns: Index, leaving: int, most: int) -> tuple[list[int], list[int]]:
    """The shape of each pattern, and a pattern of each shape."""
    bounds = patterns.offsets[patterns.offsets <= len(columns)]
    spans = bounds.tolist()
    places = np.flatnonzero(columns < leaving)
    leaves = set((bounds.searchsorted(places, "right") - 1).tolist())
    numbers: dict[tuple[bytes, bytes], int] = {}
    shape_of, first = [-1] * (len(patterns.offsets) - 1), list[int]()
    for pattern, (low, high) in enumerate(zip(spans, spans[1:], strict=False)):
        key = (patterns.actions[low:high].tobytes(), columns[low:high].tobytes() if pattern in leaves else b"")
        number = numbers.get(key)
        if number is None and len(first) < most:
            number = numbers[key] = len(first)
            first.append(pattern)
        shape_of[pattern] = -1 if number is None else number
    return shape_of, first


def _entries(patterns: RowPatterns, columns: Index, first: list[int]) -> _Entries:
    chosen = np.array(first, np.intp)
    starts = patterns.offsets[chosen].astype(np.intp)
    lengths = patterns.offsets[chosen + 1] - starts
    places = expand(starts, lengths)
    return _Entries(len(first), np.arange(len(first)).repeat(lengths), patterns.actions[places].astype(np.intp), columns[places])


def _leaving(entries: _Entries, leaves: npt.NDArray[np.bool_], tokens: ActionTokens) -> list[Leaving | None]:
    """The leaving actions of each shape."""
    at = np.flatnonzero(leaves)
    shapes, actions, columns = entries.shape[at], entries.action[at], entries.column[at]
    sizes = tokens.sizes[actions]
    places = tokens.places(actions)
    words, bits = tokens.words[places], tokens.bits[places]
    bounds = shapes.searchsorted(np.arange(entries.shapes + 1))
    ends = np.concatenate((np.zeros(1, np.intp), sizes.cumsum()))
    which = (np.arange(len(at)) - bounds[shapes]).repeat(sizes)
    found: list[Leaving | None] = []
    spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), ends[bounds[:-1]].tolist(), ends[bounds[1:]].tolist(), strict=True)
    for low, high, begin, end in spans:
        found.append(Leaving(columns[low:high], which[begin:end], words[begin:end], bits[begin:end]) if high > low else None)
    return found


def _rows(entries: _Entries, moves: npt.NDArray[np.bool_], tokens: ActionTokens, sets: TokenSets) -> list[Row]:
    """The row of each shape's moves."""
    member = np.zeros((entries.shapes, tokens.actions), np.bool_)
    member[entries.shape[moves], entries.action[moves]] = True
    _, first, group = np.unique(np.packbits(member[:, tokens.is_large], axis=1), axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    references = np.stack([tokens.union(np.flatnonzero(member[shape]).astype(np.int32)) for shape in first.tolist()])
    rows = references[group]
    shape, action = np.nonzero(member ^ member[first[group]])
    sizes = tokens.sizes[action]
    places = tokens.places(action)
    signs = np.where(member[shape, action], np.int32(1), np.int32(-1)).repeat(sizes)
    np.add.at(rows.reshape(-1), (shape * sets.words).repeat(sizes) + tokens.words[places], tokens.bits[places] * signs)
    return list(rows)
