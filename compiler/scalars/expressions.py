r"""Regular expressions as a string format: a regular subset of ECMA-262 patterns, as a pattern.

Nested groups are not a regular language, so groups nest at most ``MAX_NESTING`` deep. Left out besides: backreferences and named
groups, whose validity depends on the rest of the text; ``\p{..}``, ``\u{..}``, ``\0``, surrogates by ``\u``; class ranges other than
from a digit, ``a`` or ``A`` to a later one of their kind, since telling whether a range is in order takes remembering its start;
``{n,m}`` with ``n > 9``, for the same reason; quantified lookaheads. A hyphen in a class stands last or is escaped. What is accepted is
valid with the ``u`` flag.
"""

from __future__ import annotations

MAX_NESTING = 3

_SYNTAX = r"\^$\\.*+?()\[\]{}|"
_CODE = "(?:c[A-Za-z]|x[0-9A-Fa-f]{2}|u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2})"
_RANGE = "(?:" + "|".join(f"{start}-[{start}-9]" for start in range(10)) + "|a-[a-z]|A-[A-Za-z])"
_CLASS = f"\\[\\^?(?:{_RANGE}|[^\\[\\]\\\\\\-]|\\\\(?:[dDsSwWtnvfrb/\\-{_SYNTAX}]|{_CODE}))*-?\\]"
_ATOM = f"[^{_SYNTAX}]|\\.|\\\\(?:[dDsSwWtnvfr/{_SYNTAX}]|{_CODE})|{_CLASS}"
_BOUNDS = "|".join(f"{least},(?:[{least}-9]|[1-9][0-9]+)" for least in range(1, 10))
_QUANTIFIER = f"(?:(?:[*+?]|\\{{(?:[0-9]+,?|0,[0-9]+|{_BOUNDS})\\}})\\??)?"
_ASSERTION = "[\\^$]|\\\\[bB]"


def _disjunction(nesting: int) -> str:
    """Patterns whose groups nest at most ``nesting`` deep."""
    group = look = ""
    if nesting:
        inside = _disjunction(nesting - 1)
        group, look = f"|\\((?:\\?:)?{inside}\\)", f"|\\(\\?<?[=!]{inside}\\)"
    return f"(?:(?:{_ATOM}{group}){_QUANTIFIER}|{_ASSERTION}{look}|\\|)*"


REGEX = _disjunction(MAX_NESTING)
