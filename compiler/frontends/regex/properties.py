"""Unicode property escapes, ``\\p{...}``, as far as the interpreter's own Unicode database answers them exactly.

General categories (all names and aliases) and the binary properties that Python's string predicates are derived from. Scripts
and the other properties need tables that the standard library does not hold; they are refused, never approximated. The
Unicode version is the interpreter's (``unicodedata.unidata_version``).
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from stcc.compiler.frontends.regex.characters import (
    ANY,
    ASCII_DIGITS,
    CharacterSet,
    complement,
    from_code_points,
    normalized,
    scanned,
    union,
)
from stcc.compiler.frontends.regex.syntax import unsupported

# PropertyValueAliases.txt, property gc: short name -> the other names.
_CATEGORY_NAMES = {
    "C": "Other", "Cc": "Control cntrl", "Cf": "Format", "Cn": "Unassigned", "Co": "Private_Use", "Cs": "Surrogate",
    "L": "Letter", "LC": "Cased_Letter", "Ll": "Lowercase_Letter", "Lm": "Modifier_Letter", "Lo": "Other_Letter",
    "Lt": "Titlecase_Letter", "Lu": "Uppercase_Letter", "M": "Mark Combining_Mark", "Mc": "Spacing_Mark", "Me": "Enclosing_Mark",
    "Mn": "Nonspacing_Mark", "N": "Number", "Nd": "Decimal_Number digit", "Nl": "Letter_Number", "No": "Other_Number",
    "P": "Punctuation punct", "Pc": "Connector_Punctuation", "Pd": "Dash_Punctuation", "Pe": "Close_Punctuation",
    "Pf": "Final_Punctuation", "Pi": "Initial_Punctuation", "Po": "Other_Punctuation", "Ps": "Open_Punctuation", "S": "Symbol",
    "Sc": "Currency_Symbol", "Sk": "Modifier_Symbol", "Sm": "Math_Symbol", "So": "Other_Symbol", "Z": "Separator",
    "Zl": "Line_Separator", "Zp": "Paragraph_Separator", "Zs": "Space_Separator",
}
_SHORT = {name: short for short, names in _CATEGORY_NAMES.items() for name in (short, *names.split())}

_FIXED: dict[str, CharacterSet] = {
    "Any": ANY,
    "ASCII": ((0, 0x7F),),
    "ASCII_Hex_Digit": (*ASCII_DIGITS, (65, 70), (97, 102)),
    "Hex_Digit": (*ASCII_DIGITS, (65, 70), (97, 102), (0xFF10, 0xFF19), (0xFF21, 0xFF26), (0xFF41, 0xFF46)),
    "White_Space": ((9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
                    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
    "Noncharacter_Code_Point": ((0xFDD0, 0xFDEF), *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000))),
    "Regional_Indicator": ((0x1F1E6, 0x1F1FF),),
}
_ALIASES = {
    "AHex": "ASCII_Hex_Digit", "Hex": "Hex_Digit", "space": "White_Space", "NChar": "Noncharacter_Code_Point", "RI": "Regional_Indicator",
    "Lower": "Lowercase", "Upper": "Uppercase", "XIDS": "XID_Start", "XIDC": "XID_Continue",
}


def property_set(text: str, offset: int) -> CharacterSet:
    """The set that ``\\p{text}`` names; UnsupportedError, at ``offset``, for a property that is not known exactly here."""
    name, equals, value = text.partition("=")
    if equals and name in ("gc", "General_Category") and value in _SHORT:
        return _category(_SHORT[value])
    if not equals:
        if name in _SHORT:
            return _category(_SHORT[name])
        found = _binary(_ALIASES.get(name, name))
        if found is not None:
            return found
    raise unsupported("the property is not known here", offset, f"\\p{{{text}}}",
                      "use a general category such as \\p{L}, or spell out the ranges of characters")


@lru_cache(maxsize=1)
def _categories() -> dict[str, CharacterSet]:
    points: dict[str, list[int]] = {}
    for character in scanned():
        points.setdefault(unicodedata.category(character), []).append(ord(character))
    found = {short: from_code_points(rising) for short, rising in points.items()}
    planes = (0xF0000, 0x100000)  # the private planes, which are not scanned; their last two code points are no characters
    found["Co"] = union(found["Co"], tuple((plane, plane + 0xFFFD) for plane in planes))
    found["Cn"] = complement(union(*(ranges for short, ranges in found.items() if short != "Cn")))
    return found


def _category(short: str) -> CharacterSet:
    found = _categories()
    if short == "LC":
        return union(found["Ll"], found["Lt"], found["Lu"])
    return normalized(pair for name, ranges in found.items() if name.startswith(short) for pair in ranges)


@lru_cache(maxsize=16)
def _binary(name: str) -> CharacterSet | None:
    if name in _FIXED:
        return normalized(_FIXED[name])
    if name == "Assigned":
        return complement(_category("Cn"))
    if name == "Lowercase":
        return from_code_points(ord(c) for c in scanned() if c.islower())
    if name == "Uppercase":
        return from_code_points(ord(c) for c in scanned() if c.isupper())
    if name == "XID_Start":
        return from_code_points(ord(c) for c in scanned() if c.isidentifier() and c != "_")
    if name == "XID_Continue":
        return from_code_points(ord(c) for c in scanned() if ("a" + c).isidentifier())
    return None
