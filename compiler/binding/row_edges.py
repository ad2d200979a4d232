"""The distinct values of every state's row: the edges of the graph that needs are shortest paths of.

In: rows, one pattern a state, defaults or none. Out: the pairs (value, state) such that some token takes the state to the value, each once.
Rows that are inherited are not expanded: a state has its default's values but for those all of whose actions have a value of their own
at the state. Cost: a sort of the places where a row's value changes, and O(distinct values) for each state with a default.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.formats.coding import offsets, spread
from stcc.formats.distinct import distinct
from stcc.formats.row_patterns import RowPatterns

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def row_edges(rows: RowPatterns) -> tuple[Int64, Int32]:
    """Values and states of the distinct pairs, sorted by value, then state; int64 and int32."""
    states = len(rows.pattern)
    source = np.repeat(np.arange(states, dtype=np.int32), np.diff(rows.offsets))
    turns = _turns(source, rows.base)
    values, sources = rows.base[turns].astype(np.int64), source[turns]
    alive = values >= 0
    edges = [values[alive] * states + sources[alive]]
    if rows.default is not None:
        edges.append(_inherited(rows, rows.default, source, turns))
    value, state = np.divmod(distinct(np.concatenate(edges)), states)
    return value, state.astype(np.int32)


def _turns(source: Int32, values: Int32) -> npt.NDArray[np.intp]:
    """Where a row begins or its value changes: most neighbours have one value, and are dropped before anything is sorted."""
    turns = np.ones(len(values), np.bool_)
    turns[1:] = (values[1:] != values[:-1]) | (source[1:] != source[:-1])
    return np.flatnonzero(turns)


def _changes(keys: Int64) -> npt.NDArray[np.bool_]:
    return np.concatenate((np.ones(min(1, len(keys)), np.bool_), keys[1:] != keys[:-1]))


def _inherited(rows: RowPatterns, default: Int32, source: Int32, turns: npt.NDArray[np.intp]) -> Int64:
    """``value * states + state`` for the values that states have by default."""
    states = len(default)
    width = np.int64(int(rows.base.max(initial=0)) + 1)
    heirs = np.flatnonzero(default != np.arange(states))
    is_default = np.zeros(states, np.bool_)
    is_default[default[heirs]] = True
    # how many actions of each default have each value
    runs = np.diff(turns, append=len(source))
    chosen = is_default[source[turns]]
    keys = source[turns][chosen] * width + rows.base[turns][chosen]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(_changes(keys))
    counts = np.add.reduceat(runs[chosen][order], starts) if len(starts) else np.zeros(0, np.intp)
    owner, value = np.divmod(keys[starts], width)
    # the same for each heir, in the order of the heirs
    bounds = owner.searchsorted(np.arange(states + 1))
    lengths = np.diff(bounds)[default[heirs]]
    places = spread(bounds[:-1][default[heirs]], lengths, offsets(lengths))
    pairs = np.repeat(heirs, lengths) * width + value[places]
    left = counts[places]
    replaced, times = np.unique(_replaced(rows, default, source, width), return_counts=True)
    left[pairs.searchsorted(replaced)] -= times
    heir, value = np.divmod(pairs[left > 0], width)
    edges: Int64 = value * states + heir
    return edges


def _replaced(rows: RowPatterns, default: Int32, source: Int32, width: np.int64) -> Int64:
    """``heir * width + value`` for each action with a value of its own at an heir where the default has a value for it: that one."""
    actions = np.int64(int(rows.actions.max(initial=0)) + 1)
    keys = source * actions + rows.actions
    own = np.flatnonzero(default[source] != source)
    wanted = default[source[own]] * actions + rows.actions[own]
    places = np.minimum(keys.searchsorted(wanted), max(len(keys) - 1, 0))
    found = keys[places] == wanted
    replaced: Int64 = source[own][found] * width + rows.base[places[found]]
    return replaced
