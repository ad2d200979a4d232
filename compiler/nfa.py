"""Nondeterministic automata in table form, the common input of subset construction.

Every node has at most one successor per byte class (nondeterminism lives in the epsilon edges), so most of a subset construction
is array work: a set that is a single node has that node's row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.ir import CallEdge

Int32 = npt.NDArray[np.int32]


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
    """

    byte_class: npt.NDArray[np.uint8]
    table: Int32
    epsilon_offsets: Int32
    epsilon_targets: Int32
    accept: Int32
    starts: tuple[int, ...]
    calls: tuple[CallEdge, ...] = ()
