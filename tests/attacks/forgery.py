"""Files put together by hand, with every checksum right, so that an attack reaches the check it is aimed at."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np
import pytest

from stcc.formats import Artifact, FormatError, Vocabulary
from stcc.formats.container import Container, memory_limit
from stcc.formats.machine import Machine

SECONDS = 3.0  # the slowest takes some 0.3 s, most well under a millisecond
MAGIC = b"\x89STCC\r\n\x1a"
META = {"bindings": [], "compiler": "", "kind": "regex", "name": "", "options": {}, "source_sha256": "", "start": 0}
Entry = list[Any]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def forge(header: bytes, body: bytes, *, version: int = 1, magic: bytes = MAGIC) -> bytes:
    fields = struct.pack("<II", version, len(header))
    return padded(magic + fields + struct.pack("<I", zlib.crc32(fields + header)) + header) + body


def forge_sections(entries: Sequence[Entry], body: bytes, meta: dict[str, Any] | None = None, content: str = "stc") -> bytes:
    return forge(msgpack.packb({"content": content, "meta": META if meta is None else meta, "sections": list(entries)}), body)


def laid_out(arrays: dict[str, Any], *, meta: dict[str, Any] | None = None) -> bytes:
    """An artifact of ``name -> array`` or ``name -> (dtype, shape, zlib stream)``, laid out as it should be."""
    entries: list[Entry] = []
    body = b""
    for name, value in arrays.items():
        if isinstance(value, tuple):
            (dtype, shape, stored), codec = value, 1
        else:
            dtype, shape, stored, codec = f"u{8 * value.itemsize}", list(value.shape), value.tobytes(), 0
        entries.append([name, dtype, shape, True, codec, len(body), len(stored), zlib.crc32(stored)])
        body += padded(stored)
    return forge_sections(entries, body, meta)


def small_artifact() -> bytes:
    """A sound file of well under 2 KB, with plain and compressed sections."""
    none = np.zeros(0, np.int32)
    table = np.full((9, 3), -1, np.int32)
    table[:8, 0] = np.arange(1, 9)
    table[3, 1] = 3
    last = np.arange(9) == 8
    machine = Machine((np.arange(256) % 3).astype(np.uint8), table, np.where(last, 0, -1).astype(np.int16), last, none,
                      np.zeros(1, np.int32), none, np.zeros((0, 1), np.int32), 0)
    warning = {"pointer": "#", "keyword": "k", "message": "m"}
    return Artifact.create("regex", machine, {"name": "small", "warnings": [warning]}).to_bytes()


def sections_of(data: bytes) -> dict[str, Any]:
    """The arrays of a sound artifact, by name."""
    box = Container.parse(data)
    return {name: box.array(name, section.dtype, len(section.shape)) for name, section in box.sections.items() if name != "notes"}


def small_pack() -> bytes:
    return Vocabulary.from_tokens([b"a", b"ab", b"", b"c"], [2], tokenizer_json=b"{}").to_bytes()


def read_all(data: bytes) -> None:
    """Open ``data`` as what it says it is and use every part of it."""
    if b"stv" in data[:64]:
        _ = Vocabulary.from_bytes(data).tokenizer_json
        return
    artifact = Artifact.from_bytes(data)
    _ = artifact.machine.table
    for fingerprint in artifact.fingerprints:
        binding = artifact.binding(fingerprint)
        for name in ("run_starts", "row_values", "plan_tokens", "need_leave"):
            getattr(binding, name)


def refused(data: bytes, error: type[FormatError] = FormatError, *, read: Callable[[bytes], None] = read_all) -> FormatError:
    """Read ``data``; it must be refused with ``error``, soon, and for no more memory than the format states."""
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(error) as caught:
            read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < SECONDS
    assert peak < 5 * memory_limit(len(data))
    assert caught.value.place and caught.value.hint and str(caught.value).startswith("<bytes>: ")
    return caught.value
