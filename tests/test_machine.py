"""Grammar to machine: random grammars against their denotation, minimality, and calls by hand."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machine_cases import built, denotation, json_values, rule, shared, sums, texts, verdicts

from stcc.compiler.analyses.byte_need import byte_need, verify_trim
from stcc.compiler.errors import UnsatisfiableError, UnsupportedError
from stcc.compiler.inline import inline
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.stepping import TERMINATED, Configuration, accepts, allowed, initial, may_end, run, step
from stcc.compiler.trim import trim
from stcc.formats.machine import Machine, verify_machine


@st.composite
def grammars(draw: st.DrawFn, opened: bool, closed: bool) -> Grammar:
    """Up to three rules of a few nodes; opened ones begin with a byte of their own, and the last byte of closed ones
    tells the exit. Where rules are opened the root is closed, so that lazy returns have something to fall back on."""
    count = draw(st.integers(1, 3))
    return Grammar(tuple(draw(rules(number, count, opened, closed)) for number in range(count)))


@st.composite
def rules(draw: st.DrawFn, number: int, count: int, opened: bool, closed: bool) -> Rule:
    """A path of letters, calls and epsilons with some edges across; rules other than the root have two exits."""
    rule = RuleBuilder(f"#/{number}", exit_count=2 if number else 1)
    path = [*([] if opened else [0]), *(rule.node() for _ in range(draw(st.integers(2, 4))))]
    node = st.sampled_from(path)

    def join(source: int, target: int) -> None:
        kind = draw(st.sampled_from(["a", "b", "call", "call", ""]))
        if kind == "call":
            callee = draw(st.integers(0, count - 1))
            rule.call(source, callee, draw(st.permutations([target, draw(st.sampled_from([-1, *path]))])) if callee else [target])
        else:
            rule.literal(source, kind.encode(), target)

    for source, target in zip(path, path[1:], strict=False):
        join(source, target)
    for _ in range(draw(st.integers(0, 3))):
        join(draw(node), draw(node))
    if opened:
        opening = b"([<"[number]
        rule.byte(0, opening, opening, path[0])
    for exit_ in range(rule.exit_count):
        end = draw(node) if exit_ else path[-1]
        if closed or (opened and not number):
            last = rule.node()
            rule.byte(end, b")]"[exit_], b")]"[exit_], last)
            end = last
        rule.exit(end, exit_)
    return rule.build()


def check_against_denotation(grammar: Grammar, longest: int) -> Machine | None:
    """Compile and compare; None where the grammar is refused."""
    expected = denotation(grammar, longest)
    try:
        machine = built(grammar, small=0)
    except UnsatisfiableError:
        assert not expected
        return None
    except UnsupportedError:
        return None
    assert texts(machine, longest) == expected
    assert verify_machine(machine) == [] and verify_trim(machine) == []
    return machine


@settings(max_examples=70, deadline=None)
@given(grammars(opened=True, closed=True))
def test_bracketed_grammars_mean_what_they_say(grammar: Grammar) -> None:
    machine = check_against_denotation(grammar, 6)
    assume(machine is not None)
    assert machine is not None
    assert texts(built(grammar), 6) == texts(machine, 6)
    check_minimal(machine)


@settings(max_examples=70, deadline=None)
@given(st.booleans().flatmap(lambda opened: grammars(opened=opened, closed=False)))
def test_lazy_returns_mean_what_they_say_or_are_refused(grammar: Grammar) -> None:
    machine = check_against_denotation(grammar, 5)
    assume(machine is not None)
    assert machine is not None
    check_minimal(machine)


def check_minimal(machine: Machine) -> None:
    """Plain rounds over states, edges and sites merge nothing."""
    edges = [(int(target), *machine.pushes(edge)) for edge, target in enumerate(machine.edge_target)]
    assert len(set(edges)) == len(edges) and len({row.tobytes() for row in machine.returns}) == machine.sites
    block: dict[int, int] = {state: 0 for state in range(machine.states)} | {-1: -1}

    def cell(value: int) -> object:
        if value < machine.states:
            return block[value]
        target, *pushes = edges[value - machine.states]
        return block[target], *(tuple(block[state] for state in machine.returns[site].tolist()) for site in pushes)

    while True:
        signatures = {state: (block[state], int(machine.exits[state]), bool(machine.accepting[state]), tuple(map(cell, row)))
                      for state, row in enumerate(machine.table.tolist())}
        numbers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures.values()))}
        if len(numbers) == len(set(block.values()) - {-1}):
            break
        block = {state: numbers[signature] for state, signature in signatures.items()} | {-1: -1}
    assert len(numbers) == machine.states
    assert len({machine.table[:, column].tobytes() for column in range(machine.classes)}) == machine.classes


@settings(max_examples=40, deadline=None)
@given(grammars(opened=True, closed=True))
def test_needs_are_shortest_ways(grammar: Grammar) -> None:
    machine = check_against_denotation(grammar, 5)
    assume(machine is not None and machine.states > 1)
    assert machine is not None
    need = byte_need(machine)
    level, distance = {initial(machine)}, 0
    while not any(may_end(machine, configuration) for configuration in level):
        level = {following for configuration in level for byte in allowed(machine, configuration)
                 if (following := step(machine, configuration, byte)) is not None}
        distance += 1
    assert need[machine.start] == distance


def is_sum(text: bytes) -> bool:
    """A recursive-descent recogniser."""

    def expression(at: int) -> int:
        at = atom(at)
        while 0 <= at < len(text) and text[at:at + 1] == b"+":
            at = atom(at + 1)
        return at

    def atom(at: int) -> int:
        if text[at:at + 1] == b"(":
            at = expression(at + 1)
            return at + 1 if at >= 0 and text[at:at + 1] == b")" else -1
        end = at
        while text[end:end + 1].isdigit():
            end += 1
        return end if end > at else -1

    return expression(0) == len(text)


@settings(max_examples=300, deadline=None)
@given(st.text("1+()", max_size=12).map(str.encode))
def test_a_rule_that_returns_lazily(text: bytes) -> None:
    assert accepts(SUMS, text) == is_sum(text)
    assert accepts(WRAPPED_SUMS, b"=" + text + b";") == is_sum(text)


SUMS, WRAPPED_SUMS = built(sums(False)), built(sums(True))


def test_lazy_returns_pop_before_they_read() -> None:
    assert accepts(SUMS, b"((1+2)+(3))+44") and accepts(WRAPPED_SUMS, b"=((1+2)+(3))+44;")
    inside = run(WRAPPED_SUMS, b"=(1")
    assert inside is not None and len(inside.stack) == 2
    after = step(WRAPPED_SUMS, inside, ord(")"))
    assert after is not None and len(after.stack) == 1


def test_exits_carry_a_verdict_out_of_any_depth() -> None:
    machine = built(verdicts())
    for depth in range(1, 6):
        for letter in b"tf":
            for last in b"tf":
                text = b"{" * depth + bytes([letter]) + b"}" * depth + bytes([last])
                assert accepts(machine, text) == (letter == last)
    assert machine.returns.shape == (2, 2)


def test_unwanted_verdicts_are_trimmed() -> None:
    def root(builder: RuleBuilder) -> None:
        end = builder.node()
        builder.call(0, 1, [-1, end])
        builder.exit(end, 0)

    machine = built(Grammar((rule("#", 1, root), verdicts().rules[1])))
    assert accepts(machine, b"{{t}}") and run(machine, b"{{f") is None
    assert verify_trim(machine) == [] and int(machine.exits.max()) == 0


@pytest.mark.parametrize("called_root", [False, True])
def test_calls_in_tail_position_push_nothing(called_root: bool) -> None:
    machine = built(json_values(called_root), small=0)
    assert (run(machine, b"[") or Configuration(0, (9,))).stack == ()
    assert run(machine, b"[]") == Configuration(TERMINATED) and run(machine, b"[{k:[1]}]") == Configuration(TERMINATED)
    assert len((run(machine, b"[{k:[") or Configuration(0)).stack) == 2
    assert accepts(machine, b"7") == (not called_root)
    assert run(machine, b"[]]") is None and not accepts(machine, b"[[]")
    assert texts(machine, 6) == denotation(json_values(called_root), 6)


def test_a_called_root_that_reads_on_may_end_on_an_empty_stack_only() -> None:
    assert accepts(SUMS, b"1+(2)") and accepts(SUMS, b"12") and not accepts(SUMS, b"(12")
    lazy = run(SUMS, b"12")
    assert lazy is not None and SUMS.accepting[lazy.state] and SUMS.exits[lazy.state] == 0


def test_what_is_shared_stays_a_call_and_the_rest_is_inlined() -> None:
    assert built(shared(50, 200)).states < 400 and built(shared(50, 200)).sites == 50
    assert built(shared(1, 200)).sites == 0
    assert built(shared(50, 20)).sites == 0
    assert len(inline(trim(shared(50, 60)), 500).rules) == 2  # copies would pass the limit
    text = b"{" + b"x" * 197 + b"}"
    assert accepts(built(shared(3, 200)), (text + b",") * 3) and not accepts(built(shared(3, 200)), (text + b",") * 4)


def test_rules_that_may_be_empty() -> None:
    def root(builder: RuleBuilder) -> None:
        after, end = builder.node(), builder.node()
        builder.call(0, 1, [after])
        builder.byte(after, 59, 59, end)
        builder.exit(end, 0)

    def nested(builder: RuleBuilder) -> None:
        inside, after, end = (builder.node() for _ in range(3))
        builder.exit(0, 0)
        builder.byte(0, 40, 40, inside)
        builder.call(inside, 1, [after])
        builder.byte(after, 41, 41, end)
        builder.exit(end, 0)

    machine = built(Grammar((rule("#", 1, root), rule("#/nested", 1, nested))))
    assert texts(machine, 7) == {b";", b"();", b"(());", b"((()));"}


