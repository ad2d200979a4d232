"""Walk budgets: the languages that the deciders of this package decide (Definition 2, Theorem 3).

    few paths      N(u, v) <= k for all u, v, and N(s, t) >= 1                      STCON_sf
    pair budgets   N(u, v) <= budget(u, v) for all u, v, and N(s, t) >= 1
    root budgets   N(r, v) <= budget(v) for all v, and N(r, f) >= 1 for some target f

Each is the next with less freedom: few paths are pair budgets that are all k, and pair budgets are root budgets on the universal source
(Lemma 2). All are decided on every graph, cyclic and exponential ones included, because a search may stop at the total budget B: if every
budget holds, no walk from the root is as long as B (Lemma 1). The bound on the number of walks is decided, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stcc.compiler.analyses.graphs import Digraph, universal_source


@dataclass(frozen=True)
class RootBudget:
    """Walks from ``root``: at most ``budgets[v]`` to each v, at least one to one of ``targets``."""

    graph: Digraph
    root: int
    budgets: tuple[int, ...]
    targets: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.budgets) != self.graph.vertices or any(budget < 0 for budget in self.budgets):
            raise ValueError("there is one budget, from 0, for each vertex")
        if not all(0 <= vertex < self.graph.vertices for vertex in (self.root, *self.targets)):
            raise ValueError("the root and the targets are vertices")

    @property
    def total(self) -> int:
        """The total budget B."""
        return sum(self.budgets)


@dataclass(frozen=True)
class PairBudget:
    """Walks between all pairs: at most ``budgets[u][v]``, and at least one from ``source`` to ``target``."""

    graph: Digraph
    source: int
    target: int
    budgets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        count = self.graph.vertices
        if len(self.budgets) != count or any(len(row) != count or any(budget < 0 for budget in row) for row in self.budgets):
            raise ValueError("there is one budget, from 0, for each pair of vertices")
        if not all(0 <= vertex < count for vertex in (self.source, self.target)):
            raise ValueError("the source and the target are vertices")

    def as_root_budget(self) -> RootBudget:
        """The same question of the universal source (Lemma 2): budget 1 at its root, and each pair's at its copy."""
        flat = tuple(budget for row in self.budgets for budget in row)
        return RootBudget(universal_source(self.graph), 0, (1, *flat), (1 + self.source * self.graph.vertices + self.target,))

    def of_source(self, source: int) -> RootBudget:
        """The budgets of the walks from one vertex; every vertex is a target, so that only budgets decide."""
        return RootBudget(self.graph, source, self.budgets[source], tuple(range(self.graph.vertices)))


def few_paths(graph: Digraph, source: int, target: int, most: int) -> PairBudget:
    """Whether the graph is ``most``-strongly few and ``source`` reaches ``target``."""
    return PairBudget(graph, source, target, ((most,) * graph.vertices,) * graph.vertices)


@dataclass(frozen=True)
class Verdict:
    """What a decider found.

    Attributes:
        accepted: whether the instance is in the language.
        reason: why not; empty if it is.
        counts: walks from the root to each vertex (of each source in turn for pair budgets), where all were counted.
        steps: elementary steps taken.
        step_bound: the bound that the theorem states for them, on every input.
    """

    accepted: bool
    reason: str
    counts: tuple[int, ...] | None
    steps: int
    step_bound: int


def over_budget(counts: Sequence[int], budgets: Sequence[int]) -> int | None:
    """The first vertex whose count exceeds its budget."""
    return next((vertex for vertex, (count, budget) in enumerate(zip(counts, budgets, strict=True)) if count > budget), None)


def within_budget(instance: RootBudget, counts: Sequence[int] | None) -> str:
    """Why the walks counted to each vertex break a root budget, empty if they keep it; None: there are more than the total budget."""
    if counts is None:
        return f"there are more than {instance.total} walks, the total budget"
    vertex = over_budget(counts, instance.budgets)
    if vertex is not None:
        return f"{counts[vertex]} walks to {vertex} exceed its budget of {instance.budgets[vertex]}"
    return "" if any(counts[target] for target in instance.targets) else "no target is reached"
