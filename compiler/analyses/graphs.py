"""Directed multigraphs and their walks (Definition 1 of the few-path paper).

In: a graph. Out: how many walks there are between two vertices, exactly or as far as a budget. A walk of length i is a sequence of i edge
occurrences whose ends meet; the empty walk is one walk from every vertex to itself. There are infinitely many from u to v exactly when a
cycle lies on a way from u to v.

>>> diamond = Digraph(4, ((0, 1), (0, 2), (1, 3), (2, 3)))
>>> walks_up_to(diamond, 0, 2), exact_walks(diamond, 0)
([1, 1, 1, 2], [1, 1, 1, 2])
>>> exact_walks(Digraph(2, ((0, 1), (1, 1))), 0)
[1, None]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

Edge = tuple[int, int]


@dataclass(frozen=True)
class Digraph:
    """A directed graph that may have parallel edges and loops.

    Attributes:
        vertices: how many; they are 0, 1, ...
        edges: (source, target) of each edge occurrence.
    """

    vertices: int
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        if any(not (0 <= end < self.vertices) for edge in self.edges for end in edge):
            raise ValueError(f"an edge leaves the {self.vertices} vertices")

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Targets of each vertex's edges, one entry an occurrence, in order."""
        found: list[list[int]] = [[] for _ in range(self.vertices)]
        for source, target in self.edges:
            found[source].append(target)
        return tuple(map(tuple, found))

    @cached_property
    def occurrences(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(edge number, target) of each vertex's edges."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.vertices)]
        for number, (source, target) in enumerate(self.edges):
            found[source].append((number, target))
        return tuple(map(tuple, found))

    @cached_property
    def out_degree(self) -> int:
        """The largest number of edges that leave one vertex."""
        return max(map(len, self.successors), default=0)

    def reversed(self) -> Digraph:
        """Every edge the other way round."""
        return Digraph(self.vertices, tuple((target, source) for source, target in self.edges))


def walks_up_to(graph: Digraph, source: int, length: int, cap: int | None = None) -> list[int]:
    """For each vertex the number of walks from ``source`` of at most ``length`` edges, counted as far as ``cap``. O(length x edges)."""
    layer = [0] * graph.vertices
    layer[source] = 1
    total = list(layer)
    for _ in range(length):
        following = [0] * graph.vertices
        for start, end in graph.edges:
            following[end] += layer[start]
        layer = following if cap is None else [min(count, cap) for count in following]
        if not any(layer):
            break
        total = [before + more if cap is None else min(before + more, cap) for before, more in zip(total, layer, strict=True)]
    return total


def reachable(graph: Digraph, sources: Iterable[int]) -> list[bool]:
    """Which vertices some walk from ``sources`` ends at. O(edges)."""
    found = [False] * graph.vertices
    stack = list(sources)
    for vertex in stack:
        found[vertex] = True
    while stack:
        for target in graph.successors[stack.pop()]:
            if not found[target]:
                found[target] = True
                stack.append(target)
    return found


def topological_order(graph: Digraph, among: Sequence[bool] | None = None) -> list[int] | None:
    """The vertices (of ``among``) such that edges between them lead onward; None if there is a cycle. O(edges)."""
    kept = [True] * graph.vertices if among is None else among
    waiting = [0] * graph.vertices
    for source, target in graph.edges:
        waiting[target] += kept[source] and kept[target]
    order = [vertex for vertex in range(graph.vertices) if kept[vertex] and not waiting[vertex]]
    for vertex in order:  # grows while it is read
        for target in graph.successors[vertex]:
            if kept[target]:
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
    return order if len(order) == sum(kept) else None


def exact_walks(graph: Digraph, source: int) -> list[int | None]:
    """For each vertex the number of walks from ``source``; None where there are infinitely many. O(edges) additions."""
    ahead = reachable(graph, [source])
    looping = reachable(graph, _on_cycles(graph, ahead))
    finite = [found and not loops for found, loops in zip(ahead, looping, strict=True)]
    order = topological_order(graph, finite)
    assert order is not None
    counts = [0] * graph.vertices
    if finite[source]:
        counts[source] = 1
    for vertex in order:
        for target in graph.successors[vertex]:
            if finite[target]:
                counts[target] += counts[vertex]
    return [None if found and loops else count for found, loops, count in zip(ahead, looping, counts, strict=True)]


def _on_cycles(graph: Digraph, among: Sequence[bool]) -> list[int]:
    """Vertices from which, by removing what nothing leads to, a cycle remains; they include every vertex of a cycle among ``among``."""
    waiting = [0] * graph.vertices
    for source, target in graph.edges:
        waiting[target] += among[source] and among[target]
    free = [vertex for vertex in range(graph.vertices) if among[vertex] and not waiting[vertex]]
    for vertex in free:
        for target in graph.successors[vertex]:
            if among[target]:
                waiting[target] -= 1
                if not waiting[target]:
                    free.append(target)
    removed = set(free)
    return [vertex for vertex in range(graph.vertices) if among[vertex] and vertex not in removed]


def components(graph: Digraph) -> list[int]:
    """For each vertex the number of its strongly connected component; edges between components lead to lower numbers. O(edges).

    Tarjan's algorithm with an explicit stack.
    """
    component, low, index = [-1] * graph.vertices, [0] * graph.vertices, [-1] * graph.vertices
    open_: list[int] = []
    seen = count = 0
    for root in range(graph.vertices):
        stack = [(root, 0)] if index[root] < 0 else []
        while stack:
            vertex, place = stack.pop()
            if place == 0:
                index[vertex] = low[vertex] = seen
                seen += 1
                open_.append(vertex)
            else:
                low[vertex] = min(low[vertex], low[graph.successors[vertex][place - 1]])
            onward = graph.successors[vertex]
            while place < len(onward) and index[onward[place]] >= 0:
                if component[onward[place]] < 0:
                    low[vertex] = min(low[vertex], index[onward[place]])
                place += 1
            if place < len(onward):
                stack += [(vertex, place + 1), (onward[place], 0)]
                continue
            if low[vertex] == index[vertex]:
                while component[vertex] < 0:
                    component[open_.pop()] = count
                count += 1
    return component


def universal_source(graph: Digraph) -> Digraph:
    """The graph of Lemma 2: vertex 0 is the root, ``1 + a * n + v`` the copy (a, v); walks from the root to (a, v) are those from a to v.

    n + n m edges for a graph of n vertices and m edges.
    """
    count = graph.vertices
    entries = tuple((0, 1 + tag * count + tag) for tag in range(count))
    copies = tuple((1 + tag * count + source, 1 + tag * count + target) for tag in range(count) for source, target in graph.edges)
    return Digraph(1 + count * count, entries + copies)
