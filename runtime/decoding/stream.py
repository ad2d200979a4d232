"""One model with one cache: tokens in, scores out, and the count of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.results import Statistics


class Stream:
    """One model with its cache: tokens in, logits after the last of them out.

    Attributes:
        cache: the model's cache.
        fed: tokens that the model has read.
    """

    def __init__(self, model: DecodingModel, statistics: Statistics, cache: Cache | None, cached: int) -> None:
        self._model, self._statistics = model, statistics
        self.cache: Cache = model.make_cache() if cache is None else cache
        self.fed = cached

    def prefill(self, tokens: Sequence[int]) -> Sequence[int]:
        """Feed tokens whose scores are not needed, all but the last few, which are returned: the pass that scores takes them along."""
        early = max(len(tokens) - self._model.scored_tokens, 0)
        self._statistics.prefill_passes += self._model.prefill(tokens[:early], self.cache)
        self.fed += early
        return tokens[early:]

    @property
    def can_score_few(self) -> bool:
        """Whether a pass gets cheaper if few tokens matter."""
        return self._model.has_plain_head

    def score(self, tokens: Any, count: int, among: Any = None) -> Any:
        """Feed ``count`` tokens, int ``[count]`` on the device, in one pass. Lazy logits ``[1, head]``, after the last of them.

        ``among``: the only tokens that matter, int on the device; None for all.
        """
        self._statistics.passes += 1
        self.fed += count
        return self._model.last(tokens, self.cache, among)
