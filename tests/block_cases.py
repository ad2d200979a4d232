"""What the tests of blocks, regions and the prompt cache share: models, random grammars, and the decoder they are compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import tokenizers

from stcc.compiler import Options, compile_json_schema
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Vocabulary
from stcc.runtime import Grammar, load
from stcc.runtime.decoding.model import DecodingModel

PROMPT = [5, 6, 7]
PADDING = 5  # columns of the model's head beyond the vocabulary


@cache
def vocabulary() -> Vocabulary:
    """A small byte-level BPE whose tokens cut JSON in ways that a machine does not."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    corpus = ['{"name":"ada bell","kind":true,"list":["red","blue"],"age":12}', '{"inner":{"name":"","kind":false},"age":7}'] * 4
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=340, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                             special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return vocabulary_from_tokenizer(tokenizer, stop_tokens=["<|end|>"])


VALUES: list[dict[str, Any]] = [
    {"type": "string", "maxLength": 4, "pattern": "^[a-d]*$"}, {"type": "integer", "minimum": 0, "maximum": 120}, {"type": "boolean"},
    {"enum": ["red", "blue", "bluer"]}, {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
    {"type": "string", "pattern": "^[0-9]{2}-[0-9]$"}, {"const": "fixed"}, {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 2}, "kind": {"type": "boolean"}},
     "required": ["name", "kind"], "additionalProperties": False},
]
KEYS = ["name", "kind", "list", "age", "inner", "x"]


def random_schema(rng: np.random.Generator) -> dict[str, Any]:
    """A closed object of one to six properties, most of them required."""
    keys = list(rng.permutation(KEYS)[:rng.integers(1, len(KEYS) + 1)])
    properties = {str(key): VALUES[rng.integers(len(VALUES))] for key in keys}
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": [key for key in properties if rng.random() < 0.85]}


@cache
def grammar_of(text: str, whitespace: str = "compact") -> Grammar:
    """The grammar of a schema's text, bound to the small vocabulary."""
    return load(compile_json_schema(text, options=Options(whitespace=whitespace)), vocabulary=vocabulary())


def random_grammar(seed: int) -> Grammar:
    rng = np.random.default_rng(seed)
    return grammar_of(json.dumps(random_schema(rng)), ["compact", "spaced", "flexible"][rng.integers(3)])


class TextCache:
    """A cache of ``HashModel``: the texts of its rows, with the methods of mlx-lm's batch caches."""

    def __init__(self, rows: list[list[int]], trimmable: bool) -> None:
        self.rows, self.trimmable = rows, trimmable
        self.lengths: list[int] | None = None

    @property
    def state(self) -> list[Any]:
        return []

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.rows)) * 4

    def empty(self) -> bool:
        return not any(self.rows)

    def is_trimmable(self) -> bool:
        return self.trimmable

    def trim(self, n: int) -> int:
        assert self.trimmable and len(self.rows) == 1
        self.rows = [self.rows[0][:len(self.rows[0]) - n]]
        return n

    def merge(self, caches: Sequence[TextCache]) -> TextCache:
        return TextCache([row.copy() for one in caches for row in one.rows], self.trimmable)

    def prepare(self, *, lengths: list[int], right_padding: list[int]) -> None:
        self.lengths = lengths

    def finalize(self) -> None:
        self.lengths = None

    def filter(self, rows: Any) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]

    def extract(self, row: int) -> TextCache:
        return TextCache([self.rows[row].copy()], self.trimmable)


class HashModel:
    """Scores without floating-point noise: a hash of the last token, mixed with one of the whole text. Records every pass.

    ``memory`` is the weight of the whole text: 0 makes fields independent, so that drafts are right; a large one makes them useless.
    """

    def __init__(self, seed: int, memory: float = 0.3, trimmable: bool = True, width: int | None = None, closing: float = 1.0) -> None:
        self.seed, self.memory, self.trimmable, self.closing = seed, memory, trimmable, closing
        self.width = vocabulary().size + PADDING if width is None else width
        self.passes: list[tuple[int, int]] = []
        self.broken_after: int | None = None

    def make_cache(self) -> list[TextCache]:
        return [TextCache([[]], self.trimmable)]

    def scores(self, text: Sequence[int]) -> np.ndarray:
        near = np.random.default_rng([self.seed, *text[-1:]]).normal(size=self.width)
        far = np.random.default_rng([self.seed, *text]).normal(size=self.width) if self.memory else 0.0
        scores = (near + self.memory * far).astype(np.float32)
        scores[vocabulary().size:] += 50.0  # padding would win if it were not masked
        scores[endings()] += self.closing
        return scores

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        (held,) = [TextCache([[] for _ in range(tokens.shape[0])], True)] if cache is None else cache
        self.passes.append(tuple(tokens.shape))
        lengths = held.lengths or [tokens.shape[1]] * tokens.shape[0]
        logits = np.zeros((*tokens.shape, self.width), np.float32)
        for row, (text, piece, length) in enumerate(zip(held.rows, tokens.tolist(), lengths, strict=True)):
            for place, token in enumerate(piece[:length]):
                text.append(token)
                logits[row, place] = self.scores(text)
        if self.broken_after is not None and len(self.passes) > self.broken_after:
            logits[:] = np.nan
        return mx.array(logits)


@cache
def endings() -> np.ndarray:
    return np.array([token for token in range(vocabulary().size) if set(vocabulary().token(token)) & set(b'"]},')])


def llama(seed: int) -> Any:
    """A random-weight llama of mlx-lm's own class: attention caches."""
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
                            num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=vocabulary().size + PADDING, tie_word_embeddings=False))
    mx.eval(model.parameters())
    return model


def qwen3_5(seed: int) -> Any:
    """A random-weight qwen3_5 of mlx-lm's own class: recurrent layers between attention ones."""
    from mlx_lm.models.qwen3_5 import Model, ModelArgs

    mx.random.seed(seed)
    text = {"model_type": "qwen3_5_text", "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": vocabulary().size + PADDING, "head_dim": 8,
            "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "tie_word_embeddings": False, "max_position_embeddings": 4096}
    model = Model(ModelArgs(model_type="qwen3_5", text_config=text))
    mx.eval(model.parameters())
    return model


def gemma3(seed: int) -> Any:
    """A random-weight gemma3 of mlx-lm's own class: every second layer sees the last 16 tokens only."""
    from mlx_lm.models.gemma3_text import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="gemma3_text", hidden_size=32, num_hidden_layers=4, intermediate_size=64, num_attention_heads=4,
                            head_dim=8, num_key_value_heads=2, vocab_size=vocabulary().size + PADDING, sliding_window=16,
                            sliding_window_pattern=2, query_pre_attn_scalar=8.0))
    mx.eval(model.parameters())
    return model


def whole_text_scores(model: Any) -> Any:
    """Scores after a text by reading all of it anew, without any cache."""
    if isinstance(model, HashModel):
        return model.scores
    return lambda text: np.array(DecodingModel(model).forward(mx.array(list(text)), DecodingModel(model).make_cache())[-1])


def sequential(model: Any, grammar: Grammar, max_tokens: int | None) -> tuple[list[int], int, str]:
    """Greedy decoding from the definition: the whole text is scored again at every choice. Tokens, choices, and how it ended."""
    scores = whole_text_scores(model)
    matcher = grammar.matcher(max_tokens=max_tokens, canonical=True)
    stops = set(vocabulary().stop_token_ids)
    emitted: list[int] = []
    choices = 0
    while True:
        for token in matcher.forced_tokens():
            assert matcher.accept_token(token)
            emitted.append(token)
        allowed = matcher.allowed_tokens()
        if matcher.is_accepting() and set(allowed.tolist()) <= stops:
            return emitted, choices, "complete"
        token = int(allowed[scores(PROMPT + emitted)[allowed].argmax()])
        choices += 1
        if token in stops:
            return emitted, choices, "stop"
        assert matcher.accept_token(token)
        emitted.append(token)


__all__ = ["PROMPT", "HashModel", "gemma3", "grammar_of", "llama", "qwen3_5", "random_grammar", "sequential", "vocabulary"]
