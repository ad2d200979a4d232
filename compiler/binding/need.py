"""Token needs: the fewest tokens that finish a valid output from every state, exactly, with and without a stack.

In: a machine and its token actions. Out: ``need_finish``, ``need_kinds`` and ``need_leave`` of ``stcc.formats.binding.Binding``. After
it: a budget of ``r`` tokens suffices from ``(q, stack)`` if and only if ``need(q, stack) <= r``; every token costs 1, stop tokens nothing.

Without a stack these are shortest paths over action edges (Theorem 21 of the few-path paper): ``need_finish``, and no kinds.

With one, a token leaves the rule it starts in by a *kind*: a record POPPED(e) or EXPOSED(e, f). ``need_leave[q, k]`` is the fewest tokens
from ``q`` up to and including one whose value, resolved against everything opened since, is kind ``k``. What a value costs is a *row* over
columns, all POPPED and EXPOSED records and then *finish* (an end inside, with the stack empty); the rest of a stack is one
vector ``F`` over the same columns per level:

    cost(v, stack)  = min over columns of row(v) + F(stack)                a token whose value is v needs 1 + cost(v, stack)
    row(q)          = need_leave[q] at the columns of need_kinds, need_finish[q] at finish, elsewhere unreachable
    row(record k)   = 0 at its own column                                  k = POPPED or EXPOSED
    row(MOVE(p, q)) = row(q), then for each site s of p, innermost first: r -> min over k of r[k] + row(landing(k, s))
    F(())           = 0 at POPPED(0) and finish, elsewhere unreachable
    F(stack + s)[k] = cost(landing(k, s), stack), unreachable at finish
    landing(k, s)   = returns[s, e] for POPPED(e);   suffix f at returns[s, e] for EXPOSED(e, f);   none where either is missing

A landing may be a MOVE that pushes the very site it popped (the token ``},{``), so rows of MOVE records are a least fixpoint over one
another, not a recursion; such a detour costs a token each time, so rounds of relaxation reach it. Kinds that another kind matches or beats
at every state and every landing are left out of ``need_kinds``: no minimum misses them, and ``row(record)`` still holds for them.

Method: least fixpoint by rounds in which only rows that changed are propagated, over a table value x kind (``cost_rows``). A call
contributes summary edges: opening ``s`` around a cost row is a (min, +) product of the row with the landings at ``s``. Sites that stand
around equal rows, and at which kinds land at equal rows, have equal products, which are formed once: a string of up to 65,535 characters
calls blocks from 255 sites, and all but the last few are alike. Cost: (distinct edges) x (kinds) x (times a row improves, a few), and as
much for each distinct product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.actions import TokenActions
from stcc.compiler.binding.cost_rows import NARROW, CostRows, Costs, TooFarError, check_near, first_equal, widened
from stcc.compiler.binding.row_edges import row_edges
from stcc.compiler.options import Deadline
from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE
from stcc.formats.distinct import distinct
from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
MAX_CELLS = 1 << 27  # value x kind cells of the fixpoint: 512 MiB
_DOMINANCE_WORK = 1 << 26  # comparisons spent on leaving out kinds
_FEW_KINDS = 64  # kinds up to which frames are improved whatever their sites
_GATHERED_CELLS = 1 << 17  # cells of cost rows gathered at once: so they stay in the cache
_FEW_PIECES = 4  # pieces up to which each is reduced by itself
_NONE: Int32 = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class Needs:
    """The need sections of a ``Binding``; the arrays are documented there."""

    need_finish: Int32
    need_kinds: Int32
    need_leave: Int32


def token_needs(machine: Machine, actions: TokenActions, deadline: Deadline | None = None) -> Needs:
    """Exact least token counts; see the module's text. None at all past ``MAX_CELLS``; BudgetError past the deadline."""
    if deadline is not None:
        deadline.check_now()
    system = _System(machine, actions, deadline)
    if system.cells > MAX_CELLS:
        return Needs(_NONE, _NONE, np.zeros((machine.states, 0), np.int32))
    system.tabulate(machine, actions)
    try:
        rows = system.solve(NARROW)
    except TooFarError:
        rows = system.solve(UNREACHABLE)
    kinds = len(system.kinds)
    leave = rows.table[: machine.states, :kinds]
    kept = _undominated(leave, rows, system.landing) if kinds else np.zeros(0, np.intp)
    finish = widened(rows.table[: machine.states, kinds], rows.unreachable)
    return Needs(finish, system.kinds[kept], widened(leave[:, kept], rows.unreachable))


class _System:
    """The equations of one machine: edges from states to values, and frames, the calls open around a value.

    Values are numbered states, records, then the frames that are inner parts of a MOVE record and no record themselves; the last row is
    dead. Columns are the kinds, then finishing with the stack empty.
    """

    def __init__(self, machine: Machine, actions: TokenActions, deadline: Deadline | None = None) -> None:
        self._states, self._deadline = machine.states, deadline
        stacked = actions.record_kind != MOVE if machine.sites else np.zeros(len(actions.record_kind), np.bool_)
        self.kinds: Int32 = np.flatnonzero(stacked).astype(np.int32)
        self._frames(actions)
        self.dead = self._states + len(actions.record_kind) + self._extra
        self.cells = (self.dead + 1) * (len(self.kinds) + 1)

    def tabulate(self, machine: Machine, actions: TokenActions) -> None:
        """Make the tables of the fixpoint."""
        self.landing = self._landings(machine, actions)
        self._by_site = np.ascontiguousarray(self.landing.T)
        self._edges(machine, actions)
        ended = self._states + np.flatnonzero((actions.record_kind == POPPED) & (actions.record_head == 0))
        self._finished = np.concatenate((np.flatnonzero(machine.accepting), ended))
        self._owned = np.concatenate((np.arange(self._states), self._states + np.flatnonzero(actions.record_kind != MOVE)))

    def _first_rows(self, unreachable: int) -> CostRows:
        """What costs nothing; with few kinds every value owns its row."""
        if len(self.kinds) <= _FEW_KINDS:
            rows = CostRows(np.arange(self.dead), self.dead, 0, len(self.kinds) + 1, unreachable)
        else:
            rows = CostRows(self._owned, self.dead, len(self._frame), len(self.kinds) + 1, unreachable)
        rows.table[rows.slot[self._states + self.kinds], np.arange(len(self.kinds))] = 0
        rows.table[rows.slot[self._finished], -1] = 0
        return rows

    def _frames(self, actions: TokenActions) -> None:
        """Number every (outermost site, value inside it), and sort them by site; MOVE records keep their own numbers."""
        depths = np.diff(actions.record_push_offsets)  # 0 but for MOVE records
        single, deep = np.flatnonzero(depths == 1), np.flatnonzero(depths > 1)
        heads, sites = actions.record_head, actions.record_pushes[actions.record_push_offsets[single]]
        frame, outer, inner = self._deep_frames(actions, deep, single)
        columns = (self._states + single, frame), (sites, outer), (heads[single], inner)
        numbers, outermost, inside = (np.concatenate(parts).astype(np.int32) for parts in columns)
        order = np.argsort(outermost, kind="stable")
        self._frame, self._outer, self._inner = numbers[order], outermost[order], inside[order]

    def _deep_frames(self, actions: TokenActions, deep: npt.NDArray[np.intp], single: npt.NDArray[np.intp]) -> tuple[Int32, Int32, Int32]:
        """Those of records with several sites, part by part, innermost first: number, outermost site, value inside."""
        heads, offsets, sites = actions.record_head.tolist(), actions.record_push_offsets.tolist(), actions.record_pushes.tolist()
        known: dict[tuple[tuple[int, ...], int], int] = {}
        for record in (np.concatenate((single, deep)) if len(deep) else deep).tolist():
            known[tuple(sites[offsets[record]: offsets[record + 1]]), heads[record]] = self._states + record
        singles = {*(self._states + single).tolist()} if len(deep) else set()
        fresh = first = self._states + len(heads)
        frames: dict[int, tuple[int, int]] = {}
        for record in deep.tolist():
            if self._deadline is not None:
                self._deadline.check()
            pushes, head = tuple(sites[offsets[record]: offsets[record + 1]]), heads[record]
            value = head
            for depth in range(len(pushes) - 1, -1, -1):
                number = known.setdefault((pushes[depth:], head), fresh)
                fresh += number == fresh
                frames.setdefault(number, (pushes[depth], value))
                value = number
        self._extra = fresh - first
        parts = [(number, *around) for number, around in frames.items() if number not in singles]
        table = np.array(parts, np.int32).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]

    def _landings(self, machine: Machine, actions: TokenActions) -> Int32:
        """int32 ``[kinds, sites]``: the value at which each kind lands at each site, the dead row where at none."""
        landing = np.full((len(self.kinds), machine.sites), self.dead, np.int32)
        for row, record in enumerate(self.kinds.tolist()):
            exit_, function = int(actions.record_head[record]), int(actions.record_function[record])
            if exit_ >= machine.returns.shape[1]:
                continue
            state = machine.returns[:, exit_]
            if actions.record_kind[record] == EXPOSED:
                low, high = actions.suffix_offsets[function], actions.suffix_offsets[function + 1]
                place = np.minimum(np.searchsorted(actions.suffix_states[low:high], state), high - low - 1)
                hit = actions.suffix_states[low:high][place] == state
                landing[row] = np.where(hit, actions.suffix_values[low:high][place], self.dead)
            else:
                landing[row] = np.where(state >= 0, state, self.dead)
        return landing

    def _edges(self, machine: Machine, actions: TokenActions) -> None:
        """Distinct (state, value) edges, grouped by value."""
        value, self._source = row_edges(actions.rows)
        self._offsets = np.searchsorted(value, np.arange(self.dead + 2))

    def solve(self, unreachable: int) -> CostRows:
        """The least costs after each value. Raises TooFarError where ``unreachable`` is too little, BudgetError past the deadline."""
        rows, deadline = self._first_rows(unreachable), self._deadline
        changed = np.flatnonzero(rows.reachable())
        while len(changed):
            if deadline is not None:
                deadline.check_now()
            fresh_frames = self._improve_frames(rows, changed)
            changed = np.concatenate((self._improve_states(rows, changed), fresh_frames))
        return rows

    def _improve_states(self, rows: CostRows, changed: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Lower the rows of the states with an edge to a changed value; the states whose row did change."""
        low = self._offsets[changed]
        counts = self._offsets[changed + 1] - low
        total = int(counts.sum())
        if not total:
            return changed[:0]
        edges = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(total)
        slots = len(rows.table)
        keys = distinct(self._source[edges] * np.int64(slots) + np.repeat(rows.slot[changed], counts))  # values of one slot are one
        source, slot = np.divmod(keys, slots)
        starts = np.flatnonzero(_differ_from_before(source))
        return self._lower(rows, source[starts], _fewest(rows.table, slot, starts) + rows.table.dtype.type(1))

    def _improve_frames(self, rows: CostRows, changed: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Likewise for the frames around a changed value, or whose site a kind leaves to land at one."""
        if not len(self._frame) or not len(self.kinds):
            return changed[:0]
        dirty = np.zeros(self.dead + 1, np.bool_)
        dirty[changed] = True
        reopened: Bool = np.asarray(dirty[self.landing].any(axis=0))
        stale = np.flatnonzero(dirty[self._inner] | reopened[self._outer])
        if not len(stale):
            return changed[:0]
        return self._improve_all(rows, stale) if len(self.kinds) <= _FEW_KINDS else self._improve_sites(rows, stale)

    def _improve_sites(self, rows: CostRows, stale: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The frames ``stale`` site by site; sites around equal rows, at which kinds land at equal rows, are one product."""
        rows.make_room()
        sites, starts = np.unique(self._outer[stale], return_index=True)
        landed, inner = rows.representatives(self._by_site[sites]), rows.slot[self._inner[stale]]
        fresh = np.empty(len(stale), np.int32)
        known: dict[tuple[bytes, bytes], Int32] = {}
        for place, low, high in zip(landed, starts.tolist(), [*starts[1:].tolist(), len(stale)], strict=True):
            key = inner[low:high].tobytes(), place.tobytes()
            found = known.get(key)
            if found is None:
                if self._deadline is not None:
                    self._deadline.check_now()
                found = known[key] = rows.around(inner[low:high], place)
            fresh[low:high] = found
        frames = self._frame[stale]
        moved = fresh != rows.slot[frames]
        rows.slot[frames] = fresh
        improved: npt.NDArray[np.intp] = frames[moved].astype(np.intp)
        return improved

    def _improve_all(self, rows: CostRows, stale: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The frames ``stale`` at once, whatever their sites: with few kinds a site is a handful of sums."""
        kinds, table = len(self.kinds), rows.table
        piece = max(1, _GATHERED_CELLS // (kinds * (kinds + 1)))
        improved = [stale[:0]]
        for low in range(0, len(stale), piece):
            frames = stale[low: low + piece]
            sums = table[self._by_site[self._outer[frames]]]
            sums += table[self._inner[frames], :-1, None]
            improved.append(self._lower(rows, self._frame[frames], np.minimum(sums.min(axis=1), rows.unreachable)))
        return np.concatenate(improved)

    @staticmethod
    def _lower(rows: CostRows, slots: Int32, offered: Costs) -> npt.NDArray[np.intp]:
        table = rows.table
        better = (offered < table[slots]).any(axis=1)
        slots, offered = slots[better], offered[better]
        check_near(offered, rows.unreachable)
        table[slots] = np.minimum(table[slots], offered)
        return slots.astype(np.intp)


def _fewest(table: Costs, slot: Int32, starts: npt.NDArray[np.intp]) -> Costs:
    """The least of the rows at ``slot``, for each piece of it that starts at ``starts``."""
    lengths = np.diff(starts, append=len(slot))
    order = np.argsort(-lengths, kind="stable")
    fewest = np.empty((len(starts), table.shape[1]), table.dtype)
    block = max(1, _GATHERED_CELLS // table.shape[1])
    for low in range(0, len(order), block):
        part = order[low: low + block]
        fewest[part] = _least_rows(table, slot, starts[part], lengths[part])
    return fewest


def _least_rows(table: Costs, slot: Int32, starts: npt.NDArray[np.intp], lengths: npt.NDArray[np.intp]) -> Costs:
    """``_fewest`` of pieces that get shorter: their first rows, their second ones and so on while there are many; the rest one by one.

    ``numpy.minimum.reduceat`` takes five times as long, since only minima of two arrays use vector instructions.
    """
    least = table[slot[starts]]
    following = np.empty_like(least)
    longer = np.searchsorted(-lengths, -np.arange(1, lengths[0] + 1))  # how many pieces have one more row
    turn = 1
    while longer[turn - 1] > _FEW_PIECES:
        count = longer[turn - 1]
        table.take(slot[starts[:count] + turn], axis=0, out=following[:count], mode="clip")
        np.minimum(least[:count], following[:count], out=least[:count])
        turn += 1
    for piece in range(longer[turn - 1]):
        rest = table[slot[starts[piece] + turn: starts[piece] + lengths[piece]]]
        np.minimum(least[piece], rest.min(axis=0), out=least[piece])
    return least


def _differ_from_before(rising: npt.NDArray[np.int64]) -> Bool:
    return np.concatenate((np.ones(1, np.bool_), rising[1:] != rising[:-1]))


def _undominated(leave: Costs, rows: CostRows, landing: Int32) -> npt.NDArray[np.intp]:
    """Kinds that no other kind matches or beats at every state and every landing; the first of equals stays.

    Args:
        leave: ``[states, kinds]``.
        rows: ``[values, kinds + 1]``.
        landing: ``[kinds, sites]``, value after each kind lands at each site.
    """
    kept = np.flatnonzero((leave < rows.unreachable).any(axis=0) & rows.reachable()[landing].any(axis=1))
    if not len(kept):
        return kept
    profile: Int32 = np.concatenate((leave[:, kept].T.astype(np.int32), rows.representatives(landing[kept])), axis=1)
    kept = kept[distinct(first_equal(profile))]
    width = len(leave) + landing.shape[1] * rows.table.shape[1]
    if len(kept) * len(kept) * width > _DOMINANCE_WORK:
        return kept
    costs = np.concatenate((leave[:, kept].T, rows.table[rows.slot[landing[kept]]].reshape(len(kept), -1)), axis=1)
    alive = np.ones(len(kept), np.bool_)
    for kind in range(len(kept)):
        beats = (costs <= costs[kind]).all(axis=1) & alive
        beats[kind] = False
        alive[kind] = not beats.any()
    return kept[alive]
