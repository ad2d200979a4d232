"""Cut states: where every output passes, and so where it can be cut into parts that the grammar makes independent (Lemma 12).

In: a grammar's machine. Out: ``Cuts``: the cut states in the order in which every output visits them first, a short text that shows them,
and for every state and call site the last cut that lies behind it. Only configurations with an empty stack are looked at: a call is one
step from its caller to its return states, so that a shared nested value is a single part, and one that the compiler inlined is cut further.
A return state is passed even where the machine returns lazily and reads on at once.

A state is a cut iff every path from the start to an end visits it. On one shortest path, found breadth first, the cuts are the places that
no detour jumps over: the places are taken in order, what each reaches off the path is explored once, and the furthest place that a detour
comes back to is kept. A cut may lie on a cycle (white space, items of an array); it then counts at its first visit, which is as unique.

Cost: linear in the states with an empty stack and their byte classes. Depends on the machine alone, not on a tokenizer.

    {"name":"…","age":7,"tags":[]}
            ^         ^        ^         after each key the rest of the output is the same language, whatever the value before
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from stcc.formats.machine import Machine
    from stcc.runtime.stack import Stacks

Int32 = npt.NDArray[np.int32]
_END = -1  # the node behind every end of the output
_CLOSING = {ord("{"): b"{}", ord("["): b"[]"}


@dataclass(frozen=True, eq=False)
class Cuts:
    """Where outputs can be cut; see the module's text.

    Attributes:
        states: int32 ``[cuts]``, the cut states in order; the start is the first. Empty if the output is over before it begins.
        offsets: int32 ``[cuts]``, where each lies in ``text``.
        forced: bool ``[cuts]``, one byte only may follow, and it leads to the next cut.
        text: a shortest output, except that a called value is ``{}``, ``[]`` or its first byte.
        stage: int32 ``[states]``, how many cuts were passed or reached at a state with an empty stack; 0 where none is known.
        site_stage: int32 ``[sites]``, the same of the state that made the call, for calls made with an empty stack.
    """

    states: Int32
    offsets: Int32
    forced: npt.NDArray[np.bool_]
    text: bytes
    stage: Int32
    site_stage: Int32


class _Ground:
    """The states with an empty stack as a graph: successors with a byte that leads there."""

    def __init__(self, stacks: Stacks) -> None:
        self.stacks, self.machine = stacks, stacks.machine
        self._byte = np.zeros(self.machine.classes, np.int64)
        self._byte[self.machine.byte_class[::-1]] = np.arange(255, -1, -1)
        self._sizes = np.bincount(self.machine.byte_class, minlength=self.machine.classes)
        self._known: dict[int, list[tuple[int, bytes]]] = {}
        self.callers: dict[int, int] = {}  # outermost call site -> the state that pushed it

    def following(self, state: int) -> list[tuple[int, bytes]]:
        """Successors and the bytes to them, each successor once; ``_END`` where the output may end, and behind a byte that ends it."""
        found = self._known.get(state)
        if found is None:
            found = self._known[state] = list(self._steps(state)) if state >= 0 else []
        return found

    def _steps(self, state: int) -> list[tuple[int, bytes]]:
        machine, steps = self.machine, dict[int, bytes]()
        if self.stacks.ends[state]:
            steps[_END] = b""
        cells, first = np.unique(machine.table[state], return_index=True)
        for cell, column in sorted(zip(cells.tolist(), first.tolist(), strict=True), key=lambda pair: pair[1]):
            byte = int(self._byte[column])
            if 0 <= cell < machine.states:
                exit_ = self.stacks.eager_exit(cell)
                if exit_ <= 0:
                    steps.setdefault(_END if exit_ == 0 else cell, bytes([byte]))
            elif cell >= 0:
                site = machine.pushes(cell - machine.states)[0]
                self.callers.setdefault(site, state)
                for target in machine.returns[site].tolist():
                    if target >= 0:
                        steps.setdefault(target, _CLOSING.get(byte, bytes([byte])))
        return list(steps.items())

    def is_forced(self, state: int) -> bool:
        """Whether one byte only may follow, by a move."""
        row = self.machine.table[state]
        return (int(self._sizes[row >= 0].sum()) == 1 and int(row.max()) < self.machine.states and not self.stacks.ends[state]
                and int(self.machine.exits[state]) < 0)


def find_cuts(stacks: Stacks) -> Cuts:
    """The cuts of the grammar that ``stacks`` belongs to."""
    machine: Machine = stacks.machine
    state, level = stacks.start()
    stage, site_stage = np.zeros(machine.states, np.int32), np.zeros(machine.sites, np.int32)
    ground = _Ground(stacks)
    path, texts = _shortest_path(ground, state) if state >= 0 and level.site < 0 else ([], [])
    if not path:
        none = np.zeros(0, np.int32)
        return Cuts(none, none, np.zeros(0, np.bool_), b"", stage, site_stage)
    places = _places_no_detour_jumps(ground, path, stage)
    for site, caller in ground.callers.items():
        site_stage[site] = stage[caller]
    ends = np.cumsum([0, *map(len, texts)])
    forced = np.array([ground.is_forced(path[place]) for place in places], np.bool_)
    return Cuts(np.array([path[place] for place in places], np.int32), ends[places].astype(np.int32), forced, b"".join(texts), stage,
                site_stage)


def _shortest_path(ground: _Ground, start: int) -> tuple[list[int], list[bytes]]:
    """The states of a shortest output, and the byte or called value after each; nothing if no output ends with an empty stack."""
    came: dict[int, tuple[int, bytes]] = {start: (start, b"")}
    waiting = deque([start])
    while waiting and _END not in came:
        state = waiting.popleft()
        for target, text in ground.following(state):
            if target not in came:
                came[target] = (state, text)
                waiting.append(target)
    if _END not in came:
        return [], []
    state, path, texts = came[_END][0], list[int](), [came[_END][1]]
    while True:
        path.append(state)
        before, text = came[state]
        if state == start:
            break
        texts.append(text)
        state = before
    return path[::-1], texts[::-1]


def _places_no_detour_jumps(ground: _Ground, path: list[int], stage: Int32) -> list[int]:
    """The places of cuts on ``path``, rising; ``stage`` is filled for all states reached."""
    place_of = {state: place for place, state in enumerate(path)} | {_END: len(path)}
    furthest, places = 0, list[int]()
    seen: set[int] = set()
    for place, state in enumerate(path):
        if furthest == place:
            places.append(place)
        stage[state] = len(places)
        stack = [state]
        while stack:
            for target, _ in ground.following(stack.pop()):
                known = place_of.get(target)
                if known is not None:
                    furthest = max(furthest, known)
                elif target not in seen:
                    seen.add(target)
                    stage[target] = len(places)
                    stack.append(target)
    return places
