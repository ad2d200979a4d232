"""How long and how costly the texts of a part of a reading are: least bytes, most sampled tokens, how many texts, what of them is forced.

In: a reading, and regions of its contexts (the edges of one value). Out, for a region from where it begins: ``Lengths``. A call counts with
what its contexts take, which are measured first, callees before callers.

- ``passes``: the most choices on one way through. Every sampled token begins at a choice and a later one begins at a later choice, so that
  a decoder that feeds forced text in the same pass samples at most so many tokens that begin in the region (Corollary 1, whose c is at
  least as large). None where a choice lies on a cycle: then there is no bound.
- ``least``: bytes of a shortest text, and how many of them are chosen on the one with the fewest (Knuth's generalisation of Dijkstra).
- ``texts``: how many there are, their bytes in all, and how many of those bytes are forced, exactly; None where there are more than
  ``MOST_TEXTS`` or infinitely many.

Cost: linear in the edges of the region but for the heap of the shortest text.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stcc.compiler.analyses.graphs import Digraph, components, topological_order
from stcc.compiler.explaining.reading import Context, Edge, Reading

MOST_TEXTS = 10**12
"""Texts are counted up to so many."""
_UNKNOWN = (1 << 60, 0)
STAYS, ENDS, STOPS, FOLLOWS = 0, 1, 2, 3
"""What an edge does to a region: it stays inside, ends it with its byte, ends it by a choice of its own not to go on, or follows it."""
Least = tuple[int, int]


class Texts(NamedTuple):
    """So many texts, of so many bytes together, so many of them forced."""

    number: int
    bytes_: int
    forced: int

    def then(self, other: Texts) -> Texts:
        """Each of these followed by each of ``other``."""
        return Texts(self.number * other.number, self.bytes_ * other.number + other.bytes_ * self.number,
                     self.forced * other.number + other.forced * self.number)


@dataclass(frozen=True)
class Lengths:
    """See the module's text. ``least`` is (bytes, chosen bytes)."""

    passes: int | None
    least: Least
    texts: Texts | None

    @property
    def forced_share(self) -> float | None:
        """Share of the bytes that are forced: of all texts where they are counted, else of a shortest one; None where there are none."""
        if self.texts is not None:
            return self.texts.forced / self.texts.bytes_ if self.texts.bytes_ else None
        return 1 - self.least[1] / self.least[0] if self.least[0] else None


_NOTHING, _ONE = Texts(0, 0, 0), Texts(1, 0, 0)


class Measures:
    """What the contexts of a reading take, and from that the regions in them."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._least = _least_of_contexts(reading)
        self._passes: dict[int, int | None] = {}
        self._texts: dict[tuple[int, int], Texts | None] = {}
        self._ways: dict[int, dict[int, Least]] = {}
        self._looping = _recursive(reading)
        for context in _callees_first(reading):
            self._measure(context)

    def region(self, context: Context, edges: Sequence[Edge], entries: Iterable[int], leaves: Callable[[Edge], int]) -> Lengths:
        """The region of ``edges`` from the worst of ``entries``; ``leaves`` says what each does, in the words above."""
        region = _Region(context, edges, leaves)
        least = region.backward_least(self.edge_least)
        chosen = sorted(set(entries))
        if region.order is None:
            return Lengths(None, min((least.get(entry, _UNKNOWN) for entry in chosen), default=_UNKNOWN), None)
        passes = region.backward_passes(self._edge_passes)
        texts = region.backward_texts(self._edge_texts)
        most: int | None = 0
        counted: Texts | None = _NOTHING
        for entry in chosen:
            here, number = passes.get(entry, 0), texts.get(entry, _NOTHING)
            most = None if here is None or most is None else max(most, here)
            counted = None if number is None or counted is None else max(counted, number)
        return Lengths(most, min((least.get(entry, _UNKNOWN) for entry in chosen), default=_UNKNOWN), counted)

    def least_to(self, context: Context, target: int) -> Least:
        """Bytes, and chosen bytes, of a shortest way from the context's start to a node of it."""
        if context.number not in self._ways:
            self._ways[context.number] = _forward(context, self._least)
        return self._ways[context.number].get(target, _UNKNOWN)

    def _measure(self, context: Context) -> None:
        number = context.number
        region = None if number in self._looping else _Region(context, context.edges, _never)
        if region is None or region.order is None:
            self._passes[number] = None
            self._texts.update(((number, end), None) for end in context.ends)
            return
        self._passes[number] = region.backward_passes(self._edge_passes).get(0, 0)
        for end in context.ends:
            self._texts[number, end] = region.backward_texts(self._edge_texts, end).get(0, _NOTHING)

    def _edge_passes(self, edge: Edge) -> int | None:
        total = int(edge.choice)
        for context, _ in edge.calls:
            inside = self._passes.get(context.number)
            if inside is None:
                return None
            total += inside
        return total

    def edge_least(self, edge: Edge) -> Least:
        """(bytes, chosen bytes) of an edge with what it calls."""
        return _edge_least(edge, self._least)

    def _edge_texts(self, edge: Edge) -> Texts | None:
        found = Texts(edge.count, edge.count * edge.length, 0 if edge.choice else edge.count * edge.length)
        for context, end in edge.calls:
            inside = self._texts.get((context.number, end))
            if inside is None:
                return None
            found = found.then(inside)
        return found


class _Region:
    """Edges of one context with their nodes; the least numbers needed to go through them backwards."""

    def __init__(self, context: Context, edges: Sequence[Edge], leaves: Callable[[Edge], int]) -> None:
        self.context = context
        self.edges = [(edge, leaves(edge)) for edge in edges]
        self.out: dict[int, list[tuple[Edge, int]]] = {}
        for edge, does in self.edges:
            self.out.setdefault(edge.source, []).append((edge, does))
            if not does:
                self.out.setdefault(edge.target, [])
        self.order = self._order()

    def _order(self) -> list[int] | None:
        """The nodes such that edges lead onward; None where there is a cycle."""
        numbers = {node: number for number, node in enumerate(self.out)}
        inner = tuple([(numbers[edge.source], numbers[edge.target]) for edge, does in self.edges if not does])
        nodes = list(self.out)
        order = topological_order(Digraph(len(nodes), inner))
        return None if order is None else [nodes[number] for number in order]

    def is_end(self, node: int) -> bool:
        """Whether the context has ended at a node."""
        return self.context.nodes[node].state < 0

    def backward_passes(self, weight: Callable[[Edge], int | None]) -> dict[int, int | None]:
        """For each node the most choices from it; None where there is no bound."""
        assert self.order is not None
        found: dict[int, int | None] = {}
        for node in reversed(self.order):
            most: int | None = 0
            for edge, does in self.out[node]:
                onward, here = 0 if does else found[edge.target], 0 if does == FOLLOWS else weight(edge)
                most = None if onward is None or here is None or most is None else max(most, onward + here)
            found[node] = most
        return found

    def backward_texts(self, texts: Callable[[Edge], Texts | None], end: int = -1) -> dict[int, Texts | None]:
        """For each node the texts from it to the region's end, or to one node at which the context ends."""
        assert self.order is not None
        found: dict[int, Texts | None] = {}
        for node in reversed(self.order):
            total: Texts | None = _ONE if (node == end if end >= 0 else self.is_end(node)) else _NOTHING
            if end < 0 and any(does >= STOPS for _, does in self.out[node]):
                total = _ONE  # a number may stop here, whatever follows
            for edge, does in self.out[node]:
                if does >= STOPS:
                    continue
                onward, here = _ONE if does else found[edge.target], texts(edge)
                total = _added(total, None if onward is None or here is None else here.then(onward), onward)
            found[node] = total
        return found

    def backward_least(self, weight: Callable[[Edge], Least]) -> dict[int, Least]:
        """For each node (bytes, chosen bytes) of a shortest text from it; nodes without one are missing."""
        into: dict[int, list[Edge]] = {}
        found: dict[int, Least] = {}
        heap: list[tuple[Least, int]] = [((0, 0), node) for node in self.out if self.is_end(node)]
        for edge, does in self.edges:
            if not does:
                into.setdefault(edge.target, []).append(edge)
            else:
                heap.append((weight(edge) if does == ENDS else (0, 0), edge.source))
        heapq.heapify(heap)
        while heap:
            cost, node = heapq.heappop(heap)
            if node in found or cost >= _UNKNOWN:
                continue
            found[node] = cost
            for edge in into.get(node, ()):
                if edge.source not in found:
                    step = weight(edge)
                    heapq.heappush(heap, ((cost[0] + step[0], cost[1] + step[1]), edge.source))
        return found


def _added(total: Texts | None, more: Texts | None, onward: Texts | None) -> Texts | None:
    """The sum; None past ``MOST_TEXTS``. An edge that leads nowhere adds nothing, whatever it is."""
    if onward is not None and onward.number == 0:
        return total
    if total is None or more is None or total.number + more.number > MOST_TEXTS:
        return None
    return Texts(*(one + other for one, other in zip(total, more, strict=True)))


def _never(edge: Edge) -> int:
    return STAYS


def _edge_least(edge: Edge, known: dict[tuple[int, int], Least]) -> Least:
    bytes_, chosen = edge.length, edge.length * edge.choice
    for context, end in edge.calls:
        inside = known.get((context.number, end), _UNKNOWN)
        bytes_, chosen = bytes_ + inside[0], chosen + inside[1]
    return min((bytes_, chosen), _UNKNOWN)


def _forward(context: Context, known: dict[tuple[int, int], Least]) -> dict[int, Least]:
    """For each node of a context (bytes, chosen bytes) of a shortest way to it, by what is known of its callees."""
    out: dict[int, list[Edge]] = {}
    for edge in context.edges:
        out.setdefault(edge.source, []).append(edge)
    found: dict[int, Least] = {}
    heap: list[tuple[Least, int]] = [((0, 0), 0)]
    while heap:
        cost, node = heapq.heappop(heap)
        if node in found:
            continue
        found[node] = cost
        for edge in out.get(node, ()):
            if edge.target in found:
                continue
            step = _edge_least(edge, known)
            if step < _UNKNOWN:
                heapq.heappush(heap, ((cost[0] + step[0], cost[1] + step[1]), edge.target))
    return found


def _least_of_contexts(reading: Reading) -> dict[tuple[int, int], Least]:
    """(context, end) -> least; a least fixpoint, contexts taken up again when a callee of theirs has got shorter."""
    callers: dict[int, set[int]] = {}
    for context in reading.contexts:
        for edge in context.edges:
            for callee, _ in edge.calls:
                callers.setdefault(callee.number, set()).add(context.number)
    known: dict[tuple[int, int], Least] = {}
    waiting = dict.fromkeys(range(len(reading.contexts) - 1, -1, -1))
    while waiting:
        number = next(iter(waiting))
        del waiting[number]
        context = reading.contexts[number]
        ends = {(number, end) for end in context.ends}
        before = {key: known.get(key) for key in ends}
        found = _forward(context, known)
        known.update(((number, end), found[end]) for end in context.ends if end in found)
        if before != {key: known.get(key) for key in ends}:
            waiting.update(dict.fromkeys(sorted(callers.get(number, ()))))
    return known


def _calls(reading: Reading) -> Digraph:
    pairs = {(context.number, callee.number) for context in reading.contexts for edge in context.edges for callee, _ in edge.calls}
    return Digraph(len(reading.contexts), tuple(sorted(pairs)))


def _recursive(reading: Reading) -> set[int]:
    """Contexts that some call leads back to."""
    graph = _calls(reading)
    component = components(graph)
    sizes: dict[int, int] = {}
    for number in component:
        sizes[number] = sizes.get(number, 0) + 1
    alone = {source for source, target in graph.edges if source == target}
    return {number for number, group in enumerate(component) if sizes[group] > 1} | alone


def _callees_first(reading: Reading) -> list[Context]:
    component = components(_calls(reading))  # edges lead to lower components
    return sorted(reading.contexts, key=lambda context: (component[context.number], context.number))
