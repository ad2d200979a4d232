"""Root-prefix CARS keyed by actions alone: the memory of one that does not look at observations.

An exclusion is a sequence of actions: every history whose actions begin so is excluded, whatever was observed, in every world. That is
sound only where the actions are dead under all observations, so that what an observation has ruled out stays in: a refund in the
stranger's world can't be excluded, since the same actions are valid in the owner's (Appendix F). ``RootPrefixCars`` is the same with keys
that hold the observations; the gap between the two is what observations are worth.

The residual goes on full histories inside the stored trie of actions and is 1 outside it. After every attempt the sampler stores, at each
visited proper prefix, the actions that are dead there under every observation. Exact by Lemma 6, as long as some world can be satisfied.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgpack
import numpy as np

from stcc.runtime.exact.abstraction import Abstraction
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.local_masking import ActionMask
from stcc.runtime.exact.proposal import Branch, LearningProposal, State, Trajectory
from stcc.runtime.exact.samplers import Sample, Sampler

Word = tuple[int, ...]
OUTSIDE = -2
"""A matcher state: no stored exclusion begins with the actions taken."""


class ActionPrefixProposal(LearningProposal):
    """The exclusion event of action sequences. The matcher state is the trie node of the actions taken, or OUTSIDE.

    Attributes:
        words: what is excluded, none a beginning of another.
    """

    def __init__(self, environment: Environment, walk: HistoryWalk) -> None:
        super().__init__(environment, walk, Abstraction.by_class(environment))
        self.words: set[Word] = set()
        self._children: list[dict[int, int]] = [{}]
        self._excluded: list[bool] = [False]
        self._memo: list[dict[tuple[int, int], float]] = [{}]

    def exclude(self, word: Word) -> bool:
        """Exclude the histories whose actions begin with ``word``, one action at least; False if they are already.

        Raises:
            BankFrozenError: an attempt is running.
        """
        self.require_thawed()
        if any(word[:size] in self.words for size in range(len(word) + 1)):
            return False
        self.words = {other for other in self.words if other[:len(word)] != word}
        self.words.add(word)
        node = 0
        self._memo[0] = {}
        for action in word:
            child = self._children[node].get(action)
            if child is None:
                child = self._children[node][action] = len(self._children)
                self._children.append({})
                self._excluded.append(False)
                self._memo.append({})
            node = child
            self._memo[node] = {}
        self._excluded[node] = True
        return True

    def mass(self, state: State) -> float:
        """``r`` at a state: 1 outside the trie."""
        node, configuration, _, matched = state
        if not self.environment.running[configuration] or matched == OUTSIDE or not self._children[matched]:
            return 1.0
        memo = self._memo[matched]
        known = memo.get((node, configuration))
        if known is None:
            known = memo[node, configuration] = self.evaluate(state)
        return known

    def branches(self, state: State, action: int) -> list[Branch]:
        """What ``action`` leads to; empty if it completes an excluded sequence."""
        node, configuration, place, matched = state
        following = OUTSIDE if matched == OUTSIDE else self._children[matched].get(action, OUTSIDE)
        if following != OUTSIDE and self._excluded[following]:
            return []
        advance, step = self.walk.advance, self.abstraction.step
        return [(seen, weight, (advance(node, action, seen), target, step(place, action, seen), following))
                for seen, target, weight in self.environment.outcomes[configuration][action]]

    def serialized(self) -> bytes:
        """What it takes to store: msgpack of the sequences, rising."""
        data: bytes = msgpack.packb([list(word) for word in sorted(self.words)])
        return data


class ActionRootPrefixCars(Sampler):
    """Root-prefix CARS over actions; see the module's text.

    Args:
        environment: the policy's environment.
        walk: the model.
        world_draw: as for ``StatefulCars``.
        validator: judges trajectories in place of the environment.
    """

    name = "root_prefix_cars, actions"

    def __init__(self, environment: Environment, walk: HistoryWalk, *, world_draw: str = "reweighted",
                 validator: Validator | None = None) -> None:
        super().__init__(environment, walk.accounting, validator)
        self.world_draw, self.proposal = world_draw, ActionPrefixProposal(environment, walk)
        self._possible = ActionMask(environment, walk, "blind")

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One attempt; exclusions are stored after it, whether it was accepted or not."""
        trajectory = self.proposal.draw(rng, self.world_draw)
        valid = self.is_valid(trajectory)
        for word in self.dead_words(trajectory):
            self.proposal.exclude(word)
        self.accounting.memory_entries = len(self.proposal.words)
        return Sample(trajectory.world, trajectory.history) if valid else None

    def dead_words(self, trajectory: Trajectory) -> Iterator[Word]:
        """Visited proper prefixes, each with an action that is dead after it whatever was observed."""
        taken = tuple(action for action, _ in trajectory.history)
        for size in range(max(1, len(taken))):
            classes = self._possible.classes(taken[:size])
            for action in range(self.environment.actions):
                if all(self.environment.is_dead(number, action) for number in classes):
                    yield (*taken[:size], action)

    def measure(self) -> None:
        """Bring ``memory_bytes`` up to date."""
        self.accounting.memory_bytes = len(self.proposal.serialized())
