"""Reading a family of sections, such as ``machine.*``: by short name, with what went wrong said of the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stcc.formats.coding import Array
from stcc.formats.container import Container, memory_limit
from stcc.formats.errors import ContentError, FormatError, LimitError

PLAIN_PATTERN_STATES = 1 << 14
"""From here on the patterns of rows are stored plain: n states then take n bytes of file, hence 1,032 n bytes of memory allowed, which is
more than the 4 bytes x 256 classes that their table can take. Below, any table fits the allowance of 16 MiB."""


@dataclass(frozen=True)
class SectionReader:
    """The sections of ``box`` whose names start with ``prefix``."""

    box: Container
    prefix: str

    @property
    def file(self) -> str:
        """The file's name, for messages."""
        return self.box.file

    def take(self, name: str, *, dtype: str = "", dimensions: int = 1, optional: bool = False) -> Array:
        """The array of a section, as ``Container.array``; an empty one if an ``optional`` section is not there."""
        full = self.prefix + name
        if optional and full not in self.box.sections:
            return np.zeros(0, np.uint8)
        return self.box.array(full, dtype, dimensions)

    def shape(self, name: str, dimensions: int = 1) -> tuple[int, ...]:
        """The shape that the header states for a section; the errors of ``take`` but those of its contents."""
        return self.box.described(self.prefix + name, "", dimensions).shape

    def reserve(self, size: int, name: str) -> None:
        """Raise LimitError if decoding section ``name`` into ``size`` bytes is more than the file may cost (promise P9)."""
        limit = memory_limit(self.box.size)
        if size > limit:
            raise LimitError(self.file, f"section {self.prefix}{name}", f"it would decode to {size:,} bytes; at most {limit:,} are allowed")

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Turn what a decoder finds wrong (a ValueError) into a ContentError of this family."""
        try:
            yield
        except FormatError:
            raise
        except ValueError as error:
            raise ContentError(self.file, self.prefix.rstrip("."), str(error)) from error
