"""What can go wrong between a model's name and a model that answers; every message says what to do next."""

from __future__ import annotations


class ModelError(ValueError):
    """A model cannot be used as asked.

    Attributes:
        message: what is wrong, one sentence.
        hint: what to do next, one sentence.
    """

    def __init__(self, message: str, hint: str) -> None:
        self.message, self.hint = message, hint
        super().__init__(f"{message} ({hint})")

    def to_dict(self) -> dict[str, str]:
        """The error as plain data, for ``--json``."""
        return {"error": type(self).__name__, "message": self.message, "hint": self.hint}


class MlxMissingError(ModelError):
    """MLX or mlx-lm is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(f"models need the package {module}, which is not installed", "pip install 'stcc[mlx]'")


class ModelNotFoundError(ModelError):
    """The name is neither a known model, nor a folder, nor shaped like a hub name."""


class ModelUnavailableError(ModelError):
    """The weights could not be fetched, or the folder does not load."""


class ModelCorruptError(ModelError):
    """A file is not the one that was expected: wrong digest, a tensor missing, a shape that does not fit."""
