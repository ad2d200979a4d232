"""What has to hold of a grammar before it is compiled: names are defined, rules derive something, and what is of no use is told.

In: a ``ContextFree`` grammar. Out: the same without what cannot be used, and warnings. Afterwards every name is defined, every rule is
reached from the start and derives some text, and literal rules are written out where they are used. Cost: linear in rules, times the
references in a rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from stcc.compiler.errors import SourceError, UnsatisfiableError
from stcc.compiler.frontends.context_free.syntax import (
    NOTHING,
    ContextFree,
    Expression,
    Reference,
    is_character,
    is_nullable,
    items_of,
    rebuilt,
    references,
)
from stcc.compiler.options import Deadline

Warnings = list[dict[str, str]]
_LONGEST_LITERAL = 64


def checked(grammar: ContextFree, deadline: Deadline) -> tuple[dict[str, Expression], Warnings]:
    """Bodies of the rules that matter, and warnings ``{pointer, keyword, message}``.

    Raises:
        SourceError: a name is not defined.
        UnsatisfiableError: the start derives nothing.
    """
    _refuse_undefined(grammar)
    warnings: Warnings = []
    reached = _reached(grammar.rules, grammar.start)
    for name in grammar.rules:
        if name not in reached and name not in grammar.silent:
            warnings.append(_note(grammar, name, f"the start rule {grammar.start} does not lead to this rule"))
    deriving = _least({name: grammar.rules[name] for name in grammar.rules if name in reached}, _derives, deadline)
    if grammar.start not in deriving:
        raise UnsatisfiableError("no text can be derived: every way leads round to a rule that never ends", keyword=grammar.start,
                                 pointer=grammar.places.get(grammar.start, ""), hint="give the rules that lead round an option that ends")
    for name in grammar.rules:
        if name in reached and name not in deriving:
            warnings.append(_note(grammar, name, "this rule derives no text, so that options with it are left out"))
    bodies = {name: _pruned(grammar.rules[name], deriving) for name in grammar.rules if name in deriving}
    literals = {name: body for name, body in bodies.items() if _is_literal(body)}
    bodies = {name: _written_out(body, literals) for name, body in bodies.items()}
    kept = _reached(bodies, grammar.start)
    return {name: body for name, body in bodies.items() if name in kept}, warnings


def nullable_names(bodies: Mapping[str, Expression], deadline: Deadline) -> frozenset[str]:
    """The rules that derive the empty text."""
    return frozenset(_least(bodies, is_nullable, deadline))


def _least(bodies: Mapping[str, Expression], holds: Callable[[Expression, set[str]], bool], deadline: Deadline) -> set[str]:
    """The least set of rules whose bodies ``holds`` says to be in, given the set; a body is asked again when one that it uses is found."""
    users: dict[str, list[str]] = {}
    for name, body in bodies.items():
        for used in {reference.name for reference in references(body)}:
            users.setdefault(used, []).append(name)
    found: set[str] = set()
    queue = list(bodies)
    while queue:
        name = queue.pop()
        deadline.check()
        if name in bodies and name not in found and holds(bodies[name], found):
            found.add(name)
            queue += users.get(name, ())
    return found


def _refuse_undefined(grammar: ContextFree) -> None:
    if grammar.start not in grammar.rules:
        near = difflib.get_close_matches(grammar.start, grammar.rules, 1)
        raise SourceError(f"there is no rule {grammar.start}, from which the text derives", keyword=grammar.start,
                          hint=f"did you mean {near[0]}?" if near else "define it")
    for name, body in grammar.rules.items():
        for reference in references(body):
            if reference.name not in grammar.rules:
                near = difflib.get_close_matches(reference.name, grammar.rules, 1)
                raise SourceError(f"rule {name} uses {reference.name}, which is not defined", pointer=reference.place,
                                  keyword=reference.name, hint=f"did you mean {near[0]}?" if near else "define it")


def _note(grammar: ContextFree, name: str, message: str) -> dict[str, str]:
    return {"pointer": grammar.places.get(name, ""), "keyword": name, "message": message}


def _reached(bodies: Mapping[str, Expression], start: str) -> set[str]:
    found, stack = {start}, [start]
    while stack:
        for reference in references(bodies[stack.pop()]):
            if reference.name not in found:
                found.add(reference.name)
                stack.append(reference.name)
    return found


def _pruned(expression: Expression, deriving: set[str]) -> Expression:
    """``expression`` without what derives nothing."""
    if isinstance(expression, Reference):
        return expression if expression.name in deriving else NOTHING
    return rebuilt(expression, lambda each: _pruned(each, deriving))


def _derives(expression: Expression, deriving: set[str]) -> bool:
    return _pruned(expression, deriving) != NOTHING


def _is_literal(body: Expression) -> bool:
    items = items_of(body)
    return 0 < len(items) <= _LONGEST_LITERAL and all(is_character(item) for item in items)


def _written_out(expression: Expression, literals: dict[str, Expression]) -> Expression:
    """``expression`` with literal rules in place of their names."""
    if isinstance(expression, Reference):
        return literals.get(expression.name, expression)
    return rebuilt(expression, lambda each: _written_out(each, literals))
