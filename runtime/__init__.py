"""The runtime: loads an artifact and constrains decoding with it. numpy and msgpack only; no compiler, no MLX, unless asked for.

>>> from stcc.runtime import load, apply_token_bitmask, allocate_token_bitmask
>>> grammar = load("person.stc", vocabulary=vocabulary)        # doctest: +SKIP
>>> matcher = grammar.matcher(max_tokens=200)                  # doctest: +SKIP
>>> bitmask = allocate_token_bitmask(1, vocabulary.size)       # doctest: +SKIP
>>> matcher.fill_next_token_bitmask(bitmask)                   # doctest: +SKIP
>>> apply_token_bitmask(logits, bitmask)                       # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from stcc.runtime.bitmask import allocate_token_bitmask, apply_token_bitmask
from stcc.runtime.errors import BitmaskError, BudgetTooSmall, ConstraintError, RollbackError, TokenOutOfRange, VocabularyRequired
from stcc.runtime.grammar import Grammar
from stcc.runtime.load import load, open_artifact
from stcc.runtime.matcher import Matcher

if TYPE_CHECKING:
    from stcc.runtime.sampling import random_output

__all__ = [
    "BitmaskError", "BudgetTooSmall", "ConstraintError", "Grammar", "Matcher", "RollbackError", "TokenOutOfRange", "VocabularyRequired",
    "allocate_token_bitmask", "apply_token_bitmask", "load", "open_artifact", "random_output",
]


def __getattr__(name: str) -> Any:
    """``random_output``, imported when it is asked for: decoding needs none."""
    if name == "random_output":
        from stcc.runtime.sampling import random_output

        return random_output
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
