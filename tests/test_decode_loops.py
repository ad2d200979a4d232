"""The three loops emit the reference decoder's tokens, on attention and recurrent caches, whatever the sampler, limit or constraint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from decoding_cases import CONTEXT, MODELS, NAMES, PADDING, encode, grammar, is_valid, llama, qwen, vocabulary  # noqa: E402
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache  # noqa: E402
from mlx_lm.sample_utils import make_logits_processors, make_sampler  # noqa: E402

from stcc.compiler import compile_json_schema  # noqa: E402
from stcc.formats import Vocabulary  # noqa: E402
from stcc.runtime import Matcher, load  # noqa: E402
from stcc.runtime.decode import (  # noqa: E402
    ContextExceeded,
    DecodeError,
    DecodingModel,
    Generation,
    NarrowHeadError,
    Settings,
    Unconstrained,
    generate,
    generate_with,
)
from stcc.runtime.decoding.lookahead import lookahead  # noqa: E402
from stcc.runtime.errors import BudgetTooSmall  # noqa: E402

PROMPT = [5, 6, 7, 8]
LIMIT = 40


def run(model: Any, name: str, **options: Any) -> Generation:
    return generate(model, grammar(name), options.pop("prompt", PROMPT), **{"max_tokens": LIMIT, **options}).finish()


def uncached(model: Any, name: str, limit: int) -> list[int]:
    """Greedy decoding that keeps no cache and feeds nothing early: the whole text through the model for every token."""
    matcher, text = grammar(name).matcher(max_tokens=limit, canonical=True), list(PROMPT)
    while True:
        for token in matcher.forced_tokens():
            if not matcher.accept_token(token):
                break
            text.append(token)
        allowed = matcher.allowed_tokens()
        if set(allowed.tolist()) <= set(vocabulary().stop_token_ids):
            return text[len(PROMPT):]
        scores = np.array(model(mx.array([text]))[0, -1])
        token = int(allowed[scores[allowed].argmax()])
        matcher.accept_token(token)
        if token in vocabulary().stop_token_ids:
            return text[len(PROMPT):]
        text.append(token)


@pytest.mark.parametrize("kind", MODELS)
def test_all_loops_emit_the_reference_tokens(kind: str) -> None:
    ahead = 0
    for number, name in enumerate(NAMES if kind == "llama" else ("record", "tree", "text")):
        model = MODELS[kind](number % 2)
        expected = uncached(model, name, LIMIT)
        step, sync, pipelined, eager = (run(model, name, **options) for options in (
            {"forcing": "step"}, {}, {"loop": "pipelined"}, {"loop": "eager"}))
        assert step.tokens == sync.tokens == pipelined.tokens == eager.tokens == expected, name
        assert step.stop_reason == sync.stop_reason == pipelined.stop_reason == eager.stop_reason
        assert sync.valid and is_valid(name, sync.text) and sync.text == pipelined.text == eager.text
        chosen = sync.statistics.sampled + (sync.stop_reason == "stop")
        assert sync.statistics.passes == chosen and sync.statistics.dropped == 0
        assert pipelined.statistics.passes - pipelined.statistics.dropped == chosen
        assert pipelined.statistics.dropped <= 1  # a stop token only
        assert eager.statistics.passes - eager.statistics.dropped == chosen and eager.statistics.ahead >= pipelined.statistics.ahead
        ahead += pipelined.statistics.ahead
    assert ahead > 10


def test_the_recurrent_cache_cannot_be_taken_back() -> None:
    assert not can_trim_prompt_cache(make_prompt_cache(qwen(0))) and not DecodingModel(qwen(0)).trimmable
    assert DecodingModel(llama(0)).trimmable


@pytest.mark.parametrize("kind", MODELS)
def test_forced_text_is_left_to_the_model_without_forcing(kind: str) -> None:
    for name in ("record", "text"):
        sync, pipelined = (run(MODELS[kind](1), name, forcing="off", loop=loop) for loop in ("sync", "pipelined"))
        assert sync.tokens == pipelined.tokens and sync.statistics.forced == 0 and is_valid(name, sync.text)
        assert pipelined.statistics.ahead > len(sync.tokens) // 2


SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 9.0}, {"temperature": 9.0, "top_p": 0.9}, {"temperature": 9.0, "top_k": 5}, {"temperature": 9.0, "min_p": 0.1},
    {"sampler": make_sampler(temp=9.0, top_k=7)}, {"sampler": lambda scores: mx.argmin(mx.where(scores > -1e30, scores, 1e30), axis=-1)},
]


@pytest.mark.parametrize("options", SAMPLERS)
def test_a_seed_gives_one_text_in_every_loop(options: dict[str, Any]) -> None:
    different = set()
    for seed in (0, 1):
        model, name = (llama(0), "text") if seed % 2 else (qwen(0), "tree")
        found = [run(model, name, seed=seed, **options, **loop) for loop in (
            {}, {"forcing": "step"}, {"loop": "pipelined"}, {"loop": "eager"})]
        assert len({tuple(each.tokens) for each in found}) == 1
        assert is_valid(name, found[0].text)
        different |= {run(llama(0), "text", seed=other, **options).text for other in (seed, seed + 7)}
    if "temperature" in options:
        assert len(different) > 1


def test_top_k_of_one_is_greedy_and_wide_top_k_is_none() -> None:
    width = vocabulary().size + PADDING
    assert run(llama(0), "text", temperature=1.0, top_k=1).tokens == run(llama(0), "text").tokens
    assert run(llama(0), "text", temperature=1.0, top_k=width * 2).tokens == run(llama(0), "text", temperature=1.0).tokens


def test_logits_processors_see_the_context_in_every_loop() -> None:
    seen: list[list[int]] = []

    def discouraged(tokens: Any, logits: Any) -> Any:
        """Take away what was said last: depends on the token to come."""
        seen.append(tokens.shape)
        return logits.at[0, tokens[-1]].add(-1e4)

    plain = run(llama(1), "text")
    for processors in ([discouraged], make_logits_processors(repetition_penalty=50.0), make_logits_processors({encode("z")[0]: 999.0})):
        found = [run(llama(1), "text", logits_processors=processors, loop=loop) for loop in ("sync", "pipelined", "eager")]
        assert found[0].tokens == found[1].tokens == found[2].tokens != plain.tokens
        assert is_valid("text", found[0].text)
    assert seen[0] == (len(PROMPT),) and found[1].statistics.ahead > 0


# budgets


@pytest.mark.parametrize("loop", ["sync", "pipelined", "eager"])
def test_every_feasible_limit_ends_valid_and_room_changes_nothing(loop: Any) -> None:
    for name in ("record", "tree", "text", "words"):
        need = grammar(name).need()
        for limit in (need, need + 1, need + 3, need + 8):
            found = run(llama(0), name, max_tokens=limit, loop=loop)
            assert found.valid and is_valid(name, found.text) and len(found.tokens) <= limit
            assert found.tokens == run(llama(0), name, max_tokens=limit).tokens
        with pytest.raises(BudgetTooSmall):
            run(llama(0), name, max_tokens=need - 1, loop=loop)
    roomy = run(llama(0), "text", max_tokens=CONTEXT - 10, loop=loop)
    assert roomy.tokens == run(llama(0), "text", max_tokens=None, loop=loop).tokens and roomy.statistics.narrowed == 0


def test_the_context_is_a_limit_too() -> None:
    need, endless = grammar("words").need(), mx.array([0.0])

    class Fond:
        """Never says ``fox`` if it may say something else."""

        layers: tuple[Any, ...] = ()

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            row = np.zeros(vocabulary().size, np.float32)
            row[[token for token in range(vocabulary().size) if b"f" in vocabulary().token(token)]] = -9
            return mx.broadcast_to(mx.array(row), (1, tokens.shape[1], len(row)))

    for loop in ("sync", "pipelined", "eager"):
        model = DecodingModel(Fond(), context_length=len(PROMPT) + need + 3)
        found = generate(model, grammar("words"), PROMPT, loop=loop).finish()
        assert found.valid and is_valid("words", found.text) and len(found.tokens) <= need + 3 and found.statistics.narrowed > 0
        assert found.stop_reason == "complete"  # the grammar ends with fox, whatever made the model say it
        for limit in (need + 1, None):
            model = DecodingModel(Fond(), context_length=len(PROMPT) + need + 2)
            cut = generate(model, grammar("words"), PROMPT, max_tokens=limit, loop=loop)
            assert cut.finish().valid and len(cut.tokens) <= need + 2 - (limit is not None)
    with pytest.raises(ContextExceeded, match=f"needs {need}") as caught:
        generate(DecodingModel(Fond(), context_length=len(PROMPT) + need - 1), grammar("words"), PROMPT)
    assert caught.value.context_length == len(PROMPT) + need - 1 and "shorten" in caught.value.hint
    with pytest.raises(ContextExceeded):
        generate(llama(0), grammar("text"), [5] * (CONTEXT + 50))
    assert endless.size == 1


def test_the_reason_names_the_limit_that_ended_it() -> None:
    number = load(compile_json_schema({"type": "integer", "minimum": 0}), vocabulary=vocabulary())
    stop = vocabulary().stop_token_ids[0]

    def no_end(_: Any, logits: Any) -> Any:
        return logits.at[0, stop].add(-1e6)

    for loop in ("sync", "pipelined", "eager"):
        by_limit = generate(llama(0), number, PROMPT, max_tokens=9, logits_processors=[no_end], loop=loop).finish()
        assert (by_limit.stop_reason, len(by_limit.tokens), by_limit.valid) == ("length", 9, True)
        model = DecodingModel(llama(0), context_length=len(PROMPT) + 9)
        by_context = generate(model, number, PROMPT, max_tokens=20, logits_processors=[no_end], loop=loop).finish()
        assert (by_context.stop_reason, by_context.tokens) == ("context", by_limit.tokens)


# what goes wrong


@pytest.mark.parametrize("loop", ["sync", "pipelined", "eager"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_end_every_loop(loop: Any, bad: float) -> None:
    def broken(tokens: Any, logits: Any) -> Any:
        return mx.full(logits.shape, bad) if tokens.shape[0] >= len(PROMPT) + 3 else logits

    found = run(llama(0), "text", logits_processors=[broken], loop=loop)
    assert found.stop_reason == "not_finite" and len(found.tokens) == 3 and not found.valid


def test_nesting_deeper_than_the_device_holds_goes_on_with_host_masks() -> None:
    """A vocabulary that can only nest, to 80 levels and back: deeper than the 64 call sites of a state vector."""
    nested = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    found = Vocabulary.from_tokens([b"[", b"]", b""], [2])
    deep = load(compile_json_schema(nested), vocabulary=found)

    class Nesting:
        layers: tuple[Any, ...] = ()
        read = 0

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            self.read += tokens.shape[1]
            opening = 1.0 if self.read < 80 else -1.0
            return mx.broadcast_to(mx.array([opening, 0.0, 0.0]), (1, tokens.shape[1], 3))

    results = [generate(Nesting(), deep, [0], loop=loop, forcing=forcing).finish()
               for loop, forcing in (("sync", "off"), ("pipelined", "off"), ("eager", "off"))]
    assert len({tuple(result.tokens) for result in results}) == 1
    assert results[0].valid and results[0].text.startswith(b"[" * 79) and results[1].statistics.ahead > 50
    assert not lookahead(deep).exact_at(deep.stacks.push_all(deep.stacks.bottom, [0] * 64))


def test_options_that_do_not_go_together_are_typed() -> None:
    for options in ({"loop": "both"}, {"forcing": "step", "loop": "pipelined"}, {"cached": 2}, {"cached": 4, "cache": []}, {"cached": -1},
                    {"top_k": -1}, {"min_p": 1.5}):
        with pytest.raises(DecodeError):
            run(llama(0), "text", **options)


@pytest.mark.parametrize("loop", ["sync", "pipelined"])
def test_a_narrow_head_is_refused_in_every_loop(loop: Any) -> None:
    class Narrow:
        layers: tuple[Any, ...] = ()

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            return mx.zeros((1, tokens.shape[1], vocabulary().size - 1))

    with pytest.raises(NarrowHeadError):
        run(Narrow(), "text", loop=loop)
    assert DecodingModel(Narrow()).width == vocabulary().size - 1 and DecodingModel(llama(0)).width == vocabulary().size + PADDING


# what else may constrain


class Plain:
    """A constraint of someone else's: the methods of a matcher, and nothing more."""

    def __init__(self, name: str) -> None:
        self.matcher = grammar(name).matcher(canonical=True)
        self.fill_next_token_bitmask, self.is_accepting = self.matcher.fill_next_token_bitmask, self.matcher.is_accepting
        self.accept_token, self.forced_tokens = self.matcher.accept_token, self.matcher.forced_tokens


def test_any_constraint_decodes_in_the_sync_loop() -> None:
    for name in NAMES:
        own = generate_with(llama(0), Plain(name), vocabulary(), PROMPT, Settings(loop="eager", max_tokens=LIMIT)).finish()
        whole = run(llama(0), name, max_tokens=200)
        assert own.tokens == whole.tokens[:LIMIT] and own.statistics.ahead == 0
        matcher, settings = grammar(name).matcher(canonical=True), Settings(loop="eager", max_tokens=LIMIT)
        ahead = generate_with(llama(0), matcher, vocabulary(), PROMPT, settings)
        assert ahead.finish().tokens == own.tokens and ahead.statistics.ahead > 0
        if own.stop_reason == "length":
            assert len(own.tokens) == LIMIT


def test_free_text_is_cut_by_the_limit() -> None:
    free = generate_with(llama(0), Unconstrained(vocabulary()), vocabulary(), PROMPT, Settings(max_tokens=12)).finish()
    expected: list[int] = []
    while len(expected) < 12:
        scores = np.array(llama(0)(mx.array([PROMPT + expected]))[0, -1])[:vocabulary().size]
        expected.append(int(scores.argmax()))
        if expected[-1] in vocabulary().stop_token_ids:
            break
    assert free.tokens == [token for token in expected if token not in vocabulary().stop_token_ids]
    assert free.stop_reason == ("length" if len(free.tokens) == 12 else "stop")


def test_a_constraint_that_refuses_its_own_mask_is_named() -> None:
    plain = Plain("text")
    plain.accept_token = lambda token: False  # type: ignore[method-assign]
    assert generate_with(llama(0), plain, vocabulary(), PROMPT).finish().stop_reason == "refused"


def test_a_cache_that_holds_the_prompt_is_gone_on_with() -> None:
    prompt = encode('say "a":{"b":1} ') + PROMPT
    for kind in MODELS:
        model = DecodingModel(MODELS[kind](0))
        for cached in (0, 3, len(prompt) - 1):
            cache = model.make_cache()
            model.prefill(prompt[:cached], cache)
            for loop in ("sync", "pipelined"):
                if loop == "pipelined":
                    cache = model.make_cache()
                    model.prefill(prompt[:cached], cache)
                found = run(model, "tree", prompt=prompt, cache=cache, cached=cached, loop=loop)
                assert found.tokens == run(model, "tree", prompt=prompt).tokens
                assert found.stream.fed <= len(found.context) and found.stream.cache is cache
                assert found.context[:len(prompt)] == prompt


# streaming


def test_pieces_are_cut_between_characters() -> None:
    source = {"enum": ["naïve café 🙂", "“quotes” 日本語"]}
    emoji = load(compile_json_schema(source), vocabulary=vocabulary())
    for seed in range(3):
        generation = generate(llama(seed), emoji, PROMPT, temperature=1.0, forcing="off")
        pieces = list(generation.pieces())
        assert "".join(pieces).encode() == generation.text and "\ufffd" not in "".join(pieces)
        assert len(pieces) > 1 and all(pieces)
    cut = generate(llama(0), emoji, PROMPT, max_tokens=40, forcing="off")
    first = [piece for _, piece in zip(range(2), cut.pieces(), strict=False)]
    assert len(first) == 2 and cut.stop_reason is None  # nothing is decoded that nobody asked for


def test_a_slow_reader_is_not_counted() -> None:
    generation = generate(llama(0), grammar("record"), PROMPT)
    assert next(generation).sampled is None  # forced text comes before the first choice
    time.sleep(0.5)
    next(generation)
    assert 0 < generation.statistics.prefill_seconds <= generation.statistics.seconds < 0.5


def test_statistics_add_up() -> None:
    for loop in ("sync", "pipelined", "eager"):
        found = run(llama(0), "tree", loop=loop)
        counts = found.statistics
        parts = counts.enqueue_seconds + counts.wait_seconds + counts.constraint_seconds
        assert 0 < parts <= counts.seconds and 0 < counts.prefill_seconds <= counts.seconds
        assert counts.tokens == len(found.tokens) == counts.sampled + counts.forced and counts.prompt_tokens == len(PROMPT)
        assert counts.passes == counts.sampled + (found.stop_reason == "stop") + counts.dropped


# nothing is read out of turn


class ReadError(Exception):
    """Something read a device value out of turn."""


@pytest.fixture
def shut(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Every way to a device value raises while a pass is being enqueued ahead."""
    calls = {"ahead": 0}
    real = Generation._ahead

    def refuse(*_: Any, **__: Any) -> Any:
        raise ReadError

    def guarded(self: Generation, *arguments: Any) -> Any:
        calls["ahead"] += 1
        with monkeypatch.context() as patch:
            for name in ("item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__array__", "__iter__"):
                if hasattr(mx.array, name):
                    patch.setattr(mx.array, name, refuse)
            for name in ("eval", "synchronize"):
                patch.setattr(mx, name, refuse)
            with pytest.raises(ReadError):
                arguments[2].token.item()
            return real(self, *arguments)

    monkeypatch.setattr(Generation, "_ahead", guarded)
    yield calls


@pytest.mark.parametrize("loop", ["pipelined", "eager"])
def test_enqueuing_ahead_reads_nothing(shut: dict[str, int], loop: Any) -> None:
    for name in ("text", "tree", "date"):
        for options in ({}, {"temperature": 1.0, "top_p": 0.9}):
            assert is_valid(name, run(qwen(0), name, loop=loop, **options).text)
    assert shut["ahead"] > 10


def test_the_next_pass_is_enqueued_before_a_token_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of events: in the pipelined loop a choice is read after the choice that follows it was enqueued."""
    events: list[str] = []
    enqueue, item = mx.async_eval, mx.array.item
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: (events.append("enqueue"), enqueue(*arrays))[1])
    monkeypatch.setattr(mx.array, "item", lambda self: (events.append("read"), item(self))[1])
    found = run(llama(0), "text", loop="pipelined", forcing="off", max_tokens=30)
    assert found.statistics.ahead > 5
    unread, most = 0, 0
    for event in events:
        unread = unread + 1 if event == "enqueue" else max(unread - 0.5, 0)  # two reads a choice: the token, and whether it is sound
        most = max(most, unread)
    assert most == 2
    events.clear()
    run(llama(0), "text", loop="sync", forcing="off", max_tokens=30)
    assert "enqueue enqueue" not in " ".join(events)


def test_only_plain_matchers_run_ahead() -> None:
    """A matcher with conditions of its own is masked on the host."""
    class Stricter(Matcher):
        __slots__ = ()

    strict = Stricter(grammar("text"), LIMIT, True)
    found = generate_with(llama(0), strict, vocabulary(), PROMPT, Settings(loop="pipelined")).finish()
    assert found.statistics.ahead == 0 and found.tokens == run(llama(0), "text").tokens
