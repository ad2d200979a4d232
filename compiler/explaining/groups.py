"""What a drawing may put together: the states of one field, or of one rule or part.

In: an explanation. Out: ``field_groups``, for machines that are drawn state by state but for the values of their fields; and ``sketch``,
for machines that are too large for that: their parts in order, or their rules. Plain data, since whoever draws need not know the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stcc.compiler.explaining.fields import Field, Label, pointer
from stcc.compiler.explaining.reading import Context

if TYPE_CHECKING:
    from stcc.compiler.explaining.explanation import Explanation

MOST_BOXES = 150
"""Boxes of a sketch; what comes after is one box more, which says how many there are."""
_ABREAST = 5
Lines = tuple[str, ...]
Sketch = tuple[list[Lines], list[tuple[int, int, str]]]
"""Boxes, by lines, and arrows between them: numbers of two boxes, and ``e`` a step, ``c`` a call, or ``""`` for one box below another."""


def field_groups(explanation: Explanation) -> dict[int, Lines]:
    """State -> what to write on its box, for the states that belong to one field only, in which there is no other."""
    reading = explanation.reading
    labels: dict[int, set[Label]] = {}
    for context in reading.contexts:
        for edge in context.edges:
            if edge.length:
                labels.setdefault(context.nodes[edge.source].state, set()).add(explanation.label(edge.closed or edge.owner))
    known = {field.path: field for field in explanation.fields}
    around = {field.path[:-1] for field in explanation.fields if field.path}
    groups: dict[int, Lines] = {}
    for state, found in labels.items():
        path = next(iter(found))
        field = known.get(path)
        if len(found) == 1 and field is not None and path and path not in around and field.same_as is None:
            groups[state] = (field.name, field_words(field))
    return groups


def field_words(field: Field) -> str:
    """A field in a few words: ``string, any length``, ``string, 3 values``."""
    kinds = " or ".join(field.kinds)
    lengths = field.lengths
    if lengths.texts is not None and lengths.passes is not None:
        return f"{kinds}, {lengths.texts.number:,} texts"
    return f"{kinds}, at most {lengths.passes:,} passes" if lengths.passes is not None else f"{kinds}, any length"


def sketch(explanation: Explanation) -> Sketch:
    """The fields inside the output one after the other, if there are several; else its tools, or its rules and their calls."""
    if explanation.tools:
        boxes: list[Lines] = [(name, f"{len(tool.fields) - 1:,} arguments", f"{tool.artifact.machine.states:,} states alone")
                              for name, tool in explanation.tools.items()]
        return _abreast(("a reply", f"{explanation.artifact.machine.states:,} states"), boxes)
    outer = [field for field in explanation.fields if len(field.path) == 1]
    if len(outer) > 1:
        return _row(outer)
    return _rules(explanation.reading.contexts)


def _row(fields: list[Field]) -> Sketch:
    boxes: list[Lines] = [("the start",)]
    boxes += [(pointer(field.path), field_words(field), f"{field.states:,} states") for field in fields[:MOST_BOXES]]
    boxes += [(f"and {len(fields) - MOST_BOXES:,} more",)] if len(fields) > MOST_BOXES else []
    boxes.append(("the end",))
    return boxes, [(number, number + 1, "e") for number in range(len(boxes) - 1)]


def _abreast(first: Lines, others: list[Lines]) -> Sketch:
    """A box that leads to all others, a few of them beside each other."""
    boxes = [first, *others[:MOST_BOXES]] + ([(f"and {len(others) - MOST_BOXES:,} more",)] if len(others) > MOST_BOXES else [])
    arrows = [(0, number, "c") if number <= _ABREAST else (number - _ABREAST, number, "") for number in range(1, len(boxes))]
    return boxes, arrows


def _rules(contexts: list[Context]) -> Sketch:
    """The output, and the rules that are called in it, the largest first."""
    sizes: dict[int, int] = {}
    for context in contexts[1:]:
        states = {context.nodes[edge.source].state for edge in context.edges if edge.length}
        entered = context.nodes[0].state
        sizes[entered] = max(sizes.get(entered, 0), len(states))
    whole = len({contexts[0].nodes[edge.source].state for edge in contexts[0].edges if edge.length})
    boxes: list[Lines] = [(f"rule entered at state {entered}", f"{size:,} states")
                          for entered, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))]
    return _abreast(("the output", f"{whole:,} states of its own"), boxes)
