"""String formats of JSON Schema as DFAs over raw string content.

In: a format's name. Out: its minimal Dfa over UTF-8 (label 0), or None for a name that is only an annotation. A format never accepts
what its standard rejects; where it refuses something valid, its module says so, and docs/formats.md lists all such places. Draft 3's
``host-name`` and ``ip-address``, ``color``, ``phone`` and OpenAPI's numeric formats are annotations. Cost: milliseconds, once a process.

>>> string_format("date").match(b"2024-02-29"), string_format("date").match(b"2023-02-29"), string_format("int32")
(0, -1, None)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from stcc.compiler.dfa import Dfa
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.scalars import expressions, hosts, internationalized, mail, resources, times


def _idn_hostname() -> Dfa:
    return compile_pattern(internationalized.name(), mode="fullmatch")


_PATTERNS = {
    "date": times.DATE,
    "date-time": times.DATE_TIME,
    "duration": times.DURATION,
    "ipv4": hosts.IPV4,
    "ipv6": hosts.IPV6,
    "iri": resources.IRI,
    "iri-reference": resources.IRI_REFERENCE,
    "json-pointer": resources.JSON_POINTER,
    "regex": expressions.REGEX,
    "relative-json-pointer": resources.RELATIVE_JSON_POINTER,
    "time": times.TIME,
    "uri": resources.URI,
    "uri-reference": resources.URI_REFERENCE,
    "uri-template": resources.URI_TEMPLATE,
    "uuid": resources.UUID,
}
_BUILDERS: dict[str, Callable[[], Dfa]] = {
    **{name: partial(compile_pattern, pattern, mode="fullmatch") for name, pattern in _PATTERNS.items()},
    "email": mail.email,
    "hostname": hosts.hostname,
    "idn-email": mail.idn_email,
    "idn-hostname": _idn_hostname,
}

KNOWN_FORMATS = frozenset(_BUILDERS)
"""Names that ``string_format`` enforces."""


@cache
def _built(name: str) -> Dfa:
    return _BUILDERS[name]()


def string_format(name: str) -> Dfa | None:
    """The Dfa of format ``name``, over the raw UTF-8 content of the string; None if the name is an annotation only."""
    return _built(name) if name in KNOWN_FORMATS else None
