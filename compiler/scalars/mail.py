"""Mailboxes: email (RFC 5321, section 4.1.2) and idn-email (RFC 6531, section 3.3).

Dot-strings, quoted strings and address literals, with the local part limited to 64 octets (RFC 5321, section 4.5.3.1.1). Narrower in
these ways: a domain takes at most 63 octets, so that one counter bounds the domain and its labels; an address literal spells
``IPv6:`` in this case, and its IPv4 octets have no leading zeros; and the domains of idn-email are those of
``stcc.compiler.scalars.internationalized``. Cost: a few states per octet of each part.
"""

from __future__ import annotations

from stcc.compiler.dfa import Dfa
from stcc.compiler.frontends.regex import compile_pattern
from stcc.compiler.scalars.hosts import IPV4, IPV6_LITERAL
from stcc.compiler.scalars.internationalized import mailbox_domain
from stcc.compiler.scalars.sequences import at_most_octets, followed_by

MAX_LOCAL = 64
MAX_DOMAIN = 63

_BEYOND_ASCII = f"{chr(0x80)}-{chr(0x10FFFF)}"
_LABEL = "[0-9A-Za-z](?:[0-9A-Za-z\\-]*[0-9A-Za-z])?"
_DOMAIN = f"{_LABEL}(?:\\.{_LABEL})*"
_ADDRESS = f"\\[(?:{IPV4}|IPv6:{IPV6_LITERAL})\\]"


def _local_part(more: str) -> str:
    """Dot-string or quoted string, with ``more`` characters than ASCII's."""
    atom = f"[0-9A-Za-z!#$%&'*+\\-/=?^_`{{|}}~{more}]+"
    return f"(?:{atom}(?:\\.{atom})*|\"(?:[ !#-\\[\\]-~{more}]|\\\\[ -~])*\")"


def _mailbox(more: str, domain: str) -> Dfa:
    local = at_most_octets(compile_pattern(_local_part(more), mode="fullmatch"), MAX_LOCAL)
    # The @ counts with the domain; the longest address literal is shorter.
    return followed_by(local, at_most_octets(compile_pattern(f"@(?:{domain}|{_ADDRESS})", mode="fullmatch"), MAX_DOMAIN + 1))


def email() -> Dfa:
    """Mailboxes in ASCII."""
    return _mailbox("", _DOMAIN)


def idn_email() -> Dfa:
    """Mailboxes in UTF-8; lengths count octets."""
    return _mailbox(_BEYOND_ASCII, mailbox_domain())
