"""A particle filter, and adaptive weighted rejection for its steps.

``ParticleFilter`` moves ``K`` particles with the state-aware local mask and weights each by what the mask left over, so that weights
correct the proposal; it resamples when the effective number falls under half. One of the valid particles is drawn by weight. It is
consistent in ``K``, and biased for any finite one (Appendix V).

``AdaptiveWeightedRejection`` (after Lipkin et al. 2025) does not compute masks: it draws an action, asks the validator about that one,
and removes it if it is dead, until one is admitted: the draw has the masked law, at few checks where the model is mostly right. The
weight needs the admitted mass ``Z``. With ``D`` the actions removed, draw from what is left until two more are admitted, ``N`` draws in
all: then ``(1 - pi(D)) / (N - 1)`` has expectation ``Z`` (inverse binomial sampling, Haldane 1945), and is independent of the action
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import History, Walk
from stcc.runtime.exact.local_masking import ActionMask, outcome
from stcc.runtime.exact.proposal import Trajectory, pick
from stcc.runtime.exact.samplers import Sample, Sampler


@dataclass(frozen=True)
class _Particle:
    """A trajectory under way."""

    world: int
    history: History
    configuration: int
    node: int
    number: int
    weight: float


class ParticleFilter(Sampler):
    """See the module's text. An attempt is one run of ``particles`` particles."""

    name = "particle_filter"

    def __init__(self, environment: Environment, walk: Walk, particles: int = 64, validator: Validator | None = None) -> None:
        super().__init__(environment, walk.accounting, validator)
        if particles < 1:
            raise ConstraintError("a particle filter has at least one particle")
        self.walk, self.particles = walk, particles
        self.mask = ActionMask(environment, walk, "state_aware")

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One run: a sample, or None if no particle ended valid."""
        cloud = [self._start(rng) for _ in range(self.particles)]
        while any(self._running(particle) for particle in cloud):
            cloud = [self._moved(particle, rng) if self._running(particle) else particle for particle in cloud]
            cloud = self._resampled(cloud, rng)
        weights = [particle.weight if self._valid(particle) else 0.0 for particle in cloud]
        total = sum(weights)
        if total <= 0.0:
            return None
        chosen = cloud[pick(weights, total, rng)]
        return Sample(chosen.world, chosen.history)

    def _start(self, rng: np.random.Generator) -> _Particle:
        world = pick(self.environment.world_weights, 1.0, rng)
        return _Particle(world, (), self.environment.starts[world], 0, 0, 1.0)

    def _running(self, particle: _Particle) -> bool:
        return particle.weight > 0.0 and self.environment.running[particle.configuration]

    def _valid(self, particle: _Particle) -> bool:
        ended = particle.weight > 0.0 and not self.environment.running[particle.configuration]
        return ended and self.is_valid(Trajectory(particle.world, particle.history, particle.configuration, (), True))

    def _moved(self, particle: _Particle, rng: np.random.Generator) -> _Particle:
        action, factor = self.choose(particle.node, particle.number, rng)
        if factor <= 0.0:
            return _Particle(particle.world, particle.history, particle.configuration, particle.node, particle.number, 0.0)
        self.accounting.sampler_steps += 1
        seen, configuration = outcome(self.environment, particle.configuration, action, rng)
        return _Particle(particle.world, (*particle.history, (action, seen)), configuration,
                         self.walk.advance(particle.node, action, seen), self.environment.step_class(particle.number, action, seen),
                         particle.weight * factor)

    def choose(self, node: int, number: int, rng: np.random.Generator) -> tuple[int, float]:
        """An admitted action with the masked law, and the admitted mass or an unbiased estimate of it; 0 if nothing is admitted."""
        chances, total = self.mask.renormalized(node, number)
        return (pick(chances, total, rng), total) if total > 0.0 else (-1, 0.0)

    def _resampled(self, cloud: list[_Particle], rng: np.random.Generator) -> list[_Particle]:
        """Systematic resampling, where the effective number of particles is under half."""
        weights = np.array([particle.weight for particle in cloud])
        total = float(weights.sum())
        if total <= 0.0 or total * total >= 0.5 * len(cloud) * float((weights * weights).sum()):
            return cloud
        marks = (rng.random() + np.arange(len(cloud))) / len(cloud) * total
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(cloud) - 1)
        mean = total / len(cloud)
        return [_Particle(kept.world, kept.history, kept.configuration, kept.node, kept.number, mean)
                for kept in (cloud[index] for index in chosen.tolist())]


class AdaptiveWeightedRejection(ParticleFilter):
    """The particle filter with its steps drawn by adaptive weighted rejection; see the module's text."""

    name = "adaptive_weighted_rejection"

    def choose(self, node: int, number: int, rng: np.random.Generator) -> tuple[int, float]:
        """An admitted action, and an unbiased estimate of the admitted mass."""
        left = list(self.walk.probabilities(node))
        chosen = -1
        while chosen < 0:
            total = sum(left)
            if total <= 0.0:
                return -1, 0.0
            action = pick(left, total, rng)
            if self._admits(number, action):
                chosen = action
            else:
                left[action] = 0.0
        draws, admitted, total = 0, 0, sum(left)
        while admitted < 2:
            draws += 1
            admitted += self._admits(number, pick(left, total, rng))
        return chosen, total / (draws - 1)

    def _admits(self, number: int, action: int) -> bool:
        self.accounting.validator_calls += 1
        return not self.environment.is_dead(number, action)
