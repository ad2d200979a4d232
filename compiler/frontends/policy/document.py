"""YAML text -> plain data, for policy files.

In: the bytes of a ``.policy.yaml``. Out: maps, lists, strings, Booleans, None, whole numbers, and exact fractions where YAML has
decimals. Read by YAML 1.2's core rules: ``yes``, ``no``, ``on`` and ``off`` are words, since they are what people call actions.

What hides size or meaning is refused: anchors and aliases, tags, several documents, a key used twice, keys that are not words. Events
are read one after the other, so nesting takes no stack and is bounded by ``max_depth``; cost is linear in the text.

>>> parse_document(b"a: [yes, 1, 0.25, {b: true}]")
{'a': ['yes', 1, Fraction(1, 4), {'b': True}]}
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from stcc.compiler.errors import SourceError

MAX_BYTES = 1 << 20
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]{1,30}|[0-9]{1,30}(?:\.[0-9]{0,30})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
          "null": None, "Null": None, "NULL": None, "~": None, "": None}


def parse_document(data: bytes, max_depth: int = 128) -> Any:
    """The data of one YAML document.

    Raises:
        SourceError: not UTF-8, not YAML, too large or deep, or one of the things refused above; with line and column.
    """
    import yaml

    if len(data) > MAX_BYTES:
        raise SourceError(f"the policy is larger than {MAX_BYTES >> 10} KiB", hint="split it into several policies")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError("the policy is not UTF-8 text", pointer=f"offset {error.start}", hint="save it as UTF-8") from None
    builder = _Builder(max_depth)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise SourceError(f"not YAML: {problem}", pointer=place, hint="give one YAML map") from None
    return builder.root


class _Builder:
    """Data under construction: the open maps and lists, outermost first, each with the key that waits for its value."""

    def __init__(self, max_depth: int) -> None:
        self.root: Any = None
        self.documents = 0
        self.max_depth = max_depth
        self.open: list[Any] = []
        self.keys: list[str | None] = []

    def take(self, event: Any) -> None:
        """One event of PyYAML's parser."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise self.error(event, "there is a second document", "give one policy a file")
        elif kind == "AliasEvent" or getattr(event, "anchor", None):
            raise self.error(event, "anchors and aliases are not read", "write the value out")
        elif kind == "ScalarEvent":
            self.scalar(event)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self.start(event, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self.open.pop()
            self.keys.pop()

    def start(self, event: Any, value: Any) -> None:
        """Open a map or a list."""
        if event.tag and not event.implicit:
            raise self.error(event, "tags are not read", "leave the tag out")
        if len(self.open) >= self.max_depth:
            raise self.error(event, f"it nests deeper than {self.max_depth}", "flatten it")
        if self.open and isinstance(self.open[-1], dict) and self.keys[-1] is None:
            raise self.error(event, "a key is not a word", "use strings as keys")
        self.place(value)
        self.open.append(value)
        self.keys.append(None)

    def scalar(self, event: Any) -> None:
        """A key, or a value that is neither map nor list."""
        plain, quoted = event.implicit
        if event.tag and not (plain or quoted):
            raise self.error(event, "tags are not read", "leave the tag out")
        if self.open and isinstance(self.open[-1], dict) and self.keys[-1] is None:
            if event.value in self.open[-1]:
                raise self.error(event, f"the key {event.value!r} is used twice", "keep one of them")
            self.keys[-1] = event.value
            return
        self.place(event.value if event.style else self.resolved(event))

    def resolved(self, event: Any) -> Any:
        """What a plain scalar stands for."""
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if _WHOLE.fullmatch(text):
            return int(text)
        return Fraction(text) if _DECIMAL.fullmatch(text) else text

    def place(self, value: Any) -> None:
        """Put a value where it belongs."""
        if not self.open:
            self.root = value
        elif isinstance(self.open[-1], dict):
            self.open[-1][self.keys[-1]] = value
            self.keys[-1] = None
        else:
            self.open[-1].append(value)

    def error(self, event: Any, message: str, hint: str) -> SourceError:
        """What is wrong, with the place."""
        mark = event.start_mark
        return SourceError(message, pointer=f"line {mark.line + 1}, column {mark.column + 1}", hint=hint)
