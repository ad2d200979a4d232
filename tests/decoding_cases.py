"""What the tests of decode loops share: grammars over a small byte-level vocabulary, and tiny models with random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
from tokenizer_cases import TRAINED

from stcc.compiler import compile_json_schema, compile_regex, vocabulary_from_tokenizer
from stcc.formats import Vocabulary
from stcc.runtime import Grammar, load

PADDING = 9  # columns of the models' heads beyond the vocabulary
CONTEXT = 300
SPREAD = 20
NAME = {"type": "string", "pattern": "^[a-z]{1,6}$"}
SOURCES: dict[str, Any] = {
    "record": {"type": "object", "properties": {"name": NAME, "kind": {"type": "boolean"}}, "required": ["name", "kind"],
               "additionalProperties": False},
    "tree": {"type": "object", "properties": {"name": NAME, "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
             "required": ["name", "children"], "additionalProperties": False},
    "number": "[1-4][0-9]{2,3}",
    "words": "(the |quick )+fox",
    "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "text": "[a-z ]{1,30}[.!]",
}
NAMES = list(SOURCES)


@cache
def vocabulary() -> Vocabulary:
    return vocabulary_from_tokenizer(TRAINED["byte-level"], stop_tokens=["<|im_end|>"])


def encode(text: str) -> list[int]:
    return list(TRAINED["byte-level"].encode(text, add_special_tokens=False).ids)


@cache
def grammar(name: str) -> Grammar:
    source = SOURCES[name]
    return load(compile_regex(source) if isinstance(source, str) else compile_json_schema(source), vocabulary=vocabulary())


def is_valid(name: str, text: bytes) -> bool:
    """Judged by Python's own ``re`` and ``json``."""
    source = SOURCES[name]
    if isinstance(source, str):
        return re.fullmatch(source, text.decode()) is not None
    value = json.loads(text)
    checks: dict[str, Callable[[Any], bool]] = {
        "record": lambda found: list(found) == ["name", "kind"] and is_name(found["name"]) and isinstance(found["kind"], bool),
        "tree": is_tree,
    }
    return json.dumps(value, separators=(",", ":")).encode() == text and checks[name](value)


def is_name(value: Any) -> bool:
    return re.fullmatch("[a-z]{1,6}", value) is not None


def is_tree(value: Any) -> bool:
    return (list(value) == ["name", "children"] and is_name(value["name"]) and len(value["children"]) <= 1
            and all(map(is_tree, value["children"])))


@cache
def llama(seed: int) -> Any:
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
                            num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=vocabulary().size + PADDING,
                            max_position_embeddings=CONTEXT, tie_word_embeddings=False))
    return away_from_ties(model, model.lm_head)


@cache
def qwen(seed: int) -> Any:
    """Recurrent layers and attention layers in turn: its caches cannot be taken back."""
    from mlx_lm.models.qwen3_5 import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="qwen3_5", text_config={
        "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": vocabulary().size + PADDING, "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 2, "tie_word_embeddings": True, "max_position_embeddings": CONTEXT}))
    return away_from_ties(model, model.language_model.model.embed_tokens)


def away_from_ties(model: Any, head: Any) -> Any:
    """Random heads are nearly flat: scale the scores so that rounding does not decide between two."""
    head.weight = head.weight * SPREAD
    mx.eval(model.parameters())
    return model


MODELS: dict[str, Callable[[int], Any]] = {"llama": llama, "qwen3_5": qwen}
