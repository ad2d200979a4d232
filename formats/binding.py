"""A binding: what a machine does with every token of one vocabulary, exactly, at any stack depth.

A token matters only through the *action* it induces on states, and few actions exist. The binding stores, for each token (in
the byte order of the vocabulary pack, run-length coded), its action; and for each state the actions that are alive there,
each with a *value*:

    v < states        move((), v): the token ends inside the rule, at state v, stack unchanged
    v >= states       record v - states, of one of the kinds
      MOVE            (pushes, state): call sites left open, outermost first, then the state
      POPPED          exit: the token's last byte closed the rule it started in, through that exit
      EXPOSED         (exit, function): the rule was closed and more bytes were read; the function maps each return
                      state to a value again (see ``suffix_*``)

Applying a token at ``(q, stack)``:

    v = value of its action at q
    while v is EXPOSED(e, f):  v = f[returns[stack.pop()][e]]
    if v is POPPED(e):         q = returns[stack.pop()][e]
    if v is MOVE(pushes, q2):  stack += pushes; q = q2

A pop from an empty stack means the text ended: allowed only for POPPED(0), that is, only if the token ends there.
Picture, for the token ``}]`` inside ``{"a":[{}]}`` at the inner object: its first byte closes the object's rule through exit 0 and
``]`` is read on the return state, so its value is EXPOSED(0, f) with f = {after-item state: POPPED(0)}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]

MOVE, POPPED, EXPOSED = 1, 2, 3
UNREACHABLE = 1 << 29  # leaves room to add two such costs in int32


@dataclass(frozen=True, eq=False)
class Binding:
    """One vocabulary's sections. All arrays int32 unless stated.

    Attributes:
        fingerprint: the vocabulary's, hex.
        vocabulary_size: bits of a mask.
        actions: number of actions; 0 is the dead action, which no state lists.
        run_starts: ``[runs]`` rising positions in the vocabulary's byte order, the first 0; run i covers up to the next start.
        run_action: ``[runs]`` action of every token of the run.
        row_offsets: ``[states + 1]`` into the next two.
        row_actions: ``[entries]`` live actions of a state, rising within its row.
        row_values: ``[entries]`` their values.
        record_kind: uint8 ``[records]`` MOVE, POPPED or EXPOSED.
        record_head: ``[records]`` the state (MOVE) or the exit (POPPED, EXPOSED).
        record_function: ``[records]`` suffix function of an EXPOSED record, else -1.
        record_push_offsets: ``[records + 1]`` into ``record_pushes``.
        record_pushes: call sites, outermost first.
        suffix_offsets: ``[functions + 1]`` into the next two.
        suffix_states: return states on which the function is alive, rising within a function.
        suffix_values: its values there.
        plan_offsets: ``[states + 1]`` into ``plan_tokens``.
        plan_tokens: canonical tokens of each state's forced chain (Theorem 20); they stay inside the state's rule, or end exactly at
            its exit.
        cover: uint8 ``[states]`` the fewest bytes that the next sampled token must span (boundary cover); 0 or 1 where any may follow.
        need_finish: ``[states]``, or empty where the needs were too large to store (then the next two are, too): fewest tokens that finish
            a valid output from ``(q, empty stack)``; ``UNREACHABLE`` where none does.
        need_kinds: ``[kinds]`` the records (POPPED or EXPOSED) by which a token can leave a rule.
        need_leave: ``[states, kinds]`` fewest tokens from ``q`` up to and including one whose value is that kind; ``UNREACHABLE`` if none.
    """

    fingerprint: str
    vocabulary_size: int
    actions: int
    run_starts: Int32
    run_action: Int32
    row_offsets: Int32
    row_actions: Int32
    row_values: Int32
    record_kind: npt.NDArray[np.uint8]
    record_head: Int32
    record_function: Int32
    record_push_offsets: Int32
    record_pushes: Int32
    suffix_offsets: Int32
    suffix_states: Int32
    suffix_values: Int32
    plan_offsets: Int32
    plan_tokens: Int32
    cover: npt.NDArray[np.uint8]
    need_finish: Int32
    need_kinds: Int32
    need_leave: Int32

    @property
    def has_no_needs(self) -> bool:
        """Whether the needs were left out, too large to store."""
        return not len(self.need_finish)
