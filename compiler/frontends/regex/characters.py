"""Sets of code points: the algebra, the class escapes of both dialects, and letter case.

A set is a tuple of inclusive ranges, rising, disjoint and not adjacent. Surrogates may occur in a set (a class such as ``[^a]``
spans them); they drop out when the automaton is spelled in UTF-8, which has none. Large sets come from the interpreter's
Unicode database once per process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

CharacterSet: TypeAlias = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
ANY: CharacterSet = ((0, LAST),)

# Characters are assigned, or given a property that matters here, only in these stretches; the rest is unassigned or private.
_SCANNED = ((0, 0x3FFFF), (0xE0000, 0xE0FFF))

ASCII_DIGITS: CharacterSet = ((48, 57),)
ASCII_WORD: CharacterSet = ((48, 57), (65, 90), (95, 95), (97, 122))
ASCII_SPACE: CharacterSet = ((9, 13), (32, 32))
PYTHON_NEWLINE: CharacterSet = ((10, 10),)
ECMA_NEWLINES: CharacterSet = ((10, 10), (13, 13), (0x2028, 0x2029))
# WhiteSpace and LineTerminator of ECMA-262: the ASCII ones, every Space_Separator, and U+FEFF.
ECMA_SPACE: CharacterSet = (
    (9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F),
    (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)


def normalized(ranges: Iterable[tuple[int, int]]) -> CharacterSet:
    """Any ranges as a set."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def union(*sets: CharacterSet) -> CharacterSet:
    """Characters in any of the sets."""
    return sets[0] if len(sets) == 1 else normalized(pair for ranges in sets for pair in ranges)


def complement(ranges: CharacterSet) -> CharacterSet:
    """Characters not in the set."""
    gaps, position = [], 0
    for low, high in ranges:
        if low > position:
            gaps.append((position, low - 1))
        position = high + 1
    if position <= LAST:
        gaps.append((position, LAST))
    return tuple(gaps)


def intersection(left: CharacterSet, right: CharacterSet) -> CharacterSet:
    """Characters in both sets."""
    return complement(union(complement(left), complement(right)))


def from_code_points(points: Iterable[int]) -> CharacterSet:
    """The set of the given code points, which must rise."""
    runs: list[list[int]] = []
    for point in points:
        if runs and point == runs[-1][1] + 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return tuple((low, high) for low, high in runs)


@lru_cache(maxsize=1)
def scanned() -> list[str]:
    """Every character that the Unicode database may say something about, rising."""
    return [chr(point) for low, high in _SCANNED for point in range(low, high + 1)]


@lru_cache(maxsize=1)
def unicode_word() -> CharacterSet:
    """Python's ``\\w``: ``str.isalnum`` or the underscore."""
    return from_code_points(ord(c) for c in scanned() if c.isalnum() or c == "_")


@lru_cache(maxsize=1)
def unicode_digits() -> CharacterSet:
    """Python's ``\\d``: ``str.isdecimal``."""
    return from_code_points(ord(c) for c in scanned() if c.isdecimal())


@lru_cache(maxsize=1)
def unicode_space() -> CharacterSet:
    """Python's ``\\s``: ``str.isspace``."""
    return from_code_points(ord(c) for c in scanned() if c.isspace())


def class_escape(letter: str, *, dialect: str, ascii_only: bool, ignore_case: bool) -> CharacterSet:
    """The set of ``\\d``, ``\\w``, ``\\s`` or, for an upper-case ``letter``, the complement."""
    python = dialect == "python" and not ascii_only
    kind = letter.lower()
    if kind == "d":
        found = unicode_digits() if python else ASCII_DIGITS
    elif kind == "w":
        found = unicode_word() if python else ASCII_WORD
        if dialect == "ecma" and ignore_case:
            found = fold(found, dialect="ecma", ascii_only=False)
    elif python:
        found = unicode_space()
    else:
        found = ECMA_SPACE if dialect == "ecma" else ASCII_SPACE
    return found if letter.islower() else complement(found)


def _python_key(character: str) -> str:
    """Equal for characters that ``re.IGNORECASE`` identifies: ``re`` compares lower case, and joins letters that share an upper case."""
    return character.lower()[0].upper()


@lru_cache(maxsize=2)
def _case_orbits(dialect: str) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
    """Characters that have case variants, rising, and the variants of each."""
    # ECMA-262 compares simple case foldings under ``iu``; equal full foldings give the same classes of single characters.
    key_of = _python_key if dialect == "python" else str.casefold
    groups: dict[str, list[int]] = {}
    for character in scanned():
        if character.lower() != character or character.upper() != character:
            groups.setdefault(key_of(character), []).append(ord(character))
    variants = {point: tuple(group) for group in groups.values() if len(group) > 1 for point in group}
    return tuple(sorted(variants)), variants


def fold(ranges: CharacterSet, *, dialect: str, ascii_only: bool) -> CharacterSet:
    """The set together with every case variant of its members, as the dialect's case-insensitive matching sees them."""
    if ascii_only:
        return union(ranges, *(((max(low, first) + shift, min(high, first + 25) + shift),) for low, high in ranges
                               for first, shift in ((65, 32), (97, -32)) if max(low, first) <= min(high, first + 25)))
    cased, variants = _case_orbits(dialect)
    added: list[tuple[int, int]] = []
    for low, high in ranges:
        for position in range(bisect_left(cased, low), bisect_left(cased, high + 1)):
            added += [(point, point) for point in variants[cased[position]]]
    return normalized([*ranges, *added])
