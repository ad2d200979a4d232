"""Random outputs: valid, bounded, varied; byte needs against breadth-first search."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from binding_cases import GRAMMARS, inner_states, linked, random_machines
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.stepping import Configuration, accepts, initial, may_end, step
from stcc.formats.binding import UNREACHABLE
from stcc.formats.machine import Machine, end_states
from stcc.runtime import ConstraintError, random_output
from stcc.runtime.sampling import ByteNeeds, Walker
from stcc.runtime.stack import Stacks


def eager(machine: Machine) -> Machine:
    """The machine without lazy returns: in a random one they break the L(1) conditions that byte needs rest on."""
    return dataclasses.replace(machine, exits=np.where(end_states(machine), machine.exits, -1).astype(np.int16))


def fewest(machine: Machine, configuration: Configuration, limit: int) -> int:
    """Fewest bytes to a complete output, ``limit + 1`` if more than ``limit``."""
    bytes_ = np.unique(machine.byte_class, return_index=True)[1].tolist()
    layer, seen = {configuration}, {configuration}
    for count in range(limit + 1):
        if any(may_end(machine, reached) for reached in layer):
            return count
        layer = {after for before in layer for byte in bytes_ if (after := step(machine, before, byte)) is not None} - seen
        seen |= layer
    return limit + 1


@pytest.mark.parametrize("name", GRAMMARS)
def test_outputs_are_valid_bounded_and_varied(name: str) -> None:
    machine = linked(GRAMMARS[name])
    walker, rng = Walker(machine), np.random.default_rng(7)
    outputs = [walker.output(rng, limit) for limit in (0, 30, 60, 200) for _ in range(15)]
    assert all(accepts(machine, text) for text in outputs)
    shortest = fewest(machine, initial(machine), 30)
    assert {len(text) for text in outputs[:15]} == {shortest}
    for limit, drawn in zip((30, 60, 200), (outputs[15:30], outputs[30:45], outputs[45:]), strict=True):
        assert max(map(len, drawn)) <= limit
        assert len(set(drawn)) > 2


def test_the_same_seed_gives_the_same_output() -> None:
    machine = linked(GRAMMARS["tree"])
    first, second = (random_output(machine, np.random.default_rng(3)) for _ in range(2))
    assert first == second and accepts(machine, first)


@settings(max_examples=60, deadline=None)
@given(random_machines().map(eager), st.integers(0, 2**32 - 1))
def test_random_machines(machine: Machine, seed: int) -> None:
    walker, shortest = Walker(machine), fewest(machine, initial(machine), 5)
    if walker._needs.need(*walker._stacks.start()) >= UNREACHABLE:
        assert shortest > 5
        with pytest.raises(ConstraintError, match="no output"):
            walker.output(np.random.default_rng(seed))
        return
    for limit in (shortest, 12, 40):
        text = walker.output(np.random.default_rng(seed), limit)
        assert accepts(machine, text) and len(text) <= max(limit, walker._needs.need(*walker._stacks.start()))


@settings(max_examples=80, deadline=None)
@given(random_machines().map(eager), st.randoms(use_true_random=False))
def test_byte_needs(machine: Machine, rng: object) -> None:
    stacks = Stacks(machine)
    needs = ByteNeeds(stacks)
    for state in inner_states(machine):
        stack = tuple(rng.randrange(machine.sites) for _ in range(rng.randrange(3))) if machine.sites else ()
        need, found = needs.need(state, stacks.push_all(stacks.bottom, stack)), fewest(machine, Configuration(state, stack), 5)
        assert need == found if found <= 5 else need > 5
