"""Array rules by derivatives: read an item, and what remains is a formula over array atoms again.

A state is the tuple of residual conditions; equal tuples are one state. The rule leaves through exit j at the ``]``
where condition j holds.
"""

from __future__ import annotations

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey
from stcc.compiler.frontends.json_schema.distinct import SEVERAL, UNENFORCED, claims, endings
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.unevaluated import Unevaluated, after_item, covers_item
from stcc.compiler.frontends.json_schema.values import read_value
from stcc.compiler.ir import Rule, RuleBuilder


class _ArrayRule:
    def __init__(self, construction: Construction, conditions: tuple[int, ...], name: str) -> None:
        self.construction, self.formulas = construction, construction.formulas
        self.builder = RuleBuilder(name, len(conditions))
        self.ends = [self.builder.node() for _ in conditions]
        self.after: dict[tuple[int, ...], int] = {}
        self.items: dict[tuple[int, ...], int] = {}
        self.queue: list[tuple[int, ...]] = []
        for exit_, node in enumerate(self.ends):
            self.builder.exit(node, exit_)

    def build(self, conditions: tuple[int, ...], distinct: bool) -> Rule:
        opened = self.builder.node()
        self.builder.byte(0, 0x5B, 0x5B, opened)
        if distinct:
            mark = endings(self.construction, conditions, self.builder.name, self.derived, self.may_end)
            if mark != UNENFORCED:
                self.builder.mark(opened, mark == SEVERAL)
        opened = self.construction.gap(self.builder, opened)
        self.close(opened, conditions)
        self.builder.epsilon(opened, self.item(conditions))
        while self.queue:
            state = self.queue.pop()
            node = self.construction.gap(self.builder, self.after[state])
            self.close(node, state)
            if any(self.derived(state)):
                self.builder.epsilon(self.construction.separator(self.builder, self.after[state], b","), self.item(state))
        return self.builder.build()

    def may_end(self, state: tuple[int, ...]) -> bool:
        """Whether some condition holds where no item follows."""
        return self.construction.decided(state, self.final) >= 0

    def close(self, node: int, state: tuple[int, ...]) -> None:
        exit_ = self.construction.decided(state, self.final)
        if exit_ >= 0:
            self.builder.byte(node, 0x5D, 0x5D, self.ends[exit_])

    def item(self, state: tuple[int, ...]) -> int:
        """The node at which an item is read in ``state``."""
        node = self.items.get(state)
        if node is None:
            node = self.items[state] = self.builder.node()
            read_value(self.construction, self.builder, node, self.derived(state), self.after_item)
        return node

    def after_item(self, state: tuple[int, ...]) -> int:
        node = self.after.get(state)
        if node is None:
            self.construction.count_state(self.builder)
            node = self.after[state] = self.builder.node()
            self.queue.append(state)
        return node

    def derived(self, state: tuple[int, ...]) -> tuple[int, ...]:
        """The conditions after one more item, over ``Sat`` of that item and array atoms."""
        formulas = self.formulas

        def rebuild(payload: object, before: tuple[int, ...], after: tuple[int, ...]) -> int:
            assert isinstance(payload, Unevaluated)
            evaluated = covers_item(formulas, payload.coverage, after)
            onward = formulas.operator(Unevaluated(after_item(payload.coverage), payload.formula), after)
            return formulas.conjunction([onward, formulas.disjunction([evaluated, payload.formula])])

        memo: dict[int, int] = {}
        return tuple(formulas.substitute(formula, self.derivative, memo, rebuild) for formula in state)

    def derivative(self, atom: int) -> int:
        """What ``atom`` asks after one more item, given what it asks of that item (``Sat``)."""
        payload, formulas = self.formulas.payload(atom), self.formulas
        if isinstance(payload, atoms.CountAtLeast):
            return formulas.atom(atoms.CountAtLeast(payload.count - 1)) if payload.count > 1 else TRUE
        if isinstance(payload, atoms.Items):
            needed = payload.prefix[0] if payload.prefix else payload.rest
            onward = formulas.atom(atoms.Items(payload.prefix[1:], payload.rest))
            if len(payload.prefix) <= 1 and payload.rest == TRUE:
                onward = TRUE
            return formulas.conjunction([needed, onward])
        if isinstance(payload, atoms.Contains):
            found = formulas.atom(atoms.Contains(payload.formula, payload.count - 1)) if payload.count > 1 else TRUE
            return formulas.if_then_else(payload.formula, found, atom)
        if isinstance(payload, atoms.Unique):
            return self.unique(atom, payload)
        return atom

    def unique(self, atom: int, payload: atoms.Unique) -> int:
        """The candidate that the item equals joins ``seen``; one that is there already makes it false."""
        formulas, result = self.formulas, atom
        for candidate in payload.candidates:
            found = FALSE if candidate in payload.seen else formulas.atom(atoms.Unique(payload.candidates, payload.seen | {candidate}))
            result = formulas.if_then_else(candidate, found, result)
        return result

    def final(self, atom: int) -> int:
        """The value of ``atom`` when no item follows."""
        return TRUE if isinstance(self.formulas.payload(atom), (atoms.Items, atoms.Unique)) else FALSE


def array_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """The rule of an array under ``key``'s conditions; marked where its items must differ and that is not tracked in its states."""
    conditions, distinct = claims(construction, key[1], name)
    return _ArrayRule(construction, conditions, name).build(conditions, distinct)
