"""What can go wrong between a model's name and a model that answers; every message says what to do next."""

from __future__ import annotations


class ModelError(RuntimeError):
    """A model cannot be used as asked."""


class MlxMissingError(ModelError):
    """MLX or mlx-lm is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(f"models need the package {module!r}, which is not installed: pip install 'stcc[mlx]'")


class ModelNotFoundError(ModelError):
    """The name is neither a known model, nor a folder, nor shaped like a hub name."""


class ModelUnavailableError(ModelError):
    """The weights could not be fetched, or the folder does not load."""


class ModelCorruptError(ModelError):
    """A file is not the one that was expected: wrong digest, a tensor missing, a shape that does not fit."""
