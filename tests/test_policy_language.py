"""Policy files: YAML as it is read, CEL against cel-python's own evaluator, and what is refused, with its path."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import celpy
import pytest
from celpy import celtypes
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import compile_policy
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsatisfiableError, UnsupportedError
from stcc.compiler.frontends.policy.document import parse_document
from stcc.compiler.frontends.policy.expressions import Undefined, Variable, compile_expression
from stcc.compiler.options import Options

# -- YAML ------------------------------------------------------------------------------------------------------------------


def test_words_that_yaml_1_1_takes_for_booleans_are_words() -> None:
    assert parse_document(b"{NO: yes, on: off, y: n}") == {"NO": "yes", "on": "off", "y": "n"}


def test_numbers_are_exact() -> None:
    assert parse_document(b"[0.1, 1e-3, -2, 1_000, 0x10, .5, 'true', true, ~]") == [
        Fraction(1, 10), Fraction(1, 1000), -2, "1_000", "0x10", Fraction(1, 2), "true", True, None]


@pytest.mark.parametrize(("text", "said"), [
    (b"a: &x 1\nb: *x", "anchors"), (b"a: !!python/object 1", "tags"), (b"a: 1\na: 2", "twice"), (b"[a]: 1", "key"), (b"{a: [}", "YAML"),
    (b"a: 1\n---\nb: 2", "second document"), (b"\xff", "UTF-8"), (b"[" * 500 + b"]" * 500, "deeper"), (b"a" * (1 << 21), "larger"),
])
def test_yaml_that_hides_something_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        parse_document(text)
    assert caught.value.hint


def test_hostile_yaml_takes_no_time() -> None:
    started = time.perf_counter()
    for text in (b"[" * 200_000, b"- " * 100_000, b"a: " * 1000, b"{" * 100_000, b"&a [*a]" * 1000, b"? " * 100_000):
        with pytest.raises(SourceError):
            parse_document(text)
    assert time.perf_counter() - started < 5


# -- CEL -------------------------------------------------------------------------------------------------------------------

SCOPE = {name: (place, Variable(name, kind, values, values[0], hidden=False)) for place, (name, kind, values) in enumerate([
    ("a", "bool", (False, True)), ("b", "bool", (False, True)), ("n", "int", range(-3, 4)), ("m", "int", range(5)),
    ("s", "string", ("x", "y", "zz"))])}
BIG = 9223372036854775807


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["n", "m", "0", "1", "-2", "7", str(BIG)])
    if depth == 0:
        return leaf
    part = numbers(depth - 1)
    return leaf | st.builds("({} {} {})".format, part, st.sampled_from("+-*/%"), part) | st.builds("-({})".format, part) | st.builds(
        "({} ? {} : {})".format, truths(depth - 1), part, part)


def truths(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "true", "false", "(s == 'x')", "(s != \"zz\")", "(s in ['x', 'y'])", "('x' < s)"])
    if depth == 0:
        return leaf
    part, number = truths(depth - 1), numbers(depth - 1)
    return leaf | st.builds("({} {} {})".format, part, st.sampled_from(["&&", "||", "==", "!="]), part) | st.builds(
        "!({})".format, part) | st.builds("({} {} {})".format, number, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), number) | (
        st.builds("({} in [{}, {}])".format, number, number, number))


ENVIRONMENT = celpy.Environment()


def by_celpy(text: str, values: tuple[Any, ...]) -> Any:
    activation = {"a": celtypes.BoolType(values[0]), "b": celtypes.BoolType(values[1]), "n": celtypes.IntType(values[2]),
                  "m": celtypes.IntType(values[3]), "s": celtypes.StringType(values[4])}
    try:
        result = ENVIRONMENT.program(ENVIRONMENT.compile(text)).evaluate(activation)
    except celpy.CELEvalError:
        return "error"
    return bool(result) if isinstance(result, celtypes.BoolType) else int(result)


@settings(max_examples=400, deadline=None)
@given(truths(3) | numbers(3),
       st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3), st.integers(0, 4), st.sampled_from(["x", "y", "zz"])))
def test_expressions_mean_what_cel_python_says(text: str, values: tuple[Any, ...]) -> None:
    try:
        mine: Any = compile_expression(text, SCOPE).run(values)
    except Undefined:
        mine = "error"
    assert mine == by_celpy(text, values) and isinstance(mine, (bool, int, str))


@pytest.mark.parametrize(("text", "error"), [
    ("n +", SourceError), ("k", SourceError), ("a + 1", SourceError), ("n && a", SourceError), ("s == 'w'", SourceError),
    ("s in ['x', 'w']", SourceError), ("a == n", SourceError), ("a ? 1 : b", SourceError), ("n in m", SourceError), ("", SourceError),
    ("[1, 2].all(x, x > 1)", UnsupportedError), ("size(s) == 1", UnsupportedError), ("s.startsWith('x')", UnsupportedError),
    ("1.5 < 2.0", UnsupportedError), ("{'a': 1}['a'] == 1", UnsupportedError), ("1u == 1u", UnsupportedError),
    ("'\\n' == s", UnsupportedError),
    ("99999999999999999999 > n", SourceError), ("!" * 500 + "a", BudgetError), ("a" * 3000, BudgetError), ("n" + "+n" * 600, BudgetError),
])
def test_expressions_at_fault(text: str, error: type[CompileError]) -> None:
    with pytest.raises(error) as caught:
        compile_expression(text, SCOPE, pointer="#/accept")
    assert caught.value.pointer == "#/accept" and caught.value.hint


def test_long_chains_are_not_deep() -> None:
    assert compile_expression("||".join(["b"] * 400), SCOPE).run((False, True, 0, 0, "x")) is True
    assert compile_expression("(" * 300 + "a" + ")" * 300, SCOPE).run((True, False, 0, 0, "x")) is True


# -- documents at fault ----------------------------------------------------------------------------------------------------


def policy(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "horizon": 3, "state": {"done": False, "count": {"maximum": 2}}, "hidden": {"lucky": False},
        "worlds": {"good": {"set": {"lucky": True}}, "bad": {}},
        "actions": {"ACT": {"effects": {"done": True}}, "STOP": {"ends": True}}, "accept": "done",
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def test_the_base_compiles() -> None:
    assert compile_policy(policy()).policy is not None


@pytest.mark.parametrize(("changes", "pointer"), [
    ({"horizon": 0}, "#/horizon"), ({"horizon": True}, "#/horizon"), ({"horizon": ...}, "#"), ({"colour": 1}, "#/colour"),
    ({"state": []}, "#/state"), ({"state": {"done": 5}}, "#/state/done"), ({"state": {"a b": True}}, "#/state/a b"),
    ({"state": {"done": {"maximum": 2, "initial": 3}}}, "#/state/done/initial"), ({"state": {"in": True}}, "#/state/in"),
    ({"state": {"failed": True, "done": True}}, "#/state/failed"), ({"state": {"x": {"values": ["a", "a"]}}}, "#/state/x"),
    ({"state": {"done": {"values": ["a"], "maximum": 3}}}, "#/state/done"), ({"hidden": {"done": True}}, "#/hidden/done"),
    ({"worlds": {}}, "#/worlds"), ({"worlds": {"w": {"weight": 0}}}, "#/worlds/w/weight"),
    ({"worlds": {"w": {"weight": "1/0"}}}, "#/worlds/w/weight"), ({"worlds": {"w": {"weight": "1e999999999"}}}, "#/worlds/w/weight"),
    ({"worlds": {"w": {"weight": True}}}, "#/worlds/w/weight"), ({"worlds": {"w": {"weight": "nan"}}}, "#/worlds/w/weight"),
    ({"worlds": {"w": {"set": {"done": True}}}}, "#/worlds/w/set/done"),
    ({"worlds": {"w": {"set": {"lucky": 1}}}}, "#/worlds/w/set/lucky"),
    ({"actions": {}}, "#/actions"), ({"actions": {"A=B": {}}}, "#/actions/A=B"),
    ({"actions": {"A": {"requires": "lucky"}}}, "#/actions/A/requires"),
    ({"actions": {"A": {"effects": {"done": "lucky"}}}}, "#/actions/A/effects/done"),
    ({"actions": {"A": {"otherwise": "fail"}}}, "#/actions/A/otherwise"),
    ({"actions": {"A": {"effects": {"gone": True}}}}, "#/actions/A/effects/gone"),
    ({"actions": {"A": {"outcomes": []}}}, "#/actions/A/outcomes"), ({"actions": {"A": {"outcomes": [{"when": "done"}]}}}, "#/actions/A"),
    ({"actions": {"A": {"outcomes": [{}, {"observe": "x"}]}}}, "#/actions/A/outcomes/0"),
    ({"actions": {"A": {"effects": {"count": "count + 1"}}, "S": {"ends": True}}, "accept": "count == 2", "horizon": 5},
     "#/actions/A/effects/count"),
    ({"actions": {"A": {"outcomes": [{"when": "lucky", "effects": {"done": True}}, {"when": "!lucky"}]}}}, "#/actions/A"),
    ({"actions": {"A": {"outcomes": [{"when": "lucky", "ends": True}, {"when": "!lucky"}]}}}, "#/actions/A"),
    ({"actions": {"A": {"effects": {"done": "1 / count == 1"}}}}, "#/actions/A/effects/done"),
    ({"accept": "done &&"}, "#/accept"), ({"accept": 3.5}, "#/accept"), ({"accept": "count"}, "#/accept"), ({"done": "lucky"}, "#/done"),
    ({"at_horizon": "maybe"}, "#/at_horizon"), ({"abstractions": {"x": "done"}}, "#/abstractions/x"),
    ({"abstractions": {"x": ["lucky"]}}, "#/abstractions/x"),
])
def test_documents_at_fault_name_the_path(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SourceError) as caught:
        compile_policy(policy(**changes))
    assert caught.value.pointer == pointer and caught.value.hint and caught.value.source == "<policy>"


def test_a_fault_in_a_step_is_told_with_a_history() -> None:
    with pytest.raises(SourceError, match="after A A"):
        compile_policy(policy(actions={"A": {"effects": {"count": "count + 1"}}}, accept="count == 2"))


def test_no_valid_history() -> None:
    with pytest.raises(UnsatisfiableError) as caught:
        compile_policy(policy(accept="done && count == 2"))
    assert caught.value.pointer == "#/accept"


def test_an_explosion_names_the_variable_that_grew() -> None:
    started = time.perf_counter()
    growing = policy(horizon=400, state={"flag": False, "total": {"maximum": 60_000}}, accept="total == 1",
                     actions={f"ADD{number}": {"effects": {"total": f"(total * 31 + {number}) % 60000"}} for number in range(8)})
    with pytest.raises(BudgetError) as caught:
        compile_policy(growing, options=Options(max_states=3000))
    assert caught.value.pointer == "#/state/total" and "3,000" in caught.value.message and time.perf_counter() - started < 10
    with pytest.raises(BudgetError):
        compile_policy(growing, options=Options(time_limit=0.2, max_states=10**9))
    assert time.perf_counter() - started < 15


@pytest.mark.parametrize("changes", [
    {"horizon": 10**6}, {"state": {"x": {"maximum": 10**9}}}, {"actions": {f"A{number}": {} for number in range(5000)}},
    {"abstractions": {f"x{number}": [] for number in range(100)}}])
def test_sizes_past_a_limit(changes: dict[str, Any]) -> None:
    with pytest.raises(BudgetError):
        compile_policy(policy(**changes))


def test_hostile_widths_stop_early() -> None:
    started = time.perf_counter()
    worlds = {f"w{number}": {"set": {f"h{bit}": bool(number >> bit & 1) for bit in range(10)}} for number in range(1024)}
    looks = {f"LOOK{bit}": {"outcomes": [{"when": f"h{bit}", "observe": "on"}, {"when": f"!h{bit}", "observe": "off"}]}
             for bit in range(10)}
    guessing = policy(horizon=60, hidden={f"h{number}": False for number in range(14)}, worlds=worlds, actions=looks, accept="h0")
    with pytest.raises(BudgetError):
        compile_policy(guessing, options=Options(max_states=6000, time_limit=20))
    outcomes = [{"weight": 1, "observe": f"o{number % 4000}"} for number in range(9000)]
    with pytest.raises(BudgetError):
        compile_policy(policy(actions={"A": {"outcomes": outcomes}}, horizon=500, accept="!done"),
                       options=Options(max_states=500, time_limit=20))
    assert time.perf_counter() - started < 30
