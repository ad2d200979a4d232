"""The container: round trips, what is written, what is refused, and writes that are whole or absent."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.formats import FormatError, coding, container
from stcc.formats.container import Container, SectionData, open_mapped, open_read, pack, write_atomic
from stcc.formats.errors import CodecError, HeaderError, LimitError, SectionError, ShapeError, TruncatedError

DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32}
names = st.text(min_size=1, max_size=64)
plain = st.recursive(st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=5),
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=8)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = draw(st.lists(st.integers(0, 40), min_size=1, max_size=2))
    seed, spread = draw(st.integers(0, 1 << 30)), draw(st.sampled_from([1, 3, 1 << 7, 1 << 31]))
    return np.random.default_rng(seed).integers(0, spread, shape).astype(DTYPES[dtype])


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.text(max_size=4), plain, max_size=4),
       st.lists(st.tuples(names, arrays(), st.booleans(), st.booleans()), max_size=6, unique_by=lambda entry: entry[0]))
def test_round_trip(meta, entries) -> None:  # type: ignore[no-untyped-def]
    data = pack("stc", meta, [SectionData(*entry) for entry in entries])
    assert data == pack("stc", meta, [SectionData(*entry) for entry in entries]) and len(data) % 64 == 0
    box = Container.parse(data)
    assert box.content == "stc" and box.meta == meta and list(box.sections) == [entry[0] for entry in entries] and box.size == len(data)
    for name, array, required, _ in entries:
        section = box.sections[name]
        found = box.array(name, section.dtype, array.ndim)
        assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)
        assert section.required == required and section.offset % 64 == 0 and not found.flags.writeable


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=30))
def test_codings_have_inverses(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    assert coding.unzigzag(coding.zigzag(values)).tolist() == numbers
    if numbers and max(abs(int(step)) for step in np.diff(values, prepend=0)) < 1 << 31:
        assert coding.undelta(coding.delta(values)).tolist() == numbers


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 50), st.data())
def test_relative_targets_have_an_inverse(states: int, data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.integers(-1, states + 20), min_size=states, max_size=states)), np.int32)
    codes = coding.relative(values, np.arange(states), states)
    base, follows = coding.relative_parts(codes, states)
    assert (base + follows * np.arange(states)).tolist() == values.tolist() and codes.min() >= 0
    table = coding.relative_rows(base[:, None], follows[:, None], np.arange(states))
    assert table.ravel().tolist() == values.tolist()


def test_tables_wider_than_a_block_are_expanded_whole() -> None:
    rng = np.random.default_rng(1)
    base, follows = rng.integers(-1, 9, (5, 200)).astype(np.int32), rng.integers(0, 2, (5, 200)).astype(np.int32)
    pattern = rng.integers(0, 5, 1_000)
    expected = base[pattern] + follows[pattern] * np.arange(1_000)[:, None]
    assert np.array_equal(coding.relative_rows(base, follows, pattern), expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=9))
def test_spread(spans: list[tuple[int, int]]) -> None:
    starts, lengths = np.array([low for low, _ in spans], np.int32), np.array([n for _, n in spans], np.int32)
    bounds = coding.offsets(lengths)
    places = coding.spread(starts, lengths, bounds)
    assert places.tolist() == [low + step for low, n in spans for step in range(n)]
    assert bounds.tolist() == [sum(lengths[:i].tolist()) for i in range(len(spans) + 1)]


@pytest.mark.parametrize(("numbers", "dtype"), [
    ([], np.uint8), ([255], np.uint8), ([256], np.uint16), ([65536], np.uint32), ([(1 << 32) - 1], np.uint32),
])
def test_narrow_picks_the_narrowest_type(numbers, dtype) -> None:  # type: ignore[no-untyped-def]
    assert coding.narrow(np.array(numbers, np.int64)).dtype == dtype


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_narrow_refuses_what_does_not_fit(number: int) -> None:
    with pytest.raises(ValueError, match="32 unsigned bits"):
        coding.narrow(np.array([number], np.int64))


def test_codecs_are_chosen_by_what_they_save() -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, 500).astype(np.uint8)
    planes = (rng.integers(0, 256, 2_000) + 512).astype(np.uint32)  # noise in the low byte only
    zeros = np.zeros(5_000, np.uint8)
    box = Container.parse(pack("stc", {}, [SectionData("noise", noise), SectionData("zeros", zeros), SectionData("planes", planes),
                                           SectionData("plain", zeros, compress=False)]))
    codecs = {name: section.codec for name, section in box.sections.items()}
    assert codecs == {"noise": container.NONE, "zeros": container.ZLIB, "planes": container.SHUFFLED, "plain": container.NONE}
    assert box.sections["planes"].stored < len(zlib.compress(planes.tobytes(), 9)) and np.array_equal(box.array("planes"), planes)


def test_the_layout_is_the_one_that_the_specification_states() -> None:
    first, second = SectionData("a", np.array([1, 2], np.uint16), required=False), SectionData("b", np.array([[-1]], np.int32))
    data = pack("stv", {"k": [1]}, [first, second])
    header = msgpack.packb({"content": "stv", "meta": {"k": [1]}, "sections": [
        ["a", "u16", [2], False, 0, 0, 4, zlib.crc32(b"\1\0\2\0")], ["b", "i32", [1, 1], True, 0, 64, 4, zlib.crc32(b"\xff" * 4)]]})
    fields = struct.pack("<II", 1, len(header))
    head = b"\x89STCC\r\n\x1a" + fields + struct.pack("<I", zlib.crc32(fields + header)) + header
    assert data == head.ljust(-(-len(head) // 64) * 64, b"\0") + b"\1\0\2\0".ljust(64, b"\0") + (b"\xff" * 4).ljust(64, b"\0")


def test_asking_for_the_wrong_thing() -> None:
    box = Container.parse(pack("stc", {}, [SectionData("a", np.zeros(3, np.uint8)), SectionData("i", np.zeros(3, np.int32))]), "x.stc")
    with pytest.raises(SectionError, match=r"x\.stc: section b"):
        box.array("b")
    for name, dtype, dimensions in (("a", "u16", 1), ("a", "", 2), ("i", "", 1)):
        with pytest.raises(ShapeError):
            box.array(name, dtype, dimensions)
    with pytest.raises(SectionError, match="section i"):
        box.refuse_unknown(["a"])
    box.refuse_unknown(["a", "i", "more"])


def test_what_cannot_be_written() -> None:
    with pytest.raises(HeaderError):
        pack("stc", {"long": "x" * container.MAX_HEADER}, [])
    for meta in ({"a": {1, 2}}, {"a": "\ud800"}, {"a": 1 << 64}):
        with pytest.raises(HeaderError, match="cannot be written"):
            pack("stc", meta, [])
    with pytest.raises(HeaderError, match="twice"):
        pack("stc", {}, [SectionData("a", np.zeros(1, np.uint8))] * 2)
    with pytest.raises(LimitError):
        pack("stc", {}, [SectionData("a", np.zeros(3 << 20, np.uint8))])


def test_damaged_streams_are_found_when_a_section_is_used() -> None:
    array = np.arange(2_000).astype(np.uint8)
    good = zlib.compress(array.tobytes(), 9)
    for stored in (good[:-1], good + b"\0", zlib.compress(array.tobytes()[:-1]), zlib.compress(array.tobytes() + b"\0"), b"\0" * 50):
        entry = ["a", "u8", [2_000], True, 1, 0, len(stored), zlib.crc32(stored)]
        header = msgpack.packb({"content": "stc", "meta": {}, "sections": [entry]})
        fields = struct.pack("<II", 1, len(header))
        head = container.MAGIC + fields + struct.pack("<I", zlib.crc32(fields + header)) + header
        box = Container.parse(head.ljust(-(-len(head) // 64) * 64, b"\0") + stored.ljust(-(-len(stored) // 64) * 64, b"\0"))
        with pytest.raises(CodecError):
            box.array("a")


def test_errors_name_file_place_and_hint_and_survive_pickling() -> None:
    with pytest.raises(TruncatedError) as caught:
        Container.parse(pack("stc", {}, [])[:-1], "short.stc")
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is TruncatedError and isinstance(error, FormatError) and isinstance(error, ValueError)
    assert error.to_dict() == {"error": "TruncatedError", "file": "short.stc", "place": error.place, "message": error.message,
                               "hint": error.hint}
    assert str(error).startswith("short.stc: ") and error.hint in str(error)


def test_files_are_read_and_mapped_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.stc"
    write_atomic(path, pack("stc", {"n": 1}, [SectionData("a", np.arange(9, dtype=np.uint8))]))
    for opened in (open_read(path), open_mapped(path)):
        assert opened.meta == {"n": 1} and opened.array("a").tolist() == list(range(9)) and opened.file == str(path)
    (tmp_path / "empty").write_bytes(b"")
    for opener in (open_read, open_mapped):
        with pytest.raises(TruncatedError):
            opener(tmp_path / "empty")
        with pytest.raises(FileNotFoundError):
            opener(tmp_path / "none")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "a.stc"
    write_atomic(path, b"old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new" * 1_000)
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.stc"]
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a.stc"]


def test_written_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"")
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
