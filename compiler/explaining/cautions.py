"""What to know before a grammar is served: places where a decoder may be held up, and constraints that say less or more than they seem to.

In: a reading with its fields, and the metadata of an artifact. Out: ``Caution`` records, each with its place and a way out. All of this
is seen in the machine, so that a ``.stc`` tells it; what needs the source is in ``overlaps``. Cost: linear in the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stcc.compiler.explaining.fields import Field, Fields, Label, pointer
from stcc.formats.artifact import Metadata

Place = tuple[int, int]
_BETWEEN = ("value", "after", "first key", "next key", "colon", "first item")
_KEPT_ORDER = "members come in the declared order"


@dataclass(frozen=True)
class Caution:
    """One of them.

    Attributes:
        code: ``unbounded-whitespace``, ``unbounded-text``, ``overlapping-patterns``, ``overlapping-alternatives``, ``declared-order``,
            ``unenforced`` or ``compiler``.
        place: JSON pointer into the source (``#...``), or the field's path where the source is not at hand.
        keyword: the keyword, if there is one.
        message: what is so.
        hint: the way out.
    """

    code: str
    place: str
    keyword: str
    message: str
    hint: str


def recorded_cautions(metadata: Metadata) -> list[Caution]:
    """What the compiler has put down in the artifact."""
    found = [Caution("unenforced", note.get("pointer", ""), note.get("keyword", ""), f"not enforced: {note.get('message', '')}",
                     "take the keyword out, or validate outputs against it afterwards") for note in metadata.unenforced]
    for note in metadata.warnings:
        ordered = note.get("message", "").startswith(_KEPT_ORDER)
        hint = ("list the properties in the order in which they are to be written, or compile with --property-order declared" if ordered
                else "name a format that stcc knows, or give a pattern" if note.get("keyword") == "format"
                else "see what docs/json-schema.md says of this keyword")
        found.append(Caution("declared-order" if ordered else "compiler", note.get("pointer", ""), note.get("keyword", ""),
                             note.get("message", ""), hint))
    return found


def whitespace_cautions(fields: Fields) -> list[Caution]:
    """White space between values that may go on for ever."""
    places = 0
    for context in fields.reading.contexts:
        for edge in context.edges:
            spaces = any(fields.reading.pairs[pair][1] == " " for pair in edge.kinds)
            places += spaces and edge.source == edge.target and context.nodes[edge.source].mode in _BETWEEN
    if not places:
        return []
    return [Caution("unbounded-whitespace", "#", "", f"white space of any length may stand at {places:,} places; a model that repeats it "
                    "writes nothing else up to its token limit", "compile with --whitespace compact or spaced, or decode with a budget")]


def text_cautions(fields: Fields, records: list[Field], place: Callable[[Field], str]) -> list[Caution]:
    """Text of any length before another field: with a token limit, what comes after has to do with what is left."""
    following = _following(fields)
    found = []
    for field in records:
        if not field.loose or not {"string", "text"} & set(field.kinds):
            continue
        after = next((label for label in _next_labels(fields, field.path, following)
                      if label != field.path[:len(label)] and field.path != label[:len(field.path)]), None)
        if after is not None:
            word = "text" if "text" in field.kinds else "a string"
            hint = ("bound its repetition, as in [a-z]{0,40}" if "text" in field.kinds
                    else "give it maxLength, or put it behind the others")
            found.append(Caution("unbounded-text", place(field), "" if word == "text" else "maxLength",
                                 f"{word} of any length comes before {pointer(after)}: under a token limit, what follows gets no more than "
                                 "its least", f"{hint}"))
    return found


def _next_labels(fields: Fields, label: Label, following: dict[Place, list[Label]]) -> Iterator[Label]:
    for context, edge in fields.owned.get(label, ()):
        yield from following.get((context.number, edge.target), ())


def _following(fields: Fields, most: int = 4) -> dict[Place, list[Label]]:
    """By context and node, the fields that begin soonest from there, up to ``most``; a rule that has ended goes on in all its callers."""
    into: dict[Place, list[Place]] = {}
    waiting: list[tuple[Place, Label]] = []
    for context in fields.reading.contexts:
        for edge in context.edges:
            here, there = (context.number, edge.source), (context.number, edge.target)
            into.setdefault(there, []).append(here)
            for callee, end in edge.calls:
                into.setdefault((callee.number, 0), []).append(here)
                into[there].append((callee.number, end))
            if edge.begins:
                waiting.append((here, fields.label(edge.owner)))
    known: dict[Place, list[Label]] = {}
    for place, label in waiting:  # grows while it is read, nearest first
        found = known.setdefault(place, [])
        if label not in found and len(found) < most:
            found.append(label)
            waiting += [(before, label) for before in into.get(place, ())]
    return known


def schema_objects(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Pointer and value of every object in a schema document that may be a subschema: constants are left out."""
    stack: list[tuple[str, Any]] = [("#", document)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, Mapping):
            yield place, value
            stack += [(f"{place}/{name.replace('~', '~0').replace('/', '~1')}", inner) for name, inner in value.items()
                      if name not in ("const", "enum", "default", "examples")][::-1]
        elif isinstance(value, list):
            stack += [(f"{place}/{number}", inner) for number, inner in enumerate(value)][::-1]
