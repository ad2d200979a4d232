"""Several continuations of one text as the rows of one batch, each with its own cache row.

In: a ``DecodingModel`` and the caches the rows begin with. ``feed`` gives every row its next tokens, as many as it has, in one pass;
``keep`` drops rows that are done; ``extract`` takes a row's cache out again. Recurrent caches are never rolled back: a row starts from a
copy.

Rows of different lengths are padded on the right, and the caches are told the lengths before the pass and rolled after it, as mlx-lm's own
batches do: a padded place reaches no other and no state. A single row stays an ordinary cache and costs what one stream does.

A copy shares the arrays until its next pass, which writes them anew; so a copy costs one write of the cache, and holding it costs as much
memory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.errors import ConstraintError


class CacheKindError(ConstraintError):
    """A layer's cache cannot be used as asked.

    Attributes:
        kind: the class of the cache.
    """

    def __init__(self, kind: str, missing: str) -> None:
        self.kind = kind
        super().__init__(f"caches of class {kind} cannot be {missing}", "decode one stream at a time with stcc.runtime.decode.generate")


def copy_cache(cache: Cache) -> Cache:
    """A cache that goes on from the same place without changing the other. Lazy: arrays are shared until one of the two is written."""
    return copy.deepcopy(cache)


def require_batches(model: DecodingModel) -> None:
    """Raise CacheKindError if some layer's cache cannot become a row of a batch."""
    for layer in model.make_cache():
        if not all(hasattr(layer, name) for name in ("merge", "is_trimmable")):
            raise CacheKindError(type(layer).__name__, "merged into a batch")


@dataclass(frozen=True)
class Anchor:
    """A cache and how many tokens of prompt and output it has read.

    Attributes:
        cache: one stream's; copied before it is read on.
        length: tokens read.
    """

    cache: Cache
    length: int

    def moved(self, read: Anchor, certain: int) -> Anchor:
        """An anchor that holds as much as can be had of the first ``certain`` tokens.

        Args:
            read: what a pass from this anchor has read; its cache is taken over.
            certain: of the tokens read, those that stay, not fewer than this anchor holds.
        """
        from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

        surplus = read.length - certain
        if not surplus:
            return read
        if not can_trim_prompt_cache(read.cache):
            return self
        trim_prompt_cache(read.cache, surplus)
        return Anchor(read.cache, certain)


class Rows:
    """See the module's text."""

    def __init__(self, model: DecodingModel, caches: Sequence[Cache]) -> None:
        """Rows that begin with ``caches``, one each; a single one is taken over, several are copied into a batch."""
        self._model, self._count = model, len(caches)
        self._single = len(caches) == 1
        self._cache: Cache = caches[0] if self._single else [layers[0].merge(list(layers)) for layers in zip(*caches, strict=True)]

    def __len__(self) -> int:
        return self._count

    def feed(self, pieces: Sequence[Sequence[int]], places: Sequence[tuple[int, int]] | None = None) -> Any:
        """One pass that gives row ``i`` the tokens ``pieces[i]``, at least one.

        Args:
            pieces: the tokens of each row.
            places: (row, position in its piece) whose scores are wanted; None for the last position of each row, in order.

        Returns:
            Lazy logits ``[places, width]``, what follows each place.
        """
        import mlx.core as mx

        lengths = [len(piece) for piece in pieces]
        longest = max(lengths)
        padding = [longest - length for length in lengths]
        wanted = [(row, length - 1) for row, length in enumerate(lengths)] if places is None else places
        tokens = mx.array([[*piece, *([0] * pad)] for piece, pad in zip(pieces, padding, strict=True)], dtype=mx.int32)
        if max(padding):
            for layer in self._cache:
                layer.prepare(lengths=lengths, right_padding=padding)
        logits = self._model.at(tokens, mx.array([row for row, _ in wanted]), mx.array([place for _, place in wanted]), self._cache)
        if max(padding):
            for layer in self._cache:
                layer.finalize()
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; at least one."""
        import mlx.core as mx

        if list(rows) != list(range(self._count)):
            for layer in self._cache:
                layer.filter(mx.array(list(rows)))
            self._count = len(rows)

    def extract(self, row: int) -> Cache:
        """The cache of one row, to go on with as a single stream; the batch must not be fed afterwards if it is the only row."""
        return self._cache if self._single else [layer.extract(row) for layer in self._cache]
