"""Masks on the device against the matcher: plain operations, and the two kernels under sanitizers, single and batched."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="device masks need MLX")

from binding_cases import GRAMMARS, inner_states, random_machines, random_vocabularies  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from metal_shim import shim  # noqa: E402
from runtime_cases import Oracle, bound, nasty  # noqa: E402
from tokenizer_cases import SHARED, TRAINED  # noqa: E402

from stcc.compiler import compile_json_schema, vocabulary_from_tokenizer  # noqa: E402
from stcc.compiler.stepping import Configuration  # noqa: E402
from stcc.formats import Vocabulary, VocabularyMismatch  # noqa: E402
from stcc.runtime import Grammar, Matcher, allocate_token_bitmask, load  # noqa: E402
from stcc.runtime.device import kernels, tables  # noqa: E402
from stcc.runtime.device.operations import OperationMasks, pack_mask  # noqa: E402
from stcc.runtime.device.tables import CAPACITY, ENDED, FREE, TERMINATED, DeviceLimitError, DeviceTables, build_tables  # noqa: E402
from stcc.runtime.sampling import Walker  # noqa: E402
from stcc.runtime.seam import compile_file  # noqa: E402

SAMPLES = Path(__file__).parent.parent / "samples"
KERNELS: tuple[kernels.KernelName, ...] = ("walk", "action")
compiles_kernels = pytest.mark.skipif(shim.COMPILER is None, reason="the kernels' text is compiled with g++, which is missing")


@pytest.fixture(autouse=True)
def metal_by_shim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run by the shim, unless there is Metal."""
    if not mx.metal.is_available():
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(mx.fast, "metal_kernel", shim.metal_kernel)


@functools.cache
def grammar_of(name: str) -> Grammar:
    return nasty(name)


def tables_of(*grammars: Grammar) -> DeviceTables:
    vocabulary = grammars[0].vocabulary
    assert vocabulary is not None
    return build_tables([(grammar.machine, grammar.binding) for grammar in grammars], vocabulary)


def widened(found: DeviceTables) -> DeviceTables:
    """The same tables in 32 bits."""
    wide = {name: found.arrays[name].astype(np.int32) for name in ("table", "token_action")}
    return dataclasses.replace(found, arrays={**found.arrays, **wide})


def host_mask(matcher: Matcher) -> np.ndarray:
    allowed = np.zeros(matcher.grammar.masks.sets.size, np.bool_)
    allowed[matcher.allowed_tokens()] = True
    return allowed


def vector_of(matcher: Matcher, found: DeviceTables, number: int = 0) -> np.ndarray:
    return found.configuration(number, matcher.state, matcher.stack)


def spellings(vocabulary: Vocabulary) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for token in vocabulary.byte_order.tolist():
        found.setdefault(vocabulary.token(token), []).append(token)
    return found


def random_steps(grammar: Grammar, rng: np.random.Generator, most: int) -> Iterator[tuple[Matcher, int]]:
    """A matcher that accepts random tokens, and the next one: mostly allowed, sometimes any."""
    matcher = grammar.matcher()
    for _ in range(most):
        allowed = matcher.allowed_tokens()
        token = int(rng.choice(allowed) if len(allowed) and rng.random() < 0.9 else rng.integers(grammar.masks.sets.size))
        yield matcher, token
        matcher.accept_token(token)
    yield matcher, 0


def valid_steps(grammar: Grammar, rng: np.random.Generator, text: bytes, tokens: dict[bytes, list[int]]) -> Iterator[tuple[Matcher, int]]:
    """A matcher that reads ``text`` in randomly chosen tokens, and then the stop token."""
    matcher, at = grammar.matcher(), 0
    while at < len(text):
        spelled = [text[at:at + length] for length in range(1, 17) if text[at:at + length] in tokens]
        word = spelled[rng.integers(len(spelled))]
        token = int(rng.choice(tokens[word]))
        yield matcher, token
        assert matcher.accept_token(token)
        at += len(word)
    assert grammar.vocabulary is not None
    stop = grammar.vocabulary.stop_token_ids[0]
    yield matcher, stop
    assert matcher.accept_token(stop)
    yield matcher, stop


def walks(grammar: Grammar, rng: np.random.Generator, outputs: int, most: int) -> Iterator[tuple[Matcher, int]]:
    """Every configuration along random valid outputs (of single bytes, if the vocabulary has all) and some random ones."""
    assert grammar.vocabulary is not None
    tokens = spellings(grammar.vocabulary)
    for _ in range(outputs):
        yield from random_steps(grammar, rng, most)
    if all(bytes([byte]) in tokens for byte in range(256)):
        walker = Walker(grammar.machine)
        for _ in range(outputs):
            texts = [walker.output(rng, 6 * most) for _ in range(8)]
            yield from valid_steps(grammar, rng, max(texts, key=lambda text: sum(map(text.count, (b"[", b"{", b"(")))), tokens)


def check_kernels(found: DeviceTables, states: np.ndarray, expected: np.ndarray) -> None:
    for name in KERNELS:
        mask = np.array(kernels.KernelMasks(found, name).mask(mx.array(states)))
        assert (mask == expected).all(), (name, np.argwhere(mask != expected)[:5])


def check_operations(grammar: Grammar, found: DeviceTables, number: int, rng: np.random.Generator, outputs: int, steps: int,
                     ) -> tuple[np.ndarray, np.ndarray]:
    """Operations against the matcher at every configuration of random outputs; returns the state vectors and the host's masks."""
    masks, states, expected, after, tokens = OperationMasks(found), [], [], [], []
    for matcher, token in walks(grammar, rng, outputs, steps):
        if len(matcher.stack) + found.overlay > CAPACITY:
            continue  # what does not fit is another test's
        states.append(vector_of(matcher, found, number))
        expected.append(host_mask(matcher))
        probe = matcher.fork()
        probe.accept_token(token)
        after.append(vector_of(probe, found, number))
        tokens.append(token)
    before, allowed = np.stack(states), np.stack(expected)
    mask = np.array(masks.mask(mx.array(before)))
    assert mask.dtype == np.bool_ and (mask == allowed).all(), np.argwhere(mask != allowed)[:5]
    moved = np.array(masks.advance(mx.array(before), mx.array(tokens)))
    same = moved == np.stack(after)
    same[moved[:, 0] == TERMINATED, 1:] = True  # a terminated row's stack means nothing
    assert moved.dtype == np.int32 and same.all(), np.argwhere(~same)[:5]
    return before, allowed


@compiles_kernels
@pytest.mark.parametrize("name", GRAMMARS)
def test_all_sources_agree_with_the_matcher(name: str) -> None:
    grammar = grammar_of(name)
    found = tables_of(grammar)
    assert not found.wide and (found.rounds >= 3 or name not in ("tree", "any JSON"))
    states, expected = check_operations(grammar, found, 0, np.random.default_rng(len(name)), 6, 14)
    assert len(states) > 50 and expected.any() and not expected.all()
    assert TERMINATED in states[:, 0] and (states[:, 1].max() > 1) == (grammar.machine.sites > 0)
    check_kernels(found, states, expected)
    check_kernels(widened(found), states, expected)


@compiles_kernels
def test_rows_of_different_grammars_equal_single_ones() -> None:
    rng = np.random.default_rng(5)
    grammars = [grammar_of(name) for name in GRAMMARS]
    found = tables_of(*grammars)
    assert found.grammars == len(GRAMMARS)
    pairs = [check_operations(grammar, found, number, rng, 3, 12) for number, grammar in enumerate(grammars)]
    states, expected = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    free = found.initial([None, None])
    states = np.concatenate([states, free])
    expected = np.concatenate([expected, np.ones((2, found.vocabulary_size), np.bool_)])
    order = rng.permutation(len(states))
    states, expected = states[order], expected[order]
    check_kernels(found, states, expected)
    check_kernels(widened(found), states, expected)
    masks = OperationMasks(found)
    batched = np.array(masks.mask(mx.array(states)))
    assert (batched == expected).all()
    for row in rng.choice(len(states), 10, replace=False).tolist():
        assert (np.array(masks.mask(mx.array(states[row]))) == batched[row]).all()
    stayed = np.array(masks.advance(mx.array(free), mx.array([3, 4])))
    assert (stayed == free).all()


@compiles_kernels
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(random_machines(), min_size=1, max_size=3), random_vocabularies(), st.integers(0, 1 << 30))
def test_random_machines(machines: list[object], vocabulary: Vocabulary, seed: int) -> None:
    grammars = [bound(machine, vocabulary) for machine in machines]  # type: ignore[arg-type]
    found = tables_of(*grammars)
    rng = np.random.default_rng(seed)
    pairs = [check_operations(grammar, found, number, rng, 4, 10) for number, grammar in enumerate(grammars)]
    states, expected = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    check_kernels(found, states, expected)


@compiles_kernels
@pytest.mark.parametrize("name", GRAMMARS)
def test_any_state_on_any_stack(name: str) -> None:
    """Reading bytes says what every source says, in configurations that no output reaches too."""
    grammar, rng = grammar_of(name), np.random.default_rng(17)
    machine, vocabulary, found = grammar.machine, grammar.vocabulary, tables_of(grammar)
    assert vocabulary is not None
    oracle, states, expected = Oracle(machine, vocabulary), [], []
    for state in inner_states(machine):
        for depth in range(4 if machine.sites else 1):
            stack = tuple(rng.integers(0, machine.sites, depth).tolist()) if depth else ()
            states.append(found.configuration(0, state, stack))
            expected.append(np.isin(np.arange(vocabulary.size), oracle.allowed(Configuration(state, stack))))
    before, allowed = np.stack(states), np.stack(expected)
    assert (np.array(OperationMasks(found).mask(mx.array(before))) == allowed).all()
    check_kernels(found, before, allowed)


@compiles_kernels
def test_every_sample() -> None:
    vocabulary = vocabulary_from_tokenizer(TRAINED["byte-level"])
    sources = [*sorted(SAMPLES.glob("*.schema.json")), *sorted(SAMPLES.glob("*.regex"))]
    grammars = [load(compile_file(source), vocabulary=vocabulary) for source in sources]
    assert len(grammars) >= 14
    found, rng = tables_of(*grammars), np.random.default_rng(11)
    pairs = [check_operations(grammar, found, number, rng, 3, 12) for number, grammar in enumerate(grammars)]
    states, expected = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    check_kernels(found, states, expected)


@compiles_kernels
def test_a_real_vocabulary() -> None:
    if not (SHARED / "qwen3").is_dir():
        pytest.skip("the real tokenizers are not beside the repository")
    vocabulary = vocabulary_from_tokenizer(SHARED / "qwen3")
    artifacts = [compile_file(SAMPLES / "thread.schema.json"), compile_json_schema(True)]
    grammars = [load(artifact, vocabulary=vocabulary) for artifact in artifacts]
    found, rng = tables_of(*grammars), np.random.default_rng(2)
    pairs = [check_operations(grammar, found, number, rng, 1, 6) for number, grammar in enumerate(grammars)]
    texts = (b'{"author":"a","text":"t","upvotes":1,"replies":[{"author":"b","text":"', b'[[{"a":[{"b":[[1')
    for number, (grammar, text) in enumerate(zip(grammars, texts, strict=True)):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(text) and len(matcher.stack) > 0
        pairs.append((vector_of(matcher, found, number)[None], host_mask(matcher)[None]))
    states, expected = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    assert (np.array(OperationMasks(found).mask(mx.array(states))) == expected).all()
    check_kernels(found, states, expected)


@compiles_kernels
def test_a_full_stack_masks_what_would_not_fit() -> None:
    grammar = grammar_of("any JSON")
    found = tables_of(grammar)
    matcher = grammar.matcher()
    states, expected = [], []
    assert matcher.accept_bytes(b"[" * (CAPACITY - 3))
    while len(matcher.stack) < CAPACITY:
        states.append(vector_of(matcher, found))
        expected.append(host_mask(matcher))
        for token in np.flatnonzero(expected[-1]).tolist():
            probe = matcher.fork()
            probe.accept_token(token)
            expected[-1][token] = len(probe.stack) <= CAPACITY
        assert matcher.accept_bytes(b"[")
    assert not (expected[-1] == host_mask(matcher)).all()
    before, allowed = np.stack(states), np.stack(expected)
    masks = OperationMasks(found)
    assert (np.array(masks.mask(mx.array(before))) == allowed).all()
    check_kernels(found, before, allowed)
    refused = np.flatnonzero(host_mask(matcher) & ~allowed[-1])
    assert len(refused)
    state = mx.array(before[-1:])
    for token in refused[:3].tolist():
        assert (np.array(masks.advance(state, mx.array([token]))) == before[-1:]).all()
    assert matcher.accept_bytes(b"[") and len(matcher.stack) > CAPACITY
    with pytest.raises(DeviceLimitError, match="64"):
        vector_of(matcher, found)


def test_a_whole_output_stays_on_the_device() -> None:
    """A loop that reads nothing before its end gives the tokens of the matcher."""
    grammar = grammar_of("tree")
    masks = OperationMasks(tables_of(grammar))
    rng = np.random.default_rng(3)
    scores = rng.random((40, masks.tables.vocabulary_size)).astype(np.float32)
    state, tokens = mx.array(masks.tables.initial([0])), []
    for row in scores:
        tokens.append(mx.argmax(mx.where(masks.mask(state), mx.array(row)[None], -1.0), axis=-1))
        state = masks.advance(state, tokens[-1])
    matcher = grammar.matcher()
    for row, token in zip(scores, np.array(mx.concatenate(tokens)).tolist(), strict=True):
        mask = host_mask(matcher)
        if not mask.any():
            break
        assert token == int(np.argmax(np.where(mask, row, -1)))
        assert matcher.accept_token(token)
    assert matcher.steps > 10


def test_packed_masks_are_the_hosts_bitmasks() -> None:
    grammar = grammar_of("any JSON")
    found = tables_of(grammar)
    matcher = grammar.matcher()
    matcher.accept_bytes(b'[{"a":')
    bitmask = allocate_token_bitmask(1, found.vocabulary_size)
    matcher.fill_next_token_bitmask(bitmask)
    packed = np.array(pack_mask(OperationMasks(found).mask(mx.array(vector_of(matcher, found)))))
    assert packed.dtype == np.uint32 and (packed.view(np.int32) == bitmask[0]).all()


def hostile_states(found: DeviceTables, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Vectors whose parts are each in range, just out of range, or anything."""
    states, sites = found.states, int(found.arrays["sizes"][2])
    anything = rng.integers(-2**31, 2**31, (rows, tables.WIDTH))
    near = np.concatenate([rng.integers(-4, states + 2, (rows, 1)), rng.integers(-2, CAPACITY + 3, (rows, 1)),
                           rng.integers(-2, sites + 2, (rows, CAPACITY))], axis=1)
    edges = rng.choice([-2**31, -1, 0, CAPACITY, CAPACITY + 1, states, sites, 2**31 - 1], (rows, tables.WIDTH))
    inside = np.concatenate([rng.integers(0, states, (rows, 1)), rng.integers(0, CAPACITY + 1, (rows, 1)),
                             rng.integers(0, max(sites, 1), (rows, CAPACITY))], axis=1)
    kind = rng.integers(0, 4, (rows, tables.WIDTH))
    kind[: rows // 4] = 3
    mixed = np.choose(kind, [anything, near, edges, inside])
    mixed[mixed[:, 0] == FREE, 0] = 0
    return mixed.astype(np.int32)


@compiles_kernels
def test_hostile_state_vectors_stay_in_bounds() -> None:
    found = tables_of(*(grammar_of(name) for name in GRAMMARS))
    states = hostile_states(found, np.random.default_rng(9), 400)
    broken = ~((states[:, 0] >= 0) & (states[:, 0] < found.states) & (states[:, 1] >= 0) & (states[:, 1] <= CAPACITY)
               | (states[:, 0] == ENDED))
    assert 50 < broken.sum() < 350
    masks = OperationMasks(found)
    mask = np.array(masks.mask(mx.array(states)))
    after = masks.advance(mx.array(states), mx.array(np.random.default_rng(1).integers(-2**31, 2**31, 400).astype(np.int32)))
    assert (np.array(after) == states).all()  # tokens out of range
    assert not mask[broken].any() and mask[~broken].any()
    action = np.array(kernels.KernelMasks(found, "action").mask(mx.array(states)))
    assert (action == mask).all()
    for version in (found, widened(found)):
        walk = np.array(kernels.KernelMasks(version, "walk").mask(mx.array(states)))
        assert not walk[broken].any() and walk[~broken].any()


@compiles_kernels
@pytest.mark.parametrize(("kernel", "check"), [("walk", "q < states && "), ("walk", " && kept <= CAPACITY"), ("action", "kept >= 0 && "),
                                               ("walk", "site >= 0 && site < sites && ")])
def test_the_sanitizer_sees_a_missing_check(kernel: kernels.KernelName, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = kernels.kernel_body(kernel)
    assert check in body
    monkeypatch.setattr(kernels, "kernel_body", lambda name: body.replace(check, ""))
    found = tables_of(grammar_of("tree"))
    states = hostile_states(found, np.random.default_rng(9), 400)
    if mx.fast.metal_kernel is not shim.metal_kernel:
        pytest.skip("there is Metal, which has no sanitizer")
    with pytest.raises(shim.SanitizerError):
        kernels.KernelMasks(found, kernel).mask(mx.array(states))


def test_constants_of_the_kernels() -> None:
    from stcc.formats import binding

    for name in KERNELS:
        constants = dict(re.findall(r"^const int ([A-Z]+) = (-?\d+);", kernels.kernel_body(name), re.M))
        assert set(constants) >= {"ENDED", "FREE", "CAPACITY", "WIDTH"}
        for constant, value in constants.items():
            assert int(value) == getattr(tables, constant, getattr(binding, constant, None)), constant
        assert "barrier" not in re.sub(r"//.*", "", kernels.kernel_body(name))


def test_kernels_say_that_they_need_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    with pytest.raises(kernels.DeviceUnavailable, match="Metal"):
        kernels.KernelMasks(tables_of(grammar_of("tree")), "walk")


def test_refusals() -> None:
    grammar = grammar_of("tree")
    vocabulary = grammar.vocabulary
    assert vocabulary is not None
    with pytest.raises(DeviceLimitError, match="no grammar"):
        build_tables([], vocabulary)
    with pytest.raises(VocabularyMismatch):
        build_tables([(grammar.machine, grammar.binding)], Vocabulary.from_tokens([b"a"], []))
    many = Vocabulary.from_tokens([b"[" * 3000], [])
    opened = tables_of(bound(grammar_of("any JSON").machine, many))
    assert opened.overlay > kernels.MOST_OVERLAY
    with pytest.raises(DeviceLimitError, match="overlay|holds"):
        kernels.overlay_size(opened)
