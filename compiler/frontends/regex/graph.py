"""The syntax tree as a graph over sets of code points, one graph per lookaround, sharing one partition of the code points.

In: a tree (``syntax``). Out: a ``Program``. Nodes read one character out of a set, or split; *conditional* edges carry
lookarounds. Continuations are built right to left, so a counted repetition is a chain of copies whose skips all lead to the one
node behind it. Linear in the tree with its counts written out; past ``max_nodes`` a BudgetError names the repetition.

A lookahead becomes a graph of its own, followed by "anything"; a lookbehind that asks about one character becomes a test of the
previous character; any other one becomes a *tracker*, a graph preceded by "anything" that runs along from the start of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stcc.compiler.frontends.regex.characters import ANY, LAST, CharacterSet
from stcc.compiler.frontends.regex.syntax import (
    Characters,
    Choice,
    Concatenation,
    Look,
    Node,
    Repetition,
    one_behind,
    over_budget,
    unsupported,
)
from stcc.compiler.utf8 import Partition


@dataclass(frozen=True)
class Previous:
    """True after a character of set ``set_``, and at the start of the text iff ``at_start``; ``number`` counts such tests."""

    number: int
    set_: int
    at_start: bool


@dataclass(frozen=True)
class Tracked:
    """True where tracker ``number`` accepts, or, if ``negated``, where it does not."""

    number: int
    negated: bool


@dataclass(frozen=True)
class Ahead:
    """True where the rest of the text is in the language of lookahead ``number``, or, if ``negated``, is not."""

    number: int
    negated: bool


Condition = Previous | Tracked | Ahead


@dataclass
class Graph:
    """Nodes by number: ``reads[n]`` is a set and the node behind it; ``skips[n]`` are nodes reached without reading.

    ``tests[n]`` holds conditional skips. ``final`` is the one accepting node; if it ``loops``, anything may follow.
    """

    reads: list[tuple[int, int] | None] = field(default_factory=list)
    skips: list[list[int]] = field(default_factory=list)
    tests: list[tuple[Condition, int] | None] = field(default_factory=list)
    start: int = 0
    final: int = 0
    loops: bool = False


@dataclass
class Program:
    """Graphs of a pattern: the ``main`` one, those of ``lookaheads`` and of ``trackers``, over one list of ``sets``.

    A tracker only uses trackers of lower number. ``heaviest`` is the offset of the repetition with the most nodes.
    """

    main: Graph = field(default_factory=Graph)
    lookaheads: list[Graph] = field(default_factory=list)
    trackers: list[Graph] = field(default_factory=list)
    sets: dict[CharacterSet, int] = field(default_factory=dict)
    previous: dict[tuple[int, bool], Previous] = field(default_factory=dict)
    heaviest: int = 0


class _Builder:
    def __init__(self, max_nodes: int) -> None:
        self.program, self.max_nodes, self.nodes, self.weight = Program(), max_nodes, 0, 0

    def graph(self, tree: Node, *, prefix: bool, loops: bool, within_tracker: bool) -> Graph:
        """The graph of ``tree``, after anything if ``prefix``, before anything if ``loops``."""
        graph = Graph(loops=loops)
        any_set = self.program.sets.setdefault(ANY, len(self.program.sets)) if prefix or loops else 0
        graph.final = self.node(graph, 0)
        if loops:
            graph.reads[graph.final] = (any_set, graph.final)
        graph.start = self.build(graph, tree, graph.final, within_tracker)
        if prefix:
            reader, entry = self.node(graph, 0), self.node(graph, 0)
            graph.reads[reader] = (any_set, entry)
            graph.skips[entry] = [reader, graph.start]
            graph.start = entry
        return graph

    def node(self, graph: Graph, offset: int) -> int:
        """A fresh node without edges."""
        self.nodes += 1
        if self.nodes > self.max_nodes:
            raise over_budget(f"the repetition spells out to more than {self.max_nodes} places", offset, "{",
                              "use smaller counts, or raise max_states (--max-states)")
        graph.reads.append(None)
        graph.skips.append([])
        graph.tests.append(None)
        return len(graph.reads) - 1

    def build(self, graph: Graph, tree: Node, follow: int, within_tracker: bool) -> int:
        """The node from which ``tree`` and then ``follow`` are read."""
        if isinstance(tree, Concatenation):
            for item in reversed(tree.items):
                follow = self.build(graph, item, follow, within_tracker)
            return follow
        if isinstance(tree, Repetition):
            return self.repetition(graph, tree, follow, within_tracker)
        node = self.node(graph, self.program.heaviest)
        if isinstance(tree, Characters):
            graph.reads[node] = (self.program.sets.setdefault(tree.ranges, len(self.program.sets)), follow)
        elif isinstance(tree, Choice):
            graph.skips[node] = [self.build(graph, option, follow, within_tracker) for option in tree.options]
        else:
            graph.tests[node] = (self.condition(tree, within_tracker), follow)
        return node

    def repetition(self, graph: Graph, tree: Repetition, follow: int, within_tracker: bool) -> int:
        """Copies in a row, the optional ones with a skip to the end, or a loop behind the mandatory ones."""
        before = self.nodes
        end = entry = follow
        if tree.high is None:
            entry = self.node(graph, tree.offset)
            graph.skips[entry] = [self.build(graph, tree.body, entry, within_tracker), end]
        for copy in range(tree.low if tree.high is None else tree.high):
            entry = self.build(graph, tree.body, entry, within_tracker)
            if tree.high is not None and copy < tree.high - tree.low:
                skip = self.node(graph, tree.offset)
                graph.skips[skip] = [entry, end]
                entry = skip
        if self.nodes - before > self.weight:
            self.weight, self.program.heaviest = self.nodes - before, tree.offset
        return entry

    def condition(self, look: Look, within_tracker: bool) -> Condition:
        """The condition of a lookaround, registering what it needs."""
        tested = one_behind(Look(look.body, behind=True, negated=look.negated, offset=look.offset)) if look.behind else None
        if tested is not None:
            set_ = self.program.sets.setdefault(tested[0], len(self.program.sets))
            return self.program.previous.setdefault((set_, tested[1]), Previous(len(self.program.previous), set_, tested[1]))
        if look.behind:
            graph = self.graph(look.body, prefix=True, loops=False, within_tracker=True)
            self.program.trackers.append(graph)
            return Tracked(len(self.program.trackers) - 1, look.negated)
        if within_tracker:
            raise unsupported("a lookbehind must not look ahead", look.offset, "(?<", "move the condition out of the lookbehind")
        graph = self.graph(look.body, prefix=False, loops=True, within_tracker=False)
        self.program.lookaheads.append(graph)
        return Ahead(len(self.program.lookaheads) - 1, look.negated)


def build_program(tree: Node, *, prefix: bool, suffix: bool, max_nodes: int) -> Program:
    """The program of ``tree``; with ``prefix`` (``suffix``) anything may stand before (after) it."""
    builder = _Builder(max_nodes)
    builder.program.main = builder.graph(tree, prefix=prefix, loops=suffix, within_tracker=False)
    return builder.program


def partition(sets: dict[CharacterSet, int]) -> tuple[Partition, list[list[int]]]:
    """The coarsest partition of the code points that every set is a union of, and the classes of each set, by its number."""
    borders = np.unique(np.array([0, *(edge for ranges in sets for low, high in ranges for edge in (low, high + 1))], np.int64))
    borders = borders[borders <= LAST]
    member = np.zeros((len(sets), len(borders)), np.uint8)
    for number, ranges in enumerate(sets):
        edges = np.array([edge for low, high in ranges for edge in (low, high + 1)], np.int64)
        member[number] = np.searchsorted(edges, borders, side="right") & 1
    packed = np.packbits(member, axis=0).T
    numbers: dict[bytes, int] = {}
    classes = [numbers.setdefault(signature.tobytes(), len(numbers)) for signature in packed]
    first = {class_: place for place, class_ in reversed(list(enumerate(classes)))}
    columns = member[:, [first[class_] for class_ in range(len(numbers))]]
    kept = [place for place in range(len(classes)) if place == 0 or classes[place] != classes[place - 1]]
    found = Partition(tuple(borders[kept].tolist()), tuple(classes[place] for place in kept))
    return found, [np.flatnonzero(column).tolist() for column in columns]
