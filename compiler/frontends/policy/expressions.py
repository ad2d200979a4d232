"""CEL expressions over a policy's variables, compiled to closures.

Syntax is the Common Expression Language's, parsed by cel-python; of the language, what a finite state machine needs is taken: Booleans,
64-bit integers, strings, comparison, arithmetic, ``in`` a list, ``? :``, ``&& || !``. Meaning is CEL's: arithmetic that leaves 64 bits
or divides by zero is an error, division truncates towards zero, ``&&`` and ``||`` absorb an error on either side where the other side
decides. Every expression is typed before it runs, and a comparison with a value that a variable never has is refused: it is a typo.

In: text, variables by name. Out: an ``Expression``: its type, the variables it reads, and a function of a tuple of values whose cost is
linear in the text (no comprehensions, no strings made). Text is at most ``MAX_TEXT`` characters and ``MAX_DEPTH`` deep.

>>> age = Variable("age", "int", (0, 1, 2), 0, hidden=False)
>>> compile_expression("age + 1 < 3 && age != 1", {"age": (0, age)}).run((0,))
True
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError, UnsupportedError

Value = bool | int | str
Run = Callable[[Sequence[Value]], Value]

MAX_TEXT = 2000
MAX_DEPTH = 100
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
_SUBSET = "use Booleans, integers, quoted strings, comparisons, arithmetic, in [..], ?: and && || !"


@dataclass(frozen=True)
class Variable:
    """A finite variable.

    Attributes:
        name: its name.
        type: ``bool``, ``int`` or ``string``.
        values: all its values; for integers a range.
        initial: the first one.
        hidden: whether the agent can tell it from its history only by observations.
    """

    name: str
    type: str
    values: tuple[Value, ...] | range
    initial: Value
    hidden: bool


class Undefined(Exception):  # noqa: N818 - a value of the language, not a failure of the program
    """An expression without a value: overflow or division by zero."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression: its text, type, variables read, and what runs it (``Undefined`` where it has no value)."""

    text: str
    type: str
    reads: frozenset[str]
    run: Run


@dataclass(frozen=True)
class _Node:
    """A typed part: ``domain`` is the variable's values where the part is a variable."""

    type: str
    run: Run
    constant: Value | None = None
    domain: Variable | None = None


def compile_expression(text: str, scope: Mapping[str, tuple[int, Variable]], wanted: str = "", pointer: str = "") -> Expression:
    """Compile ``text``.

    Args:
        text: CEL.
        scope: name -> place in the tuple of values, and the variable.
        wanted: the type it must have, if any.
        pointer: its place in the document, for messages.

    Raises:
        SourceError: not CEL, an unknown name, a type error, or a comparison that can never hold.
        UnsupportedError: CEL beyond the subset.
        BudgetError: too long or too deep.
    """
    if len(text) > MAX_TEXT:
        raise BudgetError(f"an expression of {len(text):,} characters; at most {MAX_TEXT:,} are read", pointer=pointer, hint="split it")
    compiler = _Compiler(scope, pointer)
    node = compiler.part(_tree(text, pointer), 0)
    if wanted and node.type != wanted:
        raise SourceError(f"the expression is of type {node.type}, where {wanted} is needed", pointer=pointer, keyword=text,
                          hint=f"give a {wanted}")
    return Expression(text, node.type, frozenset(compiler.reads), node.run)


def _tree(text: str, pointer: str) -> Any:
    """cel-python's parse tree."""
    try:
        from celpy.celparser import CELParseError, CELParser
    except ImportError as error:
        raise UnsupportedError("policies need the package cel-python", pointer=pointer, hint="pip install 'stcc[compiler]'") from error
    from lark.exceptions import LarkError

    try:
        return CELParser().parse(text)
    except (CELParseError, LarkError) as error:
        line, column = getattr(error, "line", None), getattr(error, "column", None)
        place = f" at line {line}, column {column}" if line and column and column > 0 else ""
        raise SourceError(f"not a CEL expression{place}", pointer=pointer, keyword=text,
                          hint="see https://cel.dev for the syntax; strings take quotes") from None


def _defined(value: int) -> int:
    if not LOWEST <= value <= HIGHEST:
        raise Undefined("the number leaves 64 bits")
    return value


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise Undefined("a division by zero")
    quotient = abs(left) // abs(right)
    return _defined(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise Undefined("a remainder by zero")
    return left - right * (abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


def _pair(function: Callable[[Any, Any], Value], left: Run, right: Run) -> Run:
    return lambda values: function(left(values), right(values))


def _decided_by(decisive: bool, left: Run, right: Run) -> Run:
    """``||`` (decisive True) or ``&&`` (False): an error on one side counts only if the other does not decide."""
    def run(values: Sequence[Value]) -> Value:
        try:
            if left(values) is decisive:
                return decisive
        except Undefined:
            if right(values) is decisive:
                return decisive
            raise
        return right(values)
    return run


_ARITHMETIC: dict[str, Callable[[Any, Any], Value]] = {
    "addition_add": lambda left, right: _defined(left + right), "addition_sub": lambda left, right: _defined(left - right),
    "multiplication_mul": lambda left, right: _defined(left * right), "multiplication_div": _divide, "multiplication_mod": _remainder,
}
_ORDER: dict[str, Callable[[Any, Any], Value]] = {
    "relation_lt": operator.lt, "relation_le": operator.le, "relation_gt": operator.gt, "relation_ge": operator.ge,
}
_SIGNS = {"relation_lt": "<", "relation_le": "<=", "relation_gt": ">", "relation_ge": ">=", "relation_eq": "==", "relation_ne": "!=",
          "relation_in": "in", "addition_add": "+", "addition_sub": "-", "multiplication_mul": "*", "multiplication_div": "/",
          "multiplication_mod": "%"}


class _Compiler:
    """One walk over a parse tree."""

    def __init__(self, scope: Mapping[str, tuple[int, Variable]], pointer: str) -> None:
        self.scope, self.pointer = scope, pointer
        self.reads: set[str] = set()

    def part(self, tree: Any, depth: int) -> _Node:
        """The node of ``tree``; chains of rules that only pass on are skipped without recursion."""
        while len(tree.children) == 1 and tree.data in _PASSING:
            tree = tree.children[0]
        if depth > MAX_DEPTH:
            raise BudgetError(f"an expression nests deeper than {MAX_DEPTH}", pointer=self.pointer, hint="split it over state variables")
        handler = _HANDLERS.get(tree.data)
        if handler is None:
            raise self.unsupported(tree.data)
        return handler(self, tree, depth + 1)

    def unsupported(self, construct: str) -> UnsupportedError:
        """CEL that is not taken."""
        return UnsupportedError(f"{construct.replace('_', ' ')} is not taken in a policy", pointer=self.pointer, hint=_SUBSET)

    def wrong(self, message: str, hint: str) -> SourceError:
        """A type error or the like."""
        return SourceError(message, pointer=self.pointer, hint=hint)

    def same(self, left: _Node, right: _Node, sign: str) -> None:
        """Both sides of ``sign`` are of one type."""
        if left.type != right.type:
            raise self.wrong(f"{sign} compares {left.type} with {right.type}", "compare values of one type")
        for variable, other in ((left, right), (right, left)):
            known = variable.domain
            if known is not None and other.constant is not None and known.type != "int" and other.constant not in known.values:
                raise self.wrong(f"{known.name} is never {other.constant!r}", f"its values are {', '.join(map(repr, known.values))}")

    def needs(self, type_: str, node: _Node, sign: str) -> Run:
        """The function of ``node``, which must be of a type."""
        if node.type != type_:
            raise self.wrong(f"{sign} takes {type_}, not {node.type}", _SUBSET)
        return node.run

    def choice(self, tree: Any, depth: int) -> _Node:
        """``c ? a : b``."""
        condition, yes, no = (self.part(child, depth) for child in tree.children)
        test = self.needs("bool", condition, "?")
        self.same(yes, no, "? :")
        return _Node(yes.type, lambda values: yes.run(values) if test(values) else no.run(values))

    def logical(self, tree: Any, depth: int) -> _Node:
        """A chain of ``||`` or of ``&&``, which the grammar nests to the left."""
        rule, operands = tree.data, []
        while tree.data == rule and len(tree.children) == 2:
            operands.append(tree.children[1])
            tree = tree.children[0]
        operands.append(tree)
        sign = "||" if rule == "conditionalor" else "&&"
        runs = [self.needs("bool", self.part(operand, depth), sign) for operand in reversed(operands)]
        while len(runs) > 1:  # halves, so that a long chain is not deep; both operators are associative, errors included
            runs = [_decided_by(sign == "||", *runs[i:i + 2]) if i + 1 < len(runs) else runs[i] for i in range(0, len(runs), 2)]
        return _Node("bool", runs[0])

    def binary(self, tree: Any, depth: int) -> _Node:
        """A comparison or arithmetic."""
        head, rest = tree.children
        sign = _SIGNS[head.data]
        left = self.part(head.children[0], depth)
        if head.data == "relation_in":
            return self.membership(left, rest, depth)
        right = self.part(rest, depth)
        if head.data in _ARITHMETIC:
            runs = self.needs("int", left, sign), self.needs("int", right, sign)
            return _Node("int", _pair(_ARITHMETIC[head.data], *runs))
        self.same(left, right, sign)
        if head.data in _ORDER:
            return _Node("bool", _pair(_ORDER[head.data], left.run, right.run))
        return _Node("bool", _pair(operator.eq if head.data == "relation_eq" else operator.ne, left.run, right.run))

    def membership(self, left: _Node, tree: Any, depth: int) -> _Node:
        """``x in [a, b]``."""
        while len(tree.children) == 1 and tree.data in _PASSING:
            tree = tree.children[0]
        if tree.data != "list_lit":
            raise self.wrong("in takes a list", "write x in [a, b]")
        members = [self.part(child, depth) for child in (tree.children[0].children if tree.children else ())]
        for member in members:
            self.same(left, member, "in")
        runs = tuple(member.run for member in members)

        def run(values: Sequence[Value]) -> Value:
            wanted = left.run(values)
            return wanted in [member(values) for member in runs]  # all of them: a list with a member in error is an error
        return _Node("bool", run)

    def unary(self, tree: Any, depth: int) -> _Node:
        """``!x`` or ``-x``."""
        sign, operand = tree.children[0].data, self.part(tree.children[1], depth)
        if sign == "unary_not":
            test = self.needs("bool", operand, "!")
            return _Node("bool", lambda values: not test(values))
        number = self.needs("int", operand, "-")
        return _Node("int", lambda values: _defined(-number(values)))  # type: ignore[operator]

    def name(self, tree: Any, depth: int) -> _Node:
        """A variable."""
        text = str(tree.children[0])
        if text not in self.scope:
            raise SourceError(f"there is no variable {text}", pointer=self.pointer, keyword=text,
                              hint=f"declared are {', '.join(sorted(self.scope))}")
        place, variable = self.scope[text]
        self.reads.add(text)
        return _Node(variable.type, operator.itemgetter(place), None, variable)

    def literal(self, tree: Any, depth: int) -> _Node:
        """A constant."""
        token = tree.children[0]
        value = self.constant(token.type, str(token))
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
        return _Node(kind, lambda values: value, value)

    def constant(self, kind: str, text: str) -> Value:
        """The value of a literal."""
        if kind == "BOOL_LIT":
            return text == "true"
        if kind == "INT_LIT":
            number = int(text, 16 if "0x" in text else 10)
            if not LOWEST <= number <= HIGHEST:
                raise self.wrong(f"{text} does not fit 64 bits", "use a smaller number")
            return number
        if kind == "STRING_LIT" and text[0] in "\"'" and "\\" not in text:
            return text[1:-1]
        raise self.unsupported(kind.lower().removesuffix("_lit") + " literal")


_Handler = Callable[[_Compiler, Any, int], _Node]
_PASSING = frozenset({"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member", "primary",
                      "paren_expr"})
_HANDLERS: dict[str, _Handler] = {
    "expr": _Compiler.choice, "conditionalor": _Compiler.logical, "conditionaland": _Compiler.logical, "relation": _Compiler.binary,
    "addition": _Compiler.binary, "multiplication": _Compiler.binary, "unary": _Compiler.unary, "ident": _Compiler.name,
    "literal": _Compiler.literal,
}
