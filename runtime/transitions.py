"""Token transitions of one bound machine: what a token does at a state, and what a value of the binding does on a stack level.

In: a ``Binding``, the machine's ``Stacks`` and the vocabulary's ``TokenSets``. Out: values (see ``stcc.formats.binding``) and the
configurations that they lead to. Everything found is kept: transitions in ``values``, landings in the levels.

Cost: a repeated look-up is one dictionary access. A new one is two binary searches (the token's run, the action in the state's row) over
buffers of Python's own, some 2 us: reading single numbers out of NumPy arrays costs several times as much. ``warm`` saves the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from stcc.formats.binding import EXPOSED, POPPED
from stcc.formats.row_patterns import layered_rows
from stcc.runtime.stack import ENDED, Configuration, Level, Stacks
from stcc.runtime.token_sets import TokenSets

if TYPE_CHECKING:
    from stcc.formats.binding import Binding

MOST_VALUES = 1 << 18
DEAD, STOP = -1, -2


class Transitions:
    """See the module's text. ``values`` is public because a matcher's hot path reads it itself: a call would double its cost.

    Attributes:
        states: number of machine states; a value from there on is a record.
        values: ``state * size + token`` -> value, DEAD or STOP, for the tokens seen so far.
    """

    __slots__ = ("_action_of", "_actions", "_base", "_byte_order", "_default", "_follows", "_function", "_head", "_kind", "_offsets",
                 "_pattern", "_push_offsets", "_pushes", "_rank", "_run_action", "_run_starts", "_size", "_stacks", "_stops",
                 "_suffix_offsets", "_suffix_states", "_suffix_values", "states", "values")

    def __init__(self, binding: Binding, stacks: Stacks, sets: TokenSets) -> None:
        rows = layered_rows(binding)
        self._stacks, self._stops, self._size = stacks, sets.stop_token_ids, sets.size
        self._byte_order = sets.byte_order
        self._action_of: memoryview | None = None
        self.states = stacks.machine.states
        self.values: dict[int, int] = {}
        self._rank = sets.rank.data
        self._run_starts, self._run_action = binding.run_starts.data, binding.run_action.data
        self._pattern, self._offsets = rows.pattern.data, rows.offsets.data
        self._actions, self._base, self._follows = rows.actions.data, rows.base.data, rows.follows.data
        self._default = None if rows.default is None else rows.default.data
        self._kind, self._head = binding.record_kind.data, binding.record_head.data
        self._function = binding.record_function.data
        self._push_offsets, self._pushes = binding.record_push_offsets.data, binding.record_pushes.data
        self._suffix_offsets = binding.suffix_offsets.data
        self._suffix_states, self._suffix_values = binding.suffix_states.data, binding.suffix_values.data

    def value(self, state: int, token: int) -> int:
        """What ``token`` does at ``state``: a value of the binding, DEAD, or STOP for a stop token. Kept for the next time."""
        table = self._action_of
        action = self._find_action(token) if table is None else table[token]
        if not action:
            found = STOP if token in self._stops else DEAD
        elif state < 0:
            found = DEAD
        else:
            pattern = self._pattern[state]
            high = self._offsets[pattern + 1]
            place = bisect_left(self._actions, action, self._offsets[pattern], high)
            found = DEAD
            if place < high and self._actions[place] == action:
                found = self._base[place] + self._follows[place] * state
            elif self._default is not None and self._default[state] != state:
                found = self.value(self._default[state], token)
        if len(self.values) >= MOST_VALUES:
            self.values.clear()
        self.values[state * self._size + token] = found
        return found

    def _find_action(self, token: int) -> int:
        """The action of ``token``; the dead one if it spells nothing."""
        rank = self._rank[token]
        action: int = self._run_action[bisect_right(self._run_starts, rank) - 1] if rank >= 0 else 0
        return action

    def warm(self) -> None:
        """Write down the action of every token, so that none has to be searched for: two bytes a token, 0.3 ms."""
        starts, actions = np.asarray(self._run_starts), np.asarray(self._run_action)
        table = np.zeros(self._size, np.uint16 if actions.size and int(actions.max()) < 1 << 16 else np.int32)
        table[self._byte_order] = actions.astype(table.dtype).repeat(np.diff(starts, append=len(self._byte_order)))
        self._action_of = table.data

    def land(self, value: int, level: Level) -> Configuration | None:
        """The configuration that ``value`` leads to from a state on ``level``; None where the stack makes it dead."""
        if value < self.states:
            return (value, level) if value >= 0 else None
        try:
            return level.landings[value]
        except KeyError:
            landing = level.landings[value] = self._follow(value - self.states, level)
            return landing

    def _follow(self, record: int, level: Level) -> Configuration | None:
        kind, head = self._kind, self._head
        while kind[record] == EXPOSED:
            landing = self._stacks.leave(head[record], level)
            if landing is None or landing[0] == ENDED:  # more bytes were read after the text ended
                return None
            level = landing[1]
            value = self.suffix_value(self._function[record], landing[0])
            if value < self.states:
                return (value, level) if value >= 0 else None
            record = value - self.states
        if kind[record] == POPPED:
            return self._stacks.leave(head[record], level)
        for place in range(self._push_offsets[record], self._push_offsets[record + 1]):
            level = self._stacks.push(level, self._pushes[place])
        return head[record], level

    def suffix_value(self, function: int, state: int) -> int:
        """The value of suffix function ``function`` at return state ``state``, DEAD where it has none."""
        high = self._suffix_offsets[function + 1]
        place = bisect_left(self._suffix_states, state, self._suffix_offsets[function], high)
        return self._suffix_values[place] if place < high and self._suffix_states[place] == state else DEAD

