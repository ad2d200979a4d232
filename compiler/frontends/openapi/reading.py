"""OpenAPI text -> plain data: JSON as schemas are read, or YAML by 1.2's core rules.

In: bytes, text, or data. Out: maps with string keys, lists, strings, Booleans, None, ints, and Decimals where there are fractions.
Aliases are shared, not copied; what they would spell out counts towards ``MAX_NODES``, so that a small text cannot stand for a huge one.
Refused, with line and column: tags, merge keys, several documents, a key used twice, keys that are not words. Cost: linear in the text;
events are read one after the other, so nesting takes no stack and is bounded.

>>> parse_yaml("responses: {200: &a [1, 0.5], 404: *a}", 9)
{'responses': {'200': [1, Decimal('0.5')], '404': [1, Decimal('0.5')]}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.frontends.json_schema.document import check_depth, parse_schema

MAX_BYTES = 16 << 20
"""Longest YAML text read; the largest public descriptions take some 10 MB."""
MAX_NODES = 2_000_000
"""Most values of a document, each alias counted as what it stands for."""
_WHOLE = re.compile(r"[-+]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
          "null": None, "Null": None, "NULL": None, "~": None, "": None}


def read_document(source: Any, max_depth: int = 128) -> Mapping[str, Any]:
    """The document as plain data.

    Raises:
        SourceError: neither JSON nor YAML, or not a map.
        BudgetError: larger or deeper than the limits.
    """
    if isinstance(source, (str, bytes)):
        return _read_text(source, max_depth)
    if not isinstance(source, Mapping):
        raise SourceError(f"an OpenAPI document is a map or its text, not {type(source).__name__}")
    found: Mapping[str, Any] = parse_schema(source, max_depth)
    return found


@lru_cache(maxsize=4)
def _read_text(source: str | bytes, max_depth: int) -> Mapping[str, Any]:
    """A build reads one document once an operation: the last few are kept. Nobody changes the value."""
    try:
        text = source.decode("utf-8-sig") if isinstance(source, bytes) else source
    except UnicodeDecodeError as error:
        raise SourceError("the document is not UTF-8 text", pointer=f"offset {error.start}", hint="save it as UTF-8") from None
    value = parse_schema(text, max_depth) if text.lstrip().startswith("{") else parse_yaml(text, 3 * max_depth)
    if not isinstance(value, dict):
        raise SourceError("an OpenAPI document is a map", pointer="#", hint="it begins with openapi: 3.1.0")
    return value


def parse_yaml(text: str, levels: int) -> Any:
    """The data of one YAML document nested at most ``levels`` deep; raises as ``read_document``."""
    import yaml

    if len(text) > MAX_BYTES:
        raise BudgetError(f"the document is larger than {MAX_BYTES >> 20} MiB", hint="split it")
    builder = _Builder(levels)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise SourceError(f"not YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}", pointer=place,
                          hint="correct its syntax") from None
    check_depth(builder.root, levels)
    return builder.root


class _Open:
    """A map or list under construction: the key that waits for its value, its anchor, and the count of nodes before it."""

    def __init__(self, value: Any, anchor: str | None, before: int) -> None:
        self.value, self.anchor, self.before = value, anchor, before
        self.key: str | None = None


class _Builder:
    """Data under construction."""

    def __init__(self, levels: int) -> None:
        self.root: Any = None
        self.levels, self.documents, self.nodes = levels, 0, 0
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}

    def take(self, event: Any) -> None:
        """One event of PyYAML's parser."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise self.error(event, "there is a second document", "give each a file")
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
        if len(self.open) >= self.levels:
            raise self.error(event, f"it nests deeper than {self.levels}", "flatten it, or raise max_depth")
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
        value = event.value if event.style else _resolved(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, 1
        self.place(event, value)

    def name(self, event: Any, top: _Open) -> None:
        """A key of the innermost map."""
        if event.value in top.value:
            raise self.error(event, f"the key {event.value!r} is used twice", "keep one of them")
        if event.value == "<<" and not event.style:
            raise self.error(event, "merge keys are not read", "write the values out")
        top.key = event.value

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
        if self.nodes > MAX_NODES:
            mark = event.start_mark
            raise BudgetError(f"the document spells out to more than {MAX_NODES:,} values", hint="use fewer aliases",
                              pointer=f"line {mark.line + 1}, column {mark.column + 1}")

    def error(self, event: Any, message: str, hint: str) -> SourceError:
        """What is wrong, with the place."""
        mark = event.start_mark
        return SourceError(message, pointer=f"line {mark.line + 1}, column {mark.column + 1}", hint=hint)


def _resolved(text: str) -> Any:
    """What a plain scalar stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return Decimal(text) if _DECIMAL.fullmatch(text) else text
