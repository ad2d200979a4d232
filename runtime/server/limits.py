"""What one server takes on, as one value; every number can be set on the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """See the module's text.

    Attributes:
        rows: outputs decoded together; others wait.
        waiting: outputs that may wait; more are answered 429.
        body_bytes: most bytes of a request.
        body_seconds: in which a request has to arrive (408).
        request_seconds: in which an answer has to be complete, waiting included (504).
        grace_seconds: in which outputs under way may finish once the server is told to stop.
        max_tokens: of an output whose request names no limit.
        choices: most of ``n``.
        compile_seconds: of one grammar.
        compile_bytes: memory of the process that compiles.
        compile_states: most states of one grammar.
        grammars: grammars kept, beside those of the artifacts folder; the one used longest ago goes first.
        grammar_bytes: most bytes of the mask rows that those grammars keep.
        prompt_cache_bytes: of the prompts kept for the next request.
        buffer_bytes: of freed device buffers that MLX keeps for reuse (its own bound is most of the machine's memory).
        calls: most tool calls of one reply, if the request does not limit them.
    """

    rows: int = 16
    waiting: int = 256
    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    grace_seconds: float = 30.0
    max_tokens: int = 4096
    choices: int = 16
    compile_seconds: float = 20.0
    compile_bytes: int = 4 << 30
    compile_states: int = 200_000
    grammars: int = 256
    grammar_bytes: int = 1 << 30
    prompt_cache_bytes: int = 1 << 30
    buffer_bytes: int = 1 << 30
    calls: int = 16
