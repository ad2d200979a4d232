"""Guards for small models: when a reply goes in circles it is led to its end (section D.8 of the few-path paper).

A reply has gone wrong when it holds more calls than it may, repeats a call, or when its last n tokens stand there three times, n one of
``TAILS``. Free text ends there; a constrained reply is given just the tokens that its nearest valid ending needs. A reply whose first call
is one that the previous turn made, whose result stands before it, ends at once, and is taken up again without that tool (``steering``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stcc.runtime.server.job import Guards
from stcc.runtime.server.replies import Call, ReplyReader

TAILS = range(8, 129)
REPEATS = 3


def repeated_tail(tokens: Sequence[int]) -> int:
    """The least n of ``TAILS`` for which the last n tokens occur ``REPEATS`` times in a row at the end; 0 for none.

    >>> repeated_tail([9] + [1, 2, 3, 4, 5, 6, 7, 8] * 3), repeated_tail([1, 2, 3, 4, 5, 6, 7, 8] * 2)
    (8, 0)
    """
    for size in TAILS:
        if len(tokens) < REPEATS * size:
            break
        if tokens[-1] != tokens[-1 - size]:
            continue
        tail = tokens[-size:]
        if all(tokens[-(turn + 1) * size:-turn * size] == tail for turn in range(1, REPEATS)):
            return size
    return 0


def call_key(name: str, arguments: str) -> tuple[str, str]:
    """What calls with the same arguments share, however those are spelled.

    >>> call_key("f", '{"b": 1.0, "a":2}')
    ('f', '{"a": 2, "b": 1}')
    """
    try:
        return name, json.dumps(json.loads(arguments, parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


class Watch:
    """Watches one reply.

    Attributes:
        before: its text before the first call, once there is one.
    """

    def __init__(self, guards: Guards, call_format: Any, begun: bool = False) -> None:
        """A watch at the beginning of a reply, or behind text that was ``begun``."""
        self._guards = guards
        tools: dict[str, Any] = dict.fromkeys(guards.tools, {})
        watched = guards.format and call_format is not None
        self._reader = ReplyReader(call_format, tools, begun=begun, answers=guards.answers) if watched else None
        self._tokens: list[int] = []
        self._calls: list[tuple[str, str]] = []
        self.before = b""
        self._text: bytes | None = b"" if guards.previous else None

    def sees(self, tokens: Sequence[int], text: bytes) -> str:
        """What is wrong after more tokens and text: ``calls``, ``repeated_call``, ``previous_call``, ``repeated_tail``; or nothing."""
        if self._reader is not None:
            wrong = self._judged(self._reader.feed(text).calls, text)
            if wrong:
                return wrong
        if self._guards.tail:
            self._tokens.extend(tokens)
            if repeated_tail(self._tokens):
                return "repeated_tail"
        return ""

    def ends(self) -> str:
        """What is wrong with a reply that ends here; some formats end the last call with a stop token."""
        return self._judged(self._reader.finish().calls, b"") if self._reader is not None else ""

    def _judged(self, calls: Sequence[Call], text: bytes) -> str:
        self._note(text)
        for call in calls:
            key = call_key(call.name, call.arguments)
            if key in self._guards.previous:
                return "repeated_call" if self._calls else "previous_call"
            if self._guards.repeats and key in self._calls:
                return "repeated_call"
            self._calls.append(key)
        return "calls" if len(self._calls) >= self._guards.calls > 0 else ""

    def _note(self, text: bytes) -> None:
        """Find out where the first call begins, while there is none."""
        if self._text is None or self._reader is None:
            return
        self._text += text
        if self._reader.in_call:
            self.before, self._text = self._text[:len(self._text) - self._reader.held_back], None
