"""Forced text: states from which exactly one byte may follow, and the chains they make.

In: a machine. Out: per state the only live byte and the cell it leads by. A state is forced if one byte is live and neither its rule nor
the output may end there; then every valid text goes on with that byte, whatever is on the stack. Cost: one pass over the table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]


def forced_chains(machine: Machine) -> tuple[Int32, UInt8]:
    """The forced step of every state.

    Returns:
        int32 ``[states]``, the table cell of the only byte (a state, or ``states + edge``), -1 where the state is not forced; and
        uint8 ``[states]``, that byte, 0 where there is none.
    """
    live = machine.table >= 0
    sizes = np.bincount(machine.byte_class, minlength=machine.classes)
    forced = (live @ sizes == 1) & ~machine.accepting & (machine.exits < 0)
    column = live.argmax(axis=1)
    _, first = np.unique(machine.byte_class, return_index=True)
    cell = np.where(forced, machine.table[np.arange(machine.states), column], -1)
    return cell.astype(np.int32), np.where(forced, first[column], 0).astype(np.uint8)


def chain(machine: Machine, state: int) -> tuple[bytes, int]:
    """The bytes forced from ``state`` inside its rule, and the state after them: moves only, up to a call, a choice or an end.

    A cycle of forced states, which no trimmed machine has, is followed once.
    """
    cells, values = forced_chains(machine)
    text = bytearray()
    while 0 <= cells[state] < machine.states and len(text) < machine.states:
        text.append(int(values[state]))
        state = int(cells[state])
    return bytes(text), state
