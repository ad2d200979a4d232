"""Value positions: reading one JSON value, and going on where it is known what its subschemas make of it.

A place in a container holds *mixed* formulas: what the container will still owe, in terms of ``Sat`` of the value to
come. The first byte of the value tells its type, so the position is compiled type by type. Where the type alone
settles a ``Sat``, it is settled. Of a scalar, one DFA tells every combination of truths that can occur (a product
restricted to what is reachable, so that a hundred constants make a hundred and one combinations, not 2 ** 100).
Objects and arrays are called with the exclusive conditions under which the container would go on differently, and
leave through the exit of the one that holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stcc.compiler.errors import CompileError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.content import content_key
from stcc.compiler.frontends.json_schema.counted import counted_string
from stcc.compiler.frontends.json_schema.counted_arrays import counted_array, read_counted_array
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.order import merged_order
from stcc.compiler.frontends.json_schema.unevaluated import covered_names
from stcc.compiler.ir import RuleBuilder

if TYPE_CHECKING:
    from stcc.compiler.dfa import Dfa
    from stcc.compiler.frontends.json_schema.construction import Construction

Residual = tuple[int, ...]
_LARGE_STRING = 24
"""A string DFA of more states becomes a rule, so that several uses can share it (the inliner takes single uses back)."""
_SITES_IN_LINE = 200
"""Calls of blocks that counted strings may make where they stand, in one grammar; from then on such strings are rules that places share."""
_FEW = 3
"""Up to this many undecided subschemas, a scalar's conditions are expanded as formulas, whose DFAs are cached by what they say."""


def read_value(construction: Construction, builder: RuleBuilder, source: int, mixed: Residual, after: Callable[[Residual], int],
               last: bool = False) -> None:
    """Read one JSON value from ``source``; where ``mixed`` becomes ``residual``, go on at ``after(residual)``.

    Values that make it all false are not admitted. ``last``: the rule may end right behind the value.
    """
    for type_ in atoms.TYPES:
        position = _Position(construction, builder, source, type_, after, last)
        settled = position.settle(mixed)
        if not any(settled):
            continue
        try:
            position.read(settled)
        except CompileError as error:
            if error.pointer:
                raise
            raise type(error)(error.message, pointer=position.name(mixed), keyword=error.keyword, hint=error.hint) from None


def read_item(construction: Construction, builder: RuleBuilder, source: int, formula: int, target: int) -> None:
    """Read one JSON value that satisfies ``formula``, over ``Sat``, and go on at ``target``."""
    read_value(construction, builder, source, (formula,), lambda residual: target)


def counted_on_the_stack(construction: Construction, value: int) -> bool:
    """Whether a value that satisfies ``value``, a formula over ``Sat``, may be an array in blocks: no rule may end right behind it."""
    array = construction.expander.restrict(value, "array")
    return array != FALSE and counted_array(construction.formulas, array) is not None


@dataclass(frozen=True)
class _Position:
    """One value position, for values of one type."""

    construction: Construction
    builder: RuleBuilder
    source: int
    type: str
    after: Callable[[Residual], int]
    last: bool = False

    def settle(self, mixed: Residual) -> Residual:
        """``mixed`` with every ``Sat`` decided that the type alone decides."""
        known = self.construction.settled.get((mixed, self.type))
        if known is None:
            truths = {sat: truth for sat in self.sats(mixed) if (truth := self.expanded(sat)) in (FALSE, TRUE)}
            known = self.construction.settled[mixed, self.type] = self.decide(mixed, truths)
        return known

    def decide(self, mixed: Residual, truths: dict[int, int]) -> Residual:
        if not truths:
            return mixed
        memo = truths.copy()
        return tuple(self.construction.formulas.decide(formula, truths, memo) for formula in mixed)

    def sats(self, mixed: Residual) -> list[int]:
        found = set().union(*(self.construction.formulas.atoms(formula) for formula in mixed))
        return sorted(atom for atom in found if self.construction.is_sat(atom))

    def expanded(self, sat: int) -> int:
        return self.construction.expander.restrict(sat, self.type)

    # ---- by type

    def read(self, mixed: Residual) -> None:
        if self.type == "null":
            self.builder.literal(self.source, b"null", self.after(mixed))
        elif self.type == "boolean":
            self._boolean(mixed)
        elif self.type in ("number", "string") and len(self.sats(mixed)) > _FEW:
            self._classified(mixed)
        else:
            self._conditional(mixed)

    def _boolean(self, mixed: Residual) -> None:
        formulas = self.construction.formulas
        for value, text in ((True, b"true"), (False, b"false")):

            def final(atom: int, value: bool = value) -> int:
                return TRUE if formulas.payload(atom) == atoms.BooleanIs(value) else FALSE

            truths = {sat: formulas.substitute(self.expanded(sat), final) for sat in self.sats(mixed)}
            residual = self.decide(mixed, truths)
            if any(residual):
                self.builder.literal(self.source, text, self.after(residual))

    def _classified(self, mixed: Residual) -> None:
        """A scalar that many subschemas look at: one product DFA labelled by what remains."""
        sats = self.sats(mixed)
        residuals: dict[Residual, int] = {}

        def label(truths: tuple[int, ...]) -> int:
            residual = self.decide(mixed, dict(zip(sats, truths, strict=True)))
            return residuals.setdefault(residual, len(residuals)) if any(residual) else -1

        scalars = self.construction.scalars
        self._leave_content(mixed, tuple(self.expanded(sat) for sat in sats))
        dfa = scalars.classified(self.type, tuple(self.expanded(sat) for sat in sats), label)
        targets = [self.after(residual) for residual in residuals]
        if not targets:
            return
        if self.type == "string":
            self._quoted(dfa, targets)
        else:
            self.builder.scan(self.source, dfa, targets)

    def _conditional(self, mixed: Residual) -> None:
        construction = self.construction
        outcomes = construction.formulas.outcomes(mixed, construction.is_sat, construction.shannon)
        restricted = [(residual, construction.expander.restrict(condition, self.type)) for residual, condition in outcomes.items()]
        alive = [(residual, condition) for residual, condition in restricted if condition != FALSE]
        if not alive:
            return
        conditions, targets = tuple(condition for _, condition in alive), [self.after(residual) for residual, _ in alive]
        if self.type == "number":
            self.builder.scan(self.source, construction.scalars.numbers(conditions), targets)
        elif self.type == "string":
            self._string(conditions, targets, mixed)
        elif self.type == "array" and len(conditions) == 1 and (counted := counted_array(construction.formulas, conditions[0])):
            read_counted_array(construction, self.builder, self.source, counted, targets[0])
        else:
            order = self.order(conditions, mixed) if self.type == "object" else ()
            self.builder.call(self.source, construction.rule((self.type, conditions, order), self.name(mixed)), targets)

    def _string(self, conditions: tuple[int, ...], targets: list[int], mixed: Residual) -> None:
        construction = self.construction
        content = construction.scalars.content(conditions)
        if content is not None:
            self.builder.call(self.source, construction.rule(content_key(content), self.builder.name), targets)
            return
        self._leave_content(mixed, conditions)
        counted = construction.scalars.counted(conditions)
        if counted is not None and not self.last and not construction.takes_sites(counted.sites, _SITES_IN_LINE):
            self.builder.call(self.source, construction.rule(("counted string", conditions, ()), self.builder.name), targets)
            return
        if counted is not None:
            opened = self.builder.node()
            self.builder.byte(self.source, 0x22, 0x22, opened)
            counted_string(construction, self.builder, opened, counted, targets)
            return
        dfa = construction.scalars.strings(conditions)
        if dfa.states > _LARGE_STRING:
            self.builder.call(self.source, construction.rule(("string", conditions, ()), self.builder.name), targets)
        else:
            self._quoted(dfa, targets)

    def _leave_content(self, mixed: Residual, conditions: tuple[int, ...]) -> None:
        """Say of strings that have to hold JSON among other things that it is left; ``conditions`` are over their atoms."""
        construction = self.construction
        if self.type == "string" and construction.expander.looks_at_content:
            for atom in sorted(frozenset().union(*map(construction.formulas.atoms, conditions))):
                payload = construction.formulas.payload(atom)
                if isinstance(payload, atoms.StringContent):
                    construction.expander.leave_content(payload, self.name(mixed))

    def _quoted(self, dfa: Dfa, targets: list[int]) -> None:
        opened = self.builder.node()
        self.builder.byte(self.source, 0x22, 0x22, opened)
        self.builder.scan(opened, dfa, targets)

    # ---- names

    def order(self, conditions: tuple[int, ...], mixed: Residual) -> tuple[str, ...]:
        """The property names that an object's ``conditions`` look at, in order of appearance in the schemas behind ``mixed``."""
        construction = self.construction
        mentioned = construction.mentioned.get(conditions)
        if mentioned is None:
            formulas = construction.formulas
            used = sorted(set().union(*(formulas.atoms(condition) for condition in conditions)))
            names = [key for atom in used for key in _names_of(formulas.payload(atom))]
            names += [key for payload in construction.operators(conditions) for key in covered_names(payload.coverage)]
            mentioned = construction.mentioned[conditions] = dict.fromkeys(names)
        counts = self._tells_members_apart(conditions)
        if not mentioned and not counts:
            return ()
        orders = [construction.orders.key_order(schema) for schema in self._schemas(mixed)]
        if counts:  # so that a declared name of any value counts once, and its last value is what counts
            mentioned = {**mentioned, **{key: None for order in orders for key in order}}
        appearing = merged_order([key for key in order if key in mentioned] for order in orders)
        return tuple({**dict.fromkeys(appearing), **mentioned})

    def _tells_members_apart(self, conditions: tuple[int, ...]) -> bool:
        """Whether two different members may be asked for, or one of a name that no property names may have to fail a schema."""
        formulas = self.construction.formulas
        signed = [formulas.signed(condition) for condition in conditions]
        used = [formulas.payload(atom) for atom in frozenset().union(*(plain | denied for plain, denied in signed))]
        failing = [formulas.payload(atom) for atom in frozenset().union(*(denied for _, denied in signed))]
        return any(isinstance(payload, atoms.CountAtLeast) and payload.count > 1 for payload in used) or any(
            isinstance(payload, atoms.Members) and _looks_at_others(payload) for payload in failing
        )

    def name(self, mixed: Residual) -> str:
        """Where in the document the value's first undecided schema stands."""
        schemas = self._schemas(mixed)
        return self.construction.expander.document.schemas[schemas[0]].pointer if schemas else self.builder.name

    def _schemas(self, mixed: Residual) -> list[int]:
        payloads = map(self.construction.formulas.payload, self.sats(mixed))
        return [payload.schema for payload in payloads if isinstance(payload, atoms.Sat)]


def _looks_at_others(payload: atoms.Members) -> bool:
    """Whether values of names that are not among the properties matter."""
    return any(formula not in (FALSE, TRUE) for formula in (payload.extra, *(formula for _, formula in payload.patterns)))


def _names_of(payload: object) -> list[str]:
    if isinstance(payload, atoms.Members):
        return [key for key, _ in payload.properties]
    return [payload.key] if isinstance(payload, atoms.Has) else []
