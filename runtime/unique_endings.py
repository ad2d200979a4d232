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

from stcc.runtime.byte_needs import ByteNeeds
from stcc.runtime.json_values import spelled
from stcc.runtime.unique_items import BARE, BETWEEN, STRING, WANTED, Progress, Reader, normal

if TYPE_CHECKING:
    from stcc.runtime.stack import Configuration, Level, Stacks

MOST_STEPS = 4096
"""Positions that one search looks at; past it the answer is no."""
MOST_KEPT = 1 << 16
ENOUGH = 1 << 20
LOOKAHEAD = 4
_FEW = 64
"""Strings that are listed one by one: up to twice as many."""
_NEAR = 64
"""Configurations looked at for a scalar that may begin soon."""
_SPACE = frozenset(b" \t\n\r")
PLAIN = {STRING: [byte for byte in range(0x20, 0x7F) if byte not in b'"\\'], BARE: list(b"123456789")}


class Endings:
    """The answers for one machine; what does not depend on the items is kept."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._stacks: Stacks = reader.stacks
        self._ways: dict[tuple[int, Level, int, int], int] = {}
        self._rests: dict[tuple[int, Level], tuple[bytes, ...]] = {}
        self._plain: dict[tuple[int, Level], bool] = {}

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
        if progress.mode == STRING and self._remainders(state, level):
            differs = self.differs(state, level, progress.text, {spelled(target) for target in progress.targets()})
            if differs or [*progress.rivals()] == [progress.frame]:  # then the string is the item
                return bool(differs)
        return self.find(state, level, progress, rivals, whole=False) is not None

    def differs(self, state: int, level: Level, text: bytes, targets: set[bytes]) -> bool | None:
        """Whether a string begun as ``text`` has an end that makes it none of ``targets``, as spelled; None if its ends are not few."""
        rests = self._remainders(state, level)
        if not rests:
            return None
        if len(rests) > len(targets) and b"\\u" not in text and self._in_one_way(state, level):
            return True
        return any(normal(text + rest) not in targets for rest in rests)

    def has_ways(self, state: int, level: Level, progress: Progress, rivals: int) -> bool:
        """Whether what is under way evidently goes on in more ways than there are rivals."""
        if progress.mode == BARE and b"e" in progress.text.lower():
            return False
        if progress.mode == BETWEEN and progress.frame is not None and progress.frame.items is not None:
            rivals += progress.frame.items.count  # what begins next is an item of the innermost array
        return self.ways(state, level, progress.mode) > rivals

    def ways(self, state: int, level: Level, mode: int) -> int:
        """In at least so many ways, none the beginning of another, the scalar under way goes on, or the next one that may begin.

        Between here and a next one no array's item is completed: only names, which may end a string that is under way.
        """
        key = (state, level, mode, 0)
        known = self._ways.get(key)
        if known is None:
            if len(self._ways) >= MOST_KEPT:
                self._ways.clear()
            known = self._ways[key] = self._find_ways(state, level, mode)
        return known

    def _find_ways(self, state: int, level: Level, mode: int) -> int:
        if mode == BARE:
            return self._most_counted(state, level, mode)
        seen: set[tuple[int, Level, int]] = set()
        waiting, most = [(state, level, mode)], 0
        while waiting and most < ENOUGH and len(seen) < _NEAR:
            place = waiting.pop()
            if place in seen or place[0] < 0:
                continue
            seen.add(place)
            most = max(most, self._most_counted(*place))
            waiting += self._onward(*place)
        return most

    def _most_counted(self, state: int, level: Level, mode: int) -> int:
        return max(self.counted(state, level, mode, length) for length in range(1, LOOKAHEAD + 1)) if mode in PLAIN else 0

    def _onward(self, state: int, level: Level, mode: int) -> list[tuple[int, Level, int]]:
        """The configurations behind a bracket, a comma, a colon, a quotation mark or the end of a name; behind its bytes in a name."""
        found: list[tuple[int, Level, int]] = []
        step = self._stacks.step
        if mode != STRING:
            if (bare := self.counted(state, level, BARE, 1)) and bare > 1:
                found.append((state, level, BARE))
            for byte in b' ,:[{"':
                after = step(state, level, byte)
                if after is not None and (after != (state, level) or byte != 0x20):
                    found.append((*after, STRING if byte == 0x22 else WANTED))
            return found
        for rest in self._remainders(state, level):
            after = self._stacks.read(state, level, rest + b'"')
            if after is not None and after[0] >= 0 and self._colon(*after):
                found.append((*after, WANTED))
        return found

    def _colon(self, state: int, level: Level) -> bool:
        """Whether a colon may follow: a name has ended."""
        spaced = self._stacks.step(state, level, 0x20)
        return any(each is not None and self._stacks.step(*each, 0x3A) is not None for each in ((state, level), spaced))

    def _remainders(self, state: int, level: Level) -> tuple[bytes, ...]:
        """All that the string under way may go on with up to its end, if that is little; else nothing."""
        known = self._rests.get((state, level))
        if known is None:
            if len(self._rests) >= MOST_KEPT:
                self._rests.clear()
            known = self._rests[(state, level)] = self._find_remainders(state, level)
        return known

    def _in_one_way(self, state: int, level: Level) -> bool:
        """Whether no two of ``_remainders`` spell the same string, unless what is before them ends within an escape."""
        known = self._plain.get((state, level))
        if known is None:
            if len(self._plain) >= MOST_KEPT:
                self._plain.clear()
            known = self._plain[(state, level)] = not any(b"\\u" in rest for rest in self._remainders(state, level))
        return known

    def _find_remainders(self, state: int, level: Level) -> tuple[bytes, ...]:
        if self._most_counted(state, level, STRING) > _FEW:
            return ()
        found: list[bytes] = []
        waiting = [(b"", state, level)]
        for _ in range(_FEW * _NEAR):
            if not waiting:
                return tuple(found)
            text, state, level = waiting.pop()
            live = self._stacks.live_bytes(state, level).tolist()
            if len(found) + len(waiting) + len(live) > 2 * _FEW:
                return ()
            for byte in live:
                after = self._stacks.step(state, level, byte)
                if byte == 0x22 and _whole(text):
                    found.append(text)
                elif after is not None:
                    waiting.append((text + bytes([byte]), *after))
        return ()

    def counted(self, state: int, level: Level, mode: int, length: int) -> int:
        """Number of ways to write ``length`` more characters of ``PLAIN[mode]``, up to ``ENOUGH``."""
        key = (state, level, mode, length)
        known = self._ways.get(key)
        if known is None:
            if len(self._ways) >= MOST_KEPT:
                self._ways.clear()
            groups: dict[Configuration, int] = {}
            for byte in PLAIN[mode] if state >= 0 else ():
                after = self._stacks.step(state, level, byte)
                if after is not None:
                    groups[after] = groups.get(after, 0) + 1
            known = sum(count * (1 if length == 1 else self.counted(*after, mode, length - 1)) for after, count in groups.items())
            known = self._ways[key] = min(known, ENOUGH)
        return known

    def shortest(self, state: int, level: Level, progress: Progress) -> bytes:
        """Bytes that complete the outermost item under way, nearly the fewest; empty if none is under way."""
        return self.find(state, level, progress, sum(map(len, progress.rivals().values()))) or b""

    def find(self, state: int, level: Level, progress: Progress, rivals: int, *, whole: bool = True) -> bytes | None:
        """Bytes that complete the outermost item under way with all items different, nearly the fewest; None if there are none.

        Not ``whole``: or that lead to where it is evident that there are.
        """
        order = itertools.count()
        queue = [(self.needs.need(state, level), next(order), b"", state, level, progress)]
        visits: dict[object, int] = {}
        for _ in range(MOST_STEPS):
            if not queue:
                return None
            _, _, text, state, level, progress = heapq.heappop(queue)
            if not progress.within_item() or not (whole or (left := sum(map(len, progress.rivals().values())))):
                return text
            if not whole and self.has_ways(state, level, progress, left):
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


def _whole(text: bytes) -> bool:
    """Whether a quotation mark behind ``text`` is not escaped."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 0
