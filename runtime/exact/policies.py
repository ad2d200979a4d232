"""Policies that need no model: made of a seed, or replayed from a table.

``SyntheticPolicy`` stands for a history-dependent model in tests and benchmarks: every history has its own probabilities, made of a hash,
so that no two histories may share a residual. ``tilt`` makes actions likelier or rarer, and with them valid trajectories.
``TablePolicy`` replays stored vectors, such as those scored by a model, and needs no model for it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from stcc.runtime.exact.histories import History, PolicyError, Vector


def softmax(logits: Vector) -> Vector:
    """float64 probabilities of logits."""
    weights: Vector = np.exp(logits - logits.max())
    normal: Vector = weights / weights.sum()
    return normal


class SyntheticPolicy:
    """Probabilities from a hash of seed and full history.

    Args:
        actions: how many.
        seed: names the policy.
        spread: standard deviation of logits, about.
        tilt: added to each action's logit.
        observed: whether observations matter, or actions only.
    """

    def __init__(self, actions: int, seed: int = 0, spread: float = 1.0, tilt: Sequence[float] = (), observed: bool = True) -> None:
        self.actions, self.seed, self.spread, self.observed = actions, seed, spread, observed
        self.tilt = np.array(tilt or [0.0] * actions, np.float64)

    def __call__(self, history: History) -> Vector:
        """float64 ``[actions]``."""
        steps = [number for action, seen in history for number in (action, seen if self.observed else 0)]
        noise = np.empty(self.actions, np.float64)
        for action in range(self.actions):
            digest = hashlib.blake2b(struct.pack(f"<{len(steps) + 2}q", self.seed, action, *steps), digest_size=16).digest()
            first, second = struct.unpack("<QQ", digest)
            noise[action] = np.sqrt(-2.0 * np.log((first + 1) / 2.0**64)) * np.cos(2.0 * np.pi * second / 2.0**64)  # Box-Muller
        return softmax(self.spread * noise + self.tilt)


class CountingPolicy:
    """A Markov policy of the time and the last action: the logits are a seeded table."""

    def __init__(self, actions: int, horizon: int, seed: int = 0, spread: float = 1.0, tilt: Sequence[float] = ()) -> None:
        logits = np.random.default_rng(seed).normal(0.0, spread, (horizon + 1, actions + 1, actions))
        logits += np.array(tilt or [0.0] * actions)
        self.initial = (0, actions)
        self._vectors = np.array([[softmax(row) for row in rows] for rows in logits])

    def advance(self, state: tuple[int, int], action: int, seen: int) -> tuple[int, int]:
        """One later, and the action."""
        del seen
        return state[0] + 1, action

    def probabilities(self, state: tuple[int, int]) -> Vector:
        """float64 ``[actions]``."""
        vector: Vector = self._vectors[state]
        return vector

    def __call__(self, history: History) -> Vector:
        """The same policy of a full history."""
        return self.probabilities((len(history), history[-1][0] if history else self.initial[1]))


class UnscoredHistoryError(PolicyError):
    """A history that a replayed table does not hold.

    Attributes:
        history: it.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        super().__init__(f"no vector is stored for a history of {len(history)} steps", "score it first, with the model")


class TablePolicy:
    """A policy replayed from stored vectors; UnscoredHistoryError for a history that is not stored.

    Attributes:
        vectors: full history -> float64 ``[actions]``.
        about: what made them.
        digest: sha256 of the file they come from; empty if they come from none.
    """

    def __init__(self, vectors: Mapping[History, Vector], about: Mapping[str, str] | None = None, digest: str = "") -> None:
        self.vectors, self.about, self.digest = vectors, dict(about or {}), digest

    def __call__(self, history: History) -> Vector:
        """The stored vector."""
        vector = self.vectors.get(history)
        if vector is None:
            raise UnscoredHistoryError(history)
        return vector
