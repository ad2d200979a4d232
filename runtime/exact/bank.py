"""Schema banks: sound (key, continuation) pairs, in frozen versions.

A trajectory is excluded if somewhere its key is ``z`` and its next actions are ``u``, for a pair ``(z, u)`` of the bank (Equation 2). A
``Bank`` never changes. The ``BankStore`` hands out the current version, collects what attempts prove as a pending delta, and makes the
next version at an attempt boundary: writing while an attempt runs raises ``BankFrozenError``.

``compressed`` keeps the event (Section 4.3): it drops pairs whose continuation has another one of the same key as a prefix; and where every
action is certified at a key, the empty continuation says the same, since a history with a key is still running and must act.

>>> sorted(Bank(0, frozenset({(3, (1, 2)), (3, (1,)), (4, (0,)), (4, (1,))})).compressed(actions=2).pairs)
[(3, (1,)), (4, ())]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgpack

from stcc.runtime.errors import ConstraintError

Word = tuple[int, ...]
Pair = tuple[int, Word]


class BankFrozenError(ConstraintError):
    """A bank was to be changed inside an attempt."""


@dataclass(frozen=True)
class Bank:
    """One version: its number, and pairs of key and continuation (actions)."""

    version: int
    pairs: frozenset[Pair]

    def compressed(self, actions: int) -> Bank:
        """The bank of the same version and event without redundant pairs; ``actions`` is how many there are. Cost: pairs x length."""
        single = Counter(key for key, word in self.pairs if len(word) == 1)
        pairs = self.pairs | {(key, ()) for key, count in single.items() if count == actions}
        return Bank(self.version, frozenset(
            (key, word) for key, word in pairs if not any((key, word[:size]) in pairs for size in range(len(word)))
        ))

    def serialized(self) -> bytes:
        """What it takes to store: msgpack of key -> continuations, all rising."""
        grouped: dict[int, list[list[int]]] = {}
        for key, word in sorted(self.pairs):
            grouped.setdefault(key, []).append(list(word))
        data: bytes = msgpack.packb(list(grouped.items()))
        return data


class BankStore:
    """The versions of a bank, one at a time.

    Args:
        actions: how many there are.
        pairs: what the first version holds.

    Attributes:
        current: the committed version.
        raw: number of pairs that were ever proposed, before compression.
        commits: number of versions made.
    """

    def __init__(self, actions: int, pairs: Iterable[Pair] = ()) -> None:
        self.actions = actions
        self.current = Bank(0, frozenset(pairs)).compressed(actions)
        self.raw, self.commits = 0, 0
        self._pending: set[Pair] = set()
        self._running = 0

    @contextmanager
    def attempt(self) -> Iterator[Bank]:
        """The frozen version for one attempt; nothing may be committed inside."""
        self._running += 1
        try:
            yield self.current
        finally:
            self._running -= 1

    def propose(self, pairs: Iterable[Pair]) -> None:
        """Add proved pairs to the pending delta; the current version stays as it is."""
        for pair in pairs:
            self.raw += 1
            self._pending.add(pair)

    def commit(self) -> Bank:
        """Make the next version of the current one and the delta, compressed; the same version if that adds nothing.

        Raises:
            BankFrozenError: an attempt is running.
        """
        if self._running:
            raise BankFrozenError("a bank is committed between attempts, not inside one; commit at the boundary")
        fresh = self._pending - self.current.pairs
        self._pending.clear()
        if fresh:
            grown = Bank(self.current.version + 1, self.current.pairs | fresh).compressed(self.actions)
            if grown.pairs != self.current.pairs:
                self.current = grown
                self.commits += 1
        return self.current
