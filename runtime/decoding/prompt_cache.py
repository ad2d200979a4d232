"""Prompts already read: the longest stored beginning of a prompt is taken from memory in place of being read again.

In: a ``DecodingModel``; token sequences with the caches that hold them. Out: for a new prompt, a copy of a cache that holds as much of its
beginning as possible, and how much that is. A cache that can give tokens back (attention) serves every common beginning; one that cannot
(recurrent layers, or a rotating window that has begun to drop tokens) serves a prompt only where what is stored is wholly a beginning of
it.

Stored caches are never handed out: ``fetch`` and ``insert`` copy, and a copy shares its arrays until it is written. ``most_bytes`` bounds
the arrays of all entries (mlx-lm allocates keys and values in steps of 256 tokens, which counts); the entry used longest ago goes first. An
entry that is a beginning of another is dropped where the longer one can be cut to it. What is stored is computed first: an unevaluated row
taken out of a batch keeps all of the batch's arrays.

``save`` and ``load`` use mlx-lm's own files, one a sequence, so that ``mlx_lm.models.cache.load_prompt_cache`` reads them too.

Cost: a comparison with each entry, O(entries x tokens) in NumPy, some microseconds; no entry's arrays are touched. One thread at a time.

>>> prompts = PromptCache(model, most_bytes=1 << 30)                  # doctest: +SKIP
>>> cache, length = prompts.fetch(tokens)                             # doctest: +SKIP
>>> model.prefill(tokens[length:], cache); prompts.insert(tokens, cache)   # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.rows import copy_cache
from stcc.runtime.errors import ConstraintError

MOST_BYTES = 1 << 30
_SUFFIX = ".safetensors"
_TOKENS, _LAYERS = "stcc_tokens", "stcc_layers"
Int32 = npt.NDArray[np.int32]


class PromptCacheError(ConstraintError):
    """A prompt cache that cannot be made, filled or read as asked."""


@dataclass(frozen=True, eq=False)
class _Entry:
    tokens: Int32
    cache: Cache
    size: int
    trimmable: bool


@dataclass
class PromptCacheStatistics:
    """Counts since the cache was made.

    Attributes:
        fetches: prompts looked up.
        hits: of them, those of which a beginning was found.
        tokens: tokens looked up.
        found: of them, those that were found.
        evicted: entries dropped for room.
    """

    fetches: int = 0
    hits: int = 0
    tokens: int = 0
    found: int = 0
    evicted: int = 0


class PromptCache:
    """See the module's text.

    Attributes:
        most_bytes: bound on ``nbytes``.
        statistics: counts.
    """

    def __init__(self, model: DecodingModel, most_bytes: int = MOST_BYTES) -> None:
        """An empty cache of one model's prompts. PromptCacheError if ``most_bytes`` is negative; 0 stores none."""
        if most_bytes < 0:
            raise PromptCacheError(f"most_bytes {most_bytes} is negative", "give the bytes that prompts may take, or 0 to store none")
        self.most_bytes = most_bytes
        self.statistics = PromptCacheStatistics()
        self._model = model
        self._kinds = [type(layer).__name__ for layer in model.make_cache()]
        self._entries: list[_Entry] = []  # used longest ago first

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""
        return sum(entry.size for entry in self._entries)

    def fetch(self, tokens: Sequence[int]) -> tuple[Cache, int]:
        """A cache that holds the longest stored beginning of ``tokens``, the caller's own, and how many tokens that is.

        It may be all of them; the caller that needs scores looks up all but the last. With nothing found the cache is empty and the length
        0.
        """
        wanted = _as_tokens(tokens)
        self.statistics.fetches += 1
        self.statistics.tokens += len(wanted)
        best, length = None, 0
        for entry in reversed(self._entries):
            shared = _common(entry.tokens, wanted)
            usable = shared if entry.trimmable or shared == len(entry.tokens) else 0
            if usable > length:
                best, length = entry, usable
        if best is None:
            return self._model.make_cache(), 0
        self._entries.remove(best)
        self._entries.append(best)
        self.statistics.hits += 1
        self.statistics.found += length
        cache = copy_cache(best.cache)
        _trim(cache, len(best.tokens) - length)
        return cache, length

    def insert(self, tokens: Sequence[int], cache: Cache) -> bool:
        """Store a copy of ``cache``, which must hold exactly ``tokens``. False if it is larger than ``most_bytes`` or holds no tokens.

        Raises:
            PromptCacheError: the layers are not those of the model's caches, or hold another number of tokens.
        """
        held = _as_tokens(tokens)
        self._check(held, cache)
        size = sum(_bytes(layer) for layer in cache)
        if not len(held) or size > self.most_bytes:
            return False
        entry = _Entry(held, _evaluated(copy_cache(cache)), size, _can_trim(cache))
        self._entries = [other for other in self._entries if not _replaces(entry, other)] + [entry]
        while self.nbytes > self.most_bytes:
            del self._entries[0]
            self.statistics.evicted += 1
        return True

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def save(self, folder: str | os.PathLike[str]) -> int:
        """Write every entry to ``folder``, made if need be, oldest first; files of an earlier ``save`` go. Returns how many."""
        from mlx_lm.models.cache import save_prompt_cache

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for old in _files(target):
            old.unlink()
        for number, entry in enumerate(self._entries):
            metadata = {_TOKENS: " ".join(map(str, entry.tokens.tolist())), _LAYERS: " ".join(self._kinds)}
            save_prompt_cache(str(target / f"prompt-{number:06}{_SUFFIX}"), entry.cache, metadata)
        return len(self._entries)

    def load(self, folder: str | os.PathLike[str]) -> int:
        """Insert what ``save`` wrote to ``folder``. Returns how many fitted in; the newest stay.

        The weights are not in the files: that they are of the same model is the caller's to know.

        Raises:
            PromptCacheError: a file is not a stored prompt, or of a model with other layers.
        """
        return sum(self.insert(*self._read(path)) for path in _files(Path(folder)))

    def _read(self, path: Path) -> tuple[list[int], Cache]:
        from mlx_lm.models.cache import load_prompt_cache

        try:
            loaded: Any = load_prompt_cache(str(path), return_metadata=True)
            cache, metadata = loaded
            tokens = [int(token) for token in metadata[_TOKENS].split()]
            kinds = metadata[_LAYERS].split()
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            raise PromptCacheError(f"{path} is not a stored prompt: {error}", "delete it; it is made again by save") from error
        if kinds != self._kinds:
            raise PromptCacheError(f"{path} is of a model with {len(kinds)} layers ({', '.join(sorted(set(kinds)))}), not of this one",
                                   "keep a folder for each model")
        return tokens, cache

    def _check(self, tokens: Int32, cache: Cache) -> None:
        kinds = [type(layer).__name__ for layer in cache]
        if kinds != self._kinds:
            raise PromptCacheError(f"a cache of {len(kinds)} layers ({', '.join(sorted(set(kinds)))}) is not one of the model's",
                                   "insert caches made by model.make_cache()")
        for layer in cache:
            length = getattr(layer, "offset", None)
            if isinstance(length, int) and length != len(tokens):
                raise PromptCacheError(f"the cache holds {length} tokens and {len(tokens)} are said to be in it",
                                       "insert the tokens that were fed, all of them and no other")


def _as_tokens(tokens: Sequence[int]) -> Int32:
    return np.asarray(list(tokens), np.int32)


def _common(one: Int32, other: Int32) -> int:
    """Length of the longest common beginning."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def _can_trim(cache: Cache) -> bool:
    from mlx_lm.models.cache import can_trim_prompt_cache

    return bool(can_trim_prompt_cache(cache))


def _trim(cache: Cache, surplus: int) -> None:
    from mlx_lm.models.cache import trim_prompt_cache

    if surplus:
        trim_prompt_cache(cache, surplus)


def _evaluated(cache: Cache) -> Cache:
    import mlx.core as mx

    mx.eval([layer.state for layer in cache if not layer.empty()])
    return cache


def _bytes(layer: Any) -> int:
    return 0 if layer.empty() else int(layer.nbytes)


def _replaces(entry: _Entry, other: _Entry) -> bool:
    """Whether ``entry`` serves every prompt that ``other`` does, as long a beginning of it."""
    shared = _common(entry.tokens, other.tokens)
    return shared == len(other.tokens) and (entry.trimmable or shared == len(entry.tokens))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"prompt-*{_SUFFIX}"))
