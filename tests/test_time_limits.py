"""``Options.time_limit``: every stage looks at the clock, and no stage goes on for long without."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from binding_cases import nasty_vocabulary
from tokenizer_cases import byte_level_bpe

from stcc.compiler import BudgetError, Options, compile_json_schema, vocabulary_from_tokenizer
from stcc.compiler.binding.actions import token_actions
from stcc.compiler.binding.bind import bind_machine
from stcc.compiler.binding.need import token_needs
from stcc.compiler.binding.plans import plan_states
from stcc.compiler.calls import resolve_calls
from stcc.compiler.determinize import determinize
from stcc.compiler.frontends.json_schema import schema_grammar
from stcc.compiler.inline import inline
from stcc.compiler.machine import link
from stcc.compiler.minimize import refine
from stcc.compiler.nfa import lower
from stcc.compiler.options import Deadline
from stcc.compiler.pipeline import Trace
from stcc.compiler.trim import trim

OPTIONS = Options(whitespace="flexible", property_order="declared")


def recursive(names: int) -> dict[str, Any]:
    """A tree whose nodes have so many members that may be nodes again: as many call sites."""
    node = {"type": "object", "properties": {f"name{number}": {"$ref": "#/$defs/node"} for number in range(names)},
            "additionalProperties": False}
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


@cache
def stages() -> dict[str, Any]:
    """What each stage makes of the recursive schema."""
    grammar, _ = schema_grammar(recursive(80), OPTIONS, Deadline(60))
    trimmed = trim(grammar)
    inlined = inline(trimmed)
    nfa = lower(inlined)
    machine = link(inlined)
    return {"grammar": grammar, "trimmed": trimmed, "inlined": inlined, "nfa": nfa, "names": [rule.name for rule in inlined.rules],
            "subsets": determinize(nfa), "machine": machine, "actions": token_actions(machine, nasty_vocabulary())}


def expired() -> Deadline:
    return Deadline(1e-9)


STAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "grammar": lambda made: schema_grammar(recursive(80), OPTIONS, expired()),
    "trim": lambda made: trim(made["grammar"], expired()),
    "inline": lambda made: inline(made["trimmed"], deadline=expired()),
    "lower": lambda made: lower(made["inlined"], expired()),
    "determinize": lambda made: determinize(made["nfa"], deadline=expired()),
    "calls": lambda made: resolve_calls(made["subsets"], made["names"], 0, made["nfa"].byte_class, expired()),
    "minimize": lambda made: refine(made["machine"].table, np.zeros(made["machine"].states, np.int32), expired()),
    "link": lambda made: link(made["inlined"], OPTIONS, expired()),
    "actions": lambda made: token_actions(made["machine"], nasty_vocabulary(), expired()),
    "need": lambda made: token_needs(made["machine"], made["actions"], expired()),
    "plans": lambda made: plan_states(made["machine"], vocabulary_from_tokenizer(byte_level_bpe()), expired()),
    "bind": lambda made: bind_machine(made["machine"], nasty_vocabulary(), deadline=expired()),
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_stops(stage: str) -> None:
    made = stages()
    with pytest.raises(BudgetError, match="took more than"):
        STAGES[stage](made)


def test_binding_is_part_of_the_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a compile is the clock of its binding, and the error names the source."""
    def late(self: Deadline, pointer: str = "") -> None:
        if "machine" in trace.seconds:
            raise BudgetError("compiling took more than a test allows", pointer=pointer)

    trace = Trace()
    monkeypatch.setattr(Deadline, "check_now", late)
    with pytest.raises(BudgetError, match=r"^here\.json: .*took more than"):
        compile_json_schema(recursive(80), options=OPTIONS, vocabularies=[nasty_vocabulary()], source="here.json", trace=trace)


def test_no_long_time_without_a_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile of seconds, its binding included, with less than half a second of CPU between any two looks."""
    looks = [time.process_time()]
    gaps: list[float] = []

    def look(self: Deadline, pointer: str = "") -> None:
        now = time.process_time()
        gaps.append(now - looks[-1])
        looks.append(now)

    monkeypatch.setattr(Deadline, "check_now", look)
    names = [f"{first}{second}{third}" for first in "abcdefgh" for second in ("lpha", "eta", "amma") for third in "xyz"]
    inner = {"type": "object", "properties": {name: {"type": "string"} for name in names[:30]}}
    schema = {"type": "object", "properties": {name: {**inner, "required": [name]} for name in names[:24]}}
    started = time.process_time()
    artifact = compile_json_schema(schema, options=OPTIONS, vocabularies=[nasty_vocabulary()])
    gaps.append(time.process_time() - looks[-1])
    assert artifact.machine.states > 5000 and time.process_time() - started > 0.5
    assert max(gaps) < 0.5
