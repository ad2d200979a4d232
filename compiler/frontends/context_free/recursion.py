"""How each rule of a grammar is compiled: as an automaton where it is used, or as a rule that is called.

In: checked bodies. Out: a ``Plan``. The strongly connected parts of the graph of references are looked at one by one (Nederhof, "Regular
approximation of CFLs", 2000, for the linear ones):

- *right*: every reference inside the part is the last thing read (``a: "x" a | "y"``): an automaton, references are jumps to a start;
- *left*: every one is the first (``e: e "+" t | t``): an automaton, references are jumps from an end;
- *loop*: a rule ``A: A g | b``, which is ``b g*`` (left recursion rewritten), or ``A: b g*``, where further references to A are the last
  thing of a b or a g: jumps to the start, since what follows, ``g*``, is what A ends with anyway (``A g* = b g* g* = A``);
- otherwise bracketed parts are cut out first (``brackets``), which become called rules; what is recursive still is called as a whole.

Cost: linear in the references, times the times a part is looked at (twice).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stcc.compiler.adjacency import components
from stcc.compiler.frontends.context_free.brackets import Brackets
from stcc.compiler.frontends.context_free.checks import nullable_names
from stcc.compiler.frontends.context_free.syntax import (
    Expression,
    Reference,
    Repeat,
    alternatives,
    edges,
    items_of,
    options_of,
    references,
    series,
)
from stcc.compiler.options import Deadline

RIGHT, LEFT, LOOP, CALLED = "right", "left", "loop", "called"


@dataclass(frozen=True)
class Plan:
    """What to do with each rule.

    Attributes:
        bodies: by name; bracketed parts have names too.
        order: names, each after those that it refers to without calling or jumping.
        ways: ``RIGHT``, ``LEFT``, ``LOOP`` or ``CALLED``, for the recursive rules; the others are written out where they are used.
        members: the rules that a linear rule is recursive with, itself included.
        loops: of a ``LOOP`` rule, and of a ``CALLED`` one with left recursion, its beginning and what may follow it any number of times.
    """

    bodies: Mapping[str, Expression]
    order: tuple[str, ...]
    ways: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]
    loops: Mapping[str, tuple[Expression, Expression]]


def plan(bodies: Mapping[str, Expression], deadline: Deadline) -> Plan:
    """Decide for every rule."""
    nullable = nullable_names(bodies, deadline)
    current = dict(bodies)
    parts: dict[str, Expression] = {}
    for group in _groups(bodies):
        deadline.check()
        inside = {name: bodies[name] for name in group}
        if not _is_recursive(inside) or _linear(inside) is not None or _loop_of(inside) is not None:
            continue
        brackets = Brackets(inside, nullable)
        current.update({name: brackets.extracted(name) for name in group})
        parts.update({name: part for part, name in brackets.parts.items()})
    return _decided(current, parts)


def _decided(bodies: dict[str, Expression], parts: dict[str, Expression]) -> Plan:
    """The plan once parts are cut out."""
    ways: dict[str, str] = dict.fromkeys(parts, CALLED)
    members: dict[str, tuple[str, ...]] = {}
    loops: dict[str, tuple[Expression, Expression]] = {}
    order: list[str] = []
    for group in _groups(bodies):
        order += group
        inside = {name: bodies[name] for name in group}
        if not _is_recursive(inside):
            continue
        way, loop = _linear(inside), _loop_of(inside)
        if way is None and loop is not None:
            way, loops[group[0]] = LOOP, loop
        members.update(dict.fromkeys(group, tuple(group)))
        ways.update(dict.fromkeys(group, way or CALLED))
        if way is None:
            loops.update({name: split for name in group if (split := _split(name, bodies[name])) is not None})
    return Plan({**bodies, **parts}, tuple(order), ways, members, loops)


def _groups(bodies: Mapping[str, Expression]) -> list[list[str]]:
    """The strongly connected parts, each after those that it refers to. (Bracketed parts are no names of ``bodies``.)"""
    names = list(bodies)
    place = {name: number for number, name in enumerate(names)}
    successors = [sorted({place[each.name] for each in references(bodies[name]) if each.name in place}) for name in names]
    return [[names[number] for number in part] for part in components(successors)]


def _is_recursive(inside: Mapping[str, Expression]) -> bool:
    return len(inside) > 1 or any(each.name in inside for body in inside.values() for each in references(body))


def _linear(inside: Mapping[str, Expression]) -> str | None:
    """``RIGHT`` or ``LEFT`` if all references among the rules are the last, or the first, thing of a rule."""
    found = [(head, tail) for body in inside.values() for each, head, tail in edges(body) if each.name in inside]
    if all(tail for _, tail in found):
        return RIGHT
    return LEFT if all(head for head, _ in found) else None


def _split(name: str, body: Expression) -> tuple[Expression, Expression] | None:
    """``b`` and ``g`` of a rule ``A: A g | b``, or ``A: b g*`` with an A at the end of g; None for others.

    (An option that is A alone adds nothing.)
    """
    begins, follows = [], []
    for option in options_of(body):
        items = items_of(option)
        if items and items[0] == Reference(name):
            follows.append(series(items[1:]))
        else:
            begins.append(option)
    if follows:
        return alternatives(begins), alternatives(follows)
    *first, last = items_of(body) or (body,)
    if isinstance(last, Repeat) and last.high is None and any(each.name == name and tail for each, _, tail in edges(last.body)):
        return series([*first, *[last.body] * last.low]), last.body
    return None


def _loop_of(inside: Mapping[str, Expression]) -> tuple[Expression, Expression] | None:
    """``b`` and ``g`` of a single rule whose other references to itself are all last in a ``b`` or ``g``."""
    if len(inside) > 1:
        return None
    [(name, body)] = inside.items()
    split = _split(name, body)
    if split is None or any(each.name == name and not tail for part in split for each, _, tail in edges(part)):
        return None
    return split
