"""Keywords of objects and arrays: obligations on members and items, which expand when those are reached."""

from __future__ import annotations

import math
from typing import Any

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.constants import item_constants
from stcc.compiler.frontends.json_schema.document import Schema
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.reading import Keywords
from stcc.compiler.frontends.json_schema.unevaluated import unevaluated

UNIQUE_SETS = 2048
"""Most sets of items seen that ``uniqueItems`` tracks in the states of one array; past it whoever decodes keeps the items."""


class ContainerKeywords(Keywords):
    """Handlers of the keywords of objects and arrays."""

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
            return self.formulas.atom(atoms.Distinct())
        candidates = tuple(
            self.sat(self.document.child(schema, {"enum": [constant]}, keyword, index)) for index, constant in enumerate(constants)
        )
        return self.formulas.atom(atoms.Unique(candidates, frozenset()))

    def _unevaluated(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != ("object" if keyword == "unevaluatedProperties" else "array") or schema.contents[keyword] is True:
            return TRUE
        return unevaluated(self, schema, keyword, type_)


def _subsets(count: int, most: Any) -> int:
    largest = min(count, most) if isinstance(most, int) else count
    return sum(math.comb(count, size) for size in range(largest + 1)) if count <= 64 else UNIQUE_SETS + 1
