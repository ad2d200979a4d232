"""YAML text -> plain data, by YAML 1.2's core rules: ``yes``, ``no``, ``on`` and ``off`` are words.

In: text, and how much of YAML is read. Out: maps with string keys, lists, strings, Booleans, None, ints, and what ``Reading.decimal`` makes
of decimals. Refused, with line and column: tags, several documents, a key used twice, keys that are not words, and what ``Reading`` leaves
out. Aliases are shared, not copied; what they would spell out counts towards ``most_nodes``, so that a small text cannot stand for a huge
one. Cost: linear in the text; events are read one after the other, so nesting takes no stack and is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError

_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
          "null": None, "Null": None, "NULL": None, "~": None, "": None}


@dataclass(frozen=True)
class Reading:
    """What is read of YAML, and what is said of the rest.

    Attributes:
        decimal: makes a number of a decimal's text.
        digits: most digits of a number, on either side of its point; what has more is a word.
        levels: deepest nesting of maps and lists.
        aliases: whether anchors and aliases are read. Merge keys are refused then, and are words otherwise.
        most_nodes: most values, each alias counted as what it stands for; None where the text's length bounds them.
        syntax, flatten, split: what to do about text that is not YAML, deep nesting, a second document.
    """

    decimal: Callable[[str], Any]
    digits: int
    levels: int
    aliases: bool
    most_nodes: int | None
    syntax: str
    flatten: str
    split: str


def utf8_text(data: bytes, what: str) -> str:
    """The text of a file. SourceError, naming ``what`` it is, unless it is UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"the {what} is not UTF-8 text", pointer=f"offset {error.start}", hint="save it as UTF-8") from None


def read_yaml(text: str, reading: Reading) -> Any:
    """The data of one YAML document. SourceError for what is refused above, BudgetError past ``most_nodes``."""
    import yaml

    builder = _Builder(reading)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise SourceError(f"not YAML: {problem}", pointer=_place(mark) if mark is not None else "", hint=reading.syntax) from None
    return builder.root


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


class _Open:
    """A map or list under construction: the key that waits for its value, its anchor, and the count of nodes before it."""

    def __init__(self, value: Any, anchor: str | None, before: int) -> None:
        self.value, self.anchor, self.before = value, anchor, before
        self.key: str | None = None


class _Builder:
    """Data under construction."""

    def __init__(self, reading: Reading) -> None:
        self.root: Any = None
        self.reading, self.documents, self.nodes = reading, 0, 0
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        digits = f"[0-9]{{1,{reading.digits}}}"
        self.whole = re.compile(rf"[-+]?{digits}")
        self.fraction = re.compile(rf"[-+]?(?:\.{digits}|{digits}(?:\.[0-9]{{0,{reading.digits}}})?)(?:[eE][-+]?[0-9]{{1,3}})?")

    def take(self, event: Any) -> None:
        """One event of PyYAML's parser."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise self.error(event, "there is a second document", self.reading.split)
        elif not self.reading.aliases and (kind == "AliasEvent" or getattr(event, "anchor", None)):
            raise self.error(event, "anchors and aliases are not read", "write the value out")
        elif kind == "AliasEvent":
            self.alias(event)
        elif kind == "ScalarEvent":
            self.scalar(event)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self.start(event, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = self.open.pop()
            if done.anchor is not None:
                self.anchors[done.anchor] = done.value, self.nodes - done.before

    def alias(self, event: Any) -> None:
        """Put the value that an anchor names, complete by now, where the alias stands."""
        if event.anchor not in self.anchors:
            raise self.error(event, f"*{event.anchor} names nothing that is complete before it", "write the value out")
        value, size = self.anchors[event.anchor]
        self.count(event, size)
        self.place(event, value)

    def start(self, event: Any, value: Any) -> None:
        """Open a map or a list."""
        if event.tag and not event.implicit:
            raise self.error(event, "tags are not read", "leave the tag out")
        if len(self.open) >= self.reading.levels:
            raise self.error(event, f"it nests deeper than {self.reading.levels}", self.reading.flatten)
        before = self.nodes
        self.count(event, 1)
        self.place(event, value)
        self.open.append(_Open(value, event.anchor, before))

    def scalar(self, event: Any) -> None:
        """A key, or a value that is neither map nor list."""
        plain, quoted = event.implicit
        if event.tag and not (plain or quoted):
            raise self.error(event, "tags are not read", "leave the tag out")
        self.count(event, 1)
        top = self.open[-1] if self.open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self.name(event, top)
            return
        value = event.value if event.style else self.resolved(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, 1
        self.place(event, value)

    def name(self, event: Any, top: _Open) -> None:
        """A key of the innermost map."""
        if event.value in top.value:
            raise self.error(event, f"the key {event.value!r} is used twice", "keep one of them")
        if self.reading.aliases and event.value == "<<" and not event.style:
            raise self.error(event, "merge keys are not read", "write the values out")
        top.key = event.value

    def resolved(self, text: str) -> Any:
        """What a plain scalar stands for."""
        if text in _WORDS:
            return _WORDS[text]
        if self.whole.fullmatch(text):
            return int(text)
        return self.reading.decimal(text) if self.fraction.fullmatch(text) else text

    def place(self, event: Any, value: Any) -> None:
        """Put a value where it belongs."""
        if not self.open:
            self.root = value
            return
        top = self.open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            raise self.error(event, "a key is not a word", "use strings as keys")
        else:
            top.value[top.key] = value
            top.key = None

    def count(self, event: Any, size: int) -> None:
        """Count values, and stop where there are too many."""
        self.nodes += size
        most = self.reading.most_nodes
        if most is not None and self.nodes > most:
            raise BudgetError(f"the document spells out to more than {most:,} values", hint="use fewer aliases",
                              pointer=_place(event.start_mark))

    def error(self, event: Any, message: str, hint: str) -> SourceError:
        """What is wrong, with the place."""
        return SourceError(message, pointer=_place(event.start_mark), hint=hint)
