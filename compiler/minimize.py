"""Minimisation of deterministic rows: the coarsest partition that respects colours and successors.

In: int32 rows ``[nodes, width]`` (-1 dead) and a colour per node; the rows may be states of a DFA, or states, enter edges and call
sites of a machine in one matrix, told apart by colour. Out: a block per node, such that two nodes share a block exactly when
their colours agree and their successors share blocks, column by column (bisimilarity; for trimmed rows, language equality).

Two phases. Hashed Moore rounds split everything that short words tell apart; each is a few array operations, and they stop as soon
as one gains little. What is left, such as the hundred equal-looking states of a ``maxLength``, goes to a worklist that
looks again only at nodes whose successors moved and lets the largest part of a split block keep its number, so that a node moves
at most log2(nodes) times: O(edges log nodes) updates of signatures (Hopcroft 1971; in this form Jacobs and Wissmann, POPL 2023).
Hashes never decide the result: they can only fail to split, an exact comparison of all rows at the end says so, and the worklist
then runs again with other weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import distinct_edges, group, reach
from stcc.compiler.dfa import Dfa
from stcc.compiler.options import Deadline

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
UInt8 = npt.NDArray[np.uint8]

_ROUND_GAIN = 150  # a hashed round that splits off fewer than 1/150 of the nodes costs more than the worklist (measured at 16 to 500)
_CHUNK_CELLS = 1 << 20
_WORD = (1 << 64) - 1


def minimize_dfa(dfa: Dfa, deadline: Deadline | None = None) -> Dfa:
    """The least trim DFA of the same labelled language, in canonical numbering: equal languages give equal arrays.

    States that are unreachable or dead go; byte classes with equal columns merge, numbered by their first byte. The empty language
    gives one state without edges. O(cells + edges log states). BudgetError past the deadline.
    """
    keep = np.flatnonzero(_useful(dfa))
    if not keep.size:
        return Dfa(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.full(1, -1, np.int32), 0)
    dense = np.full(dfa.states + 1, -1, np.int32)
    dense[keep] = np.arange(len(keep))
    table, byte_class = merge_columns(dense[dfa.table[keep]], dfa.byte_class)
    accept = dfa.accept[keep]
    block = refine(table, accept, deadline)
    first = first_members(block)
    table, byte_class = merge_columns(np.append(block, np.int32(-1))[table[first]], byte_class)
    order = reverse_postorder([list(dict.fromkeys(row)) for row in table.tolist()], int(block[dense[dfa.start]]))
    place = inverse(order, len(first))
    return Dfa(byte_class, place[table[order]], accept[first][order].astype(np.int32), 0)


def refine(table: Int32, colour: Int32, deadline: Deadline | None = None) -> Int32:
    """int32 ``[nodes]``: the coarsest stable partition finer than ``colour``; blocks numbered from 0 without gaps.

    BudgetError past the deadline.
    """
    colours, count = _dense(colour)
    block, nodes = colours, len(colours)
    places = table.astype(np.intp)  # which indexing would make anew each round
    while True:
        if deadline is not None:
            deadline.check_now()
        finer, finer_count = _dense(_hash_rows(places, block, count))
        gain = finer_count - count
        block, count = finer, finer_count
        if gain * _ROUND_GAIN < nodes or count == nodes:
            break
    block, count = _dense(block.astype(np.int64) * (int(colours.max()) + 1) + colours)  # exact even if two hashes collided
    seed = 0
    while count < nodes and not _stable(table, block):
        block, count = _Refinement(table, block, count, seed).run(deadline)
        seed += 1  # two signatures collided if this is not the last turn
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


def _hash_rows(table: npt.NDArray[np.intp], block: Int32, count: int) -> UInt64:
    """uint64 ``[nodes]``: a hash of each node's block and its successors' blocks."""
    mixed = _SCATTERED if count <= len(_SCATTERED) else _mix(np.arange(count, dtype=np.uint64))
    value = np.append(mixed[block], np.uint64(0))
    weights = np.resize(_WEIGHTS, table.shape[1])  # wider rows repeat weights, which costs sharpness only
    hashes = value[:-1] * np.uint64(0xD6E8FEB86659FD93)
    step = max(1, _CHUNK_CELLS // table.shape[1])
    for low in range(0, len(table), step):
        hashes[low:low + step] += value[table[low:low + step]] @ weights
    return hashes


def _stable(table: Int32, block: Int32) -> bool:
    """Whether the members of every block have equal rows of blocks: the exact test that closes the hashed phases."""
    following = np.append(block, np.int32(-1))
    model = first_members(block)[block]
    step = max(1, _CHUNK_CELLS // table.shape[1])
    chunks = [slice(low, low + step) for low in range(0, len(table), step)]
    return all(np.array_equal(following[table[chunk]], following[table[model[chunk]]]) for chunk in chunks)


class _Refinement:
    """The worklist phase. A node's *signature* is a weighted sum of its successors' block values, updated as those move.

    Invariant: the clean members of a block have equal signatures.
    """

    def __init__(self, table: Int32, block: Int32, count: int, seed: int) -> None:
        self.count = count
        values = _mix(np.arange(len(table) + 1, dtype=np.uint64) + np.uint64(seed << 32))
        weights = np.resize(np.roll(_WEIGHTS, seed), table.shape[1])
        self.values: list[int] = values.tolist()
        self.block: list[int] = block.tolist()
        sources, targets, weight = _weighted_edges(table, weights)
        sums = np.zeros(len(table), np.uint64)
        np.add.at(sums, sources, weight * values[block[targets]])
        self.sums: list[int] = sums.tolist()
        shared = np.bincount(block, minlength=count)[block] > 1
        unsettled = shared[sources]  # a node alone in its block needs no signature
        order = np.argsort(targets[unsettled], kind="stable")
        self.sources: list[int] = sources[unsettled][order].tolist()
        self.weights: list[int] = weight[unsettled][order].tolist()
        self.offsets: list[int] = np.cumsum(np.append(0, np.bincount(targets[unsettled], minlength=len(table)))).tolist()
        self.members: dict[int, set[int]] = {}
        for node in np.flatnonzero(shared).tolist():
            self.members.setdefault(self.block[node], set()).add(node)
        self.dirty: dict[int, set[int]] = {}
        for node in np.flatnonzero(sums != sums[first_members(block)[block]]).tolist():
            self.dirty.setdefault(self.block[node], set()).add(node)

    def run(self, deadline: Deadline | None) -> tuple[Int32, int]:
        """Split until no node is dirty; blocks and their number."""
        while self.dirty:
            if deadline is not None:
                deadline.check()
            number = next(iter(self.dirty))
            parts = self.split(number, self.dirty.pop(number))
            changes = [self.move(number, part) for part in parts]
            for part, change in zip(parts, changes, strict=True):
                self.update(part, change)
        return np.array(self.block, np.int32), self.count

    def split(self, number: int, dirty: set[int]) -> list[set[int]]:
        """Part a block by signature; all parts but the largest."""
        members, sums = self.members[number], self.sums
        parts: dict[int, set[int]] = {}
        for node in dirty:
            parts.setdefault(sums[node], set()).add(node)
        if len(dirty) < len(members):
            model = sums[next(node for node in members if node not in dirty)]
            joining = parts.pop(model, set())
            settled = len(members) - len(dirty) + len(joining)
            if settled >= max(map(len, parts.values()), default=0):
                return list(parts.values())
            parts[model] = members.difference(*parts.values())
        del parts[max(parts, key=lambda key: len(parts[key]))]
        return list(parts.values())

    def move(self, number: int, part: set[int]) -> int:
        """Give ``part`` a block of its own; by how much the value of its nodes changes."""
        members = self.members[number]
        members -= part
        if len(part) > 1:
            self.members[self.count] = part
        for node in part:
            self.block[node] = self.count
        self.count += 1
        return self.values[self.count - 1] - self.values[number]

    def update(self, part: set[int], change: int) -> None:
        """Bring the signatures of what leads to ``part`` up to date, and mark it."""
        offsets, block, sums, dirty = self.offsets, self.block, self.sums, self.dirty
        for node in part:
            for place in range(offsets[node], offsets[node + 1]):
                source = self.sources[place]
                sums[source] = sums[source] + change * self.weights[place] & _WORD
                number = block[source]
                if number in self.members:
                    dirty.setdefault(number, set()).add(source)


def _weighted_edges(table: Int32, weights: UInt64) -> tuple[Int64, Int64, UInt64]:
    """Distinct edges as in ``distinct_edges``, each with the sum of the weights of the columns that carry it."""
    columns = np.argsort(table, axis=1, kind="stable")
    cells = np.take_along_axis(table, columns, axis=1)
    first = cells >= 0
    first[:, 1:] &= cells[:, 1:] != cells[:, :-1]
    sources, places = np.nonzero(first)
    carried = np.where(cells >= 0, weights[columns], np.uint64(0)).reshape(-1)
    starts = sources * table.shape[1] + places
    sums = np.add.reduceat(carried, starts) if starts.size else np.zeros(0, np.uint64)
    return sources, cells[sources, places].astype(np.int64), sums
