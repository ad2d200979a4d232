"""Configurations: a machine state and a persistent stack of call sites, and what bytes do to them.

In: a ``Machine``. Out: a ``Stacks`` that owns the stack levels of everything that decodes with it. A stack is its innermost ``Level``, an
immutable node that knows the site it was pushed by and the level below; equal stacks are the same object (hash-consed in the parent), so
that whatever is found out about a stack (where a closing token lands, which mask row is its, what finishing costs) is found out once and
kept in the level's tables. Copying a configuration is copying two references.

A push costs one dictionary look-up, a pop none. At most ``MOST_LEVELS`` levels are kept; deeper or more varied stacks still work, their
levels are just not shared. Tables are only ever filled with values that depend on their key alone, so threads that fill them at the same
time (under the interpreter lock) do the same work twice at worst.

Two pseudo states stand beside the machine's: ``ENDED`` (the text ended by an eager return on the empty stack: nothing may follow) and
``TERMINATED`` (a stop token was accepted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from stcc.formats.machine import Machine
    from stcc.runtime.verdicts import Verdicts

ENDED, TERMINATED = -1, -2
MOST_LEVELS = 1 << 16
MOST_FORCED = 1 << 16
"""Most bytes that one forced chain is followed for: a compiled machine always ends it sooner, a doctored file might not."""

Configuration = tuple[int, "Level"]
_NO_KEYS: dict[int, int] = {}


class Level:
    """One stack level; the bottom one, with ``site`` -1, is the empty stack.

    Attributes:
        site: call site that pushed it, -1 at the bottom.
        below: the level under it (itself at the bottom).
        depth: number of call sites on the stack.
        landings: value record -> configuration it leads to from here, or None (dead here).
        keys: state -> number of its mask row; shared with all levels of equal ``verdicts``, and empty until those are known.
        verdicts: which values that leave a rule are alive here; None until asked for.
        costs: state -> least tokens to finish through each of its live actions, and the greatest of them.
        needs: state -> fewest tokens that finish.
        finish: int32 vector, fewest tokens to finish after leaving this level by each kind; None until asked for.
        forced: state -> the one byte that may follow, or -1.
    """

    __slots__ = ("below", "children", "costs", "depth", "finish", "forced", "keys", "landings", "needs", "site",
                 "verdicts")

    def __init__(self, site: int, below: Level | None) -> None:
        self.site = site
        self.below: Level = self if below is None else below
        self.depth: int = 0 if below is None else below.depth + 1
        self.children: dict[int, Level] = {}
        self.landings: dict[int, Configuration | None] = {}
        self.keys: dict[int, int] = _NO_KEYS
        self.verdicts: Verdicts | None = None
        self.costs: dict[int, tuple[npt.NDArray[np.int32], int]] = {}
        self.needs: dict[int, int] = {}
        self.finish: npt.NDArray[np.int32] | None = None
        self.forced: dict[int, int] = {}

    def sites(self) -> tuple[int, ...]:
        """The call sites on the stack, innermost last."""
        found = []
        level = self
        while level.site >= 0:
            found.append(level.site)
            level = level.below
        return tuple(reversed(found))


class Stacks:
    """The levels of one machine, and the machine's byte steps on configurations.

    Attributes:
        machine: the machine.
        bottom: the empty stack.
        ends: bytes ``[states]``, 1 where the output may end on the empty stack.
    """

    __slots__ = ("_eager", "_kept", "_returns", "bottom", "ends", "machine")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bottom = Level(-1, None)
        self.ends: bytes = machine.accepting.tobytes()
        self._returns = machine.returns.data  # single numbers are read from it several times faster than from an array
        self._kept = 0
        self._eager: dict[int, int] = {}

    def push(self, level: Level, site: int) -> Level:
        """The stack ``level`` with ``site`` on top."""
        child = level.children.get(site)
        if child is None:
            child = Level(site, level)
            if self._kept < MOST_LEVELS:
                self._kept += 1
                level.children[site] = child
        return child

    def push_all(self, level: Level, sites: Any) -> Level:
        """The stack with ``sites`` pushed, outermost first."""
        for site in sites:
            level = self.push(level, int(site))
        return level

    def start(self) -> Configuration:
        """The configuration before the first byte."""
        begun = self.settle(self.machine.start, self.bottom)
        return begun if begun is not None else (self.machine.start, self.bottom)

    def may_end(self, state: int, level: Level) -> bool:
        """Whether the output read so far is complete."""
        return state < 0 or (level.site < 0 and self.ends[state] != 0)

    def eager_exit(self, state: int) -> int:
        """Exit through which ``state`` returns eagerly (it may end its rule and reads nothing), -1 if it does not."""
        exit_ = self._eager.get(state)
        if exit_ is None:
            machine = self.machine
            exit_ = int(machine.exits[state])
            if exit_ >= 0 and bool((machine.table[state] >= 0).any()):
                exit_ = -1
            self._eager[state] = exit_
        return exit_

    def leave(self, exit_: int, level: Level) -> Configuration | None:
        """Where returning through ``exit_`` from ``level`` leads; None where that exit must not be taken."""
        if level.site < 0:
            return (ENDED, level) if exit_ == 0 else None
        state: int = self._returns[level.site, exit_]
        return (state, level.below) if state >= 0 else None

    def settle(self, state: int, level: Level) -> Configuration | None:
        """The configuration after the eager return that ``state`` may call for."""
        exit_ = self.eager_exit(state)
        return (state, level) if exit_ < 0 else self.leave(exit_, level)

    def step(self, state: int, level: Level, byte: int) -> Configuration | None:
        """The configuration after ``byte``, or None where it is not allowed."""
        machine = self.machine
        column = machine.byte_class[byte]
        while state >= 0:
            target = int(machine.table[state, column])
            if target >= machine.states:
                edge = target - machine.states
                return self.settle(int(machine.edge_target[edge]), self.push_all(level, machine.pushes(edge)))
            if target >= 0:
                return self.settle(target, level)
            exit_ = int(machine.exits[state])
            if exit_ < 0 or level.site < 0:
                return None
            # a lazy return: the byte is read at the return state, which never ends its rule itself
            state, level = self._returns[level.site, exit_], level.below
        return None

    def read(self, state: int, level: Level, text: bytes) -> Configuration | None:
        """The configuration after ``text``, or None once a byte is not allowed. O(bytes)."""
        for byte in text:
            following = self.step(state, level, byte)
            if following is None:
                return None
            state, level = following
        return state, level

    def live_bytes(self, state: int, level: Level) -> npt.NDArray[np.uint8]:
        """The bytes that may follow, rising: each leads to a configuration from which a valid output can be finished."""
        if state < 0:
            return np.zeros(0, np.uint8)
        machine = self.machine
        columns = np.arange(machine.classes)
        if machine.exits[state] < 0 or level.site < 0:
            columns = np.flatnonzero(machine.table[state] >= 0)
        # one byte stands for its class; a class that no byte has keeps byte 0, found in another class and left out below
        members = np.zeros(machine.classes, np.intp)
        members[machine.byte_class[::-1]] = np.arange(255, -1, -1)
        alive = np.zeros(machine.classes, np.bool_)
        for column, byte in zip(columns.tolist(), members[columns].tolist(), strict=True):
            alive[column] = machine.byte_class[byte] == column and self.step(state, level, byte) is not None
        return np.flatnonzero(alive[machine.byte_class]).astype(np.uint8)

    def forced_byte(self, state: int, level: Level) -> int:
        """The byte that must follow, or -1 where several may, none may, or the output may end."""
        if self.may_end(state, level):
            return -1
        byte = level.forced.get(state)
        if byte is None:
            live = self.live_bytes(state, level)
            byte = level.forced[state] = int(live[0]) if len(live) == 1 else -1
        return byte

    def forced_bytes(self, state: int, level: Level) -> bytes:
        """All bytes that must follow: through moves, calls and returns, up to the first choice or possible end.

        It ends because compiled machines are trim: a chain that never ended would be a configuration from which nothing can be finished.
        At most ``MOST_FORCED`` bytes.
        """
        text = bytearray()
        byte = self.forced_byte(state, level)
        while byte >= 0 and len(text) < MOST_FORCED:
            following = self.step(state, level, byte)
            if following is None:
                break
            text.append(byte)
            state, level = following
            byte = self.forced_byte(state, level)
        return bytes(text)
