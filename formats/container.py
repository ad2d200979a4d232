"""The container: one file of named, typed arrays, as SPEC.md lays it down.

In go a few header fields and arrays (``pack``); out comes a byte string that is the same wherever it is made. In go bytes
(``Container.parse``); out comes a ``Container`` of which everything but the decompressed contents has been validated: magic, version,
header, layout, sizes, limits and the checksum of every stored byte. Arrays are inflated on first use (``Container.array``), read-only.

Cost: opening is one pass over the bytes (CRC-32) and a few microseconds a section. Reading takes no memory beyond a
few times ``memory_limit(size of the file)``.

>>> data = pack("stc", {"name": "demo"}, [SectionData("numbers", np.arange(5, dtype=np.uint8))])
>>> box = Container.parse(data)
>>> box.meta, box.array("numbers").tolist()
({'name': 'demo'}, [0, 1, 2, 3, 4])
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import msgpack
import numpy as np
import numpy.typing as npt

from stcc.formats.errors import (
    ChecksumError,
    CodecError,
    HeaderError,
    LayoutError,
    LimitError,
    MagicError,
    SectionError,
    ShapeError,
    TruncatedError,
    VersionError,
)

Array = npt.NDArray[Any]
Buffer = bytes | memoryview

MAGIC = b"\x89STCC\r\n\x1a"  # not text, and broken by any newline translation, as PNG's
VERSION = 1
PREFIX = struct.Struct("<8sIII")  # magic, version, header length, CRC-32 of (version, length, header)
ALIGNMENT = 64
ZEROS = bytes(ALIGNMENT)
MAX_HEADER = 1 << 18
MAX_DIMENSIONS = 2
MAX_NAME = 64
MAX_SIDE = 1 << 31
ZLIB_RATIO = 1032  # deflate cannot expand further
MEMORY_ALLOWANCE = 16 << 20
MEMORY_CEILING = 1 << 30
WORKING_SIZE = 8  # bytes in which a decoder works with a number
DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "i32": "<i4"}
NONE, ZLIB, SHUFFLED = 0, 1, 2  # SHUFFLED: zlib over the first bytes of all numbers, then their second bytes, and so on
CODECS = (NONE, ZLIB, SHUFFLED)
ITEM_SIZES = {name: np.dtype(code).itemsize for name, code in DTYPES.items()}
_DTYPE_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}
_FIELDS = ["content", "meta", "sections"]


def memory_limit(file_size: int) -> int:
    """Bytes that the numbers of a file of ``file_size`` bytes may take inflated, ``WORKING_SIZE`` each (promise P9)."""
    return min(MEMORY_CEILING, MEMORY_ALLOWANCE + ZLIB_RATIO * file_size)


@dataclass(frozen=True, eq=False)
class SectionData:
    """An array to be written.

    Attributes:
        name: at most 64 characters, unique in the file.
        array: one or two dimensions, of a dtype in ``DTYPES``.
        required: whether a reader that does not know the name must refuse the file.
        compress: try the codecs, and keep the first that takes the fewest alignment units.
    """

    name: str
    array: Array
    required: bool = True
    compress: bool = True


class Section(NamedTuple):
    """A section as the header describes it: ``stored`` bytes from ``offset``, which hold an array of ``dtype`` and ``shape``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    required: bool
    codec: int
    offset: int
    stored: int
    checksum: int

    @property
    def numbers(self) -> int:
        """How many numbers; exact at any shape, since Python's integers do not overflow."""
        return prod(self.shape)

    @property
    def raw_size(self) -> int:
        """Bytes of the array."""
        return self.numbers * ITEM_SIZES[self.dtype]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _is_whole(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit


def pack(content: str, meta: Mapping[str, Any], sections: Sequence[SectionData]) -> bytes:
    """The file that holds ``sections`` in the given order.

    Args:
        content: what the file is, ``stc`` or ``stv``.
        meta: plain data for the header; key order is kept, so give it in a fixed one.
        sections: what to write.

    Raises:
        FormatError: the result would break a promise of the format (a header past ``MAX_HEADER``, a size past the limit).
    """
    bodies, entries, offset = [], [], 0
    for section in sections:
        array = np.ascontiguousarray(section.array)
        codec, stored = _encoded(array, section.compress)
        entries.append([section.name, _DTYPE_NAMES[array.dtype], list(array.shape), section.required, codec, offset, len(stored),
                        zlib.crc32(stored)])
        bodies.append(stored)
        offset += _aligned(len(stored))
    try:
        header: bytes = msgpack.packb({"content": content, "meta": dict(meta), "sections": entries})
    except (ValueError, TypeError, OverflowError) as error:
        raise HeaderError("<new>", "header", f"it cannot be written: {error}", "give plain data and valid text") from error
    if len(header) > MAX_HEADER:
        raise HeaderError("<new>", "header", f"{len(header):,} bytes are more than {MAX_HEADER:,}", "bind fewer vocabularies into one file")
    checksum = zlib.crc32(header, zlib.crc32(struct.pack("<II", VERSION, len(header))))
    head: bytes = PREFIX.pack(MAGIC, VERSION, len(header), checksum) + header
    data = head.ljust(_aligned(len(head)), b"\0") + b"".join(body.ljust(_aligned(len(body)), b"\0") for body in bodies)
    Container.parse(data, "<new>")
    return data


def _encoded(array: Array, compress: bool) -> tuple[int, bytes]:
    """The codec that stores ``array`` in the fewest alignment units, and what it stores."""
    raw = array.tobytes()
    choices = [(NONE, raw)]
    if compress:
        choices.append((ZLIB, zlib.compress(raw, 9)))
        if array.itemsize > 1:
            choices.append((SHUFFLED, zlib.compress(array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T.tobytes(), 9)))
    return min(choices, key=lambda choice: _aligned(len(choice[1])))


@dataclass(frozen=True, eq=False)
class Container:
    """A validated file.

    Attributes:
        file: its path or name, for messages.
        content: ``stc`` or ``stv``.
        meta: the header's plain data.
        sections: by name, in file order.
        size: bytes of the whole file.
    """

    file: str
    content: str
    meta: Mapping[str, Any]
    sections: Mapping[str, Section]
    size: int
    _body: memoryview = field(repr=False)

    @staticmethod
    def parse(data: Buffer | mmap.mmap, file: str = "<bytes>") -> Container:
        """Validate ``data`` (not copied; keep it unchanged) and index its sections.

        Raises:
            FormatError: a promise P1 to P9 is broken.
        """
        view = memoryview(data).cast("B")
        header, start = _read_header(view, file)
        sections = {}
        for number, entry in enumerate(header["sections"]):
            section = _section(entry, number, file)
            if section.name in sections:
                raise HeaderError(file, f"section {section.name}", "the name is used twice")
            sections[section.name] = section
        validate(view, start, list(sections.values()), file)
        return Container(file, header["content"], header["meta"], sections, len(view), view[start:])

    def array(self, name: str, dtype: str = "", dimensions: int = 1) -> Array:
        """The array of section ``name``, read-only; a view of the file where it is stored plain.

        Args:
            name: the section.
            dtype: the type that the name calls for; empty: any unsigned one.
            dimensions: the number of dimensions that the name calls for.

        Raises:
            SectionError: there is no such section.
            ShapeError: it has another type or number of dimensions.
            CodecError: it does not decompress to its size.
        """
        section = self.described(name, dtype, dimensions)
        flat: Array = np.frombuffer(self.raw(name), DTYPES[section.dtype])
        if section.codec == SHUFFLED:
            flat = _unshuffled(flat)
        return flat.reshape(section.shape)

    def described(self, name: str, dtype: str = "", dimensions: int = 1) -> Section:
        """What the header says of section ``name``; arguments as for ``array``.

        Raises:
            SectionError: there is no such section.
            ShapeError: it has another type or number of dimensions.
        """
        section = self.sections.get(name)
        if section is None:
            raise SectionError(self.file, f"section {name}", "it is missing")
        fits = section.dtype == dtype if dtype else section.dtype.startswith("u")
        if not fits or len(section.shape) != dimensions:
            raise ShapeError(self.file, f"section {name}", f"it should not hold {section.dtype} in {len(section.shape)} dimensions")
        return section

    def raw(self, name: str) -> Buffer:
        """The decompressed bytes of section ``name``, exactly its declared size; shuffled still, if it is.

        Raises:
            CodecError: it does not decompress to its size.
        """
        section = self.sections[name]
        stored = self._body[section.offset:section.offset + section.stored]
        if section.codec == NONE:
            return stored
        inflater = zlib.decompressobj()
        try:
            raw = inflater.decompress(stored, section.raw_size + 1)  # one more, so that the stream's end is read too
        except zlib.error as error:
            raise CodecError(self.file, f"section {name}", f"zlib: {error}") from error
        if len(raw) != section.raw_size or not inflater.eof or inflater.unused_data:
            raise CodecError(self.file, f"section {name}", f"it does not decompress to exactly {section.raw_size:,} bytes")
        return raw

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raise SectionError for a required section that is not in ``known``; optional ones are skipped (promise P10)."""
        for name in self.sections.keys() - set(known):
            if self.sections[name].required:
                raise SectionError(self.file, f"section {name}", "it is required, and this reader does not know it")


def _unshuffled(flat: Array) -> Array:
    """The numbers whose first bytes, second bytes, ... ``flat`` holds one after the other; read-only.

    Whole numbers are shifted and joined: a transposition moves single bytes, ten times slower.
    """
    planes = flat.view(np.uint8).reshape(flat.itemsize, -1)
    numbers: Array = planes[0].astype(flat.dtype)
    for place in range(1, flat.itemsize):
        numbers |= planes[place].astype(flat.dtype) << 8 * place
    numbers.flags.writeable = False
    return numbers


def _read_header(view: memoryview, file: str) -> tuple[dict[str, Any], int]:
    """The header's map, and where the first section starts."""
    if bytes(view[:len(MAGIC)]) != MAGIC[:len(view)]:
        raise MagicError(file, "byte 0", "this is not an stcc file")
    if len(view) < PREFIX.size:
        raise TruncatedError(file, f"byte {len(view)}", "the file ends inside its first fields")
    _, version, length, checksum = PREFIX.unpack(view[:PREFIX.size])
    if version != VERSION:
        raise VersionError(file, "byte 8", f"format version {version}; this reader knows {VERSION}")
    if length > MAX_HEADER:
        raise LimitError(file, "byte 12", f"a header of {length:,} bytes; at most {MAX_HEADER:,} are allowed")
    start = _aligned(PREFIX.size + length)
    if start > len(view):
        raise TruncatedError(file, f"byte {len(view)}", "the file ends inside its header")
    packed = view[PREFIX.size:PREFIX.size + length]
    if zlib.crc32(packed, zlib.crc32(view[8:16])) != checksum:
        raise ChecksumError(file, "header", "the checksum does not match")
    if bytes(view[PREFIX.size + length:start]).strip(b"\0"):
        raise LayoutError(file, f"byte {PREFIX.size + length}", "the padding after the header is not zero")
    return _unpack_header(bytes(packed), file), start


def _unpack_header(packed: bytes, file: str) -> dict[str, Any]:
    """The header; packing it again must give the same bytes, which rules out repeated keys and second spellings of a value."""
    try:
        header = msgpack.unpackb(packed, raw=False, strict_map_key=True)
        canonical = msgpack.packb(header) == packed
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise HeaderError(file, "header", f"not msgpack: {error or type(error).__name__}") from error
    if not canonical or not isinstance(header, dict) or list(header) != _FIELDS:
        raise HeaderError(file, "header", f"not a canonical map with exactly the keys {', '.join(_FIELDS)}")
    if type(header["content"]) is not str or not isinstance(header["meta"], dict) or not isinstance(header["sections"], list):
        raise HeaderError(file, "header", "content is a string, meta a map and sections a list")
    return header


def _section(entry: object, number: int, file: str) -> Section:
    """Section ``number``, from its header entry ``[name, dtype, shape, required, codec, offset, stored, checksum]``."""
    place = f"section {number}"
    if not isinstance(entry, list) or len(entry) != 8:
        raise HeaderError(file, place, "a section is a list of eight fields")
    name, dtype, shape, required, codec, offset, stored, checksum = entry
    if type(name) is not str or not 0 < len(name) <= MAX_NAME or type(required) is not bool:
        raise HeaderError(file, place, "the name is a short string, and required is a Boolean")
    place = f"section {name}"
    if type(dtype) is not str or dtype not in DTYPES:
        raise ShapeError(file, place, f"dtype {dtype!r:.40} is not one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_DIMENSIONS or not all(_is_whole(side, MAX_SIDE) for side in shape):
        raise ShapeError(file, place, "the shape is one or two whole numbers below 2**31")
    if codec not in CODECS or type(codec) is not int:
        raise CodecError(file, place, f"codec {codec!r:.40} is not known")
    if not (_is_whole(offset, 1 << 63) and _is_whole(stored, 1 << 63) and _is_whole(checksum, 1 << 32)):
        raise HeaderError(file, place, "offset, stored size and checksum are whole numbers")
    return Section(name, dtype, tuple(shape), required, codec, offset, stored, checksum)


def validate(view: memoryview, start: int, sections: Sequence[Section], file: str) -> None:
    """Walk the sections in order: each starts where the last one ended, fits its shape, and matches its checksum (P3, P4, P6 to P9)."""
    end, total, limit = 0, 0, memory_limit(len(view))
    body = view[start:]
    for section in sections:
        place = f"section {section.name}"
        if section.offset != end:
            raise LayoutError(file, place, f"it starts at {section.offset}, not at {end} where the one before it ends")
        if section.codec == NONE and section.stored != section.raw_size:
            raise ShapeError(file, place, f"{section.stored:,} bytes are stored and its shape takes {section.raw_size:,}")
        total += section.numbers * WORKING_SIZE
        if total > limit:
            raise LimitError(file, place, f"its shape takes the file past {limit // WORKING_SIZE:,} numbers")
        stop, end = end + section.stored, end + _aligned(section.stored)
        if end > len(body):
            raise TruncatedError(file, place, f"the file ends at byte {len(view):,}, inside this section")
        if zlib.crc32(body[section.offset:stop]) != section.checksum:
            raise ChecksumError(file, place, "the checksum does not match")
        if body[stop:end] != ZEROS[:end - stop]:
            raise LayoutError(file, place, "the padding after it is not zero")
    if end != len(body):
        raise LayoutError(file, f"byte {start + end}", f"{len(body) - end:,} bytes follow the last section")


def open_mapped(path: str | os.PathLike[str]) -> Container:
    """Map ``path`` into memory and validate it; plain sections stay views of the mapping.

    Raises:
        FormatError: the file breaks a promise.
        OSError: it cannot be opened.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise TruncatedError(os.fspath(path), "byte 0", "the file is empty")
        return Container.parse(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), os.fspath(path))


def open_read(path: str | os.PathLike[str]) -> Container:
    """Read ``path`` whole and validate it; errors as for ``open_mapped``."""
    with open(path, "rb", buffering=0) as file:
        return Container.parse(file.read(), os.fspath(path))


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` under ``path`` in one step: a reader, or a crash, sees the old file or the whole new one.

    A link's target is replaced, not the link; what is not a plain file (a pipe, ``/dev/null``) is written to.

    Raises:
        OSError: ``path``, which it names, cannot be written; nothing is left behind.
    """
    target = os.path.realpath(os.fspath(path))
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as file:
                file.write(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def _replace(target: str, data: bytes) -> None:
    folder, name = os.path.split(target)
    passing = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(passing, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(passing, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(passing)
        raise
