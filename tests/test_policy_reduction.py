"""What the compiler finds about policies, against a literal simulation of them: validity, probabilities, classes, dead continuations."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_cases import NAMES, History, Simulator, artifact_of, document_of, documents, yaml_text

from stcc.compiler import compile_policy
from stcc.compiler.errors import UnsatisfiableError
from stcc.compiler.frontends.policy.document import parse_document
from stcc.compiler.frontends.policy.exploration import explore
from stcc.compiler.frontends.policy.reading import read_model
from stcc.compiler.frontends.policy.reduction import coarsest_partition, verify_partition
from stcc.compiler.options import Deadline
from stcc.formats.policy import RUNNING, PolicyGraph, verify_policy, world_counts
from stcc.runtime.load import load


def graph_of(name: str) -> PolicyGraph:
    graph = artifact_of(name).policy
    assert graph is not None
    return graph


def compiled(document: dict[str, Any]) -> PolicyGraph:
    try:
        graph = compile_policy(yaml_text(document)).policy
    except UnsatisfiableError:
        simulator = Simulator(document)
        assert not any(valid for world in simulator.worlds for _, _, valid in simulator.complete(world))
        assume(False)
        raise
    assert graph is not None
    return graph


def numbers(graph: PolicyGraph, history: History) -> tuple[tuple[int, int], ...]:
    return tuple((graph.actions.index(action), graph.observations.index(seen)) for action, seen in history)


def in_environment(graph: PolicyGraph, world: int) -> dict[tuple[tuple[int, int], ...], tuple[float, bool]]:
    """Complete histories by the artifact's environment."""
    found: dict[tuple[tuple[int, int], ...], tuple[float, bool]] = {}
    stack: list[tuple[tuple[tuple[int, int], ...], int, float]] = [((), int(graph.starts[world]), 1.0)]
    width = len(graph.actions)
    while stack:
        history, node, weight = stack.pop()
        if graph.ending[node] != RUNNING:
            before = found.get(history, (0.0, False))
            found[history] = before[0] + weight * 1.0, before[1] or bool(graph.ending[node] == 2)
            continue
        for action in range(width):
            low, high = graph.outcomes.offsets[node * width + action], graph.outcomes.offsets[node * width + action + 1]
            for edge in range(low, high):
                step = (action, int(graph.outcomes.observation[edge]))
                stack.append(((*history, step), int(graph.outcomes.target[edge]), weight * float(graph.outcome_weights[edge])))
    return found


def simulated(simulator: Simulator, graph: PolicyGraph, world: str) -> dict[tuple[tuple[int, int], ...], tuple[Fraction, bool]]:
    found: dict[tuple[tuple[int, int], ...], tuple[Fraction, bool]] = {}
    for history, weight, valid in simulator.complete(world):
        key = numbers(graph, history)
        before = found.get(key, (Fraction(0), False))
        found[key] = before[0] + weight, before[1] or valid
    return found


def completions(simulator: Simulator, graph: PolicyGraph) -> dict[tuple[tuple[int, int], ...], frozenset[tuple[tuple[int, int], ...]]]:
    """For every running history its valid continuations, over all worlds: L(h), by the definition."""
    running: dict[tuple[tuple[int, int], ...], set[tuple[tuple[int, int], ...]]] = {}
    for world in simulator.worlds:
        for history, _, valid in simulator.complete(world):
            steps = numbers(graph, history)
            for size in range(len(steps)):
                known = running.setdefault(steps[:size], set())
                if valid:
                    known.add(steps[size:])
    return {history: frozenset(words) for history, words in running.items()}


def class_after(graph: PolicyGraph, history: tuple[tuple[int, int], ...]) -> int:
    number = 0
    for action, seen in history:
        number = dict(graph.classes.of(number, action, len(graph.actions))).get(seen, -1) if number >= 0 else -1
    return number


def check_classes(graph: PolicyGraph, languages: Mapping[tuple[tuple[int, int], ...], frozenset[tuple[tuple[int, int], ...]]]) -> None:
    """Classes are exactly the right congruence of L(h), and dead continuations exactly those that no valid continuation begins with."""
    by_class: dict[int, frozenset[tuple[tuple[int, int], ...]]] = {}
    by_language: dict[frozenset[tuple[tuple[int, int], ...]], int] = {}
    dead = set(map(tuple, graph.dead.tolist()))
    for history, words in languages.items():
        number = class_after(graph, history)
        assert (number < 0) == (not words)
        assert by_class.setdefault(number, words) == words, "sound: one class, one language"
        assert by_language.setdefault(words, number) == number, "coarsest: one language, one class"
        if number >= 0:
            begun = {word[0][0] for word in words}
            assert {action for action in range(len(graph.actions)) if (number, action) in dead} == set(range(len(graph.actions))) - begun
    accepting = int(graph.class_accepting.sum())
    assert len(by_class.keys() - {-1}) + accepting == len(graph.class_accepting)


def check_abstractions(graph: PolicyGraph, languages: Mapping[tuple[tuple[int, int], ...], frozenset[tuple[tuple[int, int], ...]]]) -> None:
    """Verdicts by the definition, and proofs that prove."""
    positions = graph.positions
    assert positions is not None
    for verdict, keys in zip(graph.abstractions, positions.keys.tolist(), strict=True):
        grouped: dict[int, set[frozenset[tuple[tuple[int, int], ...]]]] = {}
        key_of: dict[tuple[tuple[int, int], ...], int] = {}
        for history, words in languages.items():
            place = 0
            for action, seen in history:
                place = dict(positions.steps.of(place, action, len(graph.actions)))[seen]
            assert not positions.ended[place]
            key_of[history] = keys[place]
            grouped.setdefault(keys[place], set()).add(words)
        assert verdict.sound == all(len(group) == 1 for group in grouped.values())
        assert verdict.keys == len(grouped)
        if verdict.sound:
            assert not verdict.proof
        else:
            first, second, word = verdict.proof
            assert key_of[first] == key_of[second] and word in languages[first] and word not in languages[second]
        if verdict.bisimulation:
            assert verdict.sound


@settings(max_examples=60, deadline=None)
@given(documents())
def test_random_policies_mean_what_the_simulation_says(document: dict[str, Any]) -> None:
    graph, simulator = compiled(document), Simulator(document)
    assert verify_policy(graph) == []
    for number, world in enumerate(graph.worlds):
        assert abs(graph.world_weights[number] - float(simulator.worlds[world])) < 1e-15
        mine, wanted = in_environment(graph, number), simulated(simulator, graph, world)
        assert mine.keys() == wanted.keys()
        for history, (weight, valid) in mine.items():
            assert valid == wanted[history][1] and abs(weight - float(wanted[history][0])) < 1e-12


@settings(max_examples=60, deadline=None)
@given(documents())
def test_classes_and_abstractions_of_random_policies(document: dict[str, Any]) -> None:
    graph = compiled(document)
    languages = completions(Simulator(document), graph)
    check_classes(graph, languages)
    check_abstractions(graph, languages)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("triage", "warehouse")])
def test_sample_policies_mean_what_the_simulation_says(name: str) -> None:
    graph, simulator = graph_of(name), Simulator(document_of(name))
    languages = completions(simulator, graph)
    check_classes(graph, languages)
    check_abstractions(graph, languages)
    for counts in world_counts(graph):
        histories = list(simulator.complete(counts.world))
        assert counts.traces == len(histories) and counts.valid == sum(valid for _, _, valid in histories)
        prefixes = {history[:size] for history, _, _ in histories for size in range(len(history))}
        assert counts.prefixes == len(prefixes)


@settings(max_examples=40, deadline=None)
@given(documents(), st.integers(0, 10**6), st.integers(-1, 6))
def test_the_verifier_accepts_the_partition_and_little_else(document: dict[str, Any], place: int, number: int) -> None:
    """Moving one position into another class is seen: classes of the coarsest partition differ in their futures."""
    found = explore(read_model(parse_document(yaml_text(document).encode())), 10_000, Deadline(20))
    of = coarsest_partition(found).of
    assert verify_partition(found, of) == []
    assume(of[0] >= 0)
    moved, position = of.copy(), place % len(of)
    moved[position] = number % (int(of.max()) + 2) - 1
    if moved[position] != of[position] and np.count_nonzero(of == of[position]) > 1:
        assert verify_partition(found, moved)


def test_refund_is_the_papers() -> None:
    owner, stranger = world_counts(graph_of("refund"))
    assert (owner.traces, owner.valid, owner.prefixes) == (5461, 60, 1365)
    assert (stranger.traces, stranger.valid, stranger.prefixes) == (5461, 0, 1365)
    graph = graph_of("refund")
    assert len(graph.dead) == 45 and int((~graph.class_accepting).sum()) == 17


@pytest.mark.parametrize("name", NAMES)
def test_the_machine_reads_exactly_the_valid_histories(name: str) -> None:
    artifact, graph = artifact_of(name), graph_of(name)
    matcher = load(artifact).matcher()
    found = 0
    for world in range(len(graph.worlds)):
        if name in ("triage", "warehouse") and world:
            continue
        for history, (_, valid) in in_environment(graph, world).items():
            if valid or (len(history) < 5 and world == 0):
                matcher.reset()
                accepted = matcher.accept_bytes(graph.spell(history).encode()) and matcher.is_accepting()
                assert accepted if valid else not accepted or any(
                    in_environment(graph, other).get(history, (0, False))[1] for other in range(len(graph.worlds)))
                found += valid
    assert found
