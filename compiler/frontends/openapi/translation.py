"""OpenAPI schemas -> one JSON Schema document of 2020-12.

In: the places of schemas in a document of OpenAPI 3.0 or 3.1. Out: a sparse copy of the document that holds these schemas and all that
they refer to, each once and at its own pointer, so that references stay as they are, recursion is kept, and messages name places of the
OpenAPI document. What is translated, and decided (docs/ways-in.md says why):

- 3.0: ``nullable`` beside ``type`` adds null; Boolean ``exclusiveMinimum`` and ``exclusiveMaximum`` become bounds; keywords beside
  ``$ref`` are ignored, as 3.0 says.
- both: a ``readOnly`` property may not stand in a request, nor a ``writeOnly`` one in a response, and is not required there; a
  ``discriminator`` ties each branch of ``oneOf`` or ``anyOf`` to its names; ``int32``, ``int64`` and 3.0's ``byte`` are enforced.

Cost: linear in the schemas reached, times the different sets of hidden names that one is reached with (one, nearly always).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.json_schema.document import escape_pointer
from stcc.compiler.frontends.openapi.operations import Operations, Place

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
                     "unevaluatedProperties"})
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"})
_SILENT = frozenset({"xml", "externalDocs", "example", "discriminator", "readOnly", "writeOnly", "deprecated", "description", "title",
                     "default", "examples"})
"""Keywords that say nothing of the text; ``discriminator`` and the two flags are read elsewhere."""
_SILENT_FORMATS = frozenset({"float", "double", "password"})
_INTEGERS = {"int32": 31, "int64": 63}
_UNSAFE = re.compile(r"[%#\x00-\x20](?<!^#)")
"""What a reference cannot hold as it is, but for the # that it begins with."""
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

Names = frozenset[str]
NONE: Names = frozenset()


class Translation:
    """One document under construction.

    Args:
        operations: the document.
        request: whether the text is sent to the server: ``readOnly`` properties are hidden then, else ``writeOnly`` ones.
        enforce_formats: whether integer formats and ``byte`` are enforced.
    """

    def __init__(self, operations: Operations, *, request: bool, enforce_formats: bool) -> None:
        self.operations, self.enforce_formats = operations, enforce_formats
        self.old = operations.minor == 0
        self.flag = "readOnly" if request else "writeOnly"
        self.root: dict[str, Any] = {"$schema": DRAFT}
        self.warnings: list[dict[str, str]] = []
        self._placed: dict[tuple[str, Names], str] = {}
        self._queue: list[tuple[Place, Names, list[str]]] = []
        self._hidden: dict[str, Names] = {}
        self._marked: dict[str, bool] = {}

    def document(self, top: Mapping[str, Any]) -> dict[str, Any]:
        """The document whose root is ``top``, made with ``reference``, once everything it refers to is translated."""
        while self._queue:
            place, hidden, path = self._queue.pop()
            holder = self.root
            for name in path[:-1]:
                holder = holder.setdefault(name, {})
            holder[path[-1]] = self.translated(place, hidden)
        return {**self.root, **top}

    def reference(self, place: Place, hidden: Names = NONE) -> dict[str, Any]:
        """A reference to the translation of ``place``; names in ``hidden`` are not required there."""
        hidden = hidden - self.hidden_names(place)
        target = self._placed.get((place.pointer, hidden))
        if target is None:
            tokens = [token.replace("~1", "/").replace("~0", "~") for token in place.pointer[2:].split("/")]
            own = not hidden and (tokens[-1] == "schema" or (tokens[:2] == ["components", "schemas"] and len(tokens) == 3))
            path = tokens if own else ["$defs", " without ".join([place.pointer, *sorted(hidden)])]
            target = "#/" + "/".join(escape_pointer(token) for token in path)
            self._placed[place.pointer, hidden] = target
            self._queue.append((place, hidden, path))
        return {"$ref": _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", target)}

    def translated(self, place: Place, hidden: Names = NONE) -> Any:
        """The schema at ``place`` in 2020-12, names in ``hidden`` not required."""
        schema = place.value
        if isinstance(schema, bool) and not self.old:
            return schema
        if not isinstance(schema, Mapping):
            raise SourceError("a schema is a map", pointer=place.pointer, hint="write a schema here")
        if "$id" in schema:
            self.note(place, "$id", f"a schema with an $id is taken as it is: {self.flag} and references out of it are not looked at")
            return dict(schema)
        if "$ref" in schema and self.old:
            beside = [key for key in schema if key != "$ref" and not _is_silent(key)]
            if beside:
                self.note(place, beside[0], "OpenAPI 3.0 ignores what stands beside $ref; put both in an allOf")
            return self._referred(place, hidden)
        found = self._keywords(place, hidden | self.hidden_names(place))
        if isinstance(schema.get("discriminator"), Mapping):
            self._discriminate(place, found)
        if self.old:
            self._modernise(place, found)
        self._formats(found)
        return found

    def _keywords(self, place: Place, hidden: Names) -> dict[str, Any]:
        """The keywords of a schema, each with the schemas in it translated."""
        found: dict[str, Any] = {}
        for key, value in place.value.items():
            if key == "$ref":
                found.update(self._referred(place, hidden))
            elif key == "required" and isinstance(value, list):
                found[key] = [name for name in value if name not in hidden]
            elif not _is_silent(key):
                found[key] = self._keyword(place, key, value, hidden if key in _IN_PLACE else NONE)
        return found

    def _referred(self, place: Place, hidden: Names) -> dict[str, Any]:
        target = place.value["$ref"]
        if not self.old and isinstance(target, str) and not target.startswith("#/"):
            return {"$ref": target}  # an anchor, or another document: resolved, or refused, as in any schema
        return self.reference(self.operations.lookup(target, place.pointer), hidden)

    def _keyword(self, place: Place, key: str, value: Any, hidden: Names) -> Any:
        """The value of a keyword with the schemas in it translated."""
        inner = place.child(key)
        if key in _MAPS and isinstance(value, Mapping):
            marked = {name for name, each in inner.items if key == "properties" and self.is_marked(each)}
            return {name: False if name in marked else self.translated(each, hidden) for name, each in inner.items}
        if (key in _LISTS or key == "items") and isinstance(value, list):
            return [self.translated(Place(f"{inner.pointer}/{number}", each), hidden) for number, each in enumerate(value)]
        if key in _SINGLE and (isinstance(value, Mapping) or not isinstance(value, bool)):
            return self.translated(inner, hidden)
        return value

    def is_marked(self, place: Place) -> bool:
        """Whether a property is hidden in this direction: it says so, or what it refers to or an ``allOf`` member does."""
        schema = place.value
        if not isinstance(schema, Mapping):
            return False
        known = self._marked.get(place.pointer)
        if known is None:
            self._marked[place.pointer] = False  # what a circle says
            beside = not (self.old and "$ref" in schema)
            known = (beside and schema.get(self.flag) is True) or any(self.is_marked(each) for each in self._members(place))
            self._marked[place.pointer] = known
        return known

    def hidden_names(self, place: Place) -> Names:
        """Names of hidden properties of the object that ``place`` describes, those of references and ``allOf`` members included."""
        known = self._hidden.get(place.pointer)
        if known is None:
            self._hidden[place.pointer] = NONE
            schema = place.value
            beside = not (self.old and isinstance(schema, Mapping) and "$ref" in schema)
            own = frozenset(name for name, each in place.child("properties").items if beside and self.is_marked(each))
            known = own.union(*(self.hidden_names(each) for each in self._members(place)))
            self._hidden[place.pointer] = known
        return known

    def _members(self, place: Place) -> list[Place]:
        """What holds of the same value: the target of ``$ref``, and the members of ``allOf``."""
        schema = place.value
        if not isinstance(schema, Mapping):
            return []
        found = []
        if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#/"):
            found.append(self.operations.lookup(schema["$ref"], place.pointer))
            if self.old:
                return found
        members = schema.get("allOf")
        if isinstance(members, list):
            found += [Place(f"{place.pointer}/allOf/{number}", each) for number, each in enumerate(members)]
        return found

    def _discriminate(self, place: Place, found: dict[str, Any]) -> None:
        """Tie the branches of ``oneOf`` or ``anyOf`` to the names that lead to them."""
        described = place.value["discriminator"]
        name = described.get("propertyName")
        key = "oneOf" if "oneOf" in found else "anyOf"
        if not isinstance(name, str):
            raise SourceError("a discriminator has a propertyName", pointer=f"{place.pointer}/discriminator", keyword="discriminator",
                              hint="name the property that tells the branches apart")
        if not isinstance(place.value.get(key), list):
            self.note(place, "discriminator", "a discriminator without oneOf or anyOf changes nothing")
            return
        mapping = described.get("mapping")
        mapping = mapping if isinstance(mapping, Mapping) else {}
        for number, branch in enumerate(place.value[key]):
            target = branch.get("$ref") if isinstance(branch, Mapping) else None
            if not isinstance(target, str):
                self.note(place, "discriminator", f"branch {number} is not a reference, so that the discriminator says nothing of it")
                continue
            own = target.rpartition("/")[2]
            names = [value for value, led in mapping.items() if led in (target, own)]
            if names or not self._is_fixed(self.operations.lookup(target, place.pointer), name):
                found[key][number] = _both(found[key][number], {"properties": {name: {"enum": names or [own]}}, "required": [name]})

    def _is_fixed(self, place: Place, name: str) -> bool:
        """Whether a branch says itself, by const or enum, what the property may be."""
        place = self.operations.followed(place)
        fixed = self.operations.followed(place.child("properties", name)).value
        return isinstance(fixed, Mapping) and ("const" in fixed or "enum" in fixed)

    def _modernise(self, place: Place, found: dict[str, Any]) -> None:
        """The keywords that 3.0 has in another form."""
        for strict, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(found.get(strict), bool) and found.pop(strict) and bound in found:
                found[strict] = found.pop(bound)
        if found.pop("nullable", False) is not True:
            return
        if isinstance(found.get("type"), str):
            found["type"] = [found["type"], "null"]
            if isinstance(found.get("enum"), list) and None not in found["enum"]:
                self.note(place, "nullable", "null is not in the enum beside it, so that it is not taken (OpenAPI 3.0.3)")
        else:
            self.note(place, "nullable", "nullable without a type beside it changes nothing (OpenAPI 3.0.3)")

    def _formats(self, found: dict[str, Any]) -> None:
        """The formats that OpenAPI itself defines: bounds or a pattern, or nothing."""
        name = found.get("format")
        if not isinstance(name, str) or not self.enforce_formats:
            return
        if name in _SILENT_FORMATS:
            del found["format"]
        elif name in _INTEGERS and "type" in found:
            limit = 1 << _INTEGERS[name]
            del found["format"]
            found["minimum"] = max(found["minimum"], -limit) if _is_number(found.get("minimum")) else -limit
            found["maximum"] = min(found["maximum"], limit - 1) if _is_number(found.get("maximum")) else limit - 1
        elif name == "byte" and self.old:
            del found["format"]
            found.update(_both(found, {"pattern": _BASE64}))

    def note(self, place: Place, keyword: str, message: str) -> None:
        """A warning."""
        self.warnings.append({"pointer": place.pointer, "keyword": keyword, "message": message})


def _both(schema: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A schema that asks for both; side by side where no keyword is in both."""
    if schema.keys().isdisjoint(more):
        return {**schema, **more}
    return {**schema, "allOf": [*schema.get("allOf", []), more]}


def _is_silent(key: str) -> bool:
    return key in _SILENT or key.startswith("x-")


def _is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, (bool, str, list, dict))
