"""Number conditions that leave finitely many values: bounds on both sides of a ``multipleOf``, listed constants.

In: a formula over number atoms. Out: the values that satisfy it, each tested exactly, or None where they are not evidently few. The
product of remainder automata has as many states as the least common multiple of the divisors; a hundred values between two bounds have a
hundred spellings. Cost: values times atoms, at most ``MOST`` values.

``joined`` replaces several divisors of one conjunction by their least common multiple, which is what they ask for together.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas

MOST = 4096
"""Most values that are tried one by one."""
_DIGITS = 400
"""Bounds and divisors with more digits are not looked at here: their multiples would be no shorter."""
_Span = tuple[Fraction | None, Fraction | None]


def finite_values(formulas: Formulas, condition: int) -> list[Decimal] | None:
    """All values that satisfy ``condition``, rising, if its bounds and divisors show that they are few; else None."""
    payloads = [formulas.payload(atom) for atom in formulas.atoms(condition)]
    if any(isinstance(payload, atoms.NumberIntegral) and payload.spelled for payload in payloads):
        return None  # 1 and 1.0 are one value, and told apart
    found = _candidates(formulas, condition, (None, None))
    if found is None:
        return None
    return [_decimal(value) for value in sorted(found) if _holds(formulas, condition, value)]


def joined(formulas: Formulas, condition: int) -> int:
    """``condition`` with all divisors among its conjuncts made one."""
    parts = formulas.conjuncts(condition)
    divisors = {part: payload.factor for part in parts if isinstance(payload := formulas.payload(part), atoms.NumberMultiple)}
    if len(divisors) < 2 or any(factor <= 0 or _long(factor) for factor in divisors.values()):
        return condition
    factors = [Fraction(factor) for factor in divisors.values()]
    least = Fraction(math.lcm(*(factor.numerator for factor in factors)), math.gcd(*(factor.denominator for factor in factors)))
    rest = [part for part in parts if part not in divisors]
    return formulas.conjunction([*rest, formulas.atom(atoms.NumberMultiple(_decimal(least)))])


def _candidates(formulas: Formulas, condition: int, span: _Span) -> set[Fraction] | None:
    """A finite superset of the values in ``span`` that satisfy ``condition``; None if none is found."""
    if condition == FALSE:
        return set()
    parts = formulas.conjuncts(condition)
    low, high = span
    for part in parts:
        low, high = _narrowed(formulas.payload(part), low, high)
    sets = [found for part in parts if (found := _part_candidates(formulas, part, (low, high))) is not None]
    return min(sets, key=len, default=None)


def _part_candidates(formulas: Formulas, part: int, span: _Span) -> set[Fraction] | None:
    payload = formulas.payload(part)
    if isinstance(payload, (atoms.NumberIn, atoms.NumberEquals)):
        values = payload.values if isinstance(payload, atoms.NumberIn) else (payload.value,)
        return set() if any(map(_long, values)) else {Fraction(value) for value in values}
    if isinstance(payload, (atoms.NumberMultiple, atoms.NumberIntegral)):
        return _multiples(payload.factor if isinstance(payload, atoms.NumberMultiple) else Decimal(1), span)
    denied = formulas.conjuncts(formulas.negation(part))
    if len(denied) < 2:
        return None
    found: set[Fraction] = set()
    for option in denied:
        values_ = _candidates(formulas, formulas.negation(option), span)
        if values_ is None:
            return None
        found |= values_
        if len(found) > MOST:
            return None
    return found


def _multiples(factor: Decimal, span: _Span) -> set[Fraction] | None:
    low, high = span
    if low is None or high is None or factor <= 0 or _long(factor):
        return None
    step = Fraction(factor)
    first, last = math.ceil(low / step), math.floor(high / step)
    return {step * count for count in range(first, last + 1)} if last - first < MOST else None


def _narrowed(payload: object, low: Fraction | None, high: Fraction | None) -> _Span:
    if isinstance(payload, atoms.NumberAtLeast) and not _long(payload.bound):
        bound = Fraction(payload.bound)
        return bound if low is None else max(low, bound), high
    if isinstance(payload, atoms.NumberAtMost) and not _long(payload.bound):
        bound = Fraction(payload.bound)
        return low, bound if high is None else min(high, bound)
    return low, high


def _holds(formulas: Formulas, condition: int, value: Fraction) -> bool:
    return formulas.substitute(condition, lambda atom: TRUE if _satisfied(formulas.payload(atom), value) else FALSE) == TRUE


def _satisfied(payload: object, value: Fraction) -> bool:
    """Whether ``value`` satisfies one number atom."""
    if isinstance(payload, atoms.NumberIntegral):
        return value.denominator == 1
    if isinstance(payload, atoms.NumberAtLeast):
        return value > payload.bound if payload.exclusive else value >= payload.bound
    if isinstance(payload, atoms.NumberAtMost):
        return value < payload.bound if payload.exclusive else value <= payload.bound
    if isinstance(payload, atoms.NumberMultiple):
        return (value / Fraction(payload.factor)).denominator == 1
    if isinstance(payload, atoms.NumberEquals):
        return value == payload.value
    assert isinstance(payload, atoms.NumberIn)
    return any(value == listed for listed in payload.values)


def _long(value: Decimal) -> bool:
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or abs(exponent) > _DIGITS or len(value.as_tuple().digits) > _DIGITS


def _decimal(value: Fraction) -> Decimal:
    """``value``, whose denominator divides a power of ten, exactly."""
    places = next(places for places in range(value.denominator.bit_length() + 1) if 10**places % value.denominator == 0)
    return Decimal(f"{value.numerator * 10**places // value.denominator}e-{places}")

