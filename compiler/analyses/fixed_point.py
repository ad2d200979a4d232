"""The bounded fixed point and the mangrove normal form (Theorem 14).

In: a graph and a bound k. Out: its path-count matrix with entries up to k, or None; and a factorisation of it. A graph is k-strongly few
iff ``C = I + A C`` has a solution with entries in 0..k (A counts edges); the solution is unique and counts the paths. The matrix of a
k-strongly-few graph is a product of fewer than 4 log2 k matrices, each of a mangrove, a graph with at most one path between two vertices.

Cost: at most n rounds of n times the edges additions, on every graph; factors by a recursion of depth 1 + log2 log2 k.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from stcc.compiler.analyses.graphs import Digraph

Counts = npt.NDArray[np.int64]
MOST = 1 << 31
"""Largest bound k: sums of products of two entries stay within int64 for as many vertices as fit in memory."""


def adjacency(graph: Digraph) -> Counts:
    """int64 ``[n, n]``: the number of edges between two vertices."""
    matrix = np.zeros((graph.vertices, graph.vertices), np.int64)
    for source, target in graph.edges:
        matrix[source, target] += 1
    return matrix


def path_counts(graph: Digraph, most: int) -> Counts | None:
    """int64 ``[n, n]``: the solution of C = I + A C with entries in 0..``most``; None if there is none, that is, if the graph is not
    ``most``-strongly few.

    Iterated from I with entries cut off at ``most + 1``: in an acyclic graph of n vertices it is reached in fewer than n rounds.

    Raises:
        ValueError: ``most`` is below 1 or above ``MOST``.
    """
    if not 1 <= most <= MOST:
        raise ValueError(f"the bound is from 1 to {MOST:,}")
    edges = np.minimum(adjacency(graph), most + 1)
    identity = np.eye(graph.vertices, dtype=np.int64)
    found = identity
    for _ in range(graph.vertices + 1):
        following = np.minimum(identity + _capped_product(edges, found, most + 1), most + 1)
        if np.array_equal(following, found):
            return found if int(found.max(initial=0)) <= most else None
        found = following
    return None  # a cycle: the counts along it still grow, or have passed the bound


def _capped_product(left: Counts, right: Counts, cap: int) -> Counts:
    """The matrix product, each sum cut off at ``cap`` on the way, so that nothing overflows."""
    total = np.zeros((left.shape[0], right.shape[1]), np.int64)
    for middle in range(left.shape[1]):
        total += np.minimum(left[:, middle, None] * right[None, middle], cap)
        np.minimum(total, cap, out=total)
    return total


def mangrove_factors(graph: Digraph, most: int) -> list[Counts] | None:
    """Path-count matrices of mangroves whose product, in order, is the path-count matrix of ``graph``; None unless it is ``most``-strongly
    few.

    One factor where there is at most one path between any two vertices, else fewer than 4 log2 ``most``. Vertices are split by the most
    paths that end at them, at the square root of the bound: no path leads back, and both parts have at most that many paths between two.

    Raises:
        ValueError: there are parallel edges, which are two paths by themselves; put a vertex on each first.
    """
    if len(set(graph.edges)) < len(graph.edges):
        raise ValueError("the graph has parallel edges")
    counts = path_counts(graph, most)
    if counts is None:
        return None
    return _factors(counts, adjacency(graph), np.arange(graph.vertices), most)


def _factors(counts: Counts, edges: Counts, vertices: npt.NDArray[np.int64], most: int) -> list[Counts]:
    """Factors, of the size of the whole matrix, for the part of the graph on ``vertices`` (path-convex)."""
    size = len(counts)
    inside = counts[np.ix_(vertices, vertices)]
    if most <= 1 or int(inside.max(initial=0)) <= 1:
        whole = np.eye(size, dtype=np.int64)
        whole[np.ix_(vertices, vertices)] = inside
        return [whole]
    root = isqrt(most)
    low = inside.max(axis=0) <= root
    lower, upper = vertices[low], vertices[~low]
    bridge = np.eye(size, dtype=np.int64)
    bridge[np.ix_(lower, upper)] = edges[np.ix_(lower, upper)]
    return [*_factors(counts, edges, lower, root), bridge, *_factors(counts, edges, upper, most // (root + 1))]
