"""What the parts of the exact-sampling benchmark share: the sample policies, synthetic models, and a test of fit without tables."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stcc.compiler.sources import compile_source
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.policies import SyntheticPolicy
from stcc.runtime.exact.samplers import Sampler

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
POLICIES = SAMPLES / "policies"
DOMAINS = ("refund", "sql_txn", "booking", "triage", "warehouse")
LARGE = ("triage", "warehouse")  # hundreds of thousands of histories: fewer attempts
ALPHA = 0.001
Row = dict[str, Any]


@functools.cache
def environment_of(name: str) -> Environment:
    return Environment.of(compile_source(POLICIES / f"{name}.policy.yaml"))


def walk_of(environment: Environment, seed: int, tilt: Sequence[float] = ()) -> HistoryWalk:
    return HistoryWalk(SyntheticPolicy(environment.actions, seed, tilt=tilt), environment.actions, Accounting())


def attempts(sampler: Sampler, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sampler.attempt(rng)


def p_value(drawn: Sequence[Hashable], law: Mapping[Any, float], replicates: int = 4999) -> float:
    """Of "these are independent draws from the law": the multinomial likelihood ratio, its distribution simulated with a fixed seed."""
    cells = list(law)
    place = {outcome: number for number, outcome in enumerate(cells)}
    shares = np.array([law[outcome] for outcome in cells])
    shares /= shares.sum()
    if any(outcome not in place for outcome in drawn):
        return 0.0
    counts = np.bincount([place[outcome] for outcome in drawn], minlength=len(cells))
    simulated = np.random.default_rng(2024).multinomial(len(drawn), shares, replicates)

    def ratio(found: Any) -> Any:
        return (found * np.log(np.maximum(found, 1) / (shares * len(drawn)))).sum(axis=-1)

    return float((1 + (ratio(simulated) >= ratio(counts)).sum()) / (1 + replicates))
