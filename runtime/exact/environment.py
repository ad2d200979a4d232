"""The environment of a compiled policy, as samplers step through it.

In: the ``PolicyGraph`` of an artifact. Out: look-ups over plain lists, since samplers take one step at a time. The hidden configuration
is simulated: an attempt draws its world first. What is *valid* is the ending of the configuration, or a validator that is given instead,
such as a real database (``sqlite_validator``).
"""

from __future__ import annotations

from collections.abc import Callable

from stcc.formats import Artifact
from stcc.formats.policy import ACCEPTED, RUNNING, PolicyGraph, Steps
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.histories import History

Outcome = tuple[int, int, float]
"""Observation, configuration, probability."""
Validator = Callable[[int, History], bool]
"""World and complete history -> whether it is valid."""


class NotAPolicyError(ConstraintError):
    """The artifact holds no policy."""


def table(steps: Steps, nodes: int, actions: int) -> list[list[dict[int, int]]]:
    """Per node and action, observation -> target."""
    offsets = steps.offsets.tolist()
    pairs = list(zip(steps.observation.tolist(), steps.target.tolist(), strict=True))
    return [[dict(pairs[offsets[node * actions + action]:offsets[node * actions + action + 1]]) for action in range(actions)]
            for node in range(nodes)]


class Environment:
    """A policy's worlds.

    Attributes:
        graph: what it was made of.
        actions: number of actions.
        starts: first configuration of each world.
        world_weights: prior of each world.
        outcomes: per configuration and action, (observation, configuration, probability) triples.
        running, accepted: per configuration.
        classes: per class and action, observation -> class; what is not there is dead.
        accepting: per class.
    """

    def __init__(self, graph: PolicyGraph) -> None:
        self.graph, self.actions = graph, len(graph.actions)
        self.starts: list[int] = graph.starts.tolist()
        self.world_weights: list[float] = graph.world_weights.tolist()
        offsets, count = graph.outcomes.offsets.tolist(), len(graph.ending)
        triples: list[Outcome] = list(zip(graph.outcomes.observation.tolist(), graph.outcomes.target.tolist(),
                                          graph.outcome_weights.tolist(), strict=True))
        self.outcomes = [[tuple(triples[offsets[node * self.actions + action]:offsets[node * self.actions + action + 1]])
                          for action in range(self.actions)] for node in range(count)]
        self.running: list[bool] = [ending == RUNNING for ending in graph.ending.tolist()]
        self.accepted: list[bool] = [ending == ACCEPTED for ending in graph.ending.tolist()]
        self.classes = table(graph.classes, len(graph.class_accepting), self.actions)
        self.accepting: list[bool] = graph.class_accepting.tolist()

    @staticmethod
    def of(artifact: Artifact) -> Environment:
        """The environment of a ``policy`` artifact. NotAPolicyError for any other."""
        if artifact.policy is None:
            raise NotAPolicyError(f"{artifact.file} was compiled from {artifact.kind}, not from a policy; compile a .policy.yaml")
        return Environment(artifact.policy)

    def step_class(self, number: int, action: int, seen: int) -> int:
        """The class after a step; -1, which is never left, where no valid completion remains."""
        return self.classes[number][action].get(seen, -1) if number >= 0 else -1

    def is_dead(self, number: int, action: int) -> bool:
        """Whether no valid completion is left after ``action`` at a class, whatever is observed."""
        return number < 0 or not self.classes[number][action]
