"""A Dfa from a successor function: breadth-first tabulation of what a start state reaches.

In: a start state, a pure successor function over a small alphabet of *symbols* (sets of bytes that no state tells apart), a label per
state. Out: the minimal Dfa. For scalars whose states mean something that a pattern can't say, such as a remainder or a length still
allowed. Cost: one call per state and symbol, and the minimisation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.minimize import minimize_dfa

State = TypeVar("State", bound=Hashable)


def explore(
    start: State, successor: Callable[[State, int], State | None], label: Callable[[State], int], byte_symbol: npt.NDArray[np.uint8],
    *, budget: int, keyword: str = "",
) -> Dfa:
    """The minimal Dfa that starts at ``start``.

    Args:
        start: the first state.
        successor: state after a symbol, None when the text is refused.
        label: label of a text that ends in the state, -1 if it is refused.
        byte_symbol: uint8 ``[256]``, byte -> symbol. The largest symbol is refused everywhere and never asked for.
        budget: most states.
        keyword: the schema keyword at fault when the budget is exceeded.

    Raises:
        BudgetError: more than ``budget`` states.
    """
    refused = int(byte_symbol.max())
    number = {start: 0}
    states = [start]
    rows: list[list[int]] = []
    for state in states:  # grows while it is walked
        row = [-1] * (refused + 1)
        for symbol in range(refused):
            target = successor(state, symbol)
            if target is None:
                continue
            if target not in number:
                if len(states) >= budget:
                    raise BudgetError(f"the values allowed here need more than {budget} states", keyword=keyword,
                                      hint="use a rounder number")
                number[target] = len(states)
                states.append(target)
            row[symbol] = number[target]
        rows.append(row)
    return minimize_dfa(Dfa(byte_symbol, np.array(rows, np.int32), np.array([label(state) for state in states], np.int32)))
