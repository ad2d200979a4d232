"""Sparse views of transition tables and grammars: distinct edges, reachability, strongly connected components.

In: int32 tables ``[nodes, classes]`` (-1 dead) or edge lists. Out: CSR arrays and boolean marks. Deduplicating a row costs one
sort of its cells; everything after that is linear in nodes plus distinct edges, which for scalars is a few edges a node
where the table has dozens of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.ir import Grammar

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def distinct_edges(table: Int32) -> tuple[Int64, Int64]:
    """Sources and targets (int64, sorted by source) of a table's edges, one a pair however many classes carry it."""
    cells = np.sort(table, axis=1)
    keep = cells >= 0
    keep[:, 1:] &= cells[:, 1:] != cells[:, :-1]
    sources, columns = np.nonzero(keep)
    return sources, cells[sources, columns].astype(np.int64)


def group(keys: Int64, values: Int64, count: int) -> tuple[Int64, Int64]:
    """CSR of ``values`` by ``keys`` in ``0..count-1``: offsets int64 ``[count + 1]`` and the values, order kept within a key."""
    order = np.argsort(keys, kind="stable")
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=offsets[1:])
    return offsets, values[order]


def reach(offsets: Int64, targets: Int64, seeds: Iterable[int]) -> Bool:
    """bool ``[nodes]``: what the CSR edges reach from ``seeds``, seeds included. Linear."""
    bounds, following = offsets.tolist(), targets.tolist()
    seen = bytearray(len(bounds) - 1)
    stack = []
    for seed in seeds:
        if not seen[seed]:
            seen[seed] = 1
            stack.append(seed)
    while stack:
        node = stack.pop()
        for target in following[bounds[node]:bounds[node + 1]]:
            if not seen[target]:
                seen[target] = 1
                stack.append(target)
    return np.frombuffer(seen, np.uint8).astype(np.bool_)


def components(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Strongly connected components, each before those that reach it (Tarjan 1972, without recursion). Linear."""
    count = len(successors)
    index, low, on_stack = [-1] * count, [0] * count, bytearray(count)
    found: list[list[int]] = []
    path: list[int] = []
    clock = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = clock
        clock += 1
        path.append(root)
        on_stack[root] = 1
        while work:
            node, rest = work[-1]
            for target in rest:
                if index[target] < 0:
                    index[target] = low[target] = clock
                    clock += 1
                    path.append(target)
                    on_stack[target] = 1
                    work.append((target, iter(successors[target])))
                    break
                if on_stack[target]:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_pop_component(path, on_stack, node))
    return found


def _pop_component(path: list[int], on_stack: bytearray, node: int) -> list[int]:
    """Take the component that ``node`` closes off Tarjan's path."""
    start = len(path) - 1
    while path[start] != node:
        start -= 1
    component = sorted(path[start:])
    del path[start:]
    for member in component:
        on_stack[member] = 0
    return component


@dataclass(frozen=True, eq=False)
class GrammarEdges:
    """All rules' nodes in one numbering (``bases[rule] + node``), and the edges between them; calls are not edges.

    Attributes:
        bases: int64 ``[rules + 1]``.
        reads: int64 ``[n, 2]`` rows ``source, target`` of edges that read a byte, one a pair within a block.
        epsilons: int64 ``[n, 2]``.
    """

    bases: Int64
    reads: Int64
    epsilons: Int64


def grammar_edges(grammar: Grammar) -> GrammarEdges:
    """The edges of every rule, blocks included; each distinct DFA is deduplicated once."""
    bases = np.cumsum([0, *(rule.nodes for rule in grammar.rules)]).astype(np.int64)
    distinct: dict[int, Int64] = {}
    reads: list[Int64] = []
    epsilons: list[Int64] = []
    for rule, base in zip(grammar.rules, bases.tolist(), strict=False):
        reads.append(rule.bytes_[:, [0, 3]].astype(np.int64) + base)
        epsilons.append(rule.epsilons.astype(np.int64) + base)
        for block in rule.blocks:
            if id(block.dfa) not in distinct:
                distinct[id(block.dfa)] = np.stack(distinct_edges(block.dfa.table), axis=1)
            reads.append(distinct[id(block.dfa)] + (base + block.base))
    return GrammarEdges(bases, np.concatenate(reads), np.concatenate(epsilons))
