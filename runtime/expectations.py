"""What may follow, in words: the alternatives at a configuration, for a person who looks at a text that fails there.

In: a ``Matcher``. Out: a few short phrases. Text that is forced is shown whole; where few bytes may follow, each is shown with the text
that it forces in turn (the whole key, not its first letter); many bytes are put together as sets. Cost: a step for each byte class, and
the forced text of at most ``MOST_SPELLED`` alternatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stcc.formats.summary import printable

if TYPE_CHECKING:
    from stcc.runtime.matcher import Matcher

MOST_SPELLED = 16
"""Up to so many bytes are alternatives of their own."""
LONGEST_SHOWN = 60
"""Characters of forced text shown."""
MANY = 60
"""From so many printable ASCII characters on, the exceptions are named in their place."""
THE_END = "the end of the text"
_NAMED = {0x09: "a tab", 0x0A: "a line feed", 0x0D: "a carriage return", 0x20: "a space"}
_PRINTABLE = range(0x21, 0x7F)
_LEADS = range(0xC2, 0xF5)


def expected(matcher: Matcher) -> list[str]:
    """The alternatives, as phrases; never empty."""
    ending = [THE_END] if matcher.is_accepting() else []
    allowed = list(matcher.allowed_bytes())
    forced = _whole_characters(matcher.forced_bytes())
    if forced:
        return [quoted(forced)]
    spelled = {byte: _forced_from(matcher, byte) for byte in allowed if byte < 0x80} if len(allowed) <= MOST_SPELLED else {}
    longer = {byte: text for byte, text in spelled.items() if len(text) > 1}
    phrases = [quoted(text) for text in longer.values()] + byte_sets([byte for byte in allowed if byte not in longer])
    return phrases + ending or ["nothing: no text matches"]


def _forced_from(matcher: Matcher, byte: int) -> bytes:
    branch = matcher.fork()
    branch.accept_bytes(bytes([byte]))
    return _whole_characters(bytes([byte]) + branch.forced_bytes())


def _whole_characters(text: bytes) -> bytes:
    """``text`` without a character that it only begins: which one follows is not forced."""
    lead = next((place for place in range(1, min(4, len(text) + 1)) if text[-place] & 0xC0 != 0x80), 0)
    missing = lead and text[-lead] >= 0xC2 and lead < 2 + (text[-lead] >= 0xE0) + (text[-lead] >= 0xF0)
    return text[:-lead] if missing else text


def quoted(text: bytes) -> str:
    """``text`` in backquotes, shortened; bytes that are not UTF-8 text as escapes."""
    shown = printable(text.decode("utf-8", "backslashreplace"))
    return f"`{shown[:LONGEST_SHOWN]}…`" if len(shown) > LONGEST_SHOWN else f"`{shown}`"


def byte_sets(allowed: list[int]) -> list[str]:
    """A set of bytes as phrases: runs of ASCII characters, named controls, and the bytes beyond ASCII taken together.

    >>> byte_sets([9, 32, *range(48, 58), 97])
    ['`0` to `9`', '`a`', 'a space', 'a tab']
    """
    members = set(allowed)
    found = [byte for byte in _PRINTABLE if byte in members]
    phrases = _many(members) if len(found) >= MANY else _runs(found)
    phrases += [_NAMED[byte] for byte in (0x20, 0x09, 0x0A, 0x0D) if byte in members]
    phrases += [f"byte {name}" for name in _hexadecimal([byte for byte in allowed if (byte < 0x20 or byte == 0x7F) and byte not in _NAMED])]
    beyond = [byte for byte in allowed if byte >= 0x80]
    if set(_LEADS) <= members:
        phrases.append("any character beyond ASCII")
    elif beyond and beyond[0] >= 0xC2:
        phrases.append(f"some characters beyond ASCII (first byte {', '.join(_hexadecimal(beyond))})")
    elif beyond:
        phrases.append(f"some other characters beyond ASCII (next byte {', '.join(_hexadecimal(beyond))})")
    return phrases


def _many(members: set[int]) -> list[str]:
    missing = [f"`{chr(byte)}`" for byte in _PRINTABLE if byte not in members]
    return ["any ASCII character" + (f" except {', '.join(missing)} and controls" if missing else " but controls")]


def _runs(found: list[int]) -> list[str]:
    """Runs of neighbours; letters, digits and signs do not mix."""
    return [f"`{chr(low)}`" if low == high else f"`{chr(low)}` to `{chr(high)}`" if high > low + 1 else f"`{chr(low)}`, `{chr(high)}`"
            for low, high in _intervals(found, lambda byte: (chr(byte).isdigit(), chr(byte).isalpha()))]


def _hexadecimal(found: list[int]) -> list[str]:
    return [f"{low:#04x}" if low == high else f"{low:#04x} to {high:#04x}" for low, high in _intervals(found, lambda byte: True)]


def _intervals(found: list[int], kind: Callable[[int], object]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for byte in found:
        if spans and byte == spans[-1][1] + 1 and kind(byte) == kind(spans[-1][1]):
            spans[-1] = spans[-1][0], byte
        else:
            spans.append((byte, byte))
    return spans
