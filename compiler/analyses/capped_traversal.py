"""The capped stack traversal (Theorems 8 and 17): walk budgets decided by a depth-first search that counts what it enters.

In: root or pair budgets. Out: a ``Verdict`` with exact counts. The tree of walks from the root is traversed with a stack of return points
(a vertex and the number of its next edge); one node more than the total budget B and the search ends: the budgets are exceeded. If it ends
by itself, the tree was seen whole, its counts are exact, and are compared with the budgets. For pair budgets every source bounds its whole
tree before any count is compared, so that a bad input cannot force a long recount. A cycle is a branch without end, a chain of diamonds a
tree of exponential size; both are cut off at B + 1 nodes.

Cost: at most (B + 1)(d + 1) steps a pass, d the largest out-degree; a stack of at most B return points; and on every input.
"""

from __future__ import annotations

from stcc.compiler.analyses.walk_budgets import PairBudget, RootBudget, Verdict, over_budget, within_budget


def decide_root_budget(instance: RootBudget) -> Verdict:
    """Decide root budgets: N(r, v) <= budget(v) for every v, and N(r, f) >= 1 for some target (Theorem 17)."""
    bound = step_bound(instance)
    counts, steps = _traverse(instance, instance.total)
    reason = within_budget(instance, counts)
    return Verdict(not reason, reason, None if counts is None else tuple(counts), steps, bound)


def decide_pair_budget(instance: PairBudget) -> Verdict:
    """Decide pair budgets, so whether a graph is k-strongly few (``walk_budgets.few_paths``): all sources, then counts (Theorem 8)."""
    sources = [instance.of_source(source) for source in range(instance.graph.vertices)]
    bound = sum(map(step_bound, sources))
    found: list[list[int]] = []
    steps = 0
    for source, one in enumerate(sources):
        counts, taken = _traverse(one, one.total)
        steps += taken
        if counts is None:
            return Verdict(False, f"there are more than {one.total} walks from {source}, its total budget", None, steps, bound)
        found.append(counts)
    flat = tuple(count for counts in found for count in counts)
    for source, counts in enumerate(found):
        vertex = over_budget(counts, instance.budgets[source])
        if vertex is not None:
            reason = f"{counts[vertex]} walks from {source} to {vertex} exceed the budget of {instance.budgets[source][vertex]}"
            return Verdict(False, reason, flat, steps, bound)
    reached = found[instance.source][instance.target] > 0
    return Verdict(reached, "" if reached else "the target is not reached", flat, steps, bound)


def step_bound(instance: RootBudget) -> int:
    """Most steps of one traversal: each of at most B + 1 entered nodes looks at its edges, and is left once."""
    return (instance.total + 1) * (instance.graph.out_degree + 1)


def _traverse(instance: RootBudget, cap: int) -> tuple[list[int] | None, int]:
    """Walks from the root to each vertex, None if there are more than ``cap``; and the steps taken."""
    successors = instance.graph.successors
    counts = [0] * instance.graph.vertices
    if cap < 1:
        return None, 1
    counts[instance.root] = 1
    entered, steps = 1, 0
    stack = [(instance.root, 0)]
    while stack:
        steps += 1
        vertex, place = stack.pop()
        if place == len(successors[vertex]):
            continue
        stack.append((vertex, place + 1))
        target = successors[vertex][place]
        entered += 1
        if entered > cap:
            return None, steps
        counts[target] += 1
        stack.append((target, 0))
    return counts, steps
