"""Deterministic automata over bytes: the value that scalars, keys and patterns compile to.

States are rows of a ``state x byte class`` table; accepting states carry a *label*, so that one DFA can tell several languages
apart (labels are disjoint by construction). Strings are held as their raw UTF-8 bytes; the JSON escape step
(``stcc.compiler.escape``) comes after all Boolean algebra.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Dfa:
    """A partial DFA over bytes.

    Attributes:
        byte_class: uint8 ``[256]``, byte -> class.
        table: int32 ``[states, classes]``, next state or -1 (dead).
        accept: int32 ``[states]``, label of an accepting state, -1 for the others.
        start: the start state.
    """

    byte_class: npt.NDArray[np.uint8]
    table: Int32
    accept: Int32
    start: int = 0

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.table.shape[0])

    @property
    def classes(self) -> int:
        """Number of byte classes."""
        return int(self.table.shape[1])

    def run(self, text: bytes, state: int | None = None) -> int:
        """State after reading ``text`` from ``state`` (default: the start); -1 once dead."""
        current = self.start if state is None else state
        for value in text:
            if current < 0:
                return -1
            current = int(self.table[current, self.byte_class[value]])
        return current

    def match(self, text: bytes) -> int:
        """Label with which ``text`` is accepted, -1 if it is not."""
        state = self.run(text)
        return -1 if state < 0 else int(self.accept[state])
