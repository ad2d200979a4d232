"""Numbers on one side of a bound, exactly.

In: bounds. Out: minimal Dfas over numbers spelled without exponent, or over all spellings where the bound is zero (see
``stcc.compiler.scalars.numbers`` for why). The reading compares digit by digit with the bound: in the integer part it keeps how many
digits it has seen and how their prefix compares (the longer numeral wins in the end), in the fraction the remainder of the long
division of the bound, so any fraction is a bound, terminating or not. Cost: three states
per digit of the bound before the point, one after.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import UnsupportedError
from stcc.compiler.scalars.numerals import Number, exact, tabulate

_LESS, _EQUAL, _GREATER = -1, 0, 1

_Seen = tuple[str, int, int]  # ("integer", digits, order of the prefix), ("fraction", remainder of the bound, 0) or ("settled", 0, order)
_Signed = tuple[bool, _Seen]


class _Magnitude:
    """Compares an unsigned numeral with ``bound`` as it is read; a negative bound is below every magnitude."""

    def __init__(self, bound: Fraction) -> None:
        self.bound = bound
        self.digits = [] if bound < 0 else [int(digit) for digit in str(bound.numerator // bound.denominator)]

    def begin(self) -> _Seen:
        return ("settled", 0, _GREATER) if self.bound < 0 else ("integer", 0, _EQUAL)

    def integer(self, seen: _Seen, digit: int) -> _Seen:
        where, position, order = seen
        if where == "settled":
            return seen
        if position == len(self.digits):
            return "settled", 0, _GREATER
        return "integer", position + 1, order or _sign(digit - self.digits[position])

    def point(self, seen: _Seen) -> _Seen:
        where, position, order = seen
        if where == "settled":
            return seen
        if position < len(self.digits) or order:
            return "settled", 0, order if position == len(self.digits) else _LESS
        return "fraction", self.bound.numerator % self.bound.denominator, 0

    def fraction(self, seen: _Seen, digit: int) -> _Seen:
        where, remainder, _ = seen
        if where == "settled":
            return seen
        wanted, remainder = divmod(10 * remainder, self.bound.denominator)
        return ("fraction", remainder, 0) if digit == wanted else ("settled", 0, _sign(digit - wanted))

    def order(self, seen: _Seen) -> int:
        where, position, order = seen
        if where == "integer":
            if position < len(self.digits):
                return _LESS
            return order or (_LESS if self.bound.denominator > 1 else _EQUAL)
        if where == "fraction":
            return _LESS if position else _EQUAL
        return order


class _Comparison:
    """The reading that accepts numbers which stand to ``bound`` in one of the ``accepted`` orders."""

    def __init__(self, bound: Fraction, accepted: frozenset[int]) -> None:
        self.accepted = accepted
        self.magnitudes = {False: _Magnitude(bound), True: _Magnitude(-bound)}

    def begin(self, negative: bool) -> _Signed | None:
        return self._live(negative, self.magnitudes[negative].begin())

    def integer(self, seen: _Signed, digit: int) -> _Signed | None:
        return self._live(seen[0], self.magnitudes[seen[0]].integer(seen[1], digit))

    def point(self, seen: _Signed) -> _Signed | None:
        return self._live(seen[0], self.magnitudes[seen[0]].point(seen[1]))

    def fraction(self, seen: _Signed, digit: int) -> _Signed | None:
        return self._live(seen[0], self.magnitudes[seen[0]].fraction(seen[1], digit))

    def label(self, seen: _Signed) -> int:
        return 0 if self._order(*seen) in self.accepted else -1

    def _order(self, negative: bool, seen: _Seen) -> int:
        order = self.magnitudes[negative].order(seen)
        return -order if negative else order

    def _live(self, negative: bool, seen: _Seen) -> _Signed | None:
        dead = seen[0] == "settled" and self._order(negative, seen) not in self.accepted
        return None if dead else (negative, seen)


def _sign(difference: int) -> int:
    return (difference > 0) - (difference < 0)


def _lower(bound: Number, exclusive: bool) -> _Comparison:
    accepted = frozenset((_GREATER,)) if exclusive else frozenset((_EQUAL, _GREATER))
    return _Comparison(exact(bound, "exclusiveMinimum" if exclusive else "minimum"), accepted)


def _upper(bound: Number, exclusive: bool) -> _Comparison:
    accepted = frozenset((_LESS,)) if exclusive else frozenset((_LESS, _EQUAL))
    return _Comparison(exact(bound, "exclusiveMaximum" if exclusive else "maximum"), accepted)


def _one_sided(reading: _Comparison, bound: Number, exponents: bool, keyword: str) -> Dfa:
    if exponents and bound != 0:
        raise UnsupportedError("with exponents, numbers can be compared with zero only", keyword=keyword, hint="leave exponents out")
    return tabulate(reading, exponents=exponents, keyword=keyword)


@lru_cache(maxsize=1024)
def at_least(bound: Number, exclusive: bool = False, *, exponents: bool = False) -> Dfa:
    """Plain numbers ``>= bound`` (``> bound`` if ``exclusive``); with ``exponents``, for bound 0 only, every spelling.

    Raises:
        BudgetError: the bound lies beyond ``10 ** +-MAX_EXPONENT``, or needs too many states.
        SourceError: the bound is not finite.
        UnsupportedError: ``exponents`` with a bound other than 0 (that language is not regular).
    """
    return _one_sided(_lower(bound, exclusive), bound, exponents, "exclusiveMinimum" if exclusive else "minimum")


@lru_cache(maxsize=1024)
def at_most(bound: Number, exclusive: bool = False, *, exponents: bool = False) -> Dfa:
    """Plain numbers ``<= bound`` (``< bound`` if ``exclusive``); errors and ``exponents`` as for ``at_least``."""
    return _one_sided(_upper(bound, exclusive), bound, exponents, "exclusiveMaximum" if exclusive else "maximum")


@lru_cache(maxsize=1024)
def between(low: Number, high: Number, *, exclusive_low: bool = False, exclusive_high: bool = False) -> Dfa:
    """Plain numbers from ``low`` to ``high``; the empty language where there is none. Errors as for ``at_least``."""
    return algebra.intersect(at_least(low, exclusive_low), at_most(high, exclusive_high))


@lru_cache(maxsize=1024)
def equal_to(value: Number, *, exponents: bool = False) -> Dfa:
    """Every plain spelling of ``value``: 5, 5.0, 5.00; ``-0`` equals 0. Errors and ``exponents`` as for ``at_least``."""
    return _one_sided(_Comparison(exact(value, "const"), frozenset((_EQUAL,))), value, exponents, "const")
