"""Resolve the calls of a determinised grammar: call sites, enter edges, jumps, and the L(1) conditions that make them deterministic.

In: ``Subsets`` of all rules. Out: a ``Linked``, rows whose cells are moves or enter edges. Afterwards one byte decides between reading,
calling and returning at every configuration: a call's first bytes are free where it is made (first(N) and live(q) disjoint), and
a state that may end its rule and also read on reads only what no return state does (live(q) and follow(N) disjoint); section
"L(1)" of the few-path paper. A grammar that breaks a condition is refused, both places named.

A call in tail position, whose every return can do nothing but leave the caller through the exit it came by, pushes nothing. Cost: linear
in calls times the first bytes of their callees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import components
from stcc.compiler.determinize import SetCall, Subsets
from stcc.compiler.errors import UnsupportedError
from stcc.compiler.ir import Mark
from stcc.compiler.options import Deadline

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

_BRACKETS = "give each rule its own first and last bytes, or inline one of the two"

Edge = tuple[tuple[int, ...], int]  # pushed sites, outermost first; target


@dataclass(frozen=True, eq=False)
class Linked:
    """Rows with their calls resolved; not yet minimal.

    Attributes:
        table: int32 ``[states, classes]``; ``-1``, a state, or ``states + edge``.
        exits: int32 ``[states]``, exit through which a state of a called rule may end it, or -1.
        accepting: bool ``[states]``, the output may end here on an empty stack.
        edges: enter edges.
        sites: call sites, the return state of each exit of the callee (-1: never taken).
        start: the start state.
        marked: states that the ``[`` of an array whose items must differ leads to, as in ``ir.Rule``.
    """

    table: Int32
    exits: Int32
    accepting: Bool
    edges: tuple[Edge, ...]
    sites: tuple[tuple[int, ...], ...]
    start: int
    marked: tuple[Mark, ...] = ()


def resolve_calls(subsets: Subsets, names: Sequence[str], root: int, byte_class: npt.NDArray[np.uint8],
                  deadline: Deadline | None = None) -> Linked:
    """Turn calls into enter edges and jumps. ``names`` are the rules' names and ``byte_class`` uint8 ``[256]``, for messages.

    Raises UnsupportedError where an L(1) condition fails, a rule calls itself before reading (left recursion), a return state may
    end its rule, or one text would leave a rule through two exits; BudgetError past the deadline.
    """
    return _Resolution(subsets, names, root, byte_class, deadline).run()


class ConflictError(UnsupportedError):
    """One byte, or the end of the text, would do two things at ``state`` of the ``Subsets``."""

    state = -1


class _Resolution:
    def __init__(self, subsets: Subsets, names: Sequence[str], root: int, byte_class: npt.NDArray[np.uint8],
                 deadline: Deadline | None) -> None:
        self.subsets, self.names, self.root, self.byte_class, self.deadline = subsets, names, root, byte_class, deadline
        self.table: Int32 = subsets.table.copy()
        self.states = len(self.table)
        self.owner: list[int] = subsets.owner.tolist()
        self.calls_at: dict[int, list[SetCall]] = {}
        for call in subsets.calls:
            self.calls_at.setdefault(call.state, []).append(call)
        self.called = {call.rule for call in subsets.calls}
        self.edges: list[Edge] = []
        self.edge_numbers: dict[Edge, int] = {}
        self.sites: dict[tuple[int, ...], int] = {}
        self.blind: Bool = ~np.any(subsets.table >= 0, axis=1)
        self.blind[list(self.calls_at)] = False
        self.tail = {call for call in subsets.calls if self.is_tail(call)}

    def run(self) -> Linked:
        """Check exits, enter callees, check returns."""
        for state in self.subsets.clashing:
            self.refuse(state, "one text ends this rule through two exits")
        for state in self.entry_order():
            self.enter(state)
        live = self.table >= 0
        self.check_returns()
        self.check_lazy_ends(live)
        called = np.zeros(len(self.names), np.bool_)
        called[list(self.called)] = True
        bottom = np.zeros(len(self.names), np.bool_)
        bottom[list(self.bottom_rules())] = True
        accept = self.subsets.accept
        exits = np.where(called[self.owner], accept, -1).astype(np.int32)
        # An end state of a called rule is left as soon as it is entered, so that it need not accept.
        accepting = (accept == 0) & bottom[self.owner] & ~((exits >= 0) & ~live.any(axis=1))
        return Linked(self.table, exits, accepting, tuple(self.edges), tuple(self.sites), self.subsets.starts[self.root],
                      self.subsets.marked)

    def check_time(self, state: int) -> None:
        """Stop past the deadline, naming the rule of ``state``."""
        if self.deadline is not None:
            self.deadline.check(self.names[self.owner[state]])

    def refuse(self, state: int, message: str, hint: str = _BRACKETS) -> None:
        """Stop, naming the rule of ``state``."""
        error = ConflictError(message, pointer=self.names[self.owner[state]], keyword="grammar", hint=hint)
        error.state = state
        raise error

    def byte_text(self, column: int) -> str:
        """The first byte of a class, for messages."""
        return repr(bytes([int(np.flatnonzero(self.byte_class == column)[0])]))[1:]

    def is_tail(self, call: SetCall) -> bool:
        """Whether the caller ends through exit e, and can do nothing else, whenever the callee ends through e."""
        landed = [(exit_, state) for exit_, state in enumerate(call.returns) if state >= 0]
        return bool(landed) and all(self.blind[state] and self.subsets.accept[state] == exit_ for exit_, state in landed)

    def entry_order(self) -> list[int]:
        """States that call, each after the callees' starts that it enters; left recursion is refused."""
        states = list(self.calls_at)
        position = {state: place for place, state in enumerate(states)}
        entered = [[self.subsets.starts[call.rule] for call in self.calls_at[state]] for state in states]
        order = []
        for part in components([[position[start] for start in starts if start in position] for starts in entered]):
            state = states[part[0]]
            if len(part) > 1 or state in entered[part[0]]:
                self.refuse(state, "this rule calls itself before it reads a byte", "write the left recursion as a repetition")
            order.append(state)
        return order

    def enter(self, state: int) -> None:
        """Fill a state's row with the first bytes of the rules that it calls."""
        self.check_time(state)
        row = self.table[state]
        claimed = {int(column): -1 for column in np.flatnonzero(row >= 0)}
        for call in self.calls_at[state]:
            pushes = () if call in self.tail else (self.site(call),)
            entry = self.table[self.subsets.starts[call.rule]]
            for column in np.flatnonzero(entry >= 0).tolist():
                if column in claimed:
                    self.refuse_entry(state, call.rule, claimed[column], column)
                claimed[column] = call.rule
                row[column] = self.extend(pushes, int(entry[column]))

    def refuse_entry(self, state: int, callee: int, other: int, column: int) -> None:
        """Say which two things one byte would do."""
        rival = f"calls {self.names[other]!r}" if other >= 0 else "reads on"
        self.refuse(state, f"on {self.byte_text(column)} this rule both calls {self.names[callee]!r} and {rival}")

    def site(self, call: SetCall) -> int:
        """The number of a call's site; calls with equal returns share one."""
        return self.sites.setdefault(call.returns, len(self.sites))

    def extend(self, pushes: tuple[int, ...], cell: int) -> int:
        """The cell that pushes ``pushes`` and then does what ``cell`` does."""
        if not pushes:
            return cell
        inner, target = self.edges[cell - self.states] if cell >= self.states else ((), cell)
        edge = (pushes + inner, target)
        number = self.edge_numbers.setdefault(edge, len(self.edges))
        if number == len(self.edges):
            self.edges.append(edge)
        return self.states + number

    def bottom_rules(self) -> set[int]:
        """Rules that may be active on an empty stack: the root, and what it reaches by jumps."""
        found, stack = {self.root}, [self.root]
        jumps: dict[int, set[int]] = {}
        for call in self.tail:
            jumps.setdefault(self.owner[call.state], set()).add(call.rule)
        while stack:
            fresh = jumps.get(stack.pop(), set()) - found
            found |= fresh
            stack += fresh
        return found

    def check_returns(self) -> None:
        """A return state must not end its rule, and must not be where the text ends while the callee might still read."""
        accept = self.subsets.accept
        lazy = {(self.owner[state], int(accept[state])) for state in np.flatnonzero((accept >= 0) & (self.table >= 0).any(axis=1)).tolist()}
        lazy |= {(call.rule, exit_) for call in self.tail for exit_ in range(len(call.returns)) if (self.owner[call.state], exit_) in lazy}
        for call in self.subsets.calls:
            self.check_time(call.state)
            if call in self.tail:
                continue
            for exit_, state in enumerate(call.returns):
                if state < 0 or accept[state] < 0:
                    continue
                if self.owner[state] in self.called:
                    self.refuse(state, f"this rule may end right after it calls {self.names[call.rule]!r}")
                if (call.rule, exit_) in lazy:
                    self.refuse(state, f"the text may end right after {self.names[call.rule]!r}, which may also read on")

    def check_lazy_ends(self, live: Bool) -> None:
        """Where a state may both end its rule and read, no return may read the same byte."""
        accept = self.subsets.accept
        follow: dict[tuple[int, int], dict[int, int]] = {}
        for call in self.subsets.calls:
            self.check_time(call.state)
            if call not in self.tail:
                for exit_, state in enumerate(call.returns):
                    if state >= 0:
                        reads = follow.setdefault((call.rule, exit_), {})
                        reads.update((column, self.owner[state]) for column in np.flatnonzero(live[state]).tolist())
        self.spread_follow(follow)
        for state in np.flatnonzero((accept >= 0) & live.any(axis=1)).tolist():
            reads = follow.get((self.owner[state], int(accept[state])), {})
            for column in np.flatnonzero(live[state]).tolist():
                if column in reads:
                    caller = self.names[reads[column]]
                    self.refuse(state, f"on {self.byte_text(column)} this rule both reads on and returns to {caller!r}")

    def spread_follow(self, follow: dict[tuple[int, int], dict[int, int]]) -> None:
        """What follows a rule follows the rules it jumps to; a least fixpoint."""
        jumps = [(self.owner[call.state], call.rule, exit_) for call in self.tail for exit_, state in enumerate(call.returns) if state >= 0]
        changed = True
        while changed:
            changed = False
            if self.deadline is not None:
                self.deadline.check_now()
            for caller, callee, exit_ in jumps:
                inherited = follow.get((caller, exit_), {})
                reads = follow.setdefault((callee, exit_), {})
                fresh = {column: rule for column, rule in inherited.items() if column not in reads}
                reads.update(fresh)
                changed = changed or bool(fresh)
