"""The matcher of grammars with arrays whose items must differ (``uniqueItems`` over items of any number).

In: a ``Grammar`` whose machine has ``unique`` states. Beside the configuration it holds the ``Progress`` of such arrays, and takes from
what the machine allows what would complete an item that equals an earlier one, or lead where only such items can follow. All else is the
``Matcher``'s; other grammars do not come here.

Afterwards: every accepted text keeps the condition, no mask leads into a dead end, and masks, ``accept_token`` and ``accept_bytes`` agree.
"""

from __future__ import annotations

from functools import cached_property
from operator import index as integer
from typing import TYPE_CHECKING, Any

import numpy as np

from stcc.runtime.errors import ConstraintError, VocabularyRequired
from stcc.runtime.matcher import Matcher
from stcc.runtime.token_sets import BIT
from stcc.runtime.unique_costs import Costs, UniqueBudgetError
from stcc.runtime.unique_endings import Endings
from stcc.runtime.unique_items import IDLE, Progress, Reader
from stcc.runtime.unique_suspects import Suspects

if TYPE_CHECKING:
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.masks import Entry
    from stcc.runtime.stack import Configuration


MOST_SPARED = 64
"""Most tokens beyond the fewest that ``hasten`` leaves."""


class UniqueRules:
    """What the matchers of one grammar share.

    Attributes:
        reader: reads bytes into progress.
        endings: says whether what was begun can end.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.reader = Reader(grammar.stacks)
        self.endings = Endings(self.reader)

    @cached_property
    def costs(self) -> Costs:
        """Says what fits a token budget."""
        return Costs(self._grammar, self.reader, self.endings)

    @cached_property
    def suspects(self) -> Suspects:
        """Says which tokens must not follow. VocabularyRequired without a vocabulary."""
        if self._grammar.vocabulary is None:
            raise VocabularyRequired(self._grammar.name)
        return Suspects(self._grammar.masks, self._grammar.vocabulary, self.reader, self.endings, self.costs)


class UniqueMatcher(Matcher):
    """See the module's text. Made by ``Grammar.matcher``."""

    __slots__ = ("_progress", "_trail")

    def __init__(self, grammar: Grammar, max_tokens: int | None = None, canonical: bool = False) -> None:
        super().__init__(grammar, max_tokens, canonical)
        if max_tokens is not None:
            grammar.unique.costs.refuse_budget()
        self._progress: Progress = IDLE
        self._trail: list[Progress] = []

    def accept_token(self, token_id: int) -> bool:
        """As ``Matcher.accept_token``; False too where an item would equal an earlier one of its array, now or inevitably."""
        state, level = self._state, self._level
        if not super().accept_token(token_id):
            return False
        token = integer(token_id)
        data = b"" if self.is_terminated() else self.grammar.vocabulary.token(token)  # type: ignore[union-attr]
        return self._follow(state, level, data)

    def accept_bytes(self, text: bytes) -> bool:
        """As ``Matcher.accept_bytes``; False too where an item would equal an earlier one of its array, now or inevitably."""
        state, level = self._state, self._level
        return super().accept_bytes(text) and self._follow(state, level, bytes(text))

    def _follow(self, state: int, level: Any, data: bytes) -> bool:
        """Keep up with a step that the machine has taken from a configuration, or undo it."""
        rules = self.grammar.unique
        after = rules.reader.read(state, level, self._progress, data) if data else self._progress
        if after is None or not self._can_end(after):
            super().rollback(1)
            return False
        after.narrow(self._progress)
        self._trail.append(self._progress)
        self._progress = after
        return True

    def _can_end(self, progress: Progress) -> bool:
        """Whether what stands here with ``progress`` can be completed, in the tokens left."""
        rules, state, level = self.grammar.unique, self._state, self._level
        can_end = rules.endings.can_end(state, level, progress)
        return can_end and (self._left is None or rules.costs.fits(state, level, progress, self._left))

    def rollback(self, steps: int = 1) -> None:
        """As ``Matcher.rollback``."""
        super().rollback(steps)
        if steps:
            self._progress = self._trail[-steps]
            del self._trail[-steps:]

    def reset(self) -> None:
        """As ``Matcher.reset``."""
        super().reset()
        self._progress = IDLE
        self._trail.clear()

    def fork(self) -> UniqueMatcher:
        """As ``Matcher.fork``."""
        twin = super().fork()
        assert isinstance(twin, UniqueMatcher)
        twin._progress, twin._trail = self._progress, self._trail.copy()
        return twin

    def move_to(self, configuration: Configuration) -> None:
        """As ``Matcher.move_to``, but for the start only: a configuration does not tell which items were read.

        Raises:
            ConstraintError: the configuration is not the start.
        """
        if configuration != self.grammar.start:
            raise ConstraintError("a configuration does not tell which items of an array were read, and they must differ",
                                  "read the text from its start, or fork a matcher that has")
        self.reset()

    def hasten(self) -> None:
        """As ``Matcher.hasten``, with what it takes at most to let items differ.

        Raises:
            UniqueBudgetError: that cannot be told.
        """
        costs = self.grammar.unique.costs
        costs.refuse_budget()
        need = self.need()
        left = next((left for left in range(need, need + MOST_SPARED) if costs.fits(self._state, self._level, self._progress, left)), None)
        if left is None:
            raise UniqueBudgetError(f"{MOST_SPARED} tokens more than the shortest ending do not evidently let the items differ")
        self._left = left

    def forced_tokens(self) -> list[int]:
        """As ``Matcher.forced_tokens``, up to the first token that must not follow."""
        tokens = super().forced_tokens()
        twin = self.fork()
        for place, token in enumerate(tokens):
            if not twin.accept_token(token):
                return tokens[:place]
        return tokens

    def forced_bytes(self) -> bytes:
        """As ``Matcher.forced_bytes``, up to the first byte that must not follow."""
        text = super().forced_bytes()
        twin = self.fork()
        for place in range(len(text)):
            if not twin.accept_bytes(text[place:place + 1]):
                return text[:place]
        return text

    def allowed_bytes(self) -> bytes:
        """As ``Matcher.allowed_bytes``."""
        twin = self.fork()
        found = bytearray()
        for byte in super().allowed_bytes():
            if twin.accept_bytes(bytes([byte])):
                found.append(byte)
                twin.rollback(1)
        return bytes(found)

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """As ``Matcher.fill_next_token_bitmask``."""
        row, masking = self._entry()
        self._fill_other(bitmask, index, row)
        return masking

    def _entry(self) -> Entry:
        masks = self.grammar.masks
        entry = masks.row(self._state, self._level) if self._left is None else self._within_budget(self._left)
        refused = self.grammar.unique.suspects.refused(self._state, self._level, self._progress, entry[0], self._left)
        if refused:
            tokens = np.array(refused)
            row = entry[0].copy()
            np.bitwise_and.at(row, tokens >> 5, ~BIT[tokens & 31])
            entry = row, True
        return self._covering(entry) if self._canonical and self._state >= 0 else entry
