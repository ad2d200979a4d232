"""Objects as tagged text: ``(open NAME between VALUE close)* end``, strings raw, every other value as JSON.

In: an object's condition, as for an object in JSON (``objects.py``), and how tags are spelled. Out: its rule, which ends with ``end``.
The members are the same derivatives, so every keyword holds of tagged arguments too: required ones are there, none comes twice, and
``property_order`` says in which order they come. Afterwards no value holds a marker (``embedding.py``), so where a value ends is
never in doubt. A value is a rule of its own that ends with ``close``: plain text values of all tools are one.

What a reader makes of a value depends on its schema alone: where only strings are admitted the text is the string; where others are
too, text that spells a JSON value other than a string is that value, and strings that would be taken for one are not admitted. Cost: as
an object rule; a value rule for each distinct set of conditions on a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, UnsupportedError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.keys import KeyAutomaton
from stcc.compiler.frontends.json_schema.members import MemberClasses
from stcc.compiler.frontends.json_schema.values import _Position
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.ir import Rule, RuleBuilder

OBJECT, TEXT, VALUE = "tagged object", "tagged text", "tagged value"
ANY_ORDER_STATES = 4096
"""Most sets of parameter names that one tool's arguments may have to tell apart."""
_OTHERS = tuple(type_ for type_ in atoms.TYPES if type_ != "string")
_JSON_LIKE = r"[ \t\r\n]*([\[{\x22][\s\S]*|(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity)[ \t\r\n]*)"
"""Text that a lenient JSON reader may take for a value."""


@dataclass(frozen=True)
class Tags:
    """How tagged arguments are spelled: ``(open NAME between VALUE close)* end``.

    ``between`` starts with an ASCII character that no name holds; ``close`` ends a value, which holds none of the embedding's markers.
    """

    open: str
    between: str
    close: str
    end: str


Builder = Callable[[Construction, RuleKey, str], Rule]


def tagged_rules(tags: Tags) -> dict[str, Builder]:
    """The builders of the rules that tagged objects need, by kind."""

    def object_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
        return _TaggedObject(construction, MemberClasses(construction, key[1], key[2]), name, tags).build()

    def text_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
        builder, closing = _closing(len(key[1]), name, tags)
        builder.scan(0, construction.scalars.raw(key[1]), closing)
        return builder.build()

    def value_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
        return _value_rule(construction, key[1], name, tags)

    return {OBJECT: object_rule, TEXT: text_rule, VALUE: value_rule}


def _closing(exits: int, name: str, tags: Tags) -> tuple[RuleBuilder, list[int]]:
    """A rule under construction, and for each exit the node from which ``close`` leads to it."""
    builder = RuleBuilder(name, exits)
    closing = []
    for exit_ in range(exits):
        node, end = builder.node(), builder.node()
        builder.literal(node, tags.close.encode(), end)
        builder.exit(end, exit_)
        closing.append(node)
    return builder, closing


def _value_rule(construction: Construction, conditions: tuple[int, ...], name: str, tags: Tags) -> Rule:
    """A value of any type; conditions are over ``Sat`` and exclude each other."""
    builder, closing = _closing(len(conditions), name, tags)
    for type_ in _OTHERS:
        position = _Position(construction, builder, 0, type_, lambda residual: closing[residual.index(TRUE)])
        settled = position.settle(conditions)
        if any(settled):
            position.read(settled)
    restricted = [construction.expander.restrict(condition, "string") for condition in conditions]
    alive = [place for place, condition in enumerate(restricted) if condition != FALSE]
    if alive:
        text = construction.scalars.raw(tuple(restricted[place] for place in alive))
        builder.scan(0, algebra.difference(text, _json_like(), deadline=construction.deadline), [closing[place] for place in alive])
    return builder.build()


@lru_cache(maxsize=1)
def _json_like() -> Dfa:
    return compile_pattern(_JSON_LIKE, dialect="python", mode="fullmatch")


_State = tuple[tuple[int, ...], int]
"""Residual conditions; how many names are passed, or the set of names that occurred (a bit each)."""


class _TaggedObject:
    """The rule under construction. By default names come in order of appearance; ``property_order`` "any" tracks those that occurred."""

    def __init__(self, construction: Construction, members: MemberClasses, name: str, tags: Tags) -> None:
        self.construction, self.formulas, self.members, self.tags = construction, construction.formulas, members, tags
        self.names = members.order
        self.any_order = construction.expander.options.property_order in ("any", "relaxed")
        self.builder = RuleBuilder(name, len(members.conditions))
        held = next((key for key in self.names if not key or any(mark in key for mark in "<>") or any(map(str.isspace, key))), None)
        if held is not None:
            raise UnsupportedError(f"the property name {held!r} cannot be spelled between tags", pointer=name, keyword="properties",
                                   hint="names hold no white space and no angle brackets")
        self.passing = self.settled_by_passing()
        self.keys = KeyAutomaton(self.names, _plain_names(members.free_names), construction.expander.options.max_states,
                                 lambda names: _ended(names, tags.between.encode()[0]))
        self.after: dict[_State, int] = {}
        self.values: dict[tuple[_State, int], int] = {}
        self.queue: list[_State] = []
        self.entries: list[tuple[int, int]] = []
        self.ends = [self.builder.node() for _ in members.conditions]
        for exit_, node in enumerate(self.ends):
            self.builder.exit(node, exit_)

    def settled_by_passing(self) -> list[dict[int, int]]:
        """For each declared name the atoms that are settled once it is passed by: that it is there, and what asks for no later value."""
        settled = [{self.formulas.atom(atoms.Has(key)): FALSE} for key in self.names]
        index = {key: place for place, key in enumerate(self.names)}
        for payload, properties in self.members.properties.items():
            if payload.extra == TRUE and all(formula == TRUE for _, formula in payload.patterns):
                last = max((index[key] for key, formula in properties.items() if formula != TRUE), default=-1)
                if last >= 0:
                    settled[last][self.formulas.atom(payload)] = TRUE
        return settled

    def build(self) -> Rule:
        self.state(0, (self.members.conditions, 0))
        while self.queue:
            state = self.queue.pop()
            self.state(self.after[state], state)
        dfa, nodes = self.keys.build()
        base = self.builder.embed(dfa, nodes) if self.entries and dfa.states else 0
        for node, entry in self.entries:
            self.builder.epsilon(node, base + entry)
        return self.builder.build()

    def state(self, node: int, state: _State) -> None:
        """What may follow at ``node``: the end, or a member."""
        conditions, passed = state
        declared = np.full(len(self.names), -1, np.int32)
        if self.any_order:
            for index in range(len(self.names)):
                if not passed >> index & 1:
                    declared[index] = self.member((conditions, passed | 1 << index), index)
        else:
            for index in range(passed, len(self.names)):
                declared[index] = self.member((conditions, index + 1), index)
                conditions = self.passed_by(conditions, index)
        exit_ = self.construction.decided(conditions, self.members.final)
        if exit_ >= 0:
            self.builder.literal(node, self.tags.end.encode(), self.ends[exit_])
        undeclared = (conditions, passed if self.any_order else len(self.names))
        free = tuple(self.member(undeclared, ~number) for number in range(len(self.members.free))) if any(conditions) else ()
        entry = self.keys.place(declared, free)
        if entry >= 0:
            named = self.builder.node()
            self.builder.literal(node, self.tags.open.encode(), named)
            self.entries.append((named, entry))

    def passed_by(self, conditions: tuple[int, ...], position: int) -> tuple[int, ...]:
        """The conditions once the name at ``position`` is passed by."""
        settled, memo = self.passing[position], dict[int, int]()
        return tuple(self.formulas.substitute(condition, lambda atom: settled.get(atom, atom), memo) for condition in conditions)

    def member(self, state: _State, number: int) -> int:
        """The node after the first byte of ``between``, for declared name ``number`` or undeclared class ``~number``; -1 if no value could
        follow. ``state``: the conditions before the member, and what is passed after it.
        """
        node = self.values.get((state, number))
        if node is None:
            conditions, passed = state
            mixed = self.members.derived(conditions, self.members.class_of_number(number))
            if number >= 0 and not self.any_order:
                mixed = self.passed_by(mixed, number)
            node = self.values[(state, number)] = self.builder.node() if any(mixed) else -1
            if node >= 0:
                self.read_member(node, mixed, lambda residual: self.after_member((residual, passed)))
        return node

    def after_member(self, state: _State) -> int:
        """The node after a member."""
        if state not in self.after:
            self.construction.count_state(self.builder)
            if self.any_order and len(self.after) >= ANY_ORDER_STATES:
                raise BudgetError(
                    f"in any order, these {len(self.names)} parameters need more than {ANY_ORDER_STATES:,} sets of names seen",
                    pointer=self.builder.name, keyword="properties", hint="compile it with property_order='declared'",
                )
            self.after[state] = self.builder.node()
            self.queue.append(state)
        return self.after[state]

    def read_member(self, node: int, mixed: tuple[int, ...], after: Callable[[tuple[int, ...]], int]) -> None:
        """Read what follows a name at ``node``: the rest of ``between``, the value, and ``close``."""
        valued = self.builder.node()
        self.builder.literal(node, self.tags.between.encode()[1:], valued)
        construction = self.construction
        outcomes = construction.formulas.outcomes(mixed, construction.is_sat, construction.shannon)
        targets, conditions = [after(residual) for residual in outcomes], tuple(outcomes.values())
        expand = construction.expander.restrict
        name = _Position(construction, self.builder, node, "string", lambda residual: 0).name(mixed)
        if any(expand(condition, type_) != FALSE for condition in conditions for type_ in _OTHERS):
            self.builder.call(valued, construction.rule((VALUE, conditions, ()), name), targets)
            return
        texts = [expand(condition, "string") for condition in conditions]
        alive = [place for place, text in enumerate(texts) if text != FALSE]
        if alive:
            rule = construction.rule((TEXT, tuple(texts[place] for place in alive), ()), name)
            self.builder.call(valued, rule, [targets[place] for place in alive])


def _plain_names(names: Dfa | None) -> Dfa | None:
    """The undeclared names that tags can hold: not empty, without white space and angle brackets."""
    if names is None:
        return None
    return algebra.product([names, compile_pattern(r"[^\s<>\x00-\x1f]+", dialect="python", mode="fullmatch")],
                           lambda labels: labels[0] if labels[1] >= 0 else -1, required=(0, 1))


def _ended(names: Dfa, terminator: int) -> Dfa:
    """The names followed by the byte ``terminator``, which none of them holds; labels are kept, and nothing follows."""
    shared = int(names.byte_class[terminator])
    alone = int((names.byte_class == shared).sum()) == 1
    column = shared if alone else names.classes
    byte_class = names.byte_class.copy()
    byte_class[terminator] = column
    table = names.table.copy() if alone else np.concatenate([names.table, np.zeros((names.states, 1), np.int32)], axis=1)
    accepting = np.flatnonzero(names.accept >= 0)
    labels, which = np.unique(names.accept[accepting], return_inverse=True)
    table[:, column] = -1
    table[accepting, column] = names.states + which.reshape(-1)
    table = np.concatenate([table, np.full((len(labels), table.shape[1]), -1, np.int32)])
    accept = np.concatenate([np.full(names.states, -1, np.int32), labels.astype(np.int32)])
    return Dfa(byte_class, table.astype(np.int32), accept, names.start)
