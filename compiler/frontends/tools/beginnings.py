"""Answers that do not begin like a call: a machine turned back into a grammar, some beginnings taken away.

In: the machine of an answer, and the machine of what begins a call (texts without nested values). Out: the grammar of the answers of which
no beginning is one of those texts, so that a reply is read in one way as soon as its beginning is known.

Every rule of the grammar is the states that the machine reaches at one depth of its stack, entered through the byte that makes the call.
While a text may still become the beginning of a call, the root runs both machines side by side; from where they part it is the answer's
alone. Cost: linear in the machine, a copy of the states of a rule for each byte and state it is entered with (JSON rules have one); plus
the pairs met on the way to a beginning.

>>> from stcc.compiler import compile_regex
>>> answer, call = (compile_regex(pattern).machine for pattern in ("[a-c]{2}", "ab"))
>>> from stcc.compiler.machine import link
>>> from stcc.compiler.stepping import accepts
>>> rest = link(without_beginnings(answer, call))
>>> [accepts(rest, text) for text in (b"aa", b"ab", b"ac", b"bb", b"a")]
[True, False, True, True, False]
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from stcc.compiler.errors import UnsupportedError
from stcc.compiler.ir import Grammar, Rule, RuleBuilder
from stcc.compiler.stepping import TERMINATED, Configuration, initial, may_end, step
from stcc.formats.machine import Machine

Ranges = tuple[tuple[int, int], ...]


class _Entry(NamedTuple):
    """How a rule is entered: by a byte in ``ranges``, past the call sites ``sites``, into ``target``."""

    ranges: Ranges
    sites: tuple[int, ...]
    target: int


def machine_grammar(machine: Machine) -> Grammar:
    """The grammar whose texts are those of ``machine``."""
    return _Writer(machine).grammar(None)


def without_beginnings(machine: Machine, beginnings: Machine) -> Grammar:
    """The grammar of the texts of ``machine`` that do not begin with a text of ``beginnings``, none of which is empty.

    Raises:
        UnsupportedError: a nested value begins before the text is told from a beginning, so that both would need the stack.
    """
    return _Writer(machine).grammar(beginnings)


def _ranges(columns: Sequence[Hashable]) -> dict[Hashable, Ranges]:
    """What each byte is worth -> the ranges of bytes that are worth it."""
    found: dict[Hashable, list[tuple[int, int]]] = {}
    for byte, column in enumerate(columns):
        known = found.setdefault(column, [])
        if known and known[-1][1] == byte - 1:
            known[-1] = (known[-1][0], byte)
        else:
            known.append((byte, byte))
    return {column: tuple(known) for column, known in found.items()}


class _Writer:
    """One conversion."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.exits = max(1, machine.returns.shape[1])
        self.several = dict(zip(machine.unique.tolist(), machine.several.tolist(), strict=True))
        self.ranges = _ranges(machine.byte_class.tolist())
        self._entries: list[_Entry] = []
        self._numbers: dict[_Entry, int] = {}

    def grammar(self, beginnings: Machine | None) -> Grammar:
        """The root, then each rule that is called, as they are met."""
        root = _Nodes(self, RuleBuilder("#"), rooted=True)
        if beginnings is None:
            root.builder.epsilon(0, root.node(self.machine.start))
        else:
            root.apart(beginnings)
        built = [root.build()]
        for entry in self._entries:  # grows while it is walked
            rule = _Nodes(self, RuleBuilder(f"#{len(built)}", self.exits), rooted=False)
            rule.enter(0, entry)
            built.append(rule.build())
        return Grammar(tuple(built))

    def rule(self, entry: _Entry) -> int:
        """The number of the rule entered by ``entry``."""
        if entry not in self._numbers:
            self._entries.append(entry)
            self._numbers[entry] = len(self._entries)
        return self._numbers[entry]


class _Nodes:
    """One rule under construction: a node for each state of the machine."""

    def __init__(self, writer: _Writer, builder: RuleBuilder, rooted: bool) -> None:
        self.writer, self.builder, self.rooted = writer, builder, rooted
        self.nodes: dict[int, int] = {}
        self.pending: list[int] = []

    def node(self, state: int) -> int:
        """The node of a state; what follows it is written by ``build``."""
        known = self.nodes.get(state)
        if known is None:
            known = self.nodes[state] = self.builder.node()
            self.pending.append(state)
        return known

    def build(self) -> Rule:
        """The rule, with all that its nodes lead to."""
        while self.pending:
            self._state(self.pending.pop())
        return self.builder.build()

    def enter(self, node: int, entry: _Entry) -> None:
        """From ``node``, read the entry's byte; past a call site, in a rule of its own that returns to this one."""
        if not entry.sites:
            self.read(node, entry.ranges, self.node(entry.target))
            return
        returns = self.writer.machine.returns[entry.sites[0]].tolist()
        number = self.writer.rule(entry._replace(sites=entry.sites[1:]))
        self.builder.call(node, number, [self.node(state) if state >= 0 else -1 for state in returns])

    def read(self, node: int, ranges: Ranges, target: int) -> None:
        """Edges for all bytes of ``ranges``."""
        for low, high in ranges:
            self.builder.byte(node, low, high, target)

    def _state(self, state: int) -> None:
        machine, node = self.writer.machine, self.nodes[state]
        row = machine.table[state].tolist()
        exit_ = int(machine.exits[state])
        if self.rooted:
            if machine.accepting[state] or (exit_ == 0 and max(row) < 0):
                self.builder.exit(node, 0)
        elif exit_ >= 0:
            self.builder.exit(node, exit_)
        if state in self.writer.several:
            self.builder.mark(node, self.writer.several[state])
        for column, cell in enumerate(row):
            if cell >= 0 and column in self.writer.ranges:
                self._cell(node, self.writer.ranges[column], cell)

    def _cell(self, node: int, ranges: Ranges, cell: int) -> None:
        machine = self.writer.machine
        edge = cell - machine.states
        self.enter(node, _Entry(ranges, (), cell) if edge < 0 else _Entry(ranges, machine.pushes(edge), int(machine.edge_target[edge])))

    def apart(self, beginnings: Machine) -> None:
        """From node 0, both machines side by side until the text can no longer become a beginning."""
        machine = self.writer.machine
        letters = _ranges(list(zip(machine.byte_class.tolist(), beginnings.byte_class.tolist(), strict=True)))
        start = (machine.start, initial(beginnings))
        pairs: dict[tuple[int, Configuration], int] = {start: 0}
        queue = [start]
        for state, other in queue:  # grows while it is walked
            node = pairs[state, other]
            if state == TERMINATED or machine.accepting[state]:
                self.builder.exit(node, 0)
            if state in self.writer.several:
                self.builder.mark(node, self.writer.several[state])
            for ranges in letters.values():
                byte = ranges[0][0]
                after, beside = step(machine, (state, ()), byte), step(beginnings, other, byte)
                if after is None or (beside is not None and may_end(beginnings, beside)):
                    continue
                if beside is None:
                    self._cell(node, ranges, int(machine.table[state, int(machine.byte_class[byte])]))
                    continue
                if after.stack:
                    raise UnsupportedError("an answer can begin like a call, down to a value inside it", pointer="#", keyword="answer",
                                           hint="ask for tools or for an answer, or let answers begin with another name")
                key = (after.state, beside)
                if key not in pairs:
                    pairs[key] = self.builder.node()
                    queue.append(key)
                self.read(node, ranges, pairs[key])
