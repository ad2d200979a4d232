"""The model behind the loops: heads on one position and on few tokens, widths, contexts and prompts in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
nn = pytest.importorskip("mlx.nn", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from decoding_cases import CONTEXT, MODELS, PADDING, grammar, llama, qwen, vocabulary  # noqa: E402

from stcc.compiler import compile_json_schema  # noqa: E402
from stcc.formats import Vocabulary, VocabularyMismatch  # noqa: E402
from stcc.runtime import load  # noqa: E402
from stcc.runtime.decode import DecodingModel, generate  # noqa: E402
from stcc.runtime.decoding import loop as loop_module  # noqa: E402
from stcc.runtime.decoding import model as module  # noqa: E402
from stcc.runtime.decoding.heads import Head  # noqa: E402

WIDTH = vocabulary().size + PADDING


class Opaque:
    """A model whose head nobody knows: the whole of it is called."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.args, self.layers = inner, inner.args, inner.layers
        self.make_cache = getattr(inner, "make_cache", None) or (lambda: DecodingModel(inner).make_cache())

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        return self.inner(tokens, cache=cache)


@pytest.mark.parametrize("kind", MODELS)
def test_one_position_has_the_scores_of_the_whole_model(kind: str) -> None:
    inner = MODELS[kind](0)
    plain, opaque = DecodingModel(inner), DecodingModel(Opaque(inner))
    assert plain.has_plain_head and not opaque.has_plain_head
    tokens = mx.array([5, 6, 7, 8, 9])
    expected = np.array(inner(tokens[None])[0])
    for model in (plain, opaque):
        assert np.allclose(np.array(model.forward(tokens, model.make_cache())), expected, atol=1e-4)
        assert np.allclose(np.array(model.last(tokens, model.make_cache())), expected[-1:], atol=1e-4)
        assert model.width == WIDTH and model.context_length == CONTEXT
    few = np.array(plain.last(tokens, plain.make_cache(), mx.array([3, 17, 40])))[0]
    assert np.flatnonzero(np.isfinite(few)).tolist() == [3, 17, 40] and few.shape == (WIDTH,)
    assert np.allclose(few[[3, 17, 40]], expected[-1][[3, 17, 40]], atol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("packed", [None, {"bits": 4}, {"bits": 8, "group_size": 32}])
@pytest.mark.parametrize("bias", [False, True])
def test_few_scores_of_every_kind_of_layer(tied: bool, packed: dict[str, Any] | None, bias: bool) -> None:
    if tied and bias:
        return
    layer = nn.Embedding(96, 64) if tied else nn.Linear(64, 96, bias=bias)
    if bias:
        layer.bias = mx.random.normal((96,))
    if packed is not None:
        layer = layer.to_quantized(**packed)
    head, hidden, tokens = Head(layer, tied), mx.random.normal((1, 64)), mx.array([0, 5, 95])
    every, few = np.array(head.all(hidden)), np.array(head.few(hidden, tokens))
    assert head.width == 96 and every.shape == few.shape == (1, 96)
    assert np.allclose(few[0, [0, 5, 95]], every[0, [0, 5, 95]], atol=1e-4) and np.isneginf(few).sum() == 93


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_do_not_depend_on_how_the_head_is_used(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[kind](1)
    for name in ("record", "date", "text"):
        for options in ({}, {"temperature": 9.0, "top_p": 0.9}):
            found = []
            for few in (1024, 0):
                monkeypatch.setattr(loop_module, "FEW_TOKENS", few)
                found.append(generate(model, grammar(name), [5, 6, 7], max_tokens=30, **options).finish().tokens)
            found.append(generate(Opaque(model), grammar(name), [5, 6, 7], max_tokens=30, **options).finish().tokens)
            assert found[0] == found[1] == found[2]


def test_a_prompt_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = list(range(5, 75))
    expected = generate(llama(0), grammar("date"), prompt).finish()
    assert expected.statistics.prefill_passes == 0 and expected.statistics.passes == expected.statistics.sampled
    opaque = generate(Opaque(llama(0)), grammar("date"), prompt).finish()
    assert opaque.tokens == expected.tokens and opaque.statistics.prefill_passes == 1
    monkeypatch.setattr(module, "PREFILL_TOKENS", 16)
    for kind in (llama, qwen):
        parts = generate(kind(0), grammar("date"), prompt).finish()
        assert parts.statistics.prefill_passes >= 3 and parts.stream.fed <= len(parts.context)
        assert parts.tokens == expected.tokens or kind is qwen
        whole = DecodingModel(kind(0)).make_cache()
        assert DecodingModel(kind(0)).prefill(prompt, whole) == 5


def test_what_a_model_says_about_its_context() -> None:
    class Silent:
        args = None

    class Loud:
        args = {"unrelated": 1}

    assert DecodingModel(Silent()).context_length is None
    assert DecodingModel(Loud(), context_length=7).context_length == 7


def test_an_artifact_of_another_tokenizer_is_refused() -> None:
    other = Vocabulary.from_tokens([b"[", b"]", b"0", b""], [3])
    artifact = compile_json_schema({"type": "array"}, vocabularies=[other])
    with pytest.raises(VocabularyMismatch):
        load(artifact, vocabulary=vocabulary())
