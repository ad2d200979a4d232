"""The cursor over a pattern's text, and the flags in force, shared by the modules of the parser."""

from __future__ import annotations

from dataclasses import dataclass

from stcc.compiler.frontends.regex.characters import CharacterSet, fold
from stcc.compiler.frontends.regex.syntax import source_error

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True)
class Flags:
    """Inline flags, named as in Python's ``re``."""

    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    verbose: bool = False
    ascii_only: bool = False


class Scanner:
    """A position in ``text``; ``groups`` counts its capturing groups and ``named`` says whether one has a name."""

    def __init__(self, text: str, dialect: str) -> None:
        self.text, self.dialect, self.position = text, dialect, 0
        self.groups, self.named = _capturing_groups(text)

    def peek(self, ahead: int = 0) -> str:
        """The character ``ahead`` places on, empty past the end."""
        place = self.position + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self, expected: str) -> bool:
        """Step over ``expected`` if it comes next."""
        if self.text.startswith(expected, self.position):
            self.position += len(expected)
            return True
        return False

    def until(self, closing: str, keyword: str) -> str:
        """The text up to ``closing``, which is stepped over; SourceError if it never comes."""
        end = self.text.find(closing, self.position)
        if end < 0:
            raise source_error(f"{keyword} is not closed", self.position, keyword, f"add the missing {closing}")
        found, self.position = self.text[self.position:end], end + len(closing)
        return found

    def digits(self, allowed: frozenset[str] | str, most: int) -> str:
        """The longest run of at most ``most`` characters out of ``allowed``."""
        end = self.position
        while end < len(self.text) and end - self.position < most and self.text[end] in allowed:
            end += 1
        found, self.position = self.text[self.position:end], end
        return found

    def hexadecimal(self, length: int) -> int | None:
        """The value of exactly ``length`` hex digits, or ``None`` and no step."""
        found = self.text[self.position:self.position + length]
        if len(found) < length or not HEX_DIGITS.issuperset(found):
            return None
        self.position += length
        return int(found, 16)

    def cased(self, ranges: CharacterSet, flags: Flags) -> CharacterSet:
        """The set as matched under ``flags``: with its case variants where case is ignored."""
        return fold(ranges, dialect=self.dialect, ascii_only=flags.ascii_only) if flags.ignore_case else ranges


def _capturing_groups(text: str) -> tuple[int, bool]:
    """Number of capturing groups, and whether any is named; escapes and bracket classes are skipped."""
    count, named, inside, position = 0, False, False, 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif inside:
            inside = character != "]"
        elif character == "[":
            inside = True
        elif character == "(":
            name = text.startswith(("(?<", "(?P<"), position) and not text.startswith(("(?<=", "(?<!"), position)
            named |= name
            count += name or not text.startswith("(?", position)
        position += 1
    return count, named
