"""Patterns that match the same text: names that two ``patternProperties`` or a property and a pattern both claim, alternatives of a regex.

In: a schema document, or a pattern. Out: ``Caution`` records with a shortest text that both match. Nothing is wrong with an overlap: the
compiler asks both of such a member, and reads such alternatives once. It is often not what the author meant. Cost: a product of two
automata for each pair, ``MOST_PAIRS`` at most, each within ``MOST_STATES``; what is larger is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from stcc.compiler.algebra import intersect, shortest
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import CompileError
from stcc.compiler.explaining.cautions import Caution, schema_objects
from stcc.compiler.frontends.regex.language import compile_pattern, tree_language
from stcc.compiler.frontends.regex.parser import parse
from stcc.compiler.frontends.regex.syntax import Choice, Concatenation, Look, Node, Repetition
from stcc.compiler.options import Deadline

MOST_PAIRS = 2_000
MOST_STATES = 5_000
SECONDS = 5.0
"""After so long no more pairs are tried."""


def name_overlaps(document: Any) -> list[Caution]:
    """Names that several of an object's patterns match, or a pattern and a property."""
    found: list[Caution] = []
    deadline = Deadline(SECONDS)
    for place, schema in schema_objects(document):
        patterns = schema.get("patternProperties")
        if not isinstance(patterns, Mapping):
            continue
        compiled = {pattern: dfa for pattern in patterns if (dfa := _search(pattern, deadline)) is not None}
        for number, (one, other) in enumerate(combinations(compiled, 2)):
            if number >= MOST_PAIRS or deadline.passed:
                break
            example = _common(compiled[one], compiled[other], deadline)
            if example is not None:
                found.append(Caution("overlapping-patterns", f"{place}/patternProperties", "patternProperties",
                                     f"{one} and {other} both match {example!r}: such a member has to satisfy both",
                                     "anchor the patterns with ^ and $ so that no name matches two"))
        named = schema.get("properties")
        for name in named if isinstance(named, Mapping) else ():
            matching = [pattern for pattern, dfa in compiled.items() if dfa.match(name.encode("utf-8", "surrogatepass")) >= 0]
            found += [Caution("overlapping-patterns", f"{place}/patternProperties", "patternProperties",
                              f"{pattern} matches the property {name!r}: it has to satisfy both",
                              "anchor the pattern with ^ and $ so that it matches no property") for pattern in matching]
    return found


def alternative_overlaps(pattern: str, dialect: str, place: str = "#") -> list[Caution]:
    """Alternatives of a regular expression that match the same text."""
    found: list[Caution] = []
    deadline = Deadline(SECONDS)
    try:
        choices = list(_choices(parse(pattern, dialect=dialect)))
    except CompileError:
        return []
    tried = 0
    for choice in choices:
        languages = [_language(option, deadline) for option in choice.options]
        for (one, left), (other, right) in combinations(enumerate(languages, 1), 2):
            tried += 1
            if left is None or right is None or tried > MOST_PAIRS or deadline.passed:
                continue
            example = _common(left, right, deadline)
            if example is not None:
                found.append(Caution("overlapping-alternatives", place, "",
                                     f"alternatives {one} and {other} of {len(languages)} both match {example!r}",
                                     "take the text out of one of them"))
    return found


def _choices(tree: Node) -> Iterator[Choice]:
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Choice):
            yield node
            stack += node.options[::-1]
        elif isinstance(node, Concatenation):
            stack += node.items[::-1]
        elif isinstance(node, Repetition):
            stack.append(node.body)


def _language(tree: Node, deadline: Deadline) -> Dfa | None:
    """What an alternative matches; None for one that looks around, or is too large."""
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Look):
            return None
        stack += node.options if isinstance(node, Choice) else node.items if isinstance(node, Concatenation) else ()
        stack += [node.body] if isinstance(node, Repetition) else []
    try:
        return tree_language(tree, mode="fullmatch", max_states=MOST_STATES, deadline=deadline)
    except CompileError:
        return None


def _search(pattern: str, deadline: Deadline) -> Dfa | None:
    try:
        return compile_pattern(pattern, dialect="ecma", mode="search", max_states=MOST_STATES, deadline=deadline)
    except CompileError:
        return None


def _common(one: Dfa, other: Dfa, deadline: Deadline) -> str | None:
    """A shortest text of both."""
    try:
        text = shortest(intersect(one, other, max_states=MOST_STATES, deadline=deadline))
    except CompileError:
        return None
    return None if text is None else text.decode("utf-8", "backslashreplace")
