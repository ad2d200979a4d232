"""The vocabulary of a loaded model, from the cache when it was prepared before.

In: a ``LoadedModel``. Out: its ``Vocabulary``. A ``.stv`` in the cache is found by a digest of everything that preparing one reads (the
tokenizer's files and the model's configuration) and of the stcc version, so that a changed tokenizer never meets an old pack. Cost:
hashing the files (some 10 ms) and opening the pack; preparing one takes 0.2-1 s.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from stcc.formats import FormatError, Vocabulary
from stcc.runtime.models.cache import atomic_file, cache_folder
from stcc.runtime.models.errors import ModelUnavailableError
from stcc.runtime.models.folder import LoadedModel

_SOURCES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json", "config.json",
    "chat_template.jinja",
)


def model_vocabulary(loaded: LoadedModel) -> Vocabulary:
    """The vocabulary of ``loaded``; a fresh one is kept in the cache.

    Raises:
        ModelUnavailableError: the cache cannot be written.
        CompileError: the tokenizer's token bytes cannot be recovered exactly.
    """
    path = cache_folder() / "vocabularies" / f"{_digest(loaded.vocabulary_source)}.stv"
    if path.is_file():
        try:
            return Vocabulary.load(path)
        except FormatError:  # damaged, or another version's: it is made again below
            pass
    from stcc.runtime.seam import vocabulary_from_tokenizer

    vocabulary = vocabulary_from_tokenizer(loaded.vocabulary_source)
    try:
        with atomic_file(path) as fresh:
            vocabulary.save(fresh)
    except OSError as error:
        raise ModelUnavailableError(f"the cache cannot be written: {error}", "set STCC_CACHE to a folder that can be") from error
    return vocabulary


def _digest(folder: Path) -> str:
    digest = hashlib.sha256(version("stcc").encode())
    for name in _SOURCES:
        path = folder / name
        if path.is_file():
            digest.update(f"\0{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
