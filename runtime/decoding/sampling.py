"""How the next token is chosen among the allowed ones: greedily, by mlx-lm's samplers, or by the caller's own.

In: logits of one position and a mask. Out: a lazy token, and whether the logits could be trusted. Draw ``n`` of a generation depends on
``(seed, n)`` and on the masked logits alone: MLX's key is set anew for each, so that what else runs in between, the pass in which forced
text was fed, and whether the step was enqueued ahead change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stcc.runtime.decoding.errors import DecodeError

MAX_SEED = (1 << 31) - 1
Sampler = Callable[[Any], Any]
"""mlx-lm's: log-probabilities ``[1, head]`` to a token ``[1]``."""
LogitsProcessor = Callable[[Any, Any], Any]
"""mlx-lm's: all tokens so far ``[n]`` and logits ``[1, head]`` to logits of the same shape."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen among the allowed ones.

    Attributes:
        temperature: 0 is greedy (the largest allowed logit; ties go to the lowest id).
        top_p: keep the fewest most likely tokens that hold this share of the allowed mass.
        top_k: keep this many of the most likely tokens; 0 for all.
        min_p: keep tokens at least this likely, relative to the most likely one.
        seed: draw ``n`` of a generation depends on ``(seed, n)`` and the logits alone, whatever else runs in between.

    Raises:
        DecodeError: a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise DecodeError(f"temperature {self.temperature} is out of range", "give a number from 0, which is greedy, up")
        if not 0 < self.top_p <= 1:
            raise DecodeError(f"top_p {self.top_p} is out of range", "give a number above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise DecodeError(f"min_p {self.min_p} is out of range", "give a number from 0 to 1")
        if self.top_k < 0:
            raise DecodeError(f"top_k {self.top_k} is out of range", "give 0, which keeps all tokens, or more")
        if not 0 <= self.seed <= MAX_SEED:
            raise DecodeError(f"seed {self.seed} is out of range", f"give one from 0 to {MAX_SEED}")

    def sampler(self, width: int) -> Sampler:
        """mlx-lm's sampler of these values for a head that scores ``width`` tokens."""
        from mlx_lm.sample_utils import make_sampler

        found: Sampler = make_sampler(temp=self.temperature, top_p=self.top_p if self.top_p < 1 else 0.0, min_p=self.min_p,
                                      top_k=self.top_k if self.top_k < width else 0)
        return found


class Choice(NamedTuple):
    """A token being chosen, on the device: ``token`` int ``[1]``, ``sound`` bool (False: the logits were not finite where it matters)."""

    token: Any
    sound: Any

    def enqueue(self) -> None:
        """Start making it, and do not wait."""
        import mlx.core as mx

        mx.async_eval(self.token, self.sound)  # type: ignore[no-untyped-call]  # MLX's stubs leave it without types


class Chooser:
    """Chooses tokens; see the module's text."""

    def __init__(self, sampling: Sampling, sampler: Sampler | None = None) -> None:
        """``sampler`` takes the place of the one that ``sampling`` describes; its seed still counts."""
        self._sampling, self._seed = sampling, sampling.seed << 32
        self._sampler = sampler

    def choose(self, logits: Any, limited: Any, draw: int) -> Choice:
        """The lazy choice of draw number ``draw``.

        Args:
            logits: floating ``[1, head]``, before masking.
            limited: the same, ``-inf`` where no token is allowed.
            draw: how many choices the generation made before.
        """
        import mlx.core as mx

        scores = limited.astype(mx.float32)
        best = mx.max(scores, axis=-1, keepdims=True)
        sound = mx.isfinite(best[0, 0]) & ~mx.any(mx.isnan(logits))
        if self._sampler is None and self._sampling.temperature == 0:
            return Choice(mx.argmax(scores, axis=-1), sound)
        if self._sampler is None:
            self._sampler = self._sampling.sampler(logits.shape[-1])
        mx.random.seed(self._seed + draw)
        return Choice(self._sampler(scores - mx.logsumexp(scores, axis=-1, keepdims=True)), sound)


def processed(processors: Sequence[LogitsProcessor], tokens: Any, logits: Any) -> Any:
    """The logits after the processors, in order, which see all tokens so far, int ``[n]``."""
    for processor in processors:
        logits = processor(tokens, logits)
    return logits
