"""Passes in which rows of mlx-lm's batch generator read forced text along with the token before it (Theorem 19).

In: the model that ``BatchGenerator`` is given in place of its own. Its generation step asks the model for the scores after one token a
row; at that moment the rows are told their token and say what must follow it. All rows' tokens are read in one pass, padded on the right,
and the scores after the last real one of each go back, so that samplers and processors of mlx-lm see an ordinary step. Prompts pass
through unchanged.

How many forced tokens a pass takes is decided anew each time: a wider pass reads more tokens and costs more, also for rows that have none,
and padded rows are rolled into place afterwards (``paying_width``). What does not fit is read in later passes.

The pass over one token a row is enqueued before the sampled tokens are known to the host, and dropped unevaluated if a wider one pays, so
that the device does not wait for the host to make it (attention caches; others are not brought back).

Cost beside the pass: one read of the sampled tokens, and a roll of the caches after a padded pass. Padding that has come to stand left of
all rows is cut off once it is ``SLACK`` tokens wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stcc.runtime.decoding.model import Cache, DecodingModel

SLOPE = 0.13
"""Cost of one more token in a pass, a pass of one being 1: 39 ms against 13 ms for 16 tokens of a 4B model (section E of the few-path
paper); 0.05 to 0.07 on two CPU cores."""
ROLL = 6.0
"""Cost of rolling the caches after a padded pass, for caches as large as the weights: on two CPU cores 94 MB take as long as a pass over
540 MB of weights."""
WIDEST = 64
SLACK = 256


class WideRow(Protocol):
    """A row as this module sees it."""

    def take(self, token: int) -> Sequence[int]:
        """Go on by the token that was sampled; the tokens that must follow it."""

    def fed(self, tokens: Sequence[int]) -> None:
        """These tokens, the sampled one first, are being read now."""


def paying_width(forced: Sequence[int], roll: float = 0.0, slope: float = SLOPE) -> int:
    """The width of the pass that reads most tokens for its cost, given how many forced tokens each row has. O(WIDEST x rows).

    ``roll`` is the cost of what follows a pass in which some row is padded.

    >>> paying_width([5], 1.0), paying_width([5, 0, 0, 0, 0, 0, 0, 0]), paying_width([4] * 8), paying_width([3, 3, 2], 3.0)
    (6, 1, 5, 3)
    """
    least = 1 + min(forced, default=0)
    best, gain = 1, 0.0
    for width in range(1, min(max(forced, default=0), WIDEST - 1) + 2):
        read = sum(min(1 + count, width) for count in forced)
        worth = read / (1 + slope * (len(forced) * width - 1) + (roll if width > least else 0.0))
        if worth >= gain:
            best, gain = width, worth
    return best


class WideModel:
    """See the module's text."""

    def __init__(self, model: DecodingModel, batch: Callable[[], Any], row: Callable[[int], WideRow | None]) -> None:
        """Wrap ``model``.

        Args:
            model: the model.
            batch: mlx-lm's generation batch at this moment (``uids`` and ``prompt_cache`` are read).
            row: the row of a uid; None for one that is over.
        """
        self.model, self._batch, self._row = model, batch, row
        self._slack = 0
        self._weights = sum(part.nbytes for _, part in _leaves(model.model))
        self.passes = self.tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model.model, name)

    def __call__(self, tokens: Any, cache: Cache) -> Any:
        """Logits ``[batch, n, head]``; ``[batch, 1, head]`` for a generation step."""
        batch = self._batch()
        if tokens.shape[1] != 1 or batch is None or cache is not batch.prompt_cache:
            return self.model.model(tokens, cache=cache)
        before = _states(cache)
        scores = None if before is None else self.model.model(tokens, cache=cache)
        spans = [self._span(uid, token) for uid, token in zip(batch.uids, tokens[:, 0].tolist(), strict=True)]
        self.passes += 1
        roll = ROLL * sum(layer.nbytes for layer in cache) / self._weights if len(spans) > 1 else 0.0
        width = paying_width([len(span) - 1 for _, span in spans], roll)
        if width == 1:
            self._tell(spans, 1)
            return self.model.model(tokens, cache=cache) if scores is None else scores
        if before is not None:
            for layer, state in zip(cache, before, strict=True):
                layer.state = state
        return self._wide(spans, width, cache)

    def _span(self, uid: int, token: int) -> tuple[WideRow | None, list[int]]:
        row = self._row(uid)
        return row, [token, *(row.take(token) if row is not None else ())]

    def _tell(self, spans: list[tuple[WideRow | None, list[int]]], width: int) -> list[list[int]]:
        read = [span[:width] for _, span in spans]
        for (row, _), part in zip(spans, read, strict=True):
            self.tokens += len(part)
            if row is not None:
                row.fed(part)
        return read

    def _wide(self, spans: list[tuple[WideRow | None, list[int]]], width: int, cache: Cache) -> Any:
        import mlx.core as mx

        read = self._tell(spans, width)
        lengths = [len(part) for part in read]
        padded = mx.array([part + [0] * (width - len(part)) for part in read])
        uneven = min(lengths) < width
        if uneven:
            for layer in cache:
                layer.prepare(lengths=lengths, right_padding=[width - length for length in lengths])
        scores = self.model.at(padded, mx.arange(len(read)), mx.array(lengths) - 1, cache)
        if uneven:
            for layer in cache:
                layer.finalize()
            self._compact(len(read), width, cache)
        return scores[:, None, :]

    def _compact(self, rows: int, width: int, cache: Cache) -> None:
        """Cut off what is padding in all rows, once there may be much of it."""
        self._slack += width
        if self._slack >= SLACK:
            self._slack = 0
            for layer in cache:
                layer.filter(list(range(rows)))


def _states(cache: Cache) -> list[Any] | None:
    """What brings the caches back to where they are; None where a pass changes more than that."""
    return [layer.state for layer in cache] if all(type(layer).__name__ == "BatchKVCache" for layer in cache) else None


def _leaves(model: Any) -> Any:
    from mlx.utils import tree_flatten

    return tree_flatten(model.parameters())
