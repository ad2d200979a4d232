"""OpenAPI text -> plain data: JSON as schemas are read, or YAML (``yaml_text``) with aliases and without merge keys.

In: bytes, text, or data. Out: maps with string keys, lists, strings, Booleans, None, ints, and Decimals where there are fractions.

>>> parse_yaml("responses: {200: &a [1, 0.5], 404: *a}", 9)
{'responses': {'200': [1, Decimal('0.5')], '404': [1, Decimal('0.5')]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.frontends.json_schema.document import check_depth, parse_schema
from stcc.compiler.frontends.yaml_text import Reading, read_yaml, utf8_text

MAX_BYTES = 16 << 20
"""Longest YAML text read; the largest public descriptions take some 10 MB."""
MAX_NODES = 2_000_000
"""Most values of a document, each alias counted as what it stands for."""


def read_document(source: Any, max_depth: int = 128) -> Mapping[str, Any]:
    """The document as plain data.

    Raises:
        SourceError: neither JSON nor YAML, or not a map.
        BudgetError: larger or deeper than the limits.
    """
    if isinstance(source, (str, bytes)):
        return _read_text(source, max_depth)
    if not isinstance(source, Mapping):
        raise SourceError(f"an OpenAPI document is a map or its text, not {type(source).__name__}")
    found: Mapping[str, Any] = parse_schema(source, max_depth)
    return found


@lru_cache(maxsize=4)
def _read_text(source: str | bytes, max_depth: int) -> Mapping[str, Any]:
    """A build reads one document once an operation: the last few are kept. Nobody changes the value."""
    text = utf8_text(source, "document") if isinstance(source, bytes) else source
    value = parse_schema(text, max_depth) if text.lstrip().startswith("{") else parse_yaml(text, 3 * max_depth)
    if not isinstance(value, dict):
        raise SourceError("an OpenAPI document is a map", pointer="#", hint="it begins with openapi: 3.1.0")
    return value


def parse_yaml(text: str, levels: int) -> Any:
    """The data of one YAML document nested at most ``levels`` deep; raises as ``read_document``."""
    if len(text) > MAX_BYTES:
        raise BudgetError(f"the document is larger than {MAX_BYTES >> 20} MiB", hint="split it")
    reading = Reading(decimal=Decimal, digits=40, levels=levels, aliases=True, most_nodes=MAX_NODES, syntax="correct its syntax",
                      flatten="flatten it, or raise max_depth", split="give each a file")
    root = read_yaml(text, reading)
    check_depth(root, levels)
    return root
