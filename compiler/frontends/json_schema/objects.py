"""Object rules by derivatives: read a member, and what remains is a formula over object atoms again.

A state is (residual conditions, names passed). By default declared names come in order of appearance, so passing one by decides that it is
absent, a position says which are passed, and undeclared names come after all declared ones. In any order, the set of names seen is
tracked, up to a budget. The rule leaves through exit j at the ``}`` where condition j holds. Names are told apart by
the key automaton: each declared name is its own class, undeclared ones are classed by the patterns and name conditions that look at them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.keys import KeyAutomaton
from stcc.compiler.frontends.json_schema.unevaluated import Unevaluated, covered_patterns, covers_member
from stcc.compiler.frontends.json_schema.values import read_value
from stcc.compiler.ir import Rule, RuleBuilder

ANY_ORDER_STATES = 4096
"""Most states of one object whose names may come in any order: all sets of 12 names."""
_State = tuple[tuple[int, ...], int]
_NameClass = tuple[str | None, frozenset[str], frozenset[int]]
"""A class of names: the declared name or None, the patterns it matches, the name conditions (formulas) it satisfies."""


class _ObjectRule:
    def __init__(self, construction: Construction, conditions: tuple[int, ...], order: tuple[str, ...], name: str) -> None:
        self.construction, self.formulas, self.conditions = construction, construction.formulas, conditions
        self.builder = RuleBuilder(name, len(conditions))
        used = [self.formulas.payload(atom) for atom in sorted(set().union(*(self.formulas.atoms(c) for c in conditions)))]
        self.order = order
        self.free_order = construction.expander.options.property_order == "any"
        covered = [pattern for payload in construction.operators(conditions) for pattern in covered_patterns(payload.coverage)]
        self.patterns = sorted(
            {pattern for payload in used if isinstance(payload, atoms.Members) for pattern, _ in payload.patterns} | {*covered}
        )
        self.name_conditions = sorted({payload.formula for payload in used if isinstance(payload, atoms.Names)})
        self.declared = [self.class_of(key) for key in self.order]
        self.properties = {payload: dict(payload.properties) for payload in used if isinstance(payload, atoms.Members)}
        self.passing = self.settled_by_passing()
        self.free_classes: list[_NameClass] = []
        self.keys = KeyAutomaton(self.order, self.free_names(), construction.expander.options.max_states)
        self.after: dict[_State, int] = {}
        self.ways: dict[_State, tuple[npt.NDArray[np.int32], tuple[int, ...]]] = {}
        self.values: dict[tuple[tuple[int, ...], int, int], int] = {}
        self.queue: list[_State] = []
        self.entries: list[tuple[int, int]] = []
        self.ends = [self.builder.node() for _ in conditions]
        for exit_, node in enumerate(self.ends):
            self.builder.exit(node, exit_)

    def settled_by_passing(self) -> list[dict[int, int]]:
        """For each declared name the atoms that are settled, and their truth, once it is passed by: that it is there, and obligations on
        the values of declared names of which it is the last. (Otherwise every set of obligations met would be a state of its own.)
        """
        settled = [{self.formulas.atom(atoms.Has(key)): FALSE} for key in self.order]
        index = {key: place for place, key in enumerate(self.order)}
        for payload, properties in self.properties.items():
            if payload.extra == TRUE and all(formula == TRUE for _, formula in payload.patterns):
                last = max((index[key] for key, formula in properties.items() if formula != TRUE), default=-1)
                settled[last][self.formulas.atom(payload)] = TRUE
        return settled

    # ---- name classes

    def class_of(self, key: str) -> _NameClass:
        raw = key.encode("utf-8", "surrogatepass")
        scalars = self.construction.scalars
        return (
            key,
            frozenset(p for p in self.patterns if scalars.pattern(p).match(raw) >= 0),
            frozenset(c for c in self.name_conditions if scalars.holds(self.string_condition(c), key)),
        )

    def string_condition(self, condition: int) -> int:
        return self.construction.expander.restrict(condition, "string")

    def free_names(self) -> Dfa | None:
        """A raw DFA labelling undeclared names with their class in ``free_classes``; None where no undeclared name can be admitted."""
        if not self.patterns and not self.name_conditions:
            self.free_classes.append((None, frozenset(), frozenset()))
            return algebra.utf8_strings() if any(self.derived(self.conditions, self.free_classes[0])) else None
        scalars = self.construction.scalars
        dfas = [scalars.pattern(p) for p in self.patterns] + [scalars.raw((self.string_condition(c),)) for c in self.name_conditions]
        split = len(self.patterns)

        def label(vector: tuple[int, ...]) -> int:
            self.free_classes.append(
                (
                    None,
                    frozenset(p for p, found in zip(self.patterns, vector[:split], strict=True) if found >= 0),
                    frozenset(c for c, found in zip(self.name_conditions, vector[split:], strict=True) if found >= 0),
                )
            )
            return len(self.free_classes) - 1

        return algebra.product(
            dfas,
            label,
            universe=algebra.utf8_strings(),
            max_states=self.construction.expander.options.max_states,
            deadline=self.construction.deadline,
        )

    # ---- states

    def build(self) -> Rule:
        opened = self.builder.node()
        self.builder.byte(0, 0x7B, 0x7B, opened)
        self.state(self.construction.gap(self.builder, opened), None, (self.conditions, 0))
        while self.queue:
            state = self.queue.pop()
            self.state(self.construction.gap(self.builder, self.after[state]), self.after[state], state)
        dfa, nodes = self.keys.build()
        base = self.builder.embed(dfa, nodes) if self.entries and dfa.states else 0
        for node, entry in self.entries:
            self.builder.epsilon(node, base + entry)
        return self.builder.build()

    def state(self, node: int, after: int | None, state: _State) -> None:
        """What may follow at ``node``: the closing brace, or a member (behind a comma if ``after`` is a node)."""
        conditions, passed = state
        declared, absent = (self.any_order if self.free_order else self.declared_order)(conditions, passed)
        exit_ = self.construction.decided(absent, self.final)
        if exit_ >= 0:
            self.builder.byte(node, 0x7D, 0x7D, self.ends[exit_])
        undeclared = (conditions, passed) if self.free_order else (absent, len(self.order))
        free = tuple(self.member(*undeclared, ~number) for number in range(len(self.free_classes))) if any(undeclared[0]) else ()
        entry = self.keys.place(declared, free)
        if entry >= 0:
            quoted = self.builder.node()
            behind = node if after is None else self.construction.separator(self.builder, after, b",")
            self.builder.byte(behind, 0x22, 0x22, quoted)
            self.entries.append((quoted, entry))

    def declared_order(self, conditions: tuple[int, ...], position: int) -> tuple[npt.NDArray[np.int32], tuple[int, ...]]:
        """Nodes after each declared name from ``position`` on, and the conditions once all of those names are passed by.

        Where two positions come to owe the same, the rest of their way is the same and is taken over.
        """
        way: list[tuple[tuple[int, ...], int]] = []
        while any(conditions) and position < len(self.order) and (conditions, position) not in self.ways:
            self.construction.deadline.check(self.builder.name)
            way.append((conditions, position))
            conditions = self.passed_by(conditions, position)
            position += 1
        declared = np.full(len(self.order), -1, np.int32)
        onward = self.ways.get((conditions, position))
        if onward is not None:
            declared[position:] = onward[0][position:]
            conditions = onward[1]
        for owed, index in way:
            declared[index] = self.member(owed, index + 1, index)
            self.ways[(owed, index)] = (declared, conditions)
        return declared, conditions

    def passed_by(self, conditions: tuple[int, ...], position: int) -> tuple[int, ...]:
        """The conditions once declared name ``position`` is passed by."""
        settled, formulas, memo = self.passing[position], self.formulas, dict[int, int]()
        return tuple(
            formula if formulas.atoms(formula).isdisjoint(settled) else formulas.substitute(formula, lambda a: settled.get(a, a), memo)
            for formula in conditions
        )

    def any_order(self, conditions: tuple[int, ...], seen: int) -> tuple[npt.NDArray[np.int32], tuple[int, ...]]:
        """Nodes after each declared name not in the set ``seen`` (a bit each), and the conditions as they are."""
        if len(self.after) > ANY_ORDER_STATES:
            raise BudgetError(
                f"in any order, this object's {len(self.order)} properties need more than {ANY_ORDER_STATES:,} sets of names seen",
                pointer=self.builder.name,
                keyword="properties",
                hint="compile it with property_order='declared'",
            )
        declared = [-1 if seen >> index & 1 else self.member(conditions, seen | 1 << index, index) for index in range(len(self.order))]
        return np.array(declared, np.int32), conditions

    def member(self, conditions: tuple[int, ...], passed: int, number: int) -> int:
        """The node after the closing quote of a name: declared name ``number``, or free class ``~number``; -1 if no value could follow.

        ``passed`` belongs to the states after the member.
        """
        key = (conditions, passed, number)
        node = self.values.get(key)
        if node is None:
            name_class = self.declared[number] if number >= 0 else self.free_classes[~number]
            mixed = self.derived(conditions, name_class)
            if number >= 0 and not self.free_order:
                mixed = self.passed_by(mixed, number)
            node = -1
            if any(mixed):
                node = self.builder.node()
                read_value(
                    self.construction,
                    self.builder,
                    self.construction.separator(self.builder, node, b":"),
                    mixed,
                    lambda residual: self.after_member((residual, passed)),
                )
            self.values[key] = node
        return node

    def after_member(self, state: _State) -> int:
        node = self.after.get(state)
        if node is None:
            self.construction.count_state(self.builder)
            node = self.after[state] = self.builder.node()
            self.queue.append(state)
        return node

    # ---- derivatives

    def derived(self, conditions: tuple[int, ...], name_class: _NameClass) -> tuple[int, ...]:
        """The conditions after a member whose name is of ``name_class``, over ``Sat`` of its value and object atoms."""
        key, patterns, _ = name_class
        formulas = self.formulas

        def rebuild(payload: object, before: tuple[int, ...], after: tuple[int, ...]) -> int:
            assert isinstance(payload, Unevaluated)
            evaluated = covers_member(formulas, payload.coverage, after, key, patterns)
            return formulas.conjunction([formulas.operator(payload, after), formulas.disjunction([evaluated, payload.formula])])

        memo: dict[int, int] = {}
        return tuple(formulas.substitute(formula, lambda atom: self.derivative(atom, name_class), memo, rebuild) for formula in conditions)

    def derivative(self, atom: int, name_class: _NameClass) -> int:
        payload, formulas = self.formulas.payload(atom), self.formulas
        key, patterns, names = name_class
        if isinstance(payload, atoms.Has):
            return TRUE if payload.key == key else atom
        if isinstance(payload, atoms.CountAtLeast):
            return formulas.atom(atoms.CountAtLeast(payload.count - 1)) if payload.count > 1 else TRUE
        if isinstance(payload, atoms.Names):
            return atom if payload.formula in names else FALSE
        if isinstance(payload, atoms.Members):
            needed = [formula for pattern, formula in payload.patterns if pattern in patterns]
            declared = self.properties[payload].get(key) if key is not None else None
            if declared is not None:
                needed.append(declared)
            return formulas.conjunction([atom, *(needed if needed or declared is not None else (payload.extra,))])
        return atom

    def final(self, atom: int) -> int:
        """The value of ``atom`` when no member follows."""
        return TRUE if isinstance(self.formulas.payload(atom), (atoms.Members, atoms.Names)) else FALSE


def object_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """The rule of an object under ``key``'s conditions, names in ``key``'s order."""
    _, conditions, order = key
    return _ObjectRule(construction, conditions, order, name).build()
