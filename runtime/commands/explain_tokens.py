"""What a tokenizer adds to an explanation: least tokens, what of a shortest output is forced, and the blocks of the block decoder.

In: a grammar, and the texts that lead to its fields. Out: plain data. Without a vocabulary there are blocks only, as far as keys show them.
Cost: a matcher's steps over the texts, and over one shortest output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stcc.runtime.decoding.block_plan import key_starts, plan_blocks
from stcc.runtime.decoding.cuts import find_cuts
from stcc.runtime.errors import ConstraintError
from stcc.runtime.grammar import Grammar
from stcc.runtime.matcher import Matcher
from stcc.runtime.stack import Configuration

LONGEST_OUTPUT = 20_000
"""Most tokens of the shortest output that is spelled."""


@dataclass(frozen=True)
class Shortest:
    """A shortest output in tokens: how many a model samples, each in one pass, and how many are forced and ride along."""

    sampled: int
    forced: int
    text: str

    @property
    def data(self) -> dict[str, Any]:
        """As plain data."""
        total = self.sampled + self.forced
        share = round(self.forced / total, 4) if total else None
        return {"tokens": total, "sampled": self.sampled, "forced": self.forced, "forced_share": share, "text": self.text}


def need_after(grammar: Grammar, prefix: bytes) -> int | None:
    """The fewest tokens that finish an output behind ``prefix``; None where that is not known."""
    matcher = grammar.matcher()
    try:
        return matcher.need() if matcher.accept_bytes(prefix) else None
    except ConstraintError:  # this grammar, or this binding, keeps no budgets
        return None


def shortest_output(grammar: Grammar) -> Shortest | None:
    """An output of the fewest tokens, by taking the first allowed token under the tightest budget; None where there are no budgets."""
    need = need_after(grammar, b"")
    if need is None or need > LONGEST_OUTPUT or grammar.vocabulary is None:
        return None
    try:
        matcher = grammar.matcher(max_tokens=need)
    except ConstraintError:
        return None
    tokens: list[int] = []
    sampled = 0
    while matcher.tokens_left:
        forced = matcher.forced_tokens()
        chosen = forced or [int(matcher.allowed_tokens()[0])]
        sampled += not forced
        for token in chosen:
            matcher.accept_token(token)
        tokens += chosen
    text = b"".join(map(grammar.vocabulary.token, tokens))
    return Shortest(sampled, len(tokens) - sampled, text.decode("utf-8", "backslashreplace"))


class FieldBlocks:
    """Which block each field begins in; fields of different blocks are drafted at the same time (Theorem 23)."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        if grammar.vocabulary is not None:
            plan = plan_blocks(grammar)
            self.count, self._block_at = len(plan.blocks), plan.block_at
        else:
            self._cuts = find_cuts(grammar.stacks)
            ends = [_end_of_key(self._cuts.forced, start) for start in key_starts(self._cuts)]
            first = self._stage(self._first_choice(b""))
            self._starts = np.array([0, *dict.fromkeys(end + 1 for end in ends if end + 1 > first)])
            self.count, self._block_at = len(self._starts), self._by_keys

    def of(self, prefix: bytes) -> int:
        """The number of the block in which the first choice behind ``prefix`` is made, from 0."""
        return self._block_at(self._first_choice(prefix))

    def _first_choice(self, prefix: bytes) -> Configuration:
        matcher = Matcher(self._grammar)
        matcher.accept_bytes(prefix)
        matcher.accept_bytes(matcher.forced_bytes())
        return matcher.configuration()

    def _by_keys(self, configuration: Configuration) -> int:
        return int(np.searchsorted(self._starts, self._stage(configuration), side="right")) - 1

    def _stage(self, configuration: Configuration) -> int:
        state, level = configuration
        if state < 0:
            return 0
        if level.site < 0:
            return int(self._cuts.stage[state])
        while level.below.site >= 0:
            level = level.below
        return int(self._cuts.site_stage[level.site])


def _end_of_key(forced: Any, start: int) -> int:
    while forced[start]:
        start += 1
    return start
