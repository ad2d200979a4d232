"""What is on disk: artifacts (``.stc``) and vocabulary packs (``.stv``), as SPEC.md lays them down."""

from stcc.formats.artifact import Artifact, Metadata
from stcc.formats.errors import FormatError, VocabularyMismatch
from stcc.formats.vocabulary import Vocabulary

__all__ = ["Artifact", "FormatError", "Metadata", "Vocabulary", "VocabularyMismatch"]
