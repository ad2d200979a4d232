"""The names of members: which keys lead to a value.

In: a reading. Out: for the path of each member the names that lead there, in order; empty where there
are more than ``MOST_NAMES``, or infinitely many, as behind ``additionalProperties``. Method: the words are spelled backwards from the
quote, and given up once any place in the keys has too many ways on: every place is reached, so that there are as many names.
Cost: linear in the text of the keys that lead to each landing.
"""

from __future__ import annotations

import json

from stcc.compiler.explaining.json_modes import COLON, IN_KEY
from stcc.compiler.explaining.reading import Context, Edge, Path, Reading, path_of

MOST_NAMES = 8
"""Most names that are told apart behind one landing; more are one field, called ``*``."""


def member_names(reading: Reading) -> dict[Path, tuple[str, ...]]:
    """Path -> names of its last part."""
    found: dict[Path, set[bytes] | None] = {}
    inside = _entered_inside_keys(reading)
    for context in reading.contexts:
        into: dict[int, list[Edge]] = {}
        for edge in context.edges:
            if context.nodes[edge.source].mode in IN_KEY:
                into.setdefault(edge.target, []).append(edge)
        starts = {edge.target for edge in context.edges if context.nodes[edge.source].mode not in IN_KEY}
        starts |= set() if context.number in inside else {0}
        for number, node in enumerate(context.nodes):
            if node.mode == COLON and number in into and node.containers and node.containers[-1].inner is not None:
                landing = path_of(context, node.containers)
                words = _words(reading, context, into, starts, number)
                before = found.get(landing, set())
                found[landing] = None if words is None or before is None else before | words
    return {landing: _decoded(words) for landing, words in found.items()}


def _entered_inside_keys(reading: Reading) -> set[int]:
    """Contexts that may be entered behind the first byte of a key, or come back to; others that begin in a key begin with it."""
    found = set()
    for context in reading.contexts:
        for edge in context.edges:
            within = context.nodes[edge.source].mode in IN_KEY
            found |= {callee.number for place, (callee, _) in enumerate(edge.calls) if within or place}
    return found


def _words(reading: Reading, context: Context, into: dict[int, list[Edge]], starts: set[int], landing: int) -> set[bytes] | None:
    """The texts between the quotes of keys that end at ``landing``; None for too many, or where a key begins in another context."""
    suffixes: dict[int, set[bytes]] = {}
    found: set[bytes] = set()
    waiting = [(edge, b"") for edge in into[landing] if context.nodes[edge.target].mode == COLON]
    for edge, suffix in waiting:  # grows while it is read
        node, known = edge.source, suffixes.setdefault(edge.source, set())
        if suffix in known:
            continue
        known.add(suffix)
        if edge.calls or len(known) > MOST_NAMES or (node == 0 and 0 not in starts):
            return None
        if node in starts:
            found.add(suffix)
        for other in into.get(node, ()):
            if other.calls or other.count + len(known) > MOST_NAMES + 1:
                return None
            waiting += [(other, bytes([byte]) + suffix) for pair in other.kinds for byte in reading.pairs[pair][2]]
    return found if len(found) <= MOST_NAMES else None


def _decoded(words: set[bytes] | None) -> tuple[str, ...]:
    if words is None:
        return ()
    names = []
    for word in sorted(words):
        try:
            names.append(str(json.loads(b'"' + word + b'"')))
        except ValueError:  # half a surrogate pair, say
            return ()
    return tuple(names)
