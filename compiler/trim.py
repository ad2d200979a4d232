"""Trim a grammar: from every configuration that it can reach, some accepting one can be reached.

In: any grammar. Out: a grammar of *variants*, rules specialised to the exits that some caller wants, without dead nodes, edges and
calls; blocks may keep dead states, which lowering drops. Afterwards every call's returns are alive and every exit of a
variant is wanted by all its callers. Exits are renumbered from 0 per variant, except that a call in tail position keeps its
caller's numbers, so that it can become a jump. Cost: linear in nodes + edges, times the variants of a rule (one, nearly always).

Two fixpoints. *Productive*: which exits a rule can reach at all (least; a call's return opens when its exit is found). *Wanted*: from
the root with exit 0, a call wants the exits whose returns are alive in its caller's variant.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import GrammarEdges, grammar_edges, group
from stcc.compiler.errors import UnsatisfiableError
from stcc.compiler.ir import Block, CallEdge, Grammar, Rule
from stcc.compiler.options import Deadline

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

Wanted = tuple[int, ...]  # for each exit of the rule its number in the variant, -1 where it is not wanted


def trim(grammar: Grammar, deadline: Deadline | None = None) -> Grammar:
    """The trimmed grammar; the root's variant is rule 0.

    Raises UnsatisfiableError, naming the innermost rule that nothing can satisfy, when the language is empty;
    BudgetError past the deadline.
    """
    productive = _Productive(grammar, deadline)
    if 0 not in productive.exits[grammar.root]:
        rule = grammar.rules[_innermost_empty(grammar, productive.exits)]
        raise UnsatisfiableError("nothing can satisfy this", pointer=rule.name, hint="relax the constraints that contradict each other")
    return _Variants(grammar, productive, deadline).run()


def verify_trimmed(grammar: Grammar) -> list[str]:
    """Every broken invariant, as one sentence each: exits are productive, call nodes are reached, returns are alive."""
    productive = _Productive(grammar)
    broken = []
    for number, rule in enumerate(grammar.rules):
        base = int(productive.edges.bases[number])
        alive = productive.live_nodes(number, tuple(range(rule.exit_count)))
        unreached = [node for node in {call.node for call in rule.calls} if not productive.seen[base + node]]
        if unreached or not alive[0]:
            broken.append(f"rule {number}: its start and its calls lie on a way to an exit")
        for call in rule.calls:
            if any(node < 0 or not alive[node] for node in (call.returns[exit_] for exit_ in productive.exits[call.rule])):
                broken.append(f"rule {number}: every exit a callee may take returns to a live node")
    return broken


class _Productive:
    """The first fixpoint: nodes reached from each rule's start, and exits found, calls crossed only through found exits."""

    def __init__(self, grammar: Grammar, deadline: Deadline | None = None) -> None:
        self.grammar, self.deadline = grammar, deadline
        self.edges: GrammarEdges = grammar_edges(grammar)
        self.bases: list[int] = self.edges.bases.tolist()
        nodes = self.bases[-1]
        moves = np.concatenate([self.edges.reads, self.edges.epsilons])
        offsets, targets = group(moves[:, 0], moves[:, 1], nodes)
        self.offsets: list[int] = offsets.tolist()
        self.targets: list[int] = targets.tolist()
        self.calls_at: dict[int, list[CallEdge]] = {}
        self.exits_at: dict[int, list[tuple[int, int]]] = {}
        for number, rule in enumerate(grammar.rules):
            for call in rule.calls:
                self.calls_at.setdefault(self.bases[number] + call.node, []).append(call)
            for node, exit_ in rule.exits:
                self.exits_at.setdefault(self.bases[number] + node, []).append((number, exit_))
        self.seen = bytearray(nodes)
        self.exits: list[set[int]] = [set() for _ in grammar.rules]
        self.waiting: list[list[tuple[int, CallEdge]]] = [[] for _ in grammar.rules]
        self._explore()
        crossed = [(base + node, base + call.node) for base, call in self._open_calls()
                   for node in {call.returns[exit_] for exit_ in self.exits[call.rule]} if node >= 0]
        backward = np.concatenate([moves[:, ::-1], np.array(crossed, np.int64).reshape(-1, 2)])
        offsets, targets = group(backward[:, 0], backward[:, 1], nodes)
        self.back_offsets: list[int] = offsets.tolist()
        self.back_targets: list[int] = targets.tolist()

    def _open_calls(self) -> list[tuple[int, CallEdge]]:
        return [pair for pairs in self.waiting for pair in pairs]

    def _explore(self) -> None:
        stack: list[int] = []
        self._enter(self.bases[self.grammar.root], stack)
        while stack:
            node = stack.pop()
            if self.deadline is not None:
                self.deadline.check()
            for target in self.targets[self.offsets[node]:self.offsets[node + 1]]:
                self._enter(target, stack)
            for rule, exit_ in self.exits_at.get(node, ()):
                if exit_ not in self.exits[rule]:
                    self.exits[rule].add(exit_)
                    for base, call in self.waiting[rule]:
                        self._land(base, call, exit_, stack)
            if node in self.calls_at:
                self._call(node, stack)

    def _enter(self, node: int, stack: list[int]) -> None:
        if not self.seen[node]:
            self.seen[node] = 1
            stack.append(node)

    def _land(self, base: int, call: CallEdge, exit_: int, stack: list[int]) -> None:
        if call.returns[exit_] >= 0:
            self._enter(base + call.returns[exit_], stack)

    def _call(self, node: int, stack: list[int]) -> None:
        """A reached call enters its callee and crosses through the exits found so far."""
        for call in self.calls_at[node]:
            base = node - call.node
            self.waiting[call.rule].append((base, call))
            self._enter(self.bases[call.rule], stack)
            for exit_ in self.exits[call.rule]:
                self._land(base, call, exit_, stack)

    def live_nodes(self, rule: int, wanted: Wanted) -> Bool:
        """bool ``[nodes of the rule]``: reached, and reaching a wanted exit."""
        base, nodes = self.bases[rule], self.grammar.rules[rule].nodes
        live = bytearray(nodes)
        stack = []
        for node, exit_ in self.grammar.rules[rule].exits:
            if wanted[exit_] >= 0 and self.seen[base + node] and not live[node]:
                live[node] = 1
                stack.append(base + node)
        while stack:
            node = stack.pop()
            for source in self.back_targets[self.back_offsets[node]:self.back_offsets[node + 1]]:
                if self.seen[source] and not live[source - base]:
                    live[source - base] = 1
                    stack.append(source)
        return np.frombuffer(live, np.uint8).astype(np.bool_)


class _Variants:
    """The second fixpoint: variants of rules, numbered in order of demand."""

    def __init__(self, grammar: Grammar, productive: _Productive, deadline: Deadline | None) -> None:
        self.grammar, self.productive, self.deadline = grammar, productive, deadline
        root = grammar.rules[grammar.root]
        self.demanded: list[tuple[int, Wanted]] = []
        self.numbers: dict[tuple[int, Wanted], int] = {}
        self.demand(grammar.root, tuple(0 if exit_ == 0 else -1 for exit_ in range(root.exit_count)))
        self.reading = {node for node in productive.edges.reads[:, 0].tolist()}

    def demand(self, rule: int, wanted: Wanted) -> int:
        """The number of a variant."""
        key = (rule, wanted)
        if key not in self.numbers:
            self.numbers[key] = len(self.demanded)
            self.demanded.append(key)
        return self.numbers[key]

    def run(self) -> Grammar:
        """Build variants until no new one is demanded."""
        rules: list[Rule] = []
        while len(rules) < len(self.demanded):
            rule, wanted = self.demanded[len(rules)]
            if self.deadline is not None:
                self.deadline.check(self.grammar.rules[rule].name)
            rules.append(self.build(rule, wanted))
        return Grammar(tuple(rules), 0)

    def build(self, number: int, wanted: Wanted) -> Rule:
        """One variant: live nodes, live edges, calls that can return."""
        rule = self.grammar.rules[number]
        live = self.productive.live_nodes(number, wanted)
        calls = [self.restrict(number, call, live, wanted) for call in rule.calls if live[call.node]]
        kept_calls = [call for call in calls if call is not None]
        exits = tuple(dict.fromkeys((node, wanted[exit_]) for node, exit_ in rule.exits if live[node] and wanted[exit_] >= 0))
        exit_count = max(wanted) + 1
        marks = tuple(mark for mark in rule.marks if live[mark[0]])
        if live.all():
            return Rule(rule.name, rule.nodes, rule.bytes_, rule.epsilons, rule.blocks, tuple(kept_calls), exits, exit_count, marks)
        blocks = [block for block in rule.blocks if live[block.base:block.base + block.dfa.states].any()]
        keep = live.copy()
        for block in blocks:
            keep[block.base:block.base + block.dfa.states] = True
        place = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        bytes_ = rule.bytes_[live[rule.bytes_[:, 0]] & live[rule.bytes_[:, 3]]].copy()
        bytes_[:, [0, 3]] = place[bytes_[:, [0, 3]]]
        epsilons = place[rule.epsilons[live[rule.epsilons].all(axis=1)]]
        return Rule(
            rule.name, int(keep.sum()), bytes_, epsilons, tuple(Block(block.dfa, int(place[block.base])) for block in blocks),
            tuple(CallEdge(int(place[call.node]), call.rule, tuple(int(place[node]) if node >= 0 else -1 for node in call.returns))
                  for call in kept_calls),
            tuple((int(place[node]), exit_) for node, exit_ in exits), exit_count,
            tuple((int(place[node]), several) for node, several in marks),
        )

    def restrict(self, number: int, call: CallEdge, live: Bool, wanted: Wanted) -> CallEdge | None:
        """The call of the callee's variant that returns to live nodes only; None if no exit does."""
        alive = {exit_: call.returns[exit_] for exit_ in sorted(self.productive.exits[call.rule])
                 if call.returns[exit_] >= 0 and live[call.returns[exit_]]}
        if not alive:
            return None
        ends = [self.bare_exit(number, node, live, wanted) for node in alive.values()]
        names = ends if min(ends) >= 0 else range(len(ends))
        named = dict(zip(alive, names, strict=True))
        returns = [-1] * (max(named.values()) + 1)
        for exit_, name in named.items():
            returns[name] = alive[exit_]
        variant = self.demand(call.rule, tuple(named.get(exit_, -1) for exit_ in range(len(call.returns))))
        return CallEdge(call.node, variant, tuple(returns))

    def bare_exit(self, number: int, node: int, live: Bool, wanted: Wanted) -> int:
        """The variant's exit if ``node`` can do nothing but end the rule through it, else -1."""
        productive, base = self.productive, self.productive.bases[number]
        seen, stack, found = {node}, [base + node], set()
        while stack:
            current = stack.pop()
            if current in productive.calls_at or current in self.reading:
                return -1
            found |= {wanted[exit_] for _, exit_ in productive.exits_at.get(current, ()) if wanted[exit_] >= 0}
            for target in productive.targets[productive.offsets[current]:productive.offsets[current + 1]]:
                if live[target - base] and target - base not in seen:
                    seen.add(target - base)
                    stack.append(target)
        return found.pop() if len(found) == 1 else -1


def _innermost_empty(grammar: Grammar, exits: list[set[int]]) -> int:
    """From the root, follow calls to rules without productive exits as far as they lead."""
    rule, passed = grammar.root, {grammar.root}
    while True:
        deeper = [call.rule for call in grammar.rules[rule].calls if not exits[call.rule] and call.rule not in passed]
        if not deeper:
            return rule
        rule = deeper[0]
        passed.add(rule)


def productive_exits(grammar: Grammar) -> list[set[int]]:
    """For each rule the exits that some text takes; those of a rule that the root does not reach are not looked for."""
    return _Productive(grammar).exits
