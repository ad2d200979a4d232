"""P8 and P9: small files that ask for much memory. ``refused`` measures what each of them gets."""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from forgery import META, forge_sections, laid_out, padded, refused, sections_of, small_artifact

from stcc.formats import Artifact
from stcc.formats.container import Container, memory_limit
from stcc.formats.errors import CodecError, ContentError, LimitError


def zeros(count: int) -> bytes:
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]
    return b"".join([*parts, packer.compress(bytes(count & 0xFFFFF)), packer.flush()])


HUGE = zeros(200 << 20)
MACHINE = sections_of(small_artifact())


def test_a_stream_that_inflates_past_its_shape() -> None:
    assert len(HUGE) < 250_000
    refused(laid_out({**MACHINE, "machine.exits": ("u8", [9], HUGE)}), CodecError)
    refused(laid_out({**MACHINE, "machine.exits": ("u16", [9], HUGE)}), CodecError)


def test_a_stream_with_a_shape_as_large_as_it() -> None:
    for name in ("machine.exits", "machine.row_pattern"):
        refused(laid_out({**MACHINE, name: ("u8", [200 << 20], HUGE)}), LimitError)
    assert memory_limit(len(HUGE)) < 300 << 20


def test_the_largest_shape_that_is_allowed_still_fits_the_limit() -> None:
    count = memory_limit(0) // 8 - 300
    for name in ("exits", "row_pattern", "accepting", "edge_target", "edge_push_counts", "edge_pushes", "unique", "several"):
        refused(laid_out({**MACHINE, f"machine.{name}": ("u8", [count], zeros(count))}))


def test_many_sections_share_one_limit() -> None:
    part = memory_limit(0) // 8 // 4
    stream = zeros(part)
    names = ("machine.exits", "machine.accepting", "machine.edge_target", "machine.edge_pushes", "machine.edge_push_counts")
    error = refused(laid_out({**MACHINE, **{name: ("u8", [part], stream) for name in names}}), LimitError)
    assert "edge_push" in error.place or "edge_target" in error.place


def test_a_table_of_few_patterns_and_many_states() -> None:
    states = 1_000_000
    patterns = np.zeros((1, 250), np.uint8)
    flat = zeros(states)
    arrays: dict[str, Any] = {**MACHINE, "machine.row_pattern": ("u8", [states], flat), "machine.patterns": patterns,
                              "machine.exits": ("u8", [states], flat), "machine.accepting": ("u8", [10], zeros(10))}
    data = laid_out(arrays)
    assert len(data) < 5_000
    assert refused(data, LimitError).place == "section machine.row_pattern"


def bound(**changes: Any) -> bytes:
    """An artifact with one binding, sound but for ``changes``."""
    byte = {name: np.array(numbers, np.uint8) for name, numbers in {
        "run_lengths": [1], "run_action": [1, 0], "row_pattern": [0] * 9, "pattern_counts": [1], "pattern_actions": [1],
        "pattern_values": [1], "plan_pattern": [0] * 9, "plan_counts": [0], "cover": [0] * 9, "need_finish": [2] * 9}.items()}
    entry = {"actions": 2, "fingerprint": "ab" * 32, "name": "", "size": 100}
    arrays = {**MACHINE, **{f"binding.0.{name}": value for name, value in {**byte, **changes}.items()}}
    return laid_out(arrays, meta={**META, "bindings": [entry]})


def test_the_binding_is_sound_to_begin_with() -> None:
    binding = Artifact.from_bytes(bound()).binding("ab" * 32)
    assert binding.row_values.tolist() == list(range(9)) and binding.run_starts.tolist() == [0, 1] and binding.need_finish[0] == 0


@pytest.mark.parametrize(("pattern", "counts", "flat"), [
    ("row_pattern", "pattern_counts", "pattern_values"), ("plan_pattern", "plan_counts", "plan_tokens"),
])
def test_a_long_pattern_at_many_states(pattern: str, counts: str, flat: str) -> None:
    length, states = 200_000, 1_000_000
    changes: dict[str, Any] = {flat: ("u8", [length], zeros(length)), counts: np.array([length], np.uint32),
                               pattern: ("u8", [states], zeros(states))}
    if flat == "pattern_values":
        changes["pattern_actions"] = changes[flat]
    data = bound(**changes)
    assert len(data) < 10_000
    assert refused(data, LimitError).place == f"section binding.0.{pattern}"


@pytest.mark.parametrize("changes", [
    {"pattern_counts": np.array([(1 << 32) - 1], np.uint32)}, {"pattern_counts": np.array([(1 << 32) - 1, 2], np.uint32)},
    {"pattern_counts": np.array([1 << 31, 1 << 31, 1], np.uint32), "row_pattern": np.array([2] * 9, np.uint8)},
    {"pattern_counts": np.array([1 << 31, 1 << 31], np.uint32)}, {"run_lengths": np.array([(1 << 32) - 1], np.uint32)},
    {"run_lengths": np.array([100], np.uint8)}, {"run_lengths": np.array([0], np.uint8)}, {"run_lengths": np.array([1, 1], np.uint8)},
    {"run_action": np.array([1, 2], np.uint8)}, {"row_pattern": np.array([1] * 9, np.uint8)}, {"row_pattern": np.array([0] * 8, np.uint8)},
    {"row_pattern": np.array([0] * 10, np.uint8)}, {"pattern_values": np.array([(1 << 32) - 1], np.uint32)},
    {"pattern_values": np.array([(1 << 32) - 2], np.uint32)}, {"pattern_values": np.array([1, 1], np.uint8)},
    {"pattern_actions": np.array([(1 << 32) - 1], np.uint32)}, {"pattern_actions": np.array([1, 1], np.uint8)},
    {"record_kind": np.array([2], np.uint8)},
    {"record_head": np.array([0], np.uint8)}, {"record_push_counts": np.array([1 << 31, 1 << 31], np.uint32)},
    {"suffix_counts": np.array([5], np.uint8)}, {"plan_counts": np.array([1], np.uint8)}, {"cover": np.array([0] * 8, np.uint8)},
    {"need_finish": np.array([(1 << 32) - 1] * 9, np.uint32)}, {"need_finish": np.array([2] * 8, np.uint8)},
    {"need_finish": np.array([(1 << 32) - 2] * 9, np.uint32)}, {"need_kinds": np.array([0], np.uint8)},
    {"need_leave": np.array([0] * 9, np.uint8)},
], ids=str)
def test_counts_and_numbers_that_overflow_or_do_not_agree(changes: dict[str, Any]) -> None:
    refused(bound(**changes), ContentError)


@pytest.mark.parametrize(("name", "number"), [("exits", 1 << 16), ("exits", (1 << 16) + 1), ("accepting", 2), ("accepting", 255)])
def test_numbers_that_a_narrower_type_would_wrap(name: str, number: int) -> None:
    array = MACHINE[f"machine.{name}"].astype(np.uint8 if name == "accepting" else np.uint32)
    array[0] = number
    refused(laid_out({**MACHINE, f"machine.{name}": array}), ContentError)


def test_warnings_that_are_a_bomb_or_no_warnings() -> None:
    refused(laid_out({**MACHINE, "notes": ("u8", [2 << 20], zeros(2 << 20))}), LimitError)
    deep = np.frombuffer(b"[" * 100_000, np.uint8)
    wide = np.frombuffer(b"[" + b"[]," * 300_000 + b"[]]", np.uint8)
    for notes in (deep, wide, np.frombuffer(b'{"unenforced":[],"warnings":[1]}', np.uint8), np.frombuffer(b"\xff\xfe", np.uint8),
                  np.frombuffer(b'{"unenforced":[],"warnings":[{"a":1}]}', np.uint8)):
        refused(laid_out({**MACHINE, "notes": notes}), ContentError)


def test_a_bomb_is_inflated_only_as_far_as_its_shape() -> None:
    stream = zeros(1 << 20)
    box = Container.parse(forge_sections([["x", "u8", [5], False, 1, 0, len(stream), zlib.crc32(stream)]], padded(stream)))
    with pytest.raises(CodecError):  # here it is asked for
        box.raw("x")


def test_a_process_with_little_memory_survives_all_of_it() -> None:
    """The same bombs where the system, not the interpreter, does the counting."""
    pytest.importorskip("resource")
    script = """
import resource, sys
from stcc.formats import Artifact, FormatError
data = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    artifact = Artifact.from_bytes(data)
    artifact.machine
    artifact.binding("ab" * 32).row_values
except FormatError as error:
    print(type(error).__name__)
"""
    length = 200_000
    bombs = [laid_out({**MACHINE, "machine.exits": ("u8", [9], HUGE)}), laid_out({**MACHINE, "machine.exits": ("u8", [200 << 20], HUGE)}),
             bound(pattern_values=("u8", [length], zeros(length)), pattern_actions=("u8", [length], zeros(length)),
                   pattern_counts=np.array([length], np.uint32), row_pattern=("u8", [1_000_000], zeros(1_000_000)))]
    for bomb, expected in zip(bombs, ("CodecError", "LimitError", "LimitError"), strict=True):
        done = subprocess.run([sys.executable, "-c", script], input=bomb, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout.decode().strip()) == (0, expected), done.stderr.decode()
