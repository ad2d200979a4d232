"""Schemas inside a larger grammar: object values of several schemas as rules of one work list, for a front end that writes the rest.

In: schemas, each a document of its own (its references stay inside it), and markers that no text in a value may hold. Out: the
number of a rule for each, and in the end all rules. Afterwards equal schemas have one rule, errors and rule names carry pointers into
the document that holds the schemas, and no string or name of any value contains a marker. Cost: as the schemas one by one, less what
they share.

The markers are one more pattern that every string has to fail (``not containing``), so lengths, patterns, constants and formats are
exact beside it. A string whose length is bounded holds not even what begins like a marker (``COUNTED_PREFIX``): every state of the pattern
is there for every count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jsonschema_specifications

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import SourceError, UnsatisfiableError
from stcc.compiler.frontends import json_schema
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey
from stcc.compiler.frontends.json_schema.document import Document, declared_draft, parse_schema
from stcc.compiler.frontends.json_schema.expansion import Expander
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas
from stcc.compiler.frontends.json_schema.scalars import ScalarLanguages
from stcc.compiler.frontends.json_schema.values import _Position
from stcc.compiler.ir import Rule, RuleBuilder
from stcc.compiler.options import Deadline, Options

COUNTED_PREFIX = 5
"""Characters of a marker that no string of bounded length holds: each character is a state for each count."""
Builder = Callable[[Construction, RuleKey, str], Rule]
_DYNAMIC = ("$dynamicRef", "$recursiveRef", "json-schema.org/draft/20")


class EmbeddedDocument(Document):
    """Schemas that stand at pointers of one document, each with references of its own."""

    def __init__(self, options: Options) -> None:
        self._places: dict[str, str] = {}
        super().__init__({}, options)
        self._registry: Any = jsonschema_specifications.REGISTRY
        for uri, other in options.schemas.items():
            self._registry = self._registry.with_resource(uri, self._resource(parse_schema(other, options.max_depth), 2020))

    def add(self, contents: Mapping[str, Any], pointer: str) -> int:
        """The number of the schema ``contents`` that stands at ``pointer``; its ``#`` is itself. SourceError for unreadable identifiers."""
        draft = declared_draft(contents, 2020)
        self._dynamic = self._dynamic or any(mark in repr(contents) for mark in _DYNAMIC)
        own = f"urn:stcc:embedded:{len(self._places)}"
        named = contents.get("id" if draft == 4 else "$id")
        base = named if isinstance(named, str) and named else own
        try:
            resource = self._resource(contents, draft)
            resolver = self._registry.with_resource(base, resource).with_resource(own, resource).resolver(base)
        except Exception as error:  # referencing raises many kinds on malformed $id or $anchor
            raise SourceError(f"the document's identifiers cannot be read: {error}", pointer=pointer, keyword="$id",
                              hint="give $id an absolute URI") from None
        self._places[base] = pointer
        return self.number(contents, pointer, draft, resolver)

    def number(self, contents: Any, pointer: str, draft: int, resolver: Any) -> int:
        """As ``Document.number``; a pointer that a reference gives is taken from the schema it stands in."""
        place = self._places.get(resolver._base_uri)
        if place is not None and pointer != place and not pointer.startswith(f"{place}/"):
            pointer = place + pointer[1:]
        return super().number(contents, pointer, draft, resolver)


class MarkedScalars(ScalarLanguages):
    """Scalars none of whose strings holds a marker: each condition also asks for that."""

    def __init__(self, expander: Expander, deadline: Deadline, markers: Iterable[str]) -> None:
        super().__init__(expander, deadline)
        exact = tuple(markers)
        self.unmarked = self._without(exact)
        self._counted_unmarked = self._without(dict.fromkeys(marker[:COUNTED_PREFIX] for marker in exact))

    def _without(self, markers: Iterable[str]) -> int:
        """The formula "none of ``markers`` occurs in the string"."""
        pattern = "|".join(_ecma(re.escape(marker).replace("\n", "\\n")) for marker in markers)
        return self._formulas.negation(self._formulas.atom(atoms.StringPattern(pattern))) if pattern else TRUE

    def _kept(self, conditions: tuple[int, ...]) -> tuple[int, ...]:
        """``conditions``, with the markers kept out. Strings whose length is counted do without all that begins like a marker."""
        used = frozenset().union(*map(self._formulas.atoms, conditions))
        counted = any(isinstance(self._formulas.payload(atom), atoms.StringLength) for atom in used)
        unmarked = self._counted_unmarked if counted else self.unmarked
        return tuple(self._formulas.conjunction([condition, unmarked]) for condition in conditions)

    def raw(self, conditions: tuple[int, ...]) -> Dfa:
        """As ``ScalarLanguages.raw``, without texts that hold a marker."""
        return super().raw(self._kept(conditions))

    def strings(self, conditions: tuple[int, ...]) -> Dfa:
        """As ``ScalarLanguages.strings``, without texts that hold a marker."""
        return super().strings(self._kept(conditions))

    def content(self, conditions: tuple[int, ...]) -> atoms.StringContent | None:
        """As ``ScalarLanguages.content``; none where there are markers, which a text of any depth cannot be kept from holding."""
        return super().content(conditions) if self.unmarked == TRUE else None

    def counted(self, conditions: tuple[int, ...]) -> Any:
        """As ``ScalarLanguages.counted``, without texts that hold a marker."""
        return super().counted(self._kept(conditions))

    def classified(self, type_: str, subjects: tuple[int, ...], label: Callable[[tuple[int, ...]], int]) -> Dfa:
        """As ``ScalarLanguages.classified``; of a string the label is asked for only where it holds no marker."""
        if type_ != "string" or self.unmarked == TRUE:
            return super().classified(type_, subjects, label)

        def unmarked(truths: tuple[int, ...]) -> int:
            return label(truths[:-1]) if truths[-1] == TRUE else -1

        return super().classified(type_, (*subjects, self.unmarked), unmarked)


def _ecma(pattern: str) -> str:
    """``re.escape`` escapes some characters that ECMA-262 takes as they are."""
    return re.sub(r"\\([^\w\s^$\\.*+?()\[\]{}|/])", r"\1", pattern)


class Embedding(Construction):
    """A work list of rules for several schemas. ``rules`` builds them; rule 0 is left for whoever embeds them."""

    def __init__(
        self, options: Options, deadline: Deadline, markers: Iterable[str] = (), builders: Mapping[str, Builder] | None = None,
    ) -> None:
        self.document = EmbeddedDocument(options)
        expander = Expander(self.document, Formulas())
        self.marked = MarkedScalars(expander, deadline, markers)
        super().__init__(expander, self.marked, deadline, {**json_schema._RULES, **(builders or {})})
        self._rules.append(None)
        self._name_condition: int | None = None

    def object_rule(self, number: int, kind: str = "object") -> int:
        """The rule of kind ``kind`` that reads an object which satisfies schema ``number``.

        Raises:
            UnsatisfiableError: no object can; that some condition inside cannot be met is found by trimming.
        """
        pointer = self.document.schemas[number].pointer
        condition = self.expander.restrict(self.expander.sat(number), "object")
        if condition == FALSE:
            raise UnsatisfiableError("no object can satisfy this", pointer=pointer, hint="relax the constraints that contradict each other")
        position = _Position(self, RuleBuilder(pointer), 0, "object", lambda residual: 0)
        order = position.order((condition,), (self.expander.sat(number),))
        return self.rule((kind, (condition,), order), pointer)

    def rule(self, key: RuleKey, name: str) -> int:
        """As ``Construction.rule``; objects that admit undeclared names do not admit those that hold a marker."""
        if key[0] == "object" and self.marked.unmarked != TRUE:
            key = (key[0], tuple(map(self._names_kept, key[1])), key[2])
        return super().rule(key, name)

    def _names_kept(self, condition: int) -> int:
        parts = map(self.formulas.payload, self.formulas.conjuncts(condition))
        if any(isinstance(part, atoms.Members) and part.extra == FALSE and not part.patterns for part in parts):
            return condition
        if self._name_condition is None:
            schema = self.document.add({"not": {"pattern": self._marker_pattern()}}, "#")
            self._name_condition = self.formulas.atom(atoms.Names(self.expander.sat(schema)))
        return self.formulas.conjunction([condition, self._name_condition])

    def _marker_pattern(self) -> str:
        payload = self.formulas.payload(self.formulas.negation(self.marked.unmarked))
        assert isinstance(payload, atoms.StringPattern)
        return payload.pattern

    def rules(self) -> tuple[Rule | None, ...]:
        """Every rule asked for so far, built; rule 0 is None."""
        self.build_queue()
        return tuple(self._rules)
