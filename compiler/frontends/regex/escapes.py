"""Backslash escapes and bracket classes of both dialects.

In: a scanner just after the backslash, or just after ``[``. Out: one code point, or a set of characters. ECMA-262 is read as
with the ``u`` flag; what that flag forbids but Annex B allows (``\\-`` outside a class, a lone ``{``) is read as Annex B has it,
except that an escaped letter without a meaning is an error: it is always another dialect's ``\\A`` or ``\\h``, never a letter.
"""

from __future__ import annotations

import unicodedata

from stcc.compiler.frontends.regex.characters import ANY, CharacterSet, class_escape, complement, normalized, union
from stcc.compiler.frontends.regex.properties import property_set
from stcc.compiler.frontends.regex.scanner import Flags, Scanner
from stcc.compiler.frontends.regex.syntax import source_error, unsupported

_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_BACKSPACE, _BELL, _BACKSLASH = 8, 7, 0x5C
_OCTAL = "01234567"
_ANCHOR_HINTS = {"A": "write ^", "Z": "write $", "z": "write $", "h": "write [ \\t]", "a": "write \\x07", "e": "write \\x1b"}


def escaped_set(scanner: Scanner, flags: Flags) -> CharacterSet | None:
    """The set of a class escape (``\\d``, ``\\P{L}``, ...) after a backslash; ``None`` and no step if it is not one."""
    letter = scanner.peek()
    if letter and letter in "dDwWsS":
        scanner.position += 1
        return class_escape(letter, dialect=scanner.dialect, ascii_only=flags.ascii_only, ignore_case=flags.ignore_case)
    if letter and letter in "pP" and scanner.dialect == "ecma":
        start = scanner.position - 1
        scanner.position += 1
        if not scanner.take("{"):
            raise source_error(f"\\{letter} needs a property in braces", start, f"\\{letter}", f"write \\{letter}{{L}}")
        name = scanner.until("}", f"\\{letter}{{")
        found = scanner.cased(property_set(name, start), flags)
        return complement(found) if letter == "P" else found
    return None


def escaped_point(scanner: Scanner, *, in_class: bool) -> int:
    """The code point of a character escape, after its backslash."""
    start = scanner.position - 1
    letter = scanner.peek()
    if not letter:
        raise source_error("the pattern ends in a backslash", start, "\\", "write \\\\ for a backslash")
    scanner.position += 1
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "b" and in_class:
        return _BACKSPACE
    if letter.isdigit() and letter.isascii():
        return _numeric(scanner, letter, start, in_class)
    special = _python_point(scanner, letter, start) if scanner.dialect == "python" else _ecma_point(scanner, letter)
    if special is not None:
        return special
    if letter.isascii() and letter.isalpha():
        raise source_error("the escape has no meaning in this dialect", start, f"\\{letter}", _ANCHOR_HINTS.get(letter, f"write {letter}"))
    return ord(letter)


def _numeric(scanner: Scanner, first: str, start: int, in_class: bool) -> int:
    """``\\0``, octal escapes, and the refusal of backreferences."""
    octal = scanner.text[scanner.position - 1:scanner.position + 2]
    if scanner.dialect == "python":
        if first == "0" or in_class or (len(octal) == 3 and all(digit in _OCTAL for digit in octal)):
            return int(first + scanner.digits(_OCTAL, 2), 8)
    else:
        number = int(first + scanner.digits("0123456789", 9))
        if in_class or number == 0 or number > scanner.groups:
            scanner.position = start + 2
            if first in "89":
                return ord(first)
            return int(first + scanner.digits(_OCTAL, 2 if first in "0123" else 1), 8)
    raise unsupported("a backreference does not describe a regular language", start, f"\\{first}", "spell out what it may repeat")


def _python_point(scanner: Scanner, letter: str, start: int) -> int | None:
    if letter == "a":
        return _BELL
    if letter in "xuU":
        return scanner.hexadecimal({"x": 2, "u": 4, "U": 8}[letter])
    if letter == "N" and scanner.take("{"):
        name = scanner.until("}", "\\N{")
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            raise source_error(f"{name!r} is not a character name", start, "\\N", "write the character as \\uXXXX") from None
    return None


def _ecma_point(scanner: Scanner, letter: str) -> int | None:
    if letter == "x":
        value = scanner.hexadecimal(2)
        return ord("x") if value is None else value
    if letter == "u":
        return _ecma_unicode(scanner)
    if letter == "c":
        control = scanner.peek()
        if control.isascii() and control.isalpha():
            scanner.position += 1
            return ord(control) % 32
        scanner.position -= 1
        return _BACKSLASH
    return None


def _ecma_unicode(scanner: Scanner) -> int:
    """``\\u{...}``, ``\\uXXXX``, or a surrogate pair of the latter, which is one character."""
    start = scanner.position - 2
    if scanner.take("{"):
        digits = scanner.until("}", "\\u{")
        if not digits or not all(digit in "0123456789abcdefABCDEF" for digit in digits) or int(digits, 16) > ANY[0][1]:
            raise source_error("not a code point", start, "\\u{", "give 1 to 6 hex digits, at most 10FFFF")
        return int(digits, 16)
    high = scanner.hexadecimal(4)
    if high is None:
        return ord("u")
    if 0xD800 <= high < 0xDC00:
        after = scanner.position
        low = scanner.hexadecimal(4) if scanner.take("\\u") else None
        if low is not None and 0xDC00 <= low < 0xE000:
            return 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00
        scanner.position = after
    return high


def bracket_class(scanner: Scanner, flags: Flags) -> CharacterSet:
    """The set of a bracket class, after its ``[``; steps over the closing ``]``."""
    start = scanner.position - 1
    negated = scanner.take("^")
    ranges: list[tuple[int, int]] = []
    sets: list[CharacterSet] = []
    first = True
    while not (scanner.peek() == "]" and not (first and scanner.dialect == "python")):
        first = False
        low = _class_atom(scanner, flags, start)
        if scanner.peek() != "-" or scanner.peek(1) in ("", "]"):
            _add(low, ranges, sets)
            continue
        dash = scanner.position
        scanner.position += 1
        high = _class_atom(scanner, flags, start)
        if isinstance(low, int) and isinstance(high, int):
            if low > high:
                raise source_error("the range is backwards", dash, "-", "put the smaller character first")
            ranges.append((low, high))
        else:  # Annex B: a class escape bounds no range, so the hyphen stands for itself
            ranges.append((ord("-"), ord("-")))
            _add(low, ranges, sets)
            _add(high, ranges, sets)
    scanner.position += 1
    found = union(scanner.cased(normalized(ranges), flags), *sets)
    return complement(found) if negated else found


def _add(item: int | CharacterSet, ranges: list[tuple[int, int]], sets: list[CharacterSet]) -> None:
    if isinstance(item, int):
        ranges.append((item, item))
    else:
        sets.append(item)


def _class_atom(scanner: Scanner, flags: Flags, start: int) -> int | CharacterSet:
    character = scanner.peek()
    if not character:
        raise source_error("the class is not closed", start, "[", "add the missing ], or write \\[")
    scanner.position += 1
    if character != "\\":
        return ord(character)
    found = escaped_set(scanner, flags)
    return escaped_point(scanner, in_class=True) if found is None else found
