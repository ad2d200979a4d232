"""Exact laws by enumeration, to hold samplers against.

An outcome is a pair of world and complete history. ``valid_law`` walks along classes that can still be completed, so that its cost is the
number of valid histories and not of all; ``complete_law`` walks everything. ``proposal_law`` multiplies the very kernel that a proposal
draws with. Sums are exact (``math.fsum``); products are float64, so distances of equal laws come out at some 1e-16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import fsum

from stcc.runtime.exact.abstraction import Abstraction
from stcc.runtime.exact.bank import Bank
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import History, Walk
from stcc.runtime.exact.matcher import HIT, SchemaMatcher
from stcc.runtime.exact.proposal import Proposal

Outcome = tuple[int, History]
Law = dict[Outcome, float]
Kernel = Callable[[int, int], list[float]]
"""Node of the walk and class -> probabilities of actions."""


def valid_law(environment: Environment, walk: Walk, kernel: Kernel | None = None) -> Law:
    """Unnormalised probability of every valid outcome when actions are drawn with ``kernel`` (default: the model); its sum is ``P(C)``."""
    law: Law = {}

    def visit(world: int, history: History, node: int, configuration: int, number: int, weight: float) -> None:
        if not environment.running[configuration]:
            if environment.accepted[configuration]:
                law[world, history] = law.get((world, history), 0.0) + weight
            return
        chances = walk.probabilities(node) if kernel is None else kernel(node, number)
        for action, chance in enumerate(chances):
            if chance > 0.0:
                for seen, target, share in environment.outcomes[configuration][action]:
                    following = environment.step_class(number, action, seen)
                    if following >= 0:
                        visit(world, (*history, (action, seen)), walk.advance(node, action, seen), target, following,
                              weight * chance * share)

    for world, (start, prior) in enumerate(zip(environment.starts, environment.world_weights, strict=True)):
        visit(world, (), 0, start, 0, prior)
    return law


def complete_law(environment: Environment, walk: Walk) -> dict[Outcome, tuple[float, bool]]:
    """Probability and validity of every complete outcome, valid or not."""
    law: dict[Outcome, tuple[float, bool]] = {}

    def visit(world: int, history: History, node: int, configuration: int, weight: float) -> None:
        if not environment.running[configuration]:
            before = law.get((world, history), (0.0, False))
            law[world, history] = before[0] + weight, before[1] or environment.accepted[configuration]
            return
        for action, chance in enumerate(walk.probabilities(node)):
            if chance > 0.0:
                for seen, target, share in environment.outcomes[configuration][action]:
                    visit(world, (*history, (action, seen)), walk.advance(node, action, seen), target, weight * chance * share)

    for world, (start, prior) in enumerate(zip(environment.starts, environment.world_weights, strict=True)):
        visit(world, (), 0, start, prior)
    return law


def proposal_law(proposal: Proposal, world_draw: str = "reweighted") -> Law:
    """Probability with which a proposal draws each valid outcome, from its own kernel; its sum is the acceptance of an attempt."""
    environment, law = proposal.environment, Law()
    weights = proposal.world_weights(world_draw)
    total = fsum(weights)

    def visit(world: int, history: History, number: int, state: tuple[int, int, int, int], weight: float) -> None:
        if not environment.running[state[1]]:
            if environment.accepted[state[1]]:
                law[world, history] = law.get((world, history), 0.0) + weight
            return
        rows = proposal.kernel(state)
        mass = sum(row for row, _ in rows)
        for action, (_, shares) in enumerate(rows):
            for share, (seen, _, following) in shares:
                reached = environment.step_class(number, action, seen)
                if share > 0.0 and reached >= 0:
                    visit(world, (*history, (action, seen)), reached, following, weight * (share / mass))

    for world, weight in enumerate(weights):
        if weight > 0.0:
            visit(world, (), 0, proposal.start(world), weight / total)
    return law


def normalized(law: Mapping[Outcome, float]) -> Law:
    """The law divided by its sum."""
    total = fsum(law.values())
    return {outcome: weight / total for outcome, weight in law.items()}


def total_variation(left: Mapping[Outcome, float], right: Mapping[Outcome, float]) -> float:
    """Half the sum of absolute differences."""
    return 0.5 * fsum(abs(left.get(outcome, 0.0) - right.get(outcome, 0.0)) for outcome in left.keys() | right.keys())


def empirical_law(outcomes: Iterable[Outcome]) -> Law:
    """Relative frequencies."""
    counts: dict[Outcome, int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    total = sum(counts.values())
    return {outcome: count / total for outcome, count in counts.items()}


def is_excluded(outcome: Outcome, bank: Bank, abstraction: Abstraction) -> bool:
    """Whether a bank's event (Equation 2) holds an outcome."""
    matcher, state, place = SchemaMatcher(bank), 0, 0
    for action, seen in outcome[1]:
        key = abstraction.key(place)
        state = HIT if matcher.excludes(key) else matcher.step(state, key, action)
        if state == HIT:
            return True
        place = abstraction.step(place, action, seen)
    return False


def excluded_valid_mass(law: Mapping[Outcome, float], bank: Bank, abstraction: Abstraction) -> float:
    """``P(E | C)``: the share of valid mass that a bank removes, 0 for a sound one (Lemma 7, Proposition 10)."""
    removed = fsum(weight for outcome, weight in law.items() if is_excluded(outcome, bank, abstraction))
    return removed / fsum(law.values())
