"""Abstractions at run time: which histories share certificates.

Every history is at a *place*, a deterministic function of its steps, and a place has a *key*. A certificate (key, continuation) applies
wherever the key occurs. Three kinds are made here: by class (the coarsest sound partition, always at hand), by a proposal of the policy's
author (stored with its positions), and by the history itself, which shares nothing and is what a root-keyed memory has.

A certificate is *proved* if the continuation is dead at every place with that key; with ``transfer`` it is taken over from the one place
where it was found, which is sound exactly if the abstraction is (Lemma 2), and shows what an unsound one costs (Proposition 10).
"""

from __future__ import annotations

from collections.abc import Sequence

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.environment import Environment, table

Word = tuple[int, ...]
DEAD_KEY = -1


class UnknownAbstractionError(ConstraintError):
    """The policy proposes no abstraction of that name."""


class Abstraction:
    """Places, their keys, and what is dead there.

    Args:
        environment: the policy's.
        moves: per place and action, observation -> place; None for places that are histories, which are numbered as they are met.
        keys: per place.
        class_of: per place, its class.
        transfer: see the module's text.

    Places are numbers from 0, the empty history's; -1 is any place without a valid completion that ``moves`` does not tell apart.
    """

    def __init__(self, environment: Environment, moves: list[list[dict[int, int]]], keys: Sequence[int], class_of: Sequence[int],
                 transfer: bool = False) -> None:
        self.environment, self.transfer = environment, transfer
        self._moves, self._keys, self._class_of = moves, keys, class_of
        self._dead_at_all = {} if transfer else self._proved()

    @staticmethod
    def by_class(environment: Environment) -> Abstraction:
        """The coarsest sound partition: places and keys are classes."""
        numbers = range(len(environment.classes))
        return Abstraction(environment, environment.classes, numbers, numbers)

    @staticmethod
    def named(environment: Environment, name: str, transfer: bool = False) -> Abstraction:
        """An abstraction that the policy's author proposed.

        Raises:
            UnknownAbstractionError: there is none of that name.
        """
        graph = environment.graph
        names = [verdict.name for verdict in graph.abstractions]
        if graph.positions is None or name not in names:
            raise UnknownAbstractionError(f"there is no abstraction {name}; known are {', '.join(names) or 'none'}")
        positions = graph.positions
        moves = table(positions.steps, len(positions.class_of), environment.actions)
        return Abstraction(environment, moves, positions.keys[names.index(name)].tolist(), positions.class_of.tolist(), transfer)

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self._keys)

    def step(self, place: int, action: int, seen: int) -> int:
        """The place after a step."""
        return self._moves[place][action].get(seen, -1) if place >= 0 else -1

    def key(self, place: int) -> int:
        """The key of a place."""
        return self._keys[place] if place >= 0 else DEAD_KEY

    def class_of(self, place: int) -> int:
        """The class of a place; -1 where no completion is valid."""
        return self._class_of[place] if place >= 0 else -1

    def is_dead(self, place: int, action: int) -> bool:
        """Whether a certificate may be issued for ``action`` at the key of ``place``."""
        if self.transfer or place < 0:
            return self.environment.is_dead(self.class_of(place), action)
        return action in self._dead_at_all[self.key(place)]

    def is_dead_word(self, place: int, word: Word) -> bool:
        """Whether a longer continuation is dead at ``place``, on every observation; for abstractions that are sound."""
        return self._dies(self.class_of(place), word)

    def reaching(self, keys: frozenset[int]) -> set[int]:
        """The places from which a place with one of ``keys`` may be reached, those included; -1 for all that ``moves`` leaves out."""
        everywhere = DEAD_KEY in keys  # a step that leaves no valid completion leads there, and most places have one
        found = {-1} if everywhere else set()
        for place in range(self.places - 1, -1, -1):  # steps lead to higher numbers
            if everywhere or self._keys[place] in keys or any(
                    target in found for targets in self._moves[place] for target in targets.values()):
                found.add(place)
        return found

    def _dies(self, number: int, word: Word) -> bool:
        if number < 0:
            return True
        if not word:
            return False
        return all(self._dies(target, word[1:]) for target in self.environment.classes[number][word[0]].values())

    def _proved(self) -> dict[int, frozenset[int]]:
        """Key -> actions that are dead at all its places."""
        found: dict[int, frozenset[int]] = {}
        for key, number in zip(self._keys, self._class_of, strict=True):
            if key != DEAD_KEY:
                dead = frozenset(action for action in range(self.environment.actions) if self.environment.is_dead(number, action))
                found[key] = found.get(key, dead) & dead
        return found


class HistoryAbstraction(Abstraction):
    """Every history is a place and a key of its own: certificates are pinned to where they were found."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, [], [], [], transfer=True)
        self._children: dict[tuple[int, int, int], int] = {}
        self._classes = [0]
        self._parents = [-1]

    def step(self, place: int, action: int, seen: int) -> int:
        """The place of the longer history."""
        key = (place, action, seen)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = len(self._classes)
            self._classes.append(self.environment.step_class(self._classes[place], action, seen))
            self._parents.append(place)
        return child

    def reaching(self, keys: frozenset[int]) -> set[int]:
        """The histories that are or begin one of ``keys``."""
        found: set[int] = set()
        for place in keys:
            while place >= 0 and place not in found:
                found.add(place)
                place = self._parents[place]
        return found

    def key(self, place: int) -> int:
        """The place itself."""
        return place

    def class_of(self, place: int) -> int:
        """Its class."""
        return self._classes[place]
