"""Number languages: the texts of JSON numbers whose value satisfies a keyword, as minimal Dfas with label 0.

Two universes. ``all_numbers()`` is the JSON grammar with exponents up to ``LARGEST_EXPONENT``. ``plain_numbers()`` leaves out the
exponent; every language of a bound, a divisor, a constant or of the integers lies in it and is exact there: values compare as decimals,
trailing zeros in the fraction are always allowed, leading zeros never, ``-0`` and ``-0.0`` are zero.

Why without exponent: ``0.00...05e999`` is at least 5 or not depending on whether the exponent outnumbers the zeros, and telling the
two apart takes counting, so the texts with exponent that satisfy such a keyword are not a regular language (pump the zeros). As
soon as one number keyword applies, numbers are therefore spelled plainly: fewer spellings, the same values. Comparing with zero is the
exception, since the exponent can't change a sign: ``at_least``, ``at_most`` and ``equal_to`` take ``exponents=True`` for bound 0 and
are exact in ``all_numbers()``. A complement must be taken in the universe its language lives in.

>>> at_least(5).match(b"5.0"), at_least(5).match(b"4.99"), at_least(5).match(b"1e3")
(0, -1, -1)
"""

from __future__ import annotations

from functools import lru_cache

from stcc.compiler.dfa import Dfa
from stcc.compiler.scalars.enumerations import one_of
from stcc.compiler.scalars.multiples import multiple_of
from stcc.compiler.scalars.numerals import LARGEST_EXPONENT, MAX_EXPONENT, MAX_STATES, Number, Unrestricted, tabulate
from stcc.compiler.scalars.ranges import at_least, at_most, between, equal_to

__all__ = ["LARGEST_EXPONENT", "MAX_EXPONENT", "MAX_STATES", "Number", "all_numbers", "at_least", "at_most", "between", "equal_to",
           "integers", "multiple_of", "one_of", "plain_numbers", "unpointed_integers"]


@lru_cache(maxsize=1)
def all_numbers() -> Dfa:
    """The JSON number texts with an exponent of at most ``LARGEST_EXPONENT``: ``-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?``."""
    return tabulate(Unrestricted(), exponents=True)


@lru_cache(maxsize=1)
def plain_numbers() -> Dfa:
    """Every JSON number text without exponent."""
    return tabulate(Unrestricted())


def integers() -> Dfa:
    """Plain numbers with an integral value: ``-?(0|[1-9][0-9]*)(\\.0+)?``."""
    return multiple_of(1)


@lru_cache(maxsize=1)
def unpointed_integers() -> Dfa:
    """Integers spelled without a fraction, as draft 4 has them: ``-?(0|[1-9][0-9]*)``."""
    return tabulate(_Unpointed())


class _Unpointed(Unrestricted):
    def point(self, seen: int) -> int | None:
        return None
