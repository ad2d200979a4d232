"""Binding <-> sections: rows, plans and needs that repeat along a chain of states are stored once.

In: a ``Binding``; out: its sections ``binding.N.*`` (SPEC.md lists them). In: a container; out: a ``Binding`` that decodes and verifies a
family of sections (tokens, rows, plans, need) when one of its arrays is first used, since a mask needs neither plans nor needs, and
rows stay patterns for those who can use them so (``row_patterns``).

A state whose row is nearly another's names that as its default and lists what differs (``row_default``). Values are coded relative to
their state (``stcc.formats.coding.relative``), so the rows of a string that may be 100 characters long are
mostly one pattern. Needs fall by one along a chain, so they are stored as differences.

Cost: decoding a family takes some ten array operations over its entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stcc.formats.binding import UNREACHABLE, Binding
from stcc.formats.binding_checks import FAMILIES
from stcc.formats.coding import Array, delta, first_uses, narrow, offsets, relative, relative_parts, spread, to_int32, undelta
from stcc.formats.container import WORKING_SIZE, SectionData
from stcc.formats.errors import ContentError
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import EXPANDED, RowPatterns, layered_rows
from stcc.formats.sections import PLAIN_PATTERN_STATES, SectionReader

NAMES = (
    "run_lengths", "run_action",
    "row_pattern", "row_default", "pattern_counts", "pattern_actions", "pattern_values",
    "record_kind", "record_head", "record_function", "record_push_counts", "record_pushes",
    "suffix_counts", "suffix_states", "suffix_values",
    "plan_pattern", "plan_counts", "plan_tokens", "cover",
    "need_finish", "need_kinds", "need_leave",
)
Arrays = dict[str, Any]


def prefix(number: int) -> str:
    """What the names of the sections of binding ``number`` start with."""
    return f"binding.{number}."


def binding_sections(binding: Binding, number: int) -> list[SectionData]:
    """The sections of ``binding``, in a fixed order; empty arrays are left out. Fingerprint and counts go to the header."""
    arrays = {**_write_tokens(binding), **_write_rows(binding), **_write_plans(binding), **_write_need(binding)}
    plain = {"row_pattern"} if len(arrays["row_pattern"]) >= PLAIN_PATTERN_STATES else set()
    return [SectionData(prefix(number) + name, arrays[name], compress=name not in plain) for name in NAMES if arrays[name].size]


def decoded_size(binding: Binding) -> int:
    """Bytes of the larger of what rows and plans decode to, as promise P9 counts them."""
    rows = layered_rows(binding)
    listed = int(np.diff(rows.offsets)[rows.pattern].sum(dtype=np.int64))
    return max(listed, len(binding.plan_tokens)) * WORKING_SIZE


def _write_tokens(binding: Binding) -> Arrays:
    return {"run_lengths": narrow(np.diff(binding.run_starts)), "run_action": narrow(binding.run_action)}


def _write_rows(binding: Binding) -> Arrays:
    rows = layered_rows(binding)
    states = len(rows.pattern)
    bounds, actions, values = (rows.listed() if rows.default is not None
                               else (binding.row_offsets, binding.row_actions, binding.row_values))
    codes = narrow(relative(values, np.repeat(np.arange(states, dtype=np.int32), np.diff(bounds)), states))
    pattern, places, pattern_counts = _patterns(bounds, actions, codes)
    return {
        "row_pattern": narrow(pattern),
        "row_default": delta(rows.default) if rows.default is not None else np.zeros(0, np.uint8),
        "pattern_counts": narrow(pattern_counts),
        "pattern_actions": narrow(actions[places]),
        "pattern_values": narrow(codes[places]),
        "record_kind": binding.record_kind,
        "record_head": narrow(binding.record_head),
        "record_function": narrow(binding.record_function.astype(np.int64) + 1),
        "record_push_counts": narrow(np.diff(binding.record_push_offsets)),
        "record_pushes": delta(binding.record_pushes),
        "suffix_counts": narrow(np.diff(binding.suffix_offsets)),
        "suffix_states": delta(binding.suffix_states),
        "suffix_values": narrow(binding.suffix_values),
    }


def _write_plans(binding: Binding) -> Arrays:
    pattern, places, counts = _patterns(binding.plan_offsets, binding.plan_tokens)
    return {"plan_pattern": narrow(pattern), "plan_counts": narrow(counts), "plan_tokens": narrow(binding.plan_tokens[places]),
            "cover": binding.cover}


def _write_need(binding: Binding) -> Arrays:
    return {"need_finish": delta(_cost_codes(binding.need_finish)), "need_kinds": narrow(binding.need_kinds),
            "need_leave": delta(_cost_codes(binding.need_leave.T.ravel()))}


def _patterns(bounds: Array, *flat: Array) -> tuple[Array, Array, Array]:
    """The distinct spans of ``flat``, by first appearance.

    Returns:
        Each span's pattern, the places in ``flat`` that spell the patterns one after the other, and each pattern's length.
    """
    spans = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    ids, first = first_uses(tuple(array[low:high].tobytes() for array in flat) for low, high in spans)
    starts, counts = bounds[:-1][first].astype(np.int32), np.diff(bounds)[first].astype(np.int32)
    return ids, spread(starts, counts, offsets(counts)), counts


def _cost_codes(costs: Array) -> Array:
    """0 for ``UNREACHABLE``, otherwise the cost and 1."""
    return np.where(costs >= UNREACHABLE, 0, costs.astype(np.int64) + 1)


class StoredBinding(Binding):
    """A ``Binding`` in a file: a family of arrays is decoded and verified when one of them is first used.

    ``row_patterns`` are the rows as they are stored (``stcc.formats.row_patterns``), with the records; the expanded ``row_*`` arrays are
    made from them if somebody asks. Using an array raises FormatError if a section of its family is missing or damaged, or an index in
    it is out of range.
    """

    reader: SectionReader
    machine: Machine
    row_patterns: RowPatterns

    def __init__(self, reader: SectionReader, machine: Machine, fingerprint: str, vocabulary_size: int, actions: int) -> None:
        self.__dict__.update(fingerprint=fingerprint, vocabulary_size=vocabulary_size, actions=actions, reader=reader, machine=machine)

    def __getattr__(self, name: str) -> Any:
        family = _FAMILY_OF.get(name)
        if family is None:
            raise AttributeError(name)
        with self.reader.checked():
            arrays = _READ[family](self)
        checked: StoredBinding = object.__new__(StoredBinding)  # so that no other thread sees arrays before they are verified
        checked.__dict__.update(self.__dict__, **arrays)
        broken = FAMILIES[family](checked, self.machine) if family in FAMILIES else []
        if broken:
            raise ContentError(self.reader.file, self.reader.prefix.rstrip("."), f"it does not hold that {broken[0]}")
        self.__dict__.update(checked.__dict__)
        return arrays[name]


def _read_tokens(binding: StoredBinding) -> Arrays:
    reader = binding.reader
    lengths, action = reader.take("run_lengths", optional=True), to_int32(reader.take("run_action", optional=True))
    if len(lengths) != max(len(action) - 1, 0):
        raise ValueError("every run but the last has a length")
    return {"run_starts": offsets(lengths)[:len(action)], "run_action": action}


def _read_patterns_and_records(binding: StoredBinding) -> Arrays:
    reader, states = binding.reader, binding.machine.states
    values = reader.take("pattern_values", optional=True)
    base, follows = relative_parts(values, states)
    actions = to_int32(reader.take("pattern_actions", optional=True))
    if len(actions) != len(values):
        raise ValueError("pattern actions and values differ in number")
    pattern, bounds = _read_patterns(reader, "row_pattern", "pattern_counts", len(values))
    if len(pattern) != states:
        raise ValueError("row_pattern has one entry a state")
    default = undelta(reader.take("row_default", optional=True))
    if len(default) not in (0, states):
        raise ValueError("row_default has one entry a state, if any")
    return {
        "row_patterns": RowPatterns(pattern, bounds, actions, base, follows, default if len(default) else None),
        "record_kind": reader.take("record_kind", dtype="u8", optional=True),
        "record_head": to_int32(reader.take("record_head", optional=True)),
        "record_function": to_int32(reader.take("record_function", optional=True).astype(np.int64) - 1),
        "record_push_offsets": offsets(reader.take("record_push_counts", optional=True)),
        "record_pushes": undelta(reader.take("record_pushes", optional=True)),
        "suffix_offsets": offsets(reader.take("suffix_counts", optional=True)),
        "suffix_states": undelta(reader.take("suffix_states", optional=True)),
        "suffix_values": to_int32(reader.take("suffix_values", optional=True)),
    }


def _expand_rows(binding: StoredBinding) -> Arrays:
    rows: RowPatterns = binding.row_patterns
    binding.reader.reserve(rows.most_entries() * WORKING_SIZE, "row_default")
    return dict(zip(EXPANDED, rows.expanded(), strict=True))


def _read_plans(binding: StoredBinding) -> Arrays:
    reader = binding.reader
    tokens = to_int32(reader.take("plan_tokens", optional=True))
    pattern, starts = _read_patterns(reader, "plan_pattern", "plan_counts", len(tokens))
    lengths = np.diff(starts)[pattern]
    bounds = offsets(lengths)
    places = spread(starts[:-1][pattern], lengths, bounds)
    return {"plan_offsets": bounds, "plan_tokens": np.take(tokens, places), "cover": reader.take("cover", dtype="u8")}


def _read_need(binding: StoredBinding) -> Arrays:
    reader, states = binding.reader, binding.machine.states
    kinds = to_int32(reader.take("need_kinds", optional=True))
    leave = _read_costs(reader.take("need_leave", optional=True))
    if leave.size != states * len(kinds):
        raise ValueError("need_leave has one entry a state and kind")
    return {"need_finish": _read_costs(reader.take("need_finish", optional=True)), "need_kinds": kinds,
            "need_leave": np.ascontiguousarray(leave.reshape(len(kinds), states).T)}


def _read_patterns(reader: SectionReader, pattern_name: str, counts_name: str, available: int) -> tuple[Array, Array]:
    """Each state's pattern, and the offsets of the patterns in their ``available`` entries, int32."""
    pattern, counts = reader.take(pattern_name), reader.take(counts_name)
    bounds = offsets(counts)
    if int(bounds[-1]) != available:
        raise ValueError(f"{counts_name} do not add up to the patterns' entries")
    if pattern.size and int(pattern.max()) >= len(counts):
        raise ValueError(f"{pattern_name} names a pattern that is not there")
    reader.reserve(int(counts[pattern].sum(dtype=np.int64)) * WORKING_SIZE, pattern_name)
    return pattern, bounds


def _read_costs(codes: Array) -> Array:
    costs = undelta(codes) - np.int32(1)
    costs[costs == -1] = UNREACHABLE
    return costs


_READ: dict[str, Callable[[StoredBinding], Arrays]] = {
    "tokens": _read_tokens, "rows": _read_patterns_and_records, "expanded": _expand_rows, "plans": _read_plans, "need": _read_need,
}
_MEMBERS = {
    "tokens": ("run_starts", "run_action"),
    "rows": ("row_patterns",
             "record_kind", "record_head", "record_function", "record_push_offsets", "record_pushes",
             "suffix_offsets", "suffix_states", "suffix_values"),
    "expanded": EXPANDED,
    "plans": ("plan_offsets", "plan_tokens", "cover"),
    "need": ("need_finish", "need_kinds", "need_leave"),
}
_FAMILY_OF = {name: family for family, names in _MEMBERS.items() for name in names}
