"""Token budgets where items must differ: whether what was begun can be finished, with different items, in the tokens left.

In: a configuration, the ``Progress`` there, tokens left. Out: yes or no; a yes is right, a no may be cautious. ``budget.Needs`` knows
nothing of items. It is right as soon as the items under way have no rivals: no array here needs a second item, and what ends an array
behind a further item ends it before that at no greater cost, with the vocabularies there are. (``refuse_budget`` refuses other arrays, and
vocabularies with single tokens that end an item and the next one.) So what is asked is what it costs to get rid of the rivals: a few
plain characters, of which more ways exist than rivals (``spare``), or the cheapest tokens that do, by a search over at most
``MOST_NODES`` positions.

Cost: look-ups where ``spare`` decides; else a search of some 0.3 ms and up, near the end of a budget only.
"""

from __future__ import annotations

import heapq
import itertools
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stcc.formats.binding import UNREACHABLE
from stcc.runtime.errors import BudgetUnavailable
from stcc.runtime.unique_endings import LOOKAHEAD, PLAIN, Endings
from stcc.runtime.unique_items import BARE, STRING, Progress, Reader

if TYPE_CHECKING:
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.stack import Configuration, Level

MOST_NODES = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_FURTHER = re.compile(rb"\s*[^\s,].*,\s*(?:[0-9A-Za-z]|[^\s,\]}].*[0-9A-Za-z\]}])\s*", re.DOTALL)


def goes_further(token: bytes) -> bool:
    """Whether ``token`` ends a value, passes a comma, and ends (or may have ended) the value behind it, or what holds it."""
    return any(b'"' not in plain and _FURTHER.fullmatch(plain) for plain in (_STRING.sub(b"s", begun + token) for begun in (b"", b'"')))


class UniqueBudgetError(BudgetUnavailable):
    """A token budget for a grammar in which what different items cost cannot be told beforehand."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a token budget cannot be kept: {why}", "leave max_tokens out, or lower minItems of the array to 1")


class Costs:
    """The answers for one bound grammar."""

    def __init__(self, grammar: Grammar, reader: Reader, endings: Endings) -> None:
        self._grammar, self._reader, self._endings = grammar, reader, endings
        self._spare: dict[tuple[int, Level, int, int], int] = {}

    def refuse_budget(self) -> None:
        """Raise UniqueBudgetError where ``Needs`` may be wrong even without rivals."""
        if self._grammar.machine.several.any():
            raise UniqueBudgetError("an array whose items must differ (uniqueItems) has to have several")
        if self._further:
            raise UniqueBudgetError("the vocabulary has single tokens that end an item and the next one, which must differ (uniqueItems)")

    @cached_property
    def _further(self) -> bool:
        vocabulary = self._grammar.vocabulary
        assert vocabulary is not None
        places = np.flatnonzero(vocabulary.token_bytes == 0x2C)
        tokens = np.unique(vocabulary.token_offsets.searchsorted(places, "right") - 1)
        return any(goes_further(vocabulary.token(token)) for token in tokens.tolist())

    @cached_property
    def _singles(self) -> frozenset[int]:
        """The bytes that are tokens."""
        vocabulary = self._grammar.vocabulary
        assert vocabulary is not None
        alone = np.flatnonzero(np.diff(vocabulary.token_offsets) == 1)
        return frozenset(vocabulary.token_bytes[vocabulary.token_offsets[alone]].tolist())

    def fits(self, state: int, level: Level, progress: Progress, left: int) -> bool:
        """Whether an output with different items fits in ``left`` more tokens, given that one with any items does."""
        rivals = sum(map(len, progress.rivals().values()))
        if not rivals:
            return True
        if progress.mode == BARE and b"e" in progress.text.lower():
            return self._search(state, level, progress, left)
        return self.spare(state, level, progress.mode, rivals) <= left or self._search(state, level, progress, left)

    def spare(self, state: int, level: Level, mode: int, rivals: int) -> int:
        """So many tokens finish in spite of ``rivals`` rivals, by plain characters; ``UNREACHABLE`` if that is not evident."""
        begun: Configuration | None = (state, level)
        more = 0
        if mode not in PLAIN:
            begun, mode, more = self._reader.stacks.step(state, level, 0x22) if state >= 0 else None, STRING, 1
        if begun is None or not self._singles.issuperset(PLAIN[mode]):
            return UNREACHABLE
        ways = [(self._endings.counted(*begun, mode, length), length) for length in range(1, LOOKAHEAD + 1)]
        costs = [length + more + self._most_need(*begun, mode, length) for count, length in ways if count > rivals]
        return min(costs, default=UNREACHABLE)

    def _most_need(self, state: int, level: Level, mode: int, length: int) -> int:
        """The most tokens that finishing takes after any ``length`` plain characters."""
        key = (state, level, mode, length)
        known = self._spare.get(key)
        if known is None:
            if length == 0:
                known = self._grammar.needs.need(state, level)
            else:
                after = {self._reader.stacks.step(state, level, byte) for byte in PLAIN[mode]} - {None}
                known = max((self._most_need(*each, mode, length - 1) for each in after if each is not None), default=0)
            if len(self._spare) >= 1 << 16:
                self._spare.clear()
            self._spare[key] = known
        return known

    def _search(self, state: int, level: Level, progress: Progress, left: int) -> bool:
        """Whether some tokens, found cheapest first, get rid of the rivals in time."""
        order = itertools.count()
        needs = self._grammar.needs
        queue: list[tuple[int, int, int, Any]] = [(needs.need(state, level), next(order), 0, (state, level, progress))]
        for _ in range(MOST_NODES):
            if not queue or queue[0][0] > left:
                return False
            _, _, spent, (state, level, position, *rest) = heapq.heappop(queue)
            if rest:
                for after in self._followers(state, level, position, *rest):
                    heapq.heappush(queue, (spent + 1 + needs.need(after[0], after[1]), next(order), spent + 1, after))
            elif not position.rivals():
                return True
            elif state >= 0:
                actions = self._grammar.masks.live(state)[0]
                for action, cost in zip(actions.tolist(), needs.live_costs(state, level)[0].tolist(), strict=True):
                    if spent + cost <= left:
                        heapq.heappush(queue, (spent + cost, next(order), spent, (state, level, position, action)))
        return False

    def _followers(self, state: int, level: Level, progress: Progress, action: int) -> list[tuple[int, Level, Progress]]:
        """Where some tokens of an action lead: one more than there are rivals."""
        masks, vocabulary = self._grammar.masks, self._grammar.vocabulary
        assert vocabulary is not None
        row = masks.tokens.union(np.array([action], np.int32))
        tokens = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        found = []
        for token in tokens[:sum(map(len, progress.rivals().values())) + 1].tolist():
            target = masks.land(masks.value(state, token), level)
            after = self._reader.read(state, level, progress, vocabulary.token(token))
            if target is not None and after is not None and self._endings.can_end(*target, after):
                found.append((*target, after))
        return found
