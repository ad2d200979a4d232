"""Texts whose arrays must have different items (``uniqueItems``), a condition that machines mark and do not decide.

In: a machine and a text. Out: whether the text is in the language that the machine and its marks stand for; and, for an array that one
machine marks and another does not, a text with equal items. Items are equal as JSON Schema says: 1 and 1.0 are, the order of members and
the spelling of strings do not matter, true is not 1.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

from stcc.compiler.comparison.configurations import ways_on
from stcc.compiler.comparison.product import OPENING
from stcc.compiler.stepping import Configuration, initial, may_end, step
from stcc.compiler.stepping import run as run_machine
from stcc.formats.machine import Machine

_DECODER = json.JSONDecoder(parse_int=Decimal, parse_float=Decimal)
_MOST_ITEMS = 24
"""Items that are tried twice in one array."""
_REACH = 4000
"""Configurations searched for an item, and for the rest of a text."""


def in_language(machine: Machine, text: bytes) -> bool:
    """Whether ``text`` is accepted, and every marked array in it has different items."""
    marked = frozenset(machine.unique.tolist())
    there: Configuration | None = initial(machine)
    begins = []
    for place, byte in enumerate(text):
        assert there is not None
        there = step(machine, there, byte)
        if there is None:
            return False
        if byte == OPENING and there.state in marked:
            begins.append(place)
    return there is not None and may_end(machine, there) and all(_differ(text, place) for place in begins)


def _differ(text: bytes, place: int) -> bool:
    """Whether the items of the array that begins at ``place`` differ pairwise."""
    items, _ = _DECODER.raw_decode(text[place:].decode("utf-8"))
    keys = [_key(item) for item in items]
    return len(set(keys)) == len(keys)


def _key(value: Any) -> Hashable:
    """Equal for equal JSON values, and only for those."""
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", *map(_key, value))
    return (type(value).__name__, value)


def text_with_equal_items(plain: Machine, marking: Machine, before: bytes) -> bytes | None:
    """A text that ``plain`` takes and ``marking`` does not, for equal items in the array whose ``[`` ends ``before``.

    None if none is found among the shortest items and ends.
    """
    there = run_machine(plain, before)
    if there is None:
        return None
    for item in islice(_items(plain, there), _MOST_ITEMS):
        twice = before + item + b"," + item
        middle = run_machine(plain, twice)
        if middle is None:
            continue
        for end, last in ways_on(plain, middle, _REACH):
            if may_end(plain, last) and in_language(plain, twice + end) and not in_language(marking, twice + end):
                return twice + end
    return None


def _items(machine: Machine, there: Configuration) -> Iterator[bytes]:
    """JSON values that may stand first in an array and be followed by another, shortest first."""
    for text, after in ways_on(machine, there, _REACH):
        if text and step(machine, after, ord(",")) is not None:
            try:
                json.loads(text)
            except ValueError:
                continue
            yield text.strip()
