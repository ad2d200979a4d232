"""Lark text -> a ``ContextFree`` grammar.

In: text. Out: the grammar; terminals are rules too. The text is parsed with the grammar of Lark's notation that the ``lark`` package
brings. Read: rules, terminals, strings with ``i``, regular expressions, ranges, groups, ``[ ]``, ``? * + ~``, ``%ignore``,
``%import common``. Shapes of trees (``?rule``, ``!rule``, ``-> alias``) say nothing of the text. Refused, by name: priorities, templates,
``%declare``, ``%override``, other imports, lookarounds and anchors (they would look past the terminal), the locale flag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from stcc.compiler.adjacency import components
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsupportedError
from stcc.compiler.frontends.context_free.syntax import (
    EMPTY,
    ContextFree,
    Expression,
    Reference,
    Terminal,
    alternatives,
    literal,
    optional,
    rebuilt,
    references,
    repeat,
    series,
)
from stcc.compiler.frontends.lark.common import COMMON
from stcc.compiler.frontends.regex.parser import parse
from stcc.compiler.frontends.regex.syntax import Characters, Choice, Concatenation, Look, Node, Repetition

MAX_LENGTH = 1 << 18
"""Longest grammar read, in characters: the parser's tables run in Python, some 20 microseconds a character."""
MAX_COUNT = 1_000_000
_IGNORED = "%ignore"
_START = "%start"
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_REFUSED = {
    "declare": ("%declare leaves a terminal to the program that runs the parser", "define the terminal here"),
    "override_rule": ("%override changes a grammar that is imported", "write the rule out"),
    "template_usage": ("templates are not read", "write the rule out for each of its arguments"),
}


def parse_lark(text: str, start: str = "start", max_depth: int = 128) -> ContextFree:
    """The grammar of ``text``, whose texts derive from the rule ``start``.

    Raises:
        SourceError: it is not Lark's notation, a name is defined twice, a terminal uses a rule or itself; with line and column.
        UnsupportedError: something refused above.
        BudgetError: it is too long or nested deeper than ``max_depth``.
    """
    if len(text) > MAX_LENGTH:
        raise BudgetError(f"the grammar is longer than {MAX_LENGTH:,} characters", hint="split it")
    reader = _Reader(max_depth)
    for statement in _tree(text).children:
        reader.statement(statement)
    return reader.grammar(start)


@lru_cache(maxsize=1)
def _parser() -> Any:
    import lark

    return lark.Lark.open_from_package("lark", "lark.lark", ("grammars",), parser="lalr", propagate_positions=True, maybe_placeholders=True)


def _tree(text: str) -> Any:
    import lark

    try:
        return _parser().parse(text if text.endswith("\n") else text + "\n")
    except lark.exceptions.UnexpectedInput as error:
        line, column = getattr(error, "line", -1), getattr(error, "column", -1)
        token = getattr(error, "token", None)
        found = f"{str(token)!r} is" if token is not None and str(token).strip() else "what stands here is"
        raise SourceError(f"{found} not expected", pointer=f"line {line} column {column}" if line > 0 else "its end",
                          hint="rules are written name: ..., terminals NAME: ..., and statements begin with %") from None


class _Reader:
    """Definitions under way; ``terminal`` says whether the one being read is a terminal's."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.bodies: dict[str, Expression] = {}
        self.places: dict[str, str] = {}
        self.ignored: list[Expression] = []
        self.imported: set[str] = set()
        self.terminal = False

    def grammar(self, start: str) -> ContextFree:
        """The whole, once all statements are read."""
        self._check_terminals()
        rules = dict(self.bodies)
        if self.ignored:
            rules[_IGNORED] = repeat(alternatives(self.ignored), 0, None)
            if start in rules:
                rules[_START] = series([Reference(_IGNORED), Reference(start)])
                start = _START
        else:
            rules = {name: _without_ignored(body) for name, body in rules.items()}
        return ContextFree(rules, start, self.places, frozenset((_IGNORED, _START, *self.imported)))

    # --- statements ---

    def statement(self, tree: Any) -> None:
        """One rule, terminal or statement."""
        kind = tree.data
        if kind in ("rule", "token"):
            self._definition(tree, kind == "token")
        elif kind == "ignore":
            self.terminal = True
            self.ignored.append(self.expression(tree.children[0], 0))
        elif kind in ("import", "multi_import"):
            self._import(tree)
        else:
            raise self.refused(tree, *_REFUSED.get(kind, (f"{kind} is not read", "leave it out")), keyword=kind)

    def _definition(self, tree: Any, terminal: bool) -> None:
        name, params, *priority, body = tree.children
        place = _place(name)
        called = str(name).lstrip("!?")
        if any(param is not None for param in params.children):
            raise self.refused(tree, *_REFUSED["template_usage"], keyword=called)
        if any(each is not None for each in priority):
            raise UnsupportedError("priorities choose among parses, and there is none here", pointer=place, keyword=called,
                                   hint="leave the priority out: every text that some parse takes is accepted")
        self.terminal = terminal
        self.define(called, self.expression(body, 0), place)

    def define(self, name: str, body: Expression, place: str) -> None:
        """Enter a rule or terminal. SourceError if there is one of that name."""
        if name in self.bodies:
            raise SourceError(f"{name} is defined twice", pointer=place, keyword=name, hint="make it one definition with |")
        self.bodies[name], self.places[name] = body, place

    def _import(self, tree: Any) -> None:
        path = "".join(str(part if not hasattr(part, "children") else part.children[0]) for part in tree.children[0].children)
        if tree.data == "multi_import":
            pairs: list[tuple[str, str | None]] = [(f"{path}.{name.children[0]}", None) for name in tree.children[1].children]
        else:
            pairs = [(path, None if tree.children[1] is None else str(tree.children[1].children[0]))]
        for full, alias in pairs:
            library, _, name = full.rpartition(".")
            if library != "common" or name not in COMMON:
                raise self.refused(tree, f"{full} is not known here", f"define it; of common there are {', '.join(COMMON)}",
                                   keyword="%import")
            called = alias or name
            self.define(called, Terminal(parse(COMMON[name], dialect="python")), _place(tree))
            self.imported.add(called)

    def _check_terminals(self) -> None:
        """Terminals use terminals only, and never themselves."""
        names = [name for name in self.bodies if _is_terminal(name)]
        place = {name: number for number, name in enumerate(names)}
        for name in names:
            for each in references(self.bodies[name]):
                if not _is_terminal(each.name):
                    raise SourceError(f"the terminal {name} uses the rule {each.name}", pointer=each.place, keyword=name,
                                      hint="terminals are made of terminals: write its name in small letters to make it a rule")
        uses = [sorted({place[each.name] for each in references(self.bodies[name]) if each.name in place}) for name in names]
        for part in components(uses):
            if len(part) > 1 or part[0] in uses[part[0]]:
                name = names[part[0]]
                raise SourceError(f"the terminal {name} uses itself", pointer=self.places[name], keyword=name, hint="make it a rule")

    # --- expressions ---

    def expression(self, tree: Any, depth: int) -> Expression:
        """What a tree of ``expansions`` and below stands for."""
        if depth > 2 * self.max_depth:  # a bracket is at least two levels of the tree
            raise BudgetError(f"brackets nest deeper than {self.max_depth}", pointer=_place(tree), hint="raise max_depth (--max-depth)")
        if tree.data in _REFUSED:
            raise self.refused(tree, *_REFUSED[tree.data], keyword=tree.data)
        read: Callable[[Any, int], Expression] = getattr(self, f"_{tree.data}")
        return read(tree, depth + 1)

    def _expansions(self, tree: Any, depth: int) -> Expression:
        return alternatives([self.expression(each, depth) for each in tree.children])

    def _alias(self, tree: Any, depth: int) -> Expression:
        return self.expression(tree.children[0], depth)

    def _expansion(self, tree: Any, depth: int) -> Expression:
        return series([self.expression(each, depth) for each in tree.children])

    def _maybe(self, tree: Any, depth: int) -> Expression:
        return optional(self.expression(tree.children[0], depth))

    def _expr(self, tree: Any, depth: int) -> Expression:
        body = self.expression(tree.children[0], depth)
        signs = [each for each in tree.children[1:] if each is not None]
        if not signs:
            return body
        first, last = signs[0], signs[-1]
        if first.type == "OP":
            return repeat(body, *{"?": (0, 1), "*": (0, None), "+": (1, None)}[str(first)])
        low, high = int(first), int(last)
        if not 0 <= low <= high <= MAX_COUNT:
            raise SourceError(f"the count ~{low}..{high} is out of order", pointer=_place(first), keyword="~",
                              hint=f"write counts that rise and are below {MAX_COUNT:,}")
        return repeat(body, low, high)

    def _name(self, tree: Any, depth: int) -> Expression:
        name = str(tree.children[0])
        return self._read(Reference(name, _place(tree))) if _is_terminal(name) else Reference(name, _place(tree))

    def _literal(self, tree: Any, depth: int) -> Expression:
        token = tree.children[0]
        try:
            return self._read(_regexp(str(token)) if token.type == "REGEXP" else self._string(token))
        except CompileError as error:
            if error.pointer.startswith("line"):
                raise
            raise type(error)(error.message, pointer=f"{_place(token)}, {error.pointer}", keyword=error.keyword, hint=error.hint) from None

    def _literal_range(self, tree: Any, depth: int) -> Expression:
        low, high = (_unquoted(str(each)) for each in tree.children)
        if len(low) != 1 or len(high) != 1 or low > high or any(str(each).endswith("i") for each in tree.children):
            raise SourceError(f"{low!r}..{high!r} is not a range", pointer=_place(tree.children[0]), keyword="..",
                              hint='write two characters, the lower one first, such as "a".."z"')
        return self._read(Terminal(Characters(((ord(low), ord(high)),))))

    def _string(self, token: Any) -> Expression:
        text = _unquoted(str(token))
        if str(token).endswith("i"):
            return Terminal(parse(f"(?i:{re.escape(text)})", dialect="python"))
        return literal(text) if text else EMPTY

    def _read(self, terminal: Expression) -> Expression:
        """A terminal where it stands: in a rule, what is ignored may follow it."""
        return terminal if self.terminal else series([terminal, Reference(_IGNORED)])

    def refused(self, tree: Any, message: str, hint: str, keyword: str = "") -> UnsupportedError:
        """The error that says so."""
        return UnsupportedError(message, pointer=_place(tree), keyword=keyword, hint=hint)


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _place(value: Any) -> str:
    """Line and column of a token or a tree."""
    holder = value if getattr(value, "line", None) is not None else getattr(value, "meta", None)
    line, column = getattr(holder, "line", None), getattr(holder, "column", None)
    return f"line {line} column {column}" if line is not None else ""


def _without_ignored(expression: Expression) -> Expression:
    """``expression`` where nothing is ignored."""
    if expression == Reference(_IGNORED):
        return EMPTY
    return rebuilt(expression, _without_ignored)


def _unquoted(text: str) -> str:
    """The text of a string literal."""
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            point = int(code[1:], 16)
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise SourceError(f"U+{point:04X} is not a character that UTF-8 can spell", keyword=found[0], hint="leave it out")
            return chr(point)
        if code not in _SHORT:
            raise SourceError(f"{found[0]} is not an escape of a string", keyword=found[0], hint="write the backslash twice")
        return _SHORT[code]

    return _ESCAPE.sub(character, text[1:text.rindex('"')])


def _regexp(text: str) -> Expression:
    """The terminal of ``/pattern/flags``."""
    end = text.rindex("/")
    pattern, flags = text[1:end].replace("\\/", "/"), text[end + 1:]
    if "l" in flags:
        raise UnsupportedError("the locale flag depends on where it runs", keyword="l", hint="leave it out")
    tree = parse(f"(?{flags})({pattern}\n)" if "x" in flags else f"(?{flags}){pattern}" if flags else pattern, dialect="python")
    if _looks(tree):
        raise UnsupportedError("lookarounds, anchors and \\b look past the terminal, into what follows or goes before it", keyword="(?",
                               hint="say it in the rules, or write the characters that may stand there")
    return Terminal(tree)


def _looks(tree: Node) -> bool:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Look):
            return True
        if isinstance(node, Repetition):
            stack.append(node.body)
        elif isinstance(node, (Concatenation, Choice)):
            stack.extend(node.items if isinstance(node, Concatenation) else node.options)
    return False
