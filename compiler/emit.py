"""Every stage as text, for ``stcc compile --emit STAGE`` and for tests.

    grammar, trimmed, inlined   rules: nodes, byte edges, embedded DFAs, calls, exits
    machine                     states with their moves on byte ranges, calls, returns, exits
    actions                     each bound vocabulary's action count and the live actions of every state

Output is deterministic, one item a line, meant to be read and diffed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from stcc.compiler.ir import Grammar
from stcc.compiler.pipeline import Trace
from stcc.formats import Artifact
from stcc.formats.binding import EXPOSED, MOVE, Binding
from stcc.formats.machine import Machine
from stcc.formats.summary import printable

Value = TypeVar("Value")


class StageReached(Exception):  # noqa: N818 - not an error: the compile ends here because its user asked for it
    """Ends a compile after the stage that is to be shown: later ones may be slow, or refuse what is under study."""


class StageTrace(Trace):
    """A trace that raises StageReached once ``last`` is recorded; ``actions``, which runs once a vocabulary, runs for all of them."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.last = last

    def stage(self, name: str, run: Callable[[], Value]) -> Value:
        """Run one stage under ``name``."""
        value = super().stage(name, run)
        if name == self.last and name != "actions":
            raise StageReached
        return value


def render(trace: Trace, stage: str) -> str:
    """The text of ``stage`` (one of ``pipeline.STAGES``), which ``trace`` has recorded. KeyError if it has not."""
    value: Any = trace.values[stage]
    if isinstance(value, Grammar):
        return render_grammar(value)
    if isinstance(value, Machine):
        return render_machine(value)
    assert isinstance(value, Artifact)
    return "\n".join(render_binding(value.binding(fingerprint), value.machine) for fingerprint in value.fingerprints)


def render_grammar(grammar: Grammar) -> str:
    """Rules as graphs."""
    lines = []
    for number, rule in enumerate(grammar.rules):
        root = " (root)" if number == grammar.root else ""
        lines.append(f"rule {number}{root}  {printable(rule.name)}  {rule.nodes} nodes, {rule.exit_count} exits")
        lines += [f"  {source} -{_bytes(low, high)}-> {target}" for source, low, high, target in rule.bytes_.tolist()]
        lines += [f"  {source} -> {target}" for source, target in rule.epsilons.tolist()]
        lines += [f"  {block.base}..{block.base + block.dfa.states - 1} embeds a DFA of {block.dfa.states} states" for block in rule.blocks]
        lines += [f"  {call.node} calls rule {call.rule}, returns {', '.join(map(str, call.returns))}" for call in rule.calls]
        lines += [f"  {node} exits {exit_}" for node, exit_ in rule.exits]
        lines += [f"  {node} begins items that must differ" for node, _ in rule.marks]
    return "\n".join(lines)


def render_machine(machine: Machine) -> str:
    """States, one line each: what every byte does there."""
    members = [np.flatnonzero(machine.byte_class == number) for number in range(machine.classes)]
    lines = [f"{machine.states} states, {machine.classes} classes, {len(machine.edge_target)} enter edges, {machine.sites} call sites, "
             f"start {machine.start}"]
    for state, row in enumerate(machine.table.tolist()):
        marks = (" accepting" if machine.accepting[state] else "") + (f" exit {machine.exits[state]}" if machine.exits[state] >= 0 else "")
        targets: dict[int, list[int]] = {}
        for number, cell in enumerate(row):
            if cell >= 0:
                targets.setdefault(cell, []).extend(members[number].tolist())
        moves = [f"{_set(found)} {_target(machine, cell)}" for cell, found in targets.items()]
        lines.append(f"{state}{marks}: " + "; ".join(moves))
    lines += [f"site {site} returns " + ", ".join(map(str, row)) for site, row in enumerate(machine.returns.tolist())]
    lines += [f"state {state} begins items that must differ" for state in machine.unique.tolist()]
    return "\n".join(lines)


def render_binding(binding: Binding, machine: Machine) -> str:
    """Per state the live actions and their values."""
    lines = [f"vocabulary {binding.fingerprint}: {binding.actions} actions, {len(binding.run_starts)} runs, "
             f"{len(binding.row_actions)} entries"]
    for state in range(machine.states):
        low, high = binding.row_offsets[state], binding.row_offsets[state + 1]
        entries = zip(binding.row_actions[low:high].tolist(), binding.row_values[low:high].tolist(), strict=True)
        plan = binding.plan_tokens[binding.plan_offsets[state]:binding.plan_offsets[state + 1]].tolist()
        lines.append(f"{state}: " + " ".join(f"{action}:{_value(binding, machine.states, value)}" for action, value in entries)
                     + (f"  plan {plan}" if plan else ""))
    return "\n".join(lines)


def _value(binding: Binding, states: int, value: int) -> str:
    if value < states:
        return str(value)
    record = value - states
    kind, head = int(binding.record_kind[record]), int(binding.record_head[record])
    if kind == MOVE:
        pushes = binding.record_pushes[binding.record_push_offsets[record]:binding.record_push_offsets[record + 1]].tolist()
        return f"push{pushes}{head}"
    return f"pop{head}+f{int(binding.record_function[record])}" if kind == EXPOSED else f"pop{head}"


def _target(machine: Machine, cell: int) -> str:
    if cell < machine.states:
        return str(cell)
    edge = cell - machine.states
    return f"push{list(machine.pushes(edge))}{int(machine.edge_target[edge])}"


def _set(members: list[int]) -> str:
    members = sorted(members)
    ranges, low = [], members[0]
    for this, following in zip(members, [*members[1:], -1], strict=True):
        if following != this + 1:
            ranges.append(_bytes(low, this))
            low = following
    return ",".join(ranges)


def _bytes(low: int, high: int) -> str:
    return _byte(low) if low == high else f"{_byte(low)}-{_byte(high)}"


def _byte(value: int) -> str:
    return repr(chr(value)) if 0x20 <= value < 0x7F else f"{value:02X}"
