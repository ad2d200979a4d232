"""The single-stream decode loop on MLX: a sampled token and the text it forces go through the model in one pass (Theorem 19).

In: an mlx-lm model, a grammar with a vocabulary, and the prompt's tokens. Out: a ``Generation`` that yields one ``Span`` a pass as it is
produced and ends with a stop reason and statistics. Afterwards every token was allowed by the matcher when it was emitted, and
``valid`` says whether the text is a whole output; it is asked of the matcher, never assumed.

The tokens are those of token-by-token decoding under the same policy (``forcing="step"``, the reference decoder of Theorem 19): forced
text depends on the machine and the tokenizer alone, so that feeding it early changes no choice. Passes: one per sampled token, the
prompt's included; none for forced text, and none for an ending that the grammar forces. In floating point the two differ by rounding only.

    prompt + {"name":"   ->  Maria   ->   ","age":   ->  34 ...        each arrow is one pass; what the grammar forces rides along

>>> from stcc.runtime import load                                                            # doctest: +SKIP
>>> from stcc.runtime.models import load_model                                               # doctest: +SKIP
>>> smollm2 = load_model("smollm2")                                                          # doctest: +SKIP
>>> grammar = load("person.stc", vocabulary=vocabulary)                                      # doctest: +SKIP
>>> generation = generate(smollm2.model, grammar, smollm2.prompt_tokens("Who is Ada?"))      # doctest: +SKIP
>>> for span in generation: print(span.text)                                                 # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stcc.runtime.bitmask import allocate_token_bitmask, apply_token_bitmask
from stcc.runtime.errors import ConstraintError, VocabularyRequired

if TYPE_CHECKING:
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.matcher import Matcher

Forcing = Literal["span", "step", "off"]
StopReason = Literal["stop", "complete", "length", "not_finite", "dead_end"]
"""``stop``: the model chose a stop token. ``complete``: nothing may follow. ``length``: the token limit ended an output that could have
gone on. ``not_finite``: the logits held NaN, or infinity where a token is allowed. ``dead_end``: no token of the vocabulary may follow."""

PREFILL_TOKENS = 512
"""Prompt tokens per pass: bounds the prompt's activations, and changes no result."""
MAX_SEED = (1 << 31) - 1


class DecodeError(ConstraintError):
    """A generation that cannot start or go on as asked."""


class EmptyPromptError(DecodeError):
    """There is no token to condition the first one on."""

    def __init__(self) -> None:
        super().__init__("the prompt has no tokens, so the model has nothing to continue", "give at least the begin-of-text token")


class NarrowHeadError(DecodeError):
    """The model scores fewer tokens than the vocabulary has.

    Attributes:
        head: width of the model's logits.
        size: tokens of the vocabulary.
    """

    def __init__(self, head: int, size: int) -> None:
        self.head, self.size = head, size
        super().__init__(f"the model scores {head} tokens and the vocabulary has {size}: they are of different models",
                         "prepare the vocabulary from this model's folder: stcc vocab FOLDER -o model.stv")


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen among the allowed ones.

    Attributes:
        temperature: 0 is greedy (the largest allowed logit; ties go to the lowest id).
        top_p: keep the fewest most likely tokens that hold this share of the allowed mass.
        seed: draw ``n`` of a generation depends on ``(seed, n)`` and the logits alone, whatever else runs in between.

    Raises:
        DecodeError: a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise DecodeError(f"temperature {self.temperature} is out of range", "give a number from 0, which is greedy, up")
        if not 0 < self.top_p <= 1:
            raise DecodeError(f"top_p {self.top_p} is out of range", "give a number above 0 and at most 1")
        if not 0 <= self.seed <= MAX_SEED:
            raise DecodeError(f"seed {self.seed} is out of range", f"give one from 0 to {MAX_SEED}")


@dataclass(frozen=True)
class Span:
    """What one pass made known: the token it chose and the tokens that this one forces.

    Attributes:
        sampled: the chosen token; None for the text that the grammar forces before anything is chosen.
        forced: the tokens after it that the grammar leaves no choice about.
        sampled_text: the chosen token's bytes.
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

    Attributes:
        prompt_tokens: tokens of the prompt.
        passes: model runs that scored a next token; the last part of the prompt is the first of them.
        prefill_passes: model runs over the rest of the prompt (and the text forced before the first choice), which score nothing.
        sampled: tokens chosen, stop tokens not counted.
        forced: tokens emitted without a choice.
        narrowed: choices from which the token limit took tokens away, so that an ending stays within reach.
        prefill_seconds: time until the first choice.
        seconds: time in all, while the generation was being advanced.
    """

    prompt_tokens: int = 0
    passes: int = 0
    prefill_passes: int = 0
    sampled: int = 0
    forced: int = 0
    narrowed: int = 0
    prefill_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens emitted."""
        return self.sampled + self.forced

    @property
    def forced_share(self) -> float:
        """Share of emitted tokens that were forced, 0 for none."""
        return self.forced / self.tokens if self.tokens else 0.0


class Stream:
    """One model with its key-value cache: tokens in, logits of the last position out."""

    def __init__(self, model: Any, statistics: Statistics) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._model, self._statistics = model, statistics
        self._cache: list[Any] = make_prompt_cache(model)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Feed tokens whose logits are not needed; the output head is never evaluated."""
        import mlx.core as mx

        for start in range(0, len(tokens), PREFILL_TOKENS):
            self._model(mx.array(list(tokens[start:start + PREFILL_TOKENS]))[None], cache=self._cache)
            mx.eval([layer.state for layer in self._cache])
            self._statistics.prefill_passes += 1

    def discard(self, token: int) -> None:
        """Feed one token in a pass of its own, whose logits are computed and dropped."""
        import mlx.core as mx

        mx.eval(self.score([token]))

    def score(self, tokens: Sequence[int]) -> Any:
        """Feed ``tokens`` in one pass. Lazy logits, ``[1, head]``, after the last of them."""
        import mlx.core as mx

        self._statistics.passes += 1
        return self._model(mx.array(list(tokens))[None], cache=self._cache)[:, -1, :]


class Chooser:
    """Picks the next token among the allowed ones."""

    def __init__(self, sampling: Sampling) -> None:
        from mlx_lm.sample_utils import make_sampler

        self._sampling, self._draws = sampling, 0
        self._sampler: Callable[[Any], Any] = make_sampler(temp=sampling.temperature, top_p=sampling.top_p if sampling.top_p < 1 else 0.0)

    def choose(self, logits: Any, bitmask: Any) -> int | None:
        """The chosen token, or None when the logits are not finite where it matters.

        Args:
            logits: floating ``[1, head]``; the head may be wider than the mask.
            bitmask: int32 ``[1, words]``.
        """
        import mlx.core as mx

        masked = apply_token_bitmask(logits.astype(mx.float32), bitmask)
        sound = mx.isfinite(mx.max(masked)) & ~mx.any(mx.isnan(logits))
        if self._sampling.temperature == 0:
            token = mx.argmax(masked, axis=-1)
        else:
            mx.random.seed((self._sampling.seed << 32) + self._draws)
            self._draws += 1
            if self._sampling.top_p < 1:  # only the nucleus needs probabilities; a categorical draw is the same without the norm
                masked = masked - mx.logsumexp(masked, axis=-1, keepdims=True)
            token = self._sampler(masked)
        mx.eval(token, sound)
        chosen: Any = token.item()
        return int(chosen) if bool(sound.item()) else None


class Generation:
    """An output being produced: iterate over its spans, then read ``stop_reason``, ``valid``, ``text`` and ``statistics``.

    Attributes:
        tokens: tokens emitted so far, stop tokens not included.
        statistics: counts so far.
        stop_reason: why it ended; None while it goes on.
    """

    def __init__(self, model: Any, grammar: Grammar, prompt_tokens: Sequence[int], max_tokens: int | None, sampling: Sampling,
                 forcing: Forcing) -> None:
        if not len(prompt_tokens):
            raise EmptyPromptError
        if forcing not in ("span", "step", "off"):
            raise DecodeError(f"forcing {forcing!r} is unknown", "give span, step or off")
        if grammar.vocabulary is None:
            raise VocabularyRequired(grammar.name)
        self._forcing, self._vocabulary = forcing, grammar.vocabulary
        self._matcher: Matcher = grammar.matcher(max_tokens=max_tokens, canonical=forcing != "off")
        self._unlimited = None if max_tokens is None else grammar.matcher(canonical=forcing != "off")
        self._bitmask = allocate_token_bitmask(1, self._vocabulary.size)
        self._wider = self._bitmask.copy()
        self._stops = allocate_token_bitmask(1, self._vocabulary.size)
        self._stops[:] = 0
        for stop in self._vocabulary.stop_token_ids:
            self._stops.view(np.uint32)[0, stop >> 5] |= np.uint32(1 << (stop & 31))
        self.tokens: list[int] = []
        self.statistics = Statistics(prompt_tokens=len(prompt_tokens))
        self.stop_reason: StopReason | None = None
        self._stream, self._chooser = Stream(model, self.statistics), Chooser(sampling)
        self._spans = self._run(list(prompt_tokens))

    def __iter__(self) -> Iterator[Span]:
        return self

    def __next__(self) -> Span:
        started = time.perf_counter()
        try:
            return next(self._spans)
        finally:
            self.statistics.seconds += time.perf_counter() - started

    def finish(self) -> Generation:
        """Run to the end."""
        for _ in self:
            pass
        return self

    @property
    def text(self) -> bytes:
        """The bytes of ``tokens``."""
        return b"".join(map(self._vocabulary.token, self.tokens))

    @property
    def valid(self) -> bool:
        """Whether ``text`` is a whole output of the grammar."""
        return self._matcher.is_accepting()

    def _run(self, prompt: list[int]) -> Iterator[Span]:
        opening = self._emit(None)
        if opening.forced:
            yield opening
        pending = prompt + opening.tokens
        while self._may_continue():
            token = self._next(pending)
            if token is None:
                self.stop_reason = "not_finite"
                return
            if not self._accept(token):
                self.stop_reason = "dead_end"
                return
            if token in self._vocabulary.stop_token_ids:
                self.stop_reason = "stop"
                return
            span = self._emit(token)
            pending = span.tokens
            yield span

    def _may_continue(self) -> bool:
        """Fill the mask; if it holds no token to go on with, set the stop reason in place of paying for a pass."""
        self._matcher.fill_next_token_bitmask(self._bitmask, 0)
        narrowed = False
        if self._unlimited is not None:
            self._unlimited.fill_next_token_bitmask(self._wider, 0)
            narrowed = not np.array_equal(self._bitmask, self._wider)
        if not self._matcher.is_accepting():
            if not self._bitmask.any():
                self.stop_reason = "dead_end"
        elif not (self._bitmask & ~self._stops).any():
            self.stop_reason = "length" if narrowed else "complete"
        self.statistics.narrowed += narrowed and self.stop_reason is None
        return self.stop_reason is None

    def _accept(self, token: int) -> bool:
        """Accept ``token``; False, and no change, if it is not allowed."""
        if not self._matcher.accept_token(token):
            return False
        if self._unlimited is not None:
            self._unlimited.accept_token(token)
        return True

    def _next(self, pending: list[int]) -> int | None:
        """Feed the pending tokens and choose the token after them."""
        if not self.statistics.passes:
            started = time.perf_counter()
            self._stream.prefill(pending[:-1])
            logits = self._stream.score(pending[-1:])
            if logits.shape[-1] < self._vocabulary.size:
                raise NarrowHeadError(logits.shape[-1], self._vocabulary.size)
            token = self._chooser.choose(logits, self._bitmask)
            self.statistics.prefill_seconds = time.perf_counter() - started
            return token
        if self._forcing == "step":
            for token_id in pending[:-1]:
                self._stream.discard(token_id)
            pending = pending[-1:]
        return self._chooser.choose(self._stream.score(pending), self._bitmask)

    def _emit(self, sampled: int | None) -> Span:
        """Count ``sampled``, already accepted, and accept the tokens that it forces."""
        forced = () if self._forcing == "off" else tuple(self._matcher.forced_tokens())
        for position, token in enumerate(forced):
            if not self._accept(token):  # a plan ends early where the budget leaves no room for it
                forced = forced[:position]
                break
        sampled_text = b"" if sampled is None else self._vocabulary.token(sampled)
        span = Span(sampled, forced, sampled_text, b"".join(map(self._vocabulary.token, forced)))
        self.statistics.sampled += sampled is not None
        self.statistics.forced += len(forced)
        self.tokens += span.tokens
        return span


def generate(model: Any, grammar: Grammar, prompt_tokens: Sequence[int], *, max_tokens: int | None = None, temperature: float = 0.0,
             top_p: float = 1.0, seed: int = 0, forcing: Forcing = "span") -> Generation:
    """Decode one output of ``grammar`` after ``prompt_tokens``.

    Args:
        model: an mlx-lm model.
        grammar: loaded with the model's vocabulary; the model's head may be wider (padding is never chosen), not narrower.
        prompt_tokens: at least one.
        max_tokens: most tokens emitted; every mask keeps a valid ending within reach. None: no limit.
        temperature: 0 is greedy.
        top_p: share of the allowed mass that is sampled from.
        seed: of the draws.
        forcing: ``span`` feeds forced text along with the token before it; ``step`` feeds it token by token (same tokens, more passes);
            ``off`` forces nothing: the model spells out every token under the mask.

    Returns:
        The generation, not yet started.

    Raises:
        EmptyPromptError: no prompt tokens.
        NarrowHeadError: on the first pass, if the model scores fewer tokens than the vocabulary has.
        VocabularyRequired: the grammar was loaded without a vocabulary.
        BudgetTooSmall: no valid output fits in ``max_tokens``.
        DecodeError: a sampling option out of range.
    """
    return Generation(model, grammar, prompt_tokens, max_tokens, Sampling(temperature, top_p, seed), forcing)
