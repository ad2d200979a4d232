"""Token sets of one vocabulary as packed bit rows, shared by every grammar that uses it.

In: a ``Vocabulary``, and sets of tokens given as runs of its byte order. Out: rows, uint32 ``[words]`` with bit ``t % 32`` of word ``t
// 32`` for token ``t``. Most sets that own many tokens (all that stay inside a string, say) are the same for thousands of schemas, so
rows are kept by content, up to ``ROW_BYTES``; finding one again costs a hash of its runs, computing one some nanoseconds a token.

Kept rows are read-only and depend on their key alone, so that threads may share a ``TokenSets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

Row = npt.NDArray[np.uint32]
Index = npt.NDArray[np.intp]

ROW_BYTES = 64 << 20


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

    __slots__ = ("_lengths", "_long", "_rows", "byte_order", "rank", "size", "stop_token_ids", "stops", "words")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size = vocabulary.size
        self.words = word_count(self.size)
        self.byte_order, self.rank = vocabulary.byte_order, vocabulary.rank
        self.stop_token_ids = frozenset(int(token) for token in vocabulary.stop_token_ids)
        self._rows: dict[bytes, Row] = {}
        self._long: dict[int, Row] = {}
        self._lengths = np.diff(vocabulary.token_offsets)
        self.stops = self.pack(np.array(sorted(self.stop_token_ids), np.intp))

    def pack(self, tokens: npt.NDArray[np.integer]) -> Row:
        """The row of the given token ids. uint32 ``[words]``."""
        marks = np.zeros(self.words * 32, np.uint8)
        marks[tokens] = 1
        return np.packbits(marks, bitorder="little").view(np.uint32)

    def row(self, starts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Row:
        """The row of the tokens in these runs of the byte order; the same array for the same runs while it is kept."""
        key = starts.tobytes() + lengths.tobytes()
        row = self._rows.get(key)
        if row is None:
            row = self.pack(self.byte_order[expand(starts, lengths)])
            row.flags.writeable = False
            if (len(self._rows) + 1) * row.nbytes > ROW_BYTES:
                self._rows.clear()
            self._rows[key] = row
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
