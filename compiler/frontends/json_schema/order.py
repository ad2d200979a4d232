"""The order in which declared property names come: the order of appearance, over a schema and all that applies in place.

The orders of alternatives are merged so that each keeps its own wherever they do not contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stcc.compiler.frontends.json_schema.document import Document, Schema


class KeyOrders:
    """Name orders of one document's schemas, memoised."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._orders: dict[int, tuple[str, ...]] = {}

    def key_order(self, number: int) -> tuple[str, ...]:
        """Property names in order of appearance over a schema and its in-place applicators (each reference followed once).

        The orders of alternatives are merged so that each keeps its own: a, b, d and a, c, d give a, b, c, d.
        """
        known = self._orders.get(number)
        if known is None:
            self._orders[number] = ()  # a loop of references adds nothing
            schema = self._document.schemas[number]
            sequences, late = ([], []) if isinstance(schema.contents, bool) else self._walk_keys(schema)
            known = self._orders[number] = tuple(dict.fromkeys([*merged_order(sequences), *late]))
        return known

    def _walk_keys(self, schema: Schema) -> tuple[list[Sequence[str]], list[str]]:
        """Sequences whose order counts, and names that come after all of those unless one of them has them."""
        contents = schema.contents
        sequences: list[Sequence[str]] = []
        late: list[str] = []
        for keyword, value in contents.items():
            if keyword == "properties" and isinstance(value, dict):
                sequences.append(list(value))
            elif keyword in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
                sequences.extend(self.key_order(child) for child in _children(self._document, schema, keyword))
            elif keyword in ("if", "then", "else"):
                sequences.append(self.key_order(self._document.child(schema, value, keyword)))
            elif keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                sequences.append(self.key_order(self._document.reference(schema, keyword)))
            elif keyword in ("dependentSchemas", "dependencies") and isinstance(value, dict):
                sequences.extend(
                    self.key_order(self._document.child(schema, child, keyword, name))
                    for name, child in value.items()
                    if isinstance(child, (dict, bool))
                )
            late.extend(self._late_keys(schema, keyword, value))
        return sequences, late

    def _late_keys(self, schema: Schema, keyword: str, value: Any) -> list[str]:
        if keyword in ("required", "const", "dependentRequired", "dependencies") and isinstance(value, (list, dict)):
            return [name for name in value if isinstance(name, str)]
        if keyword == "not":
            return list(self.key_order(self._document.child(schema, value, keyword)))
        if keyword == "enum" and isinstance(value, list):
            return [name for item in value if isinstance(item, dict) for name in item]
        return []


def _children(document: Document, schema: Schema, keyword: str) -> list[int]:
    return [document.child(schema, child, keyword, index) for index, child in enumerate(schema.contents[keyword])]


def merged_order(sequences: Iterable[Sequence[str]]) -> list[str]:
    """One order of all names: each sequence's new names go in before its next name that is already placed.

    >>> merged_order([["a", "b", "d"], ["a", "c", "d"], ["e"]])
    ['a', 'b', 'c', 'd', 'e']
    """
    merged: list[str] = []
    placed: set[str] = set()
    for sequence in sequences:
        fresh: list[str] = []
        for name in sequence:
            if name not in placed:
                fresh.append(name)
            elif fresh:
                position = merged.index(name)
                merged[position:position] = fresh
                placed.update(fresh)
                fresh = []
        merged += fresh
        placed.update(fresh)
    return list(dict.fromkeys(merged))
