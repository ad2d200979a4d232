"""Sampling tests: environments of the sample policies, synthetic models, and tests of fit that need no tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from policy_cases import artifact_of

from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.enumeration import Law, Outcome, normalized, valid_law
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.policies import SyntheticPolicy

DOMAINS = ("refund", "sql_txn", "booking", "triage", "warehouse")
SMALL = ("refund", "sql_txn", "booking", "two_worlds")


@functools.cache
def environment_of(name: str) -> Environment:
    return Environment.of(artifact_of(name))


def walk_of(name: str, seed: int = 1, tilt: Sequence[float] = (), spread: float = 1.0) -> HistoryWalk:
    environment = environment_of(name)
    return HistoryWalk(SyntheticPolicy(environment.actions, seed, spread, tilt), environment.actions, Accounting())


def target_of(name: str, seed: int = 1, tilt: Sequence[float] = ()) -> Law:
    return normalized(valid_law(environment_of(name), walk_of(name, seed, tilt)))


def fit(outcomes: Sequence[Outcome], law: Law, statistic: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        replicates: int = 2000) -> float:
    """p-value of "these are independent draws from the law": multinomial, by simulation of Pearson's statistic, seeds fixed."""
    cells = list(law)
    place = {outcome: number for number, outcome in enumerate(cells)}
    expected = np.array([law[outcome] for outcome in cells]) * len(outcomes)
    counts = np.bincount([place[outcome] for outcome in outcomes], minlength=len(cells))  # KeyError: an outcome of probability 0
    simulated = np.random.default_rng(12345).multinomial(len(outcomes), expected / expected.sum(), replicates)
    pearson = statistic or (lambda found, wanted: ((found - wanted) ** 2 / wanted).sum(axis=-1))
    return float((1 + (pearson(simulated, expected) >= pearson(counts, expected)).sum()) / (1 + replicates))
