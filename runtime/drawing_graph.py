"""What is drawn of a machine: its states as nodes and what they read as labels between them, with all that is no choice put together.

In: a ``Machine``, and perhaps groups of states that are one box. Out: a ``Graph``. Put together are: chains of forced bytes, into one
label that spells them; the bytes behind the first of a character beyond ASCII or of an escape, where they come back to one state; and the
states of a group that are joined. A call is a dashed arrow to the callee's first state, dotted ones lead to where it returns.
Cost: linear in the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stcc.formats.machine import Machine, end_states
from stcc.formats.summary import printable
from stcc.runtime.expectations import byte_sets

LONGEST_LABEL = 44
_LONGEST_DETOUR = 12
_ESCAPE = ord("\\")
Lines = tuple[str, ...]
Move = tuple[int, list[int], str]


@dataclass(frozen=True)
class Node:
    """A circle (``state``), a box (``group``) or what is read between two of them (``text``).

    Attributes:
        lines: what is written in it.
        shape: one of the three.
        ends: whether the output or a rule may end there.
        loops: what leads from it back to itself.
    """

    lines: Lines
    shape: str
    ends: bool = False
    loops: Lines = ()


@dataclass
class Graph:
    """Nodes, the first of which is the start, and arrows: numbers of two nodes, and ``e`` a move, ``c`` a call, ``r`` a return, or empty
    for an arrow that is not drawn: one node below another.
    """

    nodes: list[Node] = field(default_factory=list)
    arrows: list[tuple[int, int, str]] = field(default_factory=list)


class TooManyNodes(Exception):  # noqa: N818
    """The graph has more nodes than may be drawn."""


def machine_graph(machine: Machine, groups: Mapping[int, Lines], most: int) -> Graph:
    """The graph of ``machine``. TooManyNodes past ``most`` nodes."""
    return _Reduction(machine, groups, most).run()


def box_graph(boxes: list[Lines], arrows: list[tuple[int, int, str]]) -> Graph:
    """A graph of boxes."""
    graph = Graph([Node(lines, "group") for lines in boxes])
    graph.arrows = [arrow for arrow in arrows if arrow[0] != arrow[1]]
    return graph


class _Reduction:
    def __init__(self, machine: Machine, groups: Mapping[int, Lines], most: int) -> None:
        self.machine, self.groups, self.most = machine, groups, most
        self.out: list[list[Move]] = [_moves(machine, state) for state in range(machine.states)]
        self.entered = np.bincount([target for moves in self.out for target, _, _ in moves], minlength=machine.states)
        self.landings = set(machine.returns[machine.returns >= 0].tolist())
        self.ends = machine.accepting | (end_states(machine) & (machine.exits >= 0))
        self.group_of = _joined(self.out, groups)
        self.graph = Graph()
        self.numbers: dict[int, int] = {}
        self.waiting: deque[int] = deque()

    def run(self) -> Graph:
        self.number(self.machine.start)
        while self.waiting:
            self.expand(self.waiting.popleft())
        return self.graph

    def number(self, state: int) -> int:
        """The node of a state; a new one waits to be expanded."""
        leader = self.group_of.get(state, state)
        if leader not in self.numbers:
            members = [other for other, first in self.group_of.items() if first == leader] if state in self.group_of else [state]
            lines = (*self.groups[state], f"{len(members):,} states") if state in self.group_of else (str(state),)
            ends = any(bool(self.ends[member]) for member in members)
            self.numbers[leader] = self.add(Node(lines, "group" if state in self.group_of else "state", ends))
            self.waiting.append(leader)
        return self.numbers[leader]

    def add(self, node: Node) -> int:
        self.graph.nodes.append(node)
        if len(self.graph.nodes) > self.most:
            raise TooManyNodes
        return len(self.graph.nodes) - 1

    def expand(self, leader: int) -> None:
        if leader in self.group_of:
            members = [state for state, first in self.group_of.items() if first == leader]
            moves = [move for state in members for move in self.out[state] if self.group_of.get(move[0]) != leader]
            returns = {target for state in members for target in self.returns(state)}
        else:
            moves, returns = self.out[leader], set(self.returns(leader))
        source = self.numbers[leader]
        loops: list[str] = []
        between: dict[tuple[int, str], list[str]] = {}
        for target, read, kind in moves:
            end, label = self.follow(leader, target, read)
            if end == leader and kind == "e":
                loops.append(label)
            else:
                between.setdefault((self.number(end), kind), []).append(label)
        for (target, kind), labels in between.items():
            text = self.add(Node(_shown(labels), "text"))
            self.graph.arrows += [(source, text, kind), (text, target, kind)]
        for state in sorted(returns):
            self.graph.arrows.append((source, self.number(state), "r"))
        if loops:
            node = self.graph.nodes[source]
            self.graph.nodes[source] = Node(node.lines, node.shape, node.ends, _shown(loops))

    def follow(self, source: int, target: int, read: list[int]) -> tuple[int, str]:
        """Where a move leads once everything that is no choice has been read, and what was read."""
        text = bytes(read) if len(read) == 1 else b""
        label = ", ".join(byte_sets(read)) if len(read) > 1 else ""
        if self.is_tail(read) and target not in self.group_of:
            back = self.detour(target)
            if back is not None:
                return back, "an escape" if read == [_ESCAPE] else "characters beyond ASCII"
        while self.is_inner(target, source):
            (following, more, _), = self.out[target]
            text += bytes(more)
            target = following
        return target, " ".join(filter(None, (label, printable(text.decode("utf-8", "backslashreplace")))))

    def is_tail(self, read: list[int]) -> bool:
        return read == [_ESCAPE] or min(read) >= 0xC2

    def is_inner(self, state: int, source: int) -> bool:
        """Passed through, not chosen at: one byte on, one way in, no end."""
        moves = self.out[state]
        plain = len(moves) == 1 and len(moves[0][1]) == 1 and moves[0][2] == "e" and self.machine.exits[state] < 0
        return (plain and not self.machine.accepting[state] and state not in (self.machine.start, source) and state not in self.landings
                and state not in self.group_of and int(self.entered[state]) == 1)

    def detour(self, state: int) -> int | None:
        """The only state that everything read from ``state`` leads to within a few states; None if there is none."""
        inside, ends = {state}, set[int]()
        waiting = [(state, 0)]
        for here, depth in waiting:  # grows while it is read
            if self.machine.accepting[here] or self.machine.exits[here] >= 0 or here in self.landings or depth > 5:
                return None
            for target, read, kind in self.out[here]:
                if kind != "e" or target in self.group_of:
                    return None
                if depth and min(read) < 0x80 and not _is_hexadecimal(read):
                    return None
                if self.continues(target):
                    if target not in inside:
                        inside.add(target)
                        waiting.append((target, depth + 1))
                else:
                    ends.add(target)
            if len(inside) > _LONGEST_DETOUR or len(ends) > 1:
                return None
        return next(iter(ends)) if len(ends) == 1 else None

    def continues(self, state: int) -> bool:
        """Whether a state is in the middle of a character or of the digits of an escape."""
        reads = [byte for _, read, _ in self.out[state] for byte in read]
        return bool(reads) and (all(0x80 <= byte < 0xC0 for byte in reads) or _is_hexadecimal(reads))

    def returns(self, state: int) -> list[int]:
        """Where the calls made at a state come back to."""
        cells = np.unique(self.machine.table[state])
        sites = {site for cell in cells[cells >= self.machine.states].tolist() for site in self.machine.pushes(cell - self.machine.states)}
        return sorted({int(target) for site in sites for target in self.machine.returns[site] if target >= 0})


def _is_hexadecimal(reads: list[int]) -> bool:
    return all(chr(byte) in "0123456789abcdefABCDEF" for byte in reads)


def _moves(machine: Machine, state: int) -> list[Move]:
    """Where a state leads: target, the bytes that lead there, ``e`` or ``c``; by rising table cell."""
    row = machine.table[state][machine.byte_class]
    found: dict[tuple[int, str], list[int]] = {}
    for cell in np.unique(row[row >= 0]).tolist():
        called = cell >= machine.states
        target = int(machine.edge_target[cell - machine.states]) if called else cell
        found.setdefault((target, "c" if called else "e"), []).extend(np.flatnonzero(row == cell).tolist())
    return [(target, sorted(read), kind) for (target, kind), read in found.items()]


def _joined(out: list[list[Move]], groups: Mapping[int, Lines]) -> dict[int, int]:
    """State -> the first state of its group, groups of one name that are not joined being two."""
    leader = {state: state for state in groups}

    def find(state: int) -> int:
        while leader[state] != state:
            leader[state] = leader[leader[state]]
            state = leader[state]
        return state

    for state in groups:
        for target, _, kind in out[state]:
            if kind == "e" and groups.get(target) == groups[state]:
                one, other = find(state), find(target)
                leader[max(one, other)] = min(one, other)
    return {state: find(state) for state in sorted(groups)}


def _shown(labels: list[str]) -> Lines:
    """Labels, a line each, shortened."""
    lines = [label if len(label) <= LONGEST_LABEL else f"{label[:LONGEST_LABEL - 1]}…" for label in dict.fromkeys(labels)]
    return tuple(lines if len(lines) <= 5 else [*lines[:4], f"… {len(lines) - 4} more"])
