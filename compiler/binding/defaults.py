"""Default states: whose behaviour a state has but for few bytes.

In: a machine. Out: int32 ``[states]``, the *default* of each state: itself for most, else a *hub* whose row it shares nearly everywhere.
Afterwards: a default is its own default; end states and return states are their own. Any map with these two properties is right; which one
it is decides only what is cheap (``stcc.compiler.binding.values``).

Open objects make such states by the thousand: a free key must not spell a declared one, so the trie of the declared keys has a state for
every prefix, each of which but for a letter or two does what the loop over any other key does.

    "met"  --a-->  "meta"            "met" and "meta" default to the loop
       \\--any other--> (any other key) <--any--+
                              \\________________/

Kumar et al. 2006 compress rows of automata so ("default transitions"); here it is functions that shrink. Cost: O(states x classes).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.formats.machine import Machine, end_states

Int32 = npt.NDArray[np.int32]
_LEAST_SAVED = 16
"""Fewer states with a default than this are not worth telling apart."""


def default_states(machine: Machine) -> Int32:
    """int32 ``[states]``: the default of each state; see the module's text."""
    table, states = machine.table, machine.states
    own = np.arange(states, dtype=np.int32)
    is_hub = np.count_nonzero(table == own[:, None], axis=1) * 2 > machine.classes
    if not is_hub.any():
        return own
    leads = np.append(is_hub, np.zeros(len(machine.edge_target) + 1, np.bool_))[table]  # an edge or the dead cell is no hub
    candidates = np.flatnonzero(leads.any(axis=1) & ~is_hub & ~end_states(machine))
    hub = table[candidates, np.argmax(leads[candidates], axis=1)]
    differing = np.count_nonzero(table[candidates] != table[hub], axis=1)
    near = differing * 4 <= machine.classes
    own[candidates[near]] = hub[near]
    landings = machine.returns[machine.returns >= 0]
    own[landings] = landings
    return own if np.count_nonzero(own != np.arange(states)) >= _LEAST_SAVED else np.arange(states, dtype=np.int32)
