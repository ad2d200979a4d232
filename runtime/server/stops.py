"""Strings that end an output: text is let through as far as it cannot be the beginning of one.

>>> stops = StopStrings([b"END"])
>>> stops.feed(b"so E"), stops.feed(b"N route EN"), stops.feed(b"D more")
((b'so ', False), (b'EN route ', False), (b'', True))
"""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """See the module's text. Cost: linear in the text times the number of strings."""

    def __init__(self, strings: Iterable[bytes]) -> None:
        self._strings = [string for string in strings if string]
        self._held = b""

    def feed(self, text: bytes) -> tuple[bytes, bool]:
        """The text that may be shown now, and whether a stop string was met; what follows it is dropped."""
        if not self._strings:
            return text, False
        text = self._held + text
        met = [place for string in self._strings if (place := text.find(string)) >= 0]
        if met:
            self._held = b""
            return text[: min(met)], True
        keep = max(overlap(text, string) for string in self._strings)
        self._held = text[len(text) - keep:]
        return text[: len(text) - keep], False

    def rest(self) -> bytes:
        """What was held back, at the end."""
        held, self._held = self._held, b""
        return held


def overlap(text: bytes, string: bytes) -> int:
    """Length of the longest end of ``text`` that ``string`` begins with, shorter than ``string``."""
    return next((size for size in range(min(len(text), len(string) - 1), 0, -1) if text.endswith(string[:size])), 0)
