"""What a decode loop asks of a constraint: a mask, a step, and the tokens that must follow.

``stcc.runtime.Matcher`` is one; anything else with these methods decodes in the same loop, one token at a time and with its masks made on
the host. ``Unconstrained`` is the constraint that allows everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from stcc.formats import Vocabulary


class Constraint(Protocol):
    """One output being decoded. The methods are those of ``stcc.runtime.Matcher``."""

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Write the mask of the next token to row ``index`` of an int32 bitmask; False if it masks nothing."""

    def accept_token(self, token_id: int) -> bool:
        """Go on by one token; False, and no change, if it is not allowed. Stop tokens are allowed where the output may end."""

    def forced_tokens(self) -> Sequence[int]:
        """The tokens that must follow, ready to be accepted one after the other; empty where the model has a choice."""

    def is_accepting(self) -> bool:
        """Whether the output so far is a whole one."""


class Unconstrained:
    """Free text over ``vocabulary``: every token is allowed, none is forced, and it may end anywhere."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._row = np.zeros((vocabulary.size + 31) // 32 * 32, np.uint8)
        self._row[:vocabulary.size] = 1
        self._words = np.packbits(self._row, bitorder="little").view(np.int32)

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Allow all; returns False, since nothing is masked."""
        bitmask[index] = self._words
        return False

    def accept_token(self, token_id: int) -> bool:
        """Always True."""
        return True

    def forced_tokens(self) -> Sequence[int]:
        """None."""
        return ()

    def is_accepting(self) -> bool:
        """Always True."""
        return True
