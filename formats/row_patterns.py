"""The rows of a binding, each distinct one once: what a runtime needs of a state without expanding the rows of all.

In: a ``Binding``. Out: ``RowPatterns``. States along a chain have the same actions with values that move along with the state, so a value
is given as ``base + follows * state`` and the rows of thousands of states are some hundred patterns (27,000 entries of the 96-field form
are 1,400). A binding from a file has them as they are stored; one made in memory is its own pattern state by state, at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import Binding

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class RowPatterns:
    """See the module's text.

    Attributes:
        pattern: unsigned or int32 ``[states]``, each state's pattern.
        offsets: int32 ``[patterns + 1]`` into the next three.
        actions: int32 ``[entries]``, live actions, rising within a pattern.
        base: int32 ``[entries]``; the value at a state is ``base + follows * state``.
        follows: int32 ``[entries]``, 0 or 1; where it is 1 the value is a state.
    """

    pattern: npt.NDArray[Any]
    offsets: Int32
    actions: Int32
    base: Int32
    follows: Int32

    def span(self, state: int) -> tuple[int, int]:
        """Where the entries of ``state`` begin and end."""
        pattern = self.pattern[state]
        return int(self.offsets[pattern]), int(self.offsets[pattern + 1])

    def live(self, state: int) -> tuple[Int32, Int32]:
        """The live actions of ``state`` and their values, int32 ``[live]`` each."""
        low, high = self.span(state)
        return self.actions[low:high], self.base[low:high] + self.follows[low:high] * np.int32(state)


def row_patterns(binding: Binding) -> RowPatterns:
    """The patterns of ``binding``; FormatError if it comes from a file that is damaged there."""
    stored: RowPatterns | None = getattr(binding, "row_patterns", None)
    if stored is not None:
        return stored
    states = max(len(binding.row_offsets) - 1, 0)
    return RowPatterns(np.arange(states, dtype=np.int32), binding.row_offsets, binding.row_actions, binding.row_values,
                       np.zeros(len(binding.row_values), np.int32))
