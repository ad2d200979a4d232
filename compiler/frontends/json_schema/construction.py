"""From formulas to a grammar: value positions, and the work list of rules.

A value position holds *outcomes*: exclusive conditions over ``Sat``, each with the node at which reading goes on. The first byte of a value
tells its type, so the position is compiled type by type: constants and scalars in line, objects and arrays as calls of the rule
for (type, conditions), which leaves through exit j when condition j holds. Conditions that no caller wants are never tracked, and a
value for which none holds is not admitted: a schema without alternatives has one condition everywhere and costs nothing extra.
This is the determinisation of nested-word automata (Alur and Madhusudan, Visibly pushdown languages, STOC 2004) restricted to
what is reachable.
"""

from __future__ import annotations

from collections.abc import Callable

from stcc.compiler.errors import BudgetError, CompileError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.counted import counted_string
from stcc.compiler.frontends.json_schema.expansion import Expander, merged_order
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.scalars import ScalarLanguages
from stcc.compiler.frontends.json_schema.unevaluated import Unevaluated, covered_names, payload_of
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.options import Deadline

Outcomes = list[tuple[int, int]]
RuleKey = tuple[str, tuple[int, ...], tuple[str, ...]]
_LARGE_STRING = 256
"""A string DFA of more states becomes a rule, so that several uses can share it (the inliner takes single uses back)."""


class Construction:
    """One compile's rules. Container rules are built by the functions registered in ``builders`` (type -> builder)."""

    def __init__(self, expander: Expander, scalars: ScalarLanguages, deadline: Deadline, builders: dict[str, Callable[[Construction, RuleKey, str], Rule]]) -> None:
        self.expander, self.scalars, self.deadline, self.formulas = expander, scalars, deadline, expander.formulas
        self.whitespace = expander.options.whitespace
        self.states = 0
        self.shannon: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._builders = builders
        self._rules: list[Rule | None] = []
        self._numbers: dict[RuleKey, int] = {}
        self._queue: list[tuple[int, RuleKey, str]] = []
        self._mentioned: dict[tuple[int, ...], dict[str, None]] = {}

    def grammar(self) -> Grammar:
        """The grammar of the document's root schema."""
        document = self.expander.document
        root = RuleBuilder(document.schemas[document.root].pointer)
        self._rules.append(None)
        end = root.node()
        root.exit(end, 0)
        self.value(root, 0, [(self.expander.sat(document.root), end)])
        self._rules[0] = root.build()
        while self._queue:
            number, key, name = self._queue.pop()
            self._rules[number] = self._builders[key[0]](self, key, name)
        return Grammar(tuple(rule for rule in self._rules if rule is not None))

    def count_state(self, name: str) -> None:
        """Charge one structural state to the budget. Raises BudgetError naming the rule that grew."""
        self.states += 1
        self.deadline.check(name)
        if self.states > self.expander.options.max_states:
            raise BudgetError(f"the schema needs more than {self.states - 1} structural states", pointer=name,
                              hint="raise max_states, or simplify the alternatives here")

    def is_sat(self, atom: int) -> bool:
        """Whether an atom is a ``Sat``."""
        return isinstance(self.formulas.payload(atom), atoms.Sat)

    def operators(self, conditions: tuple[int, ...]) -> list[Unevaluated]:
        """The payloads of the operators in ``conditions``, in a fixed order."""
        return [payload_of(self.formulas, operator) for operator in sorted(frozenset().union(*map(self.formulas.operators, conditions)))]

    def branches(self, mixed: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        """Residual tuples of formulas that mix ``Sat`` with container atoms, each with its condition over ``Sat``."""
        return self.formulas.outcomes(mixed, self.is_sat, self.shannon)

    def decided(self, formulas: tuple[int, ...], final: Callable[[int], int]) -> int:
        """Which formula holds once every atom takes its final value; -1 if none does."""
        memo: dict[int, int] = {}
        return next((j for j, formula in enumerate(formulas) if self.formulas.substitute(formula, final, memo, _nothing_left) == TRUE), -1)

    # ---- value positions

    def value(self, builder: RuleBuilder, source: int, outcomes: Outcomes) -> None:
        """Read one JSON value from ``source``; where condition c holds of it, go on at its node."""
        for type_ in atoms.TYPES:
            restricted = [(self.expander.restrict(condition, type_), node, condition) for condition, node in outcomes]
            alive = [item for item in restricted if item[0] != FALSE]
            if not alive:
                continue
            try:
                self._typed(builder, source, type_, alive)
            except CompileError as error:
                if error.pointer:
                    raise
                raise type(error)(error.message, pointer=self._name([item[2] for item in alive], builder.name), keyword=error.keyword,
                                  hint=error.hint) from None

    def _typed(self, builder: RuleBuilder, source: int, type_: str, alive: list[tuple[int, int, int]]) -> None:
        conditions, targets = tuple(item[0] for item in alive), [item[1] for item in alive]
        if type_ == "null":
            builder.literal(source, b"null", targets[conditions.index(TRUE)])
        elif type_ == "boolean":
            self._boolean(builder, source, conditions, targets)
        elif type_ == "number":
            builder.scan(source, self.scalars.numbers(conditions), targets)
        elif type_ == "string":
            self._string(builder, source, conditions, targets)
        else:
            order = self._order(conditions, [item[2] for item in alive]) if type_ == "object" else ()
            builder.call(source, self.rule((type_, conditions, order), self._name([item[2] for item in alive], builder.name)), targets)

    def _boolean(self, builder: RuleBuilder, source: int, conditions: tuple[int, ...], targets: list[int]) -> None:
        for value, text in ((True, b"true"), (False, b"false")):
            def final(atom: int, value: bool = value) -> int:
                return TRUE if self.formulas.payload(atom) == atoms.BooleanIs(value) else FALSE
            chosen = self.decided(conditions, final)
            if chosen >= 0:
                builder.literal(source, text, targets[chosen])

    def _string(self, builder: RuleBuilder, source: int, conditions: tuple[int, ...], targets: list[int]) -> None:
        bounds = self.scalars.length_bounds(conditions[0]) if len(conditions) == 1 else None
        if bounds is not None:
            opened = builder.node()
            builder.byte(source, 0x22, 0x22, opened)
            counted_string(self, builder, opened, bounds, targets[0])
            return
        dfa = self.scalars.strings(conditions)
        if dfa.states > _LARGE_STRING:
            builder.call(source, self.rule(("string", conditions, ()), builder.name), targets)
            return
        opened = builder.node()
        builder.byte(source, 0x22, 0x22, opened)
        builder.scan(opened, dfa, targets)

    # ---- rules

    def rule(self, key: RuleKey, name: str) -> int:
        """The number of the rule for ``key``, queued on first sight."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._rules)
            self._rules.append(None)
            self._queue.append((number, key, name))
        return number

    def _schemas(self, conditions: list[int]) -> list[int]:
        found = sorted(set().union(*(self.formulas.atoms(condition) for condition in conditions)))
        return [payload.schema for payload in map(self.formulas.payload, found) if isinstance(payload, atoms.Sat)]

    def _order(self, conditions: tuple[int, ...], values: list[int]) -> tuple[str, ...]:
        """The property names that an object's ``conditions`` look at, in order of appearance in the schemas behind ``values``."""
        mentioned = self._mentioned.get(conditions)
        if mentioned is None:
            used = sorted(set().union(*(self.formulas.atoms(condition) for condition in conditions)))
            names = [key for atom in used for key in _names_of(self.formulas.payload(atom))]
            names += [key for payload in self.operators(conditions) for key in covered_names(payload.coverage)]
            mentioned = self._mentioned[conditions] = dict.fromkeys(names)
        if not mentioned:
            return ()
        appearing = merged_order([key for key in self.expander.key_order(schema) if key in mentioned] for schema in self._schemas(values))
        return tuple({**dict.fromkeys(appearing), **mentioned})

    def _name(self, conditions: list[int], fallback: str) -> str:
        schemas = self._schemas(conditions)
        return self.expander.document.schemas[schemas[0]].pointer if schemas else fallback

    # ---- spelling

    def gap(self, builder: RuleBuilder, node: int) -> int:
        """The node after optional whitespace: ``node`` itself unless whitespace is flexible."""
        if self.whitespace != "flexible":
            return node
        loop = builder.node()
        for low, high in ((0x20, 0x20), (0x09, 0x0A), (0x0D, 0x0D)):
            builder.byte(loop, low, high, loop)
        builder.epsilon(node, loop)
        return loop

    def separator(self, builder: RuleBuilder, node: int, mark: bytes) -> int:
        """The node after ``,`` or ``:`` read at ``node``, with the whitespace that the mode puts around it."""
        after = builder.node()
        builder.literal(self.gap(builder, node), mark + (b" " if self.whitespace == "spaced" else b""), after)
        return self.gap(builder, after)


def _nothing_left(payload: object, before: tuple[int, ...], after: tuple[int, ...]) -> int:
    return TRUE  # no member is left unevaluated where none follows


def _names_of(payload: object) -> list[str]:
    if isinstance(payload, atoms.Members):
        return [key for key, _ in payload.properties]
    return [payload.key] if isinstance(payload, atoms.Has) else []


def string_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """A large string as a rule: from quote to quote, exit j where condition j holds."""
    conditions = key[1]
    builder = RuleBuilder(name, len(conditions))
    opened = builder.node()
    builder.byte(0, 0x22, 0x22, opened)
    ends = [builder.node() for _ in conditions]
    for exit_, node in enumerate(ends):
        builder.exit(node, exit_)
    builder.scan(opened, construction.scalars.strings(conditions), ends)
    return builder.build()
