"""What every keyword's handler needs: the document, the formula store, and well-typed access to a keyword's value.

A handler takes (schema, keyword, JSON type) and returns a formula over that type's atoms.
"""

from __future__ import annotations

from decimal import Decimal

from stcc.compiler.errors import SourceError, UnsupportedError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.document import Document, Schema, json_type
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas


class Keywords:
    """One document's schemas, one formula store, and what was noted on the way."""

    def __init__(self, document: Document, formulas: Formulas) -> None:
        self.document, self.formulas, self.options = document, formulas, document.options
        self.warnings: list[dict[str, str]] = []
        self.unenforced: list[dict[str, str]] = []
        self.pattern_places: dict[str, str] = {}
        self._content_places: dict[atoms.StringContent, Schema] = {}
        self._content_left: set[atoms.StringContent] = set()
        self._noted: set[tuple[str, str]] = set()

    def expand(self, number: int, type_: str) -> int:
        """What schema ``number`` asks of a value of JSON type ``type_``."""
        raise TypeError("only an Expander expands")

    def sat(self, number: int) -> int:
        """The formula "the value satisfies schema ``number``"."""
        schema = self.document.schemas[number]
        contents = schema.contents
        if isinstance(contents, bool):
            return TRUE if contents else FALSE
        return TRUE if not contents and not schema.later else self.formulas.atom(atoms.Sat(number))

    def note(self, schema: Schema, keyword: str, message: str) -> None:
        """Record a warning, once per keyword and message."""
        if (keyword, message) not in self._noted:
            self._noted.add((keyword, message))
            self.warnings.append({"pointer": schema.pointer, "keyword": keyword, "message": message})

    def leave(self, schema: Schema, keyword: str, message: str, hint: str) -> int:
        """Refuse a keyword, or leave it unenforced where the user chose so."""
        if self.options.unenforced == "error":
            raise UnsupportedError(message, pointer=schema.pointer, keyword=keyword, hint=f"{hint}, or pass unenforced='warn'")
        entry = {"pointer": schema.pointer, "keyword": keyword, "message": message}
        if entry not in self.unenforced:
            self.unenforced.append(entry)
        return TRUE

    def _bad(self, schema: Schema, keyword: str, expected: str) -> SourceError:
        found = schema.contents[keyword]
        return SourceError(
            f"expected {expected}, found {json_type(found)} {str(found)[:60]!r}",
            pointer=schema.pointer,
            keyword=keyword,
            hint="correct the schema here",
        )

    def _children(self, schema: Schema, keyword: str) -> list[int]:
        value = schema.contents[keyword]
        if not isinstance(value, list):
            raise self._bad(schema, keyword, "a list of schemas")
        return [self.document.child(schema, item, keyword, index) for index, item in enumerate(value)]

    def _named_children(self, schema: Schema, keyword: str) -> list[tuple[str, int]]:
        value = schema.contents.get(keyword, {})
        if not isinstance(value, dict):
            raise self._bad(schema, keyword, "an object of schemas")
        return [(name, self.document.child(schema, item, keyword, name)) for name, item in value.items()]

    def _natural(self, schema: Schema, keyword: str) -> int:
        value = schema.contents[keyword]
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or value != int(min(max(value, -1), 10**12)) or value < 0:
            raise self._bad(schema, keyword, "a natural number")
        return int(value)

    def _has(self, names: list[str]) -> int:
        return self.formulas.conjunction([self.formulas.atom(atoms.Has(name)) for name in names])

    def _at_least(self, count: int) -> int:
        return self.formulas.atom(atoms.CountAtLeast(count)) if count else TRUE
