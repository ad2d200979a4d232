"""Exact text, on languages small enough to enumerate: the laws of both samplers against the enumerated conditional, by kernel and by
samples (multinomial, by simulation, alpha = 0.001, seeds fixed); and on tiny MLX models, against plain forward passes."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from functools import cache
from math import exp, fsum, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import compile_json_schema, compile_regex
from stcc.formats import Vocabulary
from stcc.runtime import Grammar, load
from stcc.runtime.errors import BudgetTooSmall, BudgetUnavailable, ConstraintError, VocabularyRequired
from stcc.runtime.exact.samplers import TooManyAttemptsError
from stcc.runtime.exact.text import MaskedText, NoValidMassError, TextCars
from stcc.runtime.exact.token_models import FunctionTokens, ScoresError
from stcc.runtime.exact.token_trie import TokenTrie, TrieTooLargeError

ALPHA = 0.001
TOKENS = [b"a", b"b", b"ab", b"ba", b"c", b"", b"", b"bc"]
STOPS = (5, 6)
VOCABULARY = Vocabulary.from_tokens(TOKENS, STOPS)
SIZE = VOCABULARY.size
LANGUAGES = {"pairs": "(ab|ba){1,2}c?", "runs": "a{1,3}|b{2,3}c", "any": "[abc]{0,3}", "forced": "(abab|ba)c(ab)?", "one": "abc"}
LIMITS = {"pairs": 5, "runs": 3, "any": 2, "forced": 6, "one": 3}
Law = dict[tuple[int, ...], float]


@cache
def grammar(name: str) -> Grammar:
    return load(compile_regex(LANGUAGES[name]), vocabulary=VOCABULARY)


def probabilities(seed: int, spread: float = 1.5) -> Any:
    """A model of the whole sequence: its logits are seeded by a hash of it."""
    @cache
    def of(taken: tuple[int, ...]) -> np.ndarray:
        digest = hashlib.blake2b(json.dumps([seed, *taken]).encode(), digest_size=8).digest()
        weights = np.exp(np.random.default_rng(int.from_bytes(digest, "little")).normal(0.0, spread, SIZE))
        return weights / weights.sum()
    return of


def model_of(seed: int, spread: float = 1.5) -> FunctionTokens:
    return FunctionTokens(probabilities(seed, spread), SIZE)


@cache
def enumerated(name: str, seed: int, limit: int, spread: float = 1.5) -> Law:
    """P of every token sequence, stop token included, whose text Python's ``re`` matches."""
    model, law = probabilities(seed, spread), {}
    spelled = [token for token in range(SIZE) if token not in STOPS and TOKENS[token]]
    for length in range(limit + 1):
        for tokens in itertools.product(spelled, repeat=length):
            if re.fullmatch(LANGUAGES[name].encode(), b"".join(TOKENS[token] for token in tokens)):
                chance = np.prod([model(tokens[:place])[token] for place, token in enumerate(tokens)])
                for stop in STOPS:
                    law[(*tokens, stop)] = float(chance * model(tokens)[stop])
    return law


def normalized(law: Law) -> Law:
    total = fsum(law.values())
    return {key: weight / total for key, weight in law.items()}


def distance(one: Law, other: Law) -> float:
    return 0.5 * fsum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


def masked(name: str, seed: int, limit: int) -> Law:
    """The law of masking, from the enumeration alone: tokens that begin some valid sequence, renormalised."""
    model, valid = probabilities(seed), enumerated(name, seed, limit)
    beginnings = {sequence[:size] for sequence in valid for size in range(len(sequence) + 1)}
    law = {}
    for sequence in valid:
        chance = 1.0
        for place, token in enumerate(sequence):
            row = model(sequence[:place])
            chance *= row[token] / sum(row[other] for other in range(SIZE) if (*sequence[:place], other) in beginnings)
        law[sequence] = float(chance)
    return law


def accepted_law(sampler: TextCars) -> Law:
    """The law of an attempt from what is learned now, by the kernel that draws; nothing is lifted meanwhile."""
    law: Law = {}
    sampler.begin()

    def visit(node: int, tokens: list[int], weight: float) -> None:
        row = sampler.arrive(node, tokens)
        weight *= sampler.survival(node, row)
        if weight == 0.0:
            return
        for token, chance, logarithm in zip(row.tokens.tolist(), row.chances().tolist(), row.weights.tolist(), strict=True):
            if token in STOPS:
                law[(*tokens, token)] = weight * chance
            elif chance > 0.0:
                assert sampler._matcher.accept_token(token)
                visit(sampler.trie.child(node, token, logarithm), [*tokens, token], weight * chance)
                sampler._matcher.rollback(1)

    visit(0, [], 1.0)
    return law


def fit(drawn: list[tuple[int, ...]], law: Law, replicates: int = 2000) -> float:
    """p-value of the likelihood ratio against the law, by simulation: rare cells do not drown the others, as they would in Pearson's."""
    cells = list(law)
    place = {key: number for number, key in enumerate(cells)}
    expected = np.array([law[key] for key in cells])
    expected *= len(drawn) / expected.sum()
    counts = np.bincount([place[key] for key in drawn], minlength=len(cells))  # KeyError: an output of probability 0
    simulated = np.random.default_rng(4321).multinomial(len(drawn), expected / expected.sum(), replicates)

    def ratio(found: np.ndarray) -> np.ndarray:
        return (found * np.log(np.maximum(found, 1) / expected)).sum(axis=-1)

    return float((1 + (ratio(simulated) >= ratio(counts)).sum()) / (1 + replicates))


def sequences(sampler: Any, count: int, seed: int) -> list[tuple[int, ...]]:
    return [(*one.tokens, one.stop) for one in sampler.draw(count, np.random.default_rng(seed))]


# -- laws ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("attempts", [0, 1, 4, 40, 400])
@pytest.mark.parametrize("name", LANGUAGES)
def test_the_law_of_an_attempt_is_the_conditional_whatever_was_learned(name: str, attempts: int, ahead: bool) -> None:
    valid = enumerated(name, 1, LIMITS[name])
    sampler = TextCars(grammar(name), model_of(1), LIMITS[name], ahead=ahead)
    rng = np.random.default_rng(attempts)
    for _ in range(attempts):
        sampler.attempt(rng)
    law = accepted_law(sampler)
    mass = fsum(valid.values())
    assert law.keys() == valid.keys() and distance(normalized(law), normalized(valid)) < 1e-13
    assert abs(fsum(law.values()) - mass / sampler.bound) < 1e-12, "an attempt is accepted with P(event) / r(root)"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(LANGUAGES)), st.integers(0, 10**6), st.integers(0, 60), st.sampled_from([0.5, 2.0, 6.0]), st.booleans())
def test_bounds_hold_and_fall_to_the_valid_mass(name: str, seed: int, attempts: int, spread: float, ahead: bool) -> None:
    limit = LIMITS[name]
    mass = fsum(enumerated(name, seed, limit, spread).values())
    sampler = TextCars(grammar(name), model_of(seed, spread), limit, ahead=ahead)
    rng, before = np.random.default_rng(seed), 1.0
    for _ in range(attempts):
        sampler.attempt(rng)
        assert mass * (1 - 1e-12) <= sampler.bound <= before * (1 + 1e-12), "acceptance never falls"
        before = sampler.bound
    law = accepted_law(sampler)  # scores every node
    assert abs(fsum(law.values()) - mass / sampler.bound) < 1e-9


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["pairs", "runs", "any"])
def test_samples_fit_the_conditional_and_those_of_masking_do_not(name: str, seed: int) -> None:
    """4,000 draws: TV within sampling error of the enumerated conditional; masking's law is measurably elsewhere, and its draws show it."""
    target = normalized(enumerated(name, seed, LIMITS[name]))
    exact = sequences(TextCars(grammar(name), model_of(seed), LIMITS[name]), 4000, seed)
    plain = sequences(MaskedText(grammar(name), model_of(seed), LIMITS[name]), 4000, seed)
    assert fit(exact, target) > ALPHA
    law = masked(name, seed, LIMITS[name])
    assert fit(plain, law) > ALPHA, "masking draws its own law"
    assert distance(law, target) > 0.03 and fit(plain, target) < ALPHA
    rng, cells = np.random.default_rng(seed), list(target)
    draws = [rng.choice(len(cells), 4000, p=list(target.values())).tolist() for _ in range(200)]
    floors = [distance(frequencies(drawn, cells), target) for drawn in draws]
    assert distance(frequencies(exact), target) < max(floors) < distance(frequencies(plain), target)


def frequencies(drawn: list[Any], names: list[Any] | None = None) -> Law:
    return {names[key] if names else key: count / len(drawn) for key, count in Counter(drawn).items()}


def test_first_samples_of_many_runs_fit_as_well() -> None:
    target = normalized(enumerated("runs", 5, LIMITS["runs"]))
    drawn = [sequences(TextCars(grammar("runs"), model_of(5), LIMITS["runs"]), 1, seed)[0] for seed in range(1500)]
    assert fit(drawn, target) > ALPHA


def test_rows_may_be_dropped() -> None:
    """With no room for rows every one is scored again; the law stays."""
    target = normalized(enumerated("pairs", 3, LIMITS["pairs"]))
    sampler = TextCars(grammar("pairs"), model_of(3), LIMITS["pairs"], most_bytes=0)
    assert fit(sequences(sampler, 2500, 1), target) > ALPHA
    assert sampler.trie.rows == 0 and sampler.trie.nbytes == 0 and sampler.trie.dropped > 2500
    held = TextCars(grammar("pairs"), model_of(3), LIMITS["pairs"])
    held.draw(2500, np.random.default_rng(1))
    assert held.model.cost.passes < sampler.model.cost.passes / 20
    assert held.trie.nbytes == sum(row.nbytes for row in held.trie._rows.values()) == held.accounting.memory_bytes


def test_validity_is_estimated_without_bias() -> None:
    mass = fsum(enumerated("runs", 4, LIMITS["runs"]).values())
    exact, plain = [], []
    for seed in range(400):
        sampler = TextCars(grammar("runs"), model_of(4), LIMITS["runs"])
        for _ in range(10):
            sampler.attempt(np.random.default_rng([seed, _]))
        exact.append(sampler.validity)
        one = MaskedText(grammar("runs"), model_of(4), LIMITS["runs"]).draw(1, np.random.default_rng(seed))[0]
        plain.append(one.weight)
    for values in (np.array(exact), np.array(plain)):
        assert abs(values.mean() - mass) < 4.5 * values.std() / np.sqrt(len(values))


def test_log_probabilities_are_those_of_the_model() -> None:
    valid = enumerated("pairs", 6, LIMITS["pairs"])
    for sampler in (TextCars(grammar("pairs"), model_of(6), LIMITS["pairs"]), MaskedText(grammar("pairs"), model_of(6), LIMITS["pairs"])):
        for one in sampler.draw(60, np.random.default_rng(0)):
            assert abs(one.log_probability - log(valid[(*one.tokens, one.stop)])) < 1e-12
            assert one.text == b"".join(TOKENS[token] for token in one.tokens)


def test_an_unlikely_format_does_not_underflow() -> None:
    """Valid outputs have a probability of some 1e-1040; float64 alone would call it 0."""
    text = load(compile_regex("(a|b)c{59}"), vocabulary=VOCABULARY)
    logits = np.array([-40.0, -41.0, -90.0, -90.0, -40.0, 0.0, -90.0, -90.0])
    row = np.exp(logits) / np.exp(logits).sum()
    sampler = TextCars(text, FunctionTokens(lambda taken: row, SIZE), 60)
    drawn = sampler.draw(400, np.random.default_rng(0))
    assert sampler.trie.bounds[0] < -2300 and all(len(one.text) == 60 for one in drawn)
    share = sum(one.text[:1] == b"a" for one in drawn) / 400
    assert abs(share - 1 / (1 + exp(-1))) < 4.5 * np.sqrt(0.2 / 400)


# -- limits and masks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_the_limit_is_part_of_the_event(limit: int) -> None:
    valid = enumerated("pairs", 2, limit)
    assert max(map(len, valid)) <= limit + 1
    sampler = TextCars(grammar("pairs"), model_of(2), limit)
    assert accepted_law(sampler).keys() == valid.keys()


def test_without_a_budget_the_limit_cuts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Grammar.matcher

    def without(self: Grammar, max_tokens: int | None = None, **options: Any) -> Any:
        if max_tokens is not None:
            raise BudgetUnavailable
        return own(self, **options)

    monkeypatch.setattr(Grammar, "matcher", without)
    valid = enumerated("pairs", 2, 3)
    sampler = TextCars(grammar("pairs"), model_of(2), 3)
    assert fit(sequences(sampler, 1500, 0), normalized(valid)) > ALPHA
    law = accepted_law(sampler)
    assert {key for key, weight in law.items() if weight > 0} == valid.keys() and distance(normalized(law), normalized(valid)) < 1e-12
    dead = MaskedText(grammar("pairs"), model_of(2), 3)
    rng = np.random.default_rng(0)
    assert any(dead.attempt(rng) is None for _ in range(200)), "a mask without a budget runs into the limit"


def is_tree(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 2 and all(map(is_tree, value))


def is_set(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value) and len(set(value)) == len(value)


JSON: dict[str, Any] = {
    "a stack": ({"type": "array", "items": {"$ref": "#"}, "maxItems": 2}, is_tree),
    "items that differ": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, is_set),
}


@pytest.mark.parametrize("name", JSON)
def test_json(name: str) -> None:
    """Tokens that close several levels at once, and a matcher that keeps items apart."""
    tokens = [bytes([code]) for code in b'[]1,2'] + [b"[[", b"]]", b"1,1", b""]
    vocabulary, stop = Vocabulary.from_tokens(tokens, [8]), 8
    schema, is_valid = JSON[name]
    machine = load(compile_json_schema(schema), vocabulary=vocabulary)

    @cache
    def of(taken: tuple[int, ...]) -> np.ndarray:
        weights = np.exp(np.random.default_rng([9, *taken]).normal(0.0, 1.5, len(tokens)))
        return weights / weights.sum()

    def matches(text: bytes) -> bool:
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return json.dumps(value, separators=(",", ":")).encode() == text and is_valid(value)

    law: Law = {}
    for length in range(1, 6):
        for taken in itertools.product(range(stop), repeat=length):
            if matches(b"".join(tokens[token] for token in taken)):
                law[(*taken, stop)] = float(np.prod([of(taken[:place])[token] for place, token in enumerate((*taken, stop))]))
    sampler = TextCars(machine, FunctionTokens(of, len(tokens)), 5)
    assert len(law) > 10 and fit(sequences(sampler, 2000, 0), normalized(law)) > ALPHA


# -- faults ----------------------------------------------------------------------------------------------------------------


def test_faults() -> None:
    model = model_of(0)
    with pytest.raises(VocabularyRequired):
        TextCars(load(compile_regex("a")), model, 3)
    with pytest.raises(BudgetTooSmall):
        TextCars(grammar("one"), model, 1)
    with pytest.raises(ConstraintError, match="max_tokens"):
        TextCars(grammar("any"), model, 0)
    with pytest.raises(ConstraintError, match="scores 3 ids"):
        TextCars(grammar("any"), FunctionTokens(lambda taken: [1, 0, 0], 3), 3)
    silent = Vocabulary.from_tokens([b"a"], [])
    with pytest.raises(ConstraintError, match="no stop token"):
        TextCars(load(compile_regex("a"), vocabulary=silent), FunctionTokens(lambda taken: [1.0], 1), 3)
    with pytest.raises(ScoresError):
        TextCars(grammar("any"), FunctionTokens(lambda taken: [0.5] * SIZE, SIZE), 2).draw(1, np.random.default_rng(0))
    never = np.eye(SIZE)[4]  # always "c", which "one" cannot begin with
    with pytest.raises(NoValidMassError):
        TextCars(grammar("one"), FunctionTokens(lambda taken: never, SIZE), 3).draw(1, np.random.default_rng(0))
    with pytest.raises(TooManyAttemptsError, match="of 1000 outputs after 20 attempts"):
        TextCars(grammar("pairs"), model, 4).draw(1000, np.random.default_rng(0), 20)
    with pytest.raises(TrieTooLargeError):
        TextCars(grammar("any"), model, 3, most_nodes=3).draw(500, np.random.default_rng(0))
    for options in ({"most_bytes": -1}, {"most_nodes": 0}):
        with pytest.raises(ConstraintError):
            TokenTrie(**options)


def test_an_interrupted_attempt_leaves_the_law_as_it_was() -> None:
    """A model that fails now and then: what was scored before a failure stays, and stays sound."""
    of, calls = probabilities(7), itertools.count(1)

    def failing(taken: tuple[int, ...]) -> np.ndarray:
        if next(calls) % 5 == 0:
            raise RuntimeError
        return of(taken)

    sampler = TextCars(grammar("pairs"), FunctionTokens(failing, SIZE), LIMITS["pairs"], most_bytes=100)
    rng, failures = np.random.default_rng(0), 0
    for _ in range(60):
        try:
            sampler.attempt(rng)
        except RuntimeError:
            failures += 1
    assert failures > 5
    sampler.model = model_of(7)
    valid = enumerated("pairs", 7, LIMITS["pairs"])
    assert distance(normalized(accepted_law(sampler)), normalized(valid)) < 1e-12
