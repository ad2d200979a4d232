"""The product of two machines with call stacks, and shortest runs of it.

In: two machines. Out: for each, a shortest text that it accepts and the other does not, or that there is none. Exact wherever the stacks
are *nested*: of two calls, one of each machine, the one begun later ends no later. That holds for stackless machines and for those that
schemas compile to, whose calls are of brackets and of parts of strings, even where one machine calls what the other has inlined.

Method. A *component* is a state, or DEAD, or ENDED (an eager end on an empty stack). A product frame holds the call site that each machine
pushed at one byte, or none for a machine that pushed nothing there. A *procedure* is what happens above one frame: its entry, which
machines have a site in the frame, and which have an empty stack of their own. From each entry the nodes inside are found by rising
distance; a call is crossed by the callee's *outcomes* (what each machine does with the frame when it is closed), each with its least
length. All of it is one Dijkstra search in which lengths add up (Knuth 1977, superior functions), so that every distance is final when it
is taken. Lengths from the start to entries follow on the graph of calls.

- A frame whose only owner dies is closed at once.
- A lazy return closes the frame before its byte is read. The node after it says by a mask which bytes may come: those that were refused.
- A frame that one of two owners leaves is closed too; the caller opens it again for the other.

``StacksDiffer`` ends the search where stacks are not nested. Cost: nodes reached times distinct cells a node; a search stops at ``limit``
nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stcc.formats.machine import Machine, end_states

OLD, NEW = 0, 1
_READABLE = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ -_.:/,\"{}[]"
PREFERENCE = bytes(dict.fromkeys([*_READABLE, *range(256)]))
"""All bytes, those first that read well in an example."""
OPENING = ord("[")
_TICKS = 1024
Pair = tuple[int, int]
Node = tuple[int, int, int]
"""The components, and the mask of joint byte classes that may be read there; ``Product.every`` outside of lazy returns."""
Outcome = tuple[int, int, int]
"""What each machine does with a frame that is closed, and the mask. An owner: its exit, ``_LOST`` if it is dead, or ``_STAYS`` less its
state; another: its state."""
Site = int | None
_LOST, _STAYS = -1, -2


class StacksDiffer(Exception):  # noqa: N818 - a finding about the machines, not an error
    """The stacks of the two machines are not nested: one leaves a call within which the other's later call goes on."""


class Procedure(NamedTuple):
    """What is above one frame: the node it is entered at, which machines own a site of the frame, which have an empty stack."""

    entry: Node
    owns: tuple[bool, bool]
    rooted: tuple[bool, bool]


class _Call(NamedTuple):
    """A call from ``node`` of ``caller``, on ``byte``, that pushed ``sites``; ``through``: the frame it was left of, and how, before."""

    caller: int
    node: Node
    byte: int
    sites: tuple[Site, Site]
    through: tuple[int, Outcome] | None


class _Step(NamedTuple):
    """How a node was reached: from ``node`` by ``byte``, or by ``call``, whose ``callee`` ended with ``outcome``."""

    node: Node
    byte: int
    call: _Call | None = None
    callee: int = -1
    outcome: Outcome = (_LOST, _LOST, 0)


@dataclass
class _Frame:
    """The search inside one procedure."""

    procedure: Procedure
    steps: dict[Node, _Step | None] = field(default_factory=dict)
    calls: list[tuple[_Call, int]] = field(default_factory=list)
    outcomes: dict[Outcome, tuple[int, Node, int]] = field(default_factory=dict)  # length, last node, last byte (-1: none was read)
    goals: dict[int, tuple[int, Node]] = field(default_factory=dict)


class _Component:
    """One machine, read by joint byte classes. Cells: a state, ``states + edge``, or -1."""

    def __init__(self, machine: Machine, columns: npt.NDArray[np.intp]) -> None:
        self.machine = machine
        self.columns = columns
        self.dead, self.ended = machine.states, machine.states + 1
        self.ends = end_states(machine).tolist()
        self.exits: list[int] = machine.exits.tolist()
        self.accepting: list[bool] = machine.accepting.tolist()
        self.returns: list[list[int]] = machine.returns.tolist()
        self.edge_target: list[int] = machine.edge_target.tolist()
        self.marked = frozenset(machine.unique.tolist())
        self._nothing = [-1] * len(columns)
        self._rows: dict[int, list[int]] = {}

    def row(self, state: int) -> list[int]:
        """The cells of a state by joint class."""
        if state >= self.dead:
            return self._nothing
        found = self._rows.get(state)
        if found is None:
            found = self._rows[state] = self.machine.table[state, self.columns].tolist()
        return found

    def accepts(self, state: int, rooted: bool) -> bool:
        """Whether the output may end in ``state``, the stack being empty or not."""
        return state == self.ended or (rooted and state < self.dead and self.accepting[state])

    def lazy_exit(self, state: int, cell: int, rooted: bool) -> int:
        """The exit through which ``state`` returns before it reads what ``cell`` refuses; -1 if it does not."""
        return self.exits[state] if cell < 0 and state < self.dead and not rooted else -1

    def take(self, cell: int, rooted: bool) -> tuple[int, Site, int]:
        """What a cell does: the state after it, the site it pushes, the exit through which it pops (-1: none).

        StacksDiffer for edges that push several sites, which machines of schemas do not have.
        """
        if cell < 0:
            return self.dead, None, -1
        if cell < self.dead:
            if not self.ends[cell]:
                return cell, None, -1
            if not rooted:
                return self.dead, None, self.exits[cell]
            return (self.ended if self.exits[cell] == 0 else self.dead), None, -1
        edge = cell - self.dead
        pushes = self.machine.pushes(edge)
        if len(pushes) != 1:
            raise StacksDiffer
        target = self.edge_target[edge]
        if self.ends[target]:
            return self.returned(pushes[0], self.exits[target]), None, -1
        return target, pushes[0], -1

    def returned(self, site: int, exit_: int) -> int:
        """The state at which a call continues that was left through ``exit_``; dead where it is not wanted."""
        state = self.returns[site][exit_]
        return self.dead if state < 0 else state

    def marks(self, cell: int) -> bool:
        """Whether a cell enters an array whose items must differ."""
        target = cell if cell < self.dead else self.edge_target[cell - self.dead]
        return cell >= 0 and target in self.marked


class Product:
    """A search of the product; see the module's text.

    Args:
        old: a machine.
        new: the other.
        limit: most nodes that are searched.
        check: called now and then; may raise, to keep to a time limit.

    Attributes:
        complete: whether everything was searched.
        marked_alone: for each machine, where (procedure and node) an array begins whose items must differ for it and not for the other.
    """

    def __init__(self, old: Machine, new: Machine, limit: int, check: Callable[[], None] = lambda: None) -> None:
        classes = [old.byte_class[list(PREFERENCE)].astype(np.int64), new.byte_class[list(PREFERENCE)].astype(np.int64)]
        _, first = np.unique(classes[0] * 256 + classes[1], return_index=True)
        first.sort()
        self.bytes_ = [PREFERENCE[place] for place in first.tolist()]
        self.every = (1 << len(self.bytes_)) - 1
        self.parts = (_Component(old, classes[0][first]), _Component(new, classes[1][first]))
        self.limit, self.check = limit, check
        self.complete = True
        self.marked_alone: tuple[list[tuple[int, Node]], list[tuple[int, Node]]] = ([], [])
        self.frames: list[_Frame] = []
        self._numbers: dict[Procedure, int] = {}
        self._queue: list[tuple[int, int, int, Node, _Step | None]] = []
        self._order = 0
        self._cells: dict[Pair, list[tuple[Pair, int]]] = {}

    def search(self) -> None:
        """Search everything, or ``limit`` nodes. StacksDiffer where that is not possible."""
        start = (self.parts[OLD].machine.start, self.parts[NEW].machine.start, self.every)
        self._enter(Procedure(start, (False, False), (True, True)))
        settled = 0
        while self._queue:
            length, _, number, node, step = heapq.heappop(self._queue)
            frame = self.frames[number]
            if node in frame.steps:
                continue
            settled += 1
            if settled % _TICKS == 0:
                self.check()
                if settled > self.limit:
                    self.complete = False
                    return
            frame.steps[node] = step
            self._expand(number, frame, node, length)

    def _enter(self, procedure: Procedure) -> int:
        number = self._numbers.get(procedure)
        if number is None:
            number = self._numbers[procedure] = len(self.frames)
            self.frames.append(_Frame(procedure))
            self._push(0, number, procedure.entry, None)
        return number

    def _push(self, length: int, number: int, node: Node, step: _Step | None) -> None:
        if node not in self.frames[number].steps and (node[OLD] != self.parts[OLD].dead or node[NEW] != self.parts[NEW].dead):
            self._order += 1
            heapq.heappush(self._queue, (length, self._order, number, node, step))

    def _distinct_cells(self, pair: Pair) -> list[tuple[Pair, int]]:
        """The different pairs of cells of a pair of states, each with its classes as a mask."""
        found = self._cells.get(pair)
        if found is None:
            masks: dict[Pair, int] = {}
            bit = 1
            for cells in zip(self.parts[OLD].row(pair[OLD]), self.parts[NEW].row(pair[NEW]), strict=True):
                masks[cells] = masks.get(cells, 0) | bit
                bit <<= 1
            found = self._cells[pair] = list(masks.items())
        return found

    def _expand(self, number: int, frame: _Frame, node: Node, length: int) -> None:
        """Settle a node: whether the text may end there for one machine only, and what each byte leads to."""
        _, owns, rooted = frame.procedure
        old, new, mask = node
        left, right = self.parts
        if mask == self.every and left.accepts(old, rooted[OLD]) != right.accepts(new, rooted[NEW]):
            frame.goals.setdefault(OLD if left.accepts(old, rooted[OLD]) else NEW, (length, node))
        orphaned = not (owns[OLD] and old != left.dead) and not (owns[NEW] and new != right.dead)
        if (owns[OLD] or owns[NEW]) and orphaned:
            self._close(number, (_LOST if owns[OLD] else old, _LOST if owns[NEW] else new, mask), (node, -1), length)
            return
        lazy: dict[Pair, int] = {}
        for cells, classes in self._distinct_cells((old, new)):
            here = classes & mask
            if not here:
                continue
            exits = (left.lazy_exit(old, cells[OLD], rooted[OLD]), right.lazy_exit(new, cells[NEW], rooted[NEW]))
            if exits != (-1, -1):
                lazy[exits] = lazy.get(exits, 0) | here
            elif cells != (-1, -1):
                self._read(number, frame, node, cells, self.bytes_[(here & -here).bit_length() - 1], length + 1)
        for exits, here in lazy.items():
            self._return_lazily(number, frame, node, exits, here, length)

    def _return_lazily(self, number: int, frame: _Frame, node: Node, exits: Pair, mask: int, length: int) -> None:
        """Close the frame before a byte of ``mask`` is read: owners that return do, others stay; who owns a frame further down waits."""
        owns = frame.procedure.owns
        if not any(own and exit_ >= 0 for own, exit_ in zip(owns, exits, strict=True)):
            raise StacksDiffer
        results = [self._result(side, owns[side], exits[side], node[side]) for side in (OLD, NEW)]
        self._close(number, (results[OLD], results[NEW], mask), (node, -1), length)

    def _result(self, side: int, owns: bool, exit_: int, state: int) -> int:
        """What a machine does with a frame that is closed."""
        if not owns:
            return state
        if exit_ >= 0:
            return exit_
        return _LOST if state == self.parts[side].dead else _STAYS - state

    def _read(self, number: int, frame: _Frame, node: Node, cells: Pair, byte: int, length: int) -> None:
        """Read ``byte``, which no machine answers by a lazy return."""
        owns, rooted = frame.procedure.owns, frame.procedure.rooted
        if byte == OPENING and cells[OLD] >= 0 and cells[NEW] >= 0:
            marks = self.parts[OLD].marks(cells[OLD]), self.parts[NEW].marks(cells[NEW])
            if marks[OLD] != marks[NEW]:
                self.marked_alone[OLD if marks[OLD] else NEW].append((number, node))
        left, left_site, left_exit = self.parts[OLD].take(cells[OLD], rooted[OLD])
        right, right_site, right_exit = self.parts[NEW].take(cells[NEW], rooted[NEW])
        if left_exit < 0 and right_exit < 0:
            if left_site is None and right_site is None:
                self._push(length, number, (left, right, self.every), _Step(node, byte))
            else:
                self._call(_Call(number, node, byte, (left_site, right_site), None), (left, right, self.every), length)
            return
        foreign = (left_exit >= 0 and not owns[OLD]) or (right_exit >= 0 and not owns[NEW])
        if foreign or left_site is not None or right_site is not None:
            raise StacksDiffer
        outcome = (self._result(OLD, owns[OLD], left_exit, left), self._result(NEW, owns[NEW], right_exit, right), self.every)
        self._close(number, outcome, (node, byte), length)

    def _call(self, call: _Call, entry: Node, length: int) -> None:
        owns = (call.sites[OLD] is not None, call.sites[NEW] is not None)
        rooted = self.frames[call.caller].procedure.rooted
        empty = ((rooted[OLD] or entry[OLD] == self.parts[OLD].dead) and not owns[OLD],
                 (rooted[NEW] or entry[NEW] == self.parts[NEW].dead) and not owns[NEW])
        callee = self._enter(Procedure(entry, owns, empty))
        self.frames[callee].calls.append((call, length))
        for outcome, (inside, _, _) in list(self.frames[callee].outcomes.items()):
            self._return(callee, call, length + inside, outcome)

    def _close(self, number: int, outcome: Outcome, last: tuple[Node, int], length: int) -> None:
        """Record how a frame may be closed; the callers go on."""
        frame = self.frames[number]
        if outcome not in frame.outcomes:
            frame.outcomes[outcome] = length, *last
            for call, before in list(frame.calls):
                self._return(number, call, before + length, outcome)

    def _return(self, callee: int, call: _Call, length: int, outcome: Outcome) -> None:
        """Go on after a frame was closed: in the caller, or, for an owner that stays, in the frame that is its own now."""
        states, kept = [0, 0], [False, False]
        for side, part in enumerate(self.parts):
            site, result = call.sites[side], outcome[side]
            kept[side] = site is not None and result <= _STAYS
            if site is None:
                states[side] = result
            elif kept[side]:
                states[side] = _STAYS - result
            else:
                states[side] = part.dead if result == _LOST else part.returned(site, result)
        node = (states[OLD], states[NEW], outcome[2])
        if any(kept):
            sites = (call.sites[OLD] if kept[OLD] else None, call.sites[NEW] if kept[NEW] else None)
            self._call(_Call(call.caller, call.node, call.byte, sites, (callee, outcome)), node, length)
        else:
            self._push(length, call.caller, node, _Step(call.node, call.byte, call, callee, outcome))

    # -- texts ------------------------------------------------------------------------------------------------------------

    def witness(self, side: int) -> bytes | None:
        """A shortest text that the machine ``side`` accepts and the other does not, as far as was searched; None if none was found."""
        lengths, callers = self._depths()
        goals = [(lengths[number] + frame.goals[side][0], number) for number, frame in enumerate(self.frames)
                 if side in frame.goals and number in lengths]
        if not goals:
            return None
        _, number = min(goals)
        return self._prefix(number, callers) + self._inside(number, self.frames[number].goals[side][1])

    def text_to(self, number: int, node: Node) -> bytes:
        """A short text from the start to ``node`` in procedure ``number``."""
        return self._prefix(number, self._depths()[1]) + self._inside(number, node)

    def _depths(self) -> tuple[dict[int, int], dict[int, _Call]]:
        """Least length of a text to the entry of each procedure, and the call that ends it."""
        onward: dict[int, list[tuple[int, _Call, int]]] = {}
        for callee, frame in enumerate(self.frames):
            for call, length in frame.calls:
                onward.setdefault(call.caller, []).append((callee, call, length))
        lengths: dict[int, int] = {}
        callers: dict[int, _Call] = {}
        queue: list[tuple[int, int, int, _Call | None]] = [(0, 0, 0, None)]
        order = 0
        while queue:
            total, _, number, by = heapq.heappop(queue)
            if number in lengths:
                continue
            lengths[number] = total
            if by is not None:
                callers[number] = by
            for callee, call, length in onward.get(number, ()):
                if callee not in lengths:
                    order += 1
                    heapq.heappush(queue, (total + length, order, callee, call))
        return lengths, callers

    def _prefix(self, number: int, callers: dict[int, _Call]) -> bytes:
        """The text to the entry of a procedure."""
        parts: list[bytes] = []
        while number in callers:
            call = callers[number]
            parts.append(bytes(self._told(self._call_parts(call)))[::-1])
            number = call.caller
        return b"".join(reversed(parts))

    def _inside(self, number: int, node: Node) -> bytes:
        """The text from a procedure's entry to ``node``."""
        return bytes(self._told([(number, node)]))[::-1]

    def _call_parts(self, call: _Call) -> list[tuple[int, Node | int]]:
        """The text of a call, from its caller's entry to its callee's, as parts for ``_told``, first part first."""
        parts: list[tuple[int, Node | int]] = [(call.caller, call.node), (-1, call.byte)]
        return parts if call.through is None else parts + self._outcome_parts(*call.through)

    def _outcome_parts(self, callee: int, outcome: Outcome) -> list[tuple[int, Node | int]]:
        """The text inside a callee, to where it is closed."""
        _, last, byte = self.frames[callee].outcomes[outcome]
        return [(callee, last)] if byte < 0 else [(callee, last), (-1, byte)]

    def _told(self, parts: Sequence[tuple[int, Node | int]]) -> Iterator[int]:
        """The bytes of a text, last first, of parts that are each (procedure, node inside) or (-1, byte)."""
        stack = list(parts)
        while stack:
            number, what = stack.pop()
            if isinstance(what, int):
                yield what
                continue
            step = self.frames[number].steps[what]
            if step is None:
                continue
            if step.call is None:
                stack += [(number, step.node), (-1, step.byte)]
            else:
                stack += self._call_parts(step.call) + self._outcome_parts(step.callee, step.outcome)
