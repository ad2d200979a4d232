"""A grammar on the device: steps after tokens, canonical plans, and the logits that are allowed, with nothing read back.

In: ``DeviceTables`` and, for canonical tokens, the ``CanonicalPlans`` of the same grammars. Out: ``DeviceConstraint``: from a ``Step`` and
a token, both on the device, the next step; from a step and logits, the logits that it allows and what is wrong with them. What goes wrong
stays on the device as the step's ``fault``: from then on only stop tokens are allowed, so that a loop that cannot look ends by itself.

``stcc.runtime.device.processor`` makes a logits processor of it, ``stcc.runtime.decoding.lookahead`` the steps that are enqueued before
the host knows the token they follow.

Cost: one mask and one advance of ``stcc.runtime.device`` a token, and some ten operations on ``[1, head]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np

from stcc.formats import VocabularyMismatch
from stcc.runtime.device.kernels import KernelMasks
from stcc.runtime.device.operations import OperationMasks
from stcc.runtime.device.tables import CAPACITY, TERMINATED, DeviceTables, Int32, Part

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

SHARED_TABLES = 8
"""Tables whose arrays stay on the device for the next output."""
SOUND, NOT_FINITE, DEAD_END, NESTING = range(4)
"""Faults of a step: none; logits that are NaN, or not finite where a token is allowed; no token may follow; likewise, on a stack so full
that a token may not have fitted."""


@dataclass(frozen=True, eq=False)
class CanonicalPlans:
    """Plans and boundary covers of the grammars of some ``DeviceTables``, with states numbered over all of them.

    Attributes:
        offsets: int32 ``[states + 1]`` into ``tokens``.
        tokens: int32, the canonical tokens of each state's forced chain (Theorem 20); at least one element.
        cover: int32 ``[states]``, the fewest bytes that the next token must span.
        lengths: int32 ``[vocabulary]``, bytes of each token.
    """

    offsets: Int32
    tokens: Int32
    cover: Int32
    lengths: Int32


def canonical_plans(parts: Sequence[Part], vocabulary: Vocabulary) -> CanonicalPlans:
    """The plans of the grammars that ``build_tables`` was given, in the same order. O(states + plan tokens + vocabulary).

    Raises:
        VocabularyMismatch: a binding is of another vocabulary.
    """
    for _, binding in parts:
        if binding.fingerprint != vocabulary.fingerprint:
            raise VocabularyMismatch("<canonical plans>", ((binding.fingerprint, ""),), (vocabulary.fingerprint, vocabulary.name))
    bindings = [binding for _, binding in parts]
    counts = np.concatenate([np.zeros(1, np.int32), *(np.diff(binding.plan_offsets) for binding in bindings)])
    tokens = np.concatenate([*(binding.plan_tokens for binding in bindings), np.zeros(1, np.int32)])
    cover = np.concatenate([binding.cover for binding in bindings])
    return CanonicalPlans(np.cumsum(counts).astype(np.int32), tokens.astype(np.int32), cover.astype(np.int32),
                          np.diff(vocabulary.token_offsets).astype(np.int32))


class Step(NamedTuple):
    """Where an output stands after some tokens; all on the device, int32."""

    state: Any  # [1, 66]
    plan: Any   # [1, 2], place of the next forced token and end of its plan; equal for none
    fault: Any  # [1, 1]


class DeviceConstraint:
    """Tables and plans on the device, shared by outputs: a step after a token, and the logits that a step allows.

    Attributes:
        tables: what is on the device.
    """

    def __init__(self, tables: DeviceTables, plans: CanonicalPlans | None) -> None:
        self.tables, self._operations = tables, OperationMasks(tables)
        self._masks = KernelMasks(tables, "action") if mx.metal.is_available() else self._operations
        self._stops = mx.array(tables.arrays["stops"] != 0)[None]
        self._plans = None if plans is None else [mx.array(part) for part in (plans.offsets, plans.tokens, plans.cover, plans.lengths)]
        # settles what the tables left lazy, so that a processor made in one thread may run in another
        probe = mx.array(tables.initial([None]))
        mx.eval(self._stops, self._masks.mask(probe), self._operations.advance(probe, mx.array([0])))

    def start(self, grammar: int) -> Step:
        """The step before the first token."""
        return self.at(mx.array(self.tables.initial([grammar])))

    def at(self, state: Any) -> Step:
        """The step of state vectors int32 ``[1, 66]``, with the whole plan of its state ahead."""
        return Step(state, self._plan_of(state), mx.array([[SOUND]], dtype=mx.int32))

    def after(self, step: Step, token: Any) -> Step:
        """The step after one more token, integer ``[1]``."""
        state = self._operations.advance(step.state, token)
        plan = self._plan_of(state)
        if self._plans is not None:
            place, end = step.plan[:, 0:1], step.plan[:, 1:2]
            goes_on = (place + 1 < end) & (mx.take(self._plans[1], place) == token.astype(mx.int32)[:, None])
            plan = mx.where(goes_on, mx.concatenate([place + 1, end], axis=1), plan)
        return Step(state, plan, step.fault)

    def limit(self, step: Step, logits: Any) -> tuple[Step, Any]:
        """The step with what is wrong with its logits, and the logits ``[1, head]`` with ``-inf`` where no token is allowed."""
        q, used = step.state[:, 0:1], step.state[:, 1:2]
        allowed = self._masks.mask(step.state) | ((q == TERMINATED) & self._stops)
        if self._plans is not None:
            allowed = self._canonical(step, allowed)
        padding = [(0, 0), (0, logits.shape[-1] - self.tables.vocabulary_size)]
        allowed, stops = mx.pad(allowed, padding), mx.pad(self._stops, padding)
        never = mx.array(-float("inf"), dtype=logits.dtype)
        limited = mx.where(allowed, logits, never)
        sound = mx.isfinite(mx.max(limited, axis=-1, keepdims=True)) & ~mx.any(mx.isnan(logits), axis=-1, keepdims=True)
        stuck = mx.where(used > CAPACITY - self.tables.overlay, NESTING, DEAD_END)
        fault = mx.where(mx.any(allowed, axis=-1, keepdims=True), mx.where(sound, SOUND, NOT_FINITE), stuck)
        fault = mx.where(step.fault != SOUND, step.fault, fault.astype(mx.int32))
        only_stops = mx.where(stops, mx.zeros_like(logits), never)
        return step._replace(fault=fault), mx.where(fault == SOUND, limited, only_stops)

    def _plan_of(self, state: Any) -> Any:
        """int32 ``[1, 2]``: where the plan of a state vector's state begins and ends."""
        if self._plans is None:
            return mx.zeros((1, 2), dtype=mx.int32)
        q = state[:, 0:1]
        # after the end q is negative: both places are that of state 0, and there is no plan
        return mx.take(self._plans[0], mx.maximum(mx.concatenate([q, q + 1], axis=1), 0))

    def _canonical(self, step: Step, allowed: Any) -> Any:
        """The forced token where there is one that the stack admits, else the tokens that span the boundary cover, unless none does."""
        assert self._plans is not None
        _, tokens, cover, lengths = self._plans
        q, place, end = step.state[:, 0:1], step.plan[:, 0:1], step.plan[:, 1:2]
        least = mx.where(q >= 0, mx.take(cover, mx.maximum(q, 0)), 0)
        covering = allowed & (lengths[None] >= least)
        covering = mx.where(mx.any(covering, axis=-1, keepdims=True), covering | (allowed & self._stops), allowed)
        forced = mx.arange(allowed.shape[1], dtype=mx.int32)[None] == mx.take(tokens, place)
        forced = allowed & forced & (place < end)
        return mx.where(mx.any(forced, axis=-1, keepdims=True), forced, covering)


@lru_cache(SHARED_TABLES)
def device_constraint(tables: DeviceTables, plans: CanonicalPlans | None) -> DeviceConstraint:
    """The constraint of some tables and plans; the last ``SHARED_TABLES`` are kept."""
    return DeviceConstraint(tables, plans)
