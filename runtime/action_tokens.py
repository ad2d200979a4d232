"""The tokens of each action of a binding, ready to be put into mask rows.

In: a ``Binding``'s runs and the ``TokenSets`` of its vocabulary. Out: rows of sets of actions. Few actions own many tokens; the others own
a few thousand together. Without a large one, every token has one action, so the sets are disjoint and adding bits is the same as joining
them: one ``np.add.at`` scatters them (5-10 us). Sets with the same large actions differ in few tokens, so the first of them is kept as a
*base*, and the others are a copy of it with the tokens of some small actions added and taken away (10-30 us). The base itself is joined
from the rows of its large actions, where ``prepare`` made those; else it is read off the runs of the byte order (``ActionRuns``) and made
from the vocabulary's nearest reference row (``TokenSets``, 0.1-1 ms), and so is the first row asked for, whatever it holds.

Cost: ``ActionRuns`` none; ``ActionTokens`` O(runs + tokens of small actions), some 100 us; ``prepare`` some 100 us a large action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.runtime.token_sets import BIT, Row, TokenSets, expand

if TYPE_CHECKING:
    from stcc.formats.binding import Binding

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

LARGE_ACTION = 2048
"""Tokens from which an action is large."""
SMALL_TOKENS = 1 << 15
"""Most tokens, over all small actions, that are expanded when a grammar is opened."""
MOST_PREPARED = 64
"""Large actions whose rows are made beforehand, at most: 1 MB over Llama-3's vocabulary."""
MOST_BASES = 128
"""Bases kept."""
FEW_ACTIONS = 16
"""Actions up to which slices are cheaper than one gather."""
FEW_TOKENS = 16
"""Tokens up to which setting bits one by one beats NumPy; most states inside forced text admit fewer."""


class ActionRuns:
    """The runs of the byte order that each action owns."""

    __slots__ = ("actions", "run_action", "run_starts", "sets")

    def __init__(self, binding: Binding, sets: TokenSets) -> None:
        self.sets, self.actions = sets, binding.actions
        self.run_starts, self.run_action = binding.run_starts, binding.run_action

    def lengths(self) -> Int32:
        """int32 ``[runs]``: the tokens of each run."""
        lengths = np.empty(len(self.run_starts), np.int32)
        if len(lengths):
            np.subtract(self.run_starts[1:], self.run_starts[:-1], out=lengths[:-1])
            lengths[-1] = len(self.sets.byte_order) - int(self.run_starts[-1])
        return lengths

    def union(self, actions: Int32) -> Row:
        """The packed tokens of several distinct actions, int32 ``[words]``, not to be written to."""
        if not len(self.run_starts):
            return self.sets.row(self.run_starts)
        member = np.zeros(self.actions, np.bool_)
        member[actions] = True
        runs = member.take(self.run_action)
        bounds = self.run_starts[1:][runs[1:] != runs[:-1]]
        first, last = [0] if runs[0] else [], [len(self.sets.byte_order)] if runs[-1] else []
        return self.sets.row(np.concatenate((first, bounds, last)).astype(np.int32) if first or last else bounds)


class ActionTokens:
    """The tokens of each small action.

    Attributes:
        runs: the runs of all actions.
        actions: number of actions.
        is_large: bool ``[actions]``.
        sizes: intp ``[actions]``, how many tokens each small action owns; 0 for large ones and for the dead action.
        starts: intp ``[actions + 1]``, where the tokens of each small action begin in the next two.
        words: intp, word of each token of a small action.
        bits: int32, its bit there.
    """

    __slots__ = ("_bases", "_large_ids", "_large_rows", "_starts_list", "actions", "bits", "is_large", "runs", "sizes", "starts", "words")

    def __init__(self, runs: ActionRuns) -> None:
        self.runs, self.actions = runs, runs.actions
        lengths = runs.lengths()
        tokens = np.bincount(runs.run_action, weights=lengths, minlength=self.actions).astype(np.intp)
        tokens[:1] = 0  # action 0 is dead everywhere, so its tokens are never asked for
        self.is_large = tokens >= _threshold(tokens)
        self._large_ids = frozenset(np.flatnonzero(self.is_large).tolist())
        self.sizes = np.where(self.is_large, 0, tokens)
        self.starts = np.zeros(self.actions + 1, np.intp)
        np.cumsum(self.sizes, out=self.starts[1:])
        self._starts_list: list[int] = self.starts.tolist()
        self._bases: dict[bytes, tuple[Bool, Row]] = {}
        self._large_rows: dict[int, Row] = {}
        self._expand(lengths)

    def _expand(self, lengths: Int32) -> None:
        """Word and bit of every token of a small action, by action."""
        runs = self.runs
        small = np.flatnonzero(self.sizes.take(runs.run_action))
        actions = runs.run_action[small]
        # a stable sort of 16-bit keys is a radix sort
        small = small[np.argsort(actions.astype(np.uint16) if self.actions <= 1 << 16 else actions, kind="stable")]
        tokens = runs.sets.byte_order[expand(runs.run_starts[small], lengths[small])]
        self.words = (tokens >> 5).astype(np.intp)
        self.bits = BIT[tokens & 31]

    def union(self, actions: Int32) -> Row:
        """The packed tokens of several distinct actions, int32 ``[words]``, not to be written to."""
        few = len(actions) <= FEW_ACTIONS
        if not self._large_ids.isdisjoint(actions.tolist()) if few else bool(self.is_large[actions].any()):
            return self._with_large(actions)
        row = np.zeros(self.runs.sets.words, np.int32)
        if few:
            self._scatter_few(row, actions.tolist())
        else:
            self._add(row, actions)
        return row

    def _add(self, row: Row, actions: npt.NDArray[np.integer]) -> None:
        """Put the tokens of small actions, none of which is there, into ``row``."""
        chosen = self.places(actions)
        np.add.at(row, self.words[chosen], self.bits[chosen])

    def _with_large(self, actions: Int32) -> Row:
        """``union`` of actions some of which are large."""
        large = self.is_large[actions]
        small = np.zeros(self.actions, np.bool_)
        small[actions[~large]] = True
        key = actions[large].tobytes()
        base = self._bases.get(key)
        if base is None:
            row = self._joined_large(actions[large].tolist())
            if row is None:
                row = self.runs.union(actions)
            else:
                self._add(row, actions[~large])
            if len(self._bases) >= MOST_BASES:
                self._bases.clear()
            self._bases[key] = small, row
            return row
        changed = np.flatnonzero(small ^ base[0])
        row = base[1].copy()
        places = self.places(changed)
        signs = np.where(small[changed], np.int32(1), np.int32(-1)).repeat(self.sizes[changed])
        np.add.at(row, self.words[places], self.bits[places] * signs)
        return row

    def _joined_large(self, actions: list[int]) -> Row | None:
        """The tokens of large actions, a fresh row; None if one of them was not prepared."""
        rows = [self._large_rows[action] for action in actions if action in self._large_rows]
        return np.bitwise_or.reduce(rows) if len(rows) == len(actions) else None

    def prepare(self) -> None:
        """Make the rows of the large actions, ``MOST_PREPARED`` of them."""
        runs, sets = self.runs, self.runs.sets
        lengths = runs.lengths()
        for action in sorted(self._large_ids)[:MOST_PREPARED]:
            chosen = np.flatnonzero(runs.run_action == action)
            self._large_rows[action] = sets.pack(sets.byte_order[expand(runs.run_starts[chosen], lengths[chosen])])

    def places(self, actions: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
        """Where in ``words`` and ``bits`` the tokens of small ``actions`` stand, one action after the other."""
        return expand(self.starts[actions], self.sizes[actions])

    def _scatter_few(self, row: Row, actions: list[int]) -> None:
        starts, words, bits = self._starts_list, self.words, self.bits
        spans = [(starts[action], starts[action + 1]) for action in actions]
        total = sum([high - low for low, high in spans])
        if total <= FEW_TOKENS:
            word_at, bit_at, cells = words.item, bits.item, row.data
            for low, high in spans:
                for place in range(low, high):
                    cells[word_at(place)] += bit_at(place)
        elif len(spans) <= 3:  # as many scatters cost less than joining their spans
            for low, high in spans:
                np.add.at(row, words[low:high], bits[low:high])
        else:
            np.add.at(row, np.concatenate([words[low:high] for low, high in spans]), np.concatenate([bits[low:high] for low, high in
            spans]))


def _threshold(sizes: npt.NDArray[np.intp]) -> int:
    """Size from which an action is large, lowered until all small ones together own at most ``SMALL_TOKENS``."""
    threshold = LARGE_ACTION
    while threshold > 1 and int(sizes[sizes < threshold].sum()) > SMALL_TOKENS:
        threshold //= 2
    return threshold
