"""Random context-free grammars as plain data, printed in two notations, and a naive recogniser to judge by.

An expression is ``("char", c)``, ``("ref", n)``, ``("seq", [..])``, ``("alt", [..])``, ``("rep", e, low, high)``; a grammar is a list of
expressions, the first of them the start. The recogniser finds, for one text, which spans each rule derives, by iterating to a fixpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from stcc.compiler.stepping import initial, may_end, step

Spans = set[tuple[int, int]]


def spans(expression: Any, text: str, known: list[Spans]) -> Spans:
    kind, *rest = expression
    size = len(text)
    if kind == "char":
        return {(i, i + 1) for i in range(size) if text[i] == rest[0]}
    if kind == "ref":
        return known[rest[0]]
    if kind == "alt":
        return set().union(*(spans(each, text, known) for each in rest[0]))
    found: Spans = {(i, i) for i in range(size + 1)}
    if kind == "seq":
        for each in rest[0]:
            found = joined(found, spans(each, text, known))
        return found
    body, low, high = spans(rest[0], text, known), rest[1], rest[2]
    for _ in range(low):
        found = joined(found, body)
    reached, layer = set(found), found
    for _ in range(high - low if high is not None else size + 1):
        layer = joined(layer, body)
        reached |= layer
    return reached


def joined(one: Spans, other: Spans) -> Spans:
    return {(i, k) for i, j in one for start, k in other if start == j}


def derives(grammar: list[Any], text: str) -> bool:
    known: list[Spans] = [set() for _ in grammar]
    while True:
        fresh = [spans(body, text, known) for body in grammar]
        if fresh == known:
            return (0, len(text)) in known[0]
        known = fresh


def accepted(machine: Any, alphabet: str, longest: int) -> set[str]:
    """The texts over ``alphabet`` that a machine accepts."""
    found, layer = set(), [("", initial(machine))]
    for _ in range(longest + 1):
        found |= {text for text, configuration in layer if may_end(machine, configuration)}
        steps = ((text + c, step(machine, configuration, ord(c))) for text, configuration in layer for c in alphabet)
        layer = [(text, configuration) for text, configuration in steps if configuration is not None]
    return {text for text in found if len(text) <= longest}


def texts(alphabet: str, longest: int) -> Iterator[str]:
    for size in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=size))


# --- strategies ---

def expressions(alphabet: str, rules: int) -> st.SearchStrategy[Any]:
    chars = st.sampled_from(alphabet).map(lambda c: ("char", c))
    leaves = chars | st.integers(0, rules - 1).map(lambda n: ("ref", n))
    brackets = st.builds(lambda inner: ("seq", [("char", "("), inner, ("char", ")")]), leaves)
    counts = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 2)])
    return st.recursive(leaves | brackets, lambda inner: st.one_of(
        st.lists(inner, min_size=0, max_size=3).map(lambda items: ("seq", items)),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: ("alt", options)),
        inner.map(lambda body: ("seq", [("char", "("), body, ("char", ")")])),
        st.builds(lambda body, count: ("rep", body, *count), inner, counts),
    ), max_leaves=6)


def grammars(alphabet: str, rules: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(expressions(alphabet, rules), min_size=rules, max_size=rules)


# --- notations ---

NAMES = ["root", "one", "two", "three"]


def gbnf(expression: Any) -> str:
    kind, *rest = expression
    if kind == "char":
        return f'"{rest[0]}"'
    if kind == "ref":
        return NAMES[rest[0]]
    if kind in ("seq", "alt"):
        return f"({(' | ' if kind == 'alt' else ' ').join(map(gbnf, rest[0]))})"
    return f"({gbnf(rest[0])}){{{rest[1]},{'' if rest[2] is None else rest[2]}}}"


def gbnf_text(grammar: list[Any]) -> str:
    return "".join(f"{NAMES[number]} ::= {gbnf(body)}\n" for number, body in enumerate(grammar))


def lark(expression: Any) -> str:
    kind, *rest = expression
    if kind == "rep":
        sign = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((rest[1], rest[2]), f"~{rest[1]}..{rest[2]}")
        return f"({lark(rest[0])}){sign}"
    if kind in ("seq", "alt"):
        return f"({(' | ' if kind == 'alt' else ' ').join(map(lark, rest[0]))})"
    return gbnf(expression)


def lark_text(grammar: list[Any], more: str = "") -> str:
    return "".join(f"{NAMES[number]}: {lark(body)}\n" for number, body in enumerate(grammar)) + more
