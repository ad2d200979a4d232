"""Multiples of a decimal, exactly, by remainder automata.

In: ``multipleOf``. Out: the minimal Dfa of the plain numbers that are its multiples. With ``m = p / q`` in lowest terms and ``s`` the
number of decimals of ``m``, a number is a multiple iff its first ``s`` decimals, read on as digits of one integer ``N``, satisfy
``N = 0 (mod a)``, ``a = m * 10 ** s``, and every later decimal is 0. After ``j`` decimals, ``s - j`` digits are still to come, so only
the residue modulo ``a / gcd(a, 10 ** (s - j))`` matters (``p`` of them in the integer part), and most residues are already lost: those
are cut at once. For an integer ``m`` the factors 2 and 5 look at the last few digits only, so residues with the same future are merged
while they are found: a million takes 12 states, not a million. Cost: 11 steps a state, at most ``MAX_STATES`` states.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.scalars.numerals import MAX_STATES, Number, exact, tabulate

MAX_SUFFIX = 64
"""Most trailing digits that an integer's factors 2 and 5 may look at."""

_Seen = tuple[int, int]  # decimals read, residue


class _Multiples:
    """The reading that accepts the multiples of ``scaled / 10 ** decimals``."""

    def __init__(self, scaled: int, decimals: int) -> None:
        self.scaled, self.decimals = scaled, decimals
        self.moduli = [scaled // gcd(scaled, 10 ** (decimals - read)) for read in range(decimals + 1)]
        self.future = _Futures(scaled) if decimals == 0 else None

    def begin(self, negative: bool) -> _Seen | None:
        return 0, 0

    def integer(self, seen: _Seen, digit: int) -> _Seen | None:
        residue = (10 * seen[1] + digit) % self.moduli[0]
        return 0, self.future.representative(residue) if self.future else residue

    def point(self, seen: _Seen) -> _Seen | None:
        return seen if self._can_finish(seen) else None

    def fraction(self, seen: _Seen, digit: int) -> _Seen | None:
        read, residue = seen
        if read == self.decimals:
            return None if digit else seen
        after = read + 1, (10 * residue + digit) % self.moduli[read + 1]
        return after if self._can_finish(after) else None

    def label(self, seen: _Seen) -> int:
        return 0 if seen[1] % self.moduli[seen[0]] == 0 else -1

    def _can_finish(self, seen: _Seen) -> bool:
        """Whether some choice of the decimals still to come makes a multiple."""
        scale: int = 10 ** (self.decimals - seen[0])
        return -seen[1] * scale % self.scaled < scale


class _Futures:
    """Merges the residues modulo an integer that no further digits tell apart (Myhill-Nerode classes, up to the coprime part)."""

    def __init__(self, modulus: int) -> None:
        self.coprime = modulus
        for prime in (2, 5):
            while self.coprime % prime == 0:
                self.coprime //= prime
        self.decimal = modulus // self.coprime  # divides 10 ** suffix
        self.suffix = 0
        while 10**self.suffix % self.decimal:
            self.suffix += 1
        self._first: dict[tuple[int, ...], int] = {}

    def representative(self, residue: int) -> int:
        """The first residue met with the same future as ``residue``."""
        return self._first.setdefault(self._key(residue), residue)

    def _key(self, residue: int) -> tuple[int, ...]:
        # By the number of digits still to come: the integer they must spell, modulo the decimal part; -1 if they are too few to spell it.
        wanted = (-residue * 10**digits % self.decimal for digits in range(self.suffix))
        return residue % self.coprime, *(value if value < 10**digits else -1 for digits, value in enumerate(wanted))


@lru_cache(maxsize=256)
def multiple_of(divisor: Number) -> Dfa:
    """Plain numbers that are an integer times ``divisor``; zero, in every spelling, is one.

    Raises:
        SourceError: ``divisor`` is not a positive decimal.
        BudgetError: its remainders need more than ``MAX_STATES`` states, or more digits than the limits allow.
    """
    value = exact(divisor, "multipleOf")
    if value <= 0:
        raise SourceError("multipleOf must be greater than 0", keyword="multipleOf", hint="give a positive number")
    scaled, decimals = value.numerator, _decimals(value.denominator)
    scaled = scaled * 10**decimals // value.denominator
    reading = _Multiples(scaled, decimals)
    coprime, suffix = (reading.future.coprime, reading.future.suffix) if reading.future else (reading.moduli[0], 0)
    if coprime >= MAX_STATES or suffix > MAX_SUFFIX:
        raise BudgetError(f"the remainders of {divisor} need more than {MAX_STATES} states", keyword="multipleOf",
                          hint="use a rounder divisor, or an enum of the values")
    return tabulate(reading, keyword="multipleOf")


def _decimals(denominator: int) -> int:
    """Digits after the point of a fraction with this denominator in lowest terms."""
    for decimals in range(denominator.bit_length()):
        if 10**decimals % denominator == 0:
            return decimals
    raise SourceError("multipleOf must be a decimal", keyword="multipleOf", hint="give a number with finitely many digits")
