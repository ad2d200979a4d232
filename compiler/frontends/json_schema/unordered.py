"""Plain objects in relaxed order: a rule for one member, called from a state for each set of names still owed.

A condition is *plain* if it is a conjunction in which a member of any name leaves the parts that look at values as they are and adds only
an obligation on its own value: properties, patterns, additional properties and names, in whatever combination, without alternatives that
span members. Then what a member's value must satisfy does not depend on the members before it, so one *member rule* reads any member and
leaves through an exit that says which owed name it was, or none. The states around it are the sets of names still owed (and the number of
members still allowed): ``2 ** owed`` call sites instead of as many key automata. Names may repeat: to know which were there would
take a member rule for each set of them, and half again the time of compiling a typical schema. A rule can't end right behind a call
inside a value (no pop follows a pop without a byte between), so behind the name of an array that is counted on the stack the member rule
leaves, and its caller reads the value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey, TooManyStatesError
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.keys import KeyAutomaton
from stcc.compiler.frontends.json_schema.members import MemberClasses, NameClass
from stcc.compiler.frontends.json_schema.values import counted_on_the_stack, read_value
from stcc.compiler.ir import Rule, RuleBuilder

MOST_OWED = 8
"""Most required names of one object that may come in any order."""
MOST_COUNTED = 32
"""Most copies, one for each set of owed names, that values counted on the stack may take behind the member rule."""
MOST_NODES = 8000
"""Most nodes of an object's rule, which such values may take."""
_Exit = tuple[str | None, int]
"""How the member rule leaves: the name if it is one that may be owed, the formula of the value that is still to be read or TRUE."""


@dataclass(frozen=True)
class PlainObject:
    """A plain condition, taken apart.

    Attributes:
        members: the classes of names.
        owing: the parts of the condition about which and how many names there are.
        values: for each declared name, then each undeclared class, the formula over ``Sat`` that its value must satisfy; FALSE: not
            admitted.
        ends: for each of them the exit of the member rule, a number into ``exits``.
        exits: the different ways to leave the member rule.
    """

    members: MemberClasses
    owing: int
    values: tuple[int, ...]
    ends: tuple[int, ...]
    exits: tuple[_Exit, ...]

    def rule(self, key: RuleKey, name: str) -> Rule:
        """The object's rule, which calls the member rule of the same ``key``."""
        return _PlainRule(self, key, name).build()


def plain_object(members: MemberClasses) -> PlainObject | None:
    """The object taken apart if it has one condition and that is plain, with few names owed; else None."""
    if len(members.conditions) != 1 or members.construction.operators(members.conditions):
        return None
    formulas = members.formulas
    parts = formulas.conjuncts(members.conditions[0])
    owed = {payload.key for part in parts if isinstance(payload := formulas.payload(part), atoms.Has)}
    owing = [part for part in parts if _about_names(members, part)]
    if len(owed) > MOST_OWED:
        return None
    rest = frozenset(parts) - {*owing}
    if members.construction.decided((formulas.conjunction(rest),), members.final) != 0:
        return None
    values: list[int] = []
    ends: list[int] = []
    exits: dict[_Exit, int] = {}
    for name_class in (*members.declared, *members.free):
        value = _value_formula(members, rest, name_class)
        if value is None:
            return None
        values.append(value)
        exit_ = name_class[0] if name_class[0] in owed else None, value if counted_on_the_stack(members.construction, value) else TRUE
        ends.append(exits.setdefault(exit_, len(exits)))
    counted = sum(value != TRUE for _, value in exits)
    if counted << len(owed) > MOST_COUNTED:
        return None
    return PlainObject(members, formulas.conjunction(owing), tuple(values), tuple(ends), tuple(exits))


def _about_names(members: MemberClasses, part: int) -> bool:
    """Whether a conjunct is that a name is there, that one member at least is, or that no more than so many are."""
    formulas = members.formulas
    payload, negated = formulas.payload(part), formulas.payload(formulas.negation(part))
    return (
        isinstance(payload, atoms.Has)
        or (isinstance(payload, atoms.CountAtLeast) and payload.count == 1)
        or isinstance(negated, atoms.CountAtLeast)
    )


def _value_formula(members: MemberClasses, rest: frozenset[int], name_class: NameClass) -> int | None:
    """What a member of this class must satisfy, given that it leaves ``rest`` as it is; None if it does not."""
    formulas = members.formulas
    (derived,) = members.derived((formulas.conjunction(rest),), name_class)
    if derived == FALSE:
        return FALSE
    parts = {*formulas.conjuncts(derived)}
    added = formulas.conjunction(parts - rest)
    return added if rest <= parts and all(map(members.construction.is_sat, formulas.atoms(added))) else None


class _PlainRule:
    def __init__(self, plain: PlainObject, key: RuleKey, name: str) -> None:
        self.plain, self.members = plain, plain.members
        self.construction, self.builder = plain.members.construction, RuleBuilder(name)
        self.member = self.construction.rule(("member", key[1], key[2]), name) if any(plain.values) else -1
        self.after: dict[int, int] = {}
        self.behind_names: dict[tuple[int, int], int] = {}
        self.queue: list[int] = []
        self.end = self.builder.node()
        self.builder.exit(self.end, 0)

    def build(self) -> Rule:
        opened = self.builder.node()
        self.builder.byte(0, 0x7B, 0x7B, opened)
        self.state(self.construction.gap(self.builder, opened), None, self.plain.owing)
        while self.queue:
            owing = self.queue.pop()
            self.state(self.construction.gap(self.builder, self.after[owing]), self.after[owing], owing)
        return self.builder.build()

    def state(self, node: int, after: int | None, owing: int) -> None:
        if self.construction.decided((owing,), self.members.final) == 0:
            self.builder.byte(node, 0x7D, 0x7D, self.end)
        returns = [self.landing(owing, *exit_) for exit_ in self.plain.exits]
        if self.member >= 0 and any(target >= 0 for target in returns):
            behind = node if after is None else self.construction.separator(self.builder, after, b",")
            self.builder.call(behind, self.member, returns)

    def landing(self, owing: int, key: str | None, value: int) -> int:
        """The node behind the member rule, where ``value`` is read if there is one; -1 if such a member may not come."""
        (left,) = self.members.derived((owing,), (key, frozenset(), frozenset()))
        if left == FALSE:
            return -1
        if value == TRUE:
            return self.after_member(left)
        node = self.behind_names.get((left, value))
        if node is None:
            if self.builder.nodes > MOST_NODES:
                raise TooManyStatesError
            node = self.behind_names[(left, value)] = self.builder.node()
            start = self.construction.gap(self.builder, node)
            read_value(self.construction, self.builder, start, (value,), lambda residual: self.after_member(left))
        return node

    def after_member(self, owing: int) -> int:
        node = self.after.get(owing)
        if node is None:
            self.construction.count_state(self.builder)
            node = self.after[owing] = self.builder.node()
            self.queue.append(owing)
        return node


def member_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """One member of the plain object of ``key``: its exits are ``PlainObject.exits``."""
    _, conditions, order = key
    members = MemberClasses(construction, conditions, order)
    plain = plain_object(members)
    assert plain is not None, "a member rule is asked for by a plain object's rule"
    builder = RuleBuilder(name, len(plain.exits))
    ends = [builder.node() for _ in plain.exits]
    for exit_, node in enumerate(ends):
        builder.exit(node, exit_)

    def behind_name(value: int, exit_: int) -> int:
        node = builder.node()
        if plain.exits[exit_][1] != TRUE:
            colon = b": " if construction.whitespace == "spaced" else b":"
            builder.literal(construction.gap(builder, node), colon, ends[exit_])
        else:
            read_value(construction, builder, construction.separator(builder, node, b":"), (value,), lambda residual: ends[exit_],
                       last=True)
        return node

    ways = dict.fromkeys(zip(plain.values, plain.ends, strict=True))
    nodes = {way: behind_name(*way) if way[0] != FALSE else -1 for way in ways}
    targets = [nodes[way] for way in zip(plain.values, plain.ends, strict=True)]
    keys = KeyAutomaton(order, members.free_names, construction.expander.options.max_states)
    entry = keys.place(np.array(targets[: len(order)], np.int32), tuple(targets[len(order) :]))
    if entry >= 0:
        dfa, labels = keys.build()
        quoted = builder.node()
        builder.byte(0, 0x22, 0x22, quoted)
        builder.epsilon(quoted, builder.embed(dfa, labels) + entry)
    return builder.build()
