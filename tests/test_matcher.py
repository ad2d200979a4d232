"""The matcher against byte-by-byte stepping: accepting, rolling back, forking, forced text."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from binding_cases import GRAMMARS, random_machines, random_vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_cases import Oracle, bound, configuration_of, nasty

from stcc.compiler.stepping import TERMINATED, Configuration, allowed, may_end, run, step
from stcc.formats import Artifact, Vocabulary, VocabularyMismatch
from stcc.formats.machine import Machine
from stcc.runtime import ConstraintError, Grammar, Matcher, RollbackError, TokenOutOfRange, VocabularyRequired, load


def state_of(matcher: Matcher) -> tuple[object, ...]:
    """Everything that can be seen of a matcher."""
    return (matcher.state, matcher.stack, matcher.is_accepting(), matcher.is_terminated(), matcher.tokens_left, matcher.steps,
            matcher.allowed_tokens().tolist(), matcher.forced_bytes())


def check_every_token(oracle: Oracle, matcher: Matcher) -> None:
    """Every token is accepted exactly where stepping its bytes accepts it, leads there, and can be undone."""
    here = configuration_of(matcher)
    after = oracle.after(here)
    assert matcher.is_accepting() == may_end(oracle.machine, here)
    for token in range(oracle.vocabulary.size):
        if token in oracle.vocabulary.stop_token_ids:
            assert matcher.accept_token(token) == matcher.is_accepting()
            assert matcher.is_terminated() == matcher.is_accepting()
        else:
            assert matcher.accept_token(token) == (token in after)
            assert configuration_of(matcher) == after.get(token, here)
        if matcher.steps:
            matcher.rollback(matcher.steps)
        assert configuration_of(matcher) == here and not matcher.is_terminated()


@pytest.mark.parametrize("name", GRAMMARS)
def test_accepts_what_stepping_accepts(name: str) -> None:
    grammar, rng = nasty(name), random.Random(name)
    oracle = Oracle(grammar.machine, grammar.vocabulary)
    for _ in range(4):
        matcher = grammar.matcher()
        for _ in range(12):
            probe = matcher.fork()
            probe.rollback(0)
            probe._history.clear()  # so that undoing everything comes back here
            check_every_token(oracle, probe)
            choices = sorted(oracle.after(configuration_of(matcher)))
            if not choices:
                break
            assert matcher.accept_token(rng.choice(choices))


@settings(max_examples=60, deadline=None)
@given(random_machines(), random_vocabularies(), st.randoms(use_true_random=False))
def test_random_machines(machine: Machine, vocabulary: Vocabulary, rng: random.Random) -> None:
    oracle, matcher = Oracle(machine, vocabulary), bound(machine, vocabulary).matcher()
    for _ in range(6):
        probe = matcher.fork()
        probe._history.clear()
        check_every_token(oracle, probe)
        choices = sorted(oracle.after(configuration_of(matcher)))
        if not choices:
            break
        assert matcher.accept_token(rng.choice(choices))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(GRAMMARS)), st.lists(st.integers(0, 10**6), max_size=40), st.sampled_from((None, 40)))
def test_walks_with_rollbacks_and_forks_equal_a_fresh_replay(name: str, moves: list[int], budget: int | None) -> None:
    grammar = _grammar(name)
    matcher, accepted = grammar.matcher(budget), []
    for move in moves:
        choices = matcher.allowed_tokens().tolist()
        if move % 5 == 0 and accepted:
            steps = move // 5 % len(accepted) + 1
            matcher.rollback(steps)
            del accepted[-steps:]
        elif move % 5 == 1:
            left_behind, matcher = matcher, matcher.fork()
            for token in choices[:1]:
                left_behind.accept_token(token)  # must not show in the fork
        elif choices:
            token = choices[move % len(choices)]
            assert matcher.accept_token(token)
            accepted.append(token)
    replay = grammar.matcher(budget)
    assert all(replay.accept_token(token) for token in accepted)
    assert state_of(matcher) == state_of(replay)
    matcher.reset()
    assert state_of(matcher) == state_of(grammar.matcher(budget))


_grammars: dict[str, Grammar] = {}


def _grammar(name: str) -> Grammar:
    if name not in _grammars:
        _grammars[name] = nasty(name)
    return _grammars[name]


def test_a_stop_token_terminates_and_can_be_undone() -> None:
    grammar = nasty("closed form")
    (stop,), matcher = grammar.vocabulary.stop_token_ids, grammar.matcher()
    assert not matcher.accept_token(stop)
    assert matcher.accept_bytes(b'{"n":"","k":true,"c":[]}') and matcher.is_accepting()
    assert matcher.allowed_tokens().tolist() == [stop]
    assert matcher.accept_token(stop) and matcher.is_terminated() and matcher.is_accepting()
    assert not matcher.accept_token(stop) and not matcher.accept_bytes(b" ") and matcher.allowed_tokens().tolist() == []
    assert not matcher.accept_token(65) and matcher.forced_tokens() == [] and matcher.need() == 0
    matcher.rollback(1)
    assert not matcher.is_terminated() and matcher.allowed_tokens().tolist() == [stop]
    matcher.rollback(1)
    assert state_of(matcher) == state_of(grammar.matcher())


def test_token_ids_out_of_range_and_of_other_types() -> None:
    grammar = nasty("closed form")
    matcher, size = grammar.matcher(), grammar.vocabulary.size
    for token in (-1, size, 2**40):
        with pytest.raises(TokenOutOfRange, match=f"0 to {size - 1}"):
            matcher.accept_token(token)
    opening = grammar.vocabulary.byte_order[grammar.vocabulary.rank[matcher.allowed_tokens()[0]]]
    assert matcher.accept_token(np.int32(opening))
    with pytest.raises(TypeError):
        matcher.accept_token("a")  # type: ignore[arg-type]
    assert not matcher.accept_token(size - 1)  # padding has no bytes


def test_rollback_past_the_start_changes_nothing() -> None:
    matcher = nasty("tree").matcher()
    assert matcher.accept_bytes(b'{"n"')
    for steps in (2, -1):
        with pytest.raises(RollbackError):
            matcher.rollback(steps)
    assert matcher.steps == 1 and matcher.forced_bytes() == b':"'


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(GRAMMARS)), st.binary(max_size=6), st.integers(0, 2**32 - 1))
def test_bytes_and_forced_bytes_equal_stepping(name: str, noise: bytes, seed: int) -> None:
    grammar, rng = _grammar(name), random.Random(seed)
    machine, matcher = grammar.machine, grammar.matcher()
    here = Configuration(machine.start)
    for _ in range(rng.randrange(25)):
        live = allowed(machine, here)
        assert list(matcher.allowed_bytes()) == live
        if not live:
            break
        byte = rng.choice(live)
        here = step(machine, here, byte)
        assert matcher.accept_bytes(bytes([byte])) and configuration_of(matcher) == here
    forced = bytearray()
    ahead = here
    while not may_end(machine, ahead) and len(allowed(machine, ahead)) == 1:
        forced.append(allowed(machine, ahead)[0])
        ahead = step(machine, ahead, forced[-1])
    assert matcher.forced_bytes() == forced
    after = run(machine, noise, here)
    assert matcher.accept_bytes(noise) == (after is not None)
    assert configuration_of(matcher) == (here if after is None else after)


def test_forced_tokens_follow_plans_across_states_and_returns() -> None:
    plain = nasty("tree")
    vocabulary, machine = plain.vocabulary, plain.machine
    ids = {vocabulary.token(token): token for token in reversed(range(vocabulary.size))}
    plans: dict[int, list[int]] = {}
    for text, planned in ((b"", [b'{"n":"']), (b'{"n":"a"', [b",", b'"']), (b'{"n":"a","', [b"c", b'":', b"["])):
        plans[plain.stacks.read(*plain.start, text)[0]] = [ids[token] if token in ids else ids[token[:1]] for token in planned]
    offsets = np.zeros(machine.states + 1, np.int32)
    offsets[1:] = np.cumsum([len(plans.get(state, [])) for state in range(machine.states)])
    tokens = np.array([token for state in range(machine.states) for token in plans.get(state, [])], np.int32)
    matcher = bound(machine, vocabulary, plan_offsets=offsets, plan_tokens=tokens).matcher()
    assert matcher.forced_tokens() == [ids[b'{"n":"']] and matcher.steps == 0
    assert matcher.accept_bytes(b'{"n":"a"')
    forced = matcher.forced_tokens()
    assert b"".join(vocabulary.token(token) for token in forced) == b',"c":['
    assert all(matcher.accept_token(token) for token in forced) and matcher.forced_tokens() == []


def test_a_broken_plan_stops_where_the_machine_refuses() -> None:
    grammar = nasty("tree")
    offsets = np.zeros(grammar.machine.states + 1, np.int32)
    offsets[grammar.machine.start + 1:] = 2
    comma = int(np.flatnonzero([grammar.vocabulary.token(t) == b"{" for t in range(grammar.vocabulary.size)])[0])
    matcher = bound(grammar.machine, grammar.vocabulary, plan_offsets=offsets, plan_tokens=np.array([comma, comma], np.int32)).matcher()
    assert matcher.forced_tokens() == [comma]


def test_the_cover_leaves_out_short_tokens_unless_none_would_be_left() -> None:
    plain = nasty("closed form")
    vocabulary, machine = plain.vocabulary, plain.machine
    inside = plain.stacks.read(*plain.start, b'{"n":"')[0]
    lengths = np.diff(vocabulary.token_offsets)
    matcher = plain.matcher()
    assert matcher.accept_bytes(b'{"n":"')
    everything = matcher.allowed_tokens()
    for cover in (0, 1, 2, 3, 4, 200):
        covers = np.zeros(machine.states, np.uint8)
        covers[inside] = cover
        covered = bound(machine, vocabulary, cover=covers).matcher(canonical=True)
        assert covered.accept_bytes(b'{"n":"')
        long_enough = everything[lengths[everything] >= cover]
        assert covered.allowed_tokens().tolist() == (long_enough if len(long_enough) else everything).tolist()
        bitmask = np.zeros((1, (vocabulary.size + 31) // 32), np.int32)
        assert covered.fill_next_token_bitmask(bitmask)
        assert np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little")).tolist() == covered.allowed_tokens().tolist()
        assert covered.accept_token(int(everything[0]))  # a restriction of masks, not of the language


def test_deep_stacks_are_exact_and_cheap_to_copy() -> None:
    grammar = nasty("any JSON")
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b"[" * 5001) and len(matcher.stack) == 5000  # the outermost array is in tail position
    fork = matcher.fork()
    assert fork.accept_bytes(b"]" * 5001) and fork.is_accepting() and fork.stack == () and len(matcher.stack) == 5000
    assert not fork.accept_bytes(b"]")


def test_an_empty_language_end_is_reached_at_the_start() -> None:
    none = np.zeros(0, np.int32)
    machine = Machine(byte_class=np.zeros(256, np.uint8), table=np.full((1, 1), -1, np.int32), exits=np.zeros(1, np.int16),
                      accepting=np.ones(1, np.bool_), edge_target=none, edge_push_offsets=np.zeros(1, np.int32), edge_pushes=none,
                      returns=none.reshape(0, 1), start=0)
    matcher = bound(machine, Vocabulary.from_tokens([b"a", b""], [1])).matcher(max_tokens=0)
    assert matcher.is_accepting() and matcher.allowed_tokens().tolist() == [1] and matcher.state == TERMINATED


def test_load_takes_paths_bytes_and_artifacts_and_names_a_wrong_vocabulary(tmp_path: object) -> None:
    grammar = nasty("tree")
    artifact = Artifact.create("json_schema", grammar.machine, {"name": "tree"}, [grammar.binding])
    path = f"{tmp_path}/tree.stc"
    artifact.save(path)
    for source in (path, artifact.to_bytes(), artifact):
        matcher = load(source, vocabulary=grammar.vocabulary).matcher()
        assert matcher.allowed_tokens().tolist() == grammar.matcher().allowed_tokens().tolist()
    other = Vocabulary.from_tokens([b"{"], [], name="other")
    with pytest.raises(VocabularyMismatch, match=f"(?s){grammar.vocabulary.fingerprint}.*{other.fingerprint}"):
        load(path, vocabulary=other)
    with pytest.raises(VocabularyRequired):
        load(path).matcher(max_tokens=10)
    assert load(path).matcher().forced_bytes() == b'{"n":"'


def test_errors_are_value_errors() -> None:
    assert issubclass(ConstraintError, ValueError)


def test_importing_the_runtime_is_light() -> None:
    code = ("import sys, stcc.runtime; "
            "print([name for name in ('click', 'rich', 'mlx', 'torch', 'transformers', 'stcc.compiler') if name in sys.modules])")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
