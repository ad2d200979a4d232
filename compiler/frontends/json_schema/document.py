"""The schema document: parsed once, every subschema numbered, every reference resolved, nothing fetched.

In: a dict, a bool, JSON text or a Python type (``types.py``). Out: a ``Document`` whose ``schemas`` are numbered on demand; equal
subschemas without references share a number, so that equal places of a large document are one state later. Numbers are read as
``Decimal``, so that bounds stay exact. Other documents come from ``Options.schemas`` only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema_specifications
import referencing
import referencing.exceptions
import referencing.jsonschema

from stcc.compiler.errors import BudgetError, SourceError, UnsupportedError
from stcc.compiler.frontends.json_schema.drafts import of_draft
from stcc.compiler.frontends.json_schema.types import is_type, type_schema
from stcc.compiler.options import Options

_REFERENCE_KEYWORDS = frozenset(
    ("$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema")
)
_DRAFTS = {
    "json-schema.org/draft-03/schema": 3,
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
_SPECIFICATIONS = {
    4: referencing.jsonschema.DRAFT4,
    6: referencing.jsonschema.DRAFT6,
    7: referencing.jsonschema.DRAFT7,
    2019: referencing.jsonschema.DRAFT201909,
    2020: referencing.jsonschema.DRAFT202012,
}
_MOST_DIGITS = 4_000
"""Longest integer read; Python refuses to spell much longer ones."""
_UNNAMED = "urn:stcc:schema"


@dataclass(frozen=True)
class Schema:
    """One subschema: its contents, where it stands, the draft it follows, what resolves its references, and its keywords that are not of
    that draft, which ``contents`` lacks.
    """

    contents: Any
    pointer: str
    draft: int
    resolver: Any
    later: tuple[str, ...] = ()


def parse_schema(source: Any, max_depth: int = 128) -> Any:
    """The schema as plain data (dict or bool, Decimals for fractions). Raises SourceError, and BudgetError past ``max_depth``."""
    levels = 3 * max_depth  # a level of a schema is two or three of JSON: properties, a name, items
    if isinstance(source, (bytes, str)):
        value = _parse_text(source)
        check_depth(value, levels)
        return value
    value = type_schema(source) if is_type(source) else source
    if isinstance(value, (Mapping, bool)):
        check_depth(value, levels)
        return _decimals(value)
    raise SourceError(f"a schema is a dict, a bool, JSON text, a pydantic model class or another type, not {type(source).__name__}")


def _parse_text(source: bytes | str) -> Any:
    try:
        text = source.decode("utf-8-sig") if isinstance(source, bytes) else source
        value = json.loads(
            text, parse_float=_decimal, parse_int=_integer, parse_constant=_refuse_constant, object_pairs_hook=_distinct_names
        )
    except UnicodeDecodeError as error:
        raise SourceError("the schema is not UTF-8 text", pointer=f"offset {error.start}", hint="save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise SourceError(
            f"broken JSON: {error.msg}", pointer=f"line {error.lineno} column {error.colno}", hint="fix the text here"
        ) from None
    except RecursionError:
        raise BudgetError("the JSON text is nested too deeply to read", hint="flatten the schema with $defs and $ref") from None
    if not isinstance(value, (dict, bool)):
        raise SourceError(
            f"a schema is an object or a Boolean, not {json_type(value)}", pointer="#", hint='wrap it: {"enum": [...]} or {"const": ...}'
        )
    return value


def _refuse_constant(name: str) -> Any:
    raise SourceError(f"{name} is not JSON", hint="use a number, or leave the bound out")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _too_many_digits(text) from None


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _too_many_digits(text)
    return int(text)


def _too_many_digits(text: str) -> BudgetError:
    return BudgetError(f"the number {text} is out of proportion", hint="use a number that a double can hold")


def _distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, unless a name has two different values: one of them would be dropped."""
    value = dict(pairs)
    if len(value) < len(pairs):
        for name, item in pairs:
            if item != value[name] or json_type(item) != json_type(value[name]):
                raise SourceError(f"the name {name!r} occurs twice in one object, with different values", keyword=name,
                                  hint="remove one of them")
    return value


def check_depth(value: Any, levels: int) -> None:
    """Raise BudgetError where containers nest deeper than ``levels``; iterative, so that no depth can exhaust the stack."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            item
            for container in layer
            if isinstance(container, (Mapping, list, tuple))
            for item in (container.values() if isinstance(container, Mapping) else container)
        ]
        if not layer:
            return
    raise BudgetError(
        f"the schema's JSON nests more than {levels} levels deep",
        pointer="#",
        hint="raise max_depth (--max-depth), or flatten it with $defs and $ref"
    )


def _decimals(value: Any) -> Any:
    """``value`` with floats as Decimals (their shortest decimal spelling), containers copied."""
    if isinstance(value, Mapping):
        return {str(key): _decimals(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_decimals(item) for item in value]
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise SourceError(f"{value} is not JSON", hint="use a finite number")
        return Decimal(repr(value))
    if isinstance(value, int) and value.bit_length() > 3 * _MOST_DIGITS:
        raise BudgetError(f"the schema holds a number of {value.bit_length():,} bits", hint="use a number that a double can hold")
    if value is None or isinstance(value, (str, int, Decimal)):
        return value
    raise SourceError(f"the schema holds a {type(value).__name__}, which is not JSON")


def json_type(value: Any) -> str:
    """The JSON type of plain data; integers are numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _mentions_dynamic(contents: Any) -> bool:
    """Whether dynamic references may be followed: they occur, or a reference may enter a meta-schema that uses them."""
    text = contents if isinstance(contents, (str, bytes)) else repr(contents)
    marks = ("$dynamicRef", "$recursiveRef", "json-schema.org/draft/20")
    return any((mark.encode() if isinstance(text, bytes) else mark) in text for mark in marks)  # type: ignore[operator]


def utf8(text: str, keyword: str) -> bytes:
    """``text`` as UTF-8. Raises UnsupportedError, naming ``keyword``, for lone surrogates, which JSON can write and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        message = f"{text[:60]!r} holds a lone surrogate, which UTF-8 cannot spell"
        raise UnsupportedError(message, keyword=keyword, hint="remove it, or replace it by U+FFFD") from None


def escape_pointer(token: str) -> str:
    """``token`` as one reference token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def declared_draft(contents: Any, fallback: int) -> int:
    """The draft that ``$schema`` names, ``fallback`` where it is absent or unknown."""
    named = contents.get("$schema") if isinstance(contents, dict) else None
    return _DRAFTS.get(_without_scheme(named), fallback) if isinstance(named, str) else fallback


def is_known_draft(name: str) -> bool:
    """Whether ``$schema: name`` names a draft."""
    return _without_scheme(name) in _DRAFTS


def _without_scheme(uri: str) -> str:
    return uri.rstrip("#").removeprefix("https://").removeprefix("http://")


class Document:
    """Subschemas by number. ``number`` interns, ``schemas[n]`` describes."""

    def __init__(self, contents: Any, options: Options) -> None:
        self.options = options
        self.schemas: list[Schema] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._content_keys: dict[int, tuple[int, bool]] = {}
        self._contents: dict[Any, int] = {}
        self._held: list[Any] = []
        self._reaching: dict[tuple[int, str], bool] = {}
        draft = declared_draft(contents, 2020)
        self._dynamic = any(_mentions_dynamic(each) for each in (contents, *options.schemas.values()))
        registry: Any = jsonschema_specifications.REGISTRY
        for uri, other in options.schemas.items():
            registry = registry.with_resource(uri, self._resource(parse_schema(other, options.max_depth), draft))
        base = contents.get("$id", contents.get("id") if draft == 4 else None) if isinstance(contents, dict) else None
        base = (base.rstrip("#") if isinstance(base, str) else "") or _UNNAMED  # an empty fragment names the document itself
        resource = self._resource(contents, draft)
        try:
            registry = registry.with_resource(base, resource).with_resource(_UNNAMED, resource)
            resolver = registry.resolver(base)
        except Exception as error:  # referencing raises many kinds on malformed $id or $anchor
            raise SourceError(
                f"the document's identifiers cannot be read: {error}", pointer="#", keyword="$id", hint="give $id an absolute URI"
            ) from None
        self.root = self.number(contents, "#", draft, resolver)

    @staticmethod
    def _resource(contents: Any, draft: int) -> Any:
        specification: Any = _SPECIFICATIONS.get(declared_draft(contents, draft), referencing.jsonschema.DRAFT202012)
        return specification.create_resource(contents)

    def number(self, contents: Any, pointer: str, draft: int, resolver: Any) -> int:
        """The number of subschema ``contents`` met at ``pointer``."""
        if not isinstance(contents, (dict, bool)):
            raise SourceError(
                f"a subschema is an object or a Boolean, not {json_type(contents)}", pointer=pointer, hint="write a schema here"
            )
        content, refers = self._content_key(contents)
        key = (content, draft, *(self._scope(content, contents, resolver) if refers else ()))
        number = self._numbers.get(key)
        if number is None:
            if pointer.count("/") > 2 * self.options.max_depth:
                raise BudgetError(
                    f"the schema is nested more than {self.options.max_depth} levels deep",
                    pointer=pointer,
                    hint="raise max_depth (--max-depth), or flatten it with $defs and $ref",
                )
            number = self._numbers[key] = len(self.schemas)
            spoken, later = of_draft(contents, draft)
            self.schemas.append(Schema(spoken, pointer, draft, resolver, later))
        return number

    def _scope(self, content: int, contents: Any, resolver: Any) -> tuple[str, ...]:
        """What references inside a subschema depend on: the base, and for dynamic ones each resource entered, outermost first."""
        if not self._dynamic or not self._reaches_dynamic(content, contents, resolver):
            return (resolver._base_uri,)
        return resolver._base_uri, *dict.fromkeys(reversed([uri for uri, _ in resolver.dynamic_scope()]))

    def _reaches_dynamic(self, content: int, contents: Any, resolver: Any) -> bool:
        """Whether a dynamic reference occurs in a subschema or in what its references lead to. (True where bases change inside.)"""
        root = (content, resolver._base_uri)
        known = self._reaching.get(root)
        if known is None:
            seen, queue = {root}, [(contents, resolver)]
            known = False
            while queue and not known:
                known = self._look_for_dynamic(*queue.pop(), seen, queue)
            self._reaching.update(dict.fromkeys([root] if known else seen, known))
        return known

    def _look_for_dynamic(self, contents: Any, resolver: Any, seen: set[tuple[int, str]], queue: list[tuple[Any, Any]]) -> bool:
        """Whether ``contents`` has a dynamic reference; what its other references lead to is added to ``seen`` and ``queue``."""
        values = [contents]
        for value in values:  # grows while it is walked
            if isinstance(value, (dict, list)):
                values.extend(value.values() if isinstance(value, dict) else value)
            if isinstance(value, dict):
                if "$dynamicRef" in value or "$recursiveRef" in value or (value is not contents and ("$id" in value or "id" in value)):
                    return True
                if isinstance(value.get("$ref"), str):
                    try:
                        found = resolver.lookup(value["$ref"])
                    except Exception:  # told where the reference is followed
                        continue
                    place = (self._content_key(found.contents)[0], found.resolver._base_uri)
                    if place not in seen:
                        seen.add(place)
                        queue.append((found.contents, found.resolver))
        return False

    def child(self, parent: Schema, contents: Any, *tokens: str | int) -> int:
        """The number of a subschema found in ``parent`` under ``tokens``."""
        resolver, draft = parent.resolver, parent.draft
        if isinstance(contents, dict):
            draft = declared_draft(contents, draft)
            identifier = contents.get("id" if draft == 4 else "$id")
            if isinstance(identifier, str):
                resolver = self._inside(contents, draft, resolver, parent.pointer)
        path = "/".join(escape_pointer(str(token)) for token in tokens)
        return self.number(contents, f"{parent.pointer}/{path}", draft, resolver)

    def _inside(self, contents: Any, draft: int, resolver: Any, pointer: str) -> Any:
        try:
            return resolver.in_subresource(self._resource(contents, draft))
        except Exception as error:
            raise SourceError(f"the identifier cannot be read: {error}", pointer=pointer, keyword="$id", hint="give $id a URI") from None

    def reference(self, schema: Schema, keyword: str) -> int:
        """The number of the schema that ``schema``'s ``$ref`` names. Raises SourceError where it leads nowhere."""
        target = schema.contents[keyword]
        if not isinstance(target, str):
            raise SourceError("a reference is a string", pointer=schema.pointer, keyword=keyword)
        try:
            if keyword == "$recursiveRef":
                found = referencing.jsonschema.lookup_recursive_ref(schema.resolver)
            else:
                found = schema.resolver.lookup(target)
        except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchResource, ValueError, KeyError, IndexError, TypeError):
            raise SourceError(
                f"{target!r} cannot be resolved",
                pointer=schema.pointer,
                keyword=keyword,
                hint="define it in this document, or pass its document in Options.schemas; nothing is fetched",
            ) from None
        pointer = target if target.startswith("#") else f"{schema.pointer}/{keyword}"
        return self.number(found.contents, pointer, declared_draft(found.contents, schema.draft), found.resolver)

    def _content_key(self, value: Any) -> tuple[int, bool]:
        """A number for equal contents (bottom-up, each object once), and whether references or identifiers occur inside."""
        known = self._content_keys.get(id(value))
        if known is not None:
            return known
        refers = False
        key: Any
        if isinstance(value, dict):
            parts = []
            for name, item in value.items():
                part, inner = self._content_key(item)
                refers = refers or inner or name in _REFERENCE_KEYWORDS
                parts.append((name, part))
            key = ("object", *parts)
        elif isinstance(value, list):
            keys = [self._content_key(item) for item in value]
            refers = any(inner for _, inner in keys)
            key = ("array", *(part for part, _ in keys))
        else:
            key = (json_type(value), value)
        number = self._contents.setdefault(key, len(self._contents))
        if isinstance(value, (dict, list)):
            self._content_keys[id(value)] = (number, refers)
            self._held.append(value)  # keeps id() unique while the table lives
        return number, refers
