"""Cut states and certified regions of machines, against the texts themselves."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stcc.compiler import compile_json_schema, compile_regex
from stcc.compiler.analyses.cut_states import cut_states, gaps
from stcc.compiler.analyses.regions import Region, certified_regions, certify_region
from stcc.compiler.stepping import Configuration, allowed, run
from stcc.formats.machine import Machine

ENTITY = {"type": "object", "additionalProperties": False, "required": ["status", "name", "live", "tags"], "properties": {
    "status": {"enum": ["approved", "pending", "rejected"]}, "name": {"type": "string"}, "live": {"type": "boolean"},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}}


def texts_of(machine: Machine, most: int = 400) -> list[bytes]:
    """All accepted texts of a machine without a stack, if there are at most ``most``."""
    found, stack = [], [(b"", machine.start)]
    while stack:
        text, state = stack.pop()
        if machine.accepting[state]:
            found.append(text)
            assert len(found) <= most
        for byte in range(256):
            cell = int(machine.table[state, machine.byte_class[byte]])
            if cell >= 0:
                stack.append((text + bytes([byte]), cell))
    return found


def visits(machine: Machine, text: bytes) -> list[int]:
    """The states of a run, and ``states`` for the output's end."""
    states = [machine.start]
    for byte in text:
        states.append(int(machine.table[states[-1], machine.byte_class[byte]]))
    return [*states, machine.states]


@st.composite
def finite(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["a", "b", "ab", "[a-c]", "x?", "(?:aa|b)"]))
    joined = draw(st.sampled_from(["", "|"]))
    return f"(?:{draw(finite(depth - 1))}{joined}{draw(finite(depth - 1))})"


@settings(max_examples=80, deadline=None)
@given(finite(2))
def test_cut_states_are_what_every_run_visits_once(pattern: str) -> None:
    machine = compile_regex(pattern).machine
    runs = [visits(machine, text) for text in texts_of(machine)]
    common = [state for state in runs[0] if all(run_.count(state) == 1 for run_ in runs)]
    found = cut_states(machine)
    assert found in (common, common[:-1])
    assert found == common or all(run_[-2] == found[-1] for run_ in runs)  # the end is left out where one state alone comes before it


@settings(max_examples=80, deadline=None)
@given(finite(2), finite(2))
def test_certificates_of_finite_languages(left: str, right: str) -> None:
    machine = compile_regex(f"{left}-{right}!").machine
    total, bound, most = 1, 0, 0
    regions = certified_regions(machine, 400)
    assume(all(region.certified for region in regions) and prod(region.texts for region in regions) <= 400)
    for region in regions:
        assert region.passes <= region.cyclomatic <= region.texts - 1
        assert region.cyclomatic + 1 <= region.texts <= 1 << region.cyclomatic
        total, bound = total * region.texts, bound + region.passes
    texts = texts_of(machine)
    assert total == len(texts)
    for text in texts:
        most = max(most, sum(len(allowed(machine, Configuration(state))) > 1 for state in visits(machine, text)[:-1]))
    assert most == bound  # the bound on sampled tokens is met by some text


def test_fields_of_a_schema() -> None:
    machine = compile_json_schema(ENTITY).machine
    regions = certified_regions(machine)
    before = [b'{"status":', b'"approved","name":', b'"x","live":', b'false,"tags":']
    assert len(regions) == 4
    assert [(region.certified, region.texts, region.passes) for region in regions] == [
        (True, 3, 1), (False, 0, 0), (True, 2, 1), (True, 7, 4)]
    stops = [run(machine, b"".join(before[: number + 1])) for number in range(4)]
    assert all(stop is not None for stop in stops)
    for region, stop in zip(regions, stops[1:], strict=False):
        assert stop is not None and region.stop <= stop.state or region.stop == machine.states


def test_a_field_costs_the_same_however_long_its_values_are() -> None:
    """Corollary 1: passes depend on the number of values, not on their length."""
    found = [certified_regions(compile_json_schema({"enum": [letter * length for letter in "abc"]}).machine) for length in (1, 50, 400)]
    assert [(regions[0].texts, regions[0].passes) for regions in found] == [(3, 1)] * 3


@pytest.mark.parametrize(("schema", "most", "reason"), [
    ({"type": "string"}, 256, "walks, the total budget"),
    ({"type": "array", "items": {"enum": [True, False]}}, 256, "walks, the total budget"),
    ({"enum": [f"{number * number}" for number in range(110)]}, 100, "exceed its budget"),
    ({"type": "string", "pattern": "^.x$"}, 40, "bytes may follow"),
])
def test_what_is_not_certified_says_why(schema: Any, most: int, reason: str) -> None:
    regions = certified_regions(compile_json_schema(schema).machine, most)
    assert any(not region.certified and reason in region.reason for region in regions), regions


def test_calls_are_not_crossed() -> None:
    tree = {"$defs": {"n": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                            "required": ["kids"], "additionalProperties": False}},
            "type": "object", "properties": {"flag": {"type": "boolean"}, "root": {"$ref": "#/$defs/n"}}, "required": ["flag", "root"],
            "additionalProperties": False}
    machine = compile_json_schema(tree).machine
    assert machine.sites
    first, *others = certified_regions(machine)
    assert first.certified and first.texts == 2 and "called" in others[-1].reason


def test_gaps_are_joined_end_to_end() -> None:
    machine = compile_json_schema(ENTITY).machine
    cuts, found = cut_states(machine), gaps(machine)
    assert found[0][0] == cuts[0] and found[-1][1] == cuts[-1] and {stop for _, stop in found} <= set(cuts)
    assert all(left[1] == right[0] for left, right in zip(found, found[1:], strict=False))


def test_a_machine_of_one_text_is_one_region() -> None:
    machine = compile_regex("abc").machine
    assert certified_regions(machine) == [Region(0, 3, True, "", 1, 0, 0, (2, 1), 0)]
    assert certified_regions(compile_regex("").machine) == [] and certify_region(machine, 2, 1).reason == "the two states are not joined"


def test_the_documented_example() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "analyses.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:.*\n)*?)```", text)
    exec(block, {})
