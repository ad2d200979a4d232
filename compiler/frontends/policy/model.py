"""The policy as its author wrote it: variables, worlds, actions with outcomes, acceptance, proposed abstractions.

``reading.py`` makes one from a document, ``exploration.py`` runs it. Values of the state are a tuple, in the order of ``variables``,
followed by ``failed`` and ``remaining``, which expressions may read too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stcc.compiler.frontends.policy.expressions import Expression, Variable


@dataclass(frozen=True)
class Effect:
    """``variables[place]`` becomes the value of an expression over the state before the action.

    Attributes:
        place: which variable.
        value: the expression.
        pointer: its place in the document.
    """

    place: int
    value: Expression
    pointer: str


@dataclass(frozen=True)
class Outcome:
    """One way in which an action may turn out.

    Attributes:
        when: it is possible where this holds; None: always.
        weight: its share among the possible ones; None: it must be the only one.
        observation: number of what the agent sees, 0 for nothing.
        effects: applied together.
        fails: the history is invalid from here on.
        ends: the history ends.
        pointer: its place in the document.
    """

    when: Expression | None
    weight: Fraction | None
    observation: int
    effects: tuple[Effect, ...]
    fails: bool
    ends: bool
    pointer: str


@dataclass(frozen=True)
class Action:
    """An action. Where ``requires`` does not hold, ``otherwise`` says what happens: ``fail`` or ``ignore``; no effects are applied then."""

    name: str
    requires: Expression | None
    otherwise: str
    outcomes: tuple[Outcome, ...]
    ends: bool
    pointer: str


@dataclass(frozen=True)
class World:
    """A hidden world: its share, and the initial values of hidden variables in it, by place."""

    name: str
    weight: Fraction
    values: tuple[tuple[int, bool | int | str], ...]


@dataclass(frozen=True)
class Abstraction:
    """A proposed abstraction: histories with equal values of ``parts`` are taken to have equal futures."""

    name: str
    parts: tuple[Expression, ...]
    pointer: str


@dataclass(frozen=True)
class PolicyModel:
    """A whole policy.

    Attributes:
        name: its name.
        horizon: most actions of a history.
        variables: visible and hidden ones; ``failed`` and ``remaining`` are not among them.
        worlds: at least one.
        actions: in the order of the document.
        observations: names; number 0 is the empty one.
        accept: whether a history that ends is valid, unless it failed.
        done: the history ends as soon as this holds; None: never.
        judged: whether a history that the horizon ends is judged by ``accept``, or invalid.
        abstractions: proposals.
    """

    name: str
    horizon: int
    variables: tuple[Variable, ...]
    worlds: tuple[World, ...]
    actions: tuple[Action, ...]
    observations: tuple[str, ...]
    accept: Expression
    done: Expression | None
    judged: bool
    abstractions: tuple[Abstraction, ...]
