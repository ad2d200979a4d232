"""The OpenAPI front end: one part of one operation becomes a JSON Schema document.

    reading.py       JSON or YAML text -> plain data
    operations.py    operations, and where their schemas stand
    translation.py   schemas of 3.0 and 3.1 -> 2020-12, with all that they refer to

>>> api = {"openapi": "3.1.0", "paths": {"/ping": {"get": {"operationId": "ping", "responses": {"200": {
...     "content": {"application/json": {"schema": {"const": "pong"}}}}}}}}}
>>> [operation.name for operation in list_operations(api)]
['ping']
>>> operation_schema(api, "ping", "response")[0]["$ref"]
'#/paths/~1ping/get/responses/200/content/application~1json/schema'
"""

from __future__ import annotations

from typing import Any

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.openapi.operations import PARTS, Operation, Operations, Place
from stcc.compiler.frontends.openapi.reading import read_document
from stcc.compiler.frontends.openapi.translation import Translation

OPENAPI_HOLDERS = ("components", "paths")
"""Keys of the translated document that hold what it refers to, and ask for nothing."""

__all__ = ["OPENAPI_HOLDERS", "PARTS", "Operation", "list_operations", "operation_schema", "read_document"]


def list_operations(document: Any, max_depth: int = 128) -> list[Operation]:
    """The operations of an OpenAPI document (data, or JSON or YAML text), in its order. Raises CompileError as ``read_document``."""
    return [described for described, _, _ in Operations(read_document(document, max_depth)).found.values()]


def operation_schema(
    document: Any, operation: str, part: str = "request", status: str | None = None, media_type: str | None = None, *,
    max_depth: int = 128, enforce_formats: bool = True,
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The JSON Schema (2020-12) of one part of an operation, and warnings ``{pointer, keyword, message}``.

    Args:
        document: data, or JSON or YAML text.
        operation: an ``operationId``, or ``METHOD /path``.
        part: ``request`` (the body), ``response``, or ``parameters``: an object with one member a parameter, by its name.
        status: of the response; also found under ``2XX`` or ``default``. None: 200, else the first success that has content.
        media_type: where there are several JSON ones; default: the plainest.
        max_depth: deepest nesting of the document.
        enforce_formats: whether the formats that OpenAPI defines are enforced.

    Raises:
        SourceError: the document is broken, or has no such operation or part.
        UnsupportedError: a version, or a media type that is not JSON.
        BudgetError: a document too large or too deep.
    """
    if part not in PARTS:
        raise SourceError(f"{part!r} is no part of an operation", pointer="#/paths", hint=f"there are {', '.join(PARTS)}")
    if part != "response" and status is not None:
        raise SourceError(f"a status says nothing of the {part}", pointer="#/paths", hint="leave it out")
    if part == "parameters" and media_type is not None:
        raise SourceError("a media type says nothing of parameters", pointer="#/paths", hint="leave it out")
    operations = Operations(read_document(document, max_depth))
    translation = Translation(operations, request=part != "response", enforce_formats=enforce_formats)
    if part == "parameters":
        top = _parameters(operations, operation, translation)
    else:
        top = _referred(operations.body(operation, part, status, media_type), translation)
    return translation.document(top), translation.warnings


def _referred(media: Place, translation: Translation) -> dict[str, Any]:
    """A reference to the schema of a Media Type Object; a media type without one may hold any JSON."""
    schema = media.child("schema")
    if schema.value is None:
        translation.note(media, "schema", "there is no schema: any JSON text is taken")
        return {}
    return translation.reference(schema)


def _parameters(operations: Operations, operation: str, translation: Translation) -> dict[str, Any]:
    """The closed object with one member for each parameter."""
    members: dict[str, Any] = {}
    required = []
    for place in operations.parameters(operation):
        name = place.value["name"]
        if name in members:
            raise SourceError(f"two parameters of {operation} are called {name}", pointer=place.pointer, keyword="parameters",
                              hint="rename one, since parameters are the members of one object here")
        media = [each for _, each in place.child("content").items]
        members[name] = _referred(media[0] if media else place, translation)
        if place.value.get("required") is True or place.value["in"] == "path":
            required.append(name)
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}
