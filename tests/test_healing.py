"""Healing against the tokenizer itself: boundaries it would merge across are spelled as it would, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from decoding_cases import MODELS, NAMES, encode, grammar, is_valid, llama, vocabulary  # noqa: E402

from stcc.compiler import compile_regex  # noqa: E402
from stcc.runtime import Grammar, load  # noqa: E402
from stcc.runtime.decode import DecodeError, Healing, generate  # noqa: E402
from stcc.runtime.decoding.healing import character  # noqa: E402

HEALING = Healing(encode, vocabulary())
PROMPT = encode("say it: ")


def spelled(tokens: Any) -> bytes:
    return b"".join(vocabulary().token(int(token)) for token in tokens)


def token(text: bytes) -> int:
    return next(each for each in range(vocabulary().size) if vocabulary().token(each) == text)


def compiled(pattern: str) -> Grammar:
    return load(compile_regex(pattern), vocabulary=vocabulary())


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted({0, *range(3, vocabulary().size, 7)})), st.text(alphabet='{}":,namevlue 0123é', min_size=1, max_size=8),
       st.lists(st.sampled_from([*range(0x20, 0x7F), 0xC3, 0xE4, 0xF0]), max_size=3).map(bytes))
def test_a_respelling_is_the_tokenizers_own(before: int, text: str, live: bytes) -> None:
    forced = tuple(encode(text))
    found = HEALING.respelled(before, forced, live)
    whole = vocabulary().token(before) + text.encode()
    if found is None:
        try:
            tokens = encode(whole.decode())
        except UnicodeDecodeError:
            return
        ends = [len(spelled(tokens[:place])) for place in range(len(tokens) + 1)]
        unstable = any(encode(whole.decode() + character(byte).decode())[:len(tokens)] != tokens for byte in live)
        assert len(vocabulary().token(before)) in ends or unstable or len(tokens) > len(forced) + 1 or spelled(tokens) != whole
        return
    assert list(found) == encode(whole.decode()) and spelled(found) == whole and len(found) <= len(forced) + 1
    for byte in live:
        assert encode(whole.decode() + character(byte).decode())[:len(found)] == list(found)


def test_a_character_for_every_lead_byte() -> None:
    for byte in range(256):
        made = character(byte)
        assert made[0] == byte
        if byte < 0x80 or 0xC2 <= byte <= 0xF4:
            assert len(made.decode()) == 1


def test_a_prompt_that_ends_inside_a_token_is_opened_again() -> None:
    """The prompt ends in ``{"`` where the grammar goes on with ``name":``, of which the tokenizer makes other tokens."""
    number = compiled('field_[0-9]":"value')
    prompt = encode('{"') if len(encode('{"')) > 1 else [*PROMPT, token(b'{"')]
    plain = generate(llama(0), number, prompt).finish()
    healed = generate(llama(0), number, prompt, healing=HEALING).finish()
    assert plain.valid and healed.valid and plain.statistics.healed == 0
    assert healed.text.startswith(b"field_") and plain.text.startswith(b"field_")
    assert spelled(healed.context) == spelled(prompt) + healed.text  # the same bytes, whatever tokens spell them


def merging(text: str, split: int) -> tuple[int, ...] | None:
    """The tokens of ``text`` if the tokenizer merges across ``split``."""
    tokens = encode(text)
    return None if split in [len(spelled(tokens[:place])) for place in range(len(tokens) + 1)] else tuple(tokens)


def test_forced_text_after_the_prompt_is_merged_with_it() -> None:
    found = 0
    for first, rest in (('"', "name"), ("the", " quick brown"), ("f", "ield_1"), ("val", "ue 1"), ("{", '"field')):
        tokens = merging(first + rest, len(first.encode()))
        if tokens is None or len(encode(first)) != 1:
            continue
        found += 1
        grammar_ = compiled(f"{rest}(:|;)x")
        healed = generate(llama(1), grammar_, [*PROMPT, *encode(first)], healing=HEALING).finish()
        if not healed.statistics.healed:  # the one-byte test: a ``:`` or ``;`` could change the last token
            changed = any(tuple(encode(first + rest + more))[:len(tokens)] != tokens for more in ":;")
            assert changed or not grammar_.matcher().forced_tokens()
            continue
        assert healed.context[:len(PROMPT)] == PROMPT and healed.context[len(PROMPT)] == tokens[0]
        assert healed.valid and healed.text.startswith(rest.encode())
    assert found >= 2


def test_without_forced_text_the_model_chooses_the_boundary_again() -> None:
    words = compiled("[a-p]{1,4}( fox| boy)?[a-z]{0,3}")
    prompt = [*PROMPT, *encode("f")]
    by_hand = {}
    for each in range(vocabulary().size):
        text = vocabulary().token(each)
        if text.startswith(b"f") and len(text) > 1 and words.matcher().accept_bytes(text[1:]):
            by_hand[each] = text[1:]
    assert HEALING.extensions(prompt[-1], words.matcher()) == by_hand and by_hand
    chosen = set()
    for seed in range(6):
        scores = np.array(llama(seed)(mx.array([prompt[:-1]]))[0, -1])
        best = max([prompt[-1], *by_hand], key=lambda each: scores[each])
        chosen.add(best)
        for loop in ("sync", "pipelined"):
            healed = generate(llama(seed), words, prompt, healing=HEALING, loop=loop).finish()
            assert healed.valid and spelled(healed.context) == spelled(prompt) + healed.text
            assert healed.context[len(prompt) - 1] == best and healed.statistics.healed >= (best != prompt[-1])
    assert chosen - {prompt[-1]}


def test_a_budget_bounds_extensions() -> None:
    words = compiled("[a-p]{1,4}( brown fox jumps)?|q")
    prompt = [*PROMPT, *encode("f")]
    need = words.need()
    healed = generate(llama(0), words, prompt, healing=HEALING, max_tokens=need).finish()
    assert healed.valid and len(healed.tokens) <= need + 1  # one token may stand for the prompt's last


@pytest.mark.parametrize("kind", MODELS)
def test_healed_loops_agree_and_stay_valid(kind: str) -> None:
    healed = 0
    for number, name in enumerate(NAMES):
        found = [generate(MODELS[kind](number % 2), grammar(name), PROMPT, max_tokens=40, healing=HEALING, **options).finish()
                 for options in ({}, {"forcing": "step"}, {"loop": "pipelined"})]
        assert found[0].tokens == found[1].tokens == found[2].tokens, name
        assert is_valid(name, found[0].text) and spelled(found[0].context) == spelled(PROMPT) + found[0].text
        healed += found[0].statistics.healed
        need = grammar(name).need()
        tight = generate(MODELS[kind](0), grammar(name), PROMPT, max_tokens=need, healing=HEALING).finish()
        assert tight.valid and is_valid(name, tight.text)


def test_a_sampled_token_is_merged_with_the_text_it_forces() -> None:
    """The model says ``"`` where the tokenizer makes one token of it and the comma after it."""
    merged = merging('","', 1)
    assert merged is not None
    quoted = compiled('[a-z]{1,3}","name":[0-9]')

    def quote(tokens: Any, logits: Any) -> Any:
        return logits.at[0, token(b'"')].add(1e5)

    prompt = [*PROMPT, *encode("is ")]
    plain = generate(llama(0), quoted, prompt, logits_processors=[quote]).finish()
    healed = generate(llama(0), quoted, prompt, logits_processors=[quote], healing=HEALING).finish()
    assert plain.valid and healed.valid and token(b'"') in plain.tokens
    assert healed.statistics.healed >= 1 and merged[0] in healed.tokens and token(b'"') not in healed.tokens
    assert len(healed.tokens) <= len(plain.tokens)


def test_healing_needs_text_that_is_not_fed_yet() -> None:
    for options in ({"loop": "eager"}, {"forcing": "off"}):
        with pytest.raises(DecodeError, match="before it is fed"):
            generate(llama(0), grammar("record"), PROMPT, healing=HEALING, **options)
    with pytest.raises(DecodeError, match="cannot be in the cache"):
        generate(llama(0), grammar("record"), PROMPT, healing=HEALING, cache=[], cached=len(PROMPT) - 1)
    alone = generate(llama(0), grammar("text"), PROMPT[:1], healing=HEALING, max_tokens=40).finish()
    assert alone.valid  # a prompt of one token has nothing before it to score the boundary from
