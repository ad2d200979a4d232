"""What is on disk: artifacts (``.stc``) and vocabulary packs (``.stv``), as SPEC.md lays them down."""

from stcc.formats.errors import FormatError, VocabularyMismatch
from stcc.formats.vocabulary import Vocabulary

__all__ = ["FormatError", "Vocabulary", "VocabularyMismatch"]
