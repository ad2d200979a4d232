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

Kinds that land alike at a site are one there: 301 kinds have 18 different landings (a Snowplow schema with 701 sites).

Method: least fixpoint by rounds in which only rows that changed are propagated, over a table value x kind. A call contributes
summary edges: opening ``s`` around a cost row is a (min, +) product of the row with the landings at ``s``. Cost: (distinct edges) x
(kinds) x (times a row improves, a few).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.actions import TokenActions
from stcc.compiler.binding.row_edges import row_edges
from stcc.compiler.options import Deadline
from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE
from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
MAX_CELLS = 1 << 27  # value x kind cells of the fixpoint: 512 MiB
_DOMINANCE_WORK = 1 << 26  # comparisons spent on leaving out kinds
_FEW_KINDS = 64  # kinds up to which frames are improved whatever their sites
_GATHERED_CELLS = 1 << 18  # cells of cost rows gathered at once: 1 MiB; on 435 kinds all at once would be most of a gigabyte
_NONE: Int32 = np.zeros(0, np.int32)
_PRODUCT_CELLS = 1 << 16  # sums of a product formed at once: 256 KiB, so that they stay in the cache


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
    costs = system.solve(deadline)
    kinds = len(system.kinds)
    leave = costs[: machine.states, :kinds]
    kept = _undominated(leave, costs, system.landing) if kinds else np.zeros(0, np.intp)
    return Needs(costs[: machine.states, kinds].copy(), system.kinds[kept], np.ascontiguousarray(leave[:, kept]))


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
        self._edges(machine, actions)
        self._start = np.full((self.dead + 1, len(self.kinds) + 1), UNREACHABLE, np.int32)
        self._start[self._states + self.kinds, np.arange(len(self.kinds))] = 0
        self._start[: self._states][machine.accepting, -1] = 0
        self._start[self._states + np.flatnonzero((actions.record_kind == POPPED) & (actions.record_head == 0)), -1] = 0

    def _frames(self, actions: TokenActions) -> None:
        """Number every (outermost site, value inside it), innermost parts first; MOVE records keep their own numbers."""
        known: dict[tuple[tuple[int, ...], int], int] = {}
        moves = np.flatnonzero(actions.record_kind == MOVE).tolist()
        heads, offsets, sites = actions.record_head.tolist(), actions.record_push_offsets.tolist(), actions.record_pushes.tolist()
        stacks = {record: tuple(sites[offsets[record]: offsets[record + 1]]) for record in moves}
        for record, pushes in stacks.items():
            known[pushes, heads[record]] = self._states + record
        fresh = first = self._states + len(heads)
        outer: list[int] = []
        inner: list[int] = []
        numbers: list[int] = []
        seen: set[int] = set()
        for record, pushes in stacks.items():
            if self._deadline is not None:
                self._deadline.check()
            value, head = heads[record], heads[record]
            for depth in range(len(pushes) - 1, -1, -1):
                key = (pushes[depth:], head)
                number = known.get(key)
                if number is None:
                    number = known[key] = fresh
                    fresh += 1
                if number not in seen:
                    seen.add(number)
                    numbers.append(number)
                    outer.append(pushes[depth])
                    inner.append(value)
                value = number
        self._extra = fresh - first
        self._frame, self._outer, self._inner = (np.array(part, np.int32) for part in (numbers, outer, inner))

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

    def solve(self, deadline: Deadline | None) -> Int32:
        """int32 ``[dead + 1, kinds + 1]``: least cost after each value."""
        costs = self._start
        changed = np.flatnonzero((costs < UNREACHABLE).any(axis=1))
        while len(changed):
            if deadline is not None:
                deadline.check_now()
            fresh_frames = self._improve_frames(costs, changed, deadline)
            changed = np.concatenate((self._improve_states(costs, changed), fresh_frames))
        return costs

    def _improve_states(self, costs: Int32, changed: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Lower the rows of the states with an edge to a changed value; the states whose row did change."""
        low = self._offsets[changed]
        counts = self._offsets[changed + 1] - low
        total = int(counts.sum())
        if not total:
            return changed[:0]
        edges = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(total)
        source, value = self._source[edges], np.repeat(changed, counts)
        order = np.argsort(source, kind="stable")
        source, value = source[order], value[order]
        starts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), source[1:] != source[:-1])))
        states = source[starts]
        fewest = np.empty((len(states), costs.shape[1]), np.int32)
        pieces = starts // max(1, _GATHERED_CELLS // costs.shape[1])
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(starts)]
        ends = np.append(starts, len(source))
        for first, last in itertools.pairwise(cuts):
            np.minimum.reduceat(costs[value[ends[first]:ends[last]]], starts[first:last] - starts[first], axis=0, out=fewest[first:last])
        fewest += np.int32(1)
        return self._lower(costs, states, fewest)

    def _improve_frames(self, costs: Int32, changed: npt.NDArray[np.intp], deadline: Deadline | None) -> npt.NDArray[np.intp]:
        """Likewise for the frames around a changed value, or whose site a kind leaves to land at one."""
        if not len(self._frame) or not len(self.kinds):
            return changed[:0]
        dirty = np.zeros(self.dead + 1, np.bool_)
        dirty[changed] = True
        reopened: Bool = np.asarray(dirty[self.landing].any(axis=0))
        stale = np.flatnonzero(dirty[self._inner] | reopened[self._outer])
        if len(self.kinds) <= _FEW_KINDS:
            return self._improve_all(costs, stale)
        stale = stale[np.argsort(self._outer[stale], kind="stable")]
        sites, starts = np.unique(self._outer[stale], return_index=True)
        improved = [changed[:0]]
        for site, low, high in zip(sites.tolist(), starts.tolist(), [*starts[1:].tolist(), len(stale)], strict=False):
            if deadline is not None:
                deadline.check()
            frames = stale[low:high]
            offered = _around(costs[self._inner[frames], :-1], costs, self.landing[:, site])
            improved.append(self._lower(costs, self._frame[frames], offered))
        return np.concatenate(improved)

    def _improve_all(self, costs: Int32, stale: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The frames ``stale`` at once, whatever their sites: with few kinds a site is a handful of sums."""
        kinds = len(self.kinds)
        piece = max(1, _GATHERED_CELLS // (kinds * (kinds + 1)))
        improved = [stale[:0]]
        for low in range(0, len(stale), piece):
            frames = stale[low: low + piece]
            sums = costs[self.landing[:, self._outer[frames]].T]
            sums += costs[self._inner[frames], :-1, None]
            improved.append(self._lower(costs, self._frame[frames], np.minimum(sums.min(axis=1), UNREACHABLE)))
        return np.concatenate(improved)

    @staticmethod
    def _lower(costs: Int32, rows: Int32, offered: Int32) -> npt.NDArray[np.intp]:
        better = (offered < costs[rows]).any(axis=1)
        rows = rows[better]
        costs[rows] = np.minimum(costs[rows], offered[better])
        return rows.astype(np.intp)


def _around(leave: Int32, costs: Int32, landing: Int32) -> Int32:
    """(min, +) product: leave by some kind, then go on from where it landed.

    Args:
        leave: ``[n, kinds]``, costs of leaving.
        costs: ``[values, kinds + 1]``.
        landing: ``[kinds]``, the value where each kind lands.

    Returns:
        int32 ``[n, kinds + 1]``.
    """
    result = np.full((len(leave), costs.shape[1]), UNREACHABLE, np.int32)
    used = np.flatnonzero((leave < UNREACHABLE).any(axis=0))
    least, landed = leave[:, used], costs[landing[used]]
    columns = np.flatnonzero((landed < UNREACHABLE).any(axis=0))  # few: those of the rule that the call stands in
    if not len(columns):
        return result
    landed = landed[:, columns]
    if least.size * len(columns) > _PRODUCT_CELLS:
        least, reached = _gathered(least, landing[used])
        least, landed = _merged(least, costs[reached][:, columns])
    block = max(1, _PRODUCT_CELLS // landed.size)
    for low in range(0, len(leave), block):
        sums = least[low: low + block, :, None] + landed
        result[low: low + block, columns] = np.minimum(sums.min(axis=1), UNREACHABLE)
    return result


def _gathered(leave: Int32, landing: Int32) -> tuple[Int32, Int32]:
    """Kinds of equal ``landing`` as one: the least of their costs, and where they land."""
    order = np.argsort(landing, kind="stable")
    rising = landing[order]
    starts = np.flatnonzero(np.diff(rising, prepend=-1))
    if len(starts) == len(landing):
        return leave, landing
    return np.minimum.reduceat(leave[:, order], starts, axis=1), rising[starts]


def _merged(leave: Int32, landed: Int32) -> tuple[Int32, Int32]:
    """The same product with kinds of equal ``landed`` rows, which are most, as one."""
    group = _first_equal(landed)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.minimum.reduceat(leave[:, order], starts, axis=1), landed[order[starts]]


def _first_equal(rows: Int32) -> Int32:
    """The first row that equals each row; by hashing, since rows are wide."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), number) for number, row in enumerate(rows)], np.int32)


def _undominated(leave: Int32, costs: Int32, landing: Int32) -> npt.NDArray[np.intp]:
    """Kinds that no other kind matches or beats at every state and every landing; the first of equals stays.

    Args:
        leave: ``[states, kinds]``.
        costs: ``[values, kinds + 1]``.
        landing: ``[kinds, sites]``, value after each kind lands at each site.
    """
    finite: Bool = np.asarray((costs < UNREACHABLE).any(axis=1))
    kept = np.flatnonzero((leave < UNREACHABLE).any(axis=0) & finite[landing].any(axis=1))
    if not len(kept):
        return kept
    reached, place = np.unique(landing[kept], return_inverse=True)
    row = _first_equal(costs[reached])
    profile = np.concatenate((leave[:, kept].T, row[place.reshape(len(kept), -1)]), axis=1)
    kept = kept[np.unique(_first_equal(profile))]
    width = len(leave) + landing.shape[1] * costs.shape[1]
    if len(kept) * len(kept) * width > _DOMINANCE_WORK:
        return kept
    profile = np.concatenate((leave[:, kept].T, costs[landing[kept]].reshape(len(kept), -1)), axis=1)
    alive = np.ones(len(kept), np.bool_)
    for kind in range(len(kept)):
        beats = (profile <= profile[kind]).all(axis=1) & alive
        beats[kind] = False
        alive[kind] = not beats.any()
    return kept[alive]
