"""Whether an item that was begun can still become one that its array has not: so that masks never lead where nothing may follow.

In: a configuration of the machine and the ``Progress`` there. Out: yes or no, exactly, up to ``MOST_STEPS``. What is promised by the
format (``stcc.formats.machine``): between items an array can always be finished. So only the items under way matter, and those only while
they have *rivals*, earlier items that they may still equal.

First a count: the scalar under way can go on in at least so many ways (``Endings.ways``), each of which some output has, and at most
one a rival leads to an equal item. If there are more ways than rivals, it can end. Otherwise the outputs are enumerated, those nearest to
an end first (``ByteNeeds``), until one ends the outermost item. Of bytes that lead to the same configuration only one more than there are
rivals is followed; white space is not where anything else may stand; positions that differ in how numbers are spelled only are
visited once more than there are rivals: so it ends for finite languages, and soon for others.

Cost: a dictionary look-up where the count decides; some 20-500 us for a search.
"""

from __future__ import annotations

import heapq
import itertools
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from stcc.runtime.sampling import ByteNeeds
from stcc.runtime.unique_items import BARE, STRING, Progress, Reader

if TYPE_CHECKING:
    from stcc.runtime.stack import Configuration, Level, Stacks

MOST_STEPS = 4096
"""Positions that one search looks at; past it the answer is no."""
MOST_KEPT = 1 << 16
ENOUGH = 1 << 20
_LOOKAHEAD = 4
_SPACE = frozenset(b" \t\n\r")
_PLAIN = {STRING: [byte for byte in range(0x20, 0x7F) if byte not in b'"\\'], BARE: list(b"123456789")}


class Endings:
    """The answers for one machine; what does not depend on the items is kept."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._stacks: Stacks = reader.stacks
        self._ways: dict[tuple[int, Level, int, int], int] = {}

    @cached_property
    def needs(self) -> ByteNeeds:
        """Fewest bytes that finish."""
        return ByteNeeds(self._stacks)

    def can_end(self, state: int, level: Level, progress: Progress) -> bool:
        """Whether what stands here can be completed by items that differ."""
        if not progress.within_item():
            return True
        rivals = sum(map(len, progress.rivals().values()))
        if not rivals or self.has_ways(state, level, progress, rivals):
            return True
        return self.find(state, level, progress, rivals) is not None

    def has_ways(self, state: int, level: Level, progress: Progress, rivals: int) -> bool:
        """Whether the scalar under way evidently goes on in more ways than there are rivals."""
        if progress.mode == BARE and b"e" in progress.text.lower():
            return False
        return self.ways(state, level, progress.mode) > rivals

    def ways(self, state: int, level: Level, mode: int) -> int:
        """At least so many scalars, none the beginning of another, go on from a configuration inside one, or begin there."""
        if mode in _PLAIN:
            return max(self._counted(state, level, mode, length) for length in range(1, _LOOKAHEAD + 1))
        begun = self._stacks.step(state, level, 0x22) if state >= 0 else None
        if begun is not None:
            return self.ways(*begun, STRING)
        spaced = self._stacks.step(state, level, 0x20) if state >= 0 else None
        if spaced is not None and spaced != (state, level):
            return self.ways(*spaced, mode)
        return max(self._counted(state, level, BARE, length) for length in range(1, _LOOKAHEAD + 1))

    def _counted(self, state: int, level: Level, mode: int, length: int) -> int:
        """Number of ways to write ``length`` more plain characters (digits but 0), up to ``ENOUGH``."""
        key = (state, level, mode, length)
        known = self._ways.get(key)
        if known is None:
            if len(self._ways) >= MOST_KEPT:
                self._ways.clear()
            groups: dict[Configuration, int] = {}
            for byte in _PLAIN[mode] if state >= 0 else ():
                after = self._stacks.step(state, level, byte)
                if after is not None:
                    groups[after] = groups.get(after, 0) + 1
            known = sum(count * (1 if length == 1 else self._counted(*after, mode, length - 1)) for after, count in groups.items())
            known = self._ways[key] = min(known, ENOUGH)
        return known

    def find(self, state: int, level: Level, progress: Progress, rivals: int) -> bytes | None:
        """Bytes that complete the outermost item under way with all items different, nearly the fewest; None if there are none."""
        order = itertools.count()
        queue = [(self.needs.need(state, level), next(order), b"", state, level, progress)]
        visits: dict[object, int] = {}
        for _ in range(MOST_STEPS):
            if not queue:
                return None
            _, _, text, state, level, progress = heapq.heappop(queue)
            if not progress.within_item():
                return text
            key = (state, level, progress.key())
            visits[key] = visits.get(key, 0) + 1
            if visits[key] > rivals + 1:
                continue
            for byte, (target, above) in self._steps(state, level, progress, rivals):
                after = self._reader.read(state, level, progress, bytes([byte]))
                if after is not None:
                    longer = text + bytes([byte])
                    heapq.heappush(queue, (len(longer) + self.needs.need(target, above), next(order), longer, target, above, after))
        return None

    def _steps(self, state: int, level: Level, progress: Progress, rivals: int) -> list[tuple[int, Configuration]]:
        """The bytes worth following, and where they lead."""
        live = self._stacks.live_bytes(state, level)
        if progress.mode != STRING:
            plain = live[~np.isin(live, list(_SPACE))]
            live = plain if len(plain) else live
        groups: dict[Configuration, int] = {}
        chosen = []
        for byte in live.tolist():
            after = self._stacks.step(state, level, byte)
            if after is not None:
                groups[after] = groups.get(after, 0) + 1
                if groups[after] <= rivals + 1:
                    chosen.append((byte, after))
        return chosen
