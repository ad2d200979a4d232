"""Drawing a trajectory with an exclusion event removed: the residual and its Doob transform (Equations 3 and 4).

For a fixed exclusion event ``E`` let ``r(h)`` be the probability that a completion of ``h`` avoids it. Drawing actions with
``pi(a | h) r(h a) / r(h)``, and the outcome of a stochastic action with its probability times ``r`` of where it leads, draws from the model
conditioned on the complement of ``E`` (Lemma 6). If ``E`` holds no valid trajectory, what is accepted has exactly the valid conditional.

``BankProposal`` takes ``E`` from a frozen schema bank. Its memo is keyed by (node of the walk, configuration, matcher state): the node is
the full history, or the Markov state with the time. Nothing coarser is sound. From where no key of the bank can be reached any more ``r``
is 1 and nothing is evaluated. Cost: one evaluation a reachable product node, up to the number of histories; past ``max_nodes``
``ResidualTooLargeError`` is raised in place of going on.

Which world an attempt is in is drawn first. ``reweighted`` draws it with its prior times its surviving mass, which is exact; ``prior`` is
exact only if all worlds that hold valid trajectories survive alike (Corollary 15), and is there to show so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from stcc.formats.policy import Step
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.abstraction import Abstraction
from stcc.runtime.exact.bank import BankFrozenError
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import History, Walk
from stcc.runtime.exact.matcher import HIT, SchemaMatcher

State = tuple[int, int, int, int]
"""Node of the walk, configuration, place of the abstraction, matcher state."""
Branch = tuple[int, float, State]
"""Observation, probability, state that it leads to."""
MAX_NODES = 2_000_000
WORLD_DRAWS = ("reweighted", "prior")


class ResidualTooLargeError(ConstraintError):
    """The residual recursion met more product nodes than allowed."""


@dataclass(frozen=True)
class Trajectory:
    """One trajectory: its world, its steps, the configuration and the place it passed (one more than steps), and whether it ended.

    ``complete`` is False where the proposal had nothing left to draw.
    """

    world: int
    history: History
    configuration: int
    places: tuple[int, ...]
    complete: bool


def pick(weights: list[float], total: float, rng: np.random.Generator) -> int:
    """An index, with probability its weight over ``total``, which is positive."""
    left = rng.random() * total
    chosen = -1
    for index, weight in enumerate(weights):
        if weight > 0.0:
            chosen = index
            left -= weight
            if left < 0.0:
                break
    return chosen


class Proposal(ABC):
    """A fixed exclusion event, its residual, and trajectories drawn without it."""

    def __init__(self, environment: Environment, walk: Walk, abstraction: Abstraction, max_nodes: int = MAX_NODES) -> None:
        self.environment, self.walk, self.abstraction, self.max_nodes = environment, walk, abstraction, max_nodes
        self.nodes = 0

    @abstractmethod
    def mass(self, state: State) -> float:
        """``r`` at a state: the probability that its completion avoids the exclusion event."""

    @abstractmethod
    def branches(self, state: State, action: int) -> list[Branch]:
        """What ``action`` may lead to; empty if it is excluded."""

    def start(self, world: int) -> State:
        """The state of the empty history in a world."""
        return (0, self.environment.starts[world], 0, 0)

    def world_weights(self, draw: str) -> list[float]:
        """Unnormalised probabilities of drawing each world: see the module's text."""
        if draw not in WORLD_DRAWS:
            raise ConstraintError(f"{draw!r} is no way to draw a world", f"known are {', '.join(WORLD_DRAWS)}")
        priors = self.environment.world_weights
        if draw == "prior":
            return list(priors)
        return [prior * self.mass(self.start(world)) for world, prior in enumerate(priors)]

    def kernel(self, state: State) -> list[tuple[float, list[tuple[float, Branch]]]]:
        """Per action its unnormalised probability, and each branch with its share of that."""
        rows: list[tuple[float, list[tuple[float, Branch]]]] = []
        for action, chance in enumerate(self.walk.probabilities(state[0])):
            if chance == 0.0:
                rows.append((0.0, []))
                continue
            shares = [(chance * branch[1] * self.mass(branch[2]), branch) for branch in self.branches(state, action)]
            rows.append((sum(share for share, _ in shares), shares))
        return rows

    def evaluate(self, state: State) -> float:
        """``r`` by its recursion, one level: actions in order, branches in order, so that equal events give equal bits."""
        self.nodes += 1
        self.walk.accounting.residual_nodes += 1
        if self.nodes > self.max_nodes:
            raise ResidualTooLargeError(
                f"the residual recursion met more than {self.max_nodes:,} nodes; there may be as many as histories (Proposition 5)",
                "shorten the horizon, use a Markov policy or the root-prefix sampler, or raise max_nodes")
        total = 0.0
        for action, chance in enumerate(self.walk.probabilities(state[0])):
            if chance > 0.0:
                for _, weight, following in self.branches(state, action):
                    total += chance * weight * self.mass(following)
        return total

    def draw(self, rng: np.random.Generator, world_draw: str = "reweighted") -> Trajectory:
        """A trajectory from the model, conditioned on avoiding the exclusion event."""
        weights = self.world_weights(world_draw)
        total = sum(weights)
        world = pick(weights, total, rng) if total > 0.0 else 0
        return self.complete(world, rng)

    def complete(self, world: int, rng: np.random.Generator) -> Trajectory:
        """A trajectory in a given world."""
        state = self.start(world)
        history: list[Step] = []
        places = [state[2]]
        running = self.environment.running
        while running[state[1]]:
            rows = self.kernel(state)
            total = sum(weight for weight, _ in rows)
            if total <= 0.0:
                return Trajectory(world, tuple(history), state[1], tuple(places), False)
            self.walk.accounting.sampler_steps += 1
            action = pick([weight for weight, _ in rows], total, rng)
            shares = rows[action][1]
            seen, _, state = shares[pick([share for share, _ in shares], rows[action][0], rng)][1]
            history.append((action, seen))
            places.append(state[2])
        return Trajectory(world, tuple(history), state[1], tuple(places), True)


class LearningProposal(Proposal):
    """A proposal that its sampler adds exclusions to, between attempts only."""

    def __init__(self, environment: Environment, walk: Walk, abstraction: Abstraction) -> None:
        super().__init__(environment, walk, abstraction)
        self._frozen = False

    def require_thawed(self) -> None:
        """BankFrozenError while an attempt is running."""
        if self._frozen:
            raise BankFrozenError("exclusions are added between attempts, not inside one")

    def draw(self, rng: np.random.Generator, world_draw: str = "reweighted") -> Trajectory:
        """As for every proposal; nothing can be excluded meanwhile."""
        self._frozen = True
        try:
            return super().draw(rng, world_draw)
        finally:
            self._frozen = False


class BankProposal(Proposal):
    """The exclusion event of a frozen schema bank (Equation 2); see the module's text."""

    def __init__(self, environment: Environment, walk: Walk, abstraction: Abstraction, matcher: SchemaMatcher,
                 max_nodes: int = MAX_NODES) -> None:
        super().__init__(environment, walk, abstraction, max_nodes)
        self.matcher = matcher
        self._exposed = abstraction.reaching(matcher.keys)
        self._memo: dict[tuple[int, int, int], float] = {}

    def mass(self, state: State) -> float:
        """``r`` at a state."""
        node, configuration, place, matched = state
        if not self.environment.running[configuration] or (matched == 0 and place not in self._exposed):
            return 1.0
        key = (node, configuration, matched)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = 0.0 if self.matcher.excludes(self.abstraction.key(place)) else self.evaluate(state)
        return known

    def branches(self, state: State, action: int) -> list[Branch]:
        """What ``action`` leads to; empty if it completes a continuation of the bank."""
        node, configuration, place, matched = state
        following = self.matcher.step(matched, self.abstraction.key(place), action)
        if following == HIT:
            return []
        advance, step = self.walk.advance, self.abstraction.step
        return [(seen, weight, (advance(node, action, seen), target, step(place, action, seen), following))
                for seen, target, weight in self.environment.outcomes[configuration][action]]
