"""P6, P7 and P10: sections that overlap, leave holes, lie about their size, or are not the ones that are needed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from forgery import Entry, forge_sections, laid_out, padded, refused, sections_of, small_artifact
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.formats import Artifact, FormatError
from stcc.formats.container import Container
from stcc.formats.errors import ChecksumError, CodecError, HeaderError, LayoutError, LimitError, SectionError, ShapeError, TruncatedError

BODY = bytes(range(64)) + bytes(range(64, 128))


FIELDS = ("name", "dtype", "shape", "required", "codec", "offset", "stored", "checksum")


def entry(name: str, offset: int, stored: int, **changes: object) -> Entry:
    """A sound entry for ``BODY[offset:offset + stored]``, but for the fields in ``changes`` (``name_``, ``dtype``, and so on)."""
    fields: Entry = [name, "u8", [stored], False, 0, offset, stored, zlib.crc32(BODY[offset:offset + stored])]
    for field, value in changes.items():
        fields[FIELDS.index(field.rstrip("_"))] = value
    return fields


def parse(data: bytes) -> None:
    Container.parse(data)


def attack(entries: list[Entry], error: type[FormatError], body: bytes = BODY) -> None:
    refused(forge_sections(entries, body), error, read=parse)


def test_the_layout_is_sound_to_begin_with() -> None:
    parse(forge_sections([entry("a", 0, 64), entry("b", 64, 64)], BODY))
    parse(forge_sections([entry("a", 0, 0), entry("b", 0, 64), entry("c", 64, 64)], BODY))


@pytest.mark.parametrize("entries", [
    [entry("a", 0, 64), entry("b", 0, 64)], [entry("a", 0, 128), entry("b", 64, 64)], [entry("a", 0, 128), entry("b", 0, 128)],
], ids=["same", "inside", "equal"])
def test_overlap(entries: list[Entry]) -> None:
    attack(entries, LayoutError)


def test_holes_order_and_alignment() -> None:
    attack([entry("a", 64, 64)], LayoutError)
    attack([entry("a", 0, 64)], LayoutError)
    attack([entry("b", 64, 64), entry("a", 0, 64)], LayoutError)
    attack([entry("a", 0, 60), entry("b", 60, 68)], LayoutError)
    attack([], LayoutError)


def test_padding_that_is_not_zero() -> None:
    attack([entry("a", 0, 63), entry("b", 64, 64)], LayoutError)
    head = forge_sections([], b"")
    assert not head.endswith(b"\1")
    refused(head[:-1] + b"\1", LayoutError, read=parse)


def test_a_body_that_ends_early() -> None:
    attack([entry("a", 0, 64), entry("b", 64, 64)], TruncatedError, BODY[:64])
    attack([entry("a", 0, 64), entry("b", 64, 1 << 40, shape=[1 << 20, 1 << 20])], LimitError)


@pytest.mark.parametrize("shape", [[63], [65], [64, 2], [8, 9], [1 << 30], [0], [0, 64]])
def test_shapes_that_do_not_fit(shape: list[int]) -> None:
    attack([entry("a", 0, 64, shape=shape), entry("b", 64, 64)], ShapeError)


@pytest.mark.parametrize("shape", [
    [1 << 31], [1 << 63], [1 << 32, 1 << 32], [(1 << 64) - 1], [-1], [-64, -1], [True], [64.0], ["64"], [], [64, 1, 1], 64, None,
])
def test_shapes_that_overflow_or_are_no_shapes(shape: object) -> None:
    attack([entry("a", 0, 64, shape=shape), entry("b", 64, 64)], ShapeError)


@pytest.mark.parametrize("dtype", ["u16", "f32", "O", "|O8", "", 1, None, ["u8"]])
def test_types(dtype: object) -> None:
    attack([entry("a", 0, 64, dtype=dtype), entry("b", 64, 64)], ShapeError)


ODD = [None, True, -1, 1.5, "0", b"0", [], {}, 1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize(("field", "error"), [
    ("name", HeaderError), ("required", HeaderError), ("codec", CodecError), ("offset", FormatError), ("stored", FormatError),
    ("checksum", FormatError),
])
def test_fields_of_other_types(field: str, error: type[FormatError]) -> None:
    for value in ODD:
        if not ((field == "required" and value is True) or (field == "name" and value == "0")):
            attack([entry("a", 0, 64, **{field + "_": value}), entry("b", 64, 64)], error)


def test_entries_of_other_lengths_and_kinds() -> None:
    good = entry("a", 0, 64)
    for bad in ([], good[:-1], [*good, 1], {"name": "a"}, "a", None, 7):
        attack([bad, entry("b", 64, 64)], HeaderError)  # type: ignore[list-item]
    for name in ("", "x" * 65):
        attack([entry(name, 0, 64), entry("b", 64, 64)], HeaderError)
    attack([entry("a", 0, 64), entry("a", 64, 64)], HeaderError)
    attack([entry("a", 0, 64, codec=3), entry("b", 64, 64)], CodecError)
    attack([entry("a", 0, 64, checksum=0), entry("b", 64, 64)], ChecksumError)


def test_missing_and_unknown_sections() -> None:
    arrays = sections_of(small_artifact())
    assert Artifact.from_bytes(laid_out(arrays)).machine.states == 9
    for name in arrays:
        assert name in str(refused(laid_out({other: array for other, array in arrays.items() if other != name}), SectionError))
    refused(laid_out({**arrays, "machine.more": arrays["machine.exits"]}), SectionError)
    refused(laid_out({**arrays, "binding.0.cover": arrays["machine.exits"]}), SectionError)


def test_an_unknown_optional_section_is_skipped() -> None:
    entries: list[Entry] = [["hint", "u8", [64], False, 0, 0, 64, zlib.crc32(BODY[:64])]]
    body = BODY[:64]
    for name, array in sections_of(small_artifact()).items():
        stored = array.tobytes()
        entries.append([name, f"u{8 * array.itemsize}", list(array.shape), True, 0, len(body), len(stored), zlib.crc32(stored)])
        body += padded(stored)
    assert Artifact.from_bytes(forge_sections(entries, body)).machine.states == 9


def test_sections_of_other_types_and_dimensions() -> None:
    arrays = sections_of(small_artifact())
    patterns = arrays["machine.patterns"]
    wrong = {"machine.patterns": patterns.ravel(), "machine.row_pattern": patterns, "machine.byte_class": np.zeros(256, np.uint16),
             "machine.accepting": np.zeros(9, np.uint32)}
    for name, array in wrong.items():
        refused(laid_out({**arrays, name: array}), ShapeError)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_sections_of_a_sound_container(data: st.DataObject) -> None:
    """One section of a sound file replaced by another array: refused, or read as a machine that holds its invariants."""
    arrays = sections_of(small_artifact())
    name = data.draw(st.sampled_from(sorted(arrays)))
    shape = data.draw(st.lists(st.integers(0, 12), min_size=arrays[name].ndim, max_size=arrays[name].ndim))
    spread = data.draw(st.sampled_from([2, 9, 255]))
    arrays[name] = np.random.default_rng(data.draw(st.integers(0, 1 << 30))).integers(0, spread, shape).astype(np.uint8)
    try:
        machine = Artifact.from_bytes(laid_out(arrays)).machine
        table = machine.table
    except FormatError:
        return
    assert table.max(initial=-1) < machine.states and machine.byte_class.max() < machine.classes
