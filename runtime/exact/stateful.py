"""Stateful CARS (Algorithm 2): exact sampling with certificates that hold across histories.

One attempt: freeze the bank; draw a trajectory from the model conditioned on avoiding the bank's event (``BankProposal``); validate it;
propose what it proves. After a batch of attempts from one version the pending delta is committed. Every version's event holds no valid
trajectory, so accepted trajectories are independent draws from the exact conditional (Theorem 8), and acceptance never falls (Proposition
9).

Updates, always after the trajectory has ended:

    official       at every visited proper prefix, every action that is dead there; after valid and invalid attempts
    post_invalid   after invalid attempts only: from every visited prefix the shortest continuation of the trajectory that is dead there
    none           the bank stays what it was

A bank may be given beforehand. ``compiled_bank`` is the minimal antichain that the compiler stored: nothing is left to learn, and every
attempt is accepted in a world that can be satisfied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.abstraction import DEAD_KEY, Abstraction
from stcc.runtime.exact.bank import BankStore, Pair
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import Walk
from stcc.runtime.exact.matcher import SchemaMatcher
from stcc.runtime.exact.proposal import MAX_NODES, BankProposal, Trajectory
from stcc.runtime.exact.samplers import Sample, Sampler

UPDATES = ("official", "post_invalid", "none")


def compiled_bank(environment: Environment) -> list[Pair]:
    """The dead continuations of the compiled policy, keyed by class, and the dead class itself: the largest sound event there is."""
    return [(DEAD_KEY, ()), *((number, (action,)) for number, action in environment.graph.dead.tolist())]


def every_certificate(abstraction: Abstraction) -> set[Pair]:
    """What the official update can ever issue under an abstraction whose places are known beforehand."""
    return {(abstraction.key(place), (action,)) for place in range(abstraction.places) if abstraction.key(place) != DEAD_KEY
            for action in range(abstraction.environment.actions) if abstraction.is_dead(place, action)}


class StatefulCars(Sampler):
    """See the module's text.

    Args:
        environment: the policy's environment.
        walk: the model; a ``MarkovWalk`` gives the finite-Markov shortcut.
        abstraction: where certificates apply; by default the coarsest sound partition.
        update: one of ``UPDATES``.
        world_draw: ``reweighted`` or ``prior``, as in ``Proposal``.
        batch: attempts from one version of the bank.
        bank: pairs to begin with.
        validator: judges trajectories in place of the environment.
        max_nodes: of the residual, for each version.
    """

    name = "stateful_cars"

    def __init__(self, environment: Environment, walk: Walk, abstraction: Abstraction | None = None, *, update: str = "official",
                 world_draw: str = "reweighted", batch: int = 1, bank: Iterable[Pair] = (), validator: Validator | None = None,
                 max_nodes: int = MAX_NODES) -> None:
        super().__init__(environment, walk.accounting, validator)
        if update not in UPDATES or batch < 1:
            raise ConstraintError(f"update is one of {', '.join(UPDATES)} and batch at least 1, not {update!r} and {batch}")
        self.walk, self.abstraction = walk, abstraction or Abstraction.by_class(environment)
        self.update, self.world_draw, self.batch, self.max_nodes = update, world_draw, batch, max_nodes
        self.store = BankStore(environment.actions, bank)
        self._since_commit = 0
        self._proposal: BankProposal | None = None
        self._account()

    @property
    def proposal(self) -> BankProposal:
        """The proposal of the current version; its residual memo lives as long as the version."""
        if self._proposal is None or self._proposal.matcher.bank is not self.store.current:
            self._proposal = BankProposal(self.environment, self.walk, self.abstraction, SchemaMatcher(self.store.current), self.max_nodes)
        return self._proposal

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One attempt from the frozen bank; the boundary comes after it."""
        with self.store.attempt():
            trajectory = self.proposal.draw(rng, self.world_draw)
            valid = self.is_valid(trajectory)
            self.store.propose(self.certificates(trajectory, valid))
        self._since_commit += 1
        if self._since_commit >= self.batch:
            self.boundary()
        return Sample(trajectory.world, trajectory.history) if valid else None

    def boundary(self) -> None:
        """Commit what is pending."""
        self._since_commit = 0
        before = self.store.current
        if self.store.commit() is not before:
            self._account()

    def _account(self) -> None:
        self.accounting.memory_entries = len(self.store.current.pairs)
        self.accounting.memory_bytes = len(self.store.current.serialized())

    def certificates(self, trajectory: Trajectory, valid: bool) -> Iterator[Pair]:
        """What a trajectory proves under the sampler's update."""
        if self.update == "official":
            for place in trajectory.places[:max(1, len(trajectory.history))]:
                for action in range(self.environment.actions):
                    if self.abstraction.is_dead(place, action):
                        yield self.abstraction.key(place), (action,)
        elif self.update == "post_invalid" and not valid:
            actions = tuple(action for action, _ in trajectory.history)
            for time, place in enumerate(trajectory.places[:len(actions)]):
                for end in range(time + 1, len(actions) + 1):
                    if self.abstraction.is_dead_word(place, actions[time:end]):
                        yield self.abstraction.key(place), actions[time:end]
                        break
