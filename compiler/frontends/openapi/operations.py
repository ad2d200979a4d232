"""The operations of an OpenAPI document, and where the schema of each request body, response or set of parameters stands.

In: a document as plain data. Out: ``Operation`` values in the document's order; for one part of one, the pointers of its schemas.
References between request bodies, responses, parameters and path items are followed inside the document. JSON bodies only:
``application/json``, ``application/...+json`` and the ranges that hold them; other media types are refused, the operation named.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from stcc.compiler.errors import SourceError, UnsupportedError
from stcc.compiler.frontends.json_schema.document import escape_pointer

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PARTS = ("request", "response", "parameters")
_JSON = re.compile(r"(application|\*)/(json|\*|[^;\s]+\+json)\s*(;.*)?", re.IGNORECASE)
_MOST_HOPS = 64
_IGNORED_HEADERS = ("accept", "content-type", "authorization")
"""Header parameters that OpenAPI says describe nothing."""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        name: its ``operationId``, else ``METHOD /path``.
        method: lower case.
        path: its path template.
        statuses: the keys of its responses that have content.
        has_request: whether it has a request body.
        has_parameters: whether it has parameters, its path's among them.
    """

    name: str
    method: str
    path: str
    statuses: tuple[str, ...]
    has_request: bool
    has_parameters: bool


@dataclass(frozen=True)
class Place:
    """A value of the document and its pointer."""

    pointer: str
    value: Any

    def child(self, *names: str) -> Place:
        """The value below, None where there is none."""
        pointer, value = self.pointer, self.value
        for name in names:
            pointer += f"/{escape_pointer(name)}"
            value = value.get(name) if isinstance(value, Mapping) else None
        return Place(pointer, value)

    @property
    def items(self) -> Iterator[tuple[str, Place]]:
        """Names and places of what a map holds; nothing where it is no map."""
        for name in self.value if isinstance(self.value, Mapping) else ():
            yield name, self.child(name)


def version_of(document: Mapping[str, Any]) -> int:
    """Minor version of OpenAPI 3: 0 or 1. SourceError or UnsupportedError for anything else."""
    version = document.get("openapi")
    found = re.fullmatch(r"3\.([01])(\.\d+)?([-+].*)?", str(version)) if isinstance(version, (str, int, float)) or version else None
    if found:
        return int(found.group(1))
    if document.get("swagger"):
        raise UnsupportedError(f"Swagger {document['swagger']} is not read", pointer="#/swagger", keyword="swagger",
                               hint="convert it to OpenAPI 3, with swagger2openapi for one")
    if version is None:
        raise SourceError("it has no openapi version", pointer="#", keyword="openapi", hint="it begins with openapi: 3.1.0")
    raise UnsupportedError(f"OpenAPI {version} is not read", pointer="#/openapi", keyword="openapi", hint="write it in 3.0 or 3.1")


class Operations:
    """The operations of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.minor = version_of(document)
        self.found: dict[str, tuple[Operation, Place, Place]] = {}
        for path, place in Place("#", document).child("paths").items:
            item = self.followed(place)
            for method in METHODS:
                if isinstance(item.value, Mapping) and isinstance(item.value.get(method), Mapping):
                    self._add(path, method, item)

    def _add(self, path: str, method: str, item: Place) -> None:
        operation = item.child(method)
        identifier = operation.value.get("operationId")
        name = identifier if isinstance(identifier, str) and identifier else f"{method.upper()} {path}"
        if name in self.found:
            raise SourceError(f"two operations are called {name}", pointer=operation.pointer, keyword="operationId",
                              hint="give each an operationId of its own")
        statuses = tuple(status for status, each in operation.child("responses").items if self.followed(each).child("content").value)
        described = Operation(name, method, path, statuses, operation.value.get("requestBody") is not None,
                              bool(operation.value.get("parameters") or item.value.get("parameters")))
        self.found[name] = described, operation, item

    def followed(self, place: Place) -> Place:
        """The place that a Reference Object, or a chain of them, leads to."""
        for _ in range(_MOST_HOPS):
            target = place.value.get("$ref") if isinstance(place.value, Mapping) else None
            if target is None:
                return place
            place = self.lookup(target, place.pointer)
        raise SourceError("references lead round in a circle", pointer=place.pointer, keyword="$ref", hint="break the circle")

    def lookup(self, target: Any, pointer: str) -> Place:
        """The value at a pointer into this document; SourceError where there is none, told at ``pointer``."""
        if not isinstance(target, str) or not target.startswith("#/"):
            raise SourceError(f"{target!r} is not in this document", pointer=pointer, keyword="$ref",
                              hint="bundle the documents into one; nothing is fetched")
        value: Any = self.document
        for token in target[2:].split("/"):
            name = _unescaped(token)
            try:
                value = value[int(name)] if isinstance(value, list) else value[name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise SourceError(f"{target!r} leads nowhere", pointer=pointer, keyword="$ref", hint="define it, or correct it") from None
        return Place(target, value)

    def find(self, name: str) -> tuple[Operation, Place, Place]:
        """The operation called ``name`` (an operationId, or ``METHOD /path``), its place and its path item's."""
        known = {**{f"{found[0].method.upper()} {found[0].path}": found for found in self.found.values()}, **self.found}
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            listed = ", ".join(list(self.found)[:12]) or "none"
            raise SourceError(f"there is no operation {name!r}", pointer="#/paths", keyword="operationId",
                              hint=f"did you mean {near[0]}?" if near else f"there are {listed}")
        return known[name]

    def body(self, name: str, part: str, status: str | None, media_type: str | None) -> Place:
        """The Media Type Object's place of a request body or a response."""
        described, operation, _ = self.find(name)
        if part == "request":
            holder, what = self.followed(operation.child("requestBody")), "request body"
        else:
            key = _status(described, operation, status)
            holder, what = self.followed(operation.child("responses", key)), f"response {key}"
        content = holder.child("content")
        if not isinstance(content.value, Mapping) or not content.value:
            raise SourceError(f"{name} has no {what}", pointer=holder.pointer, keyword=part, hint=_offers(described))
        return content.child(_media_type(list(content.value), media_type, f"the {what} of {name}", content.pointer))

    def parameters(self, name: str) -> list[Place]:
        """The parameters of an operation, its own in place of its path's of the same name and ``in``."""
        described, operation, item = self.find(name)
        found: dict[tuple[str, str], Place] = {}
        for holder in (item, operation):
            listed = holder.value.get("parameters") or []
            if not isinstance(listed, list):
                raise SourceError("parameters are a list", pointer=f"{holder.pointer}/parameters", hint="begin each with a dash")
            for number in range(len(listed)):
                place = self.followed(Place(f"{holder.pointer}/parameters/{number}", listed[number]))
                where, called = (place.value.get(key) if isinstance(place.value, Mapping) else None for key in ("in", "name"))
                if not isinstance(where, str) or not isinstance(called, str):
                    raise SourceError("a parameter has a name and an in", pointer=place.pointer, hint="give it both")
                if not (where == "header" and called.lower() in _IGNORED_HEADERS):
                    found[where, called] = place
        if not found:
            raise SourceError(f"{name} has no parameters", pointer=operation.pointer, keyword="parameters", hint=_offers(described))
        return list(found.values())


def _status(described: Operation, operation: Place, status: str | None) -> str:
    """The key of the response that is meant: as given, its range, or ``default``; else the first success that has content."""
    keys = [key for key, _ in operation.child("responses").items]
    if status is not None:
        wanted = [key for key in (status, f"{status[:1]}XX", "default") if key in keys]
    else:
        successes = [key for key in described.statuses if key.upper() != "DEFAULT" and key.startswith("2")]
        wanted = (["200"] if "200" in described.statuses else []) + successes + [key for key in described.statuses if key == "default"]
    if not wanted:
        what = status or "of success that has content"
        raise SourceError(f"{described.name} has no response {what}", pointer=f"{operation.pointer}/responses", keyword="status",
                          hint=_offers(described))
    return wanted[0]


def _media_type(offered: list[str], wanted: str | None, what: str, pointer: str) -> str:
    """The media type that is meant: as given, else the plainest JSON one."""
    if wanted is not None and wanted not in offered:
        raise SourceError(f"{what} is not offered as {wanted}", pointer=pointer, keyword="media type",
                          hint=f"it is as {', '.join(offered)}")
    json_ones = [name for name in ([wanted] if wanted is not None else offered) if _JSON.fullmatch(name.strip())]
    if not json_ones:
        raise UnsupportedError(f"{what} is {', '.join(offered)}, not JSON", pointer=pointer, keyword="media type",
                               hint="leave this operation out; only JSON bodies are compiled")
    return min(json_ones, key=lambda name: (name.partition(";")[0].strip().lower() != "application/json", "*" in name))


def _offers(described: Operation) -> str:
    """What an operation has, for hints."""
    parts = [f"response {status}" for status in described.statuses]
    parts = ["request"] * described.has_request + parts + ["parameters"] * described.has_parameters
    return f"it has {', '.join(parts)}" if parts else "it has no body at all: leave it out"


def _unescaped(token: str) -> str:
    return unquote(token).replace("~1", "/").replace("~0", "~")
