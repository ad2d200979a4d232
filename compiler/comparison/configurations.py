"""Two machines compared over explicit configurations, breadth first and bounded: for machines whose stacks do not keep step.

In: two machines. Out: shortest texts of either alone as far as was searched, and whether that was everything. What is found is certain;
what is not found is certain only where the search ran dry. Also the shortest ways on from one configuration. Cost: configurations searched
times distinct bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stcc.compiler.comparison.product import PREFERENCE
from stcc.compiler.stepping import Configuration, initial, may_end, step
from stcc.formats.machine import Machine

_TICKS = 256
_Both = tuple[Configuration | None, Configuration | None]


@dataclass(frozen=True)
class Found:
    """Shortest texts of either machine alone (None: none was met), and whether everything was searched."""

    only_old: bytes | None
    only_new: bytes | None
    complete: bool


def distinct_bytes(*machines: Machine) -> list[int]:
    """One byte, the most readable, of each class that the machines tell apart."""
    order = list(PREFERENCE)
    columns = np.stack([machine.byte_class[order] for machine in machines], axis=1)
    _, first = np.unique(columns, axis=0, return_index=True)
    return [PREFERENCE[place] for place in sorted(first.tolist())]


def search(old: Machine, new: Machine, limit: int, check: Callable[[], None] = lambda: None) -> Found:
    """Breadth-first search of at most ``limit`` pairs of configurations."""
    letters = distinct_bytes(old, new)
    start: _Both = (initial(old), initial(new))
    came: dict[_Both, tuple[_Both, int] | None] = {start: None}
    queue = deque([start])
    only: list[bytes | None] = [None, None]
    while queue and None in only:
        if len(came) % _TICKS == 0:
            check()
        both = queue.popleft()
        ends = [there is not None and may_end(machine, there) for machine, there in zip((old, new), both, strict=True)]
        if ends[0] != ends[1] and only[ends[1]] is None:
            only[ends[1]] = _text(came, both)
        for byte in letters:
            onward = tuple(None if there is None else step(machine, there, byte) for machine, there in zip((old, new), both, strict=True))
            following: _Both = (onward[0], onward[1])
            if following not in came and following != (None, None):
                if len(came) >= limit:
                    return Found(only[0], only[1], False)
                came[following] = both, byte
                queue.append(following)
    return Found(only[0], only[1], True)


def _text(came: dict[_Both, tuple[_Both, int] | None], both: _Both) -> bytes:
    letters = []
    step_ = came[both]
    while step_ is not None:
        letters.append(step_[1])
        step_ = came[step_[0]]
    return bytes(reversed(letters))


def ways_on(machine: Machine, start: Configuration, limit: int) -> Iterator[tuple[bytes, Configuration]]:
    """Texts from ``start`` to each configuration within reach, shortest first, with it; at most ``limit`` of them."""
    letters = distinct_bytes(machine)
    seen = {start}
    queue = deque([(b"", start)])
    while queue:
        text, there = queue.popleft()
        yield text, there
        for byte in letters:
            following = step(machine, there, byte)
            if following is not None and following not in seen and len(seen) < limit:
                seen.add(following)
                queue.append((text + bytes([byte]), following))
