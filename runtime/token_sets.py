"""Token sets of one vocabulary as packed bit rows, shared by every grammar that uses it.

In: a ``Vocabulary``, and sets of tokens as *bounds*: rising positions in its byte order where membership begins and ends in turn. Out:
rows, int32 ``[words]`` with bit ``t % 32`` of word ``t // 32`` for token ``t``.

Rows are kept by content: the states of the next schema often admit the very same set. Otherwise sets that hold many tokens (all that
stay inside a string, say) differ little from one schema to the next: a few keys, a few tokens that close. So a row is made from the
nearest *reference* already at hand, by flipping the tokens in which the two sets differ; the bounds of the difference are those that
only one of the two has. Cost: some 30 us and a few nanoseconds a flipped token, where expanding 100,000 tokens takes half a millisecond.
The empty and the whole vocabulary are always references; a row that took many flips becomes one.

References are read-only and listed in a tuple that is replaced as a whole, so that threads may share a ``TokenSets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

Int32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
Row = Int32

BIT = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32)).view(np.int32)
"""int32 ``[32]``, the bit of each place in a word."""
KEPT_ROWS = 1024
"""Rows kept by content."""
REFERENCES = 8
"""Rows kept to start from, besides the empty and the whole vocabulary; each costs a row and one int32 a token."""
MANY_FLIPS = 4096
"""Flipped tokens past which a row becomes a reference: as many cost as much again as everything else."""


def expand(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Index:
    """The numbers of the ranges ``start .. start + length``, one range after the other. O(sum of lengths), no loop."""
    # methods, not functions: on a handful of ranges np.cumsum and np.repeat spend their time dispatching
    ends = lengths.cumsum(dtype=np.intp)
    numbers: Index = (starts + lengths - ends).repeat(lengths)
    numbers += np.arange(len(numbers), dtype=np.intp)
    return numbers


def word_count(size: int) -> int:
    """32-bit words of a mask row over ``size`` tokens."""
    return (size + 31) >> 5


class _Reference:
    """A row and what it takes to compare its set with another: its bounds, the index of each position among them, its number of tokens."""

    __slots__ = ("bounds", "place", "row", "tokens")

    def __init__(self, bounds: Int32, row: Row, spelled: int) -> None:
        self.bounds, self.row = bounds, row
        self.tokens = _count(bounds)
        self.place = np.full(spelled + 1, -1, np.int32)
        self.place[bounds] = np.arange(len(bounds), dtype=np.int32)

    def difference(self, bounds: Int32) -> Int32:
        """Bounds of the tokens that are in exactly one of the two sets."""
        places = self.place[bounds]
        shared = places >= 0
        own = np.ones(len(self.bounds), np.bool_)
        own[places[shared]] = False
        found = np.concatenate((self.bounds[own], bounds[~shared]))
        found.sort()
        return found


def _count(bounds: Int32) -> int:
    return int(bounds[1::2].sum(dtype=np.int64) - bounds[::2].sum(dtype=np.int64))


class TokenSets:
    """See the module's text.

    Attributes:
        size: tokens of the vocabulary.
        words: words of a row.
        byte_order: int32 ``[spelled]``, token ids sorted by their bytes.
        rank: int32 ``[size]``, position of each id in ``byte_order``, -1 for a token without bytes.
        stop_token_ids: frozenset of the ids that end an output.
        stops: row of the stop tokens.
    """

    __slots__ = ("_fixed", "_kept", "_lengths", "_long", "_rows", "byte_order", "rank", "size", "stop_token_ids", "stops", "words")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size = vocabulary.size
        self.words = word_count(self.size)
        self.byte_order, self.rank = vocabulary.byte_order, vocabulary.rank
        self.stop_token_ids = frozenset(int(token) for token in vocabulary.stop_token_ids)
        self._lengths = np.diff(vocabulary.token_offsets)
        self._long: dict[int, Row] = {}
        self._rows: dict[bytes, Row] = {}
        self.stops = self.pack(np.array(sorted(self.stop_token_ids), np.intp))
        spelled = len(self.byte_order)
        whole = np.array([0, spelled] if spelled else [], np.int32)
        self._fixed = (_Reference(whole[:0], np.zeros(self.words, np.int32), spelled),
                       _Reference(whole, self.pack(self.byte_order), spelled))
        self._kept: tuple[_Reference, ...] = ()

    def pack(self, tokens: npt.NDArray[np.integer]) -> Row:
        """The row of the given token ids. int32 ``[words]``."""
        marks = np.zeros(self.words * 32, np.uint8)
        marks[tokens] = 1
        return np.packbits(marks, bitorder="little").view(np.int32)

    def scatter(self, tokens: npt.NDArray[np.integer]) -> Row:
        """The same row as ``pack`` for distinct ids, cheaper for a few thousand: every bit is its own, so adding joins."""
        row = np.zeros(self.words, np.int32)
        np.add.at(row, (tokens >> 5).astype(np.intp), BIT[tokens & 31])
        return row

    def row(self, bounds: Int32) -> Row:
        """The row of the tokens between ``bounds[0]`` and ``bounds[1]``, ``bounds[2]`` and ``bounds[3]``, ... in byte order; read-only.

        Args:
            bounds: int32, strictly rising, an even number of them.
        """
        key = bounds.tobytes()
        row = self._rows.get(key)
        if row is None:
            row = self._from_nearest(bounds)
            row.flags.writeable = False
            if len(self._rows) >= KEPT_ROWS:
                self._rows.clear()
            self._rows[key] = row
        return row

    def _from_nearest(self, bounds: Int32) -> Row:
        tokens = _count(bounds)
        nearest = min(self._fixed + self._kept, key=lambda reference: abs(reference.tokens - tokens))
        flips = nearest.difference(bounds)
        starts, lengths = flips[::2], flips[1::2] - flips[::2]
        flipped = self.byte_order[expand(starts, lengths)]
        row: Row = self.pack(flipped) if len(flipped) > MANY_FLIPS else self.scatter(flipped)
        np.bitwise_xor(row, nearest.row, out=row)
        if len(flipped) > MANY_FLIPS:
            self._kept = (*self._kept[1 - REFERENCES:], _Reference(bounds, row, len(self.byte_order)))
        return row

    def at_least(self, length: int) -> Row:
        """The row of the tokens that spell at least ``length`` bytes."""
        row = self._long.get(length)
        if row is None:
            row = self._long[length] = self.pack(np.flatnonzero(self._lengths >= length))
        return row


_shared: WeakKeyDictionary[Vocabulary, TokenSets] = WeakKeyDictionary()


def token_sets(vocabulary: Vocabulary) -> TokenSets:
    """The ``TokenSets`` of ``vocabulary``: one for as long as it lives."""
    sets = _shared.get(vocabulary)
    if sets is None:
        sets = _shared[vocabulary] = TokenSets(vocabulary)
    return sets
