"""The decode loop: a sampled token and the text it forces go through the model in one pass (Theorem 19).

In: an mlx-lm model, a constraint with a vocabulary, and the prompt's tokens. Out: a ``Generation`` that yields one ``Span`` a pass as it is
produced and ends with a stop reason and statistics. Afterwards every token was allowed by the constraint when it was emitted, and
``valid`` says whether the text is a whole output; it is asked of the constraint, never assumed.

The tokens are those of token-by-token decoding under the same policy (``forcing="step"``, the reference decoder of Theorem 19): forced
text depends on the machine and the tokenizer alone, so that feeding it early changes no choice. Passes: one per sampled token, the
prompt's included; none for forced text, and none for an ending that the grammar forces. In floating point the two differ by rounding only.

    prompt + {"name":"   ->  Maria   ->   ","age":   ->  34 ...        each arrow is one pass; what the grammar forces rides along

Three loops emit the same tokens:

    sync        a pass is enqueued once the host knows its tokens
    pipelined   while the device chooses token n, pass n + 1 is enqueued with that token as a value to come and its mask made on the
                device, wherever no choice of token n can be followed by forced text or by the end; the passes are those of sync, plus one
                where a stop token was chosen
    eager       likewise, wherever forced text may follow too; if it does, the scores are dropped and the text costs a pass of its own

A cache is never taken back: every pass, ahead or not, reads tokens that are emitted. Where a token budget narrows the choices, or a stack
is too deep for the device, a step ahead keeps its scores and the host chooses from them. Constraints that are not a ``Matcher``, or that
hold conditions beside their machine, decode in the sync loop.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stcc.formats import Vocabulary
from stcc.runtime.bitmask import allocate_token_bitmask, apply_token_bitmask
from stcc.runtime.decoding.constraint import Constraint
from stcc.runtime.decoding.errors import NarrowHeadError
from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.results import Span, Statistics, StopReason
from stcc.runtime.decoding.sampling import Choice, Chooser, processed
from stcc.runtime.decoding.settings import Settings
from stcc.runtime.decoding.stream import Stream
from stcc.runtime.matcher import Matcher

if TYPE_CHECKING:
    from stcc.runtime.decoding.lookahead import Lookahead


FEW_TOKENS = 1024
"""A choice among at most so many tokens leaves the others unscored: their rows of the head are a small part of it."""


class _Step(NamedTuple):
    """Scores of a position, and the choice among them; None if the host has yet to mask them. All on the device."""

    logits: Any
    choice: Choice | None


class Generation:
    """An output being produced: iterate over its spans (or ``pieces``), then read ``stop_reason``, ``valid``, ``text`` and ``statistics``.

    Attributes:
        tokens: tokens emitted so far, stop tokens not included.
        text: the bytes they spell.
        statistics: counts so far.
        stop_reason: why it ended; None while it goes on.
        stream: the model's side: its cache, and how much of ``context`` it has read.
        context: the prompt, the tokens and the stop token, as the model reads them.
    """

    def __init__(self, model: DecodingModel, constraint: Constraint, vocabulary: Vocabulary, prompt_tokens: Sequence[int],
                 settings: Settings, limit_reason: StopReason = "length") -> None:
        """Ready to be iterated; ``stcc.runtime.decode`` makes it."""
        settings.check(prompt_tokens)
        self._settings, self._vocabulary, self._constraint, self._limit_reason = settings, vocabulary, constraint, limit_reason
        self._matcher = constraint if isinstance(constraint, Matcher) else None
        self._bitmask, self._stops = allocate_token_bitmask(1, vocabulary.size), allocate_token_bitmask(1, vocabulary.size)
        self._stops[:] = 0
        for stop in vocabulary.stop_token_ids:
            self._stops.view(np.uint32)[0, stop >> 5] |= np.uint32(1 << (stop & 31))
        self.context = [int(token) for token in prompt_tokens]
        self.tokens: list[int] = []
        self.text = b""
        self.statistics = Statistics(prompt_tokens=len(prompt_tokens))
        self.stop_reason: StopReason | None = None
        self.stream = Stream(model, self.statistics, settings.cache, settings.cached)
        self._chooser, self._draws = Chooser(settings.sampling, settings.sampler), 0
        self._lookahead = self._find_lookahead()
        self._entered = 0.0  # when the host last asked for a span
        self._spans = self._run()

    def __iter__(self) -> Iterator[Span]:
        return self

    def __next__(self) -> Span:
        self._entered = time.perf_counter()
        try:
            return next(self._spans)
        finally:
            self.statistics.seconds += time.perf_counter() - self._entered

    def finish(self) -> Generation:
        """Run to the end."""
        for _ in self:
            pass
        return self

    def pieces(self) -> Iterator[str]:
        """The text as it is produced, one piece a span, cut between characters; bytes that are not UTF-8 are replaced."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for span in self:
            piece = decoder.decode(span.text)
            if piece:
                yield piece
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    @property
    def valid(self) -> bool:
        """Whether ``text`` is a whole output of the grammar."""
        return self._constraint.is_accepting()

    # the loop

    def _run(self) -> Iterator[Span]:
        opening, pending = self._open()
        if opening is not None:
            yield opening
        ahead: _Step | None = None
        while self.stop_reason is None and self._may_continue():
            choice = self._choice(ahead or _Step(self._scores(pending), None))
            ahead = self._enqueue_ahead(choice)
            token = self._wait(choice)
            if token is None or not self._accept(token):
                break
            span = self._emit(token)
            pending = span.tokens
            if ahead is not None:
                pending, ahead = pending[1:], self._kept(ahead, span)
            yield span
        self.statistics.dropped += ahead is not None

    def _may_continue(self) -> bool:
        """Fill the mask; if it holds no token to go on with, set the stop reason in place of paying for a pass."""
        started = time.perf_counter()
        self._constraint.fill_next_token_bitmask(self._bitmask, 0)
        narrowed = self._matcher is not None and self._matcher.is_narrowed()
        if not self._constraint.is_accepting():
            if not self._bitmask.any():
                self.stop_reason = "dead_end"
        elif not (self._bitmask & ~self._stops).any():
            self.stop_reason = self._limit_reason if narrowed else "complete"
        if self.stop_reason is None and self._left() == 0:
            self.stop_reason = self._limit_reason
        self.statistics.narrowed += narrowed and self.stop_reason is None
        self.statistics.constraint_seconds += time.perf_counter() - started
        return self.stop_reason is None

    def _left(self) -> int | None:
        """Tokens that may still be emitted before the output is cut; None without a limit, or where a budget sees to it."""
        limit = self._settings.max_tokens
        if limit is None or (self._matcher is not None and self._matcher.tokens_left is not None):
            return None
        return max(limit - len(self.tokens), 0)

    def _scores(self, pending: Sequence[int]) -> Any:
        """Feed the pending tokens; lazy logits after the last of them."""
        import mlx.core as mx

        if not self.statistics.passes:
            pending = self.stream.prefill(pending)
        started = time.perf_counter()
        if self._settings.forcing == "step" and self.statistics.passes:
            for token in pending[:-1]:
                mx.eval(self.stream.score(mx.array([token]), 1))
            pending = pending[-1:]
        logits = self._processed(self.stream.score(mx.array(list(pending)), len(pending), self._few()), None)
        self.statistics.enqueue_seconds += time.perf_counter() - started
        return logits

    def _few(self) -> Any:
        """The tokens that the mask allows, int on the device, if they are so few that the others need no scores; else None."""
        import mlx.core as mx

        if self._settings.logits_processors or not self.stream.can_score_few:
            return None
        allowed = np.flatnonzero(np.unpackbits(self._bitmask.view(np.uint8)[0], bitorder="little"))
        return mx.array(allowed.astype(np.int32)) if len(allowed) <= FEW_TOKENS else None

    def _processed(self, logits: Any, coming: Any) -> Any:
        """The logits after the caller's processors, which see the context and the token to come, int ``[1]`` on the device."""
        import mlx.core as mx

        if logits.shape[-1] < self._vocabulary.size:
            raise NarrowHeadError(logits.shape[-1], self._vocabulary.size)
        if not self._settings.logits_processors:
            return logits
        tokens = mx.array(self.context)
        if coming is not None:
            tokens = mx.concatenate([tokens, coming.astype(tokens.dtype)])
        return processed(self._settings.logits_processors, tokens, logits)

    def _choice(self, step: _Step) -> Choice:
        """The choice of a step, enqueued: by the host's mask, where the device made none."""
        if step.choice is not None:
            return step.choice
        started = time.perf_counter()
        choice = self._chooser.choose(step.logits, apply_token_bitmask(step.logits, self._bitmask), self._draws)
        choice.enqueue()
        self.statistics.enqueue_seconds += time.perf_counter() - started
        return choice

    def _wait(self, choice: Choice) -> int | None:
        """Wait for the choice. None, and the stop reason set, if the logits were not finite."""
        started = time.perf_counter()
        sound, token = bool(choice.sound.item()), int(choice.token.item())
        waited = time.perf_counter()
        self.statistics.wait_seconds += waited - started
        if not self._draws:
            self.statistics.prefill_seconds = self.statistics.seconds + waited - self._entered
        self._draws += 1
        if not sound:
            self.stop_reason = "not_finite"
        return token if sound else None

    def _accept(self, token: int) -> bool:
        """Go on by a chosen token. False, and the stop reason set, if the output ends with it."""
        if not self._constraint.accept_token(token):
            self.stop_reason = "refused"
        elif token in self._vocabulary.stop_token_ids:
            self.context.append(token)
            self.stop_reason = "stop"
        return self.stop_reason is None

    # one step ahead

    def _find_lookahead(self) -> Lookahead | None:
        """What enqueues steps ahead; None for the sync loop, and for what only the host can mask."""
        if self._settings.loop == "sync" or self._matcher is None or type(self._matcher) is not Matcher:
            return None
        from stcc.runtime.decoding.lookahead import lookahead
        from stcc.runtime.device.tables import DeviceLimitError

        try:
            return lookahead(self._matcher.grammar)
        except DeviceLimitError:
            return None

    def _enqueue_ahead(self, choice: Choice) -> _Step | None:
        """The pass over the token being chosen and the choice after it, enqueued; None where the host must know the token first."""
        look, matcher = self._lookahead, self._matcher
        if look is None or matcher is None:
            return None
        started = time.perf_counter()
        canonical, left = self._settings.forcing != "off", self._left() if matcher.tokens_left is None else matcher.tokens_left
        state, level = matcher.configuration()
        quiet = (left is None or left > 1) and look.exact_at(level)
        quiet = quiet and (self._settings.loop == "eager" or look.is_quiet(state, level, canonical))
        step = self._ahead(look, matcher, choice, canonical) if quiet and state >= 0 else None
        self.statistics.enqueue_seconds += time.perf_counter() - started
        return step

    def _ahead(self, look: Lookahead, matcher: Matcher, choice: Choice, canonical: bool) -> _Step:
        logits = self._processed(self.stream.score(choice.token, 1), choice.token)
        limited, sound = look.limit(matcher, choice.token, logits, canonical)
        following = self._chooser.choose(logits, limited, self._draws + 1)
        following = following._replace(sound=following.sound & sound)
        following.enqueue()
        self.statistics.ahead += 1
        return _Step(logits, following)

    def _kept(self, ahead: _Step, span: Span) -> _Step | None:
        """What is left of a step ahead once its token is known: its choice, its scores alone, or nothing."""
        look, matcher = self._lookahead, self._matcher
        assert look is not None and matcher is not None
        if span.forced:
            self.statistics.dropped += 1
            return None
        if matcher.is_narrowed() or not look.exact_at(matcher.configuration()[1]):
            return _Step(ahead.logits, None)
        return ahead

    # forced text

    def _emit(self, token: int) -> Span:
        """Count ``token``, already accepted, and the tokens that it forces, which are accepted here."""
        started = time.perf_counter()
        forced = self._forced(1)
        first, *others = self._respelled(token, forced) or (token, *forced)
        span = Span(first, tuple(others), self._vocabulary.token(first), self._spelled(others))
        self._extend(span)
        self.statistics.constraint_seconds += time.perf_counter() - started
        return span

    def _spelled(self, tokens: Sequence[int]) -> bytes:
        return b"".join(map(self._vocabulary.token, tokens))

    def _extend(self, span: Span) -> None:
        self.statistics.sampled += span.sampled is not None
        self.statistics.forced += len(span.forced)
        self.context += span.tokens
        self.tokens += span.tokens
        self.text += span.text

    def _forced(self, taken: int) -> tuple[int, ...]:
        """Accept the tokens that must follow, as far as the limit goes when ``taken`` more are already emitted; returns them."""
        if self._settings.forcing == "off":
            return ()
        forced, left = tuple(self._constraint.forced_tokens()), self._left()
        if left is not None:
            forced = forced[:max(left - taken, 0)]
        for place, token in enumerate(forced):
            if not self._constraint.accept_token(token):  # a plan ends early where the budget leaves no room for it
                return forced[:place]
        return forced

    def _respelled(self, token: int, forced: tuple[int, ...]) -> tuple[int, ...] | None:
        """The tokenizer's spelling of a token and the forced text after it, where healing finds a better one."""
        healing = self._settings.healing
        if healing is None or self._matcher is None or not forced:
            return None
        found = healing.respelled(token, forced, self._matcher.allowed_bytes())
        self.statistics.healed += found is not None
        return found

    # the prompt's end

    def _open(self) -> tuple[Span | None, list[int]]:
        """The text forced before any choice, and the tokens to feed first. A prompt's last token that is healed is given up for others."""
        forced, unfed = self._forced(0), self.context[self._settings.cached:]
        last = self.context[-1]
        respelled = self._respelled(last, forced)
        if respelled is not None:
            text = self._spelled(respelled)[len(self._vocabulary.token(last)):]
            span = Span(None, respelled, b"", text)
            del self.context[-1], unfed[-1]
        elif forced:
            span = Span(None, forced, b"", self._spelled(forced))
        else:
            return self._reopen(last, unfed)
        self._extend(span)
        return span, unfed + span.tokens

    def _reopen(self, last: int, unfed: list[int]) -> tuple[Span | None, list[int]]:
        """With healing, let the model choose the prompt's last token once more, among those that begin with it and may go on so."""
        healing, matcher = self._settings.healing, self._matcher
        if healing is None or matcher is None or len(unfed) < 2:
            return None, unfed
        extensions = healing.extensions(last, matcher)
        if not extensions:
            return None, unfed
        allowed = np.zeros(self._bitmask.size * 32, np.uint8)
        allowed[[last, *extensions]] = 1
        self._bitmask[0] = np.packbits(allowed, bitorder="little").view(np.int32)
        token = self._wait(self._choice(_Step(self._scores(unfed[:-1]), None)))
        if token is None or token == last:
            return None, unfed[-1:]
        if not matcher.accept_bytes(extensions[token]):
            self.stop_reason = "refused"
            return None, unfed[-1:]
        self.statistics.healed += 1
        del self.context[-1]
        forced = self._forced(0)
        span = Span(token, forced, extensions[token], self._spelled(forced))
        self._extend(span)
        return span, span.tokens
