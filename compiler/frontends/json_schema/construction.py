"""The work list of rules: from the formulas of a document to a grammar.

Value positions (``values.py``) ask for the rule of (type, conditions); container rules (``objects.py``,
``arrays.py``) leave through exit j where condition j holds. Conditions that no caller wants are never tracked: a
schema without alternatives has one condition everywhere and costs nothing extra. This is the determinisation of
nested-word automata (Alur and Madhusudan, Visibly pushdown languages, STOC 2004) restricted to what is reachable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from stcc.compiler.errors import BudgetError, CompileError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.expansion import Expander
from stcc.compiler.frontends.json_schema.formula import TRUE
from stcc.compiler.frontends.json_schema.order import KeyOrders
from stcc.compiler.frontends.json_schema.scalars import ScalarLanguages
from stcc.compiler.frontends.json_schema.spacing import white_space
from stcc.compiler.frontends.json_schema.unevaluated import Unevaluated, payload_of
from stcc.compiler.frontends.json_schema.values import read_value
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.options import Deadline

NODES_PER_STATE = 10
"""Most nodes of the grammar for each state allowed. Large schemas have two to eight a state before minimisation."""
MOST_CONDITIONS = 16
"""Most conditions that an attempt (``Construction.attempt``) may want a value told apart by."""
RuleKey = tuple[str, tuple[int, ...], tuple[str, ...]]


class TooManyStatesError(Exception):
    """A way to build a rule costs more than another one that will do; caught by ``Construction.attempt``."""


class Construction:
    """One compile's rules. Container rules are built by the functions registered in ``builders`` (type -> builder)."""

    def __init__(
        self,
        expander: Expander,
        scalars: ScalarLanguages,
        deadline: Deadline,
        builders: Mapping[str, Callable[[Construction, RuleKey, str], Rule]],
    ) -> None:
        self.expander, self.scalars, self.deadline, self.formulas = expander, scalars, deadline, expander.formulas
        self.orders = KeyOrders(expander.document)
        self.whitespace = expander.options.whitespace
        self.states = self.nodes = self.sites_in_line = self.attempted = 0
        self.most_expansions = sys.maxsize
        self.shannon: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._builders = builders
        self._rules: list[Rule | None] = []
        self._numbers: dict[RuleKey, int] = {}
        self._queue: list[tuple[int, RuleKey, str]] = []
        self.settled: dict[tuple[tuple[int, ...], str], tuple[int, ...]] = {}
        self.mentioned: dict[tuple[int, ...], dict[str, None]] = {}

    def grammar(self) -> Grammar:
        """The grammar of the document's root schema."""
        document = self.expander.document
        root = RuleBuilder(document.schemas[document.root].pointer)
        self._rules.append(None)
        end = root.node()
        root.exit(end, 0)
        read_value(self, root, 0, (self.expander.sat(document.root),), lambda residual: end, last=True)
        self._rules[0] = root.build()
        self.build_queue()
        return Grammar(tuple(rule for rule in self._rules if rule is not None))

    def build_queue(self) -> None:
        """Build the rules asked for, and those that they ask for; an error that names no place gets the rule's."""
        while self._queue:
            number, key, name = self._queue.pop()
            try:
                rule = self._rules[number] = self._builders[key[0]](self, key, name)
            except CompileError as error:
                if error.pointer:
                    raise
                raise type(error)(error.message, pointer=name, keyword=error.keyword, hint=error.hint) from None
            self.nodes += rule.nodes

    def count_state(self, builder: RuleBuilder) -> None:
        """Charge one structural state of the rule under construction to the budget. Raises BudgetError naming the rule that grew."""
        self.states += 1
        self.deadline.check(builder.name)
        most = self.expander.options.max_states
        if self.states > most or self.nodes + builder.nodes > NODES_PER_STATE * most:
            raise BudgetError(
                f"the schema needs more than {most} states",
                pointer=builder.name,
                hint="raise max_states (--max-states), or lower the counts or simplify the alternatives here",
            )

    def takes_sites(self, sites: int, most: int) -> bool:
        """Whether ``sites`` more calls still fit where they stand, of ``most`` in the grammar; if so they are counted."""
        fits = self.sites_in_line + sites <= most
        self.sites_in_line += sites if fits else 0
        return fits

    def is_sat(self, atom: int) -> bool:
        """Whether an atom is a ``Sat``. Asked at every step of an expansion, so the clock is looked at here."""
        self.deadline.check()
        if len(self.shannon) > self.most_expansions:
            raise TooManyStatesError
        return isinstance(self.formulas.payload(atom), atoms.Sat)

    def operators(self, conditions: tuple[int, ...]) -> list[Unevaluated]:
        """The payloads of the operators in ``conditions``, in a fixed order."""
        return [payload_of(self.formulas, operator) for operator in sorted(frozenset().union(*map(self.formulas.operators, conditions)))]

    def decided(self, formulas: tuple[int, ...], final: Callable[[int], int]) -> int:
        """Which formula holds once every atom takes its final value; -1 if none does."""
        memo: dict[int, int] = {}
        return next((j for j, formula in enumerate(formulas) if self.formulas.substitute(formula, final, memo, _nothing_left) == TRUE), -1)

    # ---- rules

    def rule(self, key: RuleKey, name: str) -> int:
        """The number of the rule for ``key``, queued on first sight."""
        number = self._numbers.get(key)
        if number is None:
            if len(key[1]) > MOST_CONDITIONS and self.most_expansions < sys.maxsize:
                raise TooManyStatesError
            number = self._numbers[key] = len(self._rules)
            self._rules.append(None)
            self._queue.append((number, key, name))
        return number

    def attempt(self, build: Callable[[], Rule], most_expansions: int) -> Rule | None:
        """``build()``; None, and every trace of it undone, if it raises ``TooManyStatesError``, as it does past so many expansions."""
        rules, queued, states = len(self._rules), len(self._queue), self.states
        self.most_expansions = len(self.shannon) + most_expansions
        try:
            return build()
        except TooManyStatesError:
            for _, key, _ in self._queue[queued:]:
                del self._numbers[key]
            del self._rules[rules:], self._queue[queued:]
            self.states = states
            return None
        finally:
            self.most_expansions = sys.maxsize

    # ---- spelling

    def gap(self, builder: RuleBuilder, node: int) -> int:
        """The node after optional whitespace: ``node`` itself unless whitespace is flexible."""
        return white_space(builder, node) if self.whitespace == "flexible" else node

    def separator(self, builder: RuleBuilder, node: int, mark: bytes) -> int:
        """The node after ``,`` or ``:`` read at ``node``, with the whitespace that the mode puts around it."""
        after = builder.node()
        builder.literal(self.gap(builder, node), mark + (b" " if self.whitespace == "spaced" else b""), after)
        return self.gap(builder, after)


def _nothing_left(payload: object, before: tuple[int, ...], after: tuple[int, ...]) -> int:
    return TRUE  # no member is left unevaluated where none follows


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
