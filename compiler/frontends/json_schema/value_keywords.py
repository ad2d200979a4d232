"""Keywords that look at a value as a whole: ``type``, constants, strings and numbers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.document import Schema, json_type
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.reading import Keywords
from stcc.compiler.scalars.encodings import ENCODINGS, JSON_ENCODINGS
from stcc.compiler.scalars.formats import KNOWN_FORMATS


class ValueKeywords(Keywords):
    """Handlers of ``type``, ``enum``, ``const`` and the keywords of strings and numbers."""

    # ---- any type

    def _type(self, schema: Schema, keyword: str, type_: str) -> int:
        named = schema.contents[keyword]
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list) or any(not isinstance(name, str) or name not in (*atoms.TYPES, "integer", "any") for name in names):
            raise self._bad(schema, keyword, f"one or a list of {', '.join(atoms.TYPES)}, integer")
        if type_ in names or "any" in names:
            return TRUE
        if type_ == "number" and "integer" in names:
            return self.formulas.atom(atoms.NumberIntegral(schema.draft == 4))
        return FALSE

    def _enum(self, schema: Schema, keyword: str, type_: str) -> int:
        values = schema.contents[keyword]
        if not isinstance(values, list):
            raise self._bad(schema, keyword, "a list of values")
        values = [value for value in values if json_type(value) == type_]
        if type_ == "string":
            return self.formulas.atom(atoms.StringIn(tuple(dict.fromkeys(values)))) if values else FALSE
        if type_ == "number" and len(values) > 1:
            return self.formulas.atom(atoms.NumberIn(tuple(dict.fromkeys(map(Decimal, values)))))
        return self.formulas.disjunction([self._equal(schema, value, (keyword, index)) for index, value in enumerate(values)])

    def _const(self, schema: Schema, keyword: str, type_: str) -> int:
        value = schema.contents[keyword]
        return self._equal(schema, value, (keyword,)) if json_type(value) == type_ else FALSE

    def _equal(self, schema: Schema, value: Any, path: tuple[str | int, ...]) -> int:
        """The value equals ``value``, given that the types agree."""
        formulas = self.formulas
        if value is None:
            return TRUE
        if isinstance(value, bool):
            return formulas.atom(atoms.BooleanIs(value))
        if isinstance(value, str):
            return formulas.atom(atoms.StringIn((value,)))
        if isinstance(value, (int, Decimal)):
            return formulas.atom(atoms.NumberEquals(Decimal(value)))

        def constant(item: Any, token: str | int) -> int:
            return self.sat(self.document.child(schema, {"enum": [item]}, *path, token))

        if isinstance(value, list):
            parts = tuple(constant(item, index) for index, item in enumerate(value))
            return formulas.conjunction([formulas.atom(atoms.Items(parts, FALSE)), self._at_least(len(value))])
        members = tuple((name, constant(item, name)) for name, item in value.items())
        return formulas.conjunction([formulas.atom(atoms.Members(members, (), FALSE)), *(formulas.atom(atoms.Has(name)) for name in value)])

    # ---- strings

    def _length(self, schema: Schema, keyword: str, type_: str) -> int:
        if type_ != "string":
            return TRUE
        bound = self._natural(schema, keyword)
        if keyword == "minLength":
            return self.formulas.atom(atoms.StringLength(bound, None)) if bound else TRUE
        return self.formulas.atom(atoms.StringLength(0, bound))

    def _pattern(self, schema: Schema, keyword: str, type_: str) -> int:
        pattern = schema.contents[keyword]
        if not isinstance(pattern, str):
            raise self._bad(schema, keyword, "a regular expression")
        if type_ != "string":
            return TRUE
        self.pattern_places.setdefault(pattern, schema.pointer)
        return self.formulas.atom(atoms.StringPattern(pattern))

    def _format(self, schema: Schema, keyword: str, type_: str) -> int:
        name = schema.contents[keyword]
        if not isinstance(name, str):
            raise self._bad(schema, keyword, "the name of a format")
        if type_ != "string" or self.options.formats == "annotate":
            return TRUE
        if name not in KNOWN_FORMATS:
            self.note(schema, keyword, f"unknown format {name!r}, taken as an annotation")
            return TRUE
        return self.formulas.atom(atoms.StringFormat(name))

    # ---- content

    def _content(self, schema: Schema, keyword: str, type_: str) -> int:
        """``contentEncoding`` and ``contentMediaType`` together. Encodings and media types that are not known are annotations."""
        mode, contents = self.options.content, schema.contents
        if mode == "annotate" or (mode == "draft" and schema.draft != 7):
            return TRUE
        for keyword in ("contentEncoding", "contentMediaType"):
            if not isinstance(contents.get(keyword, ""), str):
                raise self._bad(schema, keyword, "a string")
        if type_ != "string":
            return TRUE
        encoding, media = contents.get("contentEncoding", "").lower(), contents.get("contentMediaType", "").lower()
        if encoding and encoding not in ENCODINGS:
            self.note(schema, "contentEncoding", f"unknown encoding {encoding!r}, taken as an annotation")
            return TRUE
        json = _is_json(media)
        if media and not json:
            self.note(schema, "contentMediaType", f"unknown media type {media!r}, taken as an annotation")
        elif json and encoding not in JSON_ENCODINGS:
            json = self._leave_content(schema, f"JSON in {encoding} is not enforced", "use base64")
        elif json and mode == "enforce" and not _asks_nothing(contents.get("contentSchema", True)):
            self.leave(schema, "contentSchema", "what the content's schema asks for is not enforced, only that the content is JSON",
                       "take it out")
        if not encoding and not json:
            return TRUE
        atom = atoms.StringContent(encoding, json)
        self._content_places.setdefault(atom, schema)
        return self.formulas.atom(atom)

    @property
    def looks_at_content(self) -> bool:
        """Whether some string has to hold what is encoded, or JSON."""
        return bool(self._content_places)

    def leave_content(self, atom: atoms.StringContent, pointer: str = "") -> None:
        """Refuse that strings have to hold a JSON text, or leave it: it stands where only automata can be combined.

        ``pointer``: the schema whose strings it is about; empty where only the atom is known, which then is passed over if a place was.
        """
        if not atom.json or (not pointer and atom in self._content_left):
            return
        self._content_left.add(atom)
        schema = self._content_places[atom]
        message = "that a string holds JSON is not enforced beside other conditions on it, under not, and in some of several alternatives"
        self._leave_content(replace(schema, pointer=pointer or schema.pointer), message, "ask for it alone")

    def _leave_content(self, schema: Schema, message: str, hint: str) -> bool:
        if self.options.content == "enforce":
            self.leave(schema, "contentMediaType", message, hint)
            return False
        entry = {"pointer": schema.pointer, "keyword": "contentMediaType", "message": f"{message}: taken as an annotation"}
        if entry not in self.warnings:
            self.warnings.append(entry)
        return False

    # ---- numbers

    def _number(self, schema: Schema, keyword: str) -> Decimal:
        value = schema.contents[keyword]
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise self._bad(schema, keyword, "a number")
        return Decimal(value)

    def _bound(self, schema: Schema, keyword: str, type_: str) -> int:
        bound = self._number(schema, keyword)
        exclusive = schema.contents.get("exclusiveMinimum" if keyword == "minimum" else "exclusiveMaximum") is True
        return self._limit(keyword == "minimum", bound, exclusive) if type_ == "number" else TRUE

    def _exclusive(self, schema: Schema, keyword: str, type_: str) -> int:
        if isinstance(schema.contents[keyword], bool):  # draft 4: modifies minimum or maximum, handled there
            return TRUE
        bound = self._number(schema, keyword)
        return self._limit(keyword == "exclusiveMinimum", bound, True) if type_ == "number" else TRUE

    def _limit(self, lower: bool, bound: Decimal, exclusive: bool) -> int:
        return self.formulas.atom((atoms.NumberAtLeast if lower else atoms.NumberAtMost)(bound, exclusive))

    def _multiple(self, schema: Schema, keyword: str, type_: str) -> int:
        factor = self._number(schema, keyword)
        if factor <= 0:
            raise self._bad(schema, keyword, "a number above 0")
        return self.formulas.atom(atoms.NumberMultiple(factor)) if type_ == "number" else TRUE


def _asks_nothing(schema: Any) -> bool:
    return schema is True or (isinstance(schema, dict) and not schema)


def _is_json(media: str) -> bool:
    """Whether a media type, in lower case and perhaps with parameters, is of JSON texts (RFC 6839 for the suffix)."""
    name = media.partition(";")[0].strip()
    return name == "application/json" or name.endswith("+json")
