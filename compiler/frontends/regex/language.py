"""The language of a pattern as a minimal DFA over UTF-8: parser -> graph -> automaton -> fewest states -> bytes.

In: pattern text. Out: a ``Dfa`` with label 0 over the raw UTF-8 of strings of Unicode scalar values, trim and minimal, the same
on every run. Everything up to the last step is done on classes of code points, of which a pattern has few. Ordinary
patterns take about a millisecond; results are cached. Lookarounds, anchors and word boundaries are exact wherever they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.frontends.regex.automaton import Automata, Work
from stcc.compiler.frontends.regex.characters import CharacterSet, normalized
from stcc.compiler.frontends.regex.graph import build_program, partition
from stcc.compiler.frontends.regex.parser import parse
from stcc.compiler.frontends.regex.syntax import SOURCE, Characters, Choice, Concatenation, Look, Node, end_of_text, sequence, start_of_text
from stcc.compiler.options import Deadline
from stcc.compiler.utf8 import Int32, encode_least

MAX_LENGTH = 1 << 20
"""Most characters of a pattern: more could not be parsed within a compile's time."""
_THREADS_PER_STATE = 4  # determinisation may move this many threads for each state allowed; ordinary patterns need one or two
_NODES_PER_STATE = 2  # an optional character takes two nodes of the graph


def compile_pattern(pattern: str, *, dialect: str = "ecma", mode: str = "search", max_states: int = 200_000,
                    deadline: Deadline | None = None) -> Dfa:
    """The strings that ``pattern`` matches, as UTF-8.

    Args:
        pattern: the regular expression.
        dialect: ``ecma`` (ECMA-262, as JSON Schema has it) or ``python`` (the ``re`` module).
        mode: ``search`` (somewhere in the string) or ``fullmatch`` (the whole string), as in ``re``.
        max_states: most states, before and after minimisation.
        deadline: the compile's clock.

    Returns:
        A minimal trim DFA with label 0; equal calls give the same object.

    Raises:
        SourceError: not a pattern of that dialect.
        UnsupportedError: a construct that is not regular, such as a backreference.
        BudgetError: too many states or too much time; the offset is that of the largest repetition.

    >>> dfa = compile_pattern("^a{2,3}$")
    >>> [dfa.match(text) for text in (b"a", b"aa", b"aaaa")]
    [-1, 0, -1]
    """
    if mode not in ("search", "fullmatch"):
        raise SourceError(f"mode {mode!r} is not search or fullmatch", source=SOURCE)
    return _compiled(_Request(pattern, dialect, mode, max_states, deadline))


def codepoints(ranges: CharacterSet) -> Dfa:
    """One character out of inclusive ``ranges`` of code points, in any order."""
    return tree_language(Characters(normalized(ranges)), mode="fullmatch", max_states=200_000, deadline=None)


@dataclass(frozen=True)
class _Request:
    """What determines a result, and a clock, which does not."""

    pattern: str
    dialect: str
    mode: str
    max_states: int
    deadline: Deadline | None = field(compare=False)


@lru_cache(maxsize=1024)
def _compiled(request: _Request) -> Dfa:
    if len(request.pattern) > MAX_LENGTH:
        raise BudgetError(f"the pattern is longer than {MAX_LENGTH:,} characters", source=SOURCE, hint="give constants in an enum")
    tree = parse(request.pattern, dialect=request.dialect)
    return tree_language(tree, mode=request.mode, max_states=request.max_states, deadline=request.deadline)


def tree_language(tree: Node, *, mode: str, max_states: int, deadline: Deadline | None) -> Dfa:
    """The DFA of a syntax tree; see ``compile_pattern``."""
    prefix = suffix = mode == "search"
    if mode == "fullmatch":
        tree = sequence([start_of_text(0), tree, end_of_text(0)])
    tree, anchored = _without_edge(tree, at_start=True)
    prefix = prefix and not anchored
    tree, anchored = _without_edge(tree, at_start=False)
    suffix = suffix and not anchored
    program = build_program(tree, prefix=prefix, suffix=suffix, max_nodes=_NODES_PER_STATE * max_states)
    places, set_classes = partition(program.sets)
    classes = max(places.classes) + 1
    work = Work(_THREADS_PER_STATE * max_states, max_states, deadline, program.heaviest)
    table, accept = _explored(Automata(program, set_classes, classes, work), classes)
    try:
        return encode_least(table, accept, places, max_states=max_states)
    except BudgetError as error:
        raise BudgetError(error.message, source=SOURCE, pointer=f"offset {program.heaviest}", keyword="repetition",
                          hint=error.hint) from None


def _explored(automata: Automata, classes: int) -> tuple[Int32, Int32]:
    """All states of the main automaton: int32 ``[states, classes]`` and labels; state 0 is the start."""
    main = automata.main
    if automata.start < 0:
        return np.full((1, classes), -1, np.int32), np.full(1, -1, np.int32)
    rows: list[list[int]] = []
    while len(rows) < len(main.accepts):
        rows.append(main.row(len(rows)))
    return np.array(rows, np.int32).reshape(-1, classes), np.where(main.accepts, 0, -1).astype(np.int32)


def _without_edge(tree: Node, *, at_start: bool) -> tuple[Node, bool]:
    """The tree without the anchor that all its matches have at their start (end), and whether it had one.

    Only a shortcut: anchors are exact anyway, but without this the automaton would also run the unanchored search.
    """
    if isinstance(tree, Look):
        plain = start_of_text(tree.offset) if at_start else end_of_text(tree.offset)
        return (Concatenation(()), True) if tree == plain else (tree, False)
    if isinstance(tree, Choice) and tree.options:
        parts = [_without_edge(option, at_start=at_start) for option in tree.options]
        return (Choice(tuple(part for part, _ in parts)), True) if all(had for _, had in parts) else (tree, False)
    if isinstance(tree, Concatenation) and tree.items:
        edge, had = _without_edge(tree.items[0 if at_start else -1], at_start=at_start)
        if not had:
            return tree, False
        rest = tree.items[1:] if at_start else tree.items[:-1]
        return sequence([edge, *rest] if at_start else [*rest, edge]), True
    return tree, False
