"""Every stage can be printed: what the text says is what the stage holds, and printing stops the compile there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stcc.compiler import UnsatisfiableError, compile_json_schema, compile_regex
from stcc.compiler.emit import StageReached, StageTrace, render, render_binding, render_machine
from stcc.compiler.pipeline import STAGES, Trace
from stcc.formats import Vocabulary

TREE = {"type": "object", "properties": {"v": {"enum": [1, 2]}, "next": {"$ref": "#"}}, "required": ["v"], "additionalProperties": False}
BYTES = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b"", b'"}', b"}}", b'{"v":'], [256], name="bytes")


def traced(**options: Any) -> Trace:
    trace = Trace()
    compile_json_schema(TREE, vocabularies=[BYTES], trace=trace, **options)
    return trace


def test_every_stage_has_a_text_that_is_the_same_again() -> None:
    first, second = traced(), traced()
    texts = [render(first, stage) for stage in STAGES]
    assert texts == [render(second, stage) for stage in STAGES]
    assert all(text and "\n\n" not in text for text in texts)
    assert texts[3] != texts[4] != texts[0]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "actions"])
def test_a_trace_stops_after_its_stage(stage: str) -> None:
    trace = StageTrace(stage)
    with pytest.raises(StageReached):
        compile_json_schema(TREE, trace=trace)
    assert list(trace.values) == list(STAGES[:STAGES.index(stage) + 1])
    assert render(trace, stage) == render(traced(), stage)


def test_a_stage_before_the_one_that_refuses_can_be_seen() -> None:
    with pytest.raises(UnsatisfiableError):
        compile_json_schema(False)
    trace = StageTrace("grammar")
    with pytest.raises(StageReached):
        compile_json_schema(False, trace=trace)
    assert render(trace, "grammar").startswith("rule 0")


def test_rules_are_listed_with_everything_they_hold() -> None:
    text = render(traced(), "grammar")
    grammar = traced().values["grammar"]
    assert len(re.findall(r"^rule \d+", text, re.M)) == len(grammar.rules)
    assert text.count("(root)") == 1
    assert len(re.findall(r"calls rule", text)) == sum(len(rule.calls) for rule in grammar.rules)
    assert len(re.findall(r" exits \d+$", text, re.M)) == sum(len(rule.exits) for rule in grammar.rules)


@pytest.mark.parametrize("pattern", ["a[0-9]{2}(x|yz)*", "é|\\n|[^a]", "(ab|cd){3}"])
def test_the_printed_machine_accepts_what_the_machine_accepts(pattern: str) -> None:
    """The text is read back, without a look at the tables, and must move as they do on every byte."""
    machine = compile_regex(pattern).machine
    head, *lines = render_machine(machine).splitlines()
    assert head.startswith(f"{machine.states} states, {machine.classes} classes")
    for state, line in enumerate(lines):
        moves = np.full(256, -1)
        body = line.split(": ", 1)[1]
        for sets, target in re.findall(r"((?:(?:'(?:\\.|[^\\])'|\"'\"|[0-9A-F]{2})[-,]?)+) (\d+)", body):
            for low, high in re.findall(r"('(?:\\.|[^\\])'|\"'\"|[0-9A-F]{2})(?:-('(?:\\.|[^\\])'|\"'\"|[0-9A-F]{2}))?", sets):
                moves[spelled(low):spelled(high or low) + 1] = int(target)
        assert (moves == machine.table[state][machine.byte_class]).all(), line
        assert ("accepting" in line.split(":")[0]) == bool(machine.accepting[state])


def spelled(text: str) -> int:
    return int(text, 16) if text[0] not in "'\"" else ord(text[1:-1].replace("\\\\", "\\").replace("\\'", "'"))


def test_bindings_list_the_entries_of_each_state() -> None:
    artifact = compile_json_schema(TREE, vocabularies=[BYTES])
    binding = artifact.binding(BYTES.fingerprint)
    head, *lines = render_binding(binding, artifact.machine).splitlines()
    assert f"{binding.actions} actions" in head and BYTES.fingerprint in head
    entries = [len(re.findall(r"\d+:", line.split(": ", 1)[1])) for line in lines]
    assert entries == np.diff(binding.row_offsets).tolist()
    assert "push[" in "".join(lines) and "pop0" in "".join(lines)


def test_a_stage_that_did_not_run_has_no_text() -> None:
    trace = Trace()
    compile_json_schema(TREE, trace=trace)
    with pytest.raises(KeyError):
        render(trace, "actions")
