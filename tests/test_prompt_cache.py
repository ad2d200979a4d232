"""The prompt cache against reading every prompt anew, on attention and recurrent models, and its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from block_cases import HashModel, gemma3, llama, qwen3_5  # noqa: E402

from stcc.runtime.decoding.model import DecodingModel  # noqa: E402
from stcc.runtime.decoding.prompt_cache import PromptCache, PromptCacheError  # noqa: E402

TOKENS = st.lists(st.integers(0, 2), max_size=12)


def read(model: DecodingModel, tokens: list[int]) -> Any:
    cache = model.make_cache()
    model.prefill(tokens, cache)
    return cache


def scores(model: DecodingModel, cache: Any, tokens: list[int]) -> np.ndarray:
    return np.array(model.forward(mx.array(tokens), cache)[-1])


@settings(max_examples=60, deadline=None)
@given(stored=st.lists(TOKENS, max_size=8), wanted=st.lists(TOKENS, min_size=1, max_size=4), trimmable=st.booleans(),
       room=st.sampled_from([0, 40, 120, 10_000]))
def test_the_longest_usable_beginning_is_found(stored: list[list[int]], wanted: list[list[int]], trimmable: bool, room: int) -> None:
    """Against a list of what is stored, newest last, by the rules in the module's text."""
    model = DecodingModel(HashModel(0, trimmable=trimmable))
    prompts, kept = PromptCache(model, room), list[list[int]]()
    for tokens in stored:
        fits = bool(tokens) and 4 * len(tokens) <= room
        assert prompts.insert(tokens, read(model, tokens)) == fits
        if fits:
            kept = [other for other in kept if not (tokens[:len(other)] == other and (trimmable or other == tokens))] + [tokens]
            while sum(map(len, kept)) * 4 > room:
                del kept[0]
    assert prompts.nbytes == sum(map(len, kept)) * 4 <= room and len(prompts) == len(kept)
    for tokens in wanted:
        cache, length = prompts.fetch(tokens)
        usable = [common(other, tokens) if trimmable else len(other) * (tokens[:len(other)] == other) for other in kept]
        assert length == max(usable, default=0)
        assert cache[0].rows == [tokens[:length]]
        if length:
            best = max((use, place) for place, use in enumerate(usable))[1]
            kept.append(kept.pop(best))


def common(one: list[int], other: list[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@pytest.mark.parametrize(("build", "trims"), [(llama, True), (qwen3_5, False)])
def test_a_found_beginning_scores_as_one_that_was_read(build: Any, trims: bool) -> None:
    model = DecodingModel(build(1))
    prompts = PromptCache(model)
    long = [5, 6, 7, 8, 9, 10, 11]
    assert prompts.insert(long, read(model, long))
    for wanted, expected in (([*long, 3, 4], 7), (long, 7), ([5, 6, 7, 1, 2], 3 if trims else 0), ([9, 9], 0)):
        for _ in range(2):  # what is done with a fetched cache does not touch the stored one
            cache, length = prompts.fetch(wanted)
            assert length == expected
            rest = [*wanted[length:], 20]
            assert scores(model, cache, rest) == pytest.approx(scores(model, model.make_cache(), [*wanted, 20]), abs=1e-4)
    statistics = prompts.statistics
    assert (statistics.fetches, statistics.hits) == (8, 6 if trims else 4)
    assert statistics.found == 2 * (7 + 7 + (3 if trims else 0)) and statistics.tokens == 2 * (9 + 7 + 5 + 2)


def test_a_window_that_is_full_cannot_be_cut() -> None:
    model = DecodingModel(gemma3(0))
    prompts = PromptCache(model)
    short, long = [5, 6, 7, 8], list(range(5, 35))
    for tokens in (short, long):
        prompts.insert(tokens, read(model, tokens))
    assert len(prompts) == 2  # the long one cannot stand for the short one
    for wanted, expected in ((long[:20], 4), ([5, 6, 9], 2), ([*long, 3], 30)):
        cache, length = prompts.fetch(wanted)
        assert length == expected
        assert scores(model, cache, [*wanted[length:], 20]) == pytest.approx(scores(model, model.make_cache(), [*wanted, 20]), abs=1e-4)


@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_what_the_caller_does_after_an_insert_changes_nothing(build: Any) -> None:
    model = DecodingModel(build(2))
    prompts, cache = PromptCache(model), read(model, [5, 6, 7])
    prompts.insert([5, 6, 7], cache)
    scores(model, cache, [30, 31])
    held, length = prompts.fetch([5, 6, 7])
    assert length == 3
    assert scores(model, held, [8]) == pytest.approx(scores(model, model.make_cache(), [5, 6, 7, 8]), abs=1e-4)


@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_saved_and_loaded(build: Any, tmp_path: Path) -> None:
    from mlx_lm.models.cache import load_prompt_cache

    model = DecodingModel(build(3))
    prompts = PromptCache(model)
    for tokens in ([5, 6, 7], [9, 8]):
        prompts.insert(tokens, read(model, tokens))
    prompts.save(tmp_path)
    assert prompts.save(tmp_path) == 2 == len(list(tmp_path.iterdir()))  # a second save replaces the first
    other = PromptCache(model)
    assert other.load(tmp_path) == 2 and other.nbytes == prompts.nbytes
    held, length = other.fetch([5, 6, 7, 8])
    assert length == 3
    assert scores(model, held, [8]) == pytest.approx(scores(model, model.make_cache(), [5, 6, 7, 8]), abs=1e-4)
    assert load_prompt_cache(str(sorted(tmp_path.iterdir())[0]))  # mlx-lm reads the same files
    assert PromptCache(model, prompts.nbytes // 2).load(tmp_path) == 2  # each fits alone; the newer one stays
    with pytest.raises(PromptCacheError, match="layers"):
        PromptCache(DecodingModel((qwen3_5 if build is llama else llama)(3))).load(tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    model = DecodingModel(llama(0))
    prompts = PromptCache(model)
    assert prompts.load(tmp_path) == 0
    prompts.insert([5, 6], read(model, [5, 6]))
    prompts.save(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for broken in (b"", b"nothing", whole[:60], whole[:-100]):
        path.write_bytes(broken)
        with pytest.raises(PromptCacheError, match=path.name):
            PromptCache(model).load(tmp_path)
    mx.save_safetensors(str(path), {"a": mx.zeros(3)}, {"b": "c"})
    with pytest.raises(PromptCacheError, match="not a stored prompt"):
        PromptCache(model).load(tmp_path)


def test_bad_arguments_are_typed() -> None:
    model = DecodingModel(llama(0))
    with pytest.raises(PromptCacheError, match="negative"):
        PromptCache(model, -1)
    prompts = PromptCache(model)
    with pytest.raises(PromptCacheError, match="layers"):
        prompts.insert([5], read(DecodingModel(qwen3_5(0)), [5]))
    with pytest.raises(PromptCacheError, match="holds 2 tokens and 3"):
        prompts.insert([5, 6, 7], read(model, [5, 6]))
    assert not PromptCache(model, 100).insert([5], read(model, [5]))  # larger than the bound
    prompts.insert([5], read(model, [5]))
    prompts.clear()
    assert (len(prompts), prompts.nbytes, prompts.fetch([5])[1]) == (0, 0, 0)
