"""Nondeterministic automata in table form, the common input of subset construction.

Every node has at most one successor per byte class (nondeterminism lives in the epsilon edges), so most of a subset construction
is array work: a set that is a single node has that node's row.

``lower`` makes one such automaton of all rules of a grammar. In: a trimmed grammar. Out: nodes numbered rule by rule, a rule's start
first; every node but a start lies on a way from the root's start to an end of its rule. Cost: linear in nodes x classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import GrammarEdges, grammar_edges, group, reach
from stcc.compiler.ir import CallEdge, Grammar, Mark
from stcc.compiler.options import Deadline
from stcc.formats.distinct import distinct

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Nfa:
    """Nodes of one or more rules.

    Attributes:
        byte_class: uint8 ``[256]``.
        table: int32 ``[nodes, classes]``, successor or -1.
        epsilon_offsets: int32 ``[nodes + 1]`` into ``epsilon_targets``.
        epsilon_targets: int32.
        accept: int32 ``[nodes]``, label (or exit) of an accepting node, -1 otherwise.
        starts: start node of each rule.
        calls: call edges, their nodes and returns numbered over all rules.
        marked: nodes entered by the ``[`` of an array whose items must differ pairwise, as in ``ir.Rule``.
    """

    byte_class: npt.NDArray[np.uint8]
    table: Int32
    epsilon_offsets: Int32
    epsilon_targets: Int32
    accept: Int32
    starts: tuple[int, ...]
    calls: tuple[CallEdge, ...] = ()
    marked: tuple[Mark, ...] = ()


def lower(grammar: Grammar, deadline: Deadline | None = None) -> Nfa:
    """All rules in one table; ``starts[r]`` is rule ``r``'s start, ``accept`` holds exits, calls are numbered over all rules.

    Byte classes are the coarsest refinement of the embedded DFAs' classes and of the byte edges. A call of a rule that may end
    without reading gets an epsilon to the return, so that the call itself need only be taken on a byte. BudgetError past the deadline.
    """
    work = _Lowering(grammar)
    for place in (work.place_blocks, work.place_bytes, work.place_exits, lambda: work.skip_nullable(deadline)):
        place()
        if deadline is not None:
            deadline.check_now()
    return work.finish()


class _Lowering:
    """An automaton under construction: nodes of all rules first, then nodes added where one node needs two successors on a class."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.edges: GrammarEdges = grammar_edges(grammar)
        self.bases: list[int] = self.edges.bases.tolist()
        self.byte_class = _common_classes(grammar)
        self.classes = int(self.byte_class.max()) + 1
        self.owner = np.repeat(np.arange(len(grammar.rules)), np.diff(self.edges.bases))
        self.table: Int32 = np.full((self.bases[-1], self.classes), -1, np.int32)
        self.reads: list[Int64] = [self.edges.reads]
        self.epsilons: list[Int64] = [self.edges.epsilons]
        self.accept: Int32 = np.full(self.bases[-1], -1, np.int32)
        self.calls = [
            CallEdge(base + call.node, call.rule, tuple(base + node if node >= 0 else -1 for node in call.returns))
            for rule, base in zip(grammar.rules, self.bases, strict=False) for call in rule.calls
        ]

    def add_nodes(self, parents: Int64) -> Int64:
        """Fresh nodes, one per parent, each reached from it by an epsilon."""
        fresh = np.arange(len(self.table), len(self.table) + len(parents), dtype=np.int64)
        self.owner = np.append(self.owner, self.owner[parents])
        self.table = np.concatenate([self.table, np.full((len(parents), self.classes), -1, np.int32)])
        self.accept = np.append(self.accept, np.full(len(parents), -1, np.int32))
        self.epsilons.append(np.stack([parents, fresh], axis=1))
        return fresh

    def place_blocks(self) -> None:
        """Copy the rows of embedded DFAs, each DFA translated to the common classes once."""
        _, chosen = np.unique(self.byte_class, return_index=True)
        rows: dict[int, tuple[Int32, Int32]] = {}
        for rule, base in zip(self.grammar.rules, self.bases, strict=False):
            for block in rule.blocks:
                if id(block.dfa) not in rows:
                    cells = block.dfa.table[:, block.dfa.byte_class[chosen]]
                    rows[id(block.dfa)] = cells, (cells >= 0).astype(np.int32)
                cells, alive = rows[id(block.dfa)]
                low = base + block.base
                np.add(cells, alive * np.int32(low), out=self.table[low:low + len(cells)])

    def place_bytes(self) -> None:
        """Enter the byte edges; where a cell is taken, the edge moves to a fresh node behind an epsilon."""
        cells = self._byte_cells()
        if not cells.size:
            return
        keys = cells[:, 0] * self.classes + cells[:, 1]
        rank = np.arange(len(keys)) - np.searchsorted(keys, keys, side="left")
        rank += self.table[cells[:, 0], cells[:, 1]] >= 0
        plain = cells[rank == 0]
        self.table[plain[:, 0], plain[:, 1]] = plain[:, 2]
        crowded = np.flatnonzero(rank > 0)
        if crowded.size:
            pairs, place = np.unique(np.stack([cells[crowded, 0], rank[crowded]], axis=1), axis=0, return_inverse=True)
            sources = self.add_nodes(pairs[:, 0])[place.reshape(-1)]
            self.table[sources, cells[crowded, 1]] = cells[crowded, 2]
            self.reads.append(np.stack([sources, cells[crowded, 2]], axis=1))

    def _byte_cells(self) -> Int64:
        """int64 ``[n, 3]``: distinct ``source, class, target`` of the byte edges, sorted."""
        rows = np.concatenate([
            rule.bytes_.astype(np.int64) + np.array([base, 0, 0, base])
            for rule, base in zip(self.grammar.rules, self.bases, strict=False)
        ])
        ranges, which = np.unique(rows[:, 1] * 256 + rows[:, 2], return_inverse=True)
        covered = [distinct(self.byte_class[low_high >> 8:(low_high & 255) + 1]) for low_high in ranges.tolist()]
        if not covered:
            return np.zeros((0, 3), np.int64)
        sizes = np.array([len(part) for part in covered], np.int64)
        counts = sizes[which.reshape(-1)]
        begins = (np.cumsum(sizes) - sizes)[which.reshape(-1)]
        inner = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        classes = np.concatenate(covered).astype(np.int64)[np.repeat(begins, counts) + inner]
        nodes = self.bases[-1]
        keys = distinct((np.repeat(rows[:, 0], counts) * self.classes + classes) * nodes + np.repeat(rows[:, 3], counts))
        pairs = keys // nodes
        return np.stack([pairs // self.classes, pairs % self.classes, keys % nodes], axis=1)

    def place_exits(self) -> None:
        """Label ends with their exits; a second exit of one node moves to a fresh node."""
        second = []
        for rule, base in zip(self.grammar.rules, self.bases, strict=False):
            for node, exit_ in rule.exits:
                if self.accept[base + node] in (-1, exit_):
                    self.accept[base + node] = exit_
                else:
                    second.append((base + node, exit_))
        if second:
            fresh = self.add_nodes(np.array([node for node, _ in second], np.int64))
            self.accept[fresh] = [exit_ for _, exit_ in second]

    def skip_nullable(self, deadline: Deadline | None = None) -> None:
        """Add epsilons from calls to the returns of exits that the callee reaches without reading; a least fixpoint."""
        following: dict[int, list[int]] = {}
        for source, target in np.concatenate(self.epsilons).tolist():
            following.setdefault(source, []).append(target)
        added: set[tuple[int, int]] = set()
        while True:
            if deadline is not None:
                deadline.check_now()
            nullable = [self._silent_exits(base, following) for base in self.bases[:-1]]
            found = {(call.node, call.returns[exit_]) for call in self.calls for exit_ in nullable[call.rule] if call.returns[exit_] >= 0}
            if found <= added:
                break
            for source, target in found - added:
                following.setdefault(source, []).append(target)
            added |= found
        if added:
            self.epsilons.append(np.array(sorted(added), np.int64))

    def _silent_exits(self, start: int, following: dict[int, list[int]]) -> set[int]:
        """The exits that a rule's start reaches by epsilons alone."""
        seen, stack = {start}, [start]
        while stack:
            for target in following.get(stack.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return {int(self.accept[node]) for node in seen if self.accept[node] >= 0}

    def _useful(self, epsilons: Int64) -> npt.NDArray[np.bool_]:
        """Nodes that the root's start reaches and that reach an end of their rule; a call reaches its returns."""
        returns = np.array([(call.node, node) for call in self.calls for node in call.returns if node >= 0], np.int64).reshape(-1, 2)
        entries = np.array([(call.node, self.bases[call.rule]) for call in self.calls], np.int64).reshape(-1, 2)
        inside = np.concatenate([*self.reads, epsilons, returns])
        forward = np.concatenate([inside, entries])
        reached = reach(*group(forward[:, 0], forward[:, 1], len(self.table)), [self.bases[self.grammar.root]])
        return reached & reach(*group(inside[:, 1], inside[:, 0], len(self.table)), np.flatnonzero(self.accept >= 0).tolist())

    def finish(self) -> Nfa:
        """Drop useless nodes and number the others rule by rule."""
        epsilons = np.concatenate(self.epsilons)
        useful = self._useful(epsilons)
        keep = useful.copy()
        keep[self.bases[:-1]] = True  # a rule has a start even where nothing reaches it
        kept = np.flatnonzero(keep)
        kept = kept[np.argsort(self.owner[kept], kind="stable")]
        place = np.full(len(self.table) + 1, -1, np.int32)
        place[kept] = np.arange(len(kept))
        starts = tuple(place[self.bases[:-1]].tolist())
        place[:-1][~useful] = -1
        pairs = place[epsilons]
        pairs = pairs[(pairs >= 0).all(axis=1)]
        offsets, targets = group(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), len(kept))
        calls = [CallEdge(int(place[call.node]), call.rule, tuple(place[list(call.returns)].tolist())) for call in self.calls]
        return Nfa(
            self.byte_class, place[self.table[kept]], offsets.astype(np.int32), targets.astype(np.int32), self.accept[kept],
            starts, tuple(call for call in calls if call.node >= 0 and max(call.returns, default=-1) >= 0), self._marked(place),
        )

    def _marked(self, place: Int32) -> tuple[Mark, ...]:
        """The marked nodes in the numbering ``place``."""
        marks = [(int(place[base + node]), several)
                 for rule, base in zip(self.grammar.rules, self.bases, strict=False) for node, several in rule.marks]
        return tuple(mark for mark in marks if mark[0] >= 0)


def _common_classes(grammar: Grammar) -> npt.NDArray[np.uint8]:
    """uint8 ``[256]``: bytes that no DFA and no byte edge tells apart share a class; classes are numbered by their first byte."""
    columns = {id(block.dfa): block.dfa.byte_class for rule in grammar.rules for block in rule.blocks}
    ranges = np.unique(np.concatenate([rule.bytes_[:, 1] * 256 + rule.bytes_[:, 2] for rule in grammar.rules]))
    value = np.arange(256)[:, None]
    inside = (value >= ranges >> 8) & (value <= ranges & 255)
    marks = np.concatenate([np.stack([np.zeros(256, np.uint8), *columns.values()], axis=1), inside.astype(np.uint8)], axis=1)
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in marks], np.uint8)
