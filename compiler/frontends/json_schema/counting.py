"""How to count the characters of a string beside a pattern: which blocks, of which size, at what cost.

In: an automaton over characters whose labels say all that is not length, and *thresholds*, the lengths at which what a label means
changes. Out: a ``CountedString``, or None where the plain product of automaton and count is small or blocks would not be smaller.

The plain product has a copy of the automaton for every count. A *block* is what can happen within ``size`` characters from one
state: the pairs (characters read, state). Blocks from different states are the same rule wherever the automaton looks the same
that far, which ``block`` finds by numbering states breadth first. A loop of a pattern looks the same at every count, and so does a
counted repetition except near its last rounds. So n counts of k states cost n / size * k call sites and a few blocks, not n * k copies
of a character. Cost of planning: O(sizes tried x states x size) array rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.utf8 import CharacterView, Partition

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
_Segments = tuple[tuple[int, int], ...]
"""Pairs (from how many characters on, segment)."""

SHORTEST = 33
"""Products of fewer pairs are built in line: a block and its calls would not be smaller."""
_FEW_PAIRS = 400
"""Products of fewer pairs are built in line unless the string has one state: calls cost more when a token is bound than they save."""
_SIZES = ((512, 16), (1 << 14, 64), (1 << 18, 256), (1 << 22, 1024), (1 << 26, 4096))
_LARGEST = 8192
_SMALLEST = 4


def block_size(count: int) -> int:
    """Characters a block, for counting to ``count``: near the square root, from few sizes so that blocks are shared."""
    return next((size for limit, size in _SIZES if count <= limit), _LARGEST)


@dataclass(frozen=True, eq=False)
class Measured:
    """A string language taken apart: ``kinds`` labels what is not length, ``thresholds`` and ``meaning`` as in ``CountedString``."""

    kinds: Dfa
    thresholds: tuple[int, ...]
    meaning: Int32


@dataclass(frozen=True)
class Block:
    """What can happen within ``most`` characters, as far as it matters: equal blocks are one rule.

    Attributes:
        most: characters at most.
        onward: whether the block ends by itself after ``most`` characters; otherwise a closing quote must come by then.
        rows: the successor of each state by class, -1 dead; state 0 is the start.
        closings: pairs (from how many characters on, the label with which a closing quote leaves each state, -1 where it may not come).
        partition: the class of each code point.
    """

    most: int
    onward: bool
    rows: tuple[tuple[int, ...], ...]
    closings: tuple[tuple[int, tuple[int, ...]], ...]
    partition: Partition

    @cached_property
    def levels(self) -> list[list[int]]:
        """The states after 0, 1, ... ``most`` characters, rising."""
        following = [{target for target in row if target >= 0} for row in self.rows]
        levels = [[0]]
        for _ in range(self.most):
            level = sorted(set().union(*(following[state] for state in levels[-1])))
            if level == levels[-1]:
                return levels + [level] * (self.most + 1 - len(levels))
            levels.append(level)
        return levels

    def closing(self, read: int) -> tuple[int, ...]:
        """The label with which a closing quote leaves each state after ``read`` characters."""
        return next(labels for begin, labels in reversed(self.closings) if begin <= read)


@dataclass(frozen=True, eq=False)
class CountedString:
    """A string language with its count.

    Attributes:
        view: an automaton over characters; its labels are *kinds*.
        thresholds: lengths at which the meaning of kinds changes, rising; segment g lies from the g-th on.
        meaning: int32 ``[segments, kinds]``, the label of the string's end, -1 where it may not end.
        labels: number of labels.
        size: characters a block.
    """

    view: CharacterView
    thresholds: tuple[int, ...]
    meaning: Int32
    labels: int
    size: int

    @property
    def bounded(self) -> bool:
        """Whether no string reaches the last threshold."""
        return bool((self.meaning[-1] < 0).all())

    @property
    def blocks(self) -> int:
        """Number of blocks that end by themselves."""
        last = self.thresholds[-1]
        return (last - 1) // self.size if self.bounded else -(-last // self.size)

    @cached_property
    def sites(self) -> int:
        """Calls of blocks that one string takes."""
        states, following = {self.view.start}, [frozenset(t for t in row if t >= 0) for row in self.view.rows.tolist()]
        sites, known = 0, dict[frozenset[int], frozenset[int]]()
        for _ in range(self.blocks + self.bounded):
            sites += len(states)
            entered = frozenset(states)
            if entered not in known:
                reached: frozenset[int] = entered
                for _ in range(self.size):
                    reached = frozenset().union(*(following[state] for state in reached))
                known[entered] = reached
            states = set(known[entered])
        return sites

    def ending(self, count: int, state: int) -> int:
        """The label of the string that ends in ``state`` after ``count`` characters, or -1."""
        kind = self.view.accept[state]
        return int(self.meaning[self._segment(count), kind]) if kind >= 0 else -1

    def _segment(self, count: int) -> int:
        return int(np.searchsorted(self.thresholds, count, side="right"))

    def block(self, count: int, state: int, *, most: int, onward: bool) -> tuple[Block, list[int]]:
        """The block from ``state`` after ``count`` characters, and its states in the order in which the block numbers them."""
        last = most - 1 if onward else most
        edges = [edge for edge in self.thresholds if count + 1 < edge <= count + last]
        segments = ((1, self._segment(count + 1)), *((edge - count, self._segment(edge)) for edge in edges))
        key = (state, most, onward, segments)
        if key not in self._known:
            self._known[key] = self._block(*key)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, int, bool, _Segments], tuple[Block, list[int]]]:
        return {}

    def _block(self, state: int, most: int, onward: bool, segments: _Segments) -> tuple[Block, list[int]]:
        rows, order, inner = local_rows(self.view.rows, state, most)
        kinds = self.view.accept[order]
        closings: list[tuple[int, tuple[int, ...]]] = []
        for begin, segment in segments:
            labels = tuple(np.where(kinds >= 0, self.meaning[segment, kinds], -1).tolist())
            if not closings or closings[-1][1] != labels:
                closings.append((begin, labels))
        cells = tuple(map(tuple, np.where(inner[:, None], rows, -1).tolist()))
        return Block(most, onward, cells, tuple(closings), self.view.partition), order


def local_rows(table: Int32, start: int, most: int) -> tuple[Int32, list[int], Bool]:
    """The states within ``most`` characters of ``start``, numbered breadth first.

    Returns their rows in that numbering, int32 ``[n, classes]``; their own numbers; which of them are reached before the last character.
    """
    numbers = {start: 0}
    order, fringe, inside = [start], [start], 0
    for _ in range(most):
        if not fringe:
            break
        inside = len(order)
        fringe = [target for target in dict.fromkeys(table[fringe].reshape(-1).tolist()) if target >= 0 and target not in numbers]
        for target in fringe:
            numbers[target] = len(order)
            order.append(target)
    if not fringe:
        inside = len(order)
    place = np.full(len(table) + 1, -1, np.int32)
    place[order] = np.arange(len(order))
    return place[table[order]], order, np.arange(len(order)) < inside


def plan(language: Measured, view: CharacterView, labels: int, weight: int, max_states: int) -> CountedString | None:
    """The cheapest way in blocks; None where the product in line is small or no dearer.

    ``view`` is ``language.kinds`` over characters, ``weight`` the states that a character takes. Raises BudgetError where every way
    has more than ``max_states`` calls and states before minimisation.
    """
    thresholds, meaning = language.thresholds, language.meaning
    last = thresholds[-1]
    reached = _Reached(view.rows, view.start)
    least = SHORTEST if len(view.rows) == 1 else _FEW_PAIRS
    pairs = reached.pairs(last)
    if pairs < least:
        return None
    sizes = [block_size(last)]
    if len(view.rows) > 1:
        sizes += [size for size in (sizes[0] // 2, sizes[0] // 4, sizes[0] // 8) if size >= _SMALLEST]
    best: tuple[int, CountedString] | None = None
    for size in sizes:
        counted = CountedString(view, thresholds, meaning, labels, size)
        cost = _cost(counted, reached, weight, best[0] if best else pairs * weight)
        if best is None or cost < best[0]:
            best = cost, counted
    assert best is not None
    if len(view.rows) > 1 and min(best[0], pairs * weight) > max_states:
        raise BudgetError(f"counting to {last} characters beside {len(view.rows)} states of a pattern or format needs more than "
                          f"{max_states} states", hint="lower the bound, drop it, or raise max_states (--max-states)")
    return best[1] if best[0] < pairs * weight or len(view.rows) == 1 else None


def _cost(counted: CountedString, reached: _Reached, weight: int, most: int) -> int:
    """States and calls that counting in blocks takes, or more than ``most`` if it is more."""
    size, sites, entered = counted.size, 0, set[int]()
    for block in range(counted.blocks + 1):
        states = reached.states(block * size)
        entered |= states
        sites += len(states)
        if sites > most or not states:
            break
    known: set[tuple[object, ...]] = set()
    cost = sites
    for state in sorted(entered):
        block_, _ = counted.block(0, state, most=size, onward=True)
        if (block_.rows, block_.closings[-1]) not in known:
            known.add((block_.rows, block_.closings[-1]))
            cost += weight * sum(map(len, block_.levels))
        if cost > most:
            break
    return cost


class _Reached:
    """The states after each number of characters, found as asked for; the sets end in a cycle or empty."""

    def __init__(self, rows: Int32, start: int) -> None:
        self.following = [frozenset(target for target in row if target >= 0) for row in rows.tolist()]
        self.sets: list[frozenset[int]] = [frozenset((start,))]
        self.numbers = {self.sets[0]: 0}
        self.loop: tuple[int, int] | None = None  # first set of the cycle, its length

    def states(self, count: int) -> frozenset[int]:
        """States after exactly ``count`` characters."""
        while self.loop is None and len(self.sets) <= count:
            fresh: frozenset[int] = frozenset().union(*(self.following[state] for state in self.sets[-1]))
            if fresh in self.numbers:
                self.loop = self.numbers[fresh], len(self.sets) - self.numbers[fresh]
            else:
                self.numbers[fresh] = len(self.sets)
                self.sets.append(fresh)
        if self.loop is None or count < len(self.sets):
            return self.sets[count]
        return self.sets[self.loop[0] + (count - self.loop[0]) % self.loop[1]]

    def pairs(self, count: int) -> int:
        """How many pairs (characters read, state) there are with fewer than ``count`` characters."""
        self.states(count)
        known = self.sets[:count]
        total = sum(map(len, known))
        if self.loop is not None and count > len(known):
            cycle = self.sets[self.loop[0]:]
            rounds, left = divmod(count - len(known), len(cycle))
            total += rounds * sum(map(len, cycle)) + sum(map(len, cycle[:left]))
        return total
