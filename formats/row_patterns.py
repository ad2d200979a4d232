"""The rows of a binding without their repetitions: what a runtime needs of a state without expanding the rows of all.

In: a ``Binding``. Out: ``RowPatterns``. Rows repeat in two ways.

*Patterns.* States along a chain have the same actions with values that move along with the state, so a value is given as ``base + follows *
state`` and the rows of thousands of states are some hundred patterns (27,000 entries of the 96-field form are 1,400).

*Defaults.* In a trie of declared keys every state does with nearly every token what the loop over other keys does. Such a state names it
as its default and lists only the actions with another value, dead ones as -1 (an open object of 17,000 states: 13 million entries are one).

A binding from a file has its rows as they are stored; one made in memory is its own pattern state by state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import Binding
from stcc.formats.coding import offsets, spread

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Rows = tuple[Int32, Int32, Int32]
_CHUNK_ENTRIES = 1 << 20
EXPANDED = ("row_offsets", "row_actions", "row_values")


@dataclass(frozen=True, eq=False)
class RowPatterns:
    """See the module's text.

    Attributes:
        pattern: unsigned or int32 ``[states]``, each state's pattern.
        offsets: int32 ``[patterns + 1]`` into the next three.
        actions: int32 ``[entries]``, actions, rising within a pattern; all of them live where there are no defaults.
        base: int32 ``[entries]``; the value at a state is ``base + follows * state``. -1: the action is dead here, unlike at the default.
        follows: int32 ``[entries]``, 0 or 1; where it is 1 the value is a state.
        default: int32 ``[states]``, the state whose value an action has that the state's own pattern does not list; the state itself where
            such an action is dead. None if that is every state. A default is its own default.
    """

    pattern: npt.NDArray[Any]
    offsets: Int32
    actions: Int32
    base: Int32
    follows: Int32
    default: Int32 | None = None

    def span(self, state: int) -> tuple[int, int]:
        """Where the entries of ``state``'s own pattern begin and end."""
        pattern = self.pattern[state]
        return int(self.offsets[pattern]), int(self.offsets[pattern + 1])

    def own(self, state: int) -> tuple[Int32, Int32]:
        """The actions in ``state``'s own pattern and their values, int32 each."""
        low, high = self.span(state)
        return self.actions[low:high], self.base[low:high] + self.follows[low:high] * np.int32(state)

    def live(self, state: int) -> tuple[Int32, Int32]:
        """The live actions of ``state`` and their values, int32 ``[live]`` each."""
        default = state if self.default is None else int(self.default[state])
        if default == state:
            return self.own(state)
        actions, values = _overlaid(*self.own(default), *self.own(state))
        return actions.astype(np.int32), values

    def flat(self, most: int | None = None) -> RowPatterns:
        """The rows without defaults, each state its own pattern; these rows if they have none.

        Args:
            most: states whose rows do not fit in this many entries are left out (``pattern`` ends before them).
        """
        if self.default is None:
            return self
        bounds, actions, values = self.expanded(most)
        return RowPatterns(np.arange(len(bounds) - 1, dtype=np.int32), bounds, actions, values, np.zeros(len(values), np.int32))

    def listed(self) -> Rows:
        """What each state lists in its own pattern: int32 ``[states + 1]`` offsets, actions, values."""
        return self._spelled(np.arange(len(self.pattern)))

    def most_entries(self) -> int:
        """A bound on the entries of all rows together, defaults expanded."""
        sizes = np.diff(self.offsets)[self.pattern].astype(np.int64)
        inherited = 0 if self.default is None else int(sizes[self.default[self.default != np.arange(len(sizes))]].sum())
        return int(sizes.sum()) + inherited

    def expanded(self, most: int | None = None) -> Rows:
        """All rows: int32 ``[states + 1]`` offsets, and actions and values, as in ``Binding``; ``most`` as for ``flat``."""
        if self.default is None:
            return self.listed()
        lengths: list[Int32] = []
        parts: list[tuple[Int32, Int32]] = [(np.zeros(0, np.int32), np.zeros(0, np.int32))]
        room = np.inf if most is None else most
        for states in self._chunks():
            counts, actions, values = self._joined(states)
            fitting = int(np.searchsorted(np.cumsum(counts), room, side="right"))
            room -= int(counts.sum())
            entries = int(counts[:fitting].sum())
            lengths.append(counts[:fitting])
            parts.append((actions[:entries], values[:entries]))
            if room < 0:
                break
        return (offsets(np.concatenate([np.zeros(0, np.int32), *lengths])), np.concatenate([part for part, _ in parts]),
                np.concatenate([part for _, part in parts]))

    def _chunks(self) -> Iterator[npt.NDArray[np.intp]]:
        """The states in pieces whose rows have some ``_CHUNK_ENTRIES`` entries."""
        assert self.default is not None
        sizes = np.diff(self.offsets)[self.pattern].astype(np.int64)
        pieces = np.cumsum(sizes + sizes[self.default]) // _CHUNK_ENTRIES
        yield from np.split(np.arange(len(self.pattern)), np.flatnonzero(np.diff(pieces)) + 1)

    def _spelled(self, states: npt.NDArray[np.intp]) -> Rows:
        """Offsets, actions and values of the own patterns of ``states``, one after the other."""
        pattern = self.pattern[states]
        lengths = np.diff(self.offsets)[pattern]
        bounds = offsets(lengths)
        places = spread(self.offsets[:-1][pattern], lengths, bounds)
        values = np.take(self.follows, places)
        values *= np.repeat(states.astype(np.int32), lengths)
        values += np.take(self.base, places)
        return bounds, np.take(self.actions, places), values

    def _joined(self, states: npt.NDArray[np.intp]) -> Rows:
        """The rows of rising ``states``, defaults included: how long each is, then actions and values."""
        assert self.default is not None
        default = self.default[states]
        width = np.int64(int(self.actions.max(initial=0)) + 1)
        own_bounds, own_actions, own_values = self._spelled(states)
        bounds, actions, values = self._spelled(default.astype(np.intp))
        inherited = default != states
        number = np.arange(len(states), dtype=np.int64)
        of_default = np.repeat(inherited, np.diff(bounds))
        keys, found = _overlaid(
            (np.repeat(number, np.diff(bounds)) * width + actions)[of_default], values[of_default],
            np.repeat(number, np.diff(own_bounds)) * width + own_actions, own_values)
        row, action = np.divmod(keys, width)
        return np.bincount(row, minlength=len(states)).astype(np.int32), action.astype(np.int32), found


def _overlaid(keys: npt.NDArray[Any], values: Int32, own_keys: npt.NDArray[Any], own_values: Int32) -> tuple[npt.NDArray[Any], Int32]:
    """Rising ``keys`` and their values, those of ``own_keys`` in place of equal ones; what is dead then is left out. Linear, but for the
    searches of the own.
    """
    places = keys.searchsorted(own_keys)
    shared = np.zeros(len(own_keys), np.bool_)
    if len(keys):
        shared = keys[np.minimum(places, len(keys) - 1)] == own_keys
    values = values.copy()
    values[places[shared]] = own_values[shared]
    added = ~shared
    if added.any():
        keys = np.insert(keys, places[added], own_keys[added])
        values = np.insert(values, places[added], own_values[added])
    alive = values >= 0
    return keys[alive], values[alive]


class LayeredBinding(Binding):
    """A ``Binding`` made in memory whose rows have defaults; the expanded ``row_*`` arrays are made if somebody asks."""

    row_patterns: RowPatterns

    def __init__(self, rows: RowPatterns | None = None, **arrays: Any) -> None:
        self.__dict__.update(arrays)
        if rows is not None:
            self.__dict__["row_patterns"] = rows

    def __getattr__(self, name: str) -> Any:
        if name not in EXPANDED or "row_patterns" not in self.__dict__:
            raise AttributeError(name)
        self.__dict__.update(zip(EXPANDED, self.row_patterns.expanded(), strict=True))
        return self.__dict__[name]


def made_binding(rows: RowPatterns, **arrays: Any) -> Binding:
    """The ``Binding`` with these rows, one pattern a state, and the other arrays by name."""
    if rows.default is not None:
        return LayeredBinding(rows, **arrays)
    return Binding(row_offsets=rows.offsets, row_actions=rows.actions, row_values=rows.base, **arrays)


def layered_rows(binding: Binding) -> RowPatterns:
    """The rows of ``binding`` as they are kept, defaults included; FormatError if it comes from a file that is damaged there."""
    kept: RowPatterns | None = getattr(binding, "row_patterns", None)
    if kept is not None:
        return kept
    states = max(len(binding.row_offsets) - 1, 0)
    return RowPatterns(np.arange(states, dtype=np.int32), binding.row_offsets, binding.row_actions, binding.row_values,
                       np.zeros(len(binding.row_values), np.int32))


def row_patterns(binding: Binding) -> RowPatterns:
    """The rows of ``binding`` without defaults, for those who want one span a state; errors as ``layered_rows``.

    Costs all entries where the binding has defaults, else nothing; LimitError if they are more than the binding's file may cost.
    """
    rows = layered_rows(binding)
    if rows.default is None:
        return rows
    return RowPatterns(np.arange(len(rows.pattern), dtype=np.int32), binding.row_offsets, binding.row_actions, binding.row_values,
                       np.zeros(len(binding.row_values), np.int32))
