"""Where a difference lies: in the text that shows it, and in the schemas of the two sides.

In: a text that one machine refuses, and the schemas. Out: the byte at which it is refused, the JSON pointer of the value there, the
subschemas that are about that value, and the keywords in which they differ. A subschema is about a value if the pointer leads to it through
``properties``, ``items`` and the like, past references and alternatives; nothing is evaluated, so that of several alternatives all are
named. Cost: linear in the text and in the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stcc.compiler.comparison.json_path import Path, path_at, pointer_text
from stcc.compiler.stepping import Configuration, initial, step
from stcc.formats.machine import Machine

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("if", "then", "else", "not")
_BELOW = ("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems", "unevaluatedItems", "contains")
_OTHER_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_OTHER_ITEMS = ("items", "additionalItems", "unevaluatedItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NOT_COMPARED = ("$defs", "definitions", "title", "description", "default", "examples", "$comment", "$schema", "$id")
_MOST_CHANGES = 8
_MOST_PLACES = 8
_MOST_VISITED = 2000


@dataclass(frozen=True)
class Change:
    """A keyword that differs: its subschema, and its value on either side (None: not there; see ``shown``)."""

    pointer: str
    keyword: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Place:
    """Where a text is refused.

    Attributes:
        offset: the first byte that is refused; the text's length if it may not end there.
        instance: JSON pointer of the value that it is about, empty for the whole text.
        old: pointers of the old schema's subschemas about that value.
        new: likewise.
        changes: keywords in which subschemas of the same pointer differ.
    """

    offset: int
    instance: str
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def locate(text: bytes, refusing: Machine, old: Any = None, new: Any = None) -> Place:
    """The place of ``text``, which ``refusing`` does not accept; ``old`` and ``new`` are schema documents, None where there is none.

    Of the value at the refused byte and those around it, the innermost is taken about which the schemas say something different.
    """
    offset = refused_at(refusing, text)
    path = path_at(text, offset)
    inner = len(path) - _is_about_the_container(text, offset) if path else 0
    if old is None or new is None:
        return Place(offset, pointer_text(path[:inner]))
    first: Place | None = None
    for length in range(len(path), -1, -1):
        before, after = subschemas(old, path[:length]), subschemas(new, path[:length])
        changes = _changes(before, after)
        place = Place(offset, pointer_text(path[:length]), tuple(before)[:_MOST_PLACES], tuple(after)[:_MOST_PLACES], changes)
        if changes:
            return place
        if length == inner:
            first = place
    assert first is not None
    return first


def _is_about_the_container(text: bytes, offset: int) -> bool:
    """Whether a value that cannot have been refused ends at ``offset``: then what holds it is at fault. A number may have to go on."""
    return text[offset:offset + 1] in (b",", b"}", b"]") and text[offset - 1:offset] in (b'"', b"}", b"]", b"e", b"l")


def refused_at(machine: Machine, text: bytes) -> int:
    """The offset of the first byte that ``machine`` refuses; the text's length if it refuses none."""
    there: Configuration | None = initial(machine)
    for offset, byte in enumerate(text):
        assert there is not None
        there = step(machine, there, byte)
        if there is None:
            return offset
    return len(text)


def subschemas(document: Any, path: Path) -> dict[str, Mapping[str, Any]]:
    """Pointer -> subschema, of those about the value at ``path``, in the order of the document."""
    found = dict(_in_place(document, {"#": document}))
    for part in path:
        below = {pointer: schema for place, outer in found.items() for pointer, schema in _below(place, outer, part)}
        found = dict(_in_place(document, below))
    return {pointer: schema for pointer, schema in found.items() if isinstance(schema, Mapping)}


def _in_place(document: Any, roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas, and all that apply to the same value."""
    seen: set[str] = set()
    stack = list(roots.items())[::-1]
    while stack and len(seen) < _MOST_VISITED:
        pointer, schema = stack.pop()
        if pointer in seen:
            continue
        seen.add(pointer)
        yield pointer, schema
        if isinstance(schema, Mapping):
            stack += list(_applied(document, pointer, schema))[::-1]


def _applied(document: Any, pointer: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        target = schema.get(keyword)
        if isinstance(target, str) and target.startswith("#"):
            resolved = _resolved(document, target)
            if resolved is not None:
                yield target, resolved
    for keyword in _IN_PLACE_LISTS:
        parts = schema.get(keyword)
        if isinstance(parts, list):
            yield from ((f"{pointer}/{keyword}/{number}", part) for number, part in enumerate(parts))
    yield from ((f"{pointer}/{keyword}", schema[keyword]) for keyword in _IN_PLACE if keyword in schema)
    dependent = schema.get("dependentSchemas")
    if isinstance(dependent, Mapping):
        yield from ((f"{pointer}/dependentSchemas/{_token(name)}", part) for name, part in dependent.items())


def _resolved(document: Any, target: str) -> Any:
    """What a reference inside the document leads to; None where it is none, or an anchor."""
    current = document
    for token in target[1:].split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(current, Mapping) and token in current:
            current = current[token]
        elif isinstance(current, list) and token.isdecimal() and int(token) < len(current):
            current = current[int(token)]
        else:
            return None
    return current if target == "#" or target.startswith("#/") else None


def _below(pointer: str, schema: Any, part: str | int) -> Iterator[tuple[str, Any]]:
    """The subschemas of ``schema`` that are about its member or item ``part``."""
    if not isinstance(schema, Mapping):
        return
    found = list(_member(pointer, schema, part) if isinstance(part, str) else _item(pointer, schema, part))
    if not found:
        others = [keyword for keyword in (_OTHER_MEMBERS if isinstance(part, str) else _OTHER_ITEMS) if keyword in schema]
        found = [(f"{pointer}/{keyword}", schema[keyword]) for keyword in others if not isinstance(schema[keyword], list)]
    yield from found
    if isinstance(part, int) and "contains" in schema:
        yield f"{pointer}/contains", schema["contains"]


def _member(pointer: str, schema: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    named, patterns = schema.get("properties"), schema.get("patternProperties")
    if isinstance(named, Mapping) and name in named:
        yield f"{pointer}/properties/{_token(name)}", named[name]
    if isinstance(patterns, Mapping):
        found = [(pattern, part) for pattern, part in patterns.items() if _finds(pattern, name)]
        yield from ((f"{pointer}/patternProperties/{_token(pattern)}", part) for pattern, part in found)


def _item(pointer: str, schema: Mapping[str, Any], index: int) -> Iterator[tuple[str, Any]]:
    for keyword in ("prefixItems", "items"):
        parts = schema.get(keyword)
        if isinstance(parts, list) and index < len(parts):
            yield f"{pointer}/{keyword}/{index}", parts[index]


def _finds(pattern: str, name: str) -> bool:
    """Whether a pattern finds something in a name; a pattern that Python reads otherwise than ECMA may mislead, which costs a hint only."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _changes(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> tuple[Change, ...]:
    """Keywords that differ in subschemas of the same pointer; what lies below a keyword is compared where a value is that it is about."""
    found = []
    for pointer in old:
        if pointer in new:
            before, after = old[pointer], new[pointer]
            for keyword in dict.fromkeys((*before, *after)):
                if keyword in _NOT_COMPARED:
                    continue
                values = _own(keyword, before.get(keyword)), _own(keyword, after.get(keyword))
                if values[0] != values[1] or type(values[0]) is not type(values[1]):
                    found.append(Change(pointer, keyword, *values))
    return tuple(found[:_MOST_CHANGES])


def _own(keyword: str, value: Any) -> Any:
    """What a keyword says at its own place: names of members, numbers of alternatives, and whether there is a schema below."""
    if keyword in _NAMED and isinstance(value, Mapping):
        return sorted(value)
    if keyword in (*_IN_PLACE_LISTS, "prefixItems", "items") and isinstance(value, list):
        return f"{len(value)} schemas"
    if keyword in (*_BELOW, *_IN_PLACE) and isinstance(value, Mapping):
        return "a schema"
    return value
