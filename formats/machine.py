"""The machine: the deterministic automaton with a stack that every artifact holds.

A *configuration* is a state and a stack of call sites, innermost last. On a byte ``b`` of class ``c`` the table cell
``table[q, c]`` decides: ``-1`` dead; ``v < states`` move to ``v``; otherwise take enter edge ``v - states``: push its call
sites (outermost first) and continue at its target, the state after ``b`` inside the callee.

A state with ``exits[q] = e >= 0`` may end the rule it is in through exit ``e``. An *end state* (such a state with a dead row)
returns eagerly: the innermost call site ``s`` is popped and the machine continues at ``returns[s, e]``, or the text ends
if the stack is empty (accepted iff ``e == 0``). Any other such state returns lazily: on a byte its row refuses, it pops first and
reads the byte at the return state. The output may end where the stack is empty and ``accepting[q]`` holds, or after an
eager end through exit 0 on an empty stack.

Items that must differ. A state in ``unique``, where the byte ``[`` leads to it, means: the array opened by that byte has no two
equal items (JSON Schema's ``uniqueItems``). No automaton can tell; whoever decodes keeps the condition beside the machine, for texts
that are JSON from that byte to the matching ``]``, or refuses the machine. Whatever items stand in such an array, between two of
them it can still be finished with others.

Invariants (``verify_machine``): every index is in range; return states have ``exits = -1``, so that a pop never
chains without reading a byte; the target of an enter edge or a move may be an end state.

>>> import numpy as np
>>> m = Machine(byte_class=np.eye(1, 256, 97, dtype=np.uint8)[0], table=np.array([[-1, 1], [-1, -1]], np.int32),
...             exits=np.array([-1, -1], np.int16), accepting=np.array([False, True]), edge_target=np.zeros(0, np.int32),
...             edge_push_offsets=np.zeros(1, np.int32), edge_pushes=np.zeros(0, np.int32), returns=np.zeros((0, 1), np.int32), start=0)
>>> m.states, m.classes                      # the language {"a"}
(2, 2)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Machine:
    """See the module's text for what the arrays mean.

    Attributes:
        byte_class: uint8 ``[256]``, byte -> class.
        table: int32 ``[states, classes]``.
        exits: int16 ``[states]``, -1 or the exit through which the state may end its rule.
        accepting: bool ``[states]``, the output may end here when the stack is empty.
        edge_target: int32 ``[edges]``, state after the byte that made the call.
        edge_push_offsets: int32 ``[edges + 1]`` into ``edge_pushes``.
        edge_pushes: int32, call sites pushed by each edge, outermost first.
        returns: int32 ``[sites, exits]``, return state of each call site for each exit; -1 where that exit is never taken.
        start: the start state.
        unique: int32, rising: the states entered by the ``[`` of arrays whose items must differ pairwise; mostly empty.
        several: bool, one for each of ``unique``: whether such an array may have to have more than one item.
    """

    byte_class: npt.NDArray[np.uint8]
    table: Int32
    exits: npt.NDArray[np.int16]
    accepting: npt.NDArray[np.bool_]
    edge_target: Int32
    edge_push_offsets: Int32
    edge_pushes: Int32
    returns: Int32
    start: int
    unique: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    several: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def states(self) -> int:
        """Number of states, over all rules."""
        return int(self.table.shape[0])

    @property
    def classes(self) -> int:
        """Number of byte classes."""
        return int(self.table.shape[1])

    @property
    def sites(self) -> int:
        """Number of call sites; 0 for a machine that needs no stack."""
        return int(self.returns.shape[0])

    def pushes(self, edge: int) -> tuple[int, ...]:
        """The call sites that enter edge ``edge`` pushes, outermost first."""
        low, high = self.edge_push_offsets[edge], self.edge_push_offsets[edge + 1]
        return tuple(int(site) for site in self.edge_pushes[low:high])


def end_states(machine: Machine) -> npt.NDArray[np.bool_]:
    """bool ``[states]``: states that end their rule eagerly."""
    ends: npt.NDArray[np.bool_] = (machine.exits >= 0) & (machine.table < 0).all(axis=1)
    return ends


def _in_range(values: Array, low: int, high: int) -> bool:
    return values.size == 0 or (int(values.min()) >= low and int(values.max()) < high)


def verify_machine(machine: Machine) -> list[str]:
    """Every broken invariant, as one sentence each; empty when the machine is sound. O(states x classes)."""
    return verify_control(machine) + verify_table(machine)


def verify_table(machine: Machine) -> list[str]:
    """The broken invariants of ``table``. O(states x classes)."""
    states, edges = machine.states, len(machine.edge_target)
    fits = machine.table.shape == (states, machine.classes) and _in_range(machine.table, -1, states + edges)
    return [] if fits else ["table cells are in range"]


def verify_control(machine: Machine) -> list[str]:
    """The broken invariants of everything but the cells of ``table``. O(states + edges + sites x exits)."""
    states, edges, sites = machine.states, len(machine.edge_target), machine.sites
    exits = machine.returns.shape[1] if machine.returns.ndim == 2 else 0
    offsets = machine.edge_push_offsets
    checks = [
        (machine.byte_class.shape == (256,), "byte_class has 256 entries"),
        (states > 0 and machine.classes > 0, "there is at least one state and one class"),
        (_in_range(machine.byte_class, 0, machine.classes), "byte classes are in range"),
        (machine.exits.shape == (states,) and machine.accepting.shape == (states,), "exits and accepting have one entry a state"),
        (machine.returns.ndim == 2 and _in_range(machine.returns, -1, states), "return states are in range"),
        (sites == 0 or _in_range(machine.exits, -1, exits), "exits are in range"),
        (offsets.shape == (edges + 1,) and offsets[0] == 0 and bool((np.diff(offsets) > 0).all())
         and int(offsets[-1]) == len(machine.edge_pushes), "push offsets rise from 0 to the number of pushes"),
        (_in_range(machine.edge_pushes, 0, sites), "pushed call sites are in range"),
        (_in_range(machine.edge_target, 0, states), "enter targets are in range"),
        (0 <= machine.start < states, "the start state is in range"),
        (_in_range(machine.unique, 0, states) and bool((np.diff(machine.unique) > 0).all()), "unique states are in range and rise"),
        (machine.several.shape == machine.unique.shape, "several has one entry for each of the unique states"),
    ]
    broken = [text for holds, text in checks if not holds]
    if not broken and sites:
        landings = machine.returns[machine.returns >= 0]
        if bool((machine.exits[landings] >= 0).any()):
            broken.append("return states never end their rule")
    return broken
