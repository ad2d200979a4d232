"""One output being decoded: where its grammar stands, what must follow, what the client may be shown, and why it ends.

In: a ``Job``, its grammar, and tokens as they are sampled. A row is told a sampled token at the moment in which the pass that reads it is
made (``take``), says which tokens must follow, and masks the scores of its next choice (``limit``); what there is to show collects until
the engine picks it up (``collect``).

    sampled token -> take -> forced tokens ----> read with it, as many as the pass takes (``fed``)
                                            \\--> the rest: next scores allow just the first of them

Forced text of the beginning needs no model at all; it joins the prompt. A budget holds over all of it: a valid ending stays in reach
(Theorem 21). One thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcc.runtime.bitmask import allocate_token_bitmask
from stcc.runtime.errors import ConstraintError
from stcc.runtime.server.guards import Watch
from stcc.runtime.server.job import End, EndReason, Job, Piece, Sink, Token
from stcc.runtime.server.stops import StopStrings

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.grammar import Grammar


class Row:
    """See the module's text.

    Attributes:
        job: what is asked for.
        sink: where it goes.
        reason: why it ended; None while it goes on.
        read: the tokens that the model has read or is reading, the prompt's first.
        cached: prompt tokens taken from the prompt cache.
        draws: choices made.
        passes: generation passes that it took part in.
        narrowed: choices from which the token limit took tokens away.
        last: log-probabilities of the last choice, kept until what it led to is collected.
    """

    def __init__(self, job: Job, sink: Sink, grammar: Grammar | None, vocabulary: Vocabulary, call_format: Any = None) -> None:
        """Begin. BudgetTooSmall if no valid output fits in the job's limit, and other ConstraintErrors of matchers."""
        self.job, self.sink = job, sink
        self.reason: EndReason | None = None
        self.message = ""
        self.draws = self.passes = self.cached = self.narrowed = 0
        self.last: Any = None
        self._vocabulary = vocabulary if grammar is None or grammar.vocabulary is None else grammar.vocabulary
        self._matcher = None if grammar is None else grammar.matcher(job.max_tokens if job.budget else None, canonical=True)
        self._bitmask = allocate_token_bitmask(1, vocabulary.size)
        self._stops = StopStrings(job.stop)
        self._watch = Watch(job.guards, call_format, bool(job.begun)) if job.guards.format or job.guards.tail else None
        self._output: list[int] = [*job.begun]
        if self._matcher is not None and not all(map(self._matcher.accept_token, job.begun)):
            raise ConstraintError("the output was begun with tokens that its grammar does not allow", "begin it anew")
        self._queue: list[int] = []  # accepted, not read yet
        self._text = b""
        self._tokens: list[Token] = []
        self._narrowed = self._hastened = False
        self._settle()
        self.read: list[int] = [*job.prompt, *job.begun, *self._queue]
        self._queue = []

    @property
    def output(self) -> list[int]:
        """The output's tokens so far."""
        return self._output

    # ---- the pass

    def take(self, token: int) -> Sequence[int]:
        """Go on by the token that was sampled; the tokens that must follow it and were not read yet."""
        if self.reason is not None:
            return ()
        if self._queue:
            if token != self._queue.pop(0):
                self._fail("the scores were not finite where a token was forced")
            return self._queue
        self.draws += 1
        self._choose(token)
        return self._queue if self.reason is None else ()

    def fed(self, tokens: Sequence[int]) -> None:
        """These tokens are being read now, the sampled one first."""
        self.passes += 1
        self.read.extend(tokens)
        del self._queue[: len(tokens) - 1]

    def limit(self, context: Any, logits: Any) -> Any:
        """The logits ``[1, head]`` of the next choice, ``-inf`` where no token is allowed."""
        import mlx.core as mx

        if self.reason is not None:
            return logits
        width, size = logits.shape[-1], self._vocabulary.size
        if self._matcher is None and width == size:
            return logits
        allowed = np.zeros(width, np.bool_)
        if self._queue:
            allowed[self._queue[0]] = True
        elif self._matcher is None:
            allowed[:size] = True
        else:
            self._matcher.fill_next_token_bitmask(self._bitmask)
            self.narrowed += self._matcher.is_narrowed()
            allowed[:size] = np.unpackbits(self._bitmask.view(np.uint8)[0], count=size, bitorder="little")
        return mx.where(mx.array(allowed)[None], logits, mx.array(-float("inf"), dtype=logits.dtype))

    # ---- what follows from a token

    def _choose(self, token: int) -> None:
        if self._matcher is not None and not self._matcher.accept_token(token):
            self._fail("a token that the grammar does not allow was chosen: the model's scores were not finite")
            return
        if token in self._vocabulary.stop_token_ids:
            self._end("guard" if self._hastened else "stop")
            if self._watch is not None and not self._hastened and self._watch.ends() == "previous_call":
                self._guard("previous_call")
            return
        self._emit(token, forced=False)
        self._settle()

    def _settle(self) -> None:
        """Add what must follow; find out whether the output is over."""
        if self._matcher is not None and self.reason is None:
            for token in self._matcher.forced_tokens():
                if self.reason is not None or not self._matcher.accept_token(token):
                    break
                self._queue.append(token)
                self._emit(token, forced=True)
            self._look_for_the_end()
        if self.reason is None and len(self._output) >= self.job.max_tokens and (self._matcher is None or not self.job.budget):
            self._end("length")

    def _look_for_the_end(self) -> None:
        assert self._matcher is not None
        if self.reason is not None:
            return
        self._narrowed = self._matcher.is_narrowed()
        self._matcher.fill_next_token_bitmask(self._bitmask)
        if not self._matcher.is_accepting():
            if not self._bitmask.any():
                self._fail("no token of the vocabulary can follow")
            return
        words = self._bitmask[0].view(np.uint32).copy()
        for stop in self._vocabulary.stop_token_ids:
            words[stop >> 5] &= ~np.uint32(1 << (stop & 31))
        if not words.any():
            self._end("guard" if self._hastened else "length" if self._narrowed else "complete")

    def _emit(self, token: int, forced: bool) -> None:
        text = self._vocabulary.token(token)
        self._output.append(token)
        self._tokens.append(Token(token, forced))
        shown, met = self._stops.feed(text)
        self._text += shown
        if met:
            self._end("stop_string")
        elif self._watch is not None and not self._hastened and (wrong := self._watch.sees([token], text)):
            self._guard(wrong)

    def _guard(self, wrong: str) -> None:
        self.message = wrong
        if self._matcher is None or not self.job.budget or wrong == "previous_call":
            self._end("guard")
        else:
            self._hastened = True
            self._matcher.hasten()

    def _end(self, reason: EndReason) -> None:
        self.reason = reason

    def _fail(self, message: str) -> None:
        self.reason, self.message = "failed", message

    def cancel(self) -> None:
        """End it now, unless it has ended."""
        if self.reason is None:
            self._end("cancelled")

    # ---- what there is to show

    def valid(self) -> bool:
        """Whether the text so far is a whole output."""
        return self._matcher is None or self._matcher.is_accepting()

    def collect(self, logprobs: Any = None) -> None:
        """Send what there is; ``logprobs [head]`` are those of the choice that came last."""
        if self._tokens:
            tokens = self._tokens
            if logprobs is not None and self.job.top_logprobs is not None and not tokens[0].forced:
                tokens = [self._scored(tokens[0], logprobs), *tokens[1:]]
            self.sink(Piece(self._text, tuple(tokens)))
            self._text, self._tokens = b"", []
        if self.reason is not None:
            rest = b"" if self.reason == "stop_string" else self._stops.rest()
            before = self._watch.before if self._watch is not None else b""
            self.sink(End(self.reason, rest, self.cached, self.passes, self.narrowed, self.valid(), self.message, before))

    def _scored(self, token: Token, logprobs: Any) -> Token:
        scores = np.array(logprobs.astype(_float32()))
        count = self.job.top_logprobs or 0
        likeliest = np.argsort(-scores, kind="stable")[:count]
        top = tuple((int(each), float(scores[each])) for each in likeliest if np.isfinite(scores[each]))
        return Token(token.token, False, float(scores[token.token]), top)


def _float32() -> Any:
    import mlx.core as mx

    return mx.float32
