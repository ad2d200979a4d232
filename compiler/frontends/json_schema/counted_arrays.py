"""Arrays whose number of items is bounded, counted on the stack: a bound of n costs about 2 sqrt(n) copies of an item instead of n.

In: a condition of nothing but bounds and one schema for all items. As with strings (``counted.py``), a *block* is a rule that reads
up to ``size`` items: it leaves through exit CLOSED at the closing bracket, or through FULL at the comma behind its last item. Each is one
byte, so blocks return eagerly. Arrays with other bounds and the same items share blocks; the caller, which is where the array stands and
not a rule of its own (a closing bracket can end only one rule), counts blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.formula import Formulas
from stcc.compiler.ir import Rule, RuleBuilder

if TYPE_CHECKING:
    from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey

CLOSED, FULL = 0, 1
SHORTEST = 33
"""Bounds below this are counted in line: blocks and their calls would not be smaller."""
_ENDLESS = 0
_OPEN, _CLOSE = 0x5B, 0x5D

ReadItem = Callable[["Construction", RuleBuilder, int, int, int], None]
"""Read one value that satisfies a formula: construction, builder, source, formula, target."""


@dataclass(frozen=True)
class CountedArray:
    """Between ``low`` and ``high`` (None: any number of) items, each of which satisfies ``item``, a formula over ``Sat``."""

    low: int
    high: int | None
    item: int

    @property
    def size(self) -> int:
        """Items a block: a power of two near the square root, so that blocks are shared."""
        return 1 << (isqrt(max(self.low, self.high or 0)).bit_length() - 1)


def counted_array(formulas: Formulas, condition: int) -> CountedArray | None:
    """The array of ``condition`` if only its items, all alike, and their number matter, and the number is worth counting in blocks."""
    low, high, items = 0, None, list[int]()
    for part in formulas.conjuncts(condition):
        payload, denied = formulas.payload(part), formulas.payload(formulas.negation(part))
        if isinstance(payload, atoms.CountAtLeast):
            low = max(low, payload.count)
        elif isinstance(denied, atoms.CountAtLeast):
            high = denied.count - 1 if high is None else min(high, denied.count - 1)
        elif isinstance(payload, atoms.Items) and not payload.prefix:
            items.append(payload.rest)
        else:
            return None
    if max(low, high or 0) < SHORTEST or (high is not None and high < low):
        return None
    return CountedArray(low, high, formulas.conjunction(items))


def read_counted_array(construction: Construction, builder: RuleBuilder, source: int, counted: CountedArray, target: int) -> None:
    """Read the array from ``source`` and go on at ``target``."""
    opened = builder.node()
    builder.byte(source, _OPEN, _OPEN, opened)
    node = construction.gap(builder, opened)
    if not counted.low:
        builder.byte(node, _CLOSE, _CLOSE, target)
    size, read = counted.size, 0
    while True:
        construction.count_state(builder)
        missing = counted.low - read
        if counted.high is None and missing <= 1:
            _call(construction, builder, node, (counted.item, _ENDLESS, 1, 0), (target,))
            return
        left = size + 1 if counted.high is None else counted.high - read
        first = min(max(missing, 1), size + 1)
        if left <= size:
            _call(construction, builder, node, (counted.item, left, first, 0), (target,))
            return
        full = builder.node()
        _call(construction, builder, node, (counted.item, size, first, 1), (target if first <= size else -1, full))
        node = construction.gap(builder, full)
        read += size


def _call(construction: Construction, builder: RuleBuilder, node: int, block: tuple[int, int, int, int], returns: tuple[int, ...]) -> None:
    builder.call(node, construction.rule(("items", block, ()), builder.name), returns)


def items_rule(read_item: ReadItem) -> Callable[[Construction, RuleKey, str], Rule]:
    """The builder of blocks; ``read_item`` reads one item."""

    def rule(construction: Construction, key: RuleKey, name: str) -> Rule:
        """``(item, most, first, onward)``: up to ``most`` items (0: any number), closed after ``first`` or more, or left after ``most``."""
        item, most, first, onward = key[1]
        builder = RuleBuilder(name, 1 + onward)
        ends = [builder.node() for _ in range(1 + onward)]
        for exit_, node in enumerate(ends):
            builder.exit(node, exit_)
        start = 0
        for count in range(1, max(most, 1) + 1):
            construction.count_state(builder)
            after = builder.node()
            read_item(construction, builder, start, item, after)
            if count >= first:
                builder.byte(construction.gap(builder, after), _CLOSE, _CLOSE, ends[CLOSED])
            if most == _ENDLESS:
                builder.epsilon(construction.separator(builder, after, b","), start)
            elif count < most:
                start = construction.separator(builder, after, b",")
            elif onward:
                comma = b", " if construction.whitespace == "spaced" else b","
                builder.literal(construction.gap(builder, after), comma, ends[FULL])
        return builder.build()

    return rule

