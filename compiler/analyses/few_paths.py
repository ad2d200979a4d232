"""The shape of few-path graphs: branch kernels and block products (Theorems 11 and 12).

In: a graph and two terminals. Out: the trimmed two-terminal graph (vertices and edges on some s-t walk), its number of paths r, its
cyclomatic number c = edges - vertices + 1, its branch vertices, its kernel, and its blocks. Afterwards ``verify_kernel`` and
``verify_blocks`` hold:

- c + 1 <= r <= 2**c, and at most c vertices branch. Suppressing inner vertices with one edge in and one out keeps r and c and leaves at
  most 2c + 2 vertices and 3c + 1 edges.
- every path crosses the blocks on the route from s to t, entering and leaving each by the same vertices; r is the product of the blocks'
  numbers of paths and c the sum of theirs. A path is one independent choice a block.

Cost: linear in the edges; numbers of paths are exact whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stcc.compiler.analyses.graphs import Digraph, Edge, exact_walks, reachable, topological_order


@dataclass(frozen=True)
class Block:
    """A biconnected block on the route: the vertices by which every path enters and leaves it, its edges, and its number of paths."""

    entry: int
    exit: int
    edges: tuple[Edge, ...]
    paths: int

    @property
    def cyclomatic(self) -> int:
        """Edges less vertices, and one."""
        return len(self.edges) - len({end for edge in self.edges for end in edge}) + 1


@dataclass(frozen=True)
class TwoTerminal:
    """A trimmed acyclic graph with terminals: every edge lies on a path from ``source`` to ``target``. Vertices keep their numbers.

    Attributes:
        graph: the kept edges.
        source: s.
        target: t, which s reaches.
        order: the kept vertices, topologically.
    """

    graph: Digraph
    source: int
    target: int
    order: tuple[int, ...]

    @cached_property
    def paths(self) -> int:
        """r, the number of s-t paths."""
        count = exact_walks(self.graph, self.source)[self.target]
        assert count is not None
        return count

    @property
    def cyclomatic(self) -> int:
        """c, edges less vertices, and one."""
        return len(self.graph.edges) - len(self.order) + 1

    @cached_property
    def branches(self) -> tuple[int, ...]:
        """Vertices with at least two edges out, topologically."""
        return tuple(vertex for vertex in self.order if len(self.graph.successors[vertex]) > 1)

    @cached_property
    def most_branches(self) -> int:
        """The most branch vertices on one path; at most c."""
        found = dict.fromkeys(self.order, 0)
        for vertex in self.order:
            here = found[vertex] + (len(self.graph.successors[vertex]) > 1)
            for target in self.graph.successors[vertex]:
                found[target] = max(found[target], here)
        return found[self.target]


def two_terminal(graph: Digraph, source: int, target: int) -> TwoTerminal | None:
    """The part of ``graph`` between two vertices; None if ``source`` does not reach ``target``, or there is a cycle in between."""
    ahead, behind = reachable(graph, [source]), reachable(graph.reversed(), [target])
    kept = [one and other for one, other in zip(ahead, behind, strict=True)]
    if not kept[source] or not kept[target]:
        return None
    trimmed = Digraph(graph.vertices, tuple(edge for edge in graph.edges if kept[edge[0]] and kept[edge[1]]))
    order = topological_order(trimmed, kept)
    return None if order is None else TwoTerminal(trimmed, source, target, tuple(order))


def kernel(part: TwoTerminal) -> TwoTerminal:
    """The branch kernel: inner vertices with one edge in and one out suppressed, parallel edges kept (Theorem 11)."""
    entering = [0] * part.graph.vertices
    for _, target in part.graph.edges:
        entering[target] += 1
    kept = [vertex for vertex in part.order
            if vertex in (part.source, part.target) or entering[vertex] != 1 or len(part.graph.successors[vertex]) != 1]
    numbers = dict.fromkeys(kept)
    edges = []
    for vertex in kept:
        for end in part.graph.successors[vertex]:
            while end not in numbers:
                (end,) = part.graph.successors[end]
            edges.append((vertex, end))
    return TwoTerminal(Digraph(part.graph.vertices, tuple(edges)), part.source, part.target, tuple(kept))


def verify_kernel(part: TwoTerminal) -> list[str]:
    """What of Theorem 11 does not hold of ``part``, one sentence each; always empty."""
    small, cyclomatic, paths = kernel(part), part.cyclomatic, part.paths
    checks = [
        (cyclomatic + 1 <= paths <= 1 << cyclomatic, "c + 1 <= r <= 2**c"),
        (len(part.branches) <= cyclomatic <= paths - 1, "at most c <= r - 1 vertices branch"),
        (part.most_branches <= cyclomatic, "a path has at most c branch vertices"),
        (small.paths == paths and small.cyclomatic == cyclomatic, "the kernel has the same r and c"),
        (len(small.order) <= 2 * cyclomatic + 2, "the kernel has at most 2c + 2 vertices"),
        (len(small.graph.edges) <= 3 * cyclomatic + 1, "the kernel has at most 3c + 1 edges"),
    ]
    return [text for holds, text in checks if not holds]


def blocks(part: TwoTerminal) -> tuple[Block, ...]:
    """The blocks on the route from s to t, in order; none where s is t (Theorem 12).

    In a trimmed two-terminal graph every block is on the route. The vertices that all paths cross cut the topological order; between two
    consecutive ones lies one block.
    """
    place = {vertex: number for number, vertex in enumerate(part.order)}
    counts = exact_walks(part.graph, part.source)
    found: list[Block] = []
    entry, furthest = part.source, 0
    edges: list[Edge] = []
    for vertex in part.order:
        if vertex != entry and furthest <= place[vertex]:
            before, after = counts[entry], counts[vertex]
            assert before is not None and after is not None
            found.append(Block(entry, vertex, tuple(edges), after // before))
            entry, edges = vertex, []
        edges += [(vertex, target) for target in part.graph.successors[vertex]]
        furthest = max([furthest, *(place[target] for target in part.graph.successors[vertex])])
    return tuple(found)


def verify_blocks(part: TwoTerminal) -> list[str]:
    """What of Theorem 12 does not hold of ``part``, one sentence each; always empty."""
    found = blocks(part)
    product = 1
    for block in found:
        product *= block.paths
    several = sum(block.paths > 1 for block in found)
    checks = [
        (product == part.paths, "r is the product over the blocks"),
        (sum(block.cyclomatic for block in found) == part.cyclomatic, "c is the sum over the blocks"),
        (sum(len(block.edges) for block in found) == len(part.graph.edges), "every edge is in one block"),
        (1 << several <= part.paths, "at most log2 r blocks have more than one path"),
    ]
    return [text for holds, text in checks if not holds]


def some_paths(part: TwoTerminal, most: int) -> Iterator[tuple[int, ...]]:
    """The paths of ``part`` as vertices, in order of their edges; at most ``most``. Parallel edges give equal ones."""
    stack: list[tuple[int, ...]] = [(part.source,)]
    while stack and most > 0:
        path = stack.pop()
        if path[-1] == part.target:
            most -= 1
            yield path
            continue
        stack += [(*path, target) for target in reversed(part.graph.successors[path[-1]])]
