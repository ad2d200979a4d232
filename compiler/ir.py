"""The grammar form in which every front end ends: rules that are graphs over bytes, scanners and calls.

A rule is a graph whose node 0 is its start. Its edges read a byte range, read nothing (epsilon), or call another rule, which
returns to one node per *exit* of the callee: several exits carry a verdict out of a nested value. A node may end the rule
through an exit. Whole DFAs (scalars, keys) are embedded as *blocks*: state ``s`` of the DFA is node ``base + s``, and its
accepting states lead on by epsilon to the node chosen by their label.

The root rule accepts through exit 0. Nothing downstream knows what a schema is.

>>> b = RuleBuilder("#")
>>> end = b.node()
>>> b.literal(0, b"ok", end)
>>> b.exit(end, 0)
>>> Grammar((b.build(),)).rules[0].nodes
3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa

Int32 = npt.NDArray[np.int32]


Mark = tuple[int, bool]


@dataclass(frozen=True)
class CallEdge:
    """At ``node``, call ``rule`` and continue at ``returns[e]`` when it ends through exit ``e`` (-1: that exit is not wanted)."""

    node: int
    rule: int
    returns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """DFA ``dfa`` embedded in a rule: its state ``s`` is the rule's node ``base + s``."""

    dfa: Dfa
    base: int


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule.

    Attributes:
        name: where it comes from, for messages (a JSON pointer).
        nodes: number of nodes; node 0 is the start.
        bytes_: int32 ``[n, 4]`` rows ``source, low byte, high byte, target``.
        epsilons: int32 ``[n, 2]`` rows ``source, target``.
        blocks: embedded DFAs.
        calls: call edges.
        exits: pairs (node, exit).
        exit_count: how many exits callers may name; the root has one.
        marks: nodes entered by the ``[`` of an array whose items must differ pairwise, each with whether the array may have to have more
            than one item (see ``stcc.formats.machine``).
    """

    name: str
    nodes: int
    bytes_: Int32
    epsilons: Int32
    blocks: tuple[Block, ...]
    calls: tuple[CallEdge, ...]
    exits: tuple[tuple[int, int], ...]
    exit_count: int
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, eq=False)
class Grammar:
    """Rules, and which of them is the root."""

    rules: tuple[Rule, ...]
    root: int = 0


class RuleBuilder:
    """A rule under construction. Not thread-safe; ``build`` may be called once."""

    def __init__(self, name: str, exit_count: int = 1) -> None:
        self.name, self.exit_count, self.nodes = name, exit_count, 1
        self._bytes: list[tuple[int, int, int, int]] = []
        self._epsilons: list[tuple[int, int]] = []
        self._blocks: list[Block] = []
        self._calls: list[CallEdge] = []
        self._exits: list[tuple[int, int]] = []
        self._marks: list[Mark] = []
        self._embedded: dict[tuple[int, tuple[int, ...]], int] = {}

    def node(self) -> int:
        """A fresh node."""
        self.nodes += 1
        return self.nodes - 1

    def byte(self, source: int, low: int, high: int, target: int) -> None:
        """An edge that reads one byte in ``low..high``, both included."""
        self._bytes.append((source, low, high, target))

    def literal(self, source: int, text: bytes, target: int) -> None:
        """A chain of edges that reads exactly ``text``; an epsilon when it is empty."""
        if not text:
            self.epsilon(source, target)
            return
        for position, value in enumerate(text):
            following = target if position == len(text) - 1 else self.node()
            self._bytes.append((source, value, value, following))
            source = following

    def epsilon(self, source: int, target: int) -> None:
        """An edge that reads nothing."""
        self._epsilons.append((source, target))

    def embed(self, dfa: Dfa, targets: Sequence[int]) -> int:
        """Embed ``dfa``; accepting states labelled ``l`` continue at ``targets[l]`` (-1: nowhere).

        Returns the block's base; enter it with an epsilon to ``base + dfa.start`` or to any other state. The same DFA object with the same
        targets is embedded once.
        """
        key = (id(dfa), tuple(targets))
        base = self._embedded.get(key)
        if base is None:
            base = self._embedded[key] = self.nodes
            self.nodes += dfa.states
            self._blocks.append(Block(dfa, base))
            accepting = np.flatnonzero(dfa.accept >= 0)
            for state, label in zip(accepting.tolist(), dfa.accept[accepting].tolist(), strict=True):
                if targets[label] >= 0:
                    self._epsilons.append((base + state, targets[label]))
        return base

    def scan(self, source: int, dfa: Dfa, targets: Sequence[int]) -> None:
        """Read one word of ``dfa`` from ``source``; its label picks the node to continue at."""
        self.epsilon(source, self.embed(dfa, targets) + dfa.start)

    def call(self, source: int, rule: int, returns: Sequence[int]) -> None:
        """Call ``rule`` from ``source``; ``returns[e]`` is where exit ``e`` continues, -1 where it must not be taken."""
        self._calls.append(CallEdge(source, rule, tuple(returns)))

    def exit(self, node: int, exit_: int) -> None:
        """``node`` may end the rule through ``exit_``."""
        self._exits.append((node, exit_))

    def mark(self, node: int, several: bool) -> None:
        """``node`` is entered by the ``[`` of an array whose items must differ pairwise; ``several``: it may have to have more than one."""
        self._marks.append((node, several))

    def build(self) -> Rule:
        """The finished rule."""
        return Rule(
            self.name, self.nodes, np.array(self._bytes, np.int32).reshape(-1, 4), np.array(self._epsilons, np.int32).reshape(-1, 2),
            tuple(self._blocks), tuple(self._calls), tuple(self._exits), self.exit_count, tuple(self._marks),
        )


def verify_grammar(grammar: Grammar) -> list[str]:
    """Every broken invariant, as one sentence each: indices in range, calls name rules and give one return per exit."""
    broken = []
    if not 0 <= grammar.root < len(grammar.rules):
        return ["the root is a rule"]
    for number, rule in enumerate(grammar.rules):
        ends = [rule.bytes_[:, [0, 3]], rule.epsilons, np.array([call.node for call in rule.calls], np.int32),
                np.array([node for node, _ in rule.marks], np.int32)]
        if any(part.size and (int(part.min()) < 0 or int(part.max()) >= rule.nodes) for part in ends):
            broken.append(f"rule {number}: edges join nodes of the rule")
        for call in rule.calls:
            if not 0 <= call.rule < len(grammar.rules) or len(call.returns) != grammar.rules[call.rule].exit_count:
                broken.append(f"rule {number}: a call names a rule and gives one return per exit")
            elif any(not -1 <= node < rule.nodes for node in call.returns):
                broken.append(f"rule {number}: returns are nodes of the rule")
        if any(not (0 <= node < rule.nodes and 0 <= exit_ < rule.exit_count) for node, exit_ in rule.exits):
            broken.append(f"rule {number}: exits are in range")
        if any(block.base < 0 or block.base + block.dfa.states > rule.nodes for block in rule.blocks):
            broken.append(f"rule {number}: blocks lie inside the rule")
    return broken
