"""JSON values in a canonical form that is equal and hashable exactly where JSON Schema calls values equal.

    null, true, false   None, True, False
    a number            ``Number``: 1, 1.0 and 10e-1 are one
    a string            str, its code points after unescaping
    an array            ``Array``
    an object           ``Object``, whatever the order of its members

In go the bytes of a scalar as spelled, or the parts of a container. Nothing here is recursive in the text: whoever reads it builds
values from the inside out. Cost: linear in the text.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

Value = Any
"""A canonical value; see the module's text."""

LITERALS: dict[bytes, Value] = {b"null": None, b"true": True, b"false": False}
_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_DIGITS = 4000
"""Digits converted at once: Python refuses to read integers of more than 4,300."""
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 0x22: b'\\"', 0x5C: b"\\\\"}
_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')


class Number(NamedTuple):
    """``digits * 10 ** exponent``, negated if ``negative``; no zero at either end of ``digits``, and 0 is ``(False, "", 0)``."""

    negative: bool
    digits: bytes
    exponent: int


class Array:
    """An array. Equal arrays are one object, so that comparing never descends. Made by ``array``."""

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: tuple[Value, ...]) -> None:
        self.values = values


class Object:
    """An object. Equal objects are one object. Made by ``object_``.

    Attributes:
        pairs: its (name, value) pairs.
        members: name -> value.
    """

    __slots__ = ("__weakref__", "members", "pairs")

    def __init__(self, pairs: frozenset[tuple[str, Value]]) -> None:
        self.pairs = pairs
        self.members = dict(pairs)


_arrays: WeakValueDictionary[tuple[Value, ...], Array] = WeakValueDictionary()
_objects: WeakValueDictionary[frozenset[tuple[str, Value]], Object] = WeakValueDictionary()
_lock = Lock()


def array(values: tuple[Value, ...]) -> Array:
    """The array of ``values``."""
    with _lock:
        found = _arrays.get(values)
        if found is None:
            found = _arrays[values] = Array(values)
        return found


def object_(pairs: tuple[tuple[str, Value], ...]) -> Object:
    """The object with the members ``pairs``, no two of the same name."""
    key = frozenset(pairs)
    with _lock:
        found = _objects.get(key)
        if found is None:
            found = _objects[key] = Object(key)
        return found


def number(text: bytes) -> Number | None:
    """The value of a JSON number; None for other text."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups(default=b"")
    digits = (whole + fraction).lstrip(b"0")
    stripped = digits.rstrip(b"0")
    if not stripped:
        return Number(False, b"", 0)
    power = -_integer(exponent) if exponent_sign == b"-" else _integer(exponent)
    return Number(sign == b"-", stripped, power - len(fraction) + len(digits) - len(stripped))


def _integer(digits: bytes) -> int:
    value = 0
    for low in range(0, len(digits), _DIGITS):
        part = digits[low:low + _DIGITS]
        value = value * 10 ** len(part) + int(part)
    return value


def scalar(text: bytes) -> Value | None:
    """The value of a bare scalar as a one-element tuple ``(value,)``: a number, true, false or null; None for other text."""
    if text in LITERALS:
        return (LITERALS[text],)
    found = number(text)
    return None if found is None else (found,)


def string(text: bytes) -> str | None:
    """The string that stands between quotes as ``text``; None where that is no JSON."""
    try:
        if b"\\" not in text:
            return text.decode("utf-8")
        found = json.loads(b'"' + text + b'"')
    except ValueError:
        return None
    return found if isinstance(found, str) else None


@lru_cache(1 << 14)
def spelled(value: str) -> bytes:
    """``value`` between quotes as compiled grammars spell it: short escapes where there are, ``\\u00xx`` in lower case."""
    return _ESCAPED.sub(lambda found: _SHORT.get(found[0][0]) or b"\\u%04x" % found[0][0], value.encode("utf-8", "surrogatepass"))
