"""The regex parser: pattern text in, syntax tree out, for the dialects ``python`` (the ``re`` module) and ``ecma`` (ECMA-262).

Afterwards flags, escapes, classes and anchors are resolved into sets and lookarounds, and every construct that describes no
regular language (backreferences, atomic groups, possessive quantifiers, conditionals) has been refused with its offset. In the
python dialect ``re`` itself vets the syntax first, so that exactly its patterns are valid. ECMA-262 is read as with the ``u`` flag, and by
Annex B where that flag would forbid the pattern; two spellings of other dialects that JSON Schemas use are accepted beyond it:
``(?i)`` at the start and ``(?P<name>...)``. Linear in the pattern.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

from stcc.compiler.errors import CompileError
from stcc.compiler.frontends.regex.characters import ECMA_NEWLINES, PYTHON_NEWLINE, class_escape, complement
from stcc.compiler.frontends.regex.escapes import bracket_class, escaped_point, escaped_set
from stcc.compiler.frontends.regex.scanner import Flags, Scanner
from stcc.compiler.frontends.regex.syntax import (
    EMPTY,
    Characters,
    Look,
    Node,
    Repetition,
    choice,
    end_of_text,
    final_newline,
    line_end,
    line_start,
    not_empty,
    over_budget,
    sequence,
    source_error,
    start_of_text,
    unsupported,
    width,
    word_boundary,
)

MAX_NESTING = 100  # groups inside groups; each level costs the parser and the compiler a few Python frames

_FLAG_NAMES = {"i": "ignore_case", "m": "multi_line", "s": "dot_all", "x": "verbose", "a": "ascii_only"}
_FLAG_GROUP = re.compile(r"\(\?([aimsux]*)(?:-([imsx]+))?([:)])")
_BRACES = {
    "python": re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII),
    "ecma": re.compile(r"\{(\d+)(,?)(\d*)\}", re.ASCII),
}
# Up to Python 3.13, \\B does not match in an empty string; the python dialect is that of the interpreter in use.
_B_MATCHES_EMPTY = re.search(r"\B", "") is not None
_WHITESPACE = " \t\n\r\v\f"


def parse(pattern: str, *, dialect: str) -> Node:
    """The tree of ``pattern``; SourceError where it is not valid, UnsupportedError where it is not regular.

    >>> parse("a|b", dialect="ecma")
    Characters(ranges=((97, 98),))
    """
    if dialect not in _BRACES:
        raise source_error(f"dialect {dialect!r} is not python or ecma", 0, "", "choose one of them")
    parser = _Parser(pattern, dialect)
    if dialect == "python":
        parser.vet()
    return parser.whole()


class _Parser(Scanner):
    def vet(self) -> None:
        """Let ``re`` judge the syntax."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(self.text)
        except re.error as error:
            raise source_error(error.msg, error.pos or 0, self.text[error.pos or 0:][:1], "write it as Python's re module does") from None
        except (OverflowError, RecursionError, MemoryError) as error:
            raise over_budget(f"re refuses the pattern: {error}", 0, "", "simplify it") from None

    def whole(self) -> Node:
        """The whole pattern."""
        flags = self._leading_flags()
        tree = self._choice(flags, 0)
        if self.position < len(self.text):
            raise source_error("unmatched )", self.position, ")", "remove it, or write \\)")
        return tree

    def _leading_flags(self) -> Flags:
        flags = Flags()
        while match := _FLAG_GROUP.match(self.text, self.position):
            if match[3] != ")" or match[2] or not match[1]:
                break
            flags = self._changed(flags, match)
            self.position = match.end()
        return flags

    def _changed(self, flags: Flags, match: re.Match[str]) -> Flags:
        for letters, value in ((match[1], True), (match[2] or "", False)):
            for letter in letters:
                if self.dialect == "ecma" and letter not in "ims":
                    raise source_error("not a flag of this dialect", match.start(), f"(?{letter}", "use i, m and s only")
                # u, which has no name here, means Unicode matching: it undoes an outer (?a).
                flags = replace(flags, **({_FLAG_NAMES[letter]: value} if letter in _FLAG_NAMES else {"ascii_only": False}))
        return flags

    def _choice(self, flags: Flags, depth: int) -> Node:
        if depth > MAX_NESTING:
            raise over_budget(f"groups are nested more than {MAX_NESTING} deep", self.position, "(", "flatten the pattern")
        options = [self._sequence(flags, depth)]
        while self.take("|"):
            options.append(self._sequence(flags, depth))
        return choice(options)

    def _sequence(self, flags: Flags, depth: int) -> Node:
        items: list[Node] = []
        while True:
            self._skip_blank(flags)
            if self.peek() in ("", "|", ")"):
                return sequence(items)
            start = self.position
            atom, repeatable = self._atom(flags, depth)
            self._skip_blank(flags)
            items.append(self._repeated(atom, repeatable, start))

    def _skip_blank(self, flags: Flags) -> None:
        """Step over Python's comment groups and, under ``(?x)``, over blanks and line comments."""
        while character := self.peek():
            if self.dialect == "python" and self.take("(?#"):
                self.until(")", "(?#")
            elif flags.verbose and character == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif flags.verbose and character in _WHITESPACE:
                self.position += 1
            else:
                return

    def _repeated(self, atom: Node, repeatable: bool, start: int) -> Node:
        place = self.position
        bounds = self._quantifier()
        if bounds is None:
            return atom
        if not repeatable:
            raise source_error("nothing to repeat", place, self.text[place], "put the quantifier after a character or a group")
        low, high = bounds
        if self.peek() == "+" and self.dialect == "python":
            raise unsupported("a possessive quantifier does not describe a regular language by itself", self.position, "+",
                              "use the plain quantifier")
        if not self.take("?") and self.peek() == "+":
            raise source_error("multiple repeat", self.position, "+", "possessive quantifiers are not part of ECMA-262; use the plain one")
        again = self.position
        if self._quantifier() is not None:
            raise source_error("multiple repeat", again, self.text[again], "put the repeated part in a group")
        if high is not None and high < low:
            raise source_error("the bounds are out of order", place, "{", "put the smaller number first")
        if high == 0:
            return EMPTY
        return atom if low == high == 1 else Repetition(atom, low, high, start)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(symbol):
                return bounds
        match = _BRACES[self.dialect].match(self.text, self.position) if self.peek() == "{" else None
        if match is None or match[0] == "{}":
            return None
        if max(len(match[1]), len(match[3])) > 9:
            raise over_budget("the count is too large", self.position, match[0], "use a smaller bound, or none")
        self.position = match.end()
        low = int(match[1] or 0)
        return low, (low if not match[2] else int(match[3]) if match[3] else None)

    def _atom(self, flags: Flags, depth: int) -> tuple[Node, bool]:
        """One atom and whether it may be repeated."""
        start = self.position
        character = self.text[start]
        if self._quantifier() is not None:
            raise source_error("nothing to repeat", start, character, f"write \\{character} for the character")
        self.position += 1
        if character == "(":
            return self._group(flags, depth, start)
        if character == "[":
            return Characters(bracket_class(self, flags)), True
        if character == "\\":
            return self._escape(flags, start)
        if character == ".":
            return Characters(complement(() if flags.dot_all else self._newlines())), True
        if character == "^":
            return (line_start(self._newlines(), start) if flags.multi_line else start_of_text(start)), False
        if character == "$":
            if flags.multi_line:
                return line_end(self._newlines(), start), False
            return (final_newline(start) if self.dialect == "python" else end_of_text(start)), False
        return self._literal(ord(character), flags), True

    def _newlines(self) -> tuple[tuple[int, int], ...]:
        return PYTHON_NEWLINE if self.dialect == "python" else ECMA_NEWLINES

    def _literal(self, point: int, flags: Flags) -> Node:
        return Characters(self.cased(((point, point),), flags))

    def _escape(self, flags: Flags, start: int) -> tuple[Node, bool]:
        found = escaped_set(self, flags)
        if found is not None:
            return Characters(found), True
        letter = self.peek()
        if letter in ("b", "B"):
            self.position += 1
            word = class_escape("w", dialect=self.dialect, ascii_only=flags.ascii_only, ignore_case=flags.ignore_case)
            boundary = word_boundary(word, letter == "B", start)
            if letter == "B" and self.dialect == "python" and not _B_MATCHES_EMPTY:
                boundary = sequence([boundary, not_empty(start)])
            return boundary, False
        if self.dialect == "python" and letter in ("A", "Z", "z"):
            self.position += 1
            return (start_of_text(start) if letter == "A" else end_of_text(start)), False
        if self.dialect == "ecma" and letter == "k" and self.named:
            raise unsupported("a backreference does not describe a regular language", start, "\\k", "spell out what it may repeat")
        return self._literal(escaped_point(self, in_class=False), flags), True

    def _group(self, flags: Flags, depth: int, start: int) -> tuple[Node, bool]:
        if not self.take("?"):
            return self._closed(flags, depth, start), True
        for opening, behind, negated in (("=", False, False), ("!", False, True), ("<=", True, False), ("<!", True, True)):
            if self.take(opening):
                return self._look(flags, depth, start, behind, negated)
        if self.take("<") or self.take("P<"):
            name = self.until(">", "(?<")
            if not name.replace("$", "_").isidentifier():
                raise source_error(f"{name!r} is not a group name", start, "(?<", "use letters, digits and underscores")
            return self._closed(flags, depth, start), True
        match = _FLAG_GROUP.match(self.text, start)
        if self.take(":") or (match and match[3] == ":"):
            if match:
                flags, self.position = self._changed(flags, match), match.end()
            return self._closed(flags, depth, start), True
        raise self._refused_group(start)

    def _look(self, flags: Flags, depth: int, start: int, behind: bool, negated: bool) -> tuple[Node, bool]:
        body = self._closed(flags, depth, start)
        if behind and self.dialect == "python":
            low, high = width(body)
            if low != high:
                raise source_error("look-behind requires fixed-width pattern", start, "(?<", "give its alternatives one length")
        return Look(body, behind, negated, start), not behind

    def _closed(self, flags: Flags, depth: int, start: int) -> Node:
        body = self._choice(flags, depth + 1)
        if not self.take(")"):
            raise source_error("the group is not closed", start, "(", "add the missing ), or write \\(")
        return body

    def _refused_group(self, start: int) -> CompileError:
        kinds = ((">", "an atomic group", "use a plain group"), ("P=", "a backreference", "spell out what it may repeat"),
                 ("(", "a conditional group", "write it as alternatives"))
        for opening, name, hint in kinds:
            if self.text.startswith(opening, start + 2):
                message = f"{name} does not describe a regular language by itself"
                return unsupported(message, start, f"(?{opening}", hint)
        return source_error("the group has an unknown extension", start, self.text[start:start + 3], "use (?:...) for a plain group")

