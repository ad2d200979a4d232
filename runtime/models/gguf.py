"""GGUF to an mlx-lm model folder, for llama-type models whose tensors MLX can read quantised.

In: a ``.gguf`` file whose matrices are Q4_0/Q4_1/Q8_0 (``mx.load`` turns these into MLX's own packing: groups of 32 with a scale and
a bias). Out: a folder that ``mlx_lm.load`` takes: ``config.json``, ``model.safetensors``, ``tokenizer.json``,
``tokenizer_config.json`` (with the chat template), ``generation_config.json``. Weights are renamed and reordered, never requantised, so the
folder holds exactly the numbers of the file. Cost: one read and one write of the weights.

Two things in a GGUF differ from what mlx-lm expects. Rows of the query and key matrices are interleaved per head (rotary pairs are
neighbours; mlx-lm's halves lie apart), and the tokenizer is a list of strings and merges without its pre-tokenizer, which only a
name (``tokenizer.ggml.pre``) stands for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stcc.runtime.models.errors import MlxMissingError, ModelCorruptError

GROUP_SIZE = 32  # of every quantised GGUF type that MLX reads
_OTHER_FILE = "give a quantised llama-type GGUF, or an mlx-lm model folder"
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
_TENSORS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_DIGITS = {"type": "Digits", "individual_digits": True}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "smollm": {"type": "Sequence", "pretokenizers": [_DIGITS, _BYTE_LEVEL]},
    "gpt-2": _BYTE_LEVEL,
}


class GgufMetadata:
    """The file's key-value pairs, with typed access.

    Raises:
        ModelCorruptError: on reading a key that is absent or not of the asked kind.
    """

    def __init__(self, pairs: dict[str, Any]) -> None:
        self._pairs = pairs

    def _get(self, key: str) -> Any:
        if key not in self._pairs:
            raise ModelCorruptError(f"the GGUF file has no metadata {key!r}", _OTHER_FILE)
        return self._pairs[key]

    def integer(self, key: str) -> int:
        """A scalar as an int."""
        return int(self._get(key).item())

    def number(self, key: str) -> float:
        """A scalar as a float, with the digits that its 32 bits carry."""
        return float(f"{float(self._get(key).item()):.7g}")

    def text(self, key: str) -> str:
        """A string."""
        return str(self._get(key))

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        return [str(value) for value in self._get(key)]

    def integers(self, key: str) -> list[int]:
        """An array of integers."""
        return [int(value) for value in self._get(key).tolist()]


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of ``gguf`` as an mlx-lm folder into ``folder``, which must exist.

    Raises:
        ModelCorruptError: not a llama-type GGUF, an unknown pre-tokenizer, or a tensor that is missing or has no place.
        MlxMissingError: MLX is not installed.
    """
    try:
        import mlx.core as mx
    except ImportError as error:
        raise MlxMissingError("mlx") from error
    try:
        loaded: Any = mx.load(str(gguf), format="gguf", return_metadata=True)
    except RuntimeError as error:
        raise ModelCorruptError(f"{gguf.name} does not read as GGUF: {error}", _OTHER_FILE) from error
    tensors, metadata = loaded[0], GgufMetadata(loaded[1])
    weights = rename_tensors(tensors, metadata)
    _write_json(folder / "config.json", model_config(weights, metadata))
    _write_json(folder / "tokenizer.json", tokenizer_json(metadata))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(metadata))
    _write_json(folder / "generation_config.json", {"eos_token_id": metadata.integer("tokenizer.ggml.eos_token_id")})
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=None if path.name == "tokenizer.json" else 2), encoding="utf-8")


def rename_tensors(tensors: dict[str, Any], metadata: GgufMetadata) -> dict[str, Any]:
    """GGUF tensors under mlx-lm's names, query and key rows in mlx-lm's order, everything in float16 or packed uint32."""
    import mlx.core as mx

    heads = {"attn_q": metadata.integer("llama.attention.head_count"), "attn_k": metadata.integer("llama.attention.head_count_kv")}
    weights = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        short = stem.rpartition(".")[2]
        if short in heads:
            tensor = separate_rotary_halves(tensor, heads[short])
        weights[f"{_mlx_name(stem)}.{part}"] = tensor if tensor.dtype == mx.uint32 else tensor.astype(mx.float16)
    return weights


def _mlx_name(stem: str) -> str:
    if stem in _TOP:
        return _TOP[stem]
    block, _, rest = stem.removeprefix("blk.").partition(".")
    if not stem.startswith("blk.") or rest not in _TENSORS:
        raise ModelCorruptError(f"the GGUF file has a tensor {stem!r} that a llama model does not use", _OTHER_FILE)
    return f"model.layers.{block}.{_TENSORS[rest]}"


def separate_rotary_halves(rows: Any, heads: int) -> Any:
    """Undo the per-head interleaving of rotary rows: ``[heads * 2 * half, columns]``, row ``(h, i, s)`` becomes ``(h, s, i)``."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _bits(weights: dict[str, Any], layer: str) -> int:
    packed, scales = weights[f"{layer}.weight"], weights[f"{layer}.scales"]
    return int(packed.shape[1] * 32 // (scales.shape[1] * GROUP_SIZE))


def model_config(weights: dict[str, Any], metadata: GgufMetadata) -> dict[str, Any]:
    """``config.json`` of a llama model; layers whose bit width differs from the usual one are listed by name.

    Raises:
        ModelCorruptError: another architecture, or weights that are not quantised.
    """
    if metadata.text("general.architecture") != "llama":
        raise ModelCorruptError(f"the GGUF file holds a {metadata.text('general.architecture')!r} model", _OTHER_FILE)
    bits = {name.removesuffix(".scales"): _bits(weights, name.removesuffix(".scales")) for name in weights if name.endswith(".scales")}
    if not bits or "model.embed_tokens.weight" not in weights:
        raise ModelCorruptError("the GGUF file has no quantised matrices or no embedding", _OTHER_FILE)
    usual = max(set(bits.values()), key=list(bits.values()).count)
    quantization: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": usual}
    quantization |= {name: {"group_size": GROUP_SIZE, "bits": width} for name, width in bits.items() if width != usual}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": metadata.integer("llama.embedding_length"),
        "num_hidden_layers": metadata.integer("llama.block_count"),
        "intermediate_size": metadata.integer("llama.feed_forward_length"),
        "num_attention_heads": metadata.integer("llama.attention.head_count"),
        "num_key_value_heads": metadata.integer("llama.attention.head_count_kv"),
        "rms_norm_eps": metadata.number("llama.attention.layer_norm_rms_epsilon"),
        "vocab_size": metadata.integer("llama.vocab_size"),
        "max_position_embeddings": metadata.integer("llama.context_length"),
        "rope_theta": metadata.number("llama.rope.freq_base"),
        "rope_traditional": False,
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "torch_dtype": "float16",
        "bos_token_id": metadata.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.integer("tokenizer.ggml.eos_token_id"),
        "quantization": quantization,
    }


def tokenizer_json(metadata: GgufMetadata) -> dict[str, Any]:
    """``tokenizer.json`` of a GPT-2 byte-level BPE.

    Raises:
        ModelCorruptError: another tokenizer model, or a pre-tokenizer name that is not known here (a guess would split text differently).
    """
    model, pre = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ModelCorruptError(f"the GGUF file's tokenizer is {model!r} with pre-tokenizer {pre!r}",
                                f"known are gpt2 with {' or '.join(_PRE_TOKENIZERS)}")
    tokens, kinds = metadata.texts("tokenizer.ggml.tokens"), metadata.integers("tokenizer.ggml.token_type")
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": kind == CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind in (CONTROL, USER_DEFINED)
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre], "post_processor": None, "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata.texts("tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(metadata: GgufMetadata) -> dict[str, Any]:
    """``tokenizer_config.json``: special tokens and the chat template."""
    tokens = metadata.texts("tokenizer.ggml.tokens")
    special = {
        f"{name}_token": tokens[metadata.integer(f"tokenizer.ggml.{key}_token_id")]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.integer("llama.context_length"), **special, "chat_template": metadata.text("tokenizer.chat_template"),
    }
