"""Mask rows of one bound machine: which tokens may follow in a configuration, packed.

In: a ``Binding``, the ``TokenSets`` of its vocabulary and the machine's ``Stacks``. Out: rows, int32 ``[words]``, shared by all matchers
of a grammar and kept by *key* up to a byte budget.

A state's live actions either live whatever the stack says (moves) or depend on it (records POPPED and EXPOSED). The latter are resolved
against the real stack, once per level. What is left, the list of actions alive and whether the output may end, decides the row, and names
it: states that admit the same actions share one. A repeated row costs two dictionary look-ups and a copy.

A fresh row: few actions own many tokens; the others own a few thousand together. Without a large one, every token has one action, so the
sets are disjoint and adding bits is the same as joining them: one ``np.add.at`` scatters them (5-10 us). With a large one the set is read
off the runs of the byte order and made from the vocabulary's nearest reference row (``TokenSets``, 30-60 us).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import EXPOSED, MOVE, POPPED
from stcc.runtime.stack import ENDED, TERMINATED, Configuration, Level, Stacks
from stcc.runtime.token_sets import BIT, Row, TokenSets, expand

if TYPE_CHECKING:
    from stcc.formats.binding import Binding

Int32 = npt.NDArray[np.int32]
Entry = tuple[Int32, bool]

LARGE_ACTION = 2048
"""Tokens from which an action is large."""
SMALL_TOKENS = 1 << 15
"""Most tokens, over all small actions, that are expanded when a grammar is opened."""
ROW_BYTES = 64 << 20
FEW_ACTIONS = 16
"""Actions up to which slices are cheaper than one gather."""
FEW_TOKENS = 16
"""Tokens up to which setting bits one by one beats NumPy; most states inside forced text admit fewer."""
MOST_VALUES = 1 << 18
MOST_KEYS = 1 << 18
DEAD, STOP = -1, -2
_NONE = np.zeros(0, np.int32)


class ActionTokens:
    """The tokens of each action, expanded for the small ones; sets that hold a large one are taken as runs of the byte order.

    O(runs + tokens of small actions) to make, in array operations.
    """

    __slots__ = ("_actions", "_bits", "_is_large", "_large_ids", "_run_action", "_run_starts", "_sets", "_sizes", "_starts", "_starts_list",
                 "_words")

    def __init__(self, binding: Binding, sets: TokenSets) -> None:
        self._sets, self._actions = sets, binding.actions
        self._run_starts, self._run_action = binding.run_starts, binding.run_action.astype(np.intp)  # what NumPy indexes with fastest
        lengths = np.empty(len(self._run_starts), np.int32)
        if len(lengths):
            np.subtract(self._run_starts[1:], self._run_starts[:-1], out=lengths[:-1])
            lengths[-1] = len(sets.byte_order) - int(self._run_starts[-1])
        sizes = np.bincount(self._run_action, weights=lengths, minlength=self._actions).astype(np.intp)
        sizes[:1] = 0  # action 0 is dead everywhere, so its tokens are never asked for
        self._is_large = sizes >= _threshold(sizes)
        self._large_ids = frozenset(np.flatnonzero(self._is_large).tolist())
        self._sizes = np.where(self._is_large, 0, sizes)
        self._starts = np.zeros(self._actions + 1, np.intp)
        np.cumsum(self._sizes, out=self._starts[1:])
        self._starts_list: list[int] = self._starts.tolist()
        self._expand(lengths)

    def _expand(self, lengths: Int32) -> None:
        """Word and bit of every token of a small action, by action."""
        small = np.flatnonzero(self._sizes[self._run_action])
        actions = self._run_action[small]
        # a stable sort of 16-bit keys is a radix sort
        small = small[np.argsort(actions.astype(np.uint16) if self._actions <= 1 << 16 else actions, kind="stable")]
        tokens = self._sets.byte_order[expand(self._run_starts[small], lengths[small])]
        self._words = (tokens >> 5).astype(np.intp)
        self._bits = BIT[tokens & 31]

    def union(self, actions: Int32) -> Row:
        """The packed tokens of several distinct actions, int32 ``[words]``, not to be written to."""
        few = len(actions) <= FEW_ACTIONS
        if not self._large_ids.isdisjoint(actions.tolist()) if few else bool(self._is_large[actions].any()):
            return self._sets.row(self._bounds(actions))
        row = np.zeros(self._sets.words, np.int32)
        if few:
            self._scatter_few(row, actions.tolist())
        else:
            chosen = expand(self._starts[actions], self._sizes[actions])
            np.add.at(row, self._words[chosen], self._bits[chosen])
        return row

    def _bounds(self, actions: Int32) -> Int32:
        """Where in the byte order the tokens of ``actions`` begin and end in turn. int32, strictly rising, an even number."""
        member = np.zeros(self._actions, np.bool_)
        member[actions] = True
        runs = member[self._run_action]
        bounds = self._run_starts[1:][runs[1:] != runs[:-1]]
        first, last = [0] if runs[0] else [], [len(self._sets.byte_order)] if runs[-1] else []
        return np.concatenate((first, bounds, last)).astype(np.int32) if first or last else bounds

    def _scatter_few(self, row: Row, actions: list[int]) -> None:
        starts, words, bits = self._starts_list, self._words, self._bits
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


class Masks:
    """Rows by configuration, and the token transitions that go with them; one for all matchers of a grammar.

    ``rows`` and ``values`` are public because a matcher's hot path reads them itself: a call would double its cost.

    Attributes:
        binding: the binding.
        stacks: the machine's stacks.
        sets: the vocabulary's token sets.
        states: number of machine states; a value from there on is a record.
        rows: number -> (row, whether it masks anything); a level's ``keys`` holds the number of each state seen on it.
        values: ``state * size + token`` -> value, DEAD or STOP, for the tokens seen so far.
    """

    def __init__(self, binding: Binding, stacks: Stacks, sets: TokenSets) -> None:
        self.binding, self.stacks, self.sets = binding, stacks, sets
        self.states = stacks.machine.states
        self.rows: dict[int, Entry] = {}
        self.values: dict[int, int] = {}
        self.tokens = ActionTokens(binding, sets)
        self._dependent: dict[int, tuple[list[int], npt.NDArray[np.intp]]] = {}
        self._contents: dict[bytes, int] = {}
        self._most_rows = max(16, ROW_BYTES // (4 * sets.words))
        self._numbers = itertools.count()
        self._kept = 0
        self._last_word = np.int32(-1 if sets.size % 32 == 0 else (1 << sets.size % 32) - 1)
        self._leaving = self._leaving_states()

    def live(self, state: int) -> tuple[Int32, Int32]:
        """The live actions of ``state`` and their values, int32 ``[entries]`` each."""
        low, high = self.binding.row_offsets[state], self.binding.row_offsets[state + 1]
        return self.binding.row_actions[low:high], self.binding.row_values[low:high]

    # transitions

    def value(self, state: int, token: int) -> int:
        """What ``token`` does at ``state``: a value of the binding, DEAD, or STOP for a stop token. Kept for the next time."""
        found = self._find_value(state, token)
        if len(self.values) >= MOST_VALUES:
            self.values.clear()
        self.values[state * self.sets.size + token] = found
        return found

    def _find_value(self, state: int, token: int) -> int:
        if token in self.sets.stop_token_ids:
            return STOP
        rank = self.sets.rank[token]
        if state < 0 or rank < 0:
            return DEAD
        binding = self.binding
        action = binding.run_action[binding.run_starts.searchsorted(rank, "right") - 1]
        actions, values = self.live(state)
        place = int(actions.searchsorted(action))
        return int(values[place]) if place < len(actions) and actions[place] == action else DEAD

    def land(self, value: int, level: Level) -> Configuration | None:
        """The configuration that ``value`` leads to from a state on ``level``; None where the stack makes it dead."""
        if value < self.states:
            return (value, level) if value >= 0 else None
        try:
            return level.landings[value]
        except KeyError:
            landing = level.landings[value] = self._follow(value - self.states, level)
            return landing

    def _follow(self, record: int, level: Level) -> Configuration | None:
        binding = self.binding
        while binding.record_kind[record] == EXPOSED:
            landing = self.stacks.leave(int(binding.record_head[record]), level)
            if landing is None or landing[0] == ENDED:  # more bytes were read after the text ended
                return None
            level = landing[1]
            value = self.suffix_value(int(binding.record_function[record]), landing[0])
            if value < self.states:
                return (value, level) if value >= 0 else None
            record = value - self.states
        head = int(binding.record_head[record])
        if binding.record_kind[record] == POPPED:
            return self.stacks.leave(head, level)
        low, high = binding.record_push_offsets[record], binding.record_push_offsets[record + 1]
        return head, self.stacks.push_all(level, binding.record_pushes[low:high])

    def suffix_value(self, function: int, state: int) -> int:
        """The value of suffix function ``function`` at return state ``state``, DEAD where it has none."""
        binding = self.binding
        low, high = int(binding.suffix_offsets[function]), int(binding.suffix_offsets[function + 1])
        place = low + int(binding.suffix_states[low:high].searchsorted(state))
        return int(binding.suffix_values[place]) if place < high and binding.suffix_states[place] == state else DEAD

    # rows

    def row(self, state: int, level: Level) -> Entry:
        """The row of a configuration, and whether it masks anything. int32 ``[words]``, shared: not to be written to."""
        key = level.keys.get(state)
        entry = None if key is None else self.rows.get(key)
        return self._find(state, level) if entry is None else entry

    def _find(self, state: int, level: Level) -> Entry:
        may_end = state != TERMINATED and self.stacks.may_end(state, level)
        actions = self.alive(state, level)
        content = actions.tobytes() + (b"$" if may_end else b"")  # four bytes an action, so the mark is unambiguous
        key = self._contents.get(content)
        if key is None:
            # numbers are never used twice, so a level that remembers a forgotten one finds no row and comes back here; two threads that
            # meet here agree on one (a counter's next and setdefault are each one step under the interpreter lock)
            key = self._contents.setdefault(content, next(self._numbers))
        if self._kept < MOST_KEYS:
            self._kept += 1
            level.keys[state] = key
        entry = self.rows.get(key)
        if entry is None:
            entry = self._keep(key, self.joined(actions, may_end))
        return entry

    def _keep(self, key: int, row: Row) -> Entry:
        whole = row[-1] == self._last_word and bool((row[:-1] == -1).all())
        if len(self.rows) >= self._most_rows:
            for old in list(self.rows)[: self._most_rows // 2]:
                self.rows.pop(old, None)
            self._contents = {content: number for content, number in list(self._contents.items()) if number in self.rows}
        entry = self.rows[key] = (row, not whole)
        return entry

    def alive(self, state: int, level: Level) -> Int32:
        """The actions that lead somewhere from a configuration, rising. int32."""
        if state < 0:
            return _NONE
        actions, values = self.live(state)
        if state not in self._leaving:
            return actions
        dependent = self._dependent.get(state)
        if dependent is None:
            dependent = self._dependent[state] = self._find_dependent(values)
        records, which = dependent
        verdicts = [self.land(record, level) is not None for record in records]
        if all(verdicts):
            return actions
        chosen: Int32 = actions[np.array([*verdicts, True])[which]]
        return chosen

    def _leaving_states(self) -> frozenset[int]:
        """The states at which some token leaves the rule, so that what it does depends on the stack. O(entries), in array operations."""
        binding = self.binding
        if (binding.record_kind == MOVE).all():
            return frozenset()
        places = np.flatnonzero(binding.row_values >= self.states)
        places = places[binding.record_kind[binding.row_values[places] - self.states] != MOVE]
        return frozenset((binding.row_offsets.searchsorted(places, "right") - 1).tolist())

    def _find_dependent(self, values: Int32) -> tuple[list[int], npt.NDArray[np.intp]]:
        """The distinct POPPED and EXPOSED values, which depend on the stack, and which of them each value is (the last place: none)."""
        places = np.flatnonzero(values >= self.states)
        places = places[self.binding.record_kind[values[places] - self.states] != MOVE]
        found = values[places].tolist()
        records = sorted(set(found))
        index = {record: number for number, record in enumerate(records)}
        which = np.full(len(values), len(records), np.intp)
        which[places] = [index[record] for record in found]
        return records, which

    def joined(self, actions: Int32, may_end: bool) -> Row:
        """The row of some actions' tokens, with the stop tokens where the output may end. int32 ``[words]``, not to be written to."""
        row = self.tokens.union(actions)
        return row | self.sets.stops if may_end else row
