"""From a model's name to a model that runs: the default one, an mlx-lm folder, or a hub name.

Out: the mlx-lm model, its tokenizer, and the folder from which a vocabulary is prepared. On MLX's CPU backend weights are held in
float32: half precision runs 10 to 30 times slower there, and matrices whose dense form fits ``DENSE_BYTES`` are dequantised,
since only dense products reach BLAS (SmolLM2 on two cores with OpenBLAS: a pass over 37 tokens takes 0.17 s dense, 4.5 s packed).
Both steps are exact in the weights. On a GPU the weights stay as stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stcc.runtime.models.errors import MlxMissingError, ModelNotFoundError, ModelUnavailableError
from stcc.runtime.models.smollm2 import smollm2_folder

DENSE_BYTES = 2 << 30  # largest dense float32 model that the CPU backend is given
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to decode.

    Attributes:
        model: the mlx-lm model: ``model(tokens [batch, n], cache=...) -> logits [batch, n, head]``.
        tokenizer: mlx-lm's tokenizer wrapper.
        vocabulary_source: the folder that holds ``tokenizer.json`` and the model's configuration.
        name: the name it was asked for by.
    """

    model: Any
    tokenizer: Any
    vocabulary_source: Path
    name: str

    def prompt_tokens(self, prompt: str, *, chat: bool = True) -> list[int]:
        """Token ids of ``prompt`` as a user's turn under the chat template; as plain text if ``chat`` is off or there is no template."""
        if chat and getattr(self.tokenizer, "chat_template", None):
            turns = [{"role": "user", "content": prompt}]
            return [int(token) for token in self.tokenizer.apply_chat_template(turns, add_generation_prompt=True)]
        return [int(token) for token in self.tokenizer.encode(prompt)]


def load_model(name_or_path: str | Path) -> LoadedModel:
    """Load ``smollm2``, an mlx-lm model folder, or (only if no such folder exists) a hub name ``owner/model``.

    Raises:
        MlxMissingError: MLX or mlx-lm is not installed.
        ModelNotFoundError: the name is none of the three.
        ModelUnavailableError: the weights cannot be fetched or do not load.
        ModelCorruptError: the fetched weights are not the expected ones.
    """
    name = str(name_or_path)
    if name == "smollm2":
        return load_folder(smollm2_folder(), name)
    if name and Path(name).is_dir():
        return load_folder(Path(name), name)
    if not _HUB_NAME.fullmatch(name) or Path(name).exists():
        raise ModelNotFoundError(f"{name!r} is not a model", "give smollm2, an mlx-lm model folder, or a hub name such as "
                                 "mlx-community/Qwen3-4B-4bit")
    return load_folder(_hub_folder(name), name)


def _hub_folder(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MlxMissingError("huggingface_hub") from error
    patterns = ["*.json", "model*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the hub client raises some twenty kinds, network and protocol ones among them
        raise ModelUnavailableError(f"{name} could not be fetched from the hub: {error}", "give a local mlx-lm model folder") from error


def load_folder(folder: Path, name: str) -> LoadedModel:
    """Load the mlx-lm model in ``folder``; nothing is downloaded.

    Raises:
        MlxMissingError: MLX or mlx-lm is not installed.
        ModelUnavailableError: the folder does not load.
    """
    try:
        import mlx.core as mx
        import mlx_lm
    except ImportError as error:
        raise MlxMissingError(error.name or "mlx-lm") from error
    try:
        model, tokenizer = mlx_lm.load(str(folder))[:2]
    except (OSError, ValueError, KeyError, RuntimeError, ModuleNotFoundError) as error:
        raise ModelUnavailableError(f"the model folder {folder} does not load: {error}", "it must be an mlx-lm model (config.json, "
                                    "*.safetensors, tokenizer.json); mlx_lm.convert makes one") from error
    if mx.default_device().type == mx.cpu:
        model = _for_cpu(model)
    return LoadedModel(model, tokenizer, folder, name)


def _for_cpu(model: Any) -> Any:
    import mlx.core as mx
    from mlx_lm.utils import dequantize_model, get_total_parameters

    model.set_dtype(mx.float32)
    if get_total_parameters(model) * 4 <= DENSE_BYTES:
        model = dequantize_model(model)
        model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model
