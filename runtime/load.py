"""Loading: a path, bytes or an ``Artifact`` becomes a ``Grammar`` for one vocabulary.

A bound artifact is used as it is, with numpy and msgpack only. A portable one is bound in memory, which takes the compiler (``seam``).
"""

from __future__ import annotations

import os

from stcc.formats import Artifact, Vocabulary
from stcc.runtime.grammar import Grammar

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Artifact


def open_artifact(source: Source) -> Artifact:
    """The artifact behind ``source``. FormatError if it is not one, OSError if it cannot be read."""
    if isinstance(source, Artifact):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Artifact.from_bytes(bytes(source))
    return Artifact.load(source)


def load(source: Source, vocabulary: Vocabulary | None = None) -> Grammar:
    """Load an artifact for decoding.

    Args:
        source: path of a ``.stc``, its bytes, or an ``Artifact``.
        vocabulary: the model's. Without one the grammar answers questions about bytes only.

    Raises:
        FormatError: the file is not a sound artifact.
        VocabularyMismatch: the artifact is bound, but not to ``vocabulary``.
    """
    artifact = open_artifact(source)
    if vocabulary is None:
        return Grammar(artifact.machine, name=artifact.metadata.name or artifact.file, artifact=artifact)
    if artifact.portable:
        from stcc.runtime.seam import bind_artifact

        artifact = bind_artifact(artifact, vocabulary)
    name = artifact.metadata.name or artifact.file
    return Grammar(artifact.machine, artifact.binding_for(vocabulary), vocabulary, name=name, artifact=artifact)
