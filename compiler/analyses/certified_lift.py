"""The certified lift (Theorem 9): walks hashed, the hashing certified, and only then counted.

In: root budgets. Out: a ``Verdict`` with exact counts, and the lift that was certified. A walk over edges i1 ... id hashes to
``i1 a**(d-1) + ... + id mod p``; the lift of ``a`` has states (vertex, length, hash), and a walk is one path of it. If no state of the lift
is reached twice, every walk has a state of its own, and the states of a vertex are its walks (Lemma 4), whether or not the budgets hold.
If they hold, fewer than p points collide, so that some point certifies (Lemma 3); p is the least prime beyond the number of edges and B
times the sum of budget(v) choose 2. Certification does not replace the comparison: a diamond is certified, and has two walks.

A lift is searched layer by layer, to length B. Once more than B states are reached without a collision, more than B walks exist and the
budgets are exceeded (Lemma 1): nothing beyond is searched. Cost: at most B + 1 states, each with its edges, for each of at most p points.
"""

from __future__ import annotations

from dataclasses import dataclass

from stcc.compiler.analyses.walk_budgets import RootBudget, Verdict, within_budget


@dataclass(frozen=True)
class Lift:
    """A certified lift: its prime, its point, and whether it was searched whole (else it stopped beyond the total budget)."""

    prime: int
    point: int
    whole: bool


def decide_root_budget(instance: RootBudget) -> tuple[Verdict, Lift | None]:
    """Decide root budgets; the lift is None where none was certified, and the instance is not in the language then."""
    total = instance.total
    if total == 0 or instance.budgets[instance.root] == 0:
        return Verdict(False, "the empty walk exceeds the root's budget", None, 1, 1), None
    prime = lift_prime(instance)
    bound = prime * (total + 1) * (instance.graph.out_degree + 1)
    steps = 0
    for point in range(prime):
        counts, whole, taken = _certify(instance, prime, point)
        steps += taken
        if counts is not None:
            return _compared(instance, counts, whole, steps, bound), Lift(prime, point, whole)
    return Verdict(False, "no lift is certified", None, steps, bound), None


def lift_prime(instance: RootBudget) -> int:
    """The least prime beyond the number of edges, B times the pairs of walks that the budgets allow, and 2."""
    pairs = sum(budget * (budget - 1) // 2 for budget in instance.budgets)
    candidate = max(len(instance.graph.edges), instance.total * pairs, 2) + 1
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number ** 0.5) + 1))


def _compared(instance: RootBudget, counts: list[int], whole: bool, steps: int, bound: int) -> Verdict:
    reason = within_budget(instance, counts if whole else None)
    return Verdict(not reason, reason, tuple(counts) if whole else None, steps, bound)


def _certify(instance: RootBudget, prime: int, point: int) -> tuple[list[int] | None, bool, int]:
    """States reached of each vertex, None if one is reached twice; whether the lift was searched whole; and the steps taken."""
    occurrences = instance.graph.occurrences
    counts = [0] * instance.graph.vertices
    counts[instance.root] = 1
    layer = [(instance.root, 0)]
    reached, steps = 1, 1
    while layer:
        following: set[tuple[int, int]] = set()
        for vertex, value in layer:
            for number, target in occurrences[vertex]:
                steps += 1
                state = (target, (point * value + number + 1) % prime)  # edges are numbered from 1
                if state in following:
                    return None, False, steps
                following.add(state)
                counts[target] += 1
                reached += 1
                if reached > instance.total:
                    return counts, False, steps
        layer = sorted(following)
    return counts, True, steps
