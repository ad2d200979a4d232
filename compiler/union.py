"""Grammars put side by side or one after the other: the texts of either, and texts of one followed by texts of the other.

In: two grammars. Out: one, whose root is spliced from copies of their roots; the rules that these call follow, renumbered. Where the two
begin alike, determinising merges them; where nested values make them impossible to tell apart, that pass says so. Cost: linear.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stcc.compiler.ir import Block, CallEdge, Grammar, Rule


def either(one: Grammar, other: Grammar) -> Grammar:
    """The texts of ``one`` and the texts of ``other``."""
    first, second = _side_by_side(one, other)
    return _joined(one, other, first, second, [(0, 1), (0, first.nodes)], (*first.exits, *second.exits))


def sequence(one: Grammar, other: Grammar) -> Grammar:
    """Each text of ``one`` followed by a text of ``other``."""
    first, second = _side_by_side(one, other)
    onward = [(node, first.nodes) for node, exit_ in first.exits if exit_ == 0]
    return _joined(one, other, first, second, [(0, 1), *onward], second.exits)


def _side_by_side(one: Grammar, other: Grammar) -> tuple[Rule, Rule]:
    """The roots with nodes 1.. and on, and with the rules they call behind a root to come."""
    first, second = one.rules[one.root], other.rules[other.root]
    return _shifted(first, 1, 1), _shifted(second, 1 + first.nodes, 1 + len(one.rules))


def _shifted(rule: Rule, nodes: int, rules: int) -> Rule:
    """``rule`` with ``nodes`` added to its nodes and ``rules`` to the rules that it calls; ``Rule.nodes`` counts the added ones too."""
    return replace(
        rule, nodes=rule.nodes + nodes, bytes_=rule.bytes_ + np.array([nodes, 0, 0, nodes], np.int32),
        epsilons=rule.epsilons + np.int32(nodes),
        blocks=tuple(Block(block.dfa, block.base + nodes) for block in rule.blocks),
        calls=tuple(CallEdge(call.node + nodes, call.rule + rules, tuple(back + nodes if back >= 0 else -1 for back in call.returns))
                    for call in rule.calls),
        exits=tuple((node + nodes, exit_) for node, exit_ in rule.exits),
        marks=tuple((node + nodes, several) for node, several in rule.marks),
    )


def _joined(one: Grammar, other: Grammar, first: Rule, second: Rule, epsilons: list[tuple[int, int]],
            exits: tuple[tuple[int, int], ...]) -> Grammar:
    root = Rule(
        "#", second.nodes, np.concatenate([first.bytes_, second.bytes_]),
        np.concatenate([np.array(epsilons, np.int32).reshape(-1, 2), first.epsilons, second.epsilons]), first.blocks + second.blocks,
        first.calls + second.calls, exits, 1, first.marks + second.marks,
    )
    return Grammar((root, *_renumbered(one, 1), *_renumbered(other, 1 + len(one.rules))))


def _renumbered(grammar: Grammar, base: int) -> list[Rule]:
    return [replace(rule, calls=tuple(replace(call, rule=call.rule + base) for call in rule.calls)) for rule in grammar.rules]
