"""A second reader of artifacts, written from formats/SPEC.md alone: plain Python numbers, no NumPy, nothing from stcc."""

from __future__ import annotations

import json
import struct
import zlib
from itertools import accumulate
from typing import Any

import msgpack

SIZES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4}
CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i"}
UNREACHABLE = 1 << 29


def read_container(data: bytes) -> tuple[dict[str, Any], dict[str, tuple[list[int], list[int]]]]:
    """The header, and each section's shape and numbers (chapter 1)."""
    magic, version, length, checksum = struct.unpack_from("<8sIII", data)
    assert magic == b"\x89STCC\r\n\x1a" and version == 1
    packed = data[20:20 + length]
    assert zlib.crc32(data[8:16] + packed) == checksum
    header = msgpack.unpackb(packed)
    start = -(-(20 + length) // 64) * 64
    sections = {}
    for name, dtype, shape, _, codec, offset, stored, crc in header["sections"]:
        body = data[start + offset:start + offset + stored]
        assert zlib.crc32(body) == crc
        raw = zlib.decompress(body) if codec else body
        count = len(raw) // SIZES[dtype]
        if codec == 2:
            raw = bytes(raw[byte * count + number] for number in range(count) for byte in range(SIZES[dtype]))
        sections[name] = (shape, list(struct.unpack(f"<{count}{CODES[dtype]}", raw)))
    return header, sections


def unzigzag(code: int) -> int:
    return -(code + 1) // 2 if code % 2 else code // 2


def undelta(codes: list[int]) -> list[int]:
    return list(accumulate(map(unzigzag, codes)))


def offsets(counts: list[int]) -> list[int]:
    return [0, *accumulate(counts)]


def target(code: int, state: int, states: int) -> int:
    if code == 0:
        return -1
    return state + unzigzag((code - 1) // 2) if code % 2 else states + (code - 2) // 2


def costs(codes: list[int]) -> list[int]:
    return [UNREACHABLE if code == 0 else code - 1 for code in undelta(codes)]


def read_machine(data: bytes) -> dict[str, Any]:
    """The machine's arrays by the names of formats/machine.py, flat (chapter 4)."""
    header, sections = read_container(data)

    def numbers(name: str) -> list[int]:
        return sections.get(f"machine.{name}", ([0], []))[1]

    pattern, codes, classes = numbers("row_pattern"), numbers("patterns"), sections["machine.patterns"][0][1]
    states = len(pattern)
    return {
        "byte_class": numbers("byte_class"),
        "table": [target(codes[pattern[state] * classes + column], state, states) for state in range(states) for column in range(classes)],
        "exits": [code - 1 for code in numbers("exits")], "accepting": numbers("accepting"), "edge_target": undelta(numbers("edge_target")),
        "edge_push_offsets": offsets(numbers("edge_push_counts")), "edge_pushes": undelta(numbers("edge_pushes")),
        "returns": [code - 1 for code in numbers("returns")], "start": header["meta"]["start"], "unique": undelta(numbers("unique")),
        "several": numbers("several"),
    }


def read_binding(data: bytes, position: int) -> dict[str, Any]:
    """The arrays of one binding by the names of formats/binding.py, flat (chapter 5)."""
    header, sections = read_container(data)

    def numbers(name: str) -> list[int]:
        return sections.get(f"binding.{position}.{name}", ([0], []))[1]

    def spans(pattern: str, counts: str) -> list[range]:
        bounds = offsets(numbers(counts))
        return [range(bounds[number], bounds[number + 1]) for number in numbers(pattern)]

    rows, plans = spans("row_pattern", "pattern_counts"), spans("plan_pattern", "plan_counts")
    states, kinds = len(rows), len(numbers("need_kinds"))
    default = undelta(numbers("row_default")) or list(range(states))
    actions, codes = numbers("pattern_actions"), numbers("pattern_values")
    own = [{actions[place]: target(codes[place], state, states) for place in row} for state, row in enumerate(rows)]
    merged = [{**own[default[state]], **own[state]} for state in range(states)]
    live = [{action: value for action, value in row.items() if value >= 0} for row in merged]
    leave = costs(numbers("need_leave"))
    entry = header["meta"]["bindings"][position]
    return {
        "fingerprint": entry["fingerprint"], "vocabulary_size": entry["size"], "actions": entry["actions"],
        "run_starts": offsets(numbers("run_lengths"))[:len(numbers("run_action"))], "run_action": numbers("run_action"),
        "row_offsets": offsets([len(row) for row in live]),
        "row_actions": [action for row in live for action in sorted(row)],
        "row_values": [row[action] for row in live for action in sorted(row)],
        "record_kind": numbers("record_kind"), "record_head": numbers("record_head"),
        "record_function": [code - 1 for code in numbers("record_function")],
        "record_push_offsets": offsets(numbers("record_push_counts")), "record_pushes": undelta(numbers("record_pushes")),
        "suffix_offsets": offsets(numbers("suffix_counts")), "suffix_states": undelta(numbers("suffix_states")),
        "suffix_values": numbers("suffix_values"),
        "plan_offsets": offsets([len(plan) for plan in plans]),
        "plan_tokens": [numbers("plan_tokens")[place] for plan in plans for place in plan],
        "cover": numbers("cover"), "need_finish": costs(numbers("need_finish")), "need_kinds": numbers("need_kinds"),
        "need_leave": [leave[kind * states + state] for state in range(states) for kind in range(kinds)],
    }


def read_notes(data: bytes) -> Any:
    """The warnings and unenforced keywords (chapter 3)."""
    _, sections = read_container(data)
    return json.loads(bytes(sections["notes"][1])) if "notes" in sections else {"unenforced": [], "warnings": []}
