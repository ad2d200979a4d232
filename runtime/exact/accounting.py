"""What sampling cost: one record that every sampler keeps, so that they can be compared.

A *sampler step* is one action proposed. *Policy calls* count every time a probability vector is asked for, *distinct* ones those that were
not in the memo table, which is what a model would be run for. *Residual nodes* are evaluations of the survival recursion. A *validator
call* judges a whole history, or one action where a sampler checks actions one by one. Memory is what the sampler has learned, serialised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass
class Accounting:
    """Counters; see the module's text. ``seconds`` is wall time inside ``measured`` blocks."""

    attempts: int = 0
    accepted: int = 0
    sampler_steps: int = 0
    policy_calls: int = 0
    distinct_policy_calls: int = 0
    residual_nodes: int = 0
    validator_calls: int = 0
    memory_entries: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the time that the block takes."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def per_accept(self, counter: str) -> float:
        """A counter divided by the number of accepted histories; infinite if there are none."""
        return float(getattr(self, counter)) / self.accepted if self.accepted else float("inf")

    def report(self) -> dict[str, float]:
        """The counters as plain data."""
        return asdict(self)
