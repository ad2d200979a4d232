"""What the engine is asked for and what it answers, as plain values that any thread and any machine can hold.

A ``Job`` is one output to decode; everything that decides its tokens is in it. An engine answers with ``Piece`` values and at last one
``End``, through the function that the job came with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EndReason = Literal["stop", "complete", "length", "stop_string", "guard", "cancelled", "failed"]
"""``stop``: the model ended the output. ``complete``: the grammar allows nothing more. ``length``: the token limit, by cutting free text or
by leading a constrained output to its nearest ending. ``stop_string``: a string the request named. ``guard``: see ``guards``."""


@dataclass(frozen=True)
class Choosing:
    """How tokens are chosen; the words are mlx-lm's.

    Attributes:
        seed: draw ``n`` depends on ``(seed, n)`` and the scores alone, whatever else is decoded.
        bias: token id -> what is added to its score.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    seed: int = 0
    bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


@dataclass(frozen=True)
class Guards:
    """When a reply is led to its end early; see ``guards``.

    Attributes:
        format: a name of ``stcc.compiler.frontends.tools.FORMATS``; empty where replies hold no calls.
        calls: most calls of a reply; 0 for no bound.
        tail: whether a repeated tail ends the reply.
        repeats: whether a repeated call does.
        answers: whether a reply without calls is an answer, not free text.
        tools: the tools' names.
        previous: calls that the reply must not begin with again, as ``guards.call_key`` has them.
    """

    format: str = ""
    calls: int = 0
    tail: bool = False
    repeats: bool = False
    answers: bool = False
    tools: tuple[str, ...] = ()
    previous: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Job:
    """One output.

    Attributes:
        number: the engine's name for it, never used twice.
        prompt: token ids, at least one.
        grammar: key of the grammar, None for free text.
        max_tokens: most tokens of the output; with a grammar a valid ending stays in reach.
        begun: the output's first tokens, where another job has made them already; they are read, and not sent again.
        budget: whether it does; False only for grammars that cannot promise it, whose outputs are cut.
        choosing: how tokens are chosen.
        stop: strings that end the output, as UTF-8; they are left out of it.
        top_logprobs: None for no log-probabilities, else how many alternatives each comes with.
        guards: see ``Guards``.
    """

    number: int
    prompt: tuple[int, ...]
    grammar: str | None
    max_tokens: int
    choosing: Choosing = Choosing()
    stop: tuple[bytes, ...] = ()
    top_logprobs: int | None = None
    guards: Guards = Guards()
    begun: tuple[int, ...] = ()
    budget: bool = True


@dataclass(frozen=True)
class Token:
    """One token of an output.

    Attributes:
        token: its id.
        forced: whether nothing else was allowed, so that the model was not asked.
        logprob: of the token among those allowed, natural; 0 where it was forced.
        top: the likeliest allowed tokens with theirs, as many as asked for.
    """

    token: int
    forced: bool
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """More of an output: text, which may trail the tokens where it could still become a stop string, and tokens."""

    text: bytes
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class End:
    """An output is over.

    Attributes:
        reason: see ``EndReason``.
        text: the rest of the text.
        cached: prompt tokens that were in the prompt cache.
        passes: model passes that the output took part in.
        narrowed: choices from which the token limit took tokens away.
        valid: whether the text is a whole output of the grammar; True without one.
        message: what went wrong, for ``failed`` and ``guard``.
        before: text before the call that ended the reply, for the guard ``previous_call``.
    """

    reason: EndReason
    text: bytes = b""
    cached: int = 0
    passes: int = 0
    narrowed: int = 0
    valid: bool = True
    message: str = ""
    before: bytes = b""


Sink = Callable[[Any], None]
"""Takes ``Piece`` and ``End`` values in the engine's thread; must not block."""
