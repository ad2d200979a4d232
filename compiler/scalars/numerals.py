"""Numeral automata: a deterministic reading of a JSON number text, tabulated as a Dfa.

In: a *reading*, four pure functions that follow the value of a number digit by digit. Out: the Dfa of the JSON number texts on which
the reading ends with a label. The grammar of the text itself (RFC 8259, section 6: no leading zero, digits on both sides of the
point) lives here, once; what a number is worth lives in the reading. Cost: 14 calls a state, and the minimisation.

>>> tabulate(Unrestricted()).match(b"-1.50"), tabulate(Unrestricted()).match(b"01")
(0, -1)
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.scalars.exploration import explore

Number = int | float | Decimal | Fraction

MAX_EXPONENT = 400
"""Largest power of ten, up or down, that a bound may reach: a text needs a state per digit, and a double ends at 308."""

LARGEST_EXPONENT = 199
"""Largest exponent spelled: past a double's 1.8e308 readers fail or make it infinite, and what stands before it may be long, too."""

MAX_STATES = 20_000
"""Most states of one number's automaton before minimisation."""

_MINUS, _POINT, _EXPONENT, _PLUS, _OTHER = 10, 11, 12, 13, 14  # byte classes; 0..9 are the digits themselves
# How far the text has come; _DOWN has a digit of a negative exponent, _UP_ZERO, _UP_ONE, _UP_SOME and _UP_FULL hold a positive one of
# 0, 1, 2 to 19 and 20 to 199: its value decides how many digits it may still take.
_START, _SIGNED, _ZERO, _INTEGER, _DOTTED, _FRACTION, _E, _E_PLUS, _E_MINUS, _DOWN, _UP_ZERO, _UP_ONE, _UP_SOME, _UP_FULL = range(14)
_COMPLETE = frozenset((_ZERO, _INTEGER, _FRACTION, _DOWN, _UP_ZERO, _UP_ONE, _UP_SOME, _UP_FULL))

Seen = TypeVar("Seen", bound=Hashable)
Node = tuple[int, Seen | None]


class Reading(Protocol[Seen]):
    """What the digits so far are worth, as a hashable value; None once no continuation can be accepted."""

    def begin(self, negative: bool) -> Seen | None:
        """Before the first digit."""

    def integer(self, seen: Seen, digit: int) -> Seen | None:
        """After one more digit of the integer part."""

    def point(self, seen: Seen) -> Seen | None:
        """After the decimal point."""

    def fraction(self, seen: Seen, digit: int) -> Seen | None:
        """After one more digit of the fraction."""

    def label(self, seen: Seen) -> int:
        """Label of a number that ends here, -1 if it is refused."""


class Unrestricted:
    """The reading that accepts every number."""

    def begin(self, negative: bool) -> int | None:
        """One value stands for all."""
        return 0

    def integer(self, seen: int, digit: int) -> int | None:
        """Any digit."""
        return seen

    def point(self, seen: int) -> int | None:
        """A fraction may follow."""
        return seen

    def fraction(self, seen: int, digit: int) -> int | None:
        """Any digit."""
        return seen

    def label(self, seen: int) -> int:
        """Accepted."""
        return 0


def exact(value: Number, keyword: str) -> Fraction:
    """``value`` as a fraction; a float counts as the shortest decimal that spells it.

    Raises:
        SourceError: not a finite number.
        BudgetError: it reaches beyond ``10 ** +-MAX_EXPONENT``.
    """
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise SourceError(f"{value} is not a number that JSON can spell", keyword=keyword, hint="give a finite number")
        last = value.as_tuple().exponent
        if value and (abs(value.adjusted()) > MAX_EXPONENT or not isinstance(last, int) or last < -4 * MAX_EXPONENT):
            raise _too_long(keyword)
        value = Fraction(value) if value else Fraction(0)
    result = Fraction(value)
    limit = 10**MAX_EXPONENT
    if abs(result) >= 10 * limit or result.denominator > limit:
        raise _too_long(keyword)
    return result


def _too_long(keyword: str) -> BudgetError:
    return BudgetError(f"the number needs more than {MAX_EXPONENT} digits before or after the point", keyword=keyword,
                       hint="use a number that a double can hold")


class _Text(Generic[Seen]):
    """The JSON number grammar around a reading: successor and label of a (phase, seen) node."""

    def __init__(self, reading: Reading[Seen], exponents: bool) -> None:
        self.reading, self.exponents = reading, exponents

    def successor(self, node: Node[Seen], symbol: int) -> Node[Seen] | None:
        """Node[Seen] after one symbol (a byte class), None when the text is refused."""
        if symbol < _MINUS:
            return self._digit(node, symbol)
        return self._mark(node, symbol)

    def _digit(self, node: Node[Seen], digit: int) -> Node[Seen] | None:
        phase = node[0]
        seen = self.reading.begin(phase == _SIGNED) if phase in (_START, _SIGNED) else node[1]
        if seen is None or phase == _ZERO:
            return None
        if phase in (_START, _SIGNED):
            return _at(_INTEGER if digit else _ZERO, self.reading.integer(seen, digit))
        if phase == _INTEGER:
            return _at(_INTEGER, self.reading.integer(seen, digit))
        if phase in (_DOTTED, _FRACTION):
            return _at(_FRACTION, self.reading.fraction(seen, digit))
        longer = _longer_exponent(phase, digit)
        return None if longer is None else (longer, seen)

    def _mark(self, node: Node[Seen], symbol: int) -> Node[Seen] | None:
        phase, seen = node
        if symbol == _MINUS and phase == _START:
            return _SIGNED, None
        if seen is None:
            return None
        if symbol == _POINT and phase in (_ZERO, _INTEGER):
            return _at(_DOTTED, self.reading.point(seen))
        if symbol == _EXPONENT and self.exponents and phase in (_ZERO, _INTEGER, _FRACTION):
            return _E, seen
        return (_E_MINUS if symbol == _MINUS else _E_PLUS, seen) if symbol in (_MINUS, _PLUS) and phase == _E else None

    def label(self, node: Node[Seen]) -> int:
        """Label of a text that ends at the node."""
        phase, seen = node
        return -1 if seen is None or phase not in _COMPLETE else self.reading.label(seen)


def _longer_exponent(phase: int, digit: int) -> int | None:
    """The phase after one more digit of an exponent; None where it would pass ``LARGEST_EXPONENT``."""
    if phase in (_E_MINUS, _DOWN):
        return _DOWN
    if phase in (_E, _E_PLUS, _UP_ZERO):
        return _UP_SOME if digit > 1 else _UP_ONE if digit else _UP_ZERO
    return {_UP_ONE: _UP_SOME, _UP_SOME: _UP_FULL}.get(phase)


def _at(phase: int, seen: Seen | None) -> Node[Seen] | None:
    return None if seen is None else (phase, seen)


def tabulate(reading: Reading[Seen], *, exponents: bool = False, keyword: str = "", budget: int = MAX_STATES) -> Dfa:
    """The minimal Dfa of the number texts that ``reading`` labels.

    Args:
        reading: what the digits are worth; its values must be finitely many.
        exponents: whether a text may end in an exponent, which the reading does not see.
        keyword: the schema keyword at fault when the budget is exceeded.
        budget: most (phase, value) nodes.

    Raises:
        BudgetError: more nodes than ``budget``.
    """
    text = _Text(reading, exponents)
    start: Node[Seen] = (_START, None)
    return explore(start, text.successor, text.label, _byte_symbols(), budget=budget, keyword=keyword)


def _byte_symbols() -> npt.NDArray[np.uint8]:
    symbol = np.full(256, _OTHER, np.uint8)
    symbol[ord("0"):ord("9") + 1] = np.arange(10)
    symbol[[ord("-"), ord("."), ord("E"), ord("e"), ord("+")]] = _MINUS, _POINT, _EXPONENT, _EXPONENT, _PLUS
    return symbol
