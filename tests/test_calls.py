"""What one byte cannot decide is refused, by name; so are empty languages and broken budgets."""

from __future__ import annotations

import pytest
from machine_cases import built, rule, shared

from stcc.compiler.errors import BudgetError, CompileError, UnsatisfiableError, UnsupportedError
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.compiler.stepping import accepts
from stcc.compiler.trim import trim


def caller(name: str, before: bytes, callees: list[int], after: bytes, reads: bytes = b"") -> Rule:
    """Reads ``before``, calls one of ``callees`` or reads ``reads``, then ``after``."""

    def fill(builder: RuleBuilder) -> None:
        node, back, end = (builder.node() for _ in range(3))
        builder.literal(0, before, node)
        for callee in callees:
            builder.call(node, callee, [back])
        if reads:
            builder.literal(node, reads, back)
        builder.literal(back, after, end)
        builder.exit(end, 0)

    return rule(name, 1, fill)


def digits(name: str, own: int = 1) -> Rule:
    """Rule ``own``: 'a', then any number of digits and of calls of itself in brackets; it may end after each."""

    def fill(builder: RuleBuilder) -> None:
        node, inside, back = (builder.node() for _ in range(3))
        builder.byte(0, 97, 97, node)
        builder.byte(node, 48, 57, node)
        builder.byte(node, 40, 40, inside)
        builder.call(inside, own, [back])
        builder.byte(back, 41, 41, node)
        builder.exit(node, 0)

    return rule(name, 1, fill)


def two_exits() -> Rule:
    def fill(builder: RuleBuilder) -> None:
        inside, first, second, end = (builder.node() for _ in range(4))
        builder.byte(0, 40, 40, inside)
        builder.call(inside, 1, [inside, inside])
        builder.byte(inside, 41, 41, first)
        builder.byte(inside, 41, 41, second)
        builder.exit(first, 0)
        builder.exit(second, 1)
        builder.exit(end, 0)

    return rule("#/r", 2, fill)


def left_recursive() -> Rule:
    def fill(builder: RuleBuilder) -> None:
        after, end = builder.node(), builder.node()
        builder.call(0, 1, [after])
        builder.byte(0, 97, 97, end)
        builder.byte(after, 98, 98, end)
        builder.exit(end, 0)

    return rule("#/r", 1, fill)


def both_exits_wanted() -> Rule:
    def fill(builder: RuleBuilder) -> None:
        first, second, end = (builder.node() for _ in range(3))
        builder.call(0, 1, [first, second])
        builder.byte(first, 97, 97, end)
        builder.byte(second, 98, 98, end)
        builder.exit(end, 0)

    return rule("#", 1, fill)


REFUSED = {
    "reads and calls": (Grammar((caller("#", b"", [1], b";", reads=b"ab"), digits("#/r"))), "on 'a' this rule both calls '#/r' and reads"),
    "calls two": (Grammar((caller("#", b"", [1, 2], b";"), digits("#/r"), digits("#/s", 2))), "both calls '#/s' and calls '#/r'"),
    "reads and returns": (Grammar((caller("#", b"=", [1], b"1"), digits("#/r"))), "on '1' this rule both reads on and returns to '#'"),
    "ends lazily": (Grammar((caller("#", b"=", [1], b""), caller("#/r", b"a", [1], b"", reads=b"b"))), None),
    "two exits": (Grammar((both_exits_wanted(), two_exits())), "ends this rule through two exits"),
    "left recursion": (Grammar((caller("#", b"", [1], b";"), left_recursive())), "calls itself before it reads a byte"),
}


@pytest.mark.parametrize(("grammar", "message"), REFUSED.values(), ids=REFUSED)
def test_what_one_byte_cannot_decide_is_refused(grammar: Grammar, message: str | None) -> None:
    if message is None:  # a call in tail position is fine
        assert accepts(built(grammar), b"=aaab")
        return
    with pytest.raises(UnsupportedError) as caught:
        built(grammar)
    assert message in str(caught.value) and caught.value.hint


def test_a_text_that_may_end_inside_a_callee_is_refused() -> None:
    def root(builder: RuleBuilder) -> None:
        node, back, end = (builder.node() for _ in range(3))
        builder.byte(0, 61, 61, node)
        builder.call(node, 1, [back])
        builder.exit(back, 0)
        builder.byte(back, 59, 59, end)
        builder.exit(end, 0)

    with pytest.raises(UnsupportedError, match="the text may end right after '#/r'"):
        built(Grammar((rule("#", 1, root), digits("#/r"))))


def test_a_return_that_may_end_its_rule_is_refused() -> None:
    def fill(builder: RuleBuilder) -> None:
        inside, back = builder.node(), builder.node()
        builder.byte(0, 40, 40, inside)
        builder.byte(0, 98, 98, back)
        builder.call(inside, 1, [back])
        builder.byte(back, 41, 41, back)
        builder.exit(back, 0)

    with pytest.raises(UnsupportedError, match="may end right after it calls '#/r'"):
        built(Grammar((caller("#", b"", [1], b";"), rule("#/r", 1, fill))))


def test_the_empty_language_names_the_innermost_rule() -> None:
    def hopeless(builder: RuleBuilder) -> None:
        builder.byte(0, 97, 97, 0)

    grammar = Grammar((caller("#", b"", [1], b""), caller("#/a", b"x", [2], b""), rule("#/a/b", 1, hopeless)))
    with pytest.raises(UnsatisfiableError) as caught:
        trim(grammar)
    assert caught.value.pointer == "#/a/b"
    with pytest.raises(UnsatisfiableError):
        link(Grammar((rule("#", 1, hopeless),)))


def test_an_endless_recursion_is_the_empty_language() -> None:
    with pytest.raises(UnsatisfiableError):
        trim(Grammar((caller("#", b"(", [0], b")"),)))


def test_budgets_stop_a_link_and_name_the_rule() -> None:
    with pytest.raises(BudgetError, match="#"):
        built(shared(50, 200), max_states=100)
    with pytest.raises(CompileError, match="took more than"):
        link(trim(shared(50, 2000)), Options(), Deadline(0.0))


