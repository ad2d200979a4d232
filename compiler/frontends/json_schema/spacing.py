"""Optional white space between the parts of a JSON text."""

from __future__ import annotations

from stcc.compiler.ir import RuleBuilder


def white_space(builder: RuleBuilder, node: int) -> int:
    """The node after optional JSON white space read at ``node``."""
    loop = builder.node()
    for low, high in ((0x20, 0x20), (0x09, 0x0A), (0x0D, 0x0D)):
        builder.byte(loop, low, high, loop)
    builder.epsilon(node, loop)
    return loop
