"""Context-free grammars as trees, whatever notation they were written in.

In: nothing; out: immutable node types, the constructors that keep trees flat, and questions about them. A terminal is a regular language,
given as the syntax tree of a pattern (``regex.syntax``), one character in most cases: literals are spelled out as series of characters, so
that common beginnings can be seen. Rules are trees by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stcc.compiler.frontends.regex.syntax import Characters, Node, width


@dataclass(frozen=True)
class Terminal:
    """A word of a regular language."""

    tree: Node


@dataclass(frozen=True)
class Reference:
    """What the rule called ``name`` derives; ``place`` (line and column) is for messages."""

    name: str
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class Series:
    """Its items one after the other; the empty series reads nothing."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternatives:
    """Any one of its options; no option at all derives nothing."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat:
    """``body`` between ``low`` and ``high`` times (``None``: no upper bound)."""

    body: Expression
    low: int
    high: int | None


Expression: TypeAlias = Terminal | Reference | Series | Alternatives | Repeat

EMPTY = Series(())
NOTHING = Alternatives(())


@dataclass(frozen=True)
class ContextFree:
    """A grammar.

    Attributes:
        rules: bodies by name, in the order of the source.
        start: the rule that the whole text derives from.
        places: line and column of each rule, for messages.
        silent: rules that nobody minds if they are not used, such as those that a notation brings along.
    """

    rules: Mapping[str, Expression]
    start: str
    places: Mapping[str, str]
    silent: frozenset[str] = frozenset()


def series(items: Iterable[Expression]) -> Expression:
    """Concatenation, flattened; nothing if an item derives nothing."""
    flat: list[Expression] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Series) else (item,))
    if NOTHING in flat:
        return NOTHING
    return flat[0] if len(flat) == 1 else Series(tuple(flat))


def alternatives(options: Iterable[Expression]) -> Expression:
    """Alternation, flattened, each option once."""
    flat: list[Expression] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Alternatives) else (option,))
    flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else Alternatives(tuple(flat))


def repeat(body: Expression, low: int, high: int | None) -> Expression:
    """Repetition; once is the body itself."""
    if body in (NOTHING, EMPTY):
        return EMPTY if low == 0 else body
    return EMPTY if high == 0 else body if (low, high) == (1, 1) else Repeat(body, low, high)


def optional(body: Expression) -> Expression:
    """``body`` or nothing."""
    return repeat(body, 0, 1)


def literal(text: str) -> Expression:
    """The characters of ``text``, one terminal each."""
    return series(Terminal(Characters(((ord(character), ord(character)),))) for character in text)


def items_of(expression: Expression) -> tuple[Expression, ...]:
    """The items of a series; anything else is a series of one."""
    return expression.items if isinstance(expression, Series) else (expression,)


def options_of(expression: Expression) -> tuple[Expression, ...]:
    """The options of a choice; anything else is a choice of one."""
    return expression.options if isinstance(expression, Alternatives) else (expression,)


def children(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is made of."""
    if isinstance(expression, Repeat):
        return (expression.body,)
    return expression.items if isinstance(expression, Series) else expression.options if isinstance(expression, Alternatives) else ()


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """``expression`` with its children changed."""
    if isinstance(expression, Series):
        return series([change(item) for item in expression.items])
    if isinstance(expression, Alternatives):
        return alternatives([change(option) for option in expression.options])
    if isinstance(expression, Repeat):
        return repeat(change(expression.body), expression.low, expression.high)
    return expression


def references(expression: Expression) -> Iterator[Reference]:
    """Every reference in an expression, in order."""
    stack = [expression]
    while stack:
        current = stack.pop()
        if isinstance(current, Reference):
            yield current
        stack.extend(reversed(children(current)))


def is_character(expression: Expression) -> bool:
    """Whether an expression is one terminal of one character."""
    return isinstance(expression, Terminal) and isinstance(expression.tree, Characters)


def is_nullable(expression: Expression, names: frozenset[str] | set[str]) -> bool:
    """Whether an expression derives the empty text, given the ``names`` of rules that do."""
    if isinstance(expression, Terminal):
        return width(expression.tree)[0] == 0
    if isinstance(expression, Reference):
        return expression.name in names
    if isinstance(expression, Repeat):
        return expression.low == 0 or is_nullable(expression.body, names)
    inner = (is_nullable(each, names) for each in children(expression))
    return all(inner) if isinstance(expression, Series) else any(inner)


def edges(expression: Expression, head: bool = True, tail: bool = True) -> Iterator[tuple[Reference, bool, bool]]:
    """Every reference, and whether it is the first, and the last, thing that is read where it is read."""
    if isinstance(expression, Reference):
        yield expression, head, tail
    elif isinstance(expression, Series):
        last = len(expression.items) - 1
        for number, item in enumerate(expression.items):
            yield from edges(item, head and number == 0, tail and number == last)
    elif isinstance(expression, Alternatives) or (isinstance(expression, Repeat) and (expression.low, expression.high) == (0, 1)):
        for each in children(expression):
            yield from edges(each, head, tail)
    elif isinstance(expression, Repeat):
        yield from edges(expression.body, False, False)


def spelled(expression: Expression, longest: int = 24) -> str:
    """An expression for messages, abbreviated; rules that a notation brings along (``%ignore``) are left out."""
    text = _spelled(expression, 3)
    return text if len(text) <= longest else f"{text[:longest - 1]}…"


def _spelled(expression: Expression, depth: int) -> str:
    if isinstance(expression, Reference):
        return expression.name
    if isinstance(expression, Terminal):
        ranges = expression.tree.ranges if isinstance(expression.tree, Characters) else ()
        return repr(chr(ranges[0][0])) if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "[…]"
    if not depth:
        return "…"
    if isinstance(expression, Repeat):
        return f"({_spelled(expression.body, depth - 1)}){{{expression.low},{'' if expression.high is None else expression.high}}}"
    joint = " " if isinstance(expression, Series) else " | "
    named = [each for each in children(expression) if not (isinstance(each, Reference) and each.name.startswith("%"))]
    return joint.join(_spelled(each, depth - 1) for each in named) or "empty"
