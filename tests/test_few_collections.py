"""The collector waits while many objects are made, and is as it was afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from stcc.compiler import CompileError, Options, compile_json_schema
from stcc.compiler.pipeline import Trace
from stcc.formats.few_collections import OBJECTS, few_collections


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_nested_and_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), few_collections():
        with few_collections():
            assert gc.get_threshold() == (OBJECTS, 10, 10)
        assert gc.get_threshold() == (OBJECTS, 10, 10)
        raise ValueError("inside")
    assert gc.get_threshold() == (700, 10, 10)


def test_threads_that_overlap() -> None:
    """The first to come in leaves first: what was set before it holds once the last one has left."""
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with few_collections():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=second)
    with few_collections():
        other.start()
        assert entered.wait(10)
    assert gc.get_threshold() == (OBJECTS, 10, 10)
    leave.set()
    other.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [(0, 10, 10), (OBJECTS * 2, 5, 5)])
def test_a_collector_that_waits_longer_is_left_alone(threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*threshold)
    with few_collections():
        assert gc.get_threshold() == threshold
    assert gc.get_threshold() == threshold


def test_compiling_waits_and_restores() -> None:
    seen = []

    class Watching(Trace):
        def stage(self, name, run):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            seen.append(gc.get_threshold()[0])
            return super().stage(name, run)

    compile_json_schema({"type": "object"}, trace=Watching())
    assert set(seen) == {OBJECTS} and gc.get_threshold() == (700, 10, 10)
    with pytest.raises(CompileError):
        compile_json_schema({"type": "string", "minLength": 5, "maxLength": 4}, options=Options())
    assert gc.get_threshold() == (700, 10, 10)
