"""Which draft has which keyword.

In: a subschema's contents and the draft it follows. Out: the contents that count, and the names of keywords that only later drafts have:
to the draft's readers those are unknown words, so they ask for nothing. A document that names no draft follows the latest. Keywords that
later drafts dropped stay understood where they are unambiguous (``items`` as a list, ``dependencies``, Boolean ``exclusiveMinimum``).

>>> of_draft({"const": 1, "type": "integer"}, 4)
({'type': 'integer'}, ('const',))
"""

from __future__ import annotations

from typing import Any

SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("if", "then", "else", "contentEncoding", "contentMediaType"), 7),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains",
         "contentSchema",
         "$recursiveRef"),
        2019,
    ),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), 2020),
}
"""The draft that a keyword came with; keywords that all of them have are not listed."""


def of_draft(contents: Any, draft: int) -> tuple[Any, tuple[str, ...]]:
    """``contents`` without the keywords that came after ``draft``, and those."""
    if draft >= 2020 or not isinstance(contents, dict):
        return contents, ()
    later = tuple(keyword for keyword in contents if SINCE.get(keyword, 0) > draft)
    return ({keyword: value for keyword, value in contents.items() if keyword not in later}, later) if later else (contents, ())
