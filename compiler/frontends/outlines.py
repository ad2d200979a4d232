"""The ``outlines`` dialect: the regular language that outlines-core gives a schema.

Its users get the language they have now; the tests use it as an oracle. It ignores what outlines-core ignores.
"""

from __future__ import annotations

import json
from typing import Any

from stcc.compiler.errors import SourceError, UnsupportedError


def outlines_pattern(schema: Any) -> str:
    """The regular expression (Python syntax, full match) that outlines-core builds for plain schema data.

    Raises UnsupportedError with outlines-core's own words where it refuses the schema.
    """
    try:
        from outlines_core.json_schema import build_regex_from_schema
    except ImportError:
        raise SourceError("the outlines dialect needs outlines-core", hint="pip install 'stcc[compiler]'") from None
    try:
        return str(build_regex_from_schema(json.dumps(schema, default=float)))
    except Exception as error:  # outlines-core raises several kinds
        raise UnsupportedError(f"outlines-core refuses it: {error}", keyword="dialect", hint="compile without --dialect outlines") from None
