"""Keyword by keyword: what a schema asks of a value of one JSON type, as a formula over that type's atoms.

``expand(schema, type)`` is pure and memoised. In-place applicators (``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``, ``$ref``,
``dependent*``) expand here and now, at
the same type; applicators to children become atoms that hold ``Sat`` formulas and expand when the child is reached, which is what
lets recursive schemas terminate. A keyword that is not enforced is refused, or recorded under ``unenforced="warn"``; an
unknown one is an annotation and is reported once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.container_keywords import ContainerKeywords
from stcc.compiler.frontends.json_schema.document import Document, Schema, is_known_draft
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas
from stcc.compiler.frontends.json_schema.value_keywords import ValueKeywords

ANNOTATIONS = frozenset(
    (
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$vocabulary",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentSchema",
        "minContains",
        "maxContains",
        "additionalItems",
        "then",
        "else",
    )
)


class Expander(ValueKeywords, ContainerKeywords):
    """Expands the schemas of one document into one formula store."""

    def __init__(self, document: Document, formulas: Formulas) -> None:
        super().__init__(document, formulas)
        self._known: dict[tuple[int, str], int] = {}
        self._open: set[tuple[int, str]] = set()
        self._keywords: dict[str, Callable[[Schema, Any, str], int]] = {
            "type": self._type,
            "enum": self._enum,
            "const": self._const,
            "allOf": self._all_of,
            "anyOf": self._any_of,
            "oneOf": self._one_of,
            "not": self._not,
            "if": self._if,
            "$ref": self._ref,
            "$dynamicRef": self._ref,
            "$recursiveRef": self._ref,
            "unevaluatedProperties": self._unevaluated,
            "unevaluatedItems": self._unevaluated,
            "minLength": self._length,
            "maxLength": self._length,
            "pattern": self._pattern,
            "format": self._format,
            "contentEncoding": self._content,
            "contentMediaType": self._content,
            "minimum": self._bound,
            "maximum": self._bound,
            "exclusiveMinimum": self._exclusive,
            "exclusiveMaximum": self._exclusive,
            "multipleOf": self._multiple,
            "divisibleBy": self._multiple,
            "properties": self._members,
            "patternProperties": self._members,
            "additionalProperties": self._members,
            "required": self._required,
            "minProperties": self._count,
            "maxProperties": self._count,
            "propertyNames": self._property_names,
            "dependentRequired": self._dependencies,
            "dependentSchemas": self._dependencies,
            "dependencies": self._dependencies,
            "prefixItems": self._items,
            "items": self._items,
            "minItems": self._count,
            "maxItems": self._count,
            "contains": self._contains,
            "uniqueItems": self._unique,
        }

    def expand(self, number: int, type_: str) -> int:
        """What schema ``number`` asks of a value of JSON type ``type_``."""
        key = (number, type_)
        known = self._known.get(key)
        if known is not None:
            return known
        schema = self.document.schemas[number]
        if isinstance(schema.contents, bool):
            return TRUE if schema.contents else FALSE
        if key in self._open:
            raise SourceError(
                "the reference leads back to itself without reading anything",
                pointer=schema.pointer,
                keyword="$ref",
                hint="break the loop: one of these schemas must describe a value",
            )
        self._open.add(key)
        result = self.formulas.conjunction(self._parts(schema, type_))
        self._open.discard(key)
        self._known[key] = result
        return result

    def restrict(self, formula: int, type_: str) -> int:
        """A formula over ``Sat``, for a value known to be of ``type_``: over that type's atoms."""

        def replace(atom: int) -> int:
            payload = self.formulas.payload(atom)
            return self.expand(payload.schema, type_) if isinstance(payload, atoms.Sat) else atom

        return self.formulas.evaluate(formula, replace)

    def _parts(self, schema: Schema, type_: str) -> list[int]:
        contents = schema.contents
        if "$ref" in contents and schema.draft < 2019:  # siblings of $ref are ignored before 2019-09
            return [self._ref(schema, "$ref", type_)]
        if "type" in contents and self._type(schema, "type", type_) == FALSE:
            return [FALSE]
        for keyword in schema.later:
            self.note(schema, keyword, f"not a keyword of draft {schema.draft}, which $schema names: taken as an annotation")
        parts: list[int] = []
        asked: set[Callable[[Schema, Any, str], int]] = set()
        joint = {self._members, self._items, self._content}  # one handler reads all keywords of its kind, so it is asked once
        for keyword in contents:
            handler = self._keywords.get(keyword)
            if handler is None:
                self._look_at_annotation(schema, keyword)
            elif handler not in asked:
                if handler in joint:
                    asked.add(handler)
                parts.append(handler(schema, keyword, type_))
        return parts

    def _look_at_annotation(self, schema: Schema, keyword: str) -> None:
        """Note keywords and drafts that are not known; refuse values that no schema can have there."""
        value = schema.contents[keyword]
        if keyword not in ANNOTATIONS:
            self.note(schema, keyword, "unknown keyword, taken as an annotation")
        elif keyword in ("minContains", "maxContains"):
            self._natural(schema, keyword)
        elif keyword in ("$defs", "definitions") and not isinstance(value, dict):
            raise self._bad(schema, keyword, "an object of schemas")
        elif keyword in ("$schema", "$id", "$anchor", "$dynamicAnchor") and not isinstance(value, str):
            raise self._bad(schema, keyword, "a string")
        elif keyword == "$schema" and not is_known_draft(value):
            self.note(schema, keyword, f"unknown draft {value!r}, read as 2020-12")

    # ---- in-place applicators

    def _all_of(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.conjunction([self.expand(child, type_) for child in self._children(schema, keyword)])

    def _any_of(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.disjunction(self._constants_joined([self.expand(child, type_) for child in self._children(schema, keyword)]))

    def _one_of(self, schema: Schema, keyword: str, type_: str) -> int:
        parts = [self.expand(child, type_) for child in self._children(schema, keyword)]
        return self.formulas.exactly_one(self._constants_joined(parts, exclusive=True))

    def _constants_joined(self, parts: list[int], exclusive: bool = False) -> list[int]:
        """``parts`` with those that only list constants made one, unless ``exclusive`` and some constant is in two of them."""
        listed: list[Any] = []
        rest: list[int] = []
        make: Callable[[tuple[Any, ...]], Any] = atoms.StringIn
        for part in parts:
            payload = self.formulas.payload(part)
            if isinstance(payload, (atoms.StringIn, atoms.NumberIn)):
                listed.extend(payload.values)
            elif isinstance(payload, atoms.NumberEquals):
                listed.append(payload.value)
            else:
                rest.append(part)
            if isinstance(payload, (atoms.NumberIn, atoms.NumberEquals)):
                make = atoms.NumberIn
        distinct = tuple(dict.fromkeys(listed))
        if len(parts) - len(rest) < 2 or (exclusive and len(distinct) < len(listed)):
            return parts
        return [self.formulas.atom(make(distinct)), *rest]

    def _not(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.negation(self.expand(self.document.child(schema, schema.contents[keyword], keyword), type_))

    def _if(self, schema: Schema, keyword: str, type_: str) -> int:
        branch = {
            name: self.expand(self.document.child(schema, schema.contents[name], name), type_) if name in schema.contents else TRUE
            for name in ("if", "then", "else")
        }
        return self.formulas.if_then_else(branch["if"], branch["then"], branch["else"])

    def _ref(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.expand(self.document.reference(schema, keyword), type_)
