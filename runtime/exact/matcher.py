"""A frozen bank as a deterministic matcher: which continuations are under way.

A matcher state is the set of trie nodes of continuations begun at the keys passed so far and still agreeing with the actions taken. States
are numbered as they are met, and every transition is computed once. With continuations of one action there is one state only.

>>> m = SchemaMatcher(Bank(0, frozenset({(7, (1, 2))})))
>>> m.step(m.step(0, 7, 1), 9, 2) == HIT
True
"""

from __future__ import annotations

from stcc.runtime.exact.bank import Bank

HIT = -1
"""A continuation of the bank is complete: the trajectory is excluded."""


class SchemaMatcher:
    """See the module's text. State 0 is the one in which nothing is under way."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self._children: list[dict[int, int]] = []
        self._complete: list[bool] = []
        self._roots: dict[int, int] = {}
        for key, word in sorted(bank.pairs):
            node = self._roots.get(key, -1)
            if node < 0:
                node = self._roots[key] = self._node()
            for action in word:
                child = self._children[node].get(action, -1)
                if child < 0:
                    child = self._node()
                    self._children[node][action] = child
                node = child
            self._complete[node] = True
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._active: list[tuple[int, ...]] = [()]
        self._steps: dict[tuple[int, int, int], int] = {}

    def _node(self) -> int:
        self._children.append({})
        self._complete.append(False)
        return len(self._children) - 1

    @property
    def states(self) -> int:
        """Number of states met so far."""
        return len(self._active)

    @property
    def keys(self) -> frozenset[int]:
        """Keys of which the bank holds a continuation."""
        return frozenset(self._roots)

    def excludes(self, key: int) -> bool:
        """Whether the bank holds the empty continuation at ``key``: every trajectory that passes it is excluded."""
        root = self._roots.get(key, -1)
        return root >= 0 and self._complete[root]

    def step(self, state: int, key: int, action: int) -> int:
        """The state after ``action`` at a place with ``key``; HIT if that completes a continuation."""
        asked = (state, key, action)
        known = self._steps.get(asked)
        if known is None:
            known = self._steps[asked] = self._computed(state, key, action)
        return known

    def _computed(self, state: int, key: int, action: int) -> int:
        root = self._roots.get(key, -1)
        begun = self._active[state] if root < 0 else (*self._active[state], root)
        reached = {self._children[node][action] for node in begun if action in self._children[node]}
        if any(self._complete[node] for node in reached):
            return HIT
        active = tuple(sorted(node for node in reached if self._children[node]))
        number = self._numbers.setdefault(active, len(self._active))
        if number == len(self._active):
            self._active.append(active)
        return number
