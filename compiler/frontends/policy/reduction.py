"""Exploration -> the coarsest sound partition of histories, and the environment without what no experiment tells apart.

Both graphs are acyclic, since every action takes one of the horizon. So partition refinement needs no rounds: nodes are visited once,
ends first, and two are in one class exactly if their *signatures* are equal: what each action and observation leads to, as classes. This
is the minimisation of an acyclic automaton (Revuz 1992); the result is the coarsest partition that Proposition 3 admits, and equals the
right congruence of the valid continuations. Cost: linear in steps.

Positions from which no valid completion is left are all *dead*: class -1, left out of signatures. Configurations are merged where they
accept alike and every action shows the same with the same probability (probabilistic bisimulation; probabilities are exact fractions).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stcc.compiler.errors import BudgetError
from stcc.compiler.frontends.policy.exploration import Exploration
from stcc.formats.policy import ACCEPTED, RUNNING, Float64, Int32, Steps

MAX_DENOMINATOR_BITS = 4096
Row = tuple[tuple[tuple[int, int], ...], ...]
"""Per action, its (observation, class) pairs."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The coarsest sound partition.

    Attributes:
        of: int32 ``[positions]``, class or -1.
        steps: of classes; class 0 is the first position's.
        accepting: bool ``[classes]``.
        alive: whether any history is valid; if not, the other fields are empty.
    """

    of: Int32
    steps: Steps
    accepting: npt.NDArray[np.bool_]

    @property
    def alive(self) -> bool:
        """Whether any history is valid."""
        return len(self.accepting) > 0


@dataclass(frozen=True, eq=False)
class Environment:
    """The reduced environment; attributes as in ``PolicyGraph``."""

    starts: Int32
    ending: npt.NDArray[np.uint8]
    steps: Steps
    weights: Float64


class _Interning:
    """Numbers for signatures, by first appearance."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.signatures: list[Hashable] = []

    def number(self, signature: Hashable) -> int:
        """The number of a signature."""
        known = self.numbers.setdefault(signature, len(self.signatures))
        if known == len(self.signatures):
            self.signatures.append(signature)
        return known


def coarsest_partition(found: Exploration) -> Classes:
    """Classes of positions; see the module's text."""
    interned = _Interning()
    of = np.full(len(found.positions), -1, np.int32)
    for position, members in enumerate(found.positions):
        if any(found.configurations[member][3] == ACCEPTED for member in members):
            of[position] = interned.number("accepted")
    for position in range(len(found.positions) - 1, -1, -1):  # among running positions steps lead to higher numbers
        if found.ended(position):
            continue
        row: Row = tuple(tuple((seen, int(of[target])) for seen, target in moves.items() if of[target] >= 0)
                         for moves in found.moves[position])
        if any(row):
            of[position] = interned.number(row)
    count = len(interned.signatures)
    if of[0] < 0:
        return Classes(of, Steps(np.zeros(1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32)), np.zeros(0, np.bool_))
    # The first position's class was met last; reversed, it is 0 and steps lead to higher numbers.
    rows: list[Row] = [() if isinstance(row, str) else row for row in reversed(interned.signatures)]  # type: ignore[misc]
    accepting = np.array([row == () for row in rows], np.bool_)
    steps = _packed(rows, len(found.model.actions), count)
    return Classes(np.where(of < 0, -1, count - 1 - of).astype(np.int32), steps, accepting)


def verify_partition(found: Exploration, of: Int32) -> list[str]:
    """The broken conditions of a future-validity bisimulation (Proposition 3), as one sentence each; empty when it is one.

    Members of a class agree on whether the history has ended and may be valid, and under every action and observation they step to one
    class; a step to the dead class -1 counts as none. It is sound then, though not necessarily the coarsest one. Cost: linear in steps.
    """
    first: dict[int, tuple[object, Row]] = {}
    broken = []
    for position, members in enumerate(found.positions):
        number = int(of[position])
        valid = any(found.configurations[member][3] == ACCEPTED for member in members)
        row: Row = tuple(tuple((seen, int(of[target])) for seen, target in moves.items() if of[target] >= 0)
                         for moves in found.moves[position])
        if number < 0 and (valid or any(row)):
            broken.append(f"what follows {found.spell(found.history(position))} may be valid, and it is said to be dead")
        elif number >= 0 and first.setdefault(number, (valid, row)) != (valid, row):
            broken.append(f"{found.spell(found.history(position))} has other futures than its class {number}")
    return broken


def _packed(rows: list[Row], width: int, count: int) -> Steps:
    """The steps of classes that were numbered from the end."""
    counts, seen, targets = [], [], []
    for row in rows:
        counts += [len(pairs) for pairs in row] or [0] * width
        for pairs in row:
            seen += [pair[0] for pair in pairs]
            targets += [count - 1 - pair[1] for pair in pairs]
    return _steps(counts, seen, targets)


def _steps(counts: list[int], seen: list[int], targets: list[int]) -> Steps:
    return Steps(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), np.array(seen, np.int32), np.array(targets, np.int32))


def reduced_environment(found: Exploration) -> Environment:
    """The configurations, merged; see the module's text. BudgetError where weights have no manageable common denominator."""
    interned = _Interning()
    of = [-1] * len(found.configurations)
    by_remaining = sorted(range(len(of)), key=lambda number: found.configurations[number][2])
    for number in by_remaining:
        ending = found.configurations[number][3]
        of[number] = interned.number(ending if ending != RUNNING else tuple(_merged(step, of) for step in found.arrivals[number]))
    count, width = len(interned.signatures), len(found.model.actions)
    counts, seen, targets, weights, endings = [], [], [], [], []
    for signature in reversed(interned.signatures):
        endings.append(signature if isinstance(signature, int) else RUNNING)
        rows = signature if isinstance(signature, tuple) else ((),) * width
        for row in rows:
            counts.append(len(row))
            seen += [arrival[0] for arrival in row]
            targets += [count - 1 - arrival[1] for arrival in row]
            weights += [float(arrival[2]) for arrival in row]
    return Environment(np.array([count - 1 - of[start] for start in found.starts], np.int32), np.array(endings, np.uint8),
                       _steps(counts, seen, targets), np.array(weights, np.float64))


def _merged(arrivals: tuple[tuple[int, int, Fraction], ...], of: list[int]) -> tuple[tuple[int, int, Fraction], ...]:
    """One action's outcomes over classes: equal ones added up, in order."""
    if len(arrivals) == 1:
        seen, target, weight = arrivals[0]
        return ((seen, of[target], weight),)
    merged: dict[tuple[int, int], Fraction] = {}
    for seen, target, weight in arrivals:
        key = seen, of[target]
        merged[key] = merged.get(key, Fraction(0)) + weight
    if any(weight.denominator.bit_length() > MAX_DENOMINATOR_BITS for weight in merged.values()):
        raise BudgetError("weights have no manageable common denominator", pointer="#/actions", hint="use simpler weights")
    return tuple((seen, target, weight) for (seen, target), weight in sorted(merged.items()))


def position_order(found: Exploration) -> list[int]:
    """Positions so that steps lead to later ones: running ones in order of discovery, then those that have ended."""
    return sorted(range(len(found.positions)), key=found.ended)


def position_steps(found: Exploration, order: list[int]) -> Steps:
    """The steps of positions as arrays, numbered by their place in ``order``."""
    place = {position: number for number, position in enumerate(order)}
    counts, seen, targets = [], [], []
    for position in order:
        for move in found.moves[position]:
            counts.append(len(move))
            seen += list(move)
            targets += [place[target] for target in move.values()]
    return _steps(counts, seen, targets)
