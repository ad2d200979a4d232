"""Two operations on DFAs that formats need: a limit on the octets, and one language followed by another.

Both are a few array operations on the tables; both leave a minimal Dfa.
"""

from __future__ import annotations

import numpy as np
from stcc.compiler.dfa import Dfa
from stcc.compiler.minimize import minimize_dfa


def at_most_octets(dfa: Dfa, octets: int) -> Dfa:
    """The words of ``dfa`` of at most ``octets`` bytes. O(states x classes x octets)."""
    levels = octets + 1
    table = np.full((levels, dfa.states, dfa.classes), -1, np.int32)
    table[:-1] = np.where(dfa.table >= 0, dfa.table + dfa.states * np.arange(1, levels, dtype=np.int32)[:, None, None], -1)
    return minimize_dfa(Dfa(dfa.byte_class, table.reshape(-1, dfa.classes), np.tile(dfa.accept, levels), dfa.start))


def followed_by(first: Dfa, second: Dfa) -> Dfa:
    """A word of ``first``, then a nonempty word of ``second``, with the label of the second.

    Raises:
        ValueError: after some word of ``first`` both it and ``second`` read on with the same byte, so that a table can't hold both.
    """
    pairs = first.byte_class.astype(np.int64) * second.classes + second.byte_class
    kinds, byte_class = np.unique(pairs, return_inverse=True)
    head = first.table[:, kinds // second.classes].astype(np.int32)
    tail = second.table[:, kinds % second.classes].astype(np.int32)
    tail = np.where(tail >= 0, tail + first.states, -1).astype(np.int32)
    ends = first.accept >= 0
    if bool(((head[ends] >= 0) & (tail[second.start] >= 0)).any()):
        raise ValueError("the boundary between the two languages takes more than one byte to find")
    head[ends] = np.maximum(head[ends], tail[second.start])
    accept = np.concatenate([np.full(first.states, -1, np.int32), second.accept])
    return minimize_dfa(Dfa(byte_class.reshape(-1).astype(np.uint8), np.concatenate([head, tail]), accept, first.start))
