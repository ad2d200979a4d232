"""Machines of closed objects: embedded scalars, analyses, canonical numbering, speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from machine_cases import built, json_values, rule, shared, sums, verdicts

from stcc.compiler.analyses.byte_need import byte_need
from stcc.compiler.analyses.forced import chain, forced_chains
from stcc.compiler.determinize import determinize_dfa
from stcc.compiler.dfa import Dfa
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.nfa import lower
from stcc.compiler.stepping import Configuration, accepts, allowed, run
from stcc.formats.machine import Machine, end_states


def scalar(fill: Callable[[RuleBuilder], None]) -> Dfa:
    return minimize_dfa(determinize_dfa(lower(Grammar((rule("#", 1, fill),)))))


def string(builder: RuleBuilder) -> None:
    """A JSON string: escapes, and UTF-8 of one to three bytes."""
    body, escape, end, two, three = (builder.node() for _ in range(5))
    builder.byte(0, 34, 34, body)
    for low, high in ((32, 33), (35, 91), (93, 127)):
        builder.byte(body, low, high, body)
    builder.byte(body, 92, 92, escape)
    for byte in b'"\\/bfnrt':
        builder.byte(escape, byte, byte, body)
    builder.byte(body, 0xC2, 0xDF, two)
    builder.byte(body, 0xE1, 0xEC, three)
    builder.byte(three, 0x80, 0xBF, two)
    builder.byte(two, 0x80, 0xBF, body)
    builder.byte(body, 34, 34, end)
    builder.exit(end, 0)


def number(builder: RuleBuilder) -> None:
    whole, dot, fraction = (builder.node() for _ in range(3))
    builder.byte(0, 49, 57, whole)
    builder.byte(whole, 48, 57, whole)
    builder.byte(whole, 46, 46, dot)
    builder.byte(dot, 48, 57, fraction)
    builder.byte(fraction, 48, 57, fraction)
    builder.exit(whole, 0)
    builder.exit(fraction, 0)


STRING, NUMBER = scalar(string), scalar(number)


def closed_form(fields: int, repeated: bool = False) -> Grammar:
    """One object of required fields in order, strings and numbers by turns; repeated: an array of such objects."""

    def fill(builder: RuleBuilder) -> None:
        start, end = builder.node(), builder.node()
        if repeated:
            builder.byte(0, 91, 91, start)
        else:
            builder.epsilon(0, start)
        node = builder.node()
        builder.byte(start, 123, 123, node)
        for place in range(fields):
            key, after = builder.node(), builder.node()
            builder.literal(node, (b"," if place else b"") + b'"field%d":' % place, key)
            builder.scan(key, (STRING, NUMBER)[place % 2], [after])
            node = after
        closed = builder.node()
        builder.byte(node, 125, 125, closed)
        if repeated:
            builder.byte(closed, 44, 44, start)
            builder.byte(closed, 93, 93, end)
        else:
            builder.epsilon(closed, end)
        builder.exit(end, 0)

    return Grammar((rule("#", 1, fill),))


def test_closed_forms() -> None:
    machine = built(closed_form(3))
    for text, expected in ((rb'{"field0":"x\"","field1":1.5,"field2":"\xc3\xa4"}', True), (rb'{"field0":"","field1":0,"field2":""}', False),
                           (rb'{"field1":1,"field0":"","field2":""}', False), (rb'{"field0":"","field1":12,"field2":""},', False)):
        assert accepts(machine, text.replace(rb"\xc3\xa4", b"\xc3\xa4")) == expected
    assert chain(machine, machine.start) == (b'{"field0":"', chain(machine, machine.start)[1])
    assert byte_need(machine)[machine.start] == len(b'{"field0":"","field1":1,"field2":""}')
    assert end_states(machine).sum() == 0 and machine.accepting.sum() == 1


def test_forced_cells_are_the_only_way_on() -> None:
    machine = built(json_values(False), small=0)
    cells, values = forced_chains(machine)
    for state in range(machine.states):
        following = allowed(machine, Configuration(state, tuple(range(machine.sites))))
        if cells[state] >= 0:
            assert following == [values[state]] and machine.table[state, machine.byte_class[values[state]]] == cells[state]
        else:
            assert len(following) != 1 or machine.accepting[state] or machine.exits[state] >= 0
    forced = run(machine, b"{k")
    assert forced is not None and chain(machine, forced.state)[0] == b":"


def test_a_forced_call_gives_its_edge() -> None:
    machine = built(shared(50, 200))
    cells, values = forced_chains(machine)
    assert cells[machine.start] >= machine.states and values[machine.start] == ord("{")
    assert chain(machine, machine.start) == (b"", machine.start)


def test_equal_grammars_give_equal_machines() -> None:
    for grammar in (closed_form(5), verdicts(), json_values(True), sums(True)):
        first, second = built(grammar), built(grammar)
        for name in ("byte_class", "table", "exits", "accepting", "edge_target", "edge_push_offsets", "edge_pushes", "returns"):
            assert np.array_equal(getattr(first, name), getattr(second, name))


def test_equal_structures_repeat_their_differences() -> None:
    """What the file stores once: rows relative to their state. Each field of 96 brings some two patterns of its own, for its key."""
    machine = built(closed_form(96))
    codes = {np.where(row < 0, -9999, row - state).tobytes() for state, row in enumerate(machine.table)}
    assert machine.states > 1400 and len(codes) < 320


@pytest.mark.parametrize(("fields", "repeated"), [(48, False), (96, False), (96, True)])
def test_large_closed_forms_link_at_once(fields: int, repeated: bool) -> None:
    grammar = closed_form(fields, repeated)
    started = time.perf_counter()
    machine = built(grammar)
    assert time.perf_counter() - started < 1.0  # 0.04 s where it was measured
    assert machine.states > 14 * fields
    assert accepts(machine, shortest(machine))


def shortest(machine: Machine) -> bytes:
    """A shortest accepted text of a machine without calls."""
    need, state, text = byte_need(machine), machine.start, bytearray()
    while need[state]:
        column = next(column for column, cell in enumerate(machine.table[state].tolist()) if cell >= 0 and need[cell] == need[state] - 1)
        text.append(int(np.flatnonzero(machine.byte_class == column)[0]))
        state = int(machine.table[state, column])
    return bytes(text)
