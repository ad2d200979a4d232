"""Random sound machines and bindings, for tests of what is on disk. Sound means in range; they need not mean anything."""

from __future__ import annotations

import numpy as np

from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE, Binding
from stcc.formats.machine import Machine

Rng = np.random.Generator


def random_machine(rng: Rng, *, most_states: int = 12) -> Machine:
    states, classes, edges, exits = (int(rng.integers(low, high)) for low, high in ((1, most_states), (1, 6), (0, 4), (1, 4)))
    sites = int(rng.integers(1, 4)) if edges else 0
    inner = rng.random(states) < 0.6  # states that may be returned to
    inner[0] = True
    counts = rng.integers(1, 4, edges)
    unique = np.flatnonzero(rng.random(states) < 0.2).astype(np.int32)
    return Machine(
        byte_class=rng.integers(0, classes, 256).astype(np.uint8),
        table=np.where(rng.random((states, classes)) < 0.4, -1, rng.integers(0, states + edges, (states, classes))).astype(np.int32),
        exits=np.where(inner, -1, rng.integers(-1, exits, states)).astype(np.int16),
        accepting=rng.random(states) < 0.5,
        edge_target=rng.integers(0, states, edges).astype(np.int32),
        edge_push_offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        edge_pushes=rng.integers(0, max(sites, 1), int(counts.sum())).astype(np.int32),
        returns=np.where(rng.random((sites, exits)) < 0.3, -1, rng.choice(np.flatnonzero(inner), (sites, exits))).astype(np.int32),
        start=int(rng.integers(0, states)),
        unique=unique, several=rng.random(len(unique)) < 0.5,
    )


def random_binding(rng: Rng, machine: Machine, *, fingerprint: str = "ab" * 32) -> Binding:
    states, exits = machine.states, max(machine.returns.shape[1], 1)
    vocabulary_size, actions, functions = (int(rng.integers(low, high)) for low, high in ((1, 2_000), (1, 9), (1, 4)))
    records = int(rng.integers(0, 6))
    kind = rng.choice([MOVE, POPPED, EXPOSED], records).astype(np.uint8)
    push_counts = np.where((kind == MOVE) & (machine.sites > 0), rng.integers(0, 3, records), 0)
    runs = int(rng.integers(0, min(vocabulary_size, 60) + 1))
    starts = np.sort(rng.choice(vocabulary_size, runs, replace=False)) if runs else np.zeros(0, np.int64)
    starts[:1] = 0
    row_offsets, row_actions = _spans(rng, states, 1, actions)
    suffix_offsets, suffix_states = _spans(rng, functions, 0, states)
    plan_offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 3, states))))
    kinds = np.flatnonzero(kind != MOVE)
    targets = states + records
    return Binding(
        fingerprint=fingerprint, vocabulary_size=vocabulary_size, actions=actions,
        run_starts=_int32(starts), run_action=_int32(rng.integers(0, actions, runs)),
        row_offsets=row_offsets, row_actions=row_actions, row_values=_int32(rng.integers(0, targets, len(row_actions))),
        record_kind=kind, record_head=_int32(np.where(kind == MOVE, rng.integers(0, states, records), rng.integers(0, exits, records))),
        record_function=_int32(np.where(kind == EXPOSED, rng.integers(0, functions, records), -1)),
        record_push_offsets=_int32(np.concatenate(([0], np.cumsum(push_counts)))),
        record_pushes=_int32(rng.integers(0, max(machine.sites, 1), int(push_counts.sum()))),
        suffix_offsets=suffix_offsets, suffix_states=suffix_states, suffix_values=_int32(rng.integers(0, targets, len(suffix_states))),
        plan_offsets=_int32(plan_offsets), plan_tokens=_int32(rng.integers(0, vocabulary_size, int(plan_offsets[-1]))),
        cover=rng.integers(0, 9, states).astype(np.uint8), need_finish=_costs(rng, (states,)), need_kinds=_int32(kinds),
        need_leave=_costs(rng, (states, len(kinds))),
    )


def _int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)


def _spans(rng: Rng, count: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of ``count`` spans, and a rising subset of ``low .. high - 1`` in each."""
    parts = [np.flatnonzero(rng.random(high) < 0.5) for _ in range(count)]
    parts = [part[part >= low] for part in parts]
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    return _int32(offsets), _int32(np.concatenate(parts))


def _costs(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    return _int32(np.where(rng.random(shape) < 0.2, UNREACHABLE, rng.integers(0, 300, shape)))
