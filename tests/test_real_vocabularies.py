"""Masks, tokens and plans on real vocabularies against reading bytes: the short form of benchmarks/exactness.py, and its own oracle."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from binding_cases import GRAMMARS, SEEDS, linked, nasty_vocabulary, random_machines, random_vocabularies
from hypothesis import given, settings
from tokenizer_cases import REAL, SHARED, TRAINED

from stcc.compiler import bind, compile_json_schema, vocabulary_from_tokenizer
from stcc.compiler.stepping import Configuration, allowed, initial, may_end, run, step
from stcc.formats import Artifact, Vocabulary
from stcc.formats.binding import Binding
from stcc.formats.machine import Machine
from stcc.runtime import Grammar
from stcc.runtime.seam import compile_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import exactness  # noqa: E402
from trie_walk import TrieWalk, random_tokens, tokens_by_bytes  # noqa: E402

PREFIXES = 10


@functools.cache
def grammar_of(name: str) -> Artifact:
    """The artifacts that these tests share."""
    if name in exactness.SAMPLES:
        return compile_file(ROOT / f"samples/{name}.schema.json")
    return compile_json_schema({"any JSON": True, "open object": exactness.OPEN_OBJECT, "long string": exactness.LONG_STRING}[name])


@functools.cache
def real_vocabulary(name: str) -> Vocabulary:
    if not (SHARED / name).is_dir():
        pytest.skip("the real tokenizers are not beside the repository")
    return vocabulary_from_tokenizer(SHARED / name)


@functools.cache
def trained_vocabulary() -> Vocabulary:
    return vocabulary_from_tokenizer(TRAINED["byte-level"])


# -- the comparison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", ["thread", "any JSON"])
@pytest.mark.parametrize("name", REAL)
def test_masks_on_real_vocabularies(name: str, grammar: str) -> None:
    vocabulary = real_vocabulary(name)
    count = exactness.compare(grammar_of(grammar), vocabulary, None, PREFIXES, 0)
    assert count.wrong() == 0, count.examples
    assert count.prefixes == PREFIXES and count.pairs == PREFIXES * vocabulary.size
    assert count.allowed > 0 and count.tokens > 0 and count.refused >= PREFIXES * exactness.TOKENS


@pytest.mark.parametrize("grammar", ["person", "tree", "any JSON", "open object", "long string"])
def test_masks_and_plans_on_a_trained_vocabulary(grammar: str) -> None:
    count = exactness.compare(grammar_of(grammar), trained_vocabulary(), TRAINED["byte-level"], 200, 5, seed=3)
    assert count.wrong() == 0, count.examples
    assert count.prefixes == 200 and count.configurations > 15 and count.texts == 5
    assert count.deepest >= {"person": 0, "long string": 1}.get(grammar, 3)
    assert 0 < count.unasked <= count.planned


def shifted(binding: Binding, section: str) -> Grammar:
    """The tree grammar with one section of its binding off by one entry."""
    return tree_with(dataclasses.replace(binding, **{section: np.roll(getattr(binding, section), 1)}))


def tree_with(binding: Binding) -> Grammar:
    return Grammar(grammar_of("tree").machine, binding, trained_vocabulary())


@functools.cache
def tree_binding() -> Binding:
    return bind(grammar_of("tree"), trained_vocabulary()).binding(trained_vocabulary().fingerprint)


@pytest.mark.parametrize("section, kind", [("run_action", "mask_wrong"), ("row_actions", "mask_wrong"), ("row_values", "token_wrong"),
                                           ("record_head", "token_wrong")])
def test_a_damaged_binding_is_noticed(section: str, kind: str) -> None:
    """The comparison can fail: damage shows in the column that is about it."""
    comparison = exactness.Comparison(shifted(tree_binding(), section), seed=1)
    with contextlib.suppress(IndexError):  # the runtime trusts a verified binding
        comparison.masks(30)
    assert getattr(comparison.count, kind) > 0 and comparison.count.examples


def test_a_split_that_is_not_canonical_is_noticed() -> None:
    """Plans that spell the same bytes one by one are allowed by every mask, but are not what the tokenizer writes."""
    vocabulary, binding = trained_vocabulary(), tree_binding()
    first = {spelled[0]: tokens[0] for spelled, tokens in tokens_by_bytes(vocabulary).items() if len(spelled) == 1}
    plans = np.array([first[vocabulary.token(token)[0]] for token in binding.plan_tokens.tolist()], np.int32)
    changed = np.flatnonzero(plans != binding.plan_tokens)
    assert len(changed)
    comparison = exactness.Comparison(tree_with(dataclasses.replace(binding, plan_tokens=plans)), seed=1)
    comparison.canonical(TRAINED["byte-level"], 5)
    assert comparison.count.planned_wrong > 0 and comparison.count.mask_wrong == 0


# -- the oracle --------------------------------------------------------------------------------------------------------------


def configurations(machine: Machine, rng: np.random.Generator) -> Iterator[Configuration]:
    """Configurations along random bytes."""
    here = initial(machine)
    for _ in range(12):
        yield here
        following = [step(machine, here, byte) for byte in allowed(machine, here)]
        if not following:
            return
        here = following[int(rng.integers(len(following)))] or here


def assert_stepped(machine: Machine, vocabulary: Vocabulary, seed: int) -> None:
    walk = TrieWalk(machine, vocabulary)
    for configuration in configurations(machine, np.random.default_rng(seed)):
        reached = walk.reach(configuration)
        assert len(reached) == len(vocabulary.byte_order)
        for token, number in zip(vocabulary.byte_order.tolist(), reached.tolist(), strict=True):
            after = run(machine, vocabulary.token(token), configuration)
            assert (None if number < 0 else walk.configurations[number]) == after
        chain, here = walk.chain(configuration), configuration
        for byte in chain:
            assert not may_end(machine, here) and allowed(machine, here) == [byte]
            here = step(machine, here, byte) or here
        assert may_end(machine, here) or len(allowed(machine, here)) != 1


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_walk_is_stepping(name: str) -> None:
    assert_stepped(linked(GRAMMARS[name]), nasty_vocabulary(), 5)


@settings(max_examples=60, deadline=None)
@given(random_machines(), random_vocabularies(), SEEDS)
def test_the_walk_is_stepping_on_random_machines(machine: Machine, vocabulary: Vocabulary, seed: int) -> None:
    assert_stepped(machine, vocabulary, seed)


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_the_walk_is_stepping_on_real_vocabularies(name: str) -> None:
    vocabulary, machine, rng = real_vocabulary(name), grammar_of("any JSON").machine, np.random.default_rng(2)
    walk = TrieWalk(machine, vocabulary)
    configuration = run(machine, b'{"a":[{"b":')
    assert configuration is not None and len(configuration.stack) >= 2
    reached = walk.reach(configuration)
    alive, dead = np.flatnonzero(reached >= 0), np.flatnonzero(reached < 0)
    for rank in [*rng.choice(alive, min(len(alive), 2_000), replace=False).tolist(), *rng.choice(dead, 2_000, replace=False).tolist()]:
        after = run(machine, vocabulary.token(int(vocabulary.byte_order[rank])), configuration)
        assert after == (walk.configurations[int(reached[rank])] if reached[rank] >= 0 else None)


def test_random_tokens_spell_the_text() -> None:
    vocabulary, rng = trained_vocabulary(), np.random.default_rng(0)
    spelled, text = tokens_by_bytes(vocabulary), '{"name":"Ada","tags":["ü","b"]}'.encode()
    cuts = {tuple(random_tokens(text, spelled, rng)) for _ in range(20)}
    assert len(cuts) > 1 and all(b"".join(map(vocabulary.token, tokens)) == text for tokens in cuts)
