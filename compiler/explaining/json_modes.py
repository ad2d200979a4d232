"""Where a reader of JSON is: in a string, behind a value, before a key. One step reads one byte and says which value the byte belongs to.

In: a mode, the containers that are open, and the kind of a byte. Out: the same after the byte, and to whom the byte belongs: a value owns
its text from its first to its last byte; a container owns the keys, commas, colons and white space between its values. Texts are taken to
be JSON: nothing is checked, since the machine that is read admits nothing else.

>>> step(VALUE, (), '"').mode, step(STRING, (), '"').mode
('string', 'after')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

VALUE, STRING, ESCAPE, NUMBER, WORD, AFTER = "value", "string", "escape", "number", "word", "after"
FIRST_KEY, NEXT_KEY, KEY, KEY_ESCAPE, COLON, FIRST_ITEM = "first key", "next key", "key", "key escape", "colon", "first item"
IN_KEY = (KEY, KEY_ESCAPE)
_SPACES = b" \t\r\n"
_MARKS = b'"\\{}[],:'


class UnreadableError(Exception):
    """The machine's rules do not follow the nesting of JSON, or are too many to read."""


class Part(NamedTuple):
    """One part of a path: an item, or the members behind a key whose closing quote leads to machine state ``landing``."""

    kind: str
    landing: int = -1


class Container(NamedTuple):
    """An open ``{`` or ``[``, and which of its values is being read; None between values."""

    kind: str
    inner: Part | None = None


Containers = tuple[Container, ...]
ITEM = Part("item")
HERE = Part("here")
"""The value that a rule is called inside of, whichever it is: a string whose characters are counted by rules."""


@dataclass(frozen=True)
class Step:
    """One byte read.

    Attributes:
        mode: where the reader is afterwards.
        containers: those open afterwards, outermost first.
        owner: open containers, the last with the value in it, that say to which value the byte belongs.
        chooser: likewise, to which value the choice of this byte belongs; the number that ``,`` ends has chosen not to go on.
        begins: whether the byte is the first of ``owner``.
        ends: whether it is the last of ``owner``; a number has no last byte, nor has a word.
        closed: for the byte behind a number or a word, the containers with that value in the last; None for others.
    """

    mode: str
    containers: Containers
    owner: Containers
    chooser: Containers
    begins: bool = False
    ends: bool = False
    closed: Containers | None = None


def byte_kind(byte: int) -> str:
    """The kinds that ``step`` tells apart: a mark, a space, ``w`` for the first letter of true, false and null, else ``x``."""
    return " " if byte in _SPACES else chr(byte) if byte in _MARKS else "w" if byte in b"tfn" else "x"


def step(mode: str, containers: Containers, kind: str, landing: int = -1) -> Step:
    """Read one byte of ``kind``; ``landing`` names the member whose key it ends. UnreadableError if it closes what is not open here."""
    if mode in (STRING, ESCAPE):
        return _in_string(mode, containers, kind)
    if mode in IN_KEY:
        return _in_key(mode, containers, kind, landing)
    if mode in (NUMBER, WORD):
        if kind in "xw":
            return Step(mode, containers, containers, containers)
        after = _between(AFTER, value_ended(containers), kind)
        chooser = containers if mode == NUMBER else after.chooser
        return Step(after.mode, after.containers, after.owner, chooser, ends=after.ends, closed=containers)
    if kind == " ":
        outer = value_ended(containers)
        return Step(mode, containers, outer, outer)
    if mode == COLON:
        outer = value_ended(containers)
        return Step(VALUE, containers, outer, outer)
    if mode == VALUE or (mode == FIRST_ITEM and kind != "]"):
        return _begin(containers if mode == VALUE else _in_item(containers), kind)
    return _between(mode, containers, kind)


def value_ended(containers: Containers) -> Containers:
    """The containers once the value in the innermost has ended."""
    return (*containers[:-1], Container(containers[-1].kind)) if containers else ()


def _in_item(containers: Containers) -> Containers:
    return (*containers[:-1], Container("[", ITEM))


def _in_string(mode: str, containers: Containers, kind: str) -> Step:
    if mode == STRING and kind == '"':
        return Step(AFTER, value_ended(containers), containers, containers, ends=True)
    following = ESCAPE if mode == STRING and kind == "\\" else STRING
    return Step(following, containers, containers, containers)


def _in_key(mode: str, containers: Containers, kind: str, landing: int) -> Step:
    if mode == KEY and kind == '"':
        if not containers:
            raise UnreadableError("a key ends outside its object")
        named = (*containers[:-1], Container("{", Part("member", landing)))
        return Step(COLON, named, containers, containers)
    following = KEY_ESCAPE if mode == KEY and kind == "\\" else KEY
    return Step(following, containers, containers, containers)


def _begin(containers: Containers, kind: str) -> Step:
    if kind in "{[":
        inside = (*containers, Container(kind))
        return Step(FIRST_KEY if kind == "{" else FIRST_ITEM, inside, containers, containers, begins=True)
    return Step(STRING if kind == '"' else WORD if kind == "w" else NUMBER, containers, containers, containers, begins=True)


def _between(mode: str, containers: Containers, kind: str) -> Step:
    """A mark between values: ``,`` or a closing bracket, or the quote that begins a key; a space behind a number."""
    if kind == " ":
        return Step(mode, containers, containers, containers)
    if not containers:
        raise UnreadableError("a value ends outside its container")
    if kind in "}]":
        whole = containers[:-1]
        return Step(AFTER, value_ended(whole), whole, whole, ends=True)
    if kind == '"':
        return Step(KEY, containers, containers, containers)
    if kind != ",":
        raise UnreadableError(f"{kind} stands where a value has ended")
    following = containers if containers[-1].kind == "{" else _in_item(containers)
    return Step(NEXT_KEY if containers[-1].kind == "{" else VALUE, following, containers, containers)
