"""Inline rules at their calls, so that a call remains only where it shares much or recurses.

In: a trimmed grammar. Out: an equivalent one. A rule that is called once, or is small, is copied into its callers, bottom-up, unless it
is recursive; its exits become epsilons to the call's returns. Equal calls in one rule share a copy. Rules that nothing calls any more go.
Copies never take the grammar beyond ``max_nodes``: where one would, the call stays. Cost: linear in the nodes written, of which there
are at most ``REWRITES`` times as many as nodes: a long chain of rules, each called once, would be written again at every link.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import components
from stcc.compiler.ir import Block, CallEdge, Grammar, Rule
from stcc.compiler.options import Deadline

Int32 = npt.NDArray[np.int32]

# Nodes. Over 105 schemas of MaskBench (every 50th, those with rules) the limits 0, 16, 64, 128 and 256 give 585.4, 585.6, 584.8, 585.1 and
# 586.3 KB of compressed machines and 960, 965, 879, 872 and 840 call sites: size hardly cares, and a site saved is work saved in binding.
SMALL_RULE = 64
MOST_COPIED = 4096
"""Nodes that all copies of one rule may add: a small rule called a thousand times stays a call."""

MOST_CALLS_COPIED = 200
"""Calls that all copies of one rule may add: binding takes time for each."""
REWRITES = 4


def inline(grammar: Grammar, max_nodes: int = 200_000, *, small: int = SMALL_RULE, deadline: Deadline | None = None) -> Grammar:
    """The grammar with rules of at most ``small`` nodes, and rules called once, copied into their callers; the root is rule 0.

    Raises BudgetError past the deadline.
    """
    callees = [sorted({call.rule for call in rule.calls}) for rule in grammar.rules]
    order = components(callees)
    recursive = {member for part in order for member in part if len(part) > 1 or member in callees[member]}
    uses = Counter(call.rule for rule in grammar.rules for call in rule.calls)
    fixed = recursive | {grammar.root}
    total = sum(rule.nodes for rule in grammar.rules)
    left = REWRITES * max(total, max_nodes)
    finished: list[Rule] = list(grammar.rules)
    for number in (member for part in order for member in part):
        if deadline is not None:
            deadline.check_now(grammar.rules[number].name)
        assembly = _Assembly(grammar.rules[number])
        for call in grammar.rules[number].calls:
            callee = finished[call.rule]
            cost = 0 if assembly.has(call) or uses[call.rule] == 1 else callee.nodes
            added = callee.nodes * (uses[call.rule] - 1)
            copied = (len(callee.calls) * (uses[call.rule] - 1)) <= MOST_CALLS_COPIED
            wanted = call.rule not in fixed and (callee.nodes <= small or not added) and added <= MOST_COPIED and copied
            if wanted and (not cost or total + cost <= max_nodes) and callee.nodes <= left:
                left -= 0 if assembly.has(call) else callee.nodes
                assembly.copy(call, callee)
                total += cost
                if uses[call.rule] == 1:
                    finished[call.rule] = grammar.rules[call.rule]  # lets go of what nothing else needs
            else:
                assembly.calls.append(call)
        finished[number] = assembly.build()
    return _reached(Grammar(tuple(finished), grammar.root))


def _reached(grammar: Grammar) -> Grammar:
    """Only the rules that the root reaches, in order of demand."""
    order = [grammar.root]
    numbers = {grammar.root: 0}
    for number in order:
        for call in grammar.rules[number].calls:
            if call.rule not in numbers:
                numbers[call.rule] = len(order)
                order.append(call.rule)
    rules = []
    for number in order:
        rule = grammar.rules[number]
        calls = tuple(CallEdge(call.node, numbers[call.rule], call.returns) for call in rule.calls)
        rules.append(Rule(rule.name, rule.nodes, rule.bytes_, rule.epsilons, rule.blocks, calls, rule.exits, rule.exit_count, rule.marks))
    return Grammar(tuple(rules), 0)


class _Assembly:
    """A rule being put together from itself and copies of its callees."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.nodes = rule, rule.nodes
        self.bytes_: list[Int32] = [rule.bytes_]
        self.epsilons: list[Int32] = [rule.epsilons]
        self.links: list[tuple[int, int]] = []
        self.blocks = list(rule.blocks)
        self.marks = list(rule.marks)
        self.calls: list[CallEdge] = []
        self.copies: dict[tuple[int, tuple[int, ...]], int] = {}

    def has(self, call: CallEdge) -> bool:
        """Whether an equal call has been copied already."""
        return (call.rule, call.returns) in self.copies

    def copy(self, call: CallEdge, callee: Rule) -> None:
        """Replace ``call`` by a copy of ``callee``, or by the copy that an equal call left."""
        key = (call.rule, call.returns)
        base = self.copies.get(key)
        if base is None:
            base = self.copies[key] = self.nodes
            self.nodes += callee.nodes
            self.bytes_.append(callee.bytes_ + np.array([base, 0, 0, base], np.int32))
            self.epsilons.append(callee.epsilons + np.int32(base))
            self.links += [(base + node, call.returns[exit_]) for node, exit_ in callee.exits if call.returns[exit_] >= 0]
            self.blocks += [Block(block.dfa, base + block.base) for block in callee.blocks]
            self.marks += [(base + node, several) for node, several in callee.marks]
            self.calls += [CallEdge(base + inner.node, inner.rule, tuple(base + node if node >= 0 else -1 for node in inner.returns))
                           for inner in callee.calls]
        self.links.append((call.node, base))

    def build(self) -> Rule:
        """The rule; the same object if nothing was copied."""
        if not self.copies:
            return self.rule
        epsilons = np.concatenate([*self.epsilons, np.array(self.links, np.int32).reshape(-1, 2)])
        return Rule(self.rule.name, self.nodes, np.concatenate(self.bytes_), epsilons, tuple(self.blocks), tuple(self.calls),
                    self.rule.exits, self.rule.exit_count, tuple(self.marks))
