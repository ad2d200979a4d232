"""The syntax tree of a pattern, common to both dialects.

In: nothing; out: immutable node types and the constructors that keep trees small. Dialects, flags and escapes are gone by the
time a tree exists: a node is a set of characters, a sequence, a choice, a repetition or a lookaround. Anchors and word
boundaries are lookarounds too (``^`` is "no character behind"), so nothing downstream has cases for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsupportedError
from stcc.compiler.frontends.regex.characters import ANY, CharacterSet, complement, union

SOURCE = "<pattern>"


@dataclass(frozen=True)
class Characters:
    """One character out of a set of code points."""

    ranges: CharacterSet


@dataclass(frozen=True)
class Concatenation:
    """Its items one after the other; the empty sequence reads nothing."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """Any one of its options; no option at all matches nothing."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    """``body`` between ``low`` and ``high`` times (``None``: no upper bound); ``offset`` is where the body starts."""

    body: Node
    low: int
    high: int | None
    offset: int


@dataclass(frozen=True)
class Look:
    """A lookaround: true where ``body`` can (``negated``: cannot) be read from here, or up to here if ``behind``."""

    body: Node
    behind: bool
    negated: bool
    offset: int


Node: TypeAlias = Characters | Concatenation | Choice | Repetition | Look

EMPTY = Concatenation(())
ANYTHING = Characters(ANY)


def sequence(items: Sequence[Node]) -> Node:
    """Concatenation, flattened."""
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Concatenation) else (item,))
    return flat[0] if len(flat) == 1 else Concatenation(tuple(flat))


def choice(options: Sequence[Node]) -> Node:
    """Alternation, flattened; options that are single characters become one set."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Choice) else (option,))
    sets = [option.ranges for option in flat if isinstance(option, Characters)]
    if len(sets) > 1:
        rest: list[Node] = [option for option in flat if not isinstance(option, Characters)]
        flat = [Characters(union(*sets)), *rest]
    flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))


def start_of_text(offset: int) -> Look:
    """True only before the first character."""
    return Look(ANYTHING, behind=True, negated=True, offset=offset)


def end_of_text(offset: int) -> Look:
    """True only after the last character."""
    return Look(ANYTHING, behind=False, negated=True, offset=offset)


def final_newline(offset: int) -> Node:
    """Python's ``$``: the end, or a newline that is the last character."""
    newline = Repetition(Characters(((10, 10),)), 0, 1, offset)
    return Look(sequence([newline, end_of_text(offset)]), behind=False, negated=False, offset=offset)


def not_empty(offset: int) -> Node:
    """True in any text of at least one character."""
    return choice([Look(ANYTHING, behind=behind, negated=False, offset=offset) for behind in (False, True)])


def line_start(breaks: CharacterSet, offset: int) -> Node:
    """Multi-line ``^``."""
    return choice([start_of_text(offset), Look(Characters(breaks), behind=True, negated=False, offset=offset)])


def line_end(breaks: CharacterSet, offset: int) -> Node:
    """Multi-line ``$``."""
    return choice([end_of_text(offset), Look(Characters(breaks), behind=False, negated=False, offset=offset)])


def word_boundary(word: CharacterSet, negated: bool, offset: int) -> Node:
    """``\\b``, or ``\\B`` if ``negated``: one side of this place is a word character and the other is not (both or neither)."""
    sides = Characters(word)
    return choice([
        sequence([Look(sides, True, before, offset), Look(sides, False, before == negated, offset)])
        for before in (False, True)
    ])


def width(node: Node) -> tuple[int, int | None]:
    """Fewest and most characters that ``node`` reads; the most is ``None`` if unbounded."""
    if isinstance(node, Characters):
        return 1, 1
    if isinstance(node, Look):
        return 0, 0
    if isinstance(node, Repetition):
        low, high = width(node.body)
        return low * node.low, 0 if high == 0 else None if high is None or node.high is None else high * node.high
    parts = [width(part) for part in (node.items if isinstance(node, Concatenation) else node.options)]
    lows, highs = [low for low, _ in parts], [high for _, high in parts]
    bounded = [high for high in highs if high is not None]
    if isinstance(node, Concatenation):
        return sum(lows), sum(bounded) if len(bounded) == len(highs) else None
    return min(lows, default=0), max(bounded, default=0) if len(bounded) == len(highs) else None


def one_behind(node: Node) -> tuple[CharacterSet, bool] | None:
    """A lookbehind body that only asks about the previous character: the set it allows, and whether the text's start satisfies it.

    ``None`` where the body reads more than one character, or looks ahead.
    """
    if isinstance(node, Characters):
        return node.ranges, False
    if isinstance(node, Choice):
        parts = [one_behind(option) for option in node.options]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return union(*(part[0] for part in known)), any(part[1] for part in known)
    if isinstance(node, Look) and node.behind:
        inner = one_behind(node.body)
        if inner is None:
            return None
        return (complement(inner[0]), not inner[1]) if node.negated else inner
    return None


def source_error(message: str, offset: int, keyword: str, hint: str = "") -> CompileError:
    """The pattern is not valid in its dialect; ``offset`` counts characters of the pattern."""
    return SourceError(message, source=SOURCE, pointer=f"offset {offset}", keyword=keyword, hint=hint)


def unsupported(message: str, offset: int, keyword: str, hint: str) -> CompileError:
    """The construct is valid but does not describe a regular language, or is not known here."""
    return UnsupportedError(message, source=SOURCE, pointer=f"offset {offset}", keyword=keyword, hint=hint)


def over_budget(message: str, offset: int, keyword: str, hint: str) -> CompileError:
    """The pattern needs more states than the options allow."""
    return BudgetError(message, source=SOURCE, pointer=f"offset {offset}", keyword=keyword, hint=hint)
