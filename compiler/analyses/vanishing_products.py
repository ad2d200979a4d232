"""The vanishing-products test (Theorem 10): one nonnegative integer that is zero exactly when every walk budget holds.

In: root or pair budgets. Out: the integer. With f the number of walks of at most the total budget's length, ``f (f - 1) ... (f - budget)``
is zero iff f is within its budget, and ``(f - 1) ... (f - B)`` iff a target is reached; the sum of the squares vanishes iff all do. Counts
are whole numbers of any size: a chain of diamonds makes them long, not many. Cost: O(B x edges) additions a source.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stcc.compiler.analyses.graphs import walks_up_to
from stcc.compiler.analyses.walk_budgets import PairBudget, RootBudget


def root_gap(instance: RootBudget) -> int:
    """Zero iff N(r, v) <= budget(v) for every v, and N(r, f) >= 1 for some target f."""
    total = instance.total
    if total == 0:
        return 1  # the empty walk is one too many
    counts = walks_up_to(instance.graph, instance.root, total)
    within = (_vanishes_within(count, 0, budget) for count, budget in zip(counts, instance.budgets, strict=True))
    reached = _vanishes_within(sum(counts[target] for target in set(instance.targets)), 1, total)
    return _sum_of_squares((*within, reached))


def pair_gap(instance: PairBudget) -> int:
    """Zero iff N(u, v) <= budget(u, v) for all pairs, and N(s, t) >= 1."""
    length = max((sum(row) for row in instance.budgets), default=0)
    terms = []
    for source, row in enumerate(instance.budgets):
        counts = walks_up_to(instance.graph, source, length)
        for target, (count, budget) in enumerate(zip(counts, row, strict=True)):
            least = 1 if (source, target) == (instance.source, instance.target) else 0
            terms.append(_vanishes_within(count, least, budget))
    return _sum_of_squares(terms)


def _vanishes_within(count: int, least: int, most: int) -> int:
    """The product of ``count - j`` for j from ``least`` to ``most``: zero iff ``count`` is one of them; 1 if there are none."""
    return prod(count - value for value in range(least, most + 1))


def _sum_of_squares(terms: Iterable[int]) -> int:
    return sum(term * term for term in terms)
