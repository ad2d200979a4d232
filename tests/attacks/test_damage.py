"""P1 to P4 and P6: files that were cut, changed or added to after they were written."""

from __future__ import annotations

import pytest
from forgery import MAGIC, forge, read_all, refused, small_artifact, small_pack

from stcc.formats import Artifact, FormatError, Vocabulary
from stcc.formats.container import Container
from stcc.formats.errors import ChecksumError, LayoutError, LimitError, MagicError, TruncatedError, VersionError

FILES = {"stc": small_artifact(), "stv": small_pack()}


@pytest.mark.parametrize("kind", FILES)
def test_the_files_are_sound_to_begin_with(kind: str) -> None:
    read_all(FILES[kind])


@pytest.mark.parametrize("kind", FILES)
def test_cut_anywhere(kind: str) -> None:
    for length in range(len(FILES[kind])):
        with pytest.raises((TruncatedError, MagicError) if length < 8 else TruncatedError):
            Container.parse(FILES[kind][:length])


@pytest.mark.parametrize("kind", FILES)
def test_any_bit_flipped(kind: str) -> None:
    data = bytearray(FILES[kind])
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            with pytest.raises(FormatError):
                Container.parse(bytes(data))
            data[place] ^= 1 << bit


@pytest.mark.parametrize("kind", FILES)
def test_any_byte_deleted_or_doubled(kind: str) -> None:
    data = FILES[kind]
    for place in range(len(data)):
        for changed in (data[:place] + data[place + 1:], data[:place] + data[place:place + 1] + data[place:]):
            with pytest.raises(FormatError):
                Container.parse(changed)


@pytest.mark.parametrize("tail", [b"\0", bytes(64), b"PK\3\4" + bytes(60), small_artifact()], ids=["zero", "block", "zip", "itself"])
def test_bytes_after_the_end(tail: bytes) -> None:
    refused(FILES["stc"] + tail, LayoutError)


def test_bytes_before_the_start() -> None:
    refused(b"\n" + FILES["stc"], MagicError)
    refused(b"GIF89a" + FILES["stc"], MagicError)


def test_other_files() -> None:
    for data in (b"PK\3\4" + bytes(100), b"{}", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(64), MAGIC.replace(b"\r\n", b"\n") + bytes(90)):
        refused(data, MagicError)
    refused(b"", TruncatedError)
    refused(MAGIC, TruncatedError)


def test_one_kind_in_place_of_the_other() -> None:
    with pytest.raises(MagicError, match="not an artifact"):
        Artifact.from_bytes(FILES["stv"])
    with pytest.raises(MagicError, match="not a vocabulary"):
        Vocabulary.from_bytes(FILES["stc"])


@pytest.mark.parametrize("version", [0, 2, 1 << 24, (1 << 32) - 1])
def test_other_versions(version: int) -> None:
    assert str(version) in str(refused(forge(b"\x80", b"", version=version), VersionError))


def test_a_header_length_past_the_end_or_past_the_bound() -> None:
    data = bytearray(FILES["stc"])
    data[12:16] = (len(data)).to_bytes(4, "little")
    refused(bytes(data), TruncatedError)
    data[12:16] = b"\xff\xff\xff\xff"
    refused(bytes(data), LimitError)


def test_a_header_of_another_file() -> None:
    other = bytearray(FILES["stc"])
    other[20:40] = FILES["stv"][20:40]
    refused(bytes(other), ChecksumError)
