"""Planned rules -> the grammar form of the compiler: graphs with calls.

In: a ``Plan``. Out: an ``ir.Grammar`` whose root derives from the start rule. A rule without calls in it is made a minimal DFA once and
scanned wherever it is used; one with calls is written out wherever it is used; a called one is a rule. Terminals are DFAs of UTF-8.
Nothing is decided here about which byte calls or returns: ``compiler.calls`` checks that one byte does.

Cost: linear in what is written out, which ``max_states`` bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stcc.compiler.determinize import determinize_dfa
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, UnsatisfiableError
from stcc.compiler.frontends.context_free.recursion import CALLED, LEFT, LOOP, RIGHT, Plan
from stcc.compiler.frontends.context_free.syntax import (
    Alternatives,
    Expression,
    Reference,
    Repeat,
    Series,
    Terminal,
    children,
    references,
)
from stcc.compiler.frontends.regex import syntax as regex
from stcc.compiler.frontends.regex.language import tree_language
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.nfa import lower
from stcc.compiler.options import Deadline, Options
from stcc.compiler.trim import trim

_NODES_PER_STATE = 2
"""Nodes of graphs for each state that the options allow."""


@dataclass(frozen=True)
class _Frame:
    """A group of linear rules being written out: where references to its members jump to (RIGHT), or come from (LEFT).

    Attributes:
        nodes: of each member, its start (a jump to it) or its end (a jump from it).
        ends: nodes such that what is read up to one of them is the last thing of a member.
        start: of a LEFT frame, the node from which all members are read.
    """

    nodes: dict[str, int]
    ends: frozenset[int] = frozenset()
    start: int = -1


_NO_FRAME = _Frame({})


@dataclass
class _Target:
    """A rule under construction, and the frame of the rule being written out in it.

    ``starts[name, end]`` is where rule ``name``, written out up to node ``end``, begins: one copy serves wherever the same follows, so that
    levels of precedence, each of which names the next twice, do not double.
    """

    builder: RuleBuilder
    name: str
    frame: _Frame = _NO_FRAME
    starts: dict[tuple[str, int], int] = field(default_factory=dict)


class Lowering:
    """The rules of one grammar under construction.

    Args:
        planned: the plan.
        options: ``max_states`` bounds each DFA, and the nodes of all rules.
        deadline: the compile's clock.
    """

    def __init__(self, planned: Plan, options: Options, deadline: Deadline) -> None:
        self.plan, self.options, self.deadline = planned, options, deadline
        self.called = {name: number for number, name in enumerate((name for name, way in planned.ways.items() if way == CALLED), 1)}
        self.languages: dict[str, Dfa] = {}
        self._trees: dict[int, tuple[Expression, regex.Node | None]] = {}
        self._terminals: dict[regex.Node, Dfa] = {}
        self._written = 0

    def grammar(self, start: str) -> Grammar:
        """The grammar of what ``start`` derives. BudgetError past the limits, UnsatisfiableError where a pattern matches nothing."""
        used = {start} | {each.name for name, body in self.plan.bodies.items() for each in references(body)
                          if each.name not in self.plan.members.get(name, ())}
        for name in self.plan.order:
            self.deadline.check(name)
            if name in used and self._is_regular(name):
                self.languages[name] = self._language(name)
        root = self._rule(start, Reference(start))
        return Grammar((root, *(self._called_rule(name) for name in self.called)))

    # --- regular rules ---

    def _is_regular(self, name: str) -> bool:
        """Whether nothing is called from a rule; those that it refers to are known by now."""
        members = self.plan.members.get(name, (name,))
        return self.plan.ways.get(name) != CALLED and all(
            each.name in members or each.name in self.languages for member in members for each in references(self.plan.bodies[member]))

    def _language(self, name: str) -> Dfa:
        """The minimal DFA of a regular rule."""
        grammar = Grammar((self._rule(name, Reference(name)),))
        try:
            grammar = trim(grammar, self.deadline)
        except UnsatisfiableError:
            raise UnsatisfiableError("no text can be derived from this rule: a pattern in it matches nothing", keyword=name,
                                     hint="correct the pattern") from None
        nfa = lower(grammar, self.deadline)
        try:
            return minimize_dfa(determinize_dfa(nfa, max_states=self.options.max_states, deadline=self.deadline), self.deadline)
        except BudgetError as error:
            raise BudgetError(error.message, pointer=error.pointer or name, keyword=name,
                              hint="raise max_states (--max-states), or simplify this rule") from None

    # --- rules ---

    def _rule(self, name: str, body: Expression) -> Rule:
        target = _Target(RuleBuilder(name), name)
        end = target.builder.node()
        target.builder.exit(end, 0)
        self._build(target, body, 0, end)
        return self._finished(target)

    def _called_rule(self, name: str) -> Rule:
        """A rule that is called: references to itself in last place are jumps to its start."""
        target = _Target(RuleBuilder(name), name)
        builder = target.builder
        end, start = builder.node(), builder.node()
        builder.epsilon(0, start)
        builder.exit(end, 0)
        split = self.plan.loops.get(name)
        if split is None:
            target.frame = _Frame({name: start}, frozenset((end,)))
            self._build(target, self.plan.bodies[name], start, end)
        else:
            self._loop(target, name, split, start, end)
        return self._finished(target)

    def _finished(self, target: _Target) -> Rule:
        rule = target.builder.build()
        self._written += rule.nodes
        self._check_size(0, target.name)
        return rule

    def _check_size(self, nodes: int, name: str) -> None:
        self.deadline.check(name)
        if self._written + nodes > _NODES_PER_STATE * self.options.max_states:
            raise BudgetError(f"the rules spell out to more than {_NODES_PER_STATE * self.options.max_states:,} nodes", keyword=name,
                              hint="raise max_states (--max-states), or use smaller counts and fewer copies")

    # --- expressions ---

    def _build(self, target: _Target, expression: Expression, source: int, end: int) -> None:
        """Add ways from ``source`` to ``end`` that read what ``expression`` derives."""
        builder = target.builder
        self._check_size(builder.nodes, target.name)
        tree = self._tree(expression)
        if tree is not None:
            self._scan(target, tree, source, end)
        elif isinstance(expression, Reference):
            self._reference(target, expression.name, source, end)
        elif isinstance(expression, Series):
            self._series(target, expression.items, source, end)
        elif isinstance(expression, Alternatives):
            for option in expression.options:
                self._build(target, option, source, end)
        elif isinstance(expression, Repeat):
            self._repeat(target, expression, source, end)

    def _series(self, target: _Target, items: tuple[Expression, ...], source: int, end: int) -> None:
        """One item after the other. What may be repeated loops at the node where it begins, so that what stands before it and what it
        ends with are followed by the same.
        """
        loops = True  # a node with a loop of its own, or that others enter
        for place, item in enumerate(items):
            last = place == len(items) - 1
            if not loops and isinstance(item, Repeat) and (item.low, item.high) == (0, None):
                self._build(target, item.body, source, source)
                loops = True
                if last:
                    target.builder.epsilon(source, end)
            else:
                following = end if last else target.builder.node()
                self._build(target, item, source, following)
                source, loops = following, False

    def _scan(self, target: _Target, tree: regex.Node, source: int, end: int) -> None:
        builder = target.builder
        if tree == regex.EMPTY:
            builder.epsilon(source, end)
        elif isinstance(tree, regex.Characters) and all(high < 0x80 for _, high in tree.ranges):
            for low, high in tree.ranges:
                builder.byte(source, low, high, end)
        else:
            dfa = self._terminal(tree, target.name)
            if (dfa.accept >= 0).any():
                builder.scan(source, dfa, [end])

    def _terminal(self, tree: regex.Node, name: str) -> Dfa:
        """The DFA of a pattern in rule ``name``."""
        found = self._terminals.get(tree)
        if found is None:
            try:
                found = tree_language(tree, mode="fullmatch", max_states=self.options.max_states, deadline=self.deadline)
            except BudgetError as error:
                raise BudgetError(error.message, keyword=name, hint=error.hint) from None
            self._terminals[tree] = found
        return found

    def _repeat(self, target: _Target, expression: Repeat, source: int, end: int) -> None:
        """Copies in a row, those beyond the fewest skippable; an unbounded repetition ends in a loop."""
        builder = target.builder
        if (expression.low, expression.high) == (0, 1):
            builder.epsilon(source, end)
            self._build(target, expression.body, source, end)
            return
        loop = builder.node()
        for copy in range(expression.low):
            following = builder.node() if expression.high is not None or copy < expression.low - 1 else loop
            self._build(target, expression.body, source, following)
            source = following
        if expression.high is None:
            if not expression.low:
                builder.epsilon(source, loop)
            self._build(target, expression.body, loop, loop)
            source = loop
        for _ in range((expression.high or 0) - expression.low):
            builder.epsilon(source, end)
            following = builder.node()
            self._build(target, expression.body, source, following)
            source = following
        builder.epsilon(source, end)

    def _reference(self, target: _Target, name: str, source: int, end: int) -> None:
        """A jump inside the frame, a scan, a call, or the rule written out."""
        builder, frame = target.builder, target.frame
        if name in frame.nodes and end in frame.ends:
            builder.epsilon(source, frame.nodes[name])
        elif name in frame.nodes and source == frame.start:
            builder.epsilon(frame.nodes[name], end)
        elif name in self.called:
            builder.call(source, self.called[name], [end])
        elif name in self.languages:
            builder.scan(source, self.languages[name], [end])
        else:
            self._write_out(target, name, source, end)

    def _write_out(self, target: _Target, name: str, source: int, end: int) -> None:
        """The rule between ``source`` and ``end``; a recursive one with a frame of its own."""
        builder, outer = target.builder, target.frame
        known = target.starts.get((name, end))
        if known is not None:
            builder.epsilon(source, known)
            return
        begin = target.starts[name, end] = builder.node()
        builder.epsilon(source, begin)
        source = begin
        way = self.plan.ways.get(name)
        members = self.plan.members.get(name, ())
        target.frame = _NO_FRAME
        if way == RIGHT:
            last = builder.node()
            nodes = {member: builder.node() for member in members}
            builder.epsilon(source, nodes[name])
            builder.epsilon(last, end)
            target.frame = _Frame(nodes, frozenset((last,)))
            for member, node in nodes.items():
                self._build(target, self.plan.bodies[member], node, last)
        elif way == LEFT:
            first = builder.node()
            nodes = {member: builder.node() for member in members}
            builder.epsilon(source, first)
            builder.epsilon(nodes[name], end)
            target.frame = _Frame(nodes, start=first)
            for member, node in nodes.items():
                self._build(target, self.plan.bodies[member], first, node)
        elif way == LOOP:
            start = builder.node()
            builder.epsilon(source, start)
            self._loop(target, name, self.plan.loops[name], start, end)
        else:
            self._build(target, self.plan.bodies[name], source, end)
        target.frame = outer

    def _loop(self, target: _Target, name: str, split: tuple[Expression, Expression], start: int, end: int) -> None:
        """``b g*`` from ``start``: references to the rule itself at the end of a b or a g jump back."""
        loop = target.builder.node()
        target.frame = _Frame({name: start}, frozenset((loop,)))
        self._build(target, split[0], start, loop)
        self._build(target, split[1], loop, loop)
        target.builder.epsilon(loop, end)

    # --- terminals ---

    def _tree(self, expression: Expression) -> regex.Node | None:
        """The pattern that an expression without references is; None for others."""
        known = self._trees.get(id(expression))
        if known is None:
            known = self._trees[id(expression)] = expression, self._folded(expression)
        return known[1]

    def _folded(self, expression: Expression) -> regex.Node | None:
        if isinstance(expression, Terminal):
            return expression.tree
        if isinstance(expression, Reference):
            return None
        inner = [self._tree(each) for each in children(expression)]
        trees = [tree for tree in inner if tree is not None]
        if len(trees) < len(inner):
            return None
        if isinstance(expression, Repeat):
            return regex.Repetition(trees[0], expression.low, expression.high, 0)
        return regex.sequence(trees) if isinstance(expression, Series) else regex.choice(trees)
