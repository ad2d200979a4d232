"""P5: headers that are not one canonical, bounded msgpack map."""

from __future__ import annotations

import msgpack
import pytest
from forgery import META, forge, forge_sections, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.formats import Artifact, FormatError
from stcc.formats.container import MAX_HEADER
from stcc.formats.errors import HeaderError, LimitError

GOOD = {"content": "stc", "meta": META, "sections": []}
PACKED = msgpack.packb(GOOD)


def header(data: bytes) -> None:
    refused(forge(data, b""), HeaderError)


def test_repeated_keys() -> None:
    body = PACKED[1:]
    header(b"\x84" + body + msgpack.packb("content") + msgpack.packb("stv"))
    header(b"\x84" + msgpack.packb("meta") + msgpack.packb({}) + body)


@pytest.mark.parametrize("value", [b"\xcc\x00", b"\xcd\x00\x00", b"\xd0\x00", b"\xd3" + bytes(8), b"\xca\x00\x00\x00\x00"])
def test_second_spellings_of_a_number(value: bytes) -> None:
    assert msgpack.unpackb(value) == 0
    short = msgpack.packb({**GOOD, "meta": {"a": 0}})
    assert short.count(b"\xa1a\x00") == 1
    header(short.replace(b"\xa1a\x00", b"\xa1a" + value))


def test_second_spellings_of_strings_and_maps() -> None:
    header(PACKED.replace(b"\xa7content", b"\xd9\x07content"))
    header(b"\xde\x00\x03" + PACKED[1:])
    header(b"\xdf\x00\x00\x00\x03" + PACKED[1:])
    header(PACKED.replace(b"\xa7content", b"\xc4\x07content"))


@pytest.mark.parametrize("value", [
    {}, [], None, 1, "x", {**GOOD, "more": 1}, {"content": "stc", "meta": META}, {"meta": META, "content": "stc", "sections": []},
    {**GOOD, "content": 1}, {**GOOD, "meta": []}, {**GOOD, "sections": {}}, {**GOOD, "content": b"stc"}, {1: 2}, {**GOOD, "meta": {1: 1}},
    {**GOOD, "meta": {None: 1}},
], ids=repr)
def test_maps_of_another_form(value: object) -> None:
    header(msgpack.packb(value))


@pytest.mark.parametrize("data", [
    b"", b"\xc1", PACKED[:-1], PACKED + b"\x00", PACKED + PACKED, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xdc\xff\xff" * 1_000,
    PACKED.replace(b"content", b"c\xff\xff\xfften"),
], ids=range(12))
def test_broken_streams_and_lengths_that_lie(data: bytes) -> None:
    header(data)


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01"])
@pytest.mark.parametrize("depth", [300, 600, 5_000, 60_000])
def test_deep_nesting(opening: bytes, depth: int) -> None:
    count = min(depth, (MAX_HEADER - 100) // len(opening))
    deep = opening * count + b"\xc0"
    refused(forge(PACKED.replace(msgpack.packb(META), b"\x81\xa1x" + deep), b""))


def test_extension_types_and_times() -> None:
    for value in (msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2), msgpack.ExtType(5, b"x" * 1_000)):
        for meta in ({**META, "name": value}, {**META, "options": {"a": value}}):
            refused(forge_sections([], b"", meta), HeaderError)


def test_names_that_are_not_unicode() -> None:
    header(PACKED.replace(b"regex", b"reg\xff\xff"))


def test_the_bound_on_headers() -> None:
    refused(forge(b"\x90" * (MAX_HEADER + 1), b""), LimitError)
    many = b"\xdd" + (MAX_HEADER - 200).to_bytes(4, "big") + b"\x90" * (MAX_HEADER - 200)
    refused(forge(PACKED.replace(msgpack.packb(META), b"\x81\xa1x" + many), b""), HeaderError)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_headers(data: bytes) -> None:
    with pytest.raises(FormatError):
        Artifact.from_bytes(forge(data, b""))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PACKED) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_random_edits_of_a_sound_header(place: int, put: bytes, cut: int) -> None:
    try:
        artifact = Artifact.from_bytes(forge(PACKED[:place] + put + PACKED[place + cut:], b""))
    except FormatError:
        return
    assert isinstance(artifact.kind, str) and artifact.portable  # edits inside a string are another sound header
