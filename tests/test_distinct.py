"""Distinct values against ``numpy.unique``, and in order of appearance against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stcc.formats.distinct import distinct, first_uses_of


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint8])
@given(data=st.data())
def test_distinct_values(dtype: type[np.integer], data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    few = st.integers(0, 5)
    values = np.array(data.draw(st.lists(few | st.integers(int(limits.min), int(limits.max)))), dtype)
    found = distinct(values)
    assert found.dtype == dtype and found.tolist() == np.unique(values).tolist()
    assert first_uses_of(values).tolist() == list(dict.fromkeys(values.tolist()))
