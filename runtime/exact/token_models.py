"""What exact text asks of a model: the log-probabilities of the next token after a token sequence, over the vocabulary's ids.

``ModelTokens`` is an mlx-lm model after a prompt. Scores are cut to the vocabulary (a head may be wider; padding is never chosen), divided
by the temperature and normalised in float64: at every step the model's distribution is the softmax over the vocabulary's ids.

A question is a sequence and how many of its last places are wanted: one pass answers for a node and the forced text after it. The sequence
last read is gone on from; others are kept in a ``PromptCache``, so that a branch is read from where it leaves the longest one stored.

>>> tokens = FunctionTokens(lambda taken: [0.5, 0.25, 0.25], size=3)
>>> np.exp(tokens.after((), (1, 2), 2)).tolist()
[[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stcc.runtime.decoding.errors import EmptyPromptError, NarrowHeadError
from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.prompt_cache import PromptCache
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.model_policy import MOST_BYTES, ModelCost, log_probabilities

Scores = npt.NDArray[np.float64]


class ScoresError(ConstraintError):
    """A model whose scores are not a distribution."""


class TokenModel(Protocol):
    """A model of token sequences.

    Attributes:
        size: ids that it scores.
        cost: what it was run for.
    """

    size: int
    cost: ModelCost

    def after(self, taken: Sequence[int], ahead: Sequence[int], wanted: int) -> Scores:
        """Log-probabilities of what follows each of the last ``wanted`` beginnings of ``taken + ahead``: float64 ``[wanted, size]``."""


class FunctionTokens:
    """A model given as a function, for tests and tables: taken tokens -> ``[size]`` probabilities. One pass a call, as for a real one."""

    def __init__(self, function: Callable[[tuple[int, ...]], Any], size: int) -> None:
        self.function, self.size, self.cost = function, size, ModelCost()

    def after(self, taken: Sequence[int], ahead: Sequence[int], wanted: int) -> Scores:
        """As in the protocol. ScoresError unless the function gives probabilities."""
        tokens = (*taken, *ahead)
        self.cost.passes += 1
        self.cost.tokens += wanted
        rows = np.array([self.function(tokens[:size]) for size in range(len(tokens) - wanted + 1, len(tokens) + 1)], np.float64)
        if rows.shape != (wanted, self.size) or not (rows >= 0).all() or not np.allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-9):
            raise ScoresError(f"the function gives no {self.size} probabilities that sum to 1", "normalise in float64")
        with np.errstate(divide="ignore"):
            scores: Scores = np.log(rows)
        return scores


class ModelTokens:
    """An mlx-lm model after a prompt; see the module's text.

    Args:
        model: an mlx-lm model, or a ``DecodingModel``.
        prompt_tokens: at least one.
        size: of the vocabulary.
        temperature: above 0.
        most_bytes: bound on the stored prompt caches.

    Raises:
        EmptyPromptError: no prompt tokens.
        ConstraintError: the temperature is out of range.
    """

    def __init__(self, model: Any, prompt_tokens: Sequence[int], size: int, *, temperature: float = 1.0,
                 most_bytes: int = MOST_BYTES) -> None:
        if not len(prompt_tokens):
            raise EmptyPromptError
        if not 0.0 < temperature < float("inf"):
            raise ConstraintError(f"temperature {temperature} is out of range", "give a number above 0; 1 is the model's own distribution")
        self.model = model if isinstance(model, DecodingModel) else DecodingModel(model)
        self.prompt, self.size, self.temperature, self.cost = tuple(map(int, prompt_tokens)), size, temperature, ModelCost()
        self._prompts = PromptCache(self.model, most_bytes)
        self._cache, self._held = self.model.make_cache(), list[int]()

    def after(self, taken: Sequence[int], ahead: Sequence[int], wanted: int) -> Scores:
        """As in the protocol.

        Raises:
            NarrowHeadError: the model scores fewer tokens than the vocabulary has.
            ScoresError: the scores are not numbers.
        """
        started = time.perf_counter()
        tokens = [*self.prompt, *taken, *ahead]
        try:
            logits = self._fed(tokens, wanted)
            if logits.shape[-1] < self.size:
                raise NarrowHeadError(logits.shape[-1], self.size)
            scores = log_probabilities(logits[:, :self.size] / self.temperature)
        except BaseException:  # the cache may have read what is not counted as held
            self._cache, self._held = self.model.make_cache(), []
            raise
        self.cost.seconds += time.perf_counter() - started
        if np.isnan(scores).any():
            raise ScoresError("the model's scores are not numbers", "are its weights sound?")
        return scores

    def _fed(self, tokens: list[int], wanted: int) -> Any:
        """Lazy logits ``[wanted, width]``; the working cache has read ``tokens`` afterwards."""
        import mlx.core as mx

        self._reach(tokens[:len(tokens) - wanted])
        unread = tokens[len(self._held):]
        self.cost.passes += 1
        self.cost.tokens += len(unread)
        early = len(unread) - wanted - self.model.scored_tokens
        if early > 0:
            self.cost.passes += self.model.prefill(unread[:early], self._cache)
            unread = unread[early:]
        places = mx.arange(len(unread) - wanted, len(unread))
        logits = self.model.at(mx.array([unread], dtype=mx.int32), mx.zeros((wanted,), dtype=mx.int32), places, self._cache)
        self._held = tokens
        return logits

    def _reach(self, tokens: list[int]) -> None:
        """Make the working cache one that holds a beginning of ``tokens``."""
        if self._held and self._held == tokens[:len(self._held)]:
            return
        if not self._held and not len(self._prompts) and len(self.prompt) > 1 and not self.model.trimmable:
            self._held = list(self.prompt[:-1])  # such a cache serves what it is wholly a beginning of: keep one of the prompt
            self.cost.passes += self.model.prefill(self._held, self._cache)
            self.cost.tokens += len(self._held)
            self._prompts.insert(self._held, self._cache)
            return
        self._prompts.insert(self._held, self._cache)
        self._cache, length = self._prompts.fetch(tokens)
        self._held = tokens[:length]
