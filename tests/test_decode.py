"""The decode loop against a reference decoder that keeps no cache and feeds nothing early, on stub models and a random llama."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from stcc.compiler.binding.bind import bind_machine  # noqa: E402
from stcc.compiler.ir import Grammar as Rules  # noqa: E402
from stcc.compiler.ir import RuleBuilder  # noqa: E402
from stcc.compiler.machine import link  # noqa: E402
from stcc.compiler.vocabularies import vocabulary_from_tokenizer  # noqa: E402
from stcc.formats import Vocabulary  # noqa: E402
from stcc.runtime.decode import DecodeError, EmptyPromptError, Generation, NarrowHeadError, generate  # noqa: E402
from stcc.runtime.decoding import model as decoding_model  # noqa: E402
from stcc.runtime.errors import BudgetTooSmall, VocabularyRequired  # noqa: E402
from stcc.runtime.grammar import Grammar  # noqa: E402

PROMPT = [5, 6, 7]
PADDING = 9  # columns of the model's head beyond the vocabulary


@cache
def vocabulary() -> Vocabulary:
    """A small byte-level BPE whose tokens cut JSON in ways that a machine does not."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    corpus = ['{"name":"ada bell","kind":true,"children":[]}', '{"name":"","kind":false,"children":[{"name":"x"}]}', "true false name"] * 4
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=330, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                             special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return vocabulary_from_tokenizer(tokenizer, stop_tokens=["<|end|>"])


def string(rule: RuleBuilder, source: int, target: int) -> None:
    inside = rule.node()
    rule.literal(source, b'"', inside)
    rule.byte(inside, 97, 122, inside)
    rule.literal(inside, b'"', target)


def record() -> Rules:
    """``{"name":STRING,"kind":true or false}``."""
    rule = RuleBuilder("#")
    name, comma, kind, close, end = (rule.node() for _ in range(5))
    rule.literal(0, b'{"name":', name)
    string(rule, name, comma)
    rule.literal(comma, b',"kind":', kind)
    rule.literal(kind, b"true", close)
    rule.literal(kind, b"false", close)
    rule.literal(close, b"}", end)
    rule.exit(end, 0)
    return Rules((rule.build(),))


def tree() -> Rules:
    """``{"name":STRING,"children":[trees]}``, with a stack."""
    rule = RuleBuilder("#")
    name, comma, array, first, item, after, close, end = (rule.node() for _ in range(8))
    rule.literal(0, b'{"name":', name)
    string(rule, name, comma)
    rule.literal(comma, b',"children":', array)
    rule.literal(array, b"[", first)
    rule.literal(first, b"]", close)
    rule.epsilon(first, item)
    rule.call(item, 0, [after])
    rule.literal(after, b",", item)
    rule.literal(after, b"]", close)
    rule.literal(close, b"}", end)
    rule.exit(end, 0)
    return Rules((rule.build(),))


def words() -> Rules:
    """``(name)+``: may go on or end after each word."""
    rule = RuleBuilder("#")
    end = rule.node()
    rule.literal(0, b"name", end)
    rule.literal(end, b"name", end)
    rule.exit(end, 0)
    return Rules((rule.build(),))


@cache
def grammar(build: Callable[[], Rules]) -> Grammar:
    machine = link(build())
    return Grammar(machine, bind_machine(machine, vocabulary()), vocabulary())


def is_valid(build: Callable[[], Rules], text: bytes) -> bool:
    """Judged without any of the code under test."""
    if build is words:
        return re.fullmatch(rb"(name)+", text) is not None
    value = json.loads(text)
    assert json.dumps(value, separators=(",", ":")).encode() == text
    return is_record(value) if build is record else is_tree(value)


def is_record(value: Any) -> bool:
    return list(value) == ["name", "kind"] and re.fullmatch("[a-z]*", value["name"]) is not None and isinstance(value["kind"], bool)


def is_tree(value: Any) -> bool:
    return (list(value) == ["name", "children"] and re.fullmatch("[a-z]*", value["name"]) is not None
            and all(is_tree(child) for child in value["children"]))


class Stub:
    """A causal model without floating-point noise: the scores after a text are a hash of the text. Records every pass."""

    layers: Sequence[Any] = ()

    def __init__(self, seed: int, width: int | None = None, closing: float = 0.0) -> None:
        self.seed, self.width = seed, width or vocabulary().size + PADDING
        self.closing = closing  # added to tokens that end something, so that recursion comes to an end
        self.read: list[int] = []
        self.passes: list[int] = []

    def scores(self, text: Sequence[int]) -> np.ndarray:
        scores = np.random.default_rng([self.seed, *text]).normal(size=self.width).astype(np.float32)
        scores[self.width - PADDING:] += 50.0  # padding would win if it were not masked
        scores[ends()] += self.closing
        return scores

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        rows = []
        self.passes.append(tokens.shape[1])
        for token in tokens[0].tolist():
            self.read.append(token)
            rows.append(self.scores(self.read))
        return mx.array(np.stack(rows))[None]


@cache
def ends() -> np.ndarray:
    return np.array([token for token in range(vocabulary().size) if set(vocabulary().token(token)) & set(b'"]}')])


def reference(scores: Callable[[list[int]], np.ndarray], rules: Grammar, max_tokens: int | None) -> tuple[list[int], int]:
    """Greedy decoding from the definition: the whole text is scored again at every sampling point. Tokens and sampling points."""
    matcher = rules.matcher(max_tokens=max_tokens, canonical=True)
    stops = set(vocabulary().stop_token_ids)
    emitted: list[int] = []
    points = 0
    while True:
        for token in matcher.forced_tokens():
            assert matcher.accept_token(token)
            emitted.append(token)
        allowed = matcher.allowed_tokens()
        if matcher.is_accepting() and set(allowed.tolist()) <= stops:
            return emitted, points
        found = scores(PROMPT + emitted)[allowed]
        token = int(allowed[found.argmax()])
        points += 1
        if token in stops:
            return emitted, points
        assert matcher.accept_token(token)
        emitted.append(token)


@pytest.mark.parametrize("build", [record, tree, words])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), limit=st.integers(20, 60))
def test_spans_and_steps_emit_the_reference_tokens(build: Callable[[], Rules], seed: int, limit: int) -> None:
    expected, points = reference(Stub(seed, closing=1.0).scores, grammar(build), limit)
    span_model, step_model = Stub(seed, closing=1.0), Stub(seed, closing=1.0)
    span = generate(span_model, grammar(build), PROMPT, max_tokens=limit).finish()
    step = generate(step_model, grammar(build), PROMPT, max_tokens=limit, forcing="step").finish()
    assert span.tokens == step.tokens == expected
    assert span.statistics.passes == points
    assert is_valid(build, span.text) and span.valid and step.valid
    for model in (span_model, step_model):  # every token is fed once, in order; a forced ending is not fed at all
        assert model.read == (PROMPT + expected)[:len(model.read)]
    assert set(step_model.passes[2:]) <= {1}
    assert span.statistics.forced == step.statistics.forced
    assert span.statistics.sampled + span.statistics.forced == len(expected)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), sampling_seed=st.integers(0, 100), temperature=st.sampled_from([0.5, 2.0]),
       top_p=st.sampled_from([0.6, 1.0]))
def test_sampled_spans_equal_sampled_steps(seed: int, sampling_seed: int, temperature: float, top_p: float) -> None:
    options: dict[str, Any] = {"max_tokens": 60, "temperature": temperature, "top_p": top_p, "seed": sampling_seed}
    span = generate(Stub(seed, closing=2.0), grammar(tree), PROMPT, **options).finish()
    other = generate(Stub(seed + 1), grammar(record), PROMPT, **options)
    step = generate(Stub(seed, closing=2.0), grammar(tree), PROMPT, forcing="step", **options)
    for _ in step:
        next(other, None)  # another generation's draws change nothing
    assert span.tokens == step.tokens
    assert is_valid(tree, span.text)


def test_forced_text_rides_along() -> None:
    generation = generate(Stub(3, closing=1.0), grammar(record), PROMPT, max_tokens=60)
    spans = list(generation)
    assert spans[0].sampled is None and spans[0].text.startswith(b'{"name')
    assert b"".join(span.text for span in spans) == generation.text
    assert [token for span in spans for token in span.tokens] == generation.tokens
    assert all(span.sampled is not None for span in spans[1:])
    assert generation.statistics.forced > 0
    assert generation.statistics.forced_share == generation.statistics.forced / len(generation.tokens)


def test_without_forcing_the_model_spells_everything() -> None:
    generation = generate(Stub(3, closing=1.0), grammar(record), PROMPT, max_tokens=60, forcing="off").finish()
    assert generation.statistics.forced == 0
    assert generation.statistics.passes >= len(generation.tokens)
    assert is_valid(record, generation.text)


@pytest.mark.parametrize("build", [record, tree, words])
def test_every_feasible_limit_ends_valid(build: Callable[[], Rules]) -> None:
    need = grammar(build).need()
    for limit in range(need, need + 15):
        generation = generate(Stub(limit), grammar(build), PROMPT, max_tokens=limit).finish()
        assert len(generation.tokens) <= limit
        assert generation.valid and is_valid(build, generation.text)
    with pytest.raises(BudgetTooSmall):
        generate(Stub(0), grammar(build), PROMPT, max_tokens=need - 1)


class Favourite(Stub):
    """Prefers one token always."""

    def __init__(self, token: int) -> None:
        super().__init__(0)
        self.token = token

    def scores(self, text: Sequence[int]) -> np.ndarray:
        scores = np.zeros(self.width, np.float32)
        scores[self.token] = 9.0
        return scores


def test_stop_reasons() -> None:
    stop = vocabulary().stop_token_ids[0]
    name = next(token for token in range(vocabulary().size) if vocabulary().token(token) == b"name")
    stopped = generate(Favourite(stop), grammar(words), PROMPT).finish()
    assert (stopped.stop_reason, stopped.text, stopped.valid) == ("stop", b"name", True)
    cut = generate(Favourite(name), grammar(words), PROMPT, max_tokens=3).finish()
    assert cut.stop_reason == "length" and is_valid(words, cut.text) and len(cut.tokens) <= 3
    complete = generate(Favourite(stop), grammar(record), PROMPT).finish()
    assert complete.stop_reason == "complete" and is_valid(record, complete.text)
    assert stop not in stopped.tokens + complete.tokens


def test_narrowed_choices_are_counted() -> None:
    need = grammar(record).need()
    tight = generate(Stub(1), grammar(record), PROMPT, max_tokens=need).finish()
    assert tight.stop_reason == "complete"
    assert 0 < tight.statistics.narrowed <= tight.statistics.sampled
    assert generate(Stub(1), grammar(record), PROMPT, max_tokens=10_000).finish().statistics.narrowed == 0
    assert generate(Stub(1), grammar(record), PROMPT).finish().statistics.narrowed == 0


class Broken(Stub):
    """Scores turn bad after some passes."""

    def __init__(self, value: float, after: int) -> None:
        super().__init__(0)
        self.value, self.after = value, after

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        logits = super().__call__(tokens)
        return logits if len(self.passes) <= self.after else mx.full(logits.shape, self.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("after", [0, 1])  # the first and the second choice
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_not_finite_stop_the_output(value: float, after: int, temperature: float) -> None:
    generation = generate(Broken(value, after), grammar(record), PROMPT, max_tokens=60, temperature=temperature).finish()
    assert generation.stop_reason == "not_finite"
    assert not generation.valid


def test_one_nan_is_enough() -> None:
    class OneNan(Stub):
        def scores(self, text: Sequence[int]) -> np.ndarray:
            scores = super().scores(text)
            scores[0] = np.nan
            return scores

    assert generate(OneNan(0), grammar(record), PROMPT).finish().stop_reason == "not_finite"


def test_a_text_that_no_token_spells_is_a_dead_end_without_a_pass() -> None:
    letters = Vocabulary.from_tokens([bytes([code]) for code in range(97, 123)] + [b""], [26])
    machine = link(record())
    model = Stub(0)
    generation = generate(model, Grammar(machine, bind_machine(machine, letters), letters), PROMPT).finish()
    assert (generation.stop_reason, generation.valid, model.passes) == ("dead_end", False, [])


def test_a_head_narrower_than_the_vocabulary_is_refused() -> None:
    size = vocabulary().size
    generation = generate(Stub(0, width=size - 1), grammar(record), PROMPT)
    with pytest.raises(NarrowHeadError, match=f"{size - 1} tokens and the vocabulary has {size}"):
        generation.finish()


def test_bad_arguments_are_typed() -> None:
    with pytest.raises(EmptyPromptError, match="begin-of-text"):
        generate(Stub(0), grammar(record), [])
    with pytest.raises(VocabularyRequired):
        generate(Stub(0), Grammar(link(record())), PROMPT)
    wrong = ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 1.5}, {"seed": -1}, {"forcing": "both"})
    for options in wrong:
        with pytest.raises(DecodeError):
            generate(Stub(0), grammar(record), PROMPT, **options)  # type: ignore[arg-type]


def frequencies(**options: Any) -> dict[bytes, float]:
    """How often each first choice comes up over 400 seeds."""
    counts: dict[bytes, float] = {}
    for seed in range(400):
        chosen = first_choice(generate(Stub(0), grammar(record), PROMPT, seed=seed, **options))
        counts[chosen] = counts.get(chosen, 0.0) + 1 / 400
    return counts


def first_choice(generation: Generation) -> bytes:
    return next(span.sampled_text for span in generation if span.sampled is not None)


def test_sampling_follows_the_allowed_mass() -> None:
    matcher = grammar(record).matcher(canonical=True)
    opening = matcher.forced_tokens()
    assert all(matcher.accept_token(token) for token in opening)
    allowed = matcher.allowed_tokens()
    mass = np.exp(Stub(0).scores(PROMPT + opening)[allowed].astype(np.float64) / 0.7)
    expected = dict(zip(map(vocabulary().token, allowed.tolist()), mass / mass.sum(), strict=True))
    found = frequencies(temperature=0.7)
    assert set(found) <= set(expected)
    assert max(abs(found.get(text, 0.0) - share) for text, share in expected.items()) < 0.09  # 3.6 standard deviations at a half
    assert max(frequencies(temperature=0.7, top_p=1e-6).values()) == pytest.approx(1.0)


def llama(seed: int) -> Any:
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
                            num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=vocabulary().size + PADDING))
    head = model.model.embed_tokens
    head.weight = head.weight * 20  # random heads are nearly flat; scale them away from ties
    mx.eval(model.parameters())
    return model


@pytest.mark.parametrize("build", [record, tree])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_llama_with_its_cache_emits_the_reference_tokens(build: Callable[[], Rules], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama(seed)
    expected, points = reference(lambda text: np.array(model(mx.array([text]))[0, -1]), grammar(build), 40)
    monkeypatch.setattr(decoding_model, "PREFILL_TOKENS", 2)  # several prompt passes
    span = generate(model, grammar(build), PROMPT, max_tokens=40).finish()
    step = generate(model, grammar(build), PROMPT, max_tokens=40, forcing="step").finish()
    assert span.tokens == step.tokens == expected
    assert span.statistics.passes == points
    assert span.statistics.prefill_passes > 1
    assert is_valid(build, span.text)
    assert step.statistics.passes > span.statistics.passes
