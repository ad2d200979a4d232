"""Strings of bounded length, counted on the stack: a bound of n costs about 2 sqrt(n) states' worth of characters instead of n.

A character of a JSON string takes a dozen states (UTF-8 tails, escapes), so counting to 65,536 in line would take
850,000. Instead the string is read in blocks: a *block* is a rule that reads ``size`` characters and leaves through
exit FULL, or leaves through exit CLOSED at a closing quote before that. It is called by one byte and returns eagerly
either way, so no lookahead is needed, and strings with different bounds share it. The caller counts blocks. Measured
on one field: maxLength 255 takes 428 states instead of 3,324.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.escape import json_escape
from stcc.compiler.ir import Rule, RuleBuilder

if TYPE_CHECKING:
    from stcc.compiler.frontends.json_schema.construction import Construction, RuleKey

CLOSED, FULL = 0, 1
SHORTEST = 33
"""Bounds below this are counted in line: a block and its calls would not be smaller."""
_SIZES = ((512, 16), (1 << 14, 64), (1 << 18, 256))
_LARGEST = 1024
_QUOTE = 0x22


@lru_cache(maxsize=1)
def _character() -> Dfa:
    """One character of a JSON string, as spelled."""
    return json_escape(algebra.length_between(1, 1), closing_quote=False)


def block_size(count: int) -> int:
    """Characters a block, for counting to ``count``: near the square root, from few sizes so that blocks are shared."""
    return next((size for limit, size in _SIZES if count <= limit), _LARGEST)


def counted_string(construction: Construction, builder: RuleBuilder, source: int, bounds: tuple[int, int | None], target: int) -> None:
    """Read from ``source``, after the opening quote, ``bounds[0]`` to ``bounds[1]`` characters and the closing quote; go on at ``target``.
    """
    low, high = bounds
    size = block_size(low if high is None else high)
    blocks = -(-low // size) if high is None else high // size
    node = source
    for block in range(blocks):
        construction.count_state(builder)
        missing = low - block * size
        if missing <= 0:
            builder.byte(node, _QUOTE, _QUOTE, target)
        onward = builder.node()
        first = min(max(missing, 1), size)
        builder.call(node, construction.rule(("characters", (size, first), ()), builder.name), (target if first < size else -1, onward))
        node = onward
    if high is None:
        builder.scan(node, construction.scalars.any_string(), [target])
        return
    missing, left = low - blocks * size, high - blocks * size
    if missing <= 0:
        builder.byte(node, _QUOTE, _QUOTE, target)
    if left:
        builder.call(node, construction.rule(("last characters", (left, max(missing, 1)), ()), builder.name), (target,))


def block_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """``(size, first)``: leaves CLOSED at a closing quote after ``first`` or more characters, FULL after ``size``."""
    size, first = key[1]
    builder = RuleBuilder(name, 2)
    closed, full = builder.node(), builder.node()
    builder.exit(closed, CLOSED)
    builder.exit(full, FULL)
    node = 0
    for count in range(1, size + 1):
        following = full if count == size else builder.node()
        builder.scan(node, _character(), [following])
        if first <= count < size:
            builder.byte(following, _QUOTE, _QUOTE, closed)
        node = following
    return builder.build()


def last_block_rule(construction: Construction, key: RuleKey, name: str) -> Rule:
    """``(most, first)``: one to ``most`` characters and a closing quote, which is allowed after ``first``."""
    most, first = key[1]
    builder = RuleBuilder(name, 1)
    closed = builder.node()
    builder.exit(closed, CLOSED)
    node = 0
    for count in range(1, most + 1):
        following = builder.node()
        builder.scan(node, _character(), [following])
        if count >= first:
            builder.byte(following, _QUOTE, _QUOTE, closed)
        node = following
    return builder.build()
