"""Root-prefix CARS over complete histories, and its variant that grounds schemas where histories were visited.

A grounded exclusion is a visited history and a continuation: all that begins so is excluded. The residual of a history below which
nothing is grounded is 1, so that the recursion stays inside the stored trie: its size is what was learned, not the number of histories.
When something is grounded, only the residuals of its prefixes change.

``RootPrefixCars`` (Parys et al. 2025) is keyed by actions and observations, so that it can tell what an observation has ruled out. After
every attempt it grounds, at each visited proper prefix, the actions that are dead there. ``VisitedGrounding`` (Section 4.2) keeps a
schema bank too, and grounds at every visited history whatever the bank holds for its key, wherever that was learned. Both are exact by
Lemma 6.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgpack
import numpy as np

from stcc.runtime.exact.abstraction import Abstraction
from stcc.runtime.exact.bank import Bank, Word
from stcc.runtime.exact.environment import Environment, Validator
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.matcher import HIT
from stcc.runtime.exact.proposal import Branch, LearningProposal, State, Trajectory
from stcc.runtime.exact.samplers import Sample, Sampler
from stcc.runtime.exact.stateful import StatefulCars


class PrefixProposal(LearningProposal):
    """The exclusion event of grounded continuations. The matcher state numbers the set of continuations under way."""

    def __init__(self, environment: Environment, walk: HistoryWalk, abstraction: Abstraction) -> None:
        super().__init__(environment, walk, abstraction)
        self.histories = walk
        self.grounded: dict[int, set[Word]] = {}
        self.entries = 0
        self._touched: set[int] = set()
        self._memo: dict[int, dict[tuple[int, int], float]] = {}
        self._numbers: dict[frozenset[Word], int] = {frozenset(): 0}
        self._active: list[frozenset[Word]] = [frozenset()]

    def ground(self, node: int, word: Word) -> bool:
        """Exclude ``word`` after the history ``node``; False if that was excluded already. BankFrozenError inside an attempt."""
        self.require_thawed()
        known = self.grounded.setdefault(node, set())
        if any(word[:size] in known for size in range(len(word) + 1)):
            return False
        before = len(known)
        known.add(word)
        if all((action,) in known for action in range(self.environment.actions)):
            word = ()  # a running history must act: excluding every action excludes it
        known.difference_update([other for other in known if other[:len(word)] == word])
        known.add(word)
        self.entries += len(known) - before
        while node >= 0:
            self._touched.add(node)
            self._memo.pop(node, None)
            node = self.histories.parents[node]
        return True

    def mass(self, state: State) -> float:
        """``r`` at a state: 1 outside the trie."""
        node, configuration, _, matched = state
        if not self.environment.running[configuration] or (matched == 0 and node not in self._touched):
            return 1.0
        memo = self._memo.setdefault(node, {})
        known = memo.get((configuration, matched))
        if known is None:
            known = 0.0 if () in self.grounded.get(node, ()) else self.evaluate(state)
            self._memo.setdefault(node, {})[configuration, matched] = known
        return known

    def branches(self, state: State, action: int) -> list[Branch]:
        """What ``action`` leads to; empty if it completes a grounded continuation."""
        node, configuration, place, matched = state
        following = self._step(node, matched, action)
        if following == HIT:
            return []
        advance, step = self.walk.advance, self.abstraction.step
        return [(seen, weight, (advance(node, action, seen), target, step(place, action, seen), following))
                for seen, target, weight in self.environment.outcomes[configuration][action]]

    def _step(self, node: int, matched: int, action: int) -> int:
        here = self.grounded.get(node)
        if here is None and matched == 0:
            return 0
        reached = frozenset(word[1:] for word in (*self._active[matched], *(here or ())) if word and word[0] == action)
        if () in reached:
            return HIT
        number = self._numbers.setdefault(reached, len(self._active))
        if number == len(self._active):
            self._active.append(reached)
        return number

    def serialized(self) -> bytes:
        """What it takes to store: msgpack of every prefix (actions and observations) with its continuation, rising."""
        rows = sorted([[number for step in self.histories.history(node) for number in step], list(word)]
                      for node, words in self.grounded.items() for word in words)
        data: bytes = msgpack.packb(rows)
        return data


class RootPrefixCars(Sampler):
    """Root-prefix CARS with the official update; see the module's text."""

    name = "root_prefix_cars"

    def __init__(self, environment: Environment, walk: HistoryWalk, *, world_draw: str = "reweighted",
                 validator: Validator | None = None) -> None:
        super().__init__(environment, walk.accounting, validator)
        self.world_draw = world_draw
        self.proposal = PrefixProposal(environment, walk, Abstraction.by_class(environment))

    def attempt(self, rng: np.random.Generator) -> Sample | None:
        """One attempt; exclusions are grounded after it."""
        trajectory = self.proposal.draw(rng, self.world_draw)
        valid = self.is_valid(trajectory)
        self.learn(trajectory, valid)
        return Sample(trajectory.world, trajectory.history) if valid else None

    def learn(self, trajectory: Trajectory, valid: bool) -> None:
        """The official update, after valid and invalid attempts alike."""
        del valid
        abstraction = self.proposal.abstraction
        self.ground((node, (action,)) for node, place in self.visited(trajectory) for action in range(self.environment.actions)
                    if abstraction.is_dead(place, action))

    def ground(self, exclusions: Iterable[tuple[int, Word]]) -> None:
        """Ground what is new, and account for it; bytes are counted by ``measure``."""
        for node, word in exclusions:
            self.proposal.ground(node, word)
        self.accounting.memory_entries = self.proposal.entries

    def measure(self) -> None:
        """Bring ``memory_bytes`` up to date: serialising the trie takes as long as an attempt."""
        self.accounting.memory_bytes = len(self.proposal.serialized())

    def visited(self, trajectory: Trajectory) -> list[tuple[int, int]]:
        """Node and place of every proper prefix."""
        walk, node, found = self.proposal.histories, 0, []
        for place, (action, seen) in zip(trajectory.places, trajectory.history, strict=False):
            found.append((node, place))
            node = walk.advance(node, action, seen)
        return found or [(0, trajectory.places[0])]


class VisitedGrounding(RootPrefixCars):
    """Schemas, grounded at visited histories only; see the module's text.

    Args:
        environment: the policy's environment.
        walk: the model.
        abstraction: where schemas apply; by default the coarsest sound partition.
        update: as for ``StatefulCars``.
        world_draw: as for ``StatefulCars``.
        validator: judges trajectories in place of the environment.
    """

    name = "visited_grounding"

    def __init__(self, environment: Environment, walk: HistoryWalk, abstraction: Abstraction | None = None, *, update: str = "official",
                 world_draw: str = "reweighted", validator: Validator | None = None) -> None:
        super().__init__(environment, walk, world_draw=world_draw, validator=validator)
        self.schemas = StatefulCars(environment, walk, abstraction, update=update)
        self.proposal = PrefixProposal(environment, walk, self.schemas.abstraction)

    def learn(self, trajectory: Trajectory, valid: bool) -> None:
        """Commit what the attempt proves, then ground what the bank holds for the keys that it visited."""
        self.schemas.store.propose(self.schemas.certificates(trajectory, valid))
        words = _by_key(self.schemas.store.commit())
        abstraction = self.schemas.abstraction
        self.ground((node, word) for node, place in self.visited(trajectory) for word in words.get(abstraction.key(place), ()))


def _by_key(bank: Bank) -> dict[int, list[Word]]:
    grouped: dict[int, list[Word]] = {}
    for key, word in sorted(bank.pairs):
        grouped.setdefault(key, []).append(word)
    return grouped
