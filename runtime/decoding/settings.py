"""How one output is to be decoded, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from stcc.runtime.decoding.errors import DecodeError, EmptyPromptError
from stcc.runtime.decoding.model import Cache
from stcc.runtime.decoding.sampling import LogitsProcessor, Sampler, Sampling

if TYPE_CHECKING:
    from stcc.runtime.decoding.healing import Healing

Forcing = Literal["span", "step", "off"]
"""``span`` feeds forced text along with the token before it, ``step`` token by token, ``off`` leaves it to the model under the mask."""
Loop = Literal["sync", "pipelined", "eager"]
"""See ``stcc.runtime.decoding.loop``."""
FORCINGS: tuple[Forcing, ...] = ("span", "step", "off")
LOOPS: tuple[Loop, ...] = ("sync", "pipelined", "eager")


class Settings(NamedTuple):
    """How to decode.

    Attributes:
        max_tokens: most tokens emitted; None for no limit. The budget of a ``Matcher`` counts instead, if it has one.
        sampling: how a token is chosen.
        sampler: mlx-lm's or the caller's, in place of the one that ``sampling`` describes; its seed still counts.
        logits_processors: applied in order, before the mask.
        forcing: see ``Forcing``.
        loop: see ``Loop``.
        healing: spells the boundaries of forced text, and the prompt's end, as the tokenizer would; None leaves them as they are.
        cache: of the model, holding the first ``cached`` tokens of the prompt; None for an empty one.
        cached: prompt tokens that need not be fed again, at most all but the last (the last two with healing).
    """

    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    sampler: Sampler | None = None
    logits_processors: Sequence[LogitsProcessor] = ()
    forcing: Forcing = "span"
    loop: Loop = "sync"
    healing: Healing | None = None
    cache: Cache | None = None
    cached: int = 0

    def check(self, prompt: Sequence[int]) -> None:
        """Raise DecodeError (EmptyPromptError) for what does not go together."""
        if not len(prompt):
            raise EmptyPromptError
        if self.forcing not in FORCINGS:
            raise DecodeError(f"forcing {self.forcing!r} is unknown", "give span, step or off")
        if self.loop not in LOOPS:
            raise DecodeError(f"loop {self.loop!r} is unknown", "give sync, pipelined or eager")
        if self.forcing == "step" and self.loop != "sync":
            raise DecodeError(f"forcing step feeds token by token, so the {self.loop} loop has nothing to run ahead of", "give loop sync")
        if self.healing is not None and (self.forcing == "off" or self.loop == "eager"):
            raise DecodeError("healing spells forced text anew before it is fed", "give forcing span or step, and loop sync or pipelined")
        last = len(prompt) - (2 if self.healing is not None else 1)
        if not 0 <= self.cached <= max(last, 0) or (self.cached and self.cache is None):
            raise DecodeError(f"{self.cached} of {len(prompt)} prompt tokens cannot be in the cache", f"leave out all past {max(last, 0)}")
