"""Finite schemas: the constants among which every valid value is, where the schema itself says so.

Used by ``uniqueItems``, which is exact where the possible items are few. A superset of the valid values is enough.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.json_schema.document import Document, Schema, json_type

_TYPES: dict[str, list[Any]] = {"null": [None], "boolean": [False, True]}


def item_constants(document: Document, schema: Schema) -> list[Any] | None:
    """All constants that an item of the array ``schema`` can be, each once; None where they are not finitely many or not evident."""
    contents = schema.contents
    listed = next((keyword for keyword in ("prefixItems", "items") if isinstance(contents.get(keyword), list)), None)
    rest = "additionalItems" if listed == "items" else "items"
    if rest not in contents:
        return None
    parts = [(contents[rest], (rest,))]
    if listed is not None:
        parts += [(child, (listed, index)) for index, child in enumerate(contents[listed])]  # type: ignore[misc]
    found = [constants(document, document.schemas[document.child(schema, child, *path)], 0) for child, path in parts]
    return None if any(values is None for values in found) else distinct([value for values in found for value in values or ()])


def constants(document: Document, schema: Schema, depth: int) -> list[Any] | None:
    """All constants that satisfy ``schema``, or a superset; None where that is not evident from its keywords."""
    contents = schema.contents
    if isinstance(contents, bool):
        return None if contents else []
    if depth > 16:  # a loop of references
        return None
    if "const" in contents:
        return [contents["const"]]
    if isinstance(contents.get("enum"), list):
        return list(contents["enum"])
    types = contents.get("type")
    named = [types] if isinstance(types, str) else types
    if isinstance(named, list) and named and all(name in _TYPES for name in named):
        return [value for name in named for value in _TYPES[name]]
    return _applied(document, schema, depth)


def _applied(document: Document, schema: Schema, depth: int) -> list[Any] | None:
    contents = schema.contents
    for keyword in ("anyOf", "oneOf"):
        if isinstance(contents.get(keyword), list):
            parts = [
                constants(document, document.schemas[document.child(schema, child, keyword, index)], depth + 1)
                for index, child in enumerate(contents[keyword])
            ]
            return None if any(part is None for part in parts) else [value for part in parts for value in part or ()]
    if "$ref" in contents:
        try:
            return constants(document, document.schemas[document.reference(schema, "$ref")], depth + 1)
        except SourceError:
            return None  # reported where the reference is expanded
    return None


def distinct(values: list[Any]) -> list[Any]:
    """Each JSON value once: 1 and 1.0 are equal, 1 and true are not."""
    return list({_identity(value): value for value in reversed(values)}.values())[::-1]


def _identity(value: Any) -> Any:
    kind = json_type(value)
    if kind == "number":
        return kind, Decimal(value).normalize()
    if kind == "array":
        return kind, tuple(_identity(item) for item in value)
    if kind == "object":
        return kind, frozenset((name, _identity(item)) for name, item in value.items())
    return kind, value
