"""Minimisation of deterministic rows: the coarsest partition that respects colours and successors.

In: int32 rows ``[nodes, width]`` (-1 dead) and a colour per node; the rows may be states of a DFA, or states, enter edges and call
sites of a machine in one matrix, told apart by colour. Out: a block per node, such that two nodes share a block exactly when
their colours agree and their successors share blocks, column by column (bisimilarity; for trimmed rows, language equality).

Two phases. Hashed Moore rounds split everything that short words tell apart; each is a few array operations, and they stop as soon
as one gains little. What is left, such as the hundred equal-looking states of a ``maxLength``, goes to a worklist that
recomputes only nodes whose successors moved and lets the largest part of a split block keep its number, so that a node moves
at most log2(nodes) times: O(edges log nodes) signature cells (Hopcroft 1971; in this form Jacobs and Wissmann, POPL 2023).
Hashes never decide the result: a collision merges nodes that the worklist then splits exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from stcc.compiler.adjacency import distinct_edges, group, reach
from stcc.compiler.dfa import Dfa

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
UInt8 = npt.NDArray[np.uint8]

_ROUND_GAIN = 48  # a hashed round must split off 1/48 of the nodes to be cheaper than the worklist
_CHUNK_CELLS = 1 << 20


def minimize_dfa(dfa: Dfa) -> Dfa:
    """The least trim DFA of the same labelled language, in canonical numbering: equal languages give equal arrays.

    States that are unreachable or dead go; byte classes with equal columns merge, numbered by their first byte. The empty language
    gives one state without edges. O(cells + edges log states).
    """
    keep = np.flatnonzero(_useful(dfa))
    if not keep.size:
        return Dfa(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.full(1, -1, np.int32), 0)
    dense = np.full(dfa.states + 1, -1, np.int32)
    dense[keep] = np.arange(len(keep))
    table, byte_class = merge_columns(dense[dfa.table[keep]], dfa.byte_class)
    accept = dfa.accept[keep]
    block = refine(table, accept)
    first = first_members(block)
    table, byte_class = merge_columns(np.append(block, np.int32(-1))[table[first]], byte_class)
    order = reverse_postorder([list(dict.fromkeys(row)) for row in table.tolist()], int(block[dense[dfa.start]]))
    place = inverse(order, len(first))
    return Dfa(byte_class, place[table[order]], accept[first][order].astype(np.int32), 0)


def refine(table: Int32, colour: Int32) -> Int32:
    """int32 ``[nodes]``: the coarsest stable partition finer than ``colour``; blocks numbered from 0 without gaps."""
    colours, count = _dense(colour)
    block, nodes = colours, len(colours)
    while True:
        finer, finer_count = _dense(_hash_rows(table, block, count))
        gain = finer_count - count
        block, count = finer, finer_count
        if gain * _ROUND_GAIN < nodes or count == nodes:
            break
    block, count = _dense(block.astype(np.int64) * (int(colours.max()) + 1) + colours)  # exact even if two hashes collided
    if count < nodes:
        block = _Refinement(table, block, count).run()
    return block


def first_members(block: Int32) -> Int64:
    """int64 ``[blocks]``: the first node of each block."""
    _, first = np.unique(block, return_index=True)
    return first.astype(np.int64)


def inverse(order: Int64, count: int) -> Int32:
    """int32 ``[count + 1]``: position of each node in ``order``, -1 where it has none and at the end, so that -1 maps to -1."""
    place = np.full(count + 1, -1, np.int32)
    place[order] = np.arange(len(order))
    return place


def merge_columns(table: Int32, byte_class: UInt8) -> tuple[Int32, UInt8]:
    """Merge classes with equal columns and drop classes without bytes; classes are numbered by their first byte."""
    columns = np.ascontiguousarray(table.T)
    numbers: dict[bytes, int] = {}
    chosen: list[int] = []
    merged = np.zeros(table.shape[1], np.uint8)
    for column in dict.fromkeys(byte_class.tolist()):
        key = columns[column].tobytes()
        if key not in numbers:
            numbers[key] = len(chosen)
            chosen.append(column)
        merged[column] = numbers[key]
    return np.ascontiguousarray(columns[chosen].T), merged[byte_class]


def reverse_postorder(successors: Sequence[Sequence[int]], start: int) -> Int64:
    """Reachable nodes in reverse postorder of a depth-first search; a node comes before what it leads to, cycles aside.

    So the states of a literal are consecutive, each field of an object occupies a range of its own, and equal structures repeat the same
    differences, which the file stores once. Successors listed first are placed first; negative ones are skipped. Linear.
    """
    seen = bytearray(len(successors))
    seen[start] = 1
    finished: list[int] = []
    work = [(start, reversed(successors[start]))]
    while work:
        node, rest = work[-1]
        for target in rest:
            if target >= 0 and not seen[target]:
                seen[target] = 1
                work.append((target, reversed(successors[target])))
                break
        else:
            finished.append(node)
            work.pop()
    return np.array(finished[::-1], np.int64)


def _useful(dfa: Dfa) -> npt.NDArray[np.bool_]:
    """States that lie on a path from the start to an accepting state."""
    sources, targets = distinct_edges(dfa.table)
    forward = reach(*group(sources, targets, dfa.states), [dfa.start])
    backward = reach(*group(targets, sources, dfa.states), np.flatnonzero(dfa.accept >= 0).tolist())
    return forward & backward


def _dense(keys: Int32 | Int64 | UInt64) -> tuple[Int32, int]:
    values, block = np.unique(keys, return_inverse=True)
    return block.reshape(-1).astype(np.int32), len(values)


def _mix(values: UInt64) -> UInt64:
    """The splitmix64 finaliser: a bijection that scatters small integers over 64 bits."""
    values = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_SCATTERED = _mix(np.arange(1 << 12, dtype=np.uint64))  # so that small automata pay one slice
_WEIGHTS = _mix(np.arange(1 << 40, (1 << 40) + 256, dtype=np.uint64)) | np.uint64(1)


def _hash_rows(table: Int32, block: Int32, count: int) -> UInt64:
    """uint64 ``[nodes]``: a hash of each node's block and its successors' blocks."""
    mixed = _SCATTERED if count <= len(_SCATTERED) else _mix(np.arange(count, dtype=np.uint64))
    value = np.append(mixed[block], np.uint64(0))
    weights = np.resize(_WEIGHTS, table.shape[1])  # wider rows repeat weights, which costs sharpness only
    hashes = value[:-1] * np.uint64(0xD6E8FEB86659FD93)
    step = max(1, _CHUNK_CELLS // table.shape[1])
    for low in range(0, len(table), step):
        hashes[low:low + step] += value[table[low:low + step]] @ weights
    return hashes


class _Refinement:
    """The exact worklist phase. Invariant: the clean members of a block have equal signatures (successor blocks)."""

    def __init__(self, table: Int32, block: Int32, count: int) -> None:
        self.table, self.count = table, count
        self.rows: dict[int, list[int]] = {}
        self.block: list[int] = [*block.tolist(), -1]
        shared = np.bincount(block, minlength=count)[block] > 1
        nodes = np.flatnonzero(shared)
        self.members: dict[int, set[int]] = {}
        for node, number in zip(nodes.tolist(), block[nodes].tolist(), strict=True):
            self.members.setdefault(number, set()).add(node)
        signatures = np.append(block, np.int32(-1))[table[nodes]]
        first = first_members(block)
        model = np.append(block, np.int32(-1))[table[first[block[nodes]]]]
        stale = nodes[(signatures != model).any(axis=1)]
        self.dirty: dict[int, set[int]] = {}
        if stale.size:
            sources, targets = distinct_edges(table[nodes])
            offsets, self.predecessors = (part.tolist() for part in group(targets, nodes[sources], len(table)))
            self.offsets: list[int] = offsets
            self.mark(stale.tolist())

    def mark(self, nodes: list[int]) -> None:
        """Note that the signatures of ``nodes`` may have changed."""
        for node in nodes:
            number = self.block[node]
            if number in self.members:
                self.dirty.setdefault(number, set()).add(node)

    def signature(self, node: int) -> tuple[int, ...]:
        """The blocks of a node's successors."""
        row = self.rows.get(node)
        if row is None:
            row = self.rows[node] = self.table[node].tolist()
        block = self.block
        return tuple([block[target] for target in row])

    def run(self) -> Int32:
        """Split until no node is dirty."""
        while self.dirty:
            number = next(iter(self.dirty))
            moved = self.split(number, self.dirty.pop(number))
            for node in moved:
                self.mark(self.predecessors[self.offsets[node]:self.offsets[node + 1]])
        return np.array(self.block[:-1], np.int32)

    def split(self, number: int, dirty: set[int]) -> list[int]:
        """Split one block by signature; the nodes that got a new number."""
        members = self.members[number]
        parts: dict[tuple[int, ...], set[int]] = {}
        for node in dirty:
            parts.setdefault(self.signature(node), set()).add(node)
        if len(dirty) < len(members):
            model = self.signature(next(node for node in members if node not in dirty))
            settled = len(members) - len(dirty)
            joining = parts.pop(model, set())
            if settled + len(joining) < max(map(len, parts.values()), default=0):
                parts[model] = members.difference(*parts.values())
            else:
                return self._move(number, list(parts.values()))
        largest = max(parts, key=lambda key: len(parts[key]))
        del parts[largest]
        return self._move(number, list(parts.values()))

    def _move(self, number: int, parts: list[set[int]]) -> list[int]:
        members = self.members[number]
        moved: list[int] = []
        for part in parts:
            members -= part
            for node in part:
                self.block[node] = self.count
            if len(part) > 1:
                self.members[self.count] = part
            self.count += 1
            moved += part
        if len(members) == 1:
            del self.members[number]
        return moved
