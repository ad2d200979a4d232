"""The GBNF front end: llama.cpp's dialect of BNF.

In: text. Out: a ``ContextFree`` grammar whose start is ``root``. Read by recursive descent; characters are code points, and ``.`` is any.
Refused: token references (``<think>``, ``<[1000]>``), which name tokens of one vocabulary, and a rule that is defined twice.

>>> grammar = parse_gbnf('root ::= "a" root | [^a-z]+ # a comment')
>>> list(grammar.rules), grammar.start
(['root'], 'root')
"""

from __future__ import annotations

import re
from bisect import bisect_right

from stcc.compiler.errors import BudgetError, SourceError, UnsupportedError
from stcc.compiler.frontends.context_free.syntax import (
    ContextFree,
    Expression,
    Reference,
    Terminal,
    alternatives,
    literal,
    repeat,
    series,
)
from stcc.compiler.frontends.regex.characters import ANY, CharacterSet, complement, normalized
from stcc.compiler.frontends.regex.syntax import Characters

MAX_LENGTH = 1 << 20
"""Longest grammar read, in characters."""
MAX_COUNT = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)+")
_BLANK_LINES = re.compile(r"(?:\s|#[^\r\n]*)+")
_COUNTS = re.compile(r"\{\s*([0-9]{1,9})\s*(?:(,)\s*([0-9]{1,9})?\s*)?\}")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "'": "'", "-": "-", "^": "^"}
_HEX = {"x": 2, "u": 4, "U": 8}
_LAST = 0x10FFFF


def parse_gbnf(text: str, max_depth: int = 128) -> ContextFree:
    """The grammar of ``text``.

    Raises:
        SourceError: it is not GBNF; with line and column.
        UnsupportedError: it refers to tokens.
        BudgetError: it is too long or nested deeper than ``max_depth``.
    """
    if len(text) > MAX_LENGTH:
        raise BudgetError(f"the grammar is longer than {MAX_LENGTH:,} characters", hint="split it")
    return _Parser(text, max_depth).grammar()


class _Parser:
    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.max_depth, self.position, self.open = text, max_depth, 0, 0
        self.lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def grammar(self) -> ContextFree:
        rules: dict[str, Expression] = {}
        places: dict[str, str] = {}
        self.skip(lines=True)
        while self.position < len(self.text):
            place, name = self.place(), self.name("a rule begins with its name")
            if name in rules:
                raise self.error(f"the rule {name} is defined twice", "rename one, or make it one rule with |", place)
            self.skip(lines=False)
            self.expect("::=", "write name ::= and what it derives")
            self.skip(lines=True)
            rules[name], places[name] = self.choice(0), place
            self.line_end()
        if not rules:
            raise SourceError("there are no rules", hint="write root ::= and what the text is")
        return ContextFree(rules, "root", places)

    # --- text ---

    def skip(self, lines: bool) -> None:
        """Pass blanks and comments, over line ends too if ``lines``."""
        found = (_BLANK_LINES if lines else _BLANK).match(self.text, self.position)
        if found:
            self.position = found.end()

    def at(self, start: str) -> bool:
        return self.text.startswith(start, self.position)

    def expect(self, what: str, hint: str) -> None:
        if not self.at(what):
            raise self.error(f"{what} is missing", hint)
        self.position += len(what)

    def line_end(self) -> None:
        """The end of a rule."""
        self.skip(lines=False)
        if self.position < len(self.text) and self.text[self.position] not in "\r\n":
            raise self.error(f"{self.text[self.position]!r} is not expected here", "begin the next rule on a line of its own")
        self.skip(lines=True)

    def place(self, position: int | None = None) -> str:
        position = self.position if position is None else position
        line = bisect_right(self.lines, position)
        return f"line {line} column {position - self.lines[line - 1] + 1}"

    def error(self, message: str, hint: str, place: str = "", keyword: str = "") -> SourceError:
        return SourceError(message, pointer=place or self.place(), keyword=keyword, hint=hint)

    def name(self, hint: str) -> str:
        found = _NAME.match(self.text, self.position)
        if not found:
            raise self.error("a name is missing", hint)
        self.position = found.end()
        return found[0]

    # --- expressions ---

    def choice(self, depth: int) -> Expression:
        if depth > self.max_depth:
            raise BudgetError(f"brackets nest deeper than {self.max_depth}", pointer=self.place(), hint="raise max_depth (--max-depth)")
        options = [self.sequence(depth)]
        while self.at("|"):
            self.position += 1
            self.skip(lines=True)
            options.append(self.sequence(depth))
        return alternatives(options)

    def sequence(self, depth: int) -> Expression:
        items = []
        while self.position < len(self.text) and self.text[self.position] not in "|)\r\n":
            items.append(self.repeated(self.atom(depth)))
        return series(items)

    def repeated(self, body: Expression) -> Expression:
        """``body`` with the repetition signs behind it."""
        self.skip_inside()
        signs = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        while self.position < len(self.text) and self.text[self.position] in "*+?{":
            sign = self.text[self.position]
            low, high = signs[sign] if sign in signs else self.counts()
            self.position += sign in signs
            body = repeat(body, low, high)
            self.skip_inside()
        return body

    def skip_inside(self) -> None:
        """Blanks after an item: line ends too inside brackets."""
        self.skip(lines=self.open > 0)

    def counts(self) -> tuple[int, int | None]:
        found = _COUNTS.match(self.text, self.position)
        if not found:
            raise self.error("a count is {m}, {m,} or {m,n}", "close the braces", keyword="{")
        low = int(found[1])
        high = low if found[2] is None else None if found[3] is None else int(found[3])
        if max(low, high or 0) > MAX_COUNT or (high is not None and high < low):
            raise self.error(f"the count {found[0]} is out of order", f"write counts that rise and are below {MAX_COUNT:,}", keyword="{")
        self.position = found.end()
        return low, high

    def atom(self, depth: int) -> Expression:
        start = self.text[self.position]
        if start == "(":
            return self.group(depth)
        if start == '"':
            return self.quoted()
        if start == "[":
            return Terminal(Characters(self.characters()))
        if start == ".":
            self.position += 1
            return Terminal(Characters(ANY))
        if start in "<!":
            raise UnsupportedError("tokens are not referred to: an artifact holds for every vocabulary", pointer=self.place(),
                                   keyword=start, hint="write the text of the token in quotes")
        if not _NAME.match(self.text, self.position):
            raise self.error(f"{start!r} begins nothing", 'write a name, "text", [characters], . or ( )')
        place = self.place()
        return Reference(self.name(""), place)

    def group(self, depth: int) -> Expression:
        place = self.place()
        self.position += 1
        self.open += 1
        self.skip(lines=True)
        inner = self.choice(depth + 1)
        if not self.at(")"):
            raise self.error("a bracket is not closed", "add )", place, "(")
        self.position += 1
        self.open -= 1
        return inner

    def quoted(self) -> Expression:
        place = self.place()
        self.position += 1
        found = []
        while not self.at('"'):
            if self.position >= len(self.text) or self.text[self.position] in "\r\n":
                raise self.error("a quote is not closed on its line", 'add ", and write line ends as \\n', place, '"')
            found.append(self.character())
        self.position += 1
        return literal("".join(found))

    def characters(self) -> CharacterSet:
        """A class, ``[a-z\\n]`` or ``[^...]``."""
        place = self.place()
        self.position += 1
        negated = self.at("^")
        self.position += negated
        ranges = []
        while not self.at("]"):
            if self.position >= len(self.text) or self.text[self.position] in "\r\n":
                raise self.error("a class is not closed on its line", "add ]", place, "[")
            low = high = ord(self.character())
            if self.at("-") and not self.at("-]"):
                self.position += 1
                if self.position >= len(self.text):
                    raise self.error("a class is not closed on its line", "add ]", place, "[")
                high = ord(self.character())
            if high < low:
                raise self.error(f"the range {chr(low)!r}-{chr(high)!r} is out of order", "write the lower end first", place, "[")
            ranges.append((low, high))
        self.position += 1
        if not ranges and not negated:
            raise self.error("a class is empty", "write the characters in it", place, "[")
        found = normalized(ranges)
        return complement(found) if negated else found

    def character(self) -> str:
        """One character, or an escape."""
        place = self.place()
        start = self.text[self.position]
        self.position += 1
        if start != "\\":
            return self.scalar(ord(start), place)
        letter = self.text[self.position:self.position + 1]
        self.position += 1
        if letter in _HEX:
            digits = self.text[self.position:self.position + _HEX[letter]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[letter]}}}", digits):
                raise self.error(f"\\{letter} takes {_HEX[letter]} hexadecimal digits", "write them all", place, f"\\{letter}")
            self.position += len(digits)
            return self.scalar(int(digits, 16), place)
        if not letter or letter not in _ESCAPES:
            raise self.error(f"\\{letter} is not an escape", "known are n r t x u U, and \\ before \" ' [ ] - ^ and itself", place,
                             f"\\{letter}")
        return _ESCAPES[letter]

    def scalar(self, point: int, place: str) -> str:
        """The character of a code point; surrogates and what lies beyond Unicode are refused."""
        if point > _LAST or 0xD800 <= point < 0xE000:
            raise self.error(f"U+{point:04X} is not a character that UTF-8 can spell", "leave it out", place)
        return chr(point)
