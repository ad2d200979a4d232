"""The model behind every decode loop: tokens and a cache in, scores of the next tokens out.

In: an mlx-lm model, ``model(tokens [1, n], cache=..) -> logits [1, n, head]``. Out: a ``DecodingModel``, which says how wide its head is,
how long a context it takes and whether its caches can give tokens back, and feeds tokens in three ways: for the scores after all of them
(``forward``), after the last one (``last``), or for none (``prefill``). Everything but ``prefill`` is lazy: nothing waits for the device.

A head is the largest matrix of a small model, and a loop that feeds forced text needs it for one position of many. For the models whose
head is a plain matrix on top of ``model.model`` (``PLAIN_HEADS``) ``last`` applies it to that position alone, and to few tokens if only
few may follow; for others it computes all and keeps one position. Both are the same scores.

>>> model = DecodingModel(loaded.model)                          # doctest: +SKIP
>>> cache = model.make_cache()                                   # doctest: +SKIP
>>> model.prefill(prompt[:-1], cache)                            # doctest: +SKIP
>>> scores = model.last(mx.array(prompt[-1:]), cache)            # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stcc.runtime.decoding.heads import Head

PREFILL_TOKENS = 512
"""Prompt tokens per pass: bounds the prompt's activations, and changes no result."""
SCORED_TOKENS = 32
"""Likewise for a pass that scores all its tokens only to keep the last of them."""
PLAIN_HEADS = frozenset({"llama", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "smollm3"})
"""Modules of ``mlx_lm.models`` whose scores are ``lm_head`` or the tied embedding, applied to what ``model.model`` returns."""
_MODELS = "mlx_lm.models."
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")

Cache = list[Any]
"""One entry a layer, of mlx-lm's cache classes; changed in place by every pass."""


class DecodingModel:
    """See the module's text.

    Attributes:
        model: the mlx-lm model.
        context_length: most tokens of prompt and output together; None if the model does not say.
    """

    def __init__(self, model: Any, context_length: int | None = None) -> None:
        """Wrap ``model``. ``context_length`` overrides what its configuration says. O(1), nothing is run."""
        self.model = model
        self.context_length = context_length if context_length is not None else _context_length(model)
        self._trunk, self._head = _plain_head(model)

    @property
    def has_plain_head(self) -> bool:
        """Whether ``last`` can score a position, and a few tokens, by themselves."""
        return self._head is not None

    def make_cache(self) -> Cache:
        """An empty cache. Attention layers keep keys and values, recurrent ones a state that cannot be taken back."""
        from mlx_lm.models.cache import make_prompt_cache

        found: Cache = make_prompt_cache(self.model)
        return found

    @property
    def trimmable(self) -> bool:
        """Whether its caches can give tokens back (``mlx_lm.models.cache.trim_prompt_cache``); False for recurrent layers."""
        from mlx_lm.models.cache import can_trim_prompt_cache

        return bool(can_trim_prompt_cache(self.make_cache()))

    @property
    def scored_tokens(self) -> int:
        """Most tokens that are better fed with the pass that scores than before it, in passes that score nothing."""
        return PREFILL_TOKENS if self._head is not None else min(SCORED_TOKENS, PREFILL_TOKENS)

    @property
    def width(self) -> int:
        """Tokens that the head scores, padding included: the shape of a pass that is never evaluated."""
        import mlx.core as mx

        return int(self.last(mx.zeros((1,), dtype=mx.int32), self.make_cache()).shape[-1])

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """One pass over ``tokens``, int ``[n]`` on the device. Lazy logits ``[n, width]``, after each of them."""
        return self.model(tokens[None], cache=cache)[0]

    def last(self, tokens: Any, cache: Cache, among: Any = None) -> Any:
        """One pass over ``tokens``, int ``[n]`` on the device, n at least 1. Lazy logits ``[1, width]``, after the last of them.

        ``among``: tokens, int ``[m]`` on the device, beside which none matters: a plain head scores them alone, and gives -inf to others.
        """
        if self._head is None:
            return self.model(tokens[None], cache=cache)[:, -1, :]
        hidden = self._trunk(tokens[None], cache)[:, -1, :]
        return self._head.all(hidden) if among is None else self._head.few(hidden, among)

    def at(self, tokens: Any, rows: Any, positions: Any, cache: Cache) -> Any:
        """One pass over int ``[batch, n]``, the cache being one of as many rows. Lazy logits ``[k, width]`` of k chosen places.

        Args:
            tokens: the streams' next tokens, on the device.
            rows: int ``[k]``, the stream of each place.
            positions: int ``[k]``, which of its n tokens the scores follow.
            cache: changed in place.
        """
        if self._head is None:
            return self.model(tokens, cache=cache)[rows, positions]
        return self._head.all(self._trunk(tokens, cache)[rows, positions])

    def prefill(self, tokens: Sequence[int], cache: Cache) -> int:
        """Feed tokens whose scores are not needed, the head never evaluated. Returns the passes made; waits for each of them."""
        import mlx.core as mx

        passes = 0
        for start in range(0, len(tokens), PREFILL_TOKENS):
            self.last(mx.array(list(tokens[start:start + PREFILL_TOKENS])), cache)
            mx.eval([layer.state for layer in cache])
            passes += 1
        return passes


def _context_length(model: Any) -> int | None:
    """What the model's arguments say, those of its text part first."""
    args = getattr(model, "args", None)
    for part in (getattr(args, "text_config", None), args):
        for key in _CONTEXT_KEYS:
            value = part.get(key) if isinstance(part, dict) else getattr(part, key, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


def _plain_head(model: Any) -> tuple[Any, Head | None]:
    """The part of the model below its head, and the head; (None, None) where the two are not known to be all there is."""
    module = type(model).__module__
    if not module.startswith(_MODELS) or module.removeprefix(_MODELS) not in PLAIN_HEADS:
        return None, None
    text = getattr(model, "language_model", model)
    if getattr(text, "sharding_group", None) is not None:
        return None, None
    tied = "lm_head" not in text
    return text.model, Head(text.model.embed_tokens if tied else text.lm_head, tied)
