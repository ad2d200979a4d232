"""Subset construction over table-form automata.

In: an ``Nfa`` (one successor per node and class, nondeterminism in epsilon edges, calls between rules). Out: ``Subsets``, the
reachable sets as rows, or a plain ``Dfa`` for scalars. Afterwards: every row is deterministic; every set lies in one rule.

Most sets never meet Python. The set ``{n}`` is numbered ``n`` and its row is ``closure[table[n]]``, one gather for all nodes; a
closure of several members whose rows agree wherever two are alive takes the maximum of their rows, one ``reduceat`` for all
such closures. Only classes on which two members go to different closures make a set that no single node names; those go
through a worklist, in batches. Cost: O(nodes x classes) array work plus O(reachable sets), plus the truly nondeterministic cells.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import components
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.ir import CallEdge, Mark
from stcc.compiler.nfa import Nfa
from stcc.compiler.options import Deadline

Int32 = npt.NDArray[np.int32]

_BATCH_CELLS = 1 << 21  # cells gathered at once: 8 MB


@dataclass(frozen=True)
class SetCall:
    """From state ``state``, rule ``rule`` may be called; ``returns[e]`` is the state after its exit ``e``, -1 where it is not wanted."""

    state: int
    rule: int
    returns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Subsets:
    """The reachable sets of a subset construction, numbered in order of discovery.

    Attributes:
        table: int32 ``[states, classes]``, next state or -1.
        accept: int32 ``[states]``, smallest label of a member, -1 if none has one.
        clashing: states whose members carry two different labels.
        owner: int32 ``[states]``, the rule each state lies in.
        starts: state of each rule's start; -1 for rules that nothing reached.
        calls: one per state and callee.
        marked: states with a marked member, the marks joined: the ``[`` of an array whose items must differ pairwise leads there.
    """

    table: Int32
    accept: Int32
    clashing: tuple[int, ...]
    owner: Int32
    starts: tuple[int, ...]
    calls: tuple[SetCall, ...]
    marked: tuple[Mark, ...] = ()


def determinize_dfa(nfa: Nfa, *, max_states: int = 200_000, deadline: Deadline | None = None) -> Dfa:
    """The reachable part of the subset automaton of rule 0, an equivalent partial DFA; where two labels meet the smallest wins.

    Not trimmed and not minimal: see ``stcc.compiler.minimize``. The empty language gives one state without edges.
    Raises BudgetError beyond ``max_states`` or the deadline. Source: Rabin and Scott 1959.
    """
    subsets = determinize(nfa, max_states=max_states, deadline=deadline)
    if subsets.starts[0] < 0:
        return Dfa(nfa.byte_class, np.full((1, nfa.table.shape[1]), -1, np.int32), np.full(1, -1, np.int32), 0)
    return Dfa(nfa.byte_class, subsets.table, subsets.accept, subsets.starts[0])


def determinize(
    nfa: Nfa, *, root: int = 0, names: Sequence[str] = (), max_states: int = 200_000, deadline: Deadline | None = None,
) -> Subsets:
    """Every set reachable from rule ``root``, through calls too.

    ``names`` are the rules' names, for messages. Raises BudgetError, naming the rule that grew most, beyond ``max_states`` sets.
    """
    construction = _Construction(nfa, names, max_states, deadline)
    construction.explore(root)
    return construction.finish()


class _Construction:
    """Sets under construction: ``{n}`` has number ``n``; the others are numbered from ``nodes`` on, in ``members``."""

    def __init__(self, nfa: Nfa, names: Sequence[str], max_states: int, deadline: Deadline | None) -> None:
        self.nfa, self.names, self.max_states, self.deadline = nfa, names, max_states, deadline
        self.nodes = int(nfa.table.shape[0])
        self.node_calls: dict[int, list[CallEdge]] = {}
        for call in nfa.calls:
            self.node_calls.setdefault(call.node, []).append(call)
        self.members: list[tuple[int, ...]] = []
        self.rows: list[Int32 | None] = []
        self.numbers: dict[tuple[int, ...], int] = {}
        self.unions: dict[frozenset[int], int] = {}
        self.closure = self._closures()
        self.single_rows: Int32 = np.append(self.closure, np.int32(-1))[nfa.table]
        self.named = len(self.members)  # closures; sets beyond them come from nondeterminism alone
        self.seen: dict[int, int] = {}
        self.set_calls: list[tuple[int, int, tuple[int, ...]]] = []
        self.resolve(list(range(self.nodes, self.nodes + len(self.members))), only_plain=True)

    def intern(self, nodes: Iterable[int]) -> int:
        """The number of a set of nodes; -1 for the empty set."""
        key = tuple(sorted(nodes))
        if len(key) < 2:
            return key[0] if key else -1
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = self.nodes + len(self.members)
            self.members.append(key)
            self.rows.append(None)
        return number

    def nodes_of(self, number: int) -> tuple[int, ...]:
        """The members of a set."""
        return (number,) if number < self.nodes else self.members[number - self.nodes]

    def union(self, numbers: frozenset[int]) -> int:
        """The number of the union of sets; -1 among the numbers is the empty set."""
        number = self.unions.get(numbers)
        if number is None:
            merged: set[int] = set()
            for part in numbers:
                if part >= 0:
                    merged.update(self.nodes_of(part))
            number = self.unions[numbers] = self.intern(merged)
        return number

    def _closures(self) -> Int32:
        """int32 ``[nodes]``: each node's epsilon closure, members that neither read, accept nor call left out."""
        nfa = self.nfa
        matters = (nfa.table >= 0).any(axis=1) | (nfa.accept >= 0)
        matters[list(self.node_calls)] = True
        matters[[node for node, _ in nfa.marked]] = True
        closure: Int32 = np.where(matters, np.arange(self.nodes), -1).astype(np.int32)
        sources = np.flatnonzero(np.diff(nfa.epsilon_offsets) > 0)
        if not sources.size:
            return closure
        local = {node: position for position, node in enumerate(sources.tolist())}
        offsets, flat = nfa.epsilon_offsets.tolist(), nfa.epsilon_targets.tolist()
        targets = [flat[offsets[node]:offsets[node + 1]] for node in local]
        nodes = list(local)
        for component in components([[local[t] for t in row if t in local] for row in targets]):
            self._check_time(nodes[component[0]])
            merged: set[int] = {nodes[position] for position in component if matters[nodes[position]]}
            inside = {nodes[position] for position in component}
            for position in component:
                for target in targets[position]:
                    if target not in inside and closure[target] >= 0:
                        merged.update(self.nodes_of(int(closure[target])))
            number = self.intern(merged)
            for position in component:
                closure[nodes[position]] = number
        return closure

    def resolve(self, numbers: list[int], only_plain: bool = False) -> None:
        """Compute the rows of sets with several members; with ``only_plain`` just those where no two members clash."""
        sizes = [len(self.members[number - self.nodes]) for number in numbers]
        limit = max(1, _BATCH_CELLS // max(1, self.nfa.table.shape[1]))
        low = 0
        while low < len(numbers):
            high, total = low + 1, sizes[low]
            while high < len(numbers) and total + sizes[high] <= limit:
                total += sizes[high]
                high += 1
            self._resolve_batch(numbers[low:high], sizes[low:high], only_plain)
            low = high

    def _resolve_batch(self, numbers: list[int], sizes: list[int], only_plain: bool) -> None:
        flat = [node for number in numbers for node in self.members[number - self.nodes]]
        cells = self.single_rows[flat]
        starts = np.cumsum([0, *sizes[:-1]])
        highest = np.maximum.reduceat(cells, starts, axis=0)
        lowest = np.minimum.reduceat(cells.view(np.uint32), starts, axis=0)  # -1 is the largest unsigned value
        clash = lowest != highest.view(np.uint32)
        clashing = clash.any(axis=1).tolist()
        for position, number in enumerate(numbers):
            if not clashing[position]:
                self.rows[number - self.nodes] = highest[position]
            elif not only_plain:
                columns = np.flatnonzero(clash[position])
                start = int(starts[position])
                block = cells[start:start + sizes[position], columns].T.tolist()
                highest[position, columns] = [self.union(frozenset(column)) for column in block]
                self.rows[number - self.nodes] = highest[position]
                self._check(number, len(self.numbers) - self.named)

    def calls_from(self, number: int) -> list[int]:
        """Record the calls of a set, one per callee; the sets they lead to."""
        returns: dict[int, list[set[int]]] = {}
        for node in self.nodes_of(number):
            for call in self.node_calls.get(node, ()):
                slots = returns.setdefault(call.rule, [set() for _ in call.returns])
                for slot, target in zip(slots, call.returns, strict=True):
                    slot.add(int(self.closure[target]) if target >= 0 else -1)
        reached = []
        for rule, slots in returns.items():
            landed = tuple(self.union(frozenset(slot)) for slot in slots)
            self.set_calls.append((number, rule, landed))
            reached += [int(self.closure[self.nfa.starts[rule]]), *landed]
        return reached

    def explore(self, root: int) -> None:
        """Find every reachable set, resolving clashing ones in batches as they turn up."""
        first = int(self.closure[self.nfa.starts[root]])
        stack = [first] if first >= 0 else []
        self.seen.update((number, 0) for number in stack)
        while stack:
            pending: list[int] = []
            while stack:
                number = stack.pop()
                row = self.single_rows[number] if number < self.nodes else self.rows[number - self.nodes]
                if row is None:
                    pending.append(number)
                    continue
                found = set(row.tolist())
                if self.node_calls and any(node in self.node_calls for node in self.nodes_of(number)):
                    found.update(self.calls_from(number))
                for target in found:
                    if target >= 0 and target not in self.seen:
                        self.seen[target] = len(self.seen)
                        stack.append(target)
                self._check(number, len(self.seen))
            self.resolve(pending)
            stack = pending

    def _rule(self, number: int) -> int:
        """The rule that a set lies in: rules occupy rising ranges of nodes, each beginning with its start."""
        node = number if number < self.nodes else self.members[number - self.nodes][0]
        return bisect_right(self.nfa.starts, node) - 1

    def _name(self, number: int) -> str:
        return self.names[self._rule(number)] if self.names else ""

    def _check_time(self, number: int) -> None:
        if self.deadline is not None and self.deadline.due():
            self.deadline.check_now(self._name(number))

    def _check(self, number: int, sets: int) -> None:
        self._check_time(number)
        if sets > self.max_states:
            grown = Counter(self._name(number) for number in self.seen)
            raise BudgetError(f"the automaton needs more than {self.max_states} states", pointer=max(grown, key=lambda name: grown[name]),
                              hint="raise max_states (--max-states), or simplify the source here")

    def finish(self) -> Subsets:
        """Renumber the reachable sets densely, in order of discovery."""
        numbers = np.fromiter(self.seen, np.int64, len(self.seen))
        dense = np.full(self.nodes + len(self.members) + 1, -1, np.int32)
        dense[numbers] = np.arange(len(numbers))
        table = np.empty((len(numbers), self.nfa.table.shape[1]), np.int32)
        single = numbers < self.nodes
        table[single] = self.single_rows[numbers[single]]
        several = np.flatnonzero(~single)
        accept = np.full(len(numbers), -1, np.int32)
        accept[single] = self.nfa.accept[numbers[single]]
        clashing = []
        for state in several.tolist():
            row = self.rows[int(numbers[state]) - self.nodes]
            assert row is not None
            table[state] = row
            labels = {label for label in self.nfa.accept[list(self.nodes_of(int(numbers[state])))].tolist() if label >= 0}
            accept[state] = min(labels, default=-1)
            if len(labels) > 1:
                clashing.append(state)
        first = numbers.copy()
        first[several] = [self.members[int(number) - self.nodes][0] for number in numbers[several]]
        owner = (np.searchsorted(self.nfa.starts, first, side="right") - 1).astype(np.int32)
        starts = tuple(int(dense[self.closure[start]]) if self.closure[start] >= 0 else -1 for start in self.nfa.starts)
        calls = tuple(SetCall(int(dense[number]), rule, tuple(int(dense[r]) for r in landed)) for number, rule, landed in self.set_calls)
        return Subsets(dense[table], accept, tuple(clashing), owner, starts, calls, self._marked(numbers.tolist()))

    def _marked(self, numbers: list[int]) -> tuple[Mark, ...]:
        marks = dict(self.nfa.marked)
        members = ((state, self.nodes_of(number)) for state, number in enumerate(numbers if marks else []))
        found = [(state, [marks[node] for node in nodes if node in marks]) for state, nodes in members]
        return tuple((state, any(several)) for state, several in found if several)
