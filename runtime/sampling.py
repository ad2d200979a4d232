"""Random valid outputs of a machine, by walking its bytes; no vocabulary needed.

In: a ``Machine`` or a ``Grammar``, a NumPy generator, a budget in bytes. Out: bytes that the machine accepts. The walk keeps an ending
in reach: a byte is taken only if what it leads to can still be finished within the bytes left, so recursion winds down as the budget is
used and the walk always ends.

Byte needs are the token needs of ``stcc.runtime.budget`` with single bytes for tokens (Proposition 2 of the few-path paper, made exact
for several exits): ``leave[q, e]`` is the fewest bytes from ``q`` to a state that may end its rule through exit ``e``; the last column
counts to a state where the output may end. A stack level holds the fewest bytes that finish after leaving it by each exit. They are
exact where a state that returns lazily and the return state share no byte, as in every compiled machine (the L(1) conditions). Cost: a
backward search over the table, a few milliseconds for a thousand states, once; then some microseconds for each candidate byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE
from stcc.formats.machine import end_states
from stcc.runtime.errors import ConstraintError
from stcc.runtime.stack import Level, Stacks
from stcc.runtime.token_sets import expand

if TYPE_CHECKING:
    from stcc.formats.machine import Machine
    from stcc.runtime.grammar import Grammar

Int32 = npt.NDArray[np.int32]

END_CHANCE = 0.5
"""How often a walk stops where the output may end but could go on."""
PLAIN_CHANCE = 0.9
"""How often a byte is drawn from letters, digits and the space, where the state admits some of them on the way it took."""
_PLAIN = np.zeros(256, np.bool_)
_PLAIN[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ")] = True


class ByteNeeds:
    """Fewest bytes that finish a valid output, from any configuration of one machine."""

    def __init__(self, stacks: Stacks) -> None:
        self._machine = stacks.machine
        self._exits = max(1, self._machine.returns.shape[1], int(self._machine.exits.max(initial=-1)) + 1)
        self._leave = self._search()
        self._ends = np.full(self._exits + 1, UNREACHABLE, np.int32)
        self._ends[self._exits] = 0
        self._vectors: dict[Level, Int32] = {}

    def need(self, state: int, level: Level) -> int:
        """Fewest bytes that finish from a configuration."""
        if state < 0:
            return 0
        vector = self._vector(level)
        return int((self._leave[state] + vector).min())

    def _vector(self, level: Level) -> Int32:
        pending = []
        while level not in self._vectors and level.site >= 0:
            pending.append(level)
            level = level.below
        vector = self._vectors.get(level, self._ends)
        for above in reversed(pending):
            vector = self._vectors[above] = self._after(above.site, vector)
        return vector

    def _after(self, site: int, vector: Int32) -> Int32:
        """Bytes to finish after leaving a level pushed by ``site`` through each exit, if ``vector`` is the level below's."""
        landed = self._machine.returns[site]
        costs = np.full(self._exits + 1, UNREACHABLE, np.int32)
        taken = np.flatnonzero(landed >= 0)
        costs[taken] = np.minimum((self._leave[landed[taken]] + vector).min(axis=1), UNREACHABLE)
        return costs

    def _search(self) -> Int32:
        """Least fixpoint of ``leave``, by rounds that look again only at states that may have improved. int32 ``[states, exits + 1]``."""
        machine = self._machine
        leave = np.full((machine.states, self._exits + 1), UNREACHABLE, np.int32)
        ending = np.flatnonzero(machine.exits >= 0)
        leave[ending, machine.exits[ending]] = 0
        leave[np.where(end_states(machine), machine.exits == 0, machine.accepting), self._exits] = 0
        source, target, edge = _edges(machine)
        by_source = np.searchsorted(source, np.arange(machine.states + 1))
        users, uses = _dependencies(machine, source, target, edge)
        changed = np.flatnonzero((leave < UNREACHABLE).any(axis=1))
        while len(changed):
            low = np.searchsorted(uses, changed)
            again = np.unique(users[expand(low, np.searchsorted(uses, changed, "right") - low)])
            counts = by_source[again + 1] - by_source[again]
            again, counts = again[counts > 0], counts[counts > 0]
            if not len(again):
                break
            found = self._relaxed(leave, target, edge, expand(by_source[again], counts))
            best = np.minimum.reduceat(found, np.cumsum(counts) - counts, axis=0)
            np.minimum(best, leave[again], out=best)
            better = (best < leave[again]).any(axis=1)
            changed = np.asarray(again[better], np.intp)
            leave[changed] = best[better]
        return leave

    def _relaxed(self, leave: Int32, target: Int32, edge: Int32, chosen: npt.NDArray[np.intp]) -> Int32:
        """What leaving costs through each chosen edge. int32 ``[chosen, exits + 1]``."""
        costs = leave[target[chosen]] + 1
        for place in np.flatnonzero(edge[chosen] >= 0).tolist():
            row = leave[target[chosen[place]]]
            for site in reversed(self._machine.pushes(int(edge[chosen[place]]))):
                landed = self._machine.returns[site]
                taken = np.flatnonzero((landed >= 0) & (row[: len(landed)] < UNREACHABLE))
                outer = np.full(self._exits + 1, UNREACHABLE, np.int32)
                if len(taken):
                    outer = np.minimum((row[taken, None] + leave[landed[taken]]).min(axis=0), UNREACHABLE)
                row = outer
            costs[place] = row + 1
        return np.minimum(costs, UNREACHABLE)


def _edges(machine: Machine) -> tuple[Int32, Int32, Int32]:
    """The distinct edges, by source: source, target (the callee's state for an enter edge), enter edge or -1."""
    source, column = np.nonzero(machine.table >= 0)
    cell = machine.table[source, column]
    pairs = np.unique(np.stack([source, cell], axis=1), axis=0) if len(source) else np.zeros((0, 2), np.intp)
    cell = pairs[:, 1].astype(np.int32)
    edge = np.where(cell >= machine.states, cell - machine.states, -1).astype(np.int32)
    target = cell.copy()
    target[edge >= 0] = machine.edge_target[edge[edge >= 0]]
    return pairs[:, 0].astype(np.int32), target, edge


def _dependencies(machine: Machine, source: Int32, target: Int32, edge: Int32) -> tuple[Int32, Int32]:
    """Pairs "the row of ``users`` is computed from the row of ``uses``", sorted by ``uses``."""
    calls = np.flatnonzero(edge >= 0)
    counts = np.diff(machine.edge_push_offsets)[edge[calls]]
    sites = machine.edge_pushes[expand(machine.edge_push_offsets[edge[calls]], counts)]
    landed = machine.returns[sites]
    caller = np.repeat(np.repeat(source[calls], counts), landed.shape[1])
    users = np.concatenate([source, caller[landed.ravel() >= 0]])
    uses = np.concatenate([target, landed.ravel()[landed.ravel() >= 0]])
    order = np.argsort(uses, kind="stable")
    return users[order], uses[order]


class Walker:
    """Random walks over one machine; the byte needs are computed once."""

    def __init__(self, machine: Machine) -> None:
        self._stacks = Stacks(machine)
        self._needs = ByteNeeds(self._stacks)

    def output(self, rng: np.random.Generator, max_bytes: int = 400) -> bytes:
        """One random valid output, of at most ``max_bytes`` bytes where some output is that short, else one of the shortest.

        Raises:
            ConstraintError: the machine accepts nothing; compiled ones always accept something.
        """
        stacks, (state, level) = self._stacks, self._stacks.start()
        shortest = self._needs.need(state, level)
        if shortest >= UNREACHABLE:
            raise ConstraintError("no output is valid: the machine accepts nothing", "compile the source again")
        left = max(max_bytes, shortest)
        text = bytearray()
        while state >= 0:
            may_end = stacks.may_end(state, level)
            if may_end and (left == 0 or rng.random() < END_CHANCE):
                break
            choices = self._choices(state, level, left - 1)
            if not choices:
                break
            weights = np.array([_weight(bytes_) for _, bytes_ in choices])
            (state, level), bytes_ = choices[int(rng.choice(len(choices), p=weights / weights.sum()))]
            plain = bytes_[_PLAIN[bytes_]]
            drawn = plain if len(plain) and rng.random() < PLAIN_CHANCE else bytes_
            text.append(int(rng.choice(drawn)))
            left -= 1
        return bytes(text)

    def _choices(self, state: int, level: Level, left: int) -> list[tuple[tuple[int, Level], npt.NDArray[np.uint8]]]:
        """Where the next byte may lead such that ``left`` more bytes finish, and the bytes that lead there."""
        groups: dict[tuple[int, Level], list[int]] = {}
        for byte in self._stacks.live_bytes(state, level).tolist():
            after = self._stacks.step(state, level, byte)
            if after is not None:
                groups.setdefault(after, []).append(byte)
        return [(after, np.array(members, np.uint8)) for after, members in groups.items() if self._needs.need(*after) <= left]


def _weight(bytes_: npt.NDArray[np.uint8]) -> float:
    """How likely a way is, given the bytes that lead there: text is mostly plain, escapes and other scripts turn up now and then."""
    if _PLAIN[bytes_].any():
        return 4.0
    return 0.1 if bytes_[0] >= 0x80 or bytes_[0] == ord("\\") else 1.0


def random_output(grammar: Grammar | Machine, rng: np.random.Generator, max_bytes: int = 400) -> bytes:
    """One random valid output of a grammar or a machine.

    For many outputs make a ``Walker`` once.

    Args:
        grammar: what to sample from.
        rng: the source of randomness; the same generator state gives the same output.
        max_bytes: most bytes; exceeded only where every valid output is longer, and then as little as possible.
    """
    machine: Machine = getattr(grammar, "machine", grammar)  # type: ignore[arg-type]
    return Walker(machine).output(rng, max_bytes)
