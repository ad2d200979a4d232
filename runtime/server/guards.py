"""Guards for small models: when a reply goes in circles it is led to its end (section D.8 of the few-path paper).

A reply has gone wrong when it holds more calls than it may, repeats a call, or when its last n tokens stand there three times, n one of
``TAILS``. Free text ends there; a constrained reply is given just the tokens that its nearest valid ending needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stcc.runtime.server.job import Guards
from stcc.runtime.server.replies import ReplyReader

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


class Watch:
    """Watches one reply."""

    def __init__(self, guards: Guards, call_format: Any) -> None:
        self._guards = guards
        self._reader = ReplyReader(call_format, {}) if guards.format and call_format is not None else None
        self._tokens: list[int] = []
        self._calls: list[tuple[str, str]] = []

    def sees(self, tokens: Sequence[int], text: bytes) -> str:
        """What is wrong after more tokens and their text: ``calls``, ``repeated_call``, ``repeated_tail``, or nothing."""
        if self._reader is not None:
            for call in self._reader.feed(text).calls:
                key = (call.name, call.arguments)
                if key in self._calls:
                    return "repeated_call"
                self._calls.append(key)
            if len(self._calls) >= self._guards.calls > 0:
                return "calls"
        if self._guards.tail:
            self._tokens.extend(tokens)
            if repeated_tail(self._tokens):
                return "repeated_tail"
        return ""
