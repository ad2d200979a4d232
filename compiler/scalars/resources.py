"""URIs and IRIs, URI templates, UUIDs and JSON pointers, as patterns taken from the grammars of their RFCs.

RFC 3986 (URI), 3987 (IRI), 6570 (URI template), 4122 (UUID), 6901 (JSON pointer), draft-handrews-relative-json-pointer-01. All exact,
except that a URI template leaves out the operators that RFC 6570 reserves for later (``= , ! @ |``), and a relative JSON pointer
leaves out the index manipulation (``0+1``) that only its newest draft knows. The rules of single schemes (that ``http`` needs a host) are
not part of RFC 3986's grammar and not enforced.
"""

from __future__ import annotations

from stcc.compiler.scalars.hosts import IPV6

_HEX = "[0-9A-Fa-f]"
_ESCAPED = f"%{_HEX}{{2}}"
_UNRESERVED = "A-Za-z0-9._~\\-"
_DELIMITERS = "!$&'()*+,;="
_LITERAL_ADDRESS = f"\\[(?:{IPV6}|[Vv]{_HEX}+\\.[{_UNRESERVED}{_DELIMITERS}:]+)\\]"


def _ranges(*bounds: tuple[int, int]) -> str:
    """The inside of a character class for ranges of code points."""
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in bounds)


# Without the bidirectional formatting characters, which section 4.1 of RFC 3987 bans although its grammar has them.
UCSCHAR = _ranges((0xA0, 0x200D), (0x2010, 0x2029), (0x202F, 0xD7FF), (0xF900, 0xFDCF), (0xFDF0, 0xFFEF),
                  *((plane << 16, (plane << 16) + 0xFFFD) for plane in range(1, 14)), (0xE1000, 0xEFFFD))
IPRIVATE = _ranges((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


def _reference(ucschar: str, iprivate: str) -> tuple[str, str]:
    """Patterns (absolute form, reference) of RFC 3986 with more characters: none for a URI, those of RFC 3987 for an IRI."""
    plain = f"{_UNRESERVED}{_DELIMITERS}{ucschar}"
    char = f"(?:[{plain}:@]|{_ESCAPED})"
    name = f"(?:[{plain}]|{_ESCAPED})*"
    segments = f"(?:/{char}*)*"
    authority = f"//(?:(?:[{plain}:]|{_ESCAPED})*@)?(?:{_LITERAL_ADDRESS}|{name})(?::[0-9]*)?{segments}"
    absolute = f"/(?:{char}+{segments})?"
    tail = f"(?:\\?(?:[{plain}:@/?{iprivate}]|{_ESCAPED})*)?(?:#(?:[{plain}:@/?]|{_ESCAPED})*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.\\-]*:"
    rootless, without_colon = f"{char}+{segments}", f"(?:[{plain}@]|{_ESCAPED})+{segments}"
    full = f"{scheme}(?:{authority}|{absolute}|{rootless})?{tail}"
    return full, f"(?:(?:{scheme})?(?:{authority}|{absolute})?|{scheme}{rootless}|{without_colon}){tail}"


URI, URI_REFERENCE = _reference("", "")
IRI, IRI_REFERENCE = _reference(UCSCHAR, IPRIVATE)

_NAME = f"(?:[A-Za-z0-9_]|{_ESCAPED})"
_VARIABLE = f"{_NAME}(?:\\.?{_NAME})*(?::[1-9][0-9]{{0,3}}|\\*)?"
URI_TEMPLATE = (
    f"(?:[!#$&'()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~{UCSCHAR}{IPRIVATE}]|{_ESCAPED}|\\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\\}})*"
)

UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"

JSON_POINTER = "(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9][0-9]*)(?:#|{JSON_POINTER})"
