"""Walk budgets and few-path structure against brute force, on random graphs, cyclic and exponential ones included."""

from __future__ import annotations

import itertools
import random
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.analyses import capped_traversal, certified_lift
from stcc.compiler.analyses.few_paths import TwoTerminal, blocks, kernel, some_paths, two_terminal, verify_blocks, verify_kernel
from stcc.compiler.analyses.fixed_point import adjacency, mangrove_factors, path_counts
from stcc.compiler.analyses.graphs import Digraph, components, exact_walks, topological_order, universal_source, walks_up_to
from stcc.compiler.analyses.vanishing_products import pair_gap, root_gap
from stcc.compiler.analyses.walk_budgets import PairBudget, RootBudget, few_paths

INFINITE = None


def random_graph(chance: random.Random, most: int = 8) -> Digraph:
    """Sparse and dense, acyclic and not, with loops and parallel edges now and then."""
    count = chance.randint(1, most)
    share = chance.choice((0.1, 0.2, 0.35, 0.6))
    acyclic = chance.random() < 0.6
    pairs = [(u, v) for u in range(count) for v in range(count) if (u < v if acyclic else True) and chance.random() < share]
    if pairs and chance.random() < 0.2:
        pairs.append(chance.choice(pairs))
    order = list(range(count))
    chance.shuffle(order)
    return Digraph(count, tuple((order[u], order[v]) for u, v in pairs))


def brute_counts(graph: Digraph) -> list[list[int | None]]:
    """All numbers of walks, by powers of the adjacency matrix; None where a vertex on a cycle lies between."""
    count = graph.vertices
    matrix = np.zeros((count, count), object)
    for u, v in graph.edges:
        matrix[u, v] += 1
    powers = [np.eye(count, dtype=int).astype(object)]
    for _ in range(count):
        powers.append(powers[-1].dot(matrix))
    total = sum(powers[1:], powers[0])
    onward = np.array(total > 0, bool)
    cyclic = [bool(sum(power[v, v] for power in powers[1:])) for v in range(count)]
    return [[INFINITE if any(cyclic[w] and onward[u, w] and onward[w, v] for w in range(count)) else int(total[u, v]) for v in range(count)]
            for u in range(count)]


def within(count: int | None, budget: int) -> bool:
    return count is not None and count <= budget


def brute_root(instance: RootBudget) -> bool:
    counts = brute_counts(instance.graph)[instance.root]
    return all(within(count, budget) for count, budget in zip(counts, instance.budgets, strict=True)) and any(
        counts[target] for target in instance.targets)


def brute_pair(instance: PairBudget) -> bool:
    counts = brute_counts(instance.graph)
    return all(within(counts[u][v], instance.budgets[u][v]) for u in range(instance.graph.vertices)
               for v in range(instance.graph.vertices)) and bool(counts[instance.source][instance.target])


def random_root(chance: random.Random) -> RootBudget:
    graph = random_graph(chance)
    most = chance.choice((1, 2, 3))
    budgets = tuple(chance.randint(0, most) if chance.random() < 0.1 else most for _ in range(graph.vertices))
    return RootBudget(graph, chance.randrange(graph.vertices), budgets, tuple(chance.sample(range(graph.vertices), 1)))


def diamonds(count: int) -> Digraph:
    edges = [edge for number in range(count) for edge in ((3 * number, 3 * number + 1), (3 * number, 3 * number + 2),
                                                        (3 * number + 1, 3 * number + 3), (3 * number + 2, 3 * number + 3))]
    return Digraph(3 * count + 1, tuple(edges))


def cycle(count: int) -> Digraph:
    return Digraph(count, tuple((vertex, (vertex + 1) % count) for vertex in range(count)))


# -- counting -----------------------------------------------------------------------------------------------------------------


def test_counts_of_walks() -> None:
    chance = random.Random(1)
    for _ in range(600):
        graph = random_graph(chance)
        expected = brute_counts(graph)
        source = chance.randrange(graph.vertices)
        assert exact_walks(graph, source) == expected[source]
        long = walks_up_to(graph, source, graph.vertices + 3)
        assert all(count == found for count, found in zip(expected[source], long, strict=True) if count is not None)
        capped = walks_up_to(graph, source, graph.vertices + 3, 4)
        assert capped == [min(count, 4) for count in long]
        assert (topological_order(graph) is None) == (None in [count for row in expected for count in row])


def test_walks_one_by_one() -> None:
    """Bounded counts against every walk written out."""
    chance = random.Random(2)
    for _ in range(80):
        graph = random_graph(chance, 5)
        ends = [0] * graph.vertices
        ends[0] = 1
        for length in range(1, 4):
            for walk in itertools.product(graph.edges, repeat=length):
                if walk[0][0] == 0 and all(left[1] == right[0] for left, right in itertools.pairwise(walk)):
                    ends[walk[-1][1]] += 1
        assert walks_up_to(graph, 0, 3) == ends


def test_components() -> None:
    chance = random.Random(3)
    for _ in range(300):
        graph = random_graph(chance)
        matrix = np.eye(graph.vertices, dtype=bool)
        for _ in range(graph.vertices):
            for u, v in graph.edges:
                matrix[:, v] |= matrix[:, u]
        found = components(graph)
        for u, v in itertools.product(range(graph.vertices), repeat=2):
            assert (found[u] == found[v]) == bool(matrix[u, v] and matrix[v, u])
        assert all(found[u] >= found[v] for u, v in graph.edges)


def test_the_universal_source() -> None:
    chance = random.Random(4)
    for _ in range(60):
        graph = random_graph(chance, 5)
        counts = exact_walks(universal_source(graph), 0)
        assert counts[1:] == [count for row in brute_counts(graph) for count in row]


def test_graphs_are_checked() -> None:
    for edges in (((0, 2),), ((-1, 0),)):
        with pytest.raises(ValueError, match="leaves the 2 vertices"):
            Digraph(2, edges)
    graph = Digraph(2, ((0, 1),))
    for wrong in (lambda: RootBudget(graph, 0, (1,), (1,)), lambda: RootBudget(graph, 2, (1, 1), (1,)),
                  lambda: RootBudget(graph, 0, (1, -1), (1,)), lambda: PairBudget(graph, 0, 1, ((1, 1),)),
                  lambda: PairBudget(graph, 0, 5, ((1, 1), (1, 1)))):
        with pytest.raises(ValueError, match="vert"):
            wrong()


# -- deciders (Theorems 3, 8, 9, 10, 17) --------------------------------------------------------------------------------------


def check_root(instance: RootBudget) -> bool:
    """All three deciders against brute force, and their counts and step bounds; whether the instance is in the language."""
    expected = brute_root(instance)
    traversal = capped_traversal.decide_root_budget(instance)
    lifted, lift = certified_lift.decide_root_budget(instance)
    assert traversal.accepted == lifted.accepted == (root_gap(instance) == 0) == expected, instance
    for verdict in (traversal, lifted):
        assert verdict.steps <= verdict.step_bound and (verdict.reason == "") == verdict.accepted
        if verdict.counts is not None:
            assert list(verdict.counts) == brute_counts(instance.graph)[instance.root]
    assert lift is not None or not expected
    return expected


def test_five_thousand_random_graphs() -> None:
    chance = random.Random(5)
    accepted = few = 0
    for _ in range(5000):
        instance = random_root(chance)
        accepted += check_root(instance)
        count, most = instance.graph.vertices, chance.choice((1, 2, 3))
        pairs = few_paths(instance.graph, chance.randrange(count), chance.randrange(count), most)
        verdict = capped_traversal.decide_pair_budget(pairs)
        assert verdict.accepted == (pair_gap(pairs) == 0) == brute_pair(pairs) and verdict.steps <= verdict.step_bound
        few += verdict.accepted
    assert 1000 < accepted < 4000 and 1000 < few < 4000


def test_pair_budgets_on_random_graphs() -> None:
    chance = random.Random(6)
    accepted = 0
    for _ in range(500):
        graph = random_graph(chance)
        count = graph.vertices
        if chance.random() < 0.5:
            instance = few_paths(graph, chance.randrange(count), chance.randrange(count), chance.choice((1, 2, 3)))
        else:
            budgets = tuple(tuple(chance.choice((1, 2, 3, 5)) for _ in range(count)) for _ in range(count))
            instance = PairBudget(graph, chance.randrange(count), chance.randrange(count), budgets)
        expected = brute_pair(instance)
        verdict = capped_traversal.decide_pair_budget(instance)
        assert verdict.accepted == (pair_gap(instance) == 0) == expected
        assert verdict.steps <= verdict.step_bound
        if count <= 4:
            reduced = instance.as_root_budget()
            assert brute_root(reduced) == expected == capped_traversal.decide_root_budget(reduced).accepted
            assert certified_lift.decide_root_budget(reduced)[0].accepted == expected
        accepted += expected
    assert 60 < accepted < 440


@pytest.mark.parametrize("graph", [diamonds(40), cycle(30), Digraph(1, ((0, 0),)), Digraph(2, ((0, 1),) * 50)],
                         ids=["diamonds", "cycle", "loop", "parallel"])
def test_bad_graphs_are_rejected_within_the_bound(graph: Digraph) -> None:
    last = graph.vertices - 1
    root = RootBudget(graph, 0, (3,) * graph.vertices, (last,))
    for verdict in (capped_traversal.decide_root_budget(root), certified_lift.decide_root_budget(root)[0],
                    capped_traversal.decide_pair_budget(few_paths(graph, 0, last, 3))):
        assert not verdict.accepted and verdict.steps <= verdict.step_bound and verdict.reason
    assert capped_traversal.decide_root_budget(root).steps <= (3 * graph.vertices + 1) * (graph.out_degree + 1)
    assert root_gap(root) > 0 and path_counts(graph, 3) is None


def test_the_total_budget_is_tight() -> None:
    """A cycle on B vertices with unit budgets has no violation before length B (Lemma 1)."""
    graph = cycle(9)
    assert max(walks_up_to(graph, 0, 8)) == 1 and max(walks_up_to(graph, 0, 9)) == 2
    assert not check_root(RootBudget(graph, 0, (1,) * 9, (8,)))


def test_certification_does_not_replace_the_comparison() -> None:
    instance = RootBudget(Digraph(5, diamonds(1).edges), 0, (1, 1, 1, 1, 1), (3,))
    verdict, lift = certified_lift.decide_root_budget(instance)
    assert lift is not None and lift.whole and verdict.counts == (1, 1, 1, 2, 0) and "2 walks to 3" in verdict.reason


def test_a_collision_needs_another_point() -> None:
    """At point 0 a hash is the last edge alone: walks that end by the same edge collide, and another point is needed."""
    graph = Digraph(5, (*diamonds(1).edges, (3, 4)))
    instance = RootBudget(graph, 0, (1, 1, 1, 2, 2), (4,))
    verdict, lift = certified_lift.decide_root_budget(instance)
    assert verdict.accepted and lift is not None and lift.point > 0


# -- structure (Theorems 11, 12, 14) ------------------------------------------------------------------------------------------


def test_kernels_and_blocks_on_random_graphs() -> None:
    chance = random.Random(7)
    seen = 0
    for _ in range(250):
        graph = random_graph(chance)
        counts = brute_counts(graph)
        for source, target in itertools.product(range(graph.vertices), repeat=2):
            part = two_terminal(graph, source, target)
            assert (part is None) == (counts[source][target] in (None, 0))
            if part is not None:
                check_shape(part, counts[source][target])
                seen += part.paths > 1
    assert seen > 150


def check_shape(part: TwoTerminal, expected: int | None) -> None:
    paths = list(some_paths(part, 10_000))
    assert len(paths) == part.paths == expected and verify_kernel(part) == [] and verify_blocks(part) == []
    assert {edge for path in paths for edge in itertools.pairwise(path)} == set(part.graph.edges)
    shared = [vertex for vertex in part.order if all(vertex in path for path in paths)]
    assert [part.source, *(block.exit for block in blocks(part))] == shared
    branching = {vertex for vertex in part.order if len(part.graph.successors[vertex]) > 1}
    assert part.most_branches == max(len(branching & set(path[:-1])) for path in paths)
    assert all(is_biconnected(block.edges) for block in blocks(part))


def is_biconnected(edges: tuple[tuple[int, int], ...]) -> bool:
    """Whether removing any one vertex leaves the others joined, directions aside."""
    ends = {end for edge in edges for end in edge}
    for removed in ends:
        rest = ends - {removed}
        joined, stack = set(), [min(rest)]
        while stack:
            vertex = stack.pop()
            if vertex not in joined:
                joined.add(vertex)
                stack += [other for edge in edges if vertex in edge and removed not in edge for other in edge]
        if joined != rest:
            return False
    return True


def test_shape_of_a_chain_of_diamonds() -> None:
    part = two_terminal(diamonds(12), 0, 36)
    assert part is not None and (part.paths, part.cyclomatic, part.most_branches, len(blocks(part))) == (4096, 12, 12, 12)
    small = kernel(part)
    assert len(small.order) == 13 and len(small.graph.edges) == 24


def test_the_bounded_fixed_point() -> None:
    chance = random.Random(8)
    for _ in range(800):
        graph = random_graph(chance)
        most = chance.choice((1, 2, 4, 9))
        expected = brute_counts(graph)
        few = all(within(count, most) for row in expected for count in row)
        found = path_counts(graph, most)
        assert (found is not None) == few
        if found is not None:
            assert found.tolist() == expected
            assert np.array_equal(found, np.eye(graph.vertices, dtype=int) + adjacency(graph) @ found)


def test_mangrove_factors() -> None:
    chance = random.Random(9)
    several = 0
    for _ in range(500):
        graph = random_graph(chance)
        graph = Digraph(graph.vertices, tuple(dict.fromkeys(graph.edges)))
        check_factors(graph, 64)
        several += len(mangrove_factors(graph, 64) or []) > 1
    check_factors(diamonds(6), 64)
    assert several > 50 and mangrove_factors(cycle(3), 5) is None
    with pytest.raises(ValueError, match="parallel"):
        mangrove_factors(Digraph(2, ((0, 1), (0, 1))), 4)


def check_factors(graph: Digraph, most: int) -> None:
    counts, factors = path_counts(graph, most), mangrove_factors(graph, most)
    assert (counts is None) == (factors is None)
    if counts is None or factors is None:
        return
    product: Any = np.eye(graph.vertices, dtype=int)
    for factor in factors:
        assert int(factor.max()) <= 1
        # a path-count matrix: C = (I - A)**-1 for the 0-1 matrix A = I - C**-1 of a mangrove's edges
        edges = np.eye(graph.vertices) - np.linalg.inv(factor.astype(float))
        rounded = np.rint(edges)
        assert np.allclose(edges, rounded, atol=1e-6) and set(np.unique(rounded)) <= {0.0, 1.0}
        product = product @ factor
    assert np.array_equal(product, counts) and len(factors) < max(2.0, 4 * log2(most))


def test_bounds_of_the_fixed_point_are_checked() -> None:
    for most in (0, 1 << 40):
        with pytest.raises(ValueError, match="the bound is from 1"):
            path_counts(diamonds(1), most)
    found = path_counts(diamonds(20), 1 << 20)
    assert found is not None and int(found[0, 60]) == 1 << 20 and path_counts(diamonds(31), 1 << 30) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14), st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_deciders_agree_on_any_graph(edges: list[tuple[int, int]], budgets: list[int]) -> None:
    check_root(RootBudget(Digraph(6, tuple(edges)), 0, tuple(budgets), (5, 0)))
