"""Policies and how samplers walk along histories with them.

A *policy* is the model: it maps a full history (actions and observations from the start) to the probabilities of the next action. Nothing
less is a sound key for it (Section 4.1): two histories in one abstract state may make a model answer differently. A *Markov policy*
declares that it depends on a finite state only, and how that state advances; then histories that share it may share a residual.

Walks number what policies depend on (histories, or Markov states with the time), so that memo tables are keyed by small integers, and
keep every probability vector that was computed. All arithmetic is float64.

>>> walk = HistoryWalk(lambda history: np.array([0.25, 0.75]), 2, Accounting())
>>> walk.probabilities(walk.advance(0, 1, 0)), walk.history(1)
([0.25, 0.75], ((1, 0),))
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stcc.formats.policy import Step
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.accounting import Accounting

History = tuple[Step, ...]
Vector = npt.NDArray[np.float64]
Policy = Callable[[History], Vector]
"""Full history -> float64 ``[actions]``: probabilities of the next action, which sum to 1."""
SLACK = 1e-9


class PolicyError(ConstraintError):
    """A policy returned something that is not a probability vector over the actions."""


class MarkovPolicy(Protocol):
    """A policy that depends on a finite state only."""

    initial: Hashable

    def advance(self, state: Any, action: int, seen: int) -> Hashable:
        """The state after an action and its observation."""

    def probabilities(self, state: Any) -> Vector:
        """float64 ``[actions]`` at a state."""


class Walk(Protocol):
    """What samplers need: numbered nodes, node 0 the start."""

    accounting: Accounting

    def advance(self, node: int, action: int, seen: int) -> int:
        """The node after an action and its observation."""

    def probabilities(self, node: int) -> list[float]:
        """The probabilities of the next action."""


def checked_vector(vector: Any, actions: int) -> list[float]:
    """``vector`` as floats. PolicyError unless it holds one probability an action and sums to 1 within ``SLACK``."""
    values = np.asarray(vector, np.float64)
    if values.shape != (actions,) or not np.isfinite(values).all() or bool((values < 0).any()) or abs(float(values.sum()) - 1.0) > SLACK:
        raise PolicyError(f"a policy gives {actions} probabilities that sum to 1, not {np.array2string(values.reshape(-1)[:8])}; "
                          "normalise in float64")
    floats: list[float] = values.tolist()
    return floats


class HistoryWalk:
    """Nodes are histories. Memory: one entry a history met."""

    def __init__(self, policy: Policy, actions: int, accounting: Accounting) -> None:
        self.policy, self.actions, self.accounting = policy, actions, accounting
        self.parents: list[int] = [-1]
        self.steps: list[Step] = [(-1, -1)]
        self._children: dict[tuple[int, int, int], int] = {}
        self._vectors: dict[int, list[float]] = {}

    def advance(self, node: int, action: int, seen: int) -> int:
        """The node of the longer history."""
        key = (node, action, seen)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = len(self.parents)
            self.parents.append(node)
            self.steps.append((action, seen))
        return child

    def probabilities(self, node: int) -> list[float]:
        """The policy's vector at a history; computed once."""
        self.accounting.policy_calls += 1
        vector = self._vectors.get(node)
        if vector is None:
            self.accounting.distinct_policy_calls += 1
            vector = self._vectors[node] = checked_vector(self.policy(self.history(node)), self.actions)
        return vector

    def history(self, node: int) -> History:
        """The history that a node stands for."""
        steps = []
        while node > 0:
            steps.append(self.steps[node])
            node = self.parents[node]
        return tuple(reversed(steps))


class MarkovWalk:
    """Nodes are pairs of time and Markov state: the finite-Markov shortcut of Proposition 5, whose nodes grow linearly in the horizon."""

    def __init__(self, policy: MarkovPolicy, actions: int, accounting: Accounting) -> None:
        self.policy, self.actions, self.accounting = policy, actions, accounting
        self._numbers: dict[tuple[int, Hashable], int] = {(0, policy.initial): 0}
        self._states: list[tuple[int, Hashable]] = [(0, policy.initial)]
        self._next: dict[tuple[int, int, int], int] = {}
        self._vectors: dict[Hashable, list[float]] = {}

    def advance(self, node: int, action: int, seen: int) -> int:
        """The node of the next time and state."""
        key = (node, action, seen)
        following = self._next.get(key)
        if following is None:
            time, state = self._states[node]
            reached = (time + 1, self.policy.advance(state, action, seen))
            following = self._next[key] = self._numbers.setdefault(reached, len(self._states))
            if following == len(self._states):
                self._states.append(reached)
        return following

    def probabilities(self, node: int) -> list[float]:
        """The policy's vector at a state; computed once a state."""
        self.accounting.policy_calls += 1
        state = self._states[node][1]
        vector = self._vectors.get(state)
        if vector is None:
            self.accounting.distinct_policy_calls += 1
            vector = self._vectors[state] = checked_vector(self.policy.probabilities(state), self.actions)
        return vector
