"""What a generation reports: a span a pass, counts, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StopReason = Literal["stop", "complete", "length", "context", "not_finite", "dead_end", "refused"]
"""Why an output ended.

``stop``: the model chose a stop token. ``complete``: the grammar allows nothing more. ``length``: ``max_tokens`` ended an output that could
have gone on. ``context``: likewise, the model's context. ``not_finite``: the logits held NaN, or nothing finite where a token is allowed.
``dead_end``: no token of the vocabulary may follow. ``refused``: the constraint did not take a token that its own mask allowed, which
only a constraint that is not stcc's can do.
"""


@dataclass(frozen=True)
class Span:
    """What one pass made known: the token it chose and the tokens that this one forces.

    Attributes:
        sampled: the chosen token; None for the text that the grammar forces before anything is chosen.
        forced: the tokens after it that the grammar leaves no choice about.
        sampled_text: the chosen token's bytes; without those that belong to the prompt, where healing opened its last token again.
        forced_text: the bytes of the forced ones.
    """

    sampled: int | None
    forced: tuple[int, ...]
    sampled_text: bytes
    forced_text: bytes

    @property
    def text(self) -> bytes:
        """The bytes of all the span's tokens."""
        return self.sampled_text + self.forced_text

    @property
    def tokens(self) -> list[int]:
        """The span's tokens in order."""
        return [*self.forced] if self.sampled is None else [self.sampled, *self.forced]


@dataclass
class Statistics:
    """Counts of a generation so far.

    The seconds are the host's: while it prepares a step the device may be at work on the one before, so the parts need not say where the
    device's time goes. They add up to ``seconds`` but for the loop itself.

    Attributes:
        prompt_tokens: tokens of the prompt.
        passes: model runs that scored a next token, dropped ones included; the last part of the prompt (and the text forced before the
            first choice) is the first of them.
        prefill_passes: model runs over the rest of a long prompt, which score nothing.
        ahead: passes that were enqueued before the token they read was known to the host.
        dropped: passes whose scores nobody used: enqueued ahead of an ending or, in the eager loop, of forced text.
        sampled: tokens chosen, stop tokens not counted.
        forced: tokens emitted without a choice.
        healed: boundaries opened again because the tokenizer would merge across them.
        narrowed: choices from which the token limit took tokens away, so that an ending stays within reach.
        prefill_seconds: until the first choice.
        enqueue_seconds: making passes and choices for the device.
        wait_seconds: waiting for the device to choose.
        constraint_seconds: masks, steps and forced text on the host.
        seconds: in all, while the generation was being advanced.
    """

    prompt_tokens: int = 0
    passes: int = 0
    prefill_passes: int = 0
    ahead: int = 0
    dropped: int = 0
    sampled: int = 0
    forced: int = 0
    healed: int = 0
    narrowed: int = 0
    prefill_seconds: float = 0.0
    enqueue_seconds: float = 0.0
    wait_seconds: float = 0.0
    constraint_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens emitted."""
        return self.sampled + self.forced

    @property
    def forced_share(self) -> float:
        """Share of emitted tokens that were forced, 0 for none."""
        return self.forced / self.tokens if self.tokens else 0.0
