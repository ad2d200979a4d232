"""YAML text -> plain data, for policy files.

In: the bytes of a ``.policy.yaml``. Out: maps, lists, strings, Booleans, None, whole numbers, and exact fractions where YAML has
decimals (``yaml_text``). ``yes``, ``no``, ``on`` and ``off`` are words, since they are what people call actions.

What hides size or meaning is refused: anchors and aliases, tags, several documents, a key used twice, keys that are not words.

>>> parse_document(b"a: [yes, 1, 0.25, {b: true}]")
{'a': ['yes', 1, Fraction(1, 4), {'b': True}]}
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.yaml_text import Reading, read_yaml, utf8_text

MAX_BYTES = 1 << 20


def parse_document(data: bytes, max_depth: int = 128) -> Any:
    """The data of one YAML document.

    Raises:
        SourceError: not UTF-8, not YAML, too large or deep, or one of the things refused above; with line and column.
    """
    if len(data) > MAX_BYTES:
        raise SourceError(f"the policy is larger than {MAX_BYTES >> 10} KiB", hint="split it into several policies")
    reading = Reading(decimal=Fraction, digits=30, levels=max_depth, aliases=False, most_nodes=None, syntax="give one YAML map",
                      flatten="flatten it", split="give one policy a file")
    return read_yaml(utf8_text(data, "policy"), reading)
