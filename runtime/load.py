"""Loading: a path, bytes or an ``Artifact`` becomes a ``Grammar`` for one vocabulary.

A bound artifact is used as it is, with numpy and msgpack only. A portable one is bound in memory, which takes the compiler (``seam``).

Ahead of time means that decoding should find its tables ready. A file is opened for one request at a time, so it stays lazy: its first
mask takes under a millisecond and decodes what it needs. A binding made in this process has just cost a compile; it is *warmed*: mask
rows are made beforehand, some milliseconds more, as a server does before prefill.
"""

from __future__ import annotations

import os

from stcc.formats import Artifact, Vocabulary
from stcc.formats.binding_sections import StoredBinding
from stcc.runtime.grammar import Grammar

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Artifact


def open_artifact(source: Source) -> Artifact:
    """The artifact behind ``source``. FormatError if it is not one, OSError if it cannot be read."""
    if isinstance(source, Artifact):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Artifact.from_bytes(bytes(source))
    return Artifact.load(source)


def load(source: Source, vocabulary: Vocabulary | None = None, *, warm: bool | None = None) -> Grammar:
    """Load an artifact for decoding.

    Args:
        source: path of a ``.stc``, its bytes, or an ``Artifact``.
        vocabulary: the model's. Without one the grammar answers questions about bytes only.
        warm: whether to make mask rows beforehand (``Grammar.warm``). None: exactly if the binding was made in this process, not read
            from a file.

    Raises:
        FormatError: the file is not a sound artifact.
        VocabularyMismatch: the artifact is bound, but not to ``vocabulary``.
    """
    artifact = open_artifact(source)
    if vocabulary is None:
        return Grammar(artifact.machine, name=artifact.metadata.name or artifact.file, artifact=artifact)
    vocabulary = artifact.spelled(vocabulary)
    if artifact.portable:
        from stcc.runtime.seam import bind_artifact

        artifact = bind_artifact(artifact, vocabulary)
    name, binding = artifact.metadata.name or artifact.file, artifact.binding_for(vocabulary)
    grammar = Grammar(artifact.machine, binding, vocabulary, name=name, artifact=artifact)
    if warm or (warm is None and not isinstance(binding, StoredBinding)):
        grammar.warm()
    return grammar
