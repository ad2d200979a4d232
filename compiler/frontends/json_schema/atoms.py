"""Atoms: the indivisible obligations of one JSON type, and ``Sat``, the obligation of a whole value.

Formulas at a value position are over ``Sat``; once the value's type is known (one byte tells), each ``Sat`` expands
to a formula over that type's atoms. Container atoms have derivatives (``objects.py``, ``arrays.py``): read one
member, and what remains is a formula again. Fields called ``*_formula`` are formula numbers over ``Sat``.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

TYPES = ("null", "boolean", "number", "string", "array", "object")


@dataclass(frozen=True)
class Sat:
    """The value satisfies schema ``schema`` (an index into the document's schemas)."""

    schema: int


@dataclass(frozen=True)
class BooleanIs:
    """The Boolean is ``value``."""

    value: bool


@dataclass(frozen=True)
class StringIn:
    """The string is one of ``values``."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class StringLength:
    """The string has between ``low`` and ``high`` code points (``high`` None: any)."""

    low: int
    high: int | None


@dataclass(frozen=True)
class StringPattern:
    """The string contains a match of an ECMA-262 pattern."""

    pattern: str


@dataclass(frozen=True)
class StringFormat:
    """The string has a known format."""

    name: str


@dataclass(frozen=True)
class StringContent:
    """The string is well-formed text in ``encoding`` ("": holds its content as it is); with ``json``, its content is a JSON text."""

    encoding: str
    json: bool


@dataclass(frozen=True)
class NumberIntegral:
    """The number is an integer; ``spelled`` (draft 4): written without a fraction."""

    spelled: bool


@dataclass(frozen=True)
class NumberAtLeast:
    """The number is at least, or above, ``bound``."""

    bound: Decimal
    exclusive: bool


@dataclass(frozen=True)
class NumberAtMost:
    """The number is at most, or below, ``bound``."""

    bound: Decimal
    exclusive: bool


@dataclass(frozen=True)
class NumberMultiple:
    """The number is a multiple of ``factor``."""

    factor: Decimal


@dataclass(frozen=True)
class NumberEquals:
    """The number equals ``value``."""

    value: Decimal


@dataclass(frozen=True)
class NumberIn:
    """The number equals one of ``values``."""

    values: tuple[Decimal, ...]


@dataclass(frozen=True)
class CountAtLeast:
    """The container has at least ``count`` more items or members."""

    count: int


@dataclass(frozen=True)
class Items:
    """Every further item satisfies its formula: the next ones ``prefix``, all after them ``rest``."""

    prefix: tuple[int, ...]
    rest: int


@dataclass(frozen=True)
class Contains:
    """At least ``count`` further items satisfy ``formula``."""

    formula: int
    count: int


@dataclass(frozen=True)
class Unique:
    """No two items are equal, given that all are among ``candidates`` (formulas "equals this constant"); those in
    ``seen`` occurred already.
    """

    candidates: tuple[int, ...]
    seen: frozenset[int]


@dataclass(frozen=True)
class Distinct:
    """No two items are equal, which whoever decodes sees to (``distinct.py``)."""


@dataclass(frozen=True)
class Has:
    """A further member is called ``key``."""

    key: str


@dataclass(frozen=True)
class Names:
    """Every further member's name satisfies ``formula`` as a string."""

    formula: int


@dataclass(frozen=True)
class Members:
    """Every further member's value satisfies what its name calls for.

    ``properties`` and ``patterns`` pair a name or an ECMA-262 pattern with a formula; a name that neither covers takes ``extra``.
    """

    properties: tuple[tuple[str, int], ...]
    patterns: tuple[tuple[str, int], ...]
    extra: int
