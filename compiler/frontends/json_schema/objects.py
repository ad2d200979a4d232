"""Object rules by derivatives: read a member, and what remains is a formula over object atoms again.

A state is (residual conditions, position, names barred). ``arrangement.py`` says what may come when: *ordered* names come in order of
appearance, so that passing one by decides that it is absent and a position says which are passed; of *barred* names the set seen is
tracked; the others may come at any time, and again, until a member of theirs settles what has to be failed. The rule leaves through exit j at
the ``}`` where condition j holds. Names are told apart by the key automaton: each declared name is its own class, undeclared ones are
classed by the patterns and name conditions that look at them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler.errors import BudgetError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.arrangement import (
    ANY_ORDER_STATES,
    FRUGAL_NODES,
    RELAXED_ALLOWANCE,
    RELAXED_EXPANSIONS,
    RELAXED_NODES,
    RELAXED_PLACES,
    arrangement,
)
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey, TooManyStatesError
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.keys import KeyAutomaton
from stcc.compiler.frontends.json_schema.members import MemberClasses
from stcc.compiler.frontends.json_schema.unordered import plain_object
from stcc.compiler.frontends.json_schema.values import read_value
from stcc.compiler.ir import Rule, RuleBuilder

_State = tuple[tuple[int, ...], int, int]
"""Residual conditions, how many ordered names are passed, the barred names that occurred (a bit each)."""


class _ObjectRule:
    def __init__(self, construction: Construction, members: MemberClasses, name: str, kind: str) -> None:
        self.construction, self.formulas, self.conditions = construction, construction.formulas, members.conditions
        self.members, self.order = members, members.order
        self.builder = RuleBuilder(name, len(self.conditions))
        self.kind, self.arrangement = kind, arrangement(self.formulas, self.conditions, self.order, kind)
        self.passing = self.settled_by_passing()
        self.asked = self.asked_of_values() if kind == "relaxed" else []
        self.keys = KeyAutomaton(self.order, members.free_names, construction.expander.options.max_states)
        self.after: dict[_State, int] = {}
        self.ways: dict[_State, tuple[npt.NDArray[np.int32], tuple[int, ...]]] = {}
        self.values: dict[tuple[_State, int], int] = {}
        self.most_nodes = RELAXED_NODES if construction.attempted < RELAXED_ALLOWANCE else FRUGAL_NODES
        self.queue: list[_State] = []
        self.entries: list[tuple[int, int]] = []
        self.ends = [self.builder.node() for _ in self.conditions]
        for exit_, node in enumerate(self.ends):
            self.builder.exit(node, exit_)

    def settled_by_passing(self) -> list[dict[int, int]]:
        """For each declared name the atoms that are settled, and their truth, once it is passed by: that it is there, and obligations on
        the values of declared names of which it is the last. (Otherwise every set of obligations met would be a state of its own.)
        """
        ordered = [self.order[index] for index in self.arrangement.ordered]
        settled = [{self.formulas.atom(atoms.Has(key)): FALSE} for key in ordered]
        place = {key: number for number, key in enumerate(ordered)}
        for payload, properties in self.members.properties.items():
            watched = [key for key, formula in properties.items() if formula != TRUE]
            if payload.extra == TRUE and all(formula == TRUE for _, formula in payload.patterns) and place.keys() >= {*watched} and watched:
                settled[max(place[key] for key in watched)][self.formulas.atom(payload)] = TRUE
        return settled

    def asked_of_values(self) -> list[frozenset[int]]:
        """For each declared name the atoms that may be true or false by the value of a member of that name."""
        memberships = [atom for atom in frozenset().union(*map(self.formulas.atoms, self.conditions))
                       if isinstance(self.formulas.payload(atom), atoms.Members)]
        return [
            frozenset(atom for atom in memberships if self.members.derivative(atom, name_class) not in (FALSE, atom))
            for name_class in self.members.declared
        ]

    # ---- states

    def build(self) -> Rule:
        opened = self.builder.node()
        self.builder.byte(0, 0x7B, 0x7B, opened)
        self.state(self.construction.gap(self.builder, opened), None, (self.conditions, 0, 0))
        while self.queue:
            state = self.queue.pop()
            self.state(self.construction.gap(self.builder, self.after[state]), self.after[state], state)
        dfa, nodes = self.keys.build()
        base = self.builder.embed(dfa, nodes) if self.entries and dfa.states else 0
        for node, entry in self.entries:
            self.builder.epsilon(node, base + entry)
        self.construction.attempted += self.builder.nodes if self.kind == "relaxed" else 0
        return self.builder.build()

    def state(self, node: int, after: int | None, state: _State) -> None:
        """What may follow at ``node``: the closing brace, or a member (behind a comma if ``after`` is a node)."""
        conditions, position, barred = state
        declared, absent = self.ordered(conditions, position, barred)
        exit_ = self.construction.decided(absent, self.members.final)
        if exit_ >= 0:
            self.builder.byte(node, 0x7D, 0x7D, self.ends[exit_])
        if self.arrangement.unordered:
            declared = declared.copy()
            for index in self.arrangement.unordered:
                if not barred >> index & 1:
                    declared[index] = self.member((conditions, position, barred | self.arrangement.bars(index)), index)
        last = (absent, len(self.arrangement.ordered), barred)
        undeclared = last if self.arrangement.undeclared_last else state
        free = tuple(self.member(undeclared, ~number) for number in range(len(self.members.free))) if any(undeclared[0]) else ()
        entry = self.keys.place(declared, free)
        if entry >= 0:
            quoted = self.builder.node()
            behind = node if after is None else self.construction.separator(self.builder, after, b",")
            self.builder.byte(behind, 0x22, 0x22, quoted)
            self.entries.append((quoted, entry))

    def ordered(self, conditions: tuple[int, ...], position: int, barred: int) -> tuple[npt.NDArray[np.int32], tuple[int, ...]]:
        """Nodes after each ordered name from ``position`` on, and the conditions once all of those names are passed by.

        Where two positions come to owe the same, the rest of their way is the same and is taken over.
        """
        names = self.arrangement.ordered
        way: list[_State] = []
        while any(conditions) and position < len(names) and (conditions, position, barred) not in self.ways:
            self.construction.deadline.check(self.builder.name)
            way.append((conditions, position, barred))
            conditions = self.passed_by(conditions, position)
            position += 1
        declared = np.full(len(self.order), -1, np.int32)
        onward = self.ways.get((conditions, position, barred))
        if onward is not None:
            rest = list(names[position:])
            declared[rest] = onward[0][rest]
            conditions = onward[1]
        for owed, place, _ in way:
            declared[names[place]] = self.member((owed, place + 1, barred), names[place])
            self.ways[(owed, place, barred)] = (declared, conditions)
        return declared, conditions

    def passed_by(self, conditions: tuple[int, ...], position: int) -> tuple[int, ...]:
        """The conditions once the ordered name at ``position`` is passed by."""
        settled, formulas, memo = self.passing[position], self.formulas, dict[int, int]()
        return tuple(
            formula if formulas.atoms(formula).isdisjoint(settled) else formulas.substitute(formula, lambda a: settled.get(a, a), memo)
            for formula in conditions
        )

    def check_sets(self) -> None:
        places = len(self.after) * len(self.order)
        if self.kind == "relaxed" and (places > RELAXED_PLACES or self.builder.nodes > self.most_nodes):
            self.construction.attempted += self.builder.nodes
            raise TooManyStatesError
        if len(self.after) > ANY_ORDER_STATES:
            raise BudgetError(
                f"this object's {len(self.order)} properties need more than {ANY_ORDER_STATES:,} sets of names seen",
                pointer=self.builder.name,
                keyword="properties",
                hint="compile it with property_order='declared'",
            )

    def member(self, state: _State, number: int) -> int:
        """The node after the closing quote of a name: declared name ``number``, or free class ``~number``; -1 if no value could follow.

        ``state``: the conditions before the member; position and names barred after it.
        """
        key = (state, number)
        node = self.values.get(key)
        if node is None:
            self.check_sets()
            conditions, position, barred = state
            mixed = self.members.derived(conditions, self.members.class_of_number(number))
            if number >= 0 and not self.arrangement.loose[number]:
                mixed = self.passed_by(mixed, position - 1)
            node = -1
            if any(mixed):
                node = self.builder.node()
                read_value(
                    self.construction,
                    self.builder,
                    self.construction.separator(self.builder, node, b":"),
                    mixed,
                    lambda residual: self.after_member((residual, position, barred | self.harmed(conditions, residual, number))),
                )
            self.values[key] = node
        return node

    def harmed(self, before: tuple[int, ...], after: tuple[int, ...], number: int) -> int:
        """The bit of a name if a member of it settled what has to be failed, so that another one would overrule it; else 0."""
        if number < 0 or not self.asked:
            return 0
        denied = frozenset().union(*(self.formulas.signed(condition)[1] for condition in before)) & self.asked[number]
        return 1 << number if denied - frozenset().union(*map(self.formulas.atoms, after)) else 0

    def after_member(self, state: _State) -> int:
        node = self.after.get(state)
        if node is None:
            self.check_sets()
            self.construction.count_state(self.builder)
            node = self.after[state] = self.builder.node()
            self.queue.append(state)
        return node


def object_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """The rule of an object under ``key``'s conditions, names in ``key``'s order."""
    _, conditions, order = key
    members = MemberClasses(construction, conditions, order)
    kind = construction.expander.options.order
    if kind == "relaxed":
        plain = plain_object(members)
        rule = construction.attempt(lambda: plain.rule(key, name), RELAXED_EXPANSIONS) if plain is not None else None
        if rule is None:
            rule = construction.attempt(lambda: _ObjectRule(construction, members, name, kind).build(), RELAXED_EXPANSIONS)
        if rule is not None:
            return rule
        kind = "declared"
    return _ObjectRule(construction, members, name, kind).build()
