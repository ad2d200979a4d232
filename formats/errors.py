"""What can be wrong with a file: one error class for each promise of SPEC.md that it may break.

Every error names the file, the place in it (a byte offset, a section or a header field), what is wrong and what to do next.

>>> raise TruncatedError("a.stc", "byte 20", "the header ends past the end of the file")     # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
stcc.formats.errors.TruncatedError: a.stc: byte 20: the header ends past the end of the file (copy or compile the file again)
"""

from __future__ import annotations

import errno
import os

_WAYS_OUT = {
    errno.ENOENT: "check the path; folders have to be there",
    errno.ENOTDIR: "a file stands where a folder is needed: give another path",
    errno.EEXIST: "a file stands where a folder is needed: give another path",
    errno.EISDIR: "give the path of a file",
    errno.EACCES: "give this user the permission, or give another path",
    errno.EPERM: "give this user the permission, or give another path",
    errno.EROFS: "give a path on a file system that can be written",
    errno.ENOSPC: "make room, or give a path elsewhere",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "a link leads back to itself: give the file",
}


def system_error(error: OSError) -> tuple[str, str]:
    """What the system says of a file: ``place: cause``, and a way out (empty where none is known)."""
    place = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}", _WAYS_OUT.get(error.errno or 0, "")


class FormatError(ValueError):
    """A file that is not what the format promises.

    Attributes:
        file: path or name of the file; ``<bytes>`` when it came from memory.
        place: where in it.
        message: what is wrong, one sentence.
        hint: what to do next, one sentence.
    """

    default_hint = "the file is damaged or was not written by stcc; compile it again"

    def __init__(self, file: str, place: str, message: str, hint: str = "") -> None:
        self.file, self.place, self.message, self.hint = file, place, message, hint or self.default_hint
        super().__init__(f"{file}: {place}: {message} ({self.hint})")

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, ...]]:
        return type(self), (self.file, self.place, self.message, self.hint)

    def to_dict(self) -> dict[str, str]:
        """The error as plain data, for ``--json``."""
        return {"error": type(self).__name__, "file": self.file, "place": self.place, "message": self.message, "hint": self.hint}


class MagicError(FormatError):
    """P1: the file does not begin with the magic, or holds the other kind of content."""

    default_hint = "give a file written by stcc: .stc for an artifact, .stv for a vocabulary pack"


class VersionError(FormatError):
    """P2: the format version is not one that this reader knows."""

    default_hint = "compile the source again with this version of stcc, or install the version that wrote the file"


class TruncatedError(FormatError):
    """P3: the file ends before what it announces."""

    default_hint = "copy or compile the file again"


class ChecksumError(FormatError):
    """P4: stored bytes do not match their checksum."""

    default_hint = "the file was damaged after it was written; copy or compile it again"


class HeaderError(FormatError):
    """P5: the header is not the canonical, bounded msgpack map that the format asks for."""


class LayoutError(FormatError):
    """P6: sections overlap, leave holes, are not aligned, or bytes follow the last one."""


class ShapeError(FormatError):
    """P7: a section's type, shape and size do not fit together, or are not what its name calls for."""


class CodecError(FormatError):
    """P8: a section does not decompress to exactly its declared size."""


class LimitError(FormatError):
    """P9: reading the file would take more memory than the format allows for its size."""

    default_hint = "the file is hostile or far too large; compile with a smaller max_states"


class SectionError(FormatError):
    """P10: a required section is missing, or one that must be understood is not known."""

    default_hint = "the file needs a newer stcc, or was put together wrongly; compile it again"


class ContentError(FormatError):
    """P11: an index, an offset or a count inside a section is out of range."""


class VocabularyMismatch(FormatError):  # noqa: N818 - the name is part of the public interface
    """A vocabulary that is not the one a binding was made for.

    Attributes:
        expected: pairs (fingerprint, name) that the artifact is bound to.
        found: pair (fingerprint, name) of the vocabulary at hand.
    """

    def __init__(self, file: str, expected: tuple[tuple[str, str], ...], found: tuple[str, str]) -> None:
        self.expected, self.found = expected, found
        bound = ", ".join(_named(*pair) for pair in expected) or "no vocabulary"
        super().__init__(file, "vocabulary", f"bound to {bound}, not to {_named(*found)}",
                         "bind the artifact to this vocabulary with `stcc bind`, or load the vocabulary that it is bound to")

    def __reduce__(self) -> tuple[type[FormatError], tuple[object, ...]]:  # type: ignore[override]
        return type(self), (self.file, self.expected, self.found)


def _named(fingerprint: str, name: str) -> str:
    return f"{name} [{fingerprint}]" if name else f"[{fingerprint}]"
