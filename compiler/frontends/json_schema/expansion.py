"""Keyword by keyword: what a schema asks of a value of one JSON type, as a formula over that type's atoms.

``expand(schema, type)`` is pure and memoised. In-place applicators (``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``, ``$ref``, ``dependent*``) expand here and now, at
the same type; applicators to children become atoms that hold ``Sat`` formulas and expand when the child is reached, which is what
lets recursive schemas terminate. A keyword that is not enforced is refused, or recorded under ``unenforced="warn"``; an
unknown one is an annotation and is reported once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from stcc.compiler.errors import SourceError, UnsupportedError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.document import Document, Schema, json_type
from stcc.compiler.frontends.json_schema.constants import item_constants
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas
from stcc.compiler.frontends.json_schema.unevaluated import unevaluated
from stcc.compiler.scalars.formats import KNOWN_FORMATS

ANNOTATIONS = frozenset((
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
    "example", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "minContains", "maxContains",
    "additionalItems", "then", "else",
))
UNIQUE_SETS = 2048
"""Most sets of items seen that ``uniqueItems`` may track in one array."""


class Expander:
    """Expands the schemas of one document into one formula store."""

    def __init__(self, document: Document, formulas: Formulas) -> None:
        self.document, self.formulas, self.options = document, formulas, document.options
        self.warnings: list[dict[str, str]] = []
        self.unenforced: list[dict[str, str]] = []
        self.pattern_places: dict[str, str] = {}
        self._known: dict[tuple[int, str], int] = {}
        self._open: set[tuple[int, str]] = set()
        self._orders: dict[int, tuple[str, ...]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._keywords: dict[str, Callable[[Schema, Any, str], int]] = {
            "type": self._type, "enum": self._enum, "const": self._const,
            "allOf": self._all_of, "anyOf": self._any_of, "oneOf": self._one_of, "not": self._not, "if": self._if,
            "$ref": self._ref, "$dynamicRef": self._ref, "$recursiveRef": self._ref, "unevaluatedProperties": self._unevaluated, "unevaluatedItems": self._unevaluated,
            "minLength": self._length, "maxLength": self._length, "pattern": self._pattern, "format": self._format,
            "minimum": self._bound, "maximum": self._bound, "exclusiveMinimum": self._exclusive, "exclusiveMaximum": self._exclusive,
            "multipleOf": self._multiple, "divisibleBy": self._multiple,
            "properties": self._members, "patternProperties": self._members, "additionalProperties": self._members,
            "required": self._required, "minProperties": self._count, "maxProperties": self._count, "propertyNames": self._property_names,
            "dependentRequired": self._dependencies, "dependentSchemas": self._dependencies, "dependencies": self._dependencies,
            "prefixItems": self._items, "items": self._items, "minItems": self._count, "maxItems": self._count,
            "contains": self._contains, "uniqueItems": self._unique,
        }

    def sat(self, number: int) -> int:
        """The formula "the value satisfies schema ``number``"."""
        contents = self.document.schemas[number].contents
        if isinstance(contents, bool):
            return TRUE if contents else FALSE
        return TRUE if not contents else self.formulas.atom(atoms.Sat(number))

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
            raise SourceError("the reference leads back to itself without reading anything", pointer=schema.pointer, keyword="$ref",
                              hint="break the loop: one of these schemas must describe a value")
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
        return self.formulas.substitute(formula, replace)

    def _parts(self, schema: Schema, type_: str) -> list[int]:
        contents = schema.contents
        if "$ref" in contents and schema.draft < 2019:  # siblings of $ref are ignored before 2019-09
            return [self._ref(schema, "$ref", type_)]
        if "type" in contents and self._type(schema, "type", type_) == FALSE:
            return [FALSE]
        parts: list[int] = []
        done: set[Callable[[Schema, Any, str], int]] = set()
        for keyword in contents:
            handler = self._keywords.get(keyword)
            if handler is None:
                self._note_unknown(schema, keyword)
            elif handler not in done or handler not in (self._members, self._items):
                done.add(handler)
                parts.append(handler(schema, keyword, type_))
        if self.options.additional_properties == "closed" and type_ == "object" and "properties" in contents and self._members not in done:
            parts.append(self._members(schema, "properties", type_))
        return parts

    def _note_unknown(self, schema: Schema, keyword: str) -> None:
        if keyword not in ANNOTATIONS:
            self.note(schema, keyword, "unknown keyword, taken as an annotation")

    def note(self, schema: Schema, keyword: str, message: str) -> None:
        """Record a warning, once per keyword and message."""
        if (keyword, message) not in self._noted:
            self._noted.add((keyword, message))
            self.warnings.append({"pointer": schema.pointer, "keyword": keyword, "message": message})

    def leave(self, schema: Schema, keyword: str, message: str, hint: str) -> int:
        """Refuse a keyword, or leave it unenforced where the user chose so."""
        if self.options.unenforced == "error":
            raise UnsupportedError(message, pointer=schema.pointer, keyword=keyword, hint=f"{hint}, or pass unenforced='warn'")
        entry = {"pointer": schema.pointer, "keyword": keyword, "message": message}
        if entry not in self.unenforced:
            self.unenforced.append(entry)
        return TRUE

    def _bad(self, schema: Schema, keyword: str, expected: str) -> SourceError:
        found = schema.contents[keyword]
        return SourceError(f"expected {expected}, found {json_type(found)} {str(found)[:60]!r}", pointer=schema.pointer, keyword=keyword,
                           hint="correct the schema here")

    def _children(self, schema: Schema, keyword: str) -> list[int]:
        value = schema.contents[keyword]
        if not isinstance(value, list):
            raise self._bad(schema, keyword, "a list of schemas")
        return [self.document.child(schema, item, keyword, index) for index, item in enumerate(value)]

    def _named_children(self, schema: Schema, keyword: str) -> list[tuple[str, int]]:
        value = schema.contents.get(keyword, {})
        if not isinstance(value, dict):
            raise self._bad(schema, keyword, "an object of schemas")
        return [(name, self.document.child(schema, item, keyword, name)) for name, item in value.items()]

    def _natural(self, schema: Schema, keyword: str) -> int:
        value = schema.contents[keyword]
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or value != int(min(max(value, -1), 10**12)) or value < 0:
            raise self._bad(schema, keyword, "a natural number")
        return int(value)

    # ---- any type

    def _type(self, schema: Schema, keyword: str, type_: str) -> int:
        named = schema.contents[keyword]
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list) or any(not isinstance(name, str) or name not in (*atoms.TYPES, "integer", "any") for name in names):
            raise self._bad(schema, keyword, f"one or a list of {', '.join(atoms.TYPES)}, integer")
        if type_ in names or "any" in names:
            return TRUE
        if type_ == "number" and "integer" in names:
            return self.formulas.atom(atoms.NumberIntegral(schema.draft == 4))
        return FALSE

    def _enum(self, schema: Schema, keyword: str, type_: str) -> int:
        values = schema.contents[keyword]
        if not isinstance(values, list):
            raise self._bad(schema, keyword, "a list of values")
        values = [value for value in values if json_type(value) == type_]
        if type_ == "string":
            return self.formulas.atom(atoms.StringIn(tuple(dict.fromkeys(values)))) if values else FALSE
        return self.formulas.disjunction([self._equal(schema, value, (keyword, index)) for index, value in enumerate(values)])

    def _const(self, schema: Schema, keyword: str, type_: str) -> int:
        value = schema.contents[keyword]
        return self._equal(schema, value, (keyword,)) if json_type(value) == type_ else FALSE

    def _equal(self, schema: Schema, value: Any, path: tuple[str | int, ...]) -> int:
        """The value equals ``value``, given that the types agree."""
        formulas = self.formulas
        if value is None:
            return TRUE
        if isinstance(value, bool):
            return formulas.atom(atoms.BooleanIs(value))
        if isinstance(value, str):
            return formulas.atom(atoms.StringIn((value,)))
        if isinstance(value, (int, Decimal)):
            return formulas.atom(atoms.NumberEquals(Decimal(value)))
        def constant(item: Any, token: str | int) -> int:
            return self.sat(self.document.child(schema, {"const": item}, *path, token))
        if isinstance(value, list):
            parts = tuple(constant(item, index) for index, item in enumerate(value))
            return formulas.conjunction([formulas.atom(atoms.Items(parts, FALSE)), self._at_least(len(value))])
        members = tuple((name, constant(item, name)) for name, item in value.items())
        return formulas.conjunction([formulas.atom(atoms.Members(members, (), FALSE)), *(formulas.atom(atoms.Has(name)) for name in value)])

    # ---- in-place applicators

    def _all_of(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.conjunction([self.expand(child, type_) for child in self._children(schema, keyword)])

    def _any_of(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.disjunction([self.expand(child, type_) for child in self._children(schema, keyword)])

    def _one_of(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.exactly_one([self.expand(child, type_) for child in self._children(schema, keyword)])

    def _not(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.formulas.negation(self.expand(self.document.child(schema, schema.contents[keyword], keyword), type_))

    def _if(self, schema: Schema, keyword: str, type_: str) -> int:
        branch = {name: self.expand(self.document.child(schema, schema.contents[name], name), type_) if name in schema.contents else TRUE
                  for name in ("if", "then", "else")}
        return self.formulas.if_then_else(branch["if"], branch["then"], branch["else"])

    def _ref(self, schema: Schema, keyword: str, type_: str) -> int:
        return self.expand(self.document.reference(schema, keyword), type_)

    def _unevaluated(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != ("object" if keyword == "unevaluatedProperties" else "array") or schema.contents[keyword] is True:
            return TRUE
        return unevaluated(self, schema, keyword, type_)

    # ---- strings

    def _length(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "string":
            return TRUE
        bound = self._natural(schema, keyword)
        if keyword == "minLength":
            return self.formulas.atom(atoms.StringLength(bound, None)) if bound else TRUE
        return self.formulas.atom(atoms.StringLength(0, bound))

    def _pattern(self, schema: Schema, keyword: str, type_: str) -> int:
        pattern = schema.contents[keyword]
        if not isinstance(pattern, str):
            raise self._bad(schema, keyword, "a regular expression")
        if type_ != "string":
            return TRUE
        self.pattern_places.setdefault(pattern, schema.pointer)
        return self.formulas.atom(atoms.StringPattern(pattern))

    def _format(self, schema: Schema, keyword: str, type_: str) -> int:
        name = schema.contents[keyword]
        if not isinstance(name, str):
            raise self._bad(schema, keyword, "the name of a format")
        if type_ != "string" or self.options.formats == "annotate":
            return TRUE
        if name not in KNOWN_FORMATS:
            self.note(schema, keyword, f"unknown format {name!r}, taken as an annotation")
            return TRUE
        return self.formulas.atom(atoms.StringFormat(name))

    # ---- numbers

    def _number(self, schema: Schema, keyword: str) -> Decimal:
        value = schema.contents[keyword]
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise self._bad(schema, keyword, "a number")
        return Decimal(value)

    def _bound(self, schema: Schema, keyword: str, type_: str) -> int:
        bound = self._number(schema, keyword)
        exclusive = schema.contents.get("exclusiveMinimum" if keyword == "minimum" else "exclusiveMaximum") is True
        return self._limit(keyword == "minimum", bound, exclusive) if type_ == "number" else TRUE

    def _exclusive(self, schema: Schema, keyword: str, type_: str) -> int:
        if isinstance(schema.contents[keyword], bool):  # draft 4: modifies minimum or maximum, handled there
            return TRUE
        bound = self._number(schema, keyword)
        return self._limit(keyword == "exclusiveMinimum", bound, True) if type_ == "number" else TRUE

    def _limit(self, lower: bool, bound: Decimal, exclusive: bool) -> int:
        return self.formulas.atom((atoms.NumberAtLeast if lower else atoms.NumberAtMost)(bound, exclusive))

    def _multiple(self, schema: Schema, keyword: str, type_: str) -> int:
        factor = self._number(schema, keyword)
        if factor <= 0:
            raise self._bad(schema, keyword, "a number above 0")
        return self.formulas.atom(atoms.NumberMultiple(factor)) if type_ == "number" else TRUE

    # ---- objects

    def _members(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "object":
            return TRUE
        properties = tuple((name, self.sat(child)) for name, child in self._named_children(schema, "properties"))
        patterns = tuple((name, self.sat(child)) for name, child in self._named_children(schema, "patternProperties"))
        for pattern, _ in patterns:
            self.pattern_places.setdefault(pattern, schema.pointer)
        extra = TRUE if self.options.additional_properties == "schema" or "properties" not in schema.contents else FALSE
        if "additionalProperties" in schema.contents:
            extra = self.sat(self.document.child(schema, schema.contents["additionalProperties"], "additionalProperties"))
        if extra == TRUE and all(child == TRUE for _, child in (*properties, *patterns)):
            return TRUE
        return self.formulas.atom(atoms.Members(properties, patterns, extra))

    def _required(self, schema: Schema, keyword: str, type_: str) -> int:
        names = schema.contents[keyword]
        if isinstance(names, bool):  # draft 3 spelled it inside the property; elsewhere it is a mistake worth saying
            self.note(schema, keyword, "a Boolean required is draft 3's spelling, taken as an annotation")
            return TRUE
        if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
            raise self._bad(schema, keyword, "a list of property names")
        return self._has(names) if type_ == "object" else TRUE

    def _has(self, names: list[str]) -> int:
        return self.formulas.conjunction([self.formulas.atom(atoms.Has(name)) for name in names])

    def _at_least(self, count: int) -> int:
        return self.formulas.atom(atoms.CountAtLeast(count)) if count else TRUE

    def _count(self, schema: Schema, keyword: str, type_: str) -> int:
        bound = self._natural(schema, keyword)
        if type_ != ("object" if keyword.endswith("Properties") else "array"):
            return TRUE
        return self._at_least(bound) if keyword.startswith("min") else self.formulas.negation(self._at_least(bound + 1))

    def _property_names(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "object":
            return TRUE
        formula = self.sat(self.document.child(schema, schema.contents[keyword], keyword))
        return self.formulas.atom(atoms.Names(formula)) if formula != TRUE else TRUE

    def _dependencies(self, schema: Schema, keyword: str, type_: str) -> int:
        value = schema.contents[keyword]
        if not isinstance(value, dict):
            raise self._bad(schema, keyword, "an object")
        if type_ != "object":
            return TRUE
        parts = []
        for name, needed in value.items():
            if isinstance(needed, str):
                needed = [needed]
            if isinstance(needed, list):
                if any(not isinstance(item, str) for item in needed):
                    raise self._bad(schema, keyword, "lists of property names")
                then = self._has(needed)
            else:
                then = self.expand(self.document.child(schema, needed, keyword, name), type_)
            parts.append(self.formulas.disjunction([self.formulas.negation(self.formulas.atom(atoms.Has(name))), then]))
        return self.formulas.conjunction(parts)

    # ---- arrays

    def _items(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "array":
            return TRUE
        contents = schema.contents
        prefix: list[int] = []
        rest = TRUE
        tuple_keyword = "prefixItems" if "prefixItems" in contents else "items" if isinstance(contents.get("items"), list) else ""
        if tuple_keyword:
            prefix = [self.sat(child) for child in self._children(schema, tuple_keyword)]
        rest_keyword = "additionalItems" if tuple_keyword == "items" else "items"
        if rest_keyword in contents:
            rest = self.sat(self.document.child(schema, contents[rest_keyword], rest_keyword))
        if rest == TRUE and all(item == TRUE for item in prefix):
            return TRUE
        while prefix and prefix[-1] == rest:
            prefix.pop()
        return self.formulas.atom(atoms.Items(tuple(prefix), rest))

    def _contains(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "array":
            return TRUE
        formula = self.sat(self.document.child(schema, schema.contents[keyword], keyword))
        modern = schema.draft >= 2019
        least = self._natural(schema, "minContains") if modern and "minContains" in schema.contents else 1
        parts = [self.formulas.atom(atoms.Contains(formula, least)) if least else TRUE]
        if modern and "maxContains" in schema.contents:
            parts.append(self.formulas.negation(self.formulas.atom(atoms.Contains(formula, self._natural(schema, "maxContains") + 1))))
        return self.formulas.conjunction(parts)

    def _unique(self, schema: Schema, keyword: str, type_: str) -> int:
        value = schema.contents[keyword]
        if not isinstance(value, bool):
            raise self._bad(schema, keyword, "a Boolean")
        most = schema.contents.get("maxItems")
        if type_ != "array" or not value or (isinstance(most, int) and most <= 1):
            return TRUE
        constants = item_constants(self.document, schema)
        if constants is None or _subsets(len(constants), most) > UNIQUE_SETS:
            return self.leave(schema, keyword, f"that all items differ is enforced for at most {UNIQUE_SETS:,} sets of items seen, so for few possible items",
                              "list the items in an enum of ten values or fewer, bound the array with maxItems, or drop it")
        candidates = tuple(self.sat(self.document.child(schema, {"const": constant}, keyword, index)) for index, constant in enumerate(constants))
        return self.formulas.atom(atoms.Unique(candidates, frozenset()))

    # ---- order

    def key_order(self, number: int) -> tuple[str, ...]:
        """Property names in order of appearance over a schema and its in-place applicators (each reference followed once).

        The orders of alternatives are merged so that each keeps its own: a, b, d and a, c, d give a, b, c, d.
        """
        known = self._orders.get(number)
        if known is None:
            self._orders[number] = ()  # a loop of references adds nothing
            schema = self.document.schemas[number]
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
                sequences.extend(self.key_order(child) for child in self._children(schema, keyword))
            elif keyword in ("if", "then", "else"):
                sequences.append(self.key_order(self.document.child(schema, value, keyword)))
            elif keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                sequences.append(self.key_order(self.document.reference(schema, keyword)))
            elif keyword in ("dependentSchemas", "dependencies") and isinstance(value, dict):
                sequences.extend(self.key_order(self.document.child(schema, child, keyword, name)) for name, child in value.items()
                                 if isinstance(child, (dict, bool)))
            late.extend(self._late_keys(schema, keyword, value))
        return sequences, late

    def _late_keys(self, schema: Schema, keyword: str, value: Any) -> list[str]:
        if keyword in ("required", "const", "dependentRequired", "dependencies") and isinstance(value, (list, dict)):
            return [name for name in value if isinstance(name, str)]
        if keyword == "not":
            return list(self.key_order(self.document.child(schema, value, keyword)))
        if keyword == "enum" and isinstance(value, list):
            return [name for item in value if isinstance(item, dict) for name in item]
        return []


def _subsets(count: int, most: Any) -> int:
    largest = min(count, most) if isinstance(most, int) else count
    return sum(math.comb(count, size) for size in range(largest + 1)) if count <= 64 else UNIQUE_SETS + 1


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
