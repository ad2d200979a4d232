"""Object rules by derivatives: read a member, and what remains is a formula over object atoms again.

A state is (residual conditions, position, names barred). ``arrangement.py`` says what may come when: *ordered* names come in order of
appearance, so that passing one by decides that it is absent and a position says which are passed; of *barred* names the set seen is
tracked; the others may come at any time, and again, until a member of theirs settles what has to be failed. The rule leaves through
exit j at the ``}`` where condition j holds. Names are told apart by the key automaton: each declared name is its own class, undeclared
ones are classed by the patterns and name conditions that look at them.

In *partly* relaxed order a state is *free* at first: any name may follow, as in relaxed order. Free states are explored best first, those
that owe least before others, so that a union is free once its alternative is known; where those allowed are spent, and where a value
would have to tell too many alternatives apart, members go on in the order of appearance.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from stcc.compiler.errors import BudgetError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.arrangement import (
    ANY_ORDER_STATES,
    FREE_STATES,
    FRUGAL_NODES,
    MOST_UNDECIDED,
    RELAXED_ALLOWANCE,
    RELAXED_EXPANSIONS,
    RELAXED_NODES,
    RELAXED_PLACES,
    SETTLED_STATES,
    arrangement,
)
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey, TooManyStatesError
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.keys import KeyAutomaton
from stcc.compiler.frontends.json_schema.members import MemberClasses
from stcc.compiler.frontends.json_schema.unordered import plain_object
from stcc.compiler.frontends.json_schema.values import read_value
from stcc.compiler.ir import Rule, RuleBuilder

_FREE = -1
"""Position of a free state."""
_State = tuple[tuple[int, ...], int, int]
"""Residual conditions, how many ordered names are passed, the barred names that occurred (a bit each)."""


class _ObjectRule:
    def __init__(self, construction: Construction, members: MemberClasses, name: str, kind: str, free_states: int = 0) -> None:
        self.construction, self.formulas, self.conditions = construction, construction.formulas, members.conditions
        self.members, self.order = members, members.order
        self.builder = RuleBuilder(name, len(self.conditions))
        self.kind, self.arrangement = kind, arrangement(self.formulas, self.conditions, self.order, kind)
        self.passing = self.settled_by_passing()
        self.asked = self.asked_of_values() if kind in ("relaxed", "partly") else []
        self.keys = KeyAutomaton(self.order, members.free_names, construction.expander.options.max_states)
        self.after: dict[_State, int] = {}
        self.ways: dict[_State, tuple[npt.NDArray[np.int32], tuple[int, ...]]] = {}
        self.values: dict[tuple[_State, int], int] = {}
        frugal = construction.attempted > RELAXED_ALLOWANCE
        self.most_nodes = sys.maxsize if kind in ("any", "declared") else FRUGAL_NODES if frugal else RELAXED_NODES
        self.queue: list[_State] = []
        self.waiting: list[tuple[int, int, _State]] = []
        self.free_left = {False: free_states, True: SETTLED_STATES} if kind == "partly" else {}
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
        first = _FREE if self.kind == "partly" else 0
        self.state(self.construction.gap(self.builder, opened), None, (self.conditions, first, 0))
        while self.queue or self.waiting:
            state = self.queue.pop() if self.queue else heapq.heappop(self.waiting)[2]
            self.state(self.construction.gap(self.builder, self.after[state]), self.after[state], state)
        dfa, nodes = self.keys.build()
        base = self.builder.embed(dfa, nodes) if self.entries and dfa.states else 0
        for node, entry in self.entries:
            self.builder.epsilon(node, base + entry)
        self.construction.attempted += self.builder.nodes if self.kind in ("relaxed", "partly") else 0
        return self.builder.build()

    def state(self, node: int, after: int | None, state: _State) -> None:
        """What may follow at ``node``: the closing brace, or a member (behind a comma if ``after`` is a node)."""
        conditions, position, barred = state
        if position == _FREE and not self.may_be_free(conditions):
            position = 0
        if position == _FREE:
            absent, declared = conditions, np.array([self.freely(conditions, index, barred) for index in range(len(self.order))], np.int32)
        else:
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
        undeclared = last if self.arrangement.undeclared_last and position != _FREE else (conditions, position, barred)
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
            if not barred >> names[place] & 1:
                declared[names[place]] = self.member((owed, place + 1, barred), names[place])
            self.ways[(owed, place, barred)] = (declared, conditions)
        return declared, conditions

    def may_be_free(self, conditions: tuple[int, ...]) -> bool:
        """Whether one more state may be free; if so it is counted, apart from others if no alternatives are left in it."""
        formulas = self.formulas
        literals = (part in formulas.atoms(part) or formulas.negation(part) in formulas.atoms(part)
                    for condition in conditions for part in formulas.conjuncts(condition))
        settled = all(literals)
        self.free_left[settled] -= 1
        return self.free_left[settled] >= 0

    def freely(self, conditions: tuple[int, ...], index: int, barred: int) -> int:
        """The node after the name ``index`` in a free state; -1 if it may not come."""
        if barred >> index & 1:
            return -1
        mixed = self.members.derived(conditions, self.members.declared[index])
        if self.undecided(mixed) <= MOST_UNDECIDED:
            return self.member((conditions, _FREE, barred), index)
        for place in range(index):
            conditions = self.passed_by(conditions, place)
        return self.member((conditions, index + 1, barred), index)

    def undecided(self, mixed: tuple[int, ...]) -> int:
        """How many subschemas an object or array would be asked to tell apart."""
        restrict, construction = self.construction.expander.restrict, self.construction
        sats = [atom for atom in frozenset().union(*map(self.formulas.atoms, mixed)) if construction.is_sat(atom)]
        return max(sum(restrict(sat, type_) not in (FALSE, TRUE) for sat in sats) for type_ in ("object", "array"))

    def passed_by(self, conditions: tuple[int, ...], position: int) -> tuple[int, ...]:
        """The conditions once the ordered name at ``position`` is passed by."""
        settled = self.passing[position]
        memo = settled.copy()
        return tuple(self.formulas.decide(formula, settled, memo) for formula in conditions)

    def check_sets(self) -> None:
        places = len(self.after) * len(self.order)
        if (self.kind == "relaxed" and places > RELAXED_PLACES) or (self.kind != "any" and self.builder.nodes > self.most_nodes):
            self.construction.attempted += self.builder.nodes
            raise TooManyStatesError
        if len(self.after) > ANY_ORDER_STATES:
            raise BudgetError(
                f"this object's {len(self.order)} properties need more than {ANY_ORDER_STATES:,} states, sets of names seen or owed",
                pointer=self.builder.name,
                keyword="properties",
                hint="compile it with property_order='declared'" if self.kind == "any" else "simplify its alternatives, or split it",
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
            if number >= 0 and not self.arrangement.loose[number] and position != _FREE:
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
            if state[1] == _FREE:
                owed = len(frozenset().union(*map(self.formulas.atoms, state[0])))
                heapq.heappush(self.waiting, (owed, len(self.after), state))
            else:
                self.queue.append(state)
        return node


def object_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """The rule of an object under ``key``'s conditions, names in ``key``'s order."""
    _, conditions, order = key
    members = MemberClasses(construction, conditions, order)
    kind = construction.expander.options.order
    if kind == "relaxed":
        for build in _relaxed(construction, members, key, name):
            rule = construction.attempt(build, RELAXED_EXPANSIONS)
            if rule is not None:
                return rule
        kind = "declared"
    return _ObjectRule(construction, members, name, kind).build()


def _relaxed(construction: Construction, members: MemberClasses, key: RuleKey, name: str) -> Iterator[Callable[[], Rule]]:
    """Ways to build an object's rule in relaxed order, the freest first."""
    plain = plain_object(members)
    if plain is not None:
        yield lambda: plain.rule(key, name)
    yield lambda: _ObjectRule(construction, members, name, "relaxed").build()
    for free_states in FREE_STATES:
        yield lambda: _ObjectRule(construction, members, name, "partly", free_states).build()  # noqa: B023 - called at once
