"""Rows of costs: the (min, +) product against its definition, and rows that stay what they are while others come and go."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.binding import cost_rows
from stcc.compiler.binding.cost_rows import CostRows, product
from stcc.formats.binding import UNREACHABLE

COSTS = st.sampled_from([0, 1, 2, 3, 7, 1000, UNREACHABLE])


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.sampled_from([1, 8, 1 << 16]))
def test_product(data: st.DataObject, count: int, kinds: int, slots: int, columns: int, cells: int) -> None:
    def table(rows: int, width: int) -> np.ndarray:
        return np.array(data.draw(st.lists(st.lists(COSTS, min_size=width, max_size=width), min_size=rows, max_size=rows)), np.int32)

    leave, rows = table(count, kinds), table(slots, columns)
    landed = np.array(data.draw(st.lists(st.integers(0, slots - 1), min_size=kinds, max_size=kinds)), np.int32)
    before, cost_rows._PRODUCT_CELLS = cost_rows._PRODUCT_CELLS, cells
    try:
        reached, sums = product(leave, rows, landed)
    finally:
        cost_rows._PRODUCT_CELLS = before
    found = np.full((count, columns), UNREACHABLE, np.int32)
    found[:, reached] = sums
    for row in range(count):
        for column in range(columns):
            assert found[row, column] == min(UNREACHABLE, *(int(leave[row, k]) + int(rows[landed[k], column]) for k in range(kinds)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_rows_come_and_go(seed: int) -> None:
    """Frames are given rows again and again; at any time each has the row it was given last, and equal rows have one representative."""
    rng = random.Random(seed)
    owned, frames, kinds = 4, 6, 3
    rows = CostRows(np.arange(owned), owned + frames, frames, kinds + 1)
    rows.table[:owned] = [[rng.choice([0, 1, 2, UNREACHABLE]) for _ in range(kinds + 1)] for _ in range(owned)]
    expected = {owned + frame: [UNREACHABLE] * (kinds + 1) for frame in range(frames)}
    for _ in range(20):
        rows.make_room()
        given_: dict[int, tuple[int, list[int]]] = {}
        for frame in rng.sample(range(owned, owned + frames), rng.randint(1, frames)):
            inner, landed = rng.randrange(owned), [rng.randrange(owned + frames + 1) for _ in range(kinds)]
            leave, landings = rows.table[inner, :-1].tolist(), rows.table[rows.slot[landed]].tolist()
            sums = [min(UNREACHABLE, *(leave[k] + landings[k][column] for k in range(kinds))) for column in range(kinds + 1)]
            (slot,) = rows.around(rows.slot[[inner]], rows.slot[landed]).tolist()
            given_[frame] = slot, sums
        for frame, (slot, sums) in given_.items():
            rows.slot[frame] = slot
            expected[frame] = sums
        assert all(rows.table[rows.slot[frame]].tolist() == sums for frame, sums in expected.items())
        chosen = rows.representatives(np.arange(owned + frames + 1))
        values = [tuple(rows.table[slot].tolist()) for slot in rows.slot]
        assert all((chosen[a] == chosen[b]) == (values[a] == values[b]) for a in range(len(values)) for b in range(len(values)))
        assert [min(value) < UNREACHABLE for value in values] == rows.reachable().tolist()
