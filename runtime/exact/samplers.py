"""The interface of every sampler: attempts, draws, validation, accounting.

A sampler makes *attempts*; an attempt gives a ``Sample`` or nothing. ``draw`` makes attempts until there are as many samples as asked for.
What a sampler learns between attempts is its own business. Weighted samplers put the weight in the sample; exact ones have weight 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import History
from stcc.runtime.exact.proposal import Trajectory

MAX_ATTEMPTS = 10_000_000


@dataclass(frozen=True)
class Sample:
    """A valid trajectory: its world, its history, and its weight."""

    world: int
    history: History
    weight: float = 1.0


class TooManyAttemptsError(ConstraintError):
    """The attempts allowed are used up before enough samples were found."""


class Sampler(ABC):
    """Base of all samplers.

    Attributes:
        name: for reports.
        environment: what it runs in.
        accounting: what it costs.
        validator: judges complete trajectories; by default the environment's acceptance.
    """

    name = "sampler"

    def __init__(self, environment: Environment, accounting: Accounting, validator: Validator | None = None) -> None:
        self.environment, self.accounting, self.validator = environment, accounting, validator

    @abstractmethod
    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One attempt: a sample, or None if it was rejected."""

    def is_valid(self, trajectory: Trajectory) -> bool:
        """Judge a complete trajectory; counted. One that did not end is invalid."""
        if not trajectory.complete:
            return False
        self.accounting.validator_calls += 1
        if self.validator is not None:
            return self.validator(trajectory.world, trajectory.history)
        return self.environment.accepted[trajectory.configuration]

    def draw(self, count: int, rng: np.random.Generator, max_attempts: int = MAX_ATTEMPTS) -> list[Sample]:
        """``count`` samples.

        Raises:
            TooManyAttemptsError: more than ``max_attempts`` attempts in this call.
        """
        samples: list[Sample] = []
        attempts = 0
        with self.accounting.measured():
            while len(samples) < count:
                if attempts >= max_attempts:
                    raise TooManyAttemptsError(f"{self.name}: {len(samples)} of {count} samples after {attempts:,} attempts",
                                          "valid trajectories may be too rare for this sampler, or there may be none")
                attempts += 1
                self.accounting.attempts += 1
                sample = self.attempt(rng)
                if sample is not None:
                    self.accounting.accepted += 1
                    samples.append(sample)
        return samples
