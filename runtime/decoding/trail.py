"""An output in the making, at the place where its next token is chosen: tokens, forced text and blocks passed.

In: a ``Matcher`` and a ``BlockPlan``. A trail goes on by chosen tokens; what they force is added at once, so that it always stands at a
choice or has ended. It remembers the tokens chosen in each block. ``fork`` copies it: certified output, drafts and their replay are all
trails, and follow one policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.runtime.bitmask import allocate_token_bitmask
from stcc.runtime.decoding.results import StopReason

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.decoding.block_plan import BlockPlan
    from stcc.runtime.matcher import Matcher


class Trail:
    """See the module's text.

    Attributes:
        matcher: stands at the next choice.
        tokens: all tokens, those it was made with first.
        block: the block that the next token belongs to; never falls.
        choices: block -> the tokens chosen in it, for the blocks begun.
        forced: tokens added without a choice.
        narrowed: choices from which the token limit took tokens away.
        stop_reason: why it ended; None at a choice.
    """

    def __init__(self, matcher: Matcher, unlimited: Matcher | None, plan: BlockPlan | None, vocabulary: Vocabulary,
                 tokens: list[int]) -> None:
        """Begin at ``matcher``, which the trail takes over.

        Args:
            matcher: canonical; with a budget or without.
            unlimited: its twin without a budget, if it has one.
            plan: the blocks of its grammar; None for one block.
            vocabulary: its vocabulary.
            tokens: what was read before.
        """
        self.matcher, self._unlimited, self._plan, self._vocabulary = matcher, unlimited, plan, vocabulary
        self.tokens = tokens
        self.block = 0
        self.choices: dict[int, list[int]] = {}
        self.forced = self.narrowed = 0
        self.stop_reason: StopReason | None = None
        self._settle()

    def fork(self) -> Trail:
        """An independent copy."""
        twin = object.__new__(Trail)
        twin.__dict__.update(self.__dict__)
        twin.matcher = self.matcher.fork()
        twin._unlimited = None if self._unlimited is None else self._unlimited.fork()
        twin.tokens = self.tokens.copy()
        twin.choices = {block: chosen.copy() for block, chosen in self.choices.items()}
        return twin

    @property
    def vocabulary_size(self) -> int:
        """Bits of a mask that mean something."""
        return self._vocabulary.size

    @property
    def chosen(self) -> int:
        """Tokens chosen, stop tokens not counted."""
        return sum(map(len, self.choices.values()))

    def row(self) -> npt.NDArray[np.int32]:
        """int32 ``[words]``: the bits of the tokens that may be chosen now."""
        bitmask = allocate_token_bitmask(1, self._vocabulary.size)
        self.matcher.fill_next_token_bitmask(bitmask)
        return bitmask.reshape(-1)

    def choose(self, token: int) -> bool:
        """Go on by a chosen token and what it forces. False, and no change, if it is not allowed here; nothing is after the end."""
        if self.stop_reason is not None or not self.matcher.accept_token(token):
            return False
        if token in self._vocabulary.stop_token_ids:
            self.stop_reason = "stop"
            return True
        if self._unlimited is not None:
            self._unlimited.accept_token(token)
        self.tokens.append(token)
        self.choices[self.block].append(token)
        self._settle()
        return True

    def _settle(self) -> None:
        """Add forced text; find out the block, or why nothing may follow."""
        for token in self.matcher.forced_tokens():
            if not self.matcher.accept_token(token):  # a plan ends early where the budget leaves no room for it
                break
            if self._unlimited is not None:
                self._unlimited.accept_token(token)
            self.tokens.append(token)
            self.forced += 1
        if self._plan is not None:
            self.block = max(self.block, self._plan.block_at(self.matcher.configuration()))
        self.choices.setdefault(self.block, [])
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        row, narrowed = self.row(), False
        if self._unlimited is not None:
            wider = allocate_token_bitmask(1, self._vocabulary.size)
            self._unlimited.fill_next_token_bitmask(wider)
            narrowed = not np.array_equal(row, wider[0])
        if not self.matcher.is_accepting():
            if not row.any():
                self.stop_reason = "dead_end"
        elif self._only_stops(row):
            self.stop_reason = "length" if narrowed else "complete"
        self.narrowed += narrowed and self.stop_reason is None

    def _only_stops(self, row: npt.NDArray[np.int32]) -> bool:
        left = row.view(np.uint32).copy()
        for stop in self._vocabulary.stop_token_ids:
            left[stop >> 5] &= ~np.uint32(1 << (stop & 31))
        return not left.any()
