"""Oracles of the exactness benchmark: where every token leads, by reading bytes; and random ways to cut a text into tokens.

In: a machine and a vocabulary. Out: the configuration after each token, from any configuration. Nothing of a binding or of the runtime is
used, only ``stcc.compiler.stepping``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from stcc.compiler.stepping import Configuration, may_end, step
from stcc.formats import Vocabulary
from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]

MOST_CONFIGURATIONS = 50_000
"""Configurations that a walk remembers before it starts afresh."""
LONGEST_TOKEN = 48
"""Longest token, in bytes, that random tokenizations use."""


class TrieWalk:
    """Where every token of a vocabulary leads from a configuration, by reading bytes: the trie, level by level, on numbered configurations.

    ``next[number, class]`` is filled by ``stcc.compiler.stepping.step`` when first needed (-2), -1 is dead. Nothing here is specific to a
    state, a stack depth or a binding. Cost: a few milliseconds for 300,000 trie nodes.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        self.machine, self.vocabulary = machine, vocabulary
        self._column = machine.byte_class[vocabulary.trie_byte].astype(np.intp)
        self._byte = [int(np.flatnonzero(machine.byte_class == column)[0]) if (machine.byte_class == column).any() else -1
                      for column in range(machine.classes)]
        self._sizes = np.bincount(machine.byte_class, minlength=machine.classes)
        self._forget()

    def _forget(self) -> None:
        self.configurations: list[Configuration] = []
        self._numbers: dict[Configuration, int] = {}
        self._next = np.full((256, self.machine.classes), -2, np.int32)

    def number(self, configuration: Configuration) -> int:
        """The number of a configuration."""
        number = self._numbers.setdefault(configuration, len(self.configurations))
        if number == len(self.configurations):
            self.configurations.append(configuration)
            if number == len(self._next):
                self._next = np.concatenate([self._next, np.full_like(self._next, -2)])
        return number

    def reach(self, configuration: Configuration) -> Int32:
        """For each spelled token, in byte order, the number of the configuration it leads to, -1 if it is refused. int32 ``[spelled]``."""
        if len(self.configurations) > MOST_CONFIGURATIONS:
            self._forget()
        vocabulary = self.vocabulary
        reached = np.full(vocabulary.nodes, -1, np.int32)
        reached[0] = self.number(configuration)
        for low, high in itertools.pairwise(vocabulary.trie_levels[1:].tolist()):
            above = reached[vocabulary.trie_parent[low:high]]
            alive = np.flatnonzero(above >= 0)
            if not len(alive):
                break
            reached[low + alive] = self._after(above[alive], self._column[low + alive])
        return reached[vocabulary.token_node]

    def _after(self, sources: Int32, columns: npt.NDArray[np.intp]) -> Int32:
        """The configurations after one byte each."""
        unknown = np.flatnonzero(self._next[sources, columns] == -2)
        if len(unknown):
            for pair in np.unique(sources[unknown].astype(np.int64) * self.machine.classes + columns[unknown]).tolist():
                source, column = divmod(pair, self.machine.classes)
                following = step(self.machine, self.configurations[source], self._byte[column])
                number = -1 if following is None else self.number(following)
                self._next[source, column] = number
        found: Int32 = self._next[sources, columns]
        return found

    def chain(self, configuration: Configuration) -> bytes:
        """The bytes that must follow, up to the first choice or possible end."""
        columns, text = np.flatnonzero(self._sizes), bytearray()
        while not may_end(self.machine, configuration):
            following = self._after(np.full(len(columns), self.number(configuration), np.int32), columns)
            alive = columns[following >= 0]
            if self._sizes[alive].sum() != 1:
                break
            text.append(self._byte[int(alive[0])])
            configuration = self.configurations[int(following[following >= 0][0])]
        return bytes(text)


def tokens_by_bytes(vocabulary: Vocabulary) -> dict[bytes, list[int]]:
    """The tokens that spell each byte string, by its first bytes."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for token in vocabulary.byte_order.tolist():
        found[vocabulary.token(token)].append(token)
    return dict(found)


def random_tokens(text: bytes, spelled: dict[bytes, list[int]], rng: np.random.Generator) -> list[int]:
    """``text`` cut into random tokens: at each place any token that the rest starts with, long or short."""
    tokens, place = [], 0
    while place < len(text):
        choices = [text[place:end] for end in range(place + 1, min(place + LONGEST_TOKEN, len(text)) + 1) if text[place:end] in spelled]
        piece = choices[int(rng.integers(len(choices)))]
        tokens.append(int(rng.choice(spelled[piece])))
        place += len(piece)
    return tokens
