"""``unevaluatedProperties`` and ``unevaluatedItems``, exactly.

A member is *evaluated* by a schema's own ``properties`` and relatives, and by its in-place subschemas as far as those
hold of the whole value, which is only known at the end. So the keyword becomes an operator whose arguments are the
formulas of those subschemas: its arguments are derived member by member with everything else, and at each member it
leaves the obligation "some subschema that covers this name holds in the end, or the member's value satisfies the
keyword's schema".

A *coverage* is a tree: ``Cover`` says what a schema's own keywords evaluate, ``Guarded`` makes a subtree count only
where an argument holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas

if TYPE_CHECKING:
    from stcc.compiler.frontends.json_schema.document import Schema
    from stcc.compiler.frontends.json_schema.reading import Keywords


@dataclass(frozen=True)
class Cover:
    """What one schema's own keywords evaluate.

    ``everything``: all members or items. ``names``, ``patterns``: property names. ``items``: that many next items.
    ``matching``: items that satisfy one of these formulas (``contains``).
    """

    everything: bool = False
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    items: int = 0
    matching: tuple[int, ...] = ()


@dataclass(frozen=True)
class Guarded:
    """The coverage ``inner``, where the operator's argument number ``argument`` holds."""

    argument: int
    inner: tuple[Cover | Guarded, ...]


Coverage = tuple[Cover | Guarded, ...]


@dataclass(frozen=True)
class Unevaluated:
    """The operator's payload: what is covered when, and the formula (over ``Sat``) for the rest."""

    coverage: Coverage
    formula: int


def unevaluated(expander: Keywords, schema: Schema, keyword: str, type_: str) -> int:
    """The formula of ``keyword`` in ``schema`` for a value of ``type_`` (its own type)."""
    formula = expander.sat(expander.document.child(schema, schema.contents[keyword], keyword))
    if formula == TRUE:
        return TRUE
    walk = _Walk(expander, type_)
    coverage = walk.coverage(schema, own=keyword)
    if any(isinstance(part, Cover) and part.everything for part in coverage):
        return TRUE
    return expander.formulas.operator(Unevaluated(coverage, formula), tuple(walk.arguments))


class _Walk:
    """Collects a coverage and the formulas that its guards refer to."""

    def __init__(self, expander: Keywords, type_: str) -> None:
        self.expander, self.type = expander, type_
        self.arguments: list[int] = []
        self._open: set[int] = set()

    def coverage(self, schema: Schema, own: str = "") -> Coverage:
        if isinstance(schema.contents, bool) or id(schema.contents) in self._open:  # a loop of references covers nothing more
            return ()
        self._open.add(id(schema.contents))
        covered = [self._object_cover(schema, own) if self.type == "object" else self._array_cover(schema, own)]
        result = tuple(cover for cover in covered if cover != Cover()) + tuple(self._applicators(schema))
        self._open.discard(id(schema.contents))
        return result

    def _object_cover(self, schema: Schema, own: str) -> Cover:
        contents = schema.contents
        if "additionalProperties" in contents or (own != "unevaluatedProperties" and "unevaluatedProperties" in contents):
            return Cover(everything=True)
        return Cover(names=tuple(contents.get("properties", ())), patterns=tuple(contents.get("patternProperties", ())))

    def _array_cover(self, schema: Schema, own: str) -> Cover:
        contents = schema.contents
        listed = contents.get("prefixItems", contents.get("items") if isinstance(contents.get("items"), list) else None)
        rest = "additionalItems" if isinstance(contents.get("items"), list) else "items"
        if rest in contents or (own != "unevaluatedItems" and "unevaluatedItems" in contents):
            return Cover(everything=True)
        matching: tuple[int, ...] = ()
        if "contains" in contents and schema.draft >= 2020:
            matching = (self.expander.sat(self.expander.document.child(schema, contents["contains"], "contains")),)
        return Cover(items=len(listed) if isinstance(listed, list) else 0, matching=matching)

    def _applicators(self, schema: Schema) -> list[Cover | Guarded]:
        contents, document = schema.contents, self.expander.document
        parts: list[Cover | Guarded] = []
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in contents:
                parts += self.coverage(document.schemas[document.reference(schema, keyword)])
        for keyword in ("allOf", "anyOf", "oneOf"):
            for index, child in enumerate(contents.get(keyword, ())):
                number = document.child(schema, child, keyword, index)
                inner = self.coverage(document.schemas[number])
                parts += inner if keyword == "allOf" else self._guarded(self.expander.expand(number, self.type), inner)
        parts += self._conditional(schema)
        for name, child in contents.get("dependentSchemas", {}).items():
            if self.type == "object":
                inner = self.coverage(document.schemas[document.child(schema, child, "dependentSchemas", name)])
                parts += self._guarded(self.expander.formulas.atom(atoms.Has(name)), inner)
        return parts

    def _conditional(self, schema: Schema) -> list[Cover | Guarded]:
        contents, document = schema.contents, self.expander.document
        if "if" not in contents:
            return []
        number = document.child(schema, contents["if"], "if")
        condition = self.expander.expand(number, self.type)
        parts = list(self._guarded(condition, self.coverage(document.schemas[number])))
        for keyword, guard in (("then", condition), ("else", self.expander.formulas.negation(condition))):
            if keyword in contents:
                parts += self._guarded(guard, self.coverage(document.schemas[document.child(schema, contents[keyword], keyword)]))
        return parts

    def _guarded(self, formula: int, inner: Coverage) -> Coverage:
        if not inner or formula == FALSE:
            return ()
        if formula == TRUE:
            return inner
        if formula not in self.arguments:
            self.arguments.append(formula)
        return (Guarded(self.arguments.index(formula), inner),)


def covers_member(formulas: Formulas, coverage: Coverage, arguments: tuple[int, ...], key: str | None, patterns: frozenset[str]) -> int:
    """The formula "the member called ``key`` (None: undeclared), which matches ``patterns``, is evaluated"."""
    return formulas.disjunction(
        formulas.conjunction([arguments[part.argument], covers_member(formulas, part.inner, arguments, key, patterns)])
        if isinstance(part, Guarded)
        else TRUE
        if part.everything or key in part.names or not patterns.isdisjoint(part.patterns)
        else FALSE
        for part in coverage
    )


def covers_item(formulas: Formulas, coverage: Coverage, arguments: tuple[int, ...]) -> int:
    """The formula "the next item is evaluated"."""
    return formulas.disjunction(
        formulas.conjunction([arguments[part.argument], covers_item(formulas, part.inner, arguments)])
        if isinstance(part, Guarded)
        else TRUE
        if part.everything or part.items
        else formulas.disjunction(part.matching)
        for part in coverage
    )


def after_item(coverage: Coverage) -> Coverage:
    """The coverage of the items after the next one."""
    return tuple(
        Guarded(part.argument, after_item(part.inner)) if isinstance(part, Guarded) else replace(part, items=max(0, part.items - 1))
        for part in coverage
    )


def covered_names(coverage: Coverage) -> list[str]:
    """All property names that a coverage tells apart."""
    return [name for part in coverage for name in (covered_names(part.inner) if isinstance(part, Guarded) else part.names)]


def covered_patterns(coverage: Coverage) -> list[str]:
    """All patterns that a coverage tells apart."""
    return [name for part in coverage for name in (covered_patterns(part.inner) if isinstance(part, Guarded) else part.patterns)]


def payload_of(formulas: Formulas, operator: int) -> Unevaluated:
    """The payload of an operator, which is always ours."""
    payload: Any = formulas.operator_payload(operator)
    assert isinstance(payload, Unevaluated)
    return payload
