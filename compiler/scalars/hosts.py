"""Internet addresses and host names: ipv4, ipv6, hostname.

``IPV4`` and ``IPV6`` are patterns and exact (RFC 2673 section 3.2 without leading zeros; RFC 4291 section 2.2, no zone, no prefix length).

``hostname()`` is RFC 1123 with the lengths of RFC 1035, narrower in two ways. A name may take 253 octets in labels of at most 63, and
counting both exactly costs 24,000 states; here a label of up to 31 octets is charged 32 (with its dot), a longer one 64, and the sum
stays within 254: every name of at most seven labels of at most 31 octets passes, and four labels of 63, 63, 63, 61. Labels with
``--`` in third and fourth place are refused: they are reserved (RFC 5890), and whether an A-label (``xn--``) is valid takes
decoding its Punycode. (And a dotted-decimal quadruple is an address, not a name: RFC 1123, section 2.1.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.scalars.exploration import explore

MAX_LABEL = 63
MAX_NAME = 253

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = f"{_OCTET}(?:\\.{_OCTET}){{3}}"

_GROUP = "[0-9A-Fa-f]{1,4}"
_LAST = f"(?:{_GROUP}:{_GROUP}|{IPV4})"


def _ipv6(elided: int) -> str:
    """Addresses of eight groups, or of at most ``8 - elided`` around one ``::``."""
    forms = [f"(?:{_GROUP}:){{6}}{_LAST}"]
    for after in range(8 - elided + 1):  # groups after the ::, of which the last two may be an IPv4 address
        before = 8 - elided - after
        head = f"(?:{_GROUP}(?::{_GROUP}){{0,{before - 1}}})?" if before else ""
        tail = "" if after == 0 else _GROUP if after == 1 else f"(?:{_GROUP}:){{{after - 2}}}{_LAST}"
        forms.append(f"{head}::{tail}")
    return f"(?:{'|'.join(forms)})"


IPV6 = _ipv6(elided=1)
IPV6_LITERAL = _ipv6(elided=2)
"""RFC 5321, section 4.1.3: in a mailbox, ``::`` stands for at least two groups."""

_DIGIT, _LETTER, _HYPHEN, _DOT, _OTHER = range(5)

_UNIT = 32  # octets charged for a label of up to 31 and its dot
_UNITS = (MAX_NAME + 1) // _UNIT

_Name = tuple[int, int, bool, bool]
"""Units charged to the labels before, octets in this label, whether the last one is a hyphen, whether all is dotted decimal so far."""


def _byte_kinds() -> npt.NDArray[np.uint8]:
    """uint8 ``[256]``: the symbol of each byte in a host name."""
    kind = np.full(256, _OTHER, np.uint8)
    kind[ord("0"):ord("9") + 1] = _DIGIT
    kind[ord("A"):ord("Z") + 1] = kind[ord("a"):ord("z") + 1] = _LETTER
    kind[ord("-")], kind[ord(".")] = _HYPHEN, _DOT
    return kind


def _next(name: _Name, symbol: int) -> _Name | None:
    units, length, hyphen, decimal = name
    if symbol == _DOT:
        after = units + (1 if length < _UNIT else 2)
        return None if length == 0 or hyphen or after > _UNITS else (after, 0, False, decimal and after < 4)
    reserved = symbol == _HYPHEN and hyphen and length == 3
    if reserved or (symbol == _HYPHEN and length == 0) or length == MAX_LABEL or units * _UNIT + length + 1 > MAX_NAME:
        return None
    return units, length + 1, symbol == _HYPHEN, decimal and symbol == _DIGIT and length < 3


def _ends(name: _Name) -> int:
    units, length, hyphen, decimal = name
    return -1 if length == 0 or hyphen or (decimal and units == 3) else 0


def hostname() -> Dfa:
    """Host names (see the module's text), as raw ASCII bytes."""
    return explore((0, 0, False, True), _next, _ends, _byte_kinds(), budget=10_000, keyword="format")
