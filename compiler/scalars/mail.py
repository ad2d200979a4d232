"""Mailboxes: email (RFC 5321, section 4.1.2) and idn-email (RFC 6531, section 3.3).

Dot-strings, quoted strings and address literals, with the local part limited to 64 octets (RFC 5321, section 4.5.3.1.1). Narrower in
these ways: a domain takes at most 63 octets, so that one counter bounds the domain and its labels, and no two hyphens in a row,
which A-labels and reserved labels have; an address literal spells ``IPv6:`` in this case, and its IPv4 octets have no leading zeros;
the domains of idn-email are those of ``stcc.compiler.scalars.internationalized``, at most three labels. Cost: a few states per octet.
"""

from __future__ import annotations

import numpy as np

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.frontends.regex import compile_pattern
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.scalars.hosts import IPV4, IPV6_LITERAL
from stcc.compiler.scalars.internationalized import mailbox_domain

MAX_LOCAL = 64
MAX_DOMAIN = 63

_BEYOND_ASCII = f"{chr(0x80)}-{chr(0x10FFFF)}"
_LABEL = "[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*"
_DOMAIN = f"{_LABEL}(?:\\.{_LABEL})*"
_ADDRESS = f"\\[(?:{IPV4}|IPv6:{IPV6_LITERAL})\\]"


def _local_part(more: str) -> str:
    """Dot-string or quoted string, with ``more`` characters than ASCII's."""
    atom = f"[0-9A-Za-z!#$%&'*+\\-/=?^_`{{|}}~{more}]+"
    return f"(?:{atom}(?:\\.{atom})*|\"(?:[ !#-\\[\\]-~{more}]|\\\\[ -~])*\")"


def at_most_octets(dfa: Dfa, octets: int) -> Dfa:
    """The words of ``dfa`` of at most ``octets`` bytes. O(states x classes x octets)."""
    levels = octets + 1
    table = np.full((levels, dfa.states, dfa.classes), -1, np.int32)
    table[:-1] = np.where(dfa.table >= 0, dfa.table + dfa.states * np.arange(1, levels, dtype=np.int32)[:, None, None], -1)
    return minimize_dfa(Dfa(dfa.byte_class, table.reshape(-1, dfa.classes), np.tile(dfa.accept, levels), dfa.start))


def _mailbox(more: str, domain: Dfa) -> Dfa:
    local = at_most_octets(compile_pattern(_local_part(more), mode="fullmatch"), MAX_LOCAL)
    address = compile_pattern(_ADDRESS, mode="fullmatch")
    return algebra.concatenate(local, algebra.literal(b"@"), algebra.union(domain, address))


def email() -> Dfa:
    """Mailboxes in ASCII."""
    return _mailbox("", at_most_octets(compile_pattern(_DOMAIN, mode="fullmatch"), MAX_DOMAIN))


def idn_email() -> Dfa:
    """Mailboxes in UTF-8; lengths count octets."""
    return _mailbox(_BEYOND_ASCII, compile_pattern(mailbox_domain(), mode="fullmatch"))
