"""What the server writes: completions, chunks of a stream, usage and log-probabilities, in the form of OpenAI's API.

``Answer`` follows one output: it takes the engine's pieces, reads them (``replies``), and says what is new (a ``Delta``) and in the end
what there was. Beyond OpenAI's fields there are ``reasoning_content``, and in ``completion_tokens_details`` the tokens that were
``forced`` and the choices that the limit ``narrowed``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stcc.runtime.server.guards import call_key
from stcc.runtime.server.job import End, Guards, Piece, Token
from stcc.runtime.server.replies import Call, ReplyReader

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

LEAST_LOGPROB = -9999.0
"""Stands for a token that is not allowed, as in OpenAI's API."""


@dataclass
class Delta:
    """What is new in an output: text, reasoning, complete calls with their ids, and the tokens."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Call]] = field(default_factory=list)
    tokens: tuple[Token, ...] = ()


class Answer:
    """One output as the client sees it.

    Attributes:
        end: how it ended; None while it goes on.
        tokens: all its tokens.
        calls: its calls, with their ids.
        taken_back: the tool of the last call that was left out.
    """

    def __init__(self, reader: ReplyReader, guards: Guards | None = None) -> None:
        """Nothing yet; ``reader`` stands at the beginning of the reply; calls that ``guards`` end it for are left out."""
        self._reader, self._guards = reader, guards or Guards()
        self.end: End | None = None
        self.taken_back: str | None = None
        self.content = self.reasoning = ""
        self.calls: list[tuple[str, Call]] = []
        self.tokens: list[Token] = []

    def take(self, event: Piece | End) -> Delta:
        """What an event of the engine adds."""
        reading = self._reader.feed(event.text)
        delta = Delta(reading.content, reading.reasoning, self._fresh(reading.calls))
        if isinstance(event, End):
            rest = self._reader.finish()
            self.end = event
            delta = Delta(delta.content + rest.content, delta.reasoning + rest.reasoning, delta.calls + self._fresh(rest.calls))
        else:
            delta.tokens = event.tokens
            self.tokens.extend(event.tokens)
        self.content += delta.content
        self.reasoning += delta.reasoning
        return delta

    def go_on(self, reader: ReplyReader, begun: Sequence[int], guards: Guards) -> None:
        """The output goes on behind the tokens ``begun``, whose text was told; what came after them counts for nothing."""
        self._reader, self._guards = reader, guards
        self.tokens = [Token(token, False) for token in begun]

    def _fresh(self, calls: Sequence[Call]) -> list[tuple[str, Call]]:
        """Calls with ids; a guard ends a reply at a call that repeats another, which then counts for nothing."""
        found = []
        for call in calls:
            key = call_key(call.name, call.arguments)
            known = [call_key(other.name, other.arguments) for _, other in self.calls] if self._guards.repeats else []
            if key not in self._guards.previous and key not in known:
                self.calls.append((f"call_{secrets.token_hex(12)}", call))
                found.append(self.calls[-1])
            else:
                self.taken_back = call.name
        return found

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for how it ended."""
        if self.calls:
            return "tool_calls"
        return "length" if self.end is not None and self.end.reason == "length" else "stop"

    @property
    def forced(self) -> int:
        """Tokens that were forced."""
        return sum(token.forced for token in self.tokens)


def tool_call(number: str, call: Call, index: int | None = None) -> dict[str, Any]:
    """A call; with ``index`` as a delta."""
    found = {"id": number, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return found if index is None else {"index": index, **found}


def message(answer: Answer) -> dict[str, Any]:
    """The assistant's message of a finished answer."""
    found: dict[str, Any] = {"role": "assistant", "content": answer.content if answer.content.strip() or not answer.calls else None,
                             "refusal": None}
    if answer.reasoning:
        found["reasoning_content"] = answer.reasoning
    if answer.calls:
        found["tool_calls"] = [tool_call(number, call) for number, call in answer.calls]
    return found


def chat_delta(delta: Delta, calls_before: int) -> dict[str, Any]:
    """A chunk's ``delta``; empty if nothing is to be shown."""
    found: dict[str, Any] = {}
    if delta.reasoning:
        found["reasoning_content"] = delta.reasoning
    if delta.content:
        found["content"] = delta.content
    if delta.calls:
        found["tool_calls"] = [tool_call(number, call, calls_before + place) for place, (number, call) in enumerate(delta.calls)]
    return found


def usage(prompt: int, answers: Sequence[Answer]) -> dict[str, Any]:
    """Token counts; a prompt that serves several choices counts once."""
    completion = sum(len(answer.tokens) for answer in answers)
    ends = [answer.end for answer in answers if answer.end is not None]
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": max((end.cached for end in ends), default=0)},
        "completion_tokens_details": {"forced_tokens": sum(answer.forced for answer in answers),
                                      "narrowed": sum(end.narrowed for end in ends)},
    }


def chat_logprobs(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[str, Any]:
    """``logprobs`` of chat completions."""
    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = vocabulary.token(token)
        return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(data)}

    return {"content": [{**entry(token.token, token.logprob), "top_logprobs": [entry(other, score) for other, score in token.top]}
                        for token in tokens], "refusal": None}


def text_logprobs(tokens: Sequence[Token], vocabulary: Vocabulary, offset: int) -> dict[str, Any]:
    """``logprobs`` of completions; ``offset`` characters came before."""
    texts = [vocabulary.token(token.token).decode("utf-8", "replace") for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts, "token_logprobs": [max(token.logprob, LEAST_LOGPROB) for token in tokens], "text_offset": offsets,
        "top_logprobs": [{vocabulary.token(other).decode("utf-8", "replace"): score for other, score in token.top} for token in tokens],
    }


def event(data: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode("utf-8", "surrogatepass")
