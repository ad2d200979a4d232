"""Numbers among given ones, exactly: what ``enum`` asks of a number.

In: decimals. Out: the minimal Dfa of all plain spellings of any of them: the shortest one, then zeros that change nothing. The shortest
spellings make an acyclic automaton, so that thousands of values cost their digits and not a product. Cost: linear in the digits.

>>> dfa = one_of([Decimal(5), Decimal("0.50")])
>>> [dfa.match(text) for text in (b"5", b"5.0", b"0.5", b"0.50", b"-5", b"50", b"5.")]
[0, 0, 0, 0, -1, -1, -1]
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.scalars.numerals import exact


def one_of(values: Iterable[Decimal], max_states: int = algebra.MAX_STATES) -> Dfa:
    """Every plain spelling of each of ``values``; label 0.

    Raises:
        BudgetError: a value lies beyond ``10 ** +-MAX_EXPONENT``, or the automaton needs more than ``max_states`` states.
        SourceError: a value is not finite.
    """
    whole: dict[bytes, int] = {}
    broken: dict[bytes, int] = {}
    for value in values:
        exact(value, "enum")
        text = f"{value:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        if text in ("0", "-0"):
            whole.update({b"0": 0, b"-0": 0})
        else:
            (broken if "." in text else whole)[text.encode()] = 0
    parts = [algebra.concatenate(algebra.literals(words, max_states), tail)
             for words, tail in ((whole, _point_and_zeros()), (broken, _zeros())) if words]
    return algebra.union(*parts, max_states=max_states) if parts else algebra.literals({})


def _zeros() -> Dfa:
    """``0*``."""
    byte_class = (np.arange(256) != ord("0")).astype(np.uint8)
    return Dfa(byte_class, np.array([[0, -1]], np.int32), np.zeros(1, np.int32))


def _point_and_zeros() -> Dfa:
    """Nothing, or a point and one zero or more."""
    byte_class = np.full(256, 2, np.uint8)
    byte_class[[ord("."), ord("0")]] = 0, 1
    return Dfa(byte_class, np.array([[1, -1, -1], [-1, 2, -1], [-1, 2, -1]], np.int32), np.array([0, -1, 0], np.int32))
