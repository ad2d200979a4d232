"""Terminal rejection, and local masking: the exact sampler that is slow, and the fast one that is not exact.

``TerminalRejection`` draws from the model and keeps what is valid: expected cost 1 / P(C).

``LocalMasking`` renormalises over the actions that are not yet ruled out. *State-aware*, it reads the whole history, observations included,
and masks every action after which no valid completion is left: the strongest mask there is. *Blind*, it reads actions only, and masks what
no observation could save. Its accepted outputs follow another law than the conditional, since a mask ignores how much valid mass remains
after each action (Appendix F.8); ``masked_kernel`` gives the kernel for ``enumeration.valid_law``, hence the law it converges to.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stcc.formats.policy import Step
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import History, HistoryWalk, Walk
from stcc.runtime.exact.proposal import Trajectory, pick
from stcc.runtime.exact.samplers import Sample, Sampler

Mask = Callable[[int, int], list[bool]]
"""Node of the walk and class of the history -> whether each action is admitted."""
MASKS = ("state_aware", "blind", "none")


class ActionMask:
    """What a local mask admits.

    Args:
        environment: the policy's environment.
        walk: the model; a blind mask reads its histories.
        kind: one of ``MASKS``.
    """

    def __init__(self, environment: Environment, walk: Walk, kind: str) -> None:
        if kind not in MASKS or (kind == "blind" and not isinstance(walk, HistoryWalk)):
            raise ConstraintError(f"a mask is one of {', '.join(MASKS)}, and a blind one reads histories, not {kind!r}")
        self.environment, self.walk, self.kind = environment, walk, kind
        self._possible: dict[tuple[int, ...], frozenset[int]] = {(): frozenset({0})}

    def __call__(self, node: int, number: int) -> list[bool]:
        """Whether each action is admitted at a history."""
        actions = range(self.environment.actions)
        if self.kind == "none":
            return [True for _ in actions]
        if self.kind == "state_aware":
            return [not self.environment.is_dead(number, action) for action in actions]
        assert isinstance(self.walk, HistoryWalk)
        taken = tuple(action for action, _ in self.walk.history(node))
        return [any(not self.environment.is_dead(other, action) for other in self.classes(taken)) for action in actions]

    def classes(self, taken: tuple[int, ...]) -> frozenset[int]:
        """The classes that a sequence of actions may have led to, over all observations."""
        known = self._possible.get(taken)
        if known is None:
            known = self._possible[taken] = frozenset(
                target for number in self.classes(taken[:-1]) for target in self.environment.classes[number][taken[-1]].values())
        return known

    def renormalized(self, node: int, number: int) -> tuple[list[float], float]:
        """The model's probabilities of admitted actions, 0 for the others, and their sum; not divided by it."""
        admitted = self(node, number)
        chances = [chance if keep else 0.0 for chance, keep in zip(self.walk.probabilities(node), admitted, strict=True)]
        return chances, sum(chances)


def masked_kernel(mask: ActionMask) -> Callable[[int, int], list[float]]:
    """The masked and renormalised probabilities, for ``enumeration.valid_law``."""
    def kernel(node: int, number: int) -> list[float]:
        chances, total = mask.renormalized(node, number)
        return [chance / total for chance in chances] if total > 0.0 else chances
    return kernel


class LocalMasking(Sampler):
    """Draw with a mask, keep what is valid; see the module's text. ``kind`` is one of ``MASKS``."""

    def __init__(self, environment: Environment, walk: Walk, kind: str = "state_aware", validator: Validator | None = None) -> None:
        super().__init__(environment, walk.accounting, validator)
        self.name = f"local_{kind}"
        self.walk, self.mask = walk, ActionMask(environment, walk, kind)

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One trajectory; None if it is invalid or everything was masked."""
        trajectory, _ = self.trajectory(rng)
        return Sample(trajectory.world, trajectory.history) if self.is_valid(trajectory) else None

    def trajectory(self, rng: np.random.Generator) -> tuple[Trajectory, float]:
        """A masked trajectory, and the product of the sums that masks left: the model's probability over the drawn one."""
        environment = self.environment
        world = pick(environment.world_weights, 1.0, rng)
        configuration, node, number, ratio = environment.starts[world], 0, 0, 1.0
        history: list[Step] = []
        while environment.running[configuration]:
            chances, total = self.mask.renormalized(node, number)
            if total <= 0.0:
                return Trajectory(world, tuple(history), configuration, (), False), 0.0
            ratio *= total
            self.accounting.sampler_steps += 1
            action = pick(chances, total, rng)
            seen, configuration = outcome(environment, configuration, action, rng)
            node, number = self.walk.advance(node, action, seen), environment.step_class(number, action, seen)
            history.append((action, seen))
        return Trajectory(world, tuple(history), configuration, (), True), ratio


def outcome(environment: Environment, configuration: int, action: int, rng: np.random.Generator) -> tuple[int, int]:
    """Observation and configuration, drawn as the environment draws them."""
    outcomes = environment.outcomes[configuration][action]
    if len(outcomes) == 1:
        return outcomes[0][0], outcomes[0][1]
    chosen = outcomes[pick([weight for _, _, weight in outcomes], 1.0, rng)]
    return chosen[0], chosen[1]


class TerminalRejection(LocalMasking):
    """Draw from the model, keep what is valid: exact, at 1 / P(C) trajectories each."""

    def __init__(self, environment: Environment, walk: Walk, validator: Validator | None = None) -> None:
        super().__init__(environment, walk, "none", validator)
        self.name = "terminal_rejection"


class IndependenceMetropolis(Sampler):
    """A Metropolis chain whose proposals do not depend on where it is: from the model (``none``) or a mask.

    A valid proposal replaces the current trajectory with probability ``min(1, w' / w)``, ``w`` the model's probability over the drawn
    one; an invalid one never does. The chain begins with the first valid proposal. Every attempt gives a sample from then on, most of
    them repeated: ``repeats`` counts those.
    """

    name = "independence_metropolis"

    def __init__(self, environment: Environment, walk: Walk, kind: str = "none", validator: Validator | None = None) -> None:
        super().__init__(environment, walk.accounting, validator)
        self._draws = LocalMasking(environment, walk, kind, validator)
        self._current: tuple[int, History] | None = None
        self._ratio = 0.0
        self.repeats = 0

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One step of the chain."""
        trajectory, ratio = self._draws.trajectory(rng)
        if self.is_valid(trajectory) and (self._current is None or rng.random() * self._ratio < ratio):
            self._current, self._ratio = (trajectory.world, trajectory.history), ratio
        elif self._current is not None:
            self.repeats += 1
        return None if self._current is None else Sample(*self._current)
