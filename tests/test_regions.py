"""Finite regions: what they hold against a brute force over bytes, scores against a pass a string, decoding against a pass a token."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from block_cases import PROMPT, HashModel, grammar_of, llama, qwen3_5, random_grammar, sequential, vocabulary  # noqa: E402

from stcc.compiler import compile_regex  # noqa: E402
from stcc.runtime import load  # noqa: E402
from stcc.runtime.decode import generate  # noqa: E402
from stcc.runtime.decoding.cuts import find_cuts  # noqa: E402
from stcc.runtime.decoding.errors import DecodeError, EmptyPromptError, NarrowHeadError  # noqa: E402
from stcc.runtime.decoding.model import DecodingModel  # noqa: E402
from stcc.runtime.decoding.region_decode import RegionDecoder, RegionOutput  # noqa: E402
from stcc.runtime.decoding.regions import RegionError, finite_region, near_strings, score_strings  # noqa: E402
from stcc.runtime.decoding.sampling import Sampling  # noqa: E402
from stcc.runtime.decoding.spelling import longest_tokens  # noqa: E402
from stcc.runtime.errors import BudgetTooSmall, VocabularyRequired  # noqa: E402
from stcc.runtime.grammar import Grammar  # noqa: E402

CHOICES = json.dumps({"type": "object", "additionalProperties": False, "required": ["kind", "inner", "name", "age"], "properties": {
    "kind": {"enum": ["red", "blue", "bluer", "bell"]}, "inner": {"type": "boolean"}, "name": {"type": "string", "maxLength": 3},
    "age": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}}})


def place_after(grammar: Grammar, text: bytes) -> Any:
    matcher = grammar.matcher()
    assert matcher.accept_bytes(text)
    return matcher.configuration()


def regex(pattern: str) -> Grammar:
    return load(compile_regex(pattern), vocabulary=vocabulary())


def test_the_strings_of_an_enumeration_and_a_boolean() -> None:
    grammar = grammar_of(CHOICES)
    cuts = find_cuts(grammar.stacks)
    opened = place_after(grammar, b'{"kind":"')
    assert finite_region(grammar.stacks, cuts, opened) == [b'bell"', b'blue"', b'bluer"', b'red"']
    boolean = place_after(grammar, b'{"kind":"red","inner":')
    assert finite_region(grammar.stacks, cuts, boolean) == [b"false", b"true"] or \
        finite_region(grammar.stacks, cuts, boolean) == [b"fals", b"tru"]  # the cut lies before a last letter they share
    near = near_strings(grammar.stacks, opened, 4)
    assert sorted(near) == near and [text[:3] for text in near] == [b"bel", b"blu", b"blu", b"red"]
    assert all(text.endswith(b'","inner":') for text in near)  # what is forced after them belongs to them


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 59), most=st.integers(1, 14), steps=st.integers(0, 60), data=st.data())
def test_near_strings_cover_what_follows(seed: int, most: int, steps: int, data: st.DataObject) -> None:
    grammar = random_grammar(seed)
    stacks = grammar.stacks
    place = stacks.start()
    for _ in range(steps):
        live = stacks.live_bytes(*place).tolist()
        if not live:
            break
        after = stacks.step(*place, data.draw(st.sampled_from(live)))
        assert after is not None
        place = after
    strings = near_strings(stacks, place, most, 40)
    assert 1 <= len(strings) <= max(most, 1) and len(set(strings)) == len(strings)
    assert not any(one != other and other.startswith(one) for one in strings for other in strings)
    assert all(stacks.read(*place, text) is not None for text in strings)
    walked = b""  # whatever follows begins with one of them, or is the beginning of one
    for _ in range(45):
        live = stacks.live_bytes(*place).tolist()
        if not live:
            break
        byte = data.draw(st.sampled_from(live))
        walked += bytes([byte])
        after = stacks.step(*place, byte)
        assert after is not None
        place = after
        assert any(text.startswith(walked) or walked.startswith(text) for text in strings)


@pytest.mark.parametrize("pattern", ["(ab|ac|b){1,2}", "x(a|b)?(c|dd)", "(true|false|null)", "a{0,3}b", "[0-3]{2}"])
def test_a_whole_output_as_a_region(pattern: str) -> None:
    """Cut by cut, the regions spell exactly the outputs."""
    grammar = regex(pattern)
    stacks, cuts = grammar.stacks, find_cuts(grammar.stacks)
    texts, done = {(b"", stacks.start())}, set()
    while texts:
        text, place = texts.pop()
        if not len(stacks.live_bytes(*place)):
            done.add(text)
            continue
        for string in finite_region(stacks, cuts, place, 100):
            after = stacks.read(*place, string)
            assert after is not None
            if stacks.may_end(*after):
                done.add(text + string)
            if string:
                texts.add((text + string, after))
    assert done == all_outputs(stacks, stacks.start())


def all_outputs(stacks: Any, place: Any) -> set[bytes]:
    found = {b""} if stacks.may_end(*place) else set()
    for byte in stacks.live_bytes(*place).tolist():
        found |= {bytes([byte]) + rest for rest in all_outputs(stacks, stacks.step(*place, byte))}
    return found


def test_regions_that_are_none() -> None:
    grammar = grammar_of(CHOICES)
    cuts = find_cuts(grammar.stacks)
    with pytest.raises(RegionError, match="more than 64"):
        finite_region(grammar.stacks, cuts, place_after(grammar, b'{"kind":"red","inner":true,"name":"'))
    with pytest.raises(RegionError, match="more than 3"):
        finite_region(grammar.stacks, cuts, place_after(grammar, b'{"kind":"'), most_strings=3)
    over = place_after(grammar, b'{"kind":"red","inner":true,"name":"","age":1}')
    with pytest.raises(RegionError, match="empty"):
        finite_region(grammar.stacks, cuts, over)
    assert near_strings(grammar.stacks, over) == [b""]
    with pytest.raises(RegionError, match="empty"):
        score_strings(DecodingModel(llama(0)), [], [1], [])


@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_scores_are_those_of_one_pass_a_string(build: Any) -> None:
    model = DecodingModel(build(3))
    spellings = [longest_tokens(vocabulary(), text) for text in (b'red"', b'bluer"', b"true", b"", b"name")]
    cache = model.make_cache()
    model.prefill(PROMPT[:-1], cache)
    scores = score_strings(model, cache, PROMPT[-1:], spellings)
    for total, spelling in zip(scores.total, spellings, strict=True):
        logits = np.array(model.forward(mx.array([*PROMPT, *spelling]), model.make_cache()), np.float64)[len(PROMPT) - 1:]
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        assert total == pytest.approx(sum(logs[place, token] for place, token in enumerate(spelling)), abs=1e-4)
    assert scores.best == 3 and scores.tokens.tolist() == list(map(len, spellings))  # the empty string costs nothing
    again = score_strings(model, cache, PROMPT[-1:], spellings)
    assert np.array_equal(scores.total, again.total)  # the cache was not changed
    with pytest.raises(DecodeError, match="pending"):
        score_strings(model, cache, [], spellings)


def decoded(model: Any, grammar: Grammar, limit: int | None = 80, **options: Any) -> RegionOutput:
    return RegionDecoder(DecodingModel(model), grammar, **options).decode(PROMPT, limit)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100_000), memory=st.sampled_from([0.0, 1.0]), trimmable=st.booleans(), slack=st.integers(0, 40),
       most=st.integers(1, 12))
def test_greedy_regions_are_the_sequential_tokens(seed: int, memory: float, trimmable: bool, slack: int, most: int) -> None:
    grammar = random_grammar(seed % 60)
    limit = grammar.need() + slack
    model = HashModel(seed, memory, trimmable)
    expected, choices, _ = sequential(model, grammar, limit)
    output = decoded(model, grammar, limit, most_strings=most)
    statistics = output.statistics
    assert output.tokens == expected and output.valid
    assert statistics.sequential_passes == choices and statistics.passes <= choices
    assert len(model.passes) == statistics.passes + statistics.prefill_passes
    assert max((batch for batch, _ in model.passes), default=0) <= most
    assert statistics.chosen + statistics.forced == len(output.tokens)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100_000), temperature=st.sampled_from([0.7, 2.0]), top_p=st.sampled_from([0.8, 1.0]), trimmable=st.booleans())
def test_sampled_regions_draw_the_sequential_tokens(seed: int, temperature: float, top_p: float, trimmable: bool) -> None:
    grammar, model = random_grammar(seed % 60), HashModel(seed, 1.0, trimmable)
    expected = generate(model, grammar, PROMPT, max_tokens=80, temperature=temperature, top_p=top_p, seed=seed).finish()
    output = decoded(model, grammar, sampling=Sampling(temperature, top_p, seed))
    assert output.tokens == expected.tokens
    assert output.statistics.sequential_passes == expected.statistics.passes


@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_regions_on_real_caches(build: Any) -> None:
    several = 0
    for seed in range(3):
        model = build(seed)
        output = decoded(model, grammar_of(CHOICES), 60)
        assert output.tokens == sequential(model, grammar_of(CHOICES), 60)[0]
        several += output.statistics.row_steps - output.statistics.passes
    assert several > 6


class Lengths(HashModel):
    """Prefers long tokens, or single bytes."""

    def __init__(self, seed: int, sign: float, trimmable: bool = True) -> None:
        super().__init__(seed, 0.0, trimmable)
        self.bonus = np.zeros(self.width, np.float32)
        self.bonus[:vocabulary().size] = [sign * len(vocabulary().token(token)) for token in range(vocabulary().size)]

    def scores(self, text: Any) -> np.ndarray:
        return super().scores(text) + self.bonus


def test_a_region_costs_one_pass() -> None:
    """Four enumerations in a row, each of more than one token."""
    grammar = regex("(redd|blued|belld), (named|listed|aged); (kindx|innerx|xx): (ab1|cd2|ef3)")
    for seed in range(10):
        model = Lengths(seed, 20.0)
        output = decoded(model, grammar)
        assert output.tokens == sequential(model, grammar, 80)[0]
        assert output.statistics.passes <= 4 < output.statistics.sequential_passes


@pytest.mark.parametrize("trimmable", [True, False])
def test_a_choice_off_the_rows_is_still_right(trimmable: bool) -> None:
    """The model prefers single letters, which no row holds where longer tokens exist."""
    model = Lengths(0, -20.0, trimmable)
    expected, choices, _ = sequential(model, grammar_of(CHOICES), 80)
    output = decoded(model, grammar_of(CHOICES))
    assert output.tokens == expected and output.statistics.passes <= choices


def test_scores_that_are_not_finite_stop_the_output() -> None:
    whole = decoded(HashModel(1), grammar_of(CHOICES))
    for after in range(1, whole.statistics.passes + 1):
        model = HashModel(1)
        model.broken_after = after
        output = decoded(model, grammar_of(CHOICES))
        assert output.stop_reason == "not_finite" and not output.valid
        assert output.tokens == whole.tokens[:len(output.tokens)]


def test_bad_arguments_are_typed() -> None:
    grammar, model = grammar_of(CHOICES), DecodingModel(HashModel(0))
    with pytest.raises(EmptyPromptError):
        RegionDecoder(model, grammar).decode([])
    with pytest.raises(BudgetTooSmall):
        RegionDecoder(model, grammar).decode(PROMPT, grammar.need() - 1)
    with pytest.raises(NarrowHeadError):
        RegionDecoder(DecodingModel(HashModel(0, width=vocabulary().size - 1)), grammar).decode(PROMPT)
    with pytest.raises(VocabularyRequired):
        RegionDecoder(model, load(compile_regex("a|b")))
    with pytest.raises(DecodeError, match="out of range"):
        RegionDecoder(model, grammar, most_strings=0)


@settings(max_examples=50, deadline=None)
@given(text=st.binary(max_size=12))
def test_longest_tokens_spell_the_text(text: bytes) -> None:
    tokens = longest_tokens(vocabulary(), text)
    assert b"".join(map(vocabulary().token, tokens)) == text  # every byte is a token
    spelled = {vocabulary().token(token) for token in range(vocabulary().size)}
    rest = text
    for token in tokens:
        assert vocabulary().token(token) == max((rest[:length] for length in range(1, len(rest) + 1) if rest[:length] in spelled), key=len)
        rest = rest[len(vocabulary().token(token)):]
