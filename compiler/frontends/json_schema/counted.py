"""Strings whose length is bounded, counted on the stack: a bound of n costs about 2 sqrt(n) states' worth of characters instead of n.

A character of a JSON string takes a dozen states (UTF-8 tails, escapes), so counting to 65,536 in line would take
850,000, and beside a pattern that many for each of its states. Instead the string is read in blocks (``counting.py``
plans them): a *block* is a rule that reads ``most`` characters and leaves through the exit of the pattern's state, or leaves through the
exit of a label where a closing quote comes before that. It is called by one byte; after the last character it returns eagerly, before a
quote lazily, so that the quote is its caller's to read and the caller's own rule may end with it. Strings with different bounds, and
different places of one pattern, share blocks. The caller counts them. Measured on one field: maxLength 255 takes 428 states
instead of 3,324.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stcc.compiler.dfa import Dfa
from stcc.compiler.escape import json_escape
from stcc.compiler.frontends.json_schema.counting import Block, CountedString
from stcc.compiler.ir import Rule, RuleBuilder
from stcc.compiler.utf8 import encode_utf8

if TYPE_CHECKING:
    from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey

_QUOTE = 0x22


def counted_string(construction: Construction, builder: RuleBuilder, source: int, counted: CountedString, targets: Sequence[int]) -> None:
    """Read from ``source``, after the opening quote, a string of ``counted`` and its closing quote; go on at ``targets[label]``."""
    size = counted.size
    nodes = {counted.view.start: source}
    quotes = [builder.node() for _ in targets]
    for quote, target in zip(quotes, targets, strict=True):
        builder.byte(quote, _QUOTE, _QUOTE, target)
    for read in range(0, counted.blocks * size, size):
        onward: dict[int, int] = {}
        for state, node in nodes.items():
            _close(counted, builder, node, (read, state), targets)
            block, order = counted.block(read, state, most=size, onward=True)
            full = [order[place] for place in block.levels[-1]]
            for following in full:
                if following not in onward:
                    construction.count_state(builder)
                    onward[following] = builder.node()
            _call(construction, builder, node, (block, counted.labels), [*quotes, *(onward[following] for following in full)])
        nodes = onward
    if not counted.bounded:
        dfa = _endless(counted)
        base = builder.embed(dfa, targets)
        for state, node in nodes.items():
            builder.epsilon(node, base + state)
        return
    read = counted.blocks * size
    left = counted.thresholds[-1] - 1 - read
    for state, node in nodes.items():
        _close(counted, builder, node, (read, state), targets)
        if left:
            block, _ = counted.block(read, state, most=left, onward=False)
            _call(construction, builder, node, (block, counted.labels), quotes)


def counted_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """A counted string as a rule: from quote to quote, exit j under label j."""
    conditions = key[1]
    counted = construction.scalars.counted(conditions)
    assert counted is not None, "such a rule is asked for where the string is counted"
    builder = RuleBuilder(name, len(conditions))
    opened = builder.node()
    builder.byte(0, _QUOTE, _QUOTE, opened)
    ends = [builder.node() for _ in conditions]
    for exit_, node in enumerate(ends):
        builder.exit(node, exit_)
    counted_string(construction, builder, opened, counted, ends)
    return builder.build()


def _close(counted: CountedString, builder: RuleBuilder, node: int, place: tuple[int, int], targets: Sequence[int]) -> None:
    """The closing quote at ``node``, after ``place[0]`` characters in state ``place[1]``, if it may come there."""
    label = counted.ending(*place)
    if label >= 0:
        builder.byte(node, _QUOTE, _QUOTE, targets[label])


def _call(construction: Construction, builder: RuleBuilder, node: int, part: tuple[Block, int], returns: Sequence[int]) -> None:
    """Call the rule of a block from ``node``."""
    builder.call(node, construction.rule(("characters", (construction.scalars.block_number(*part),), ()), builder.name), returns)


def _endless(counted: CountedString) -> Dfa:
    """The spellings, up to the closing quote, of strings past the last threshold; its states begin with those of ``counted.view``."""
    view, kinds = counted.view, counted.view.accept
    accept = np.where(kinds >= 0, counted.meaning[-1, kinds], -1).astype(np.int32)
    return json_escape(encode_utf8(view.rows, accept, view.start, view.partition), closing_quote=True)


def block_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """The rule of a block: exit j before a closing quote under label j; then one exit for each state after the last character."""
    block, labels = construction.scalars.block(key[1][0])
    last = block.levels[-1] if block.onward else []
    builder = RuleBuilder(name, labels + len(last))
    ends = [builder.node() for _ in range(builder.exit_count)]
    for exit_, node in enumerate(ends):
        builder.exit(node, exit_)
    dfa, firsts = _spelled(block)
    base = builder.embed(dfa, ends[labels:])
    builder.epsilon(0, base)
    closable = range(1, block.most if block.onward else block.most + 1)
    for read in closable:
        labels_ = block.closing(read)
        for place, state in enumerate(block.levels[read]):
            if labels_[state] >= 0:
                builder.exit(base + firsts[read] + place, labels_[state])
    return builder.build()


def _spelled(block: Block) -> tuple[Dfa, list[int]]:
    """The block's characters as spelled in JSON, and the number of the first state of each level.

    State ``firsts[read] + i`` is the i-th of ``levels[read]``; the last level's are labelled by their place if the block goes on.
    """
    levels = block.levels
    firsts = np.cumsum([0, *map(len, levels)]).tolist()
    rows = np.array(block.rows, np.int32)
    table = np.full((firsts[-1], rows.shape[1]), -1, np.int32)
    for read, level in enumerate(levels[:-1]):
        place = np.full(len(rows) + 1, -1, np.int32)
        place[levels[read + 1]] = np.arange(firsts[read + 1], firsts[read + 2])
        table[firsts[read]:firsts[read + 1]] = place[rows[level]]
    accept = np.full(firsts[-1], -1, np.int32)
    if block.onward:
        accept[firsts[-2]:] = np.arange(len(levels[-1]))
    return json_escape(encode_utf8(table, accept, 0, block.partition), closing_quote=False), firsts
