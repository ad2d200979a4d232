"""The path of the value at a byte of a JSON text, which need not be whole.

In: a text and an offset. Out: the members and indices that lead to the innermost value that contains the byte before the offset, or that
begins there. Where a value has just ended, it is that value. Texts that are not JSON have the empty path. Cost: linear.
"""

from __future__ import annotations

import json

Path = tuple[str | int, ...]
_SCALAR_ENDS = frozenset(b",:]}")
_SPACES = frozenset(b" \t\r\n")


def path_at(text: bytes, offset: int) -> Path:
    """The path of the value at ``offset`` of ``text``."""
    reader = _Reader()
    place = 0
    while place < offset:
        place = reader.read(text, place, offset)
    return tuple(reader.path)


def pointer_text(path: Path) -> str:
    """A JSON pointer: empty, or ``/a/0``.

    >>> pointer_text(("a/b", 0))
    '/a~1b/0'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class _Reader:
    """Where reading is: ``path`` of the value that was last begun, ``depths`` of the open containers, and whether a key comes next."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.containers: list[tuple[str, int]] = []  # kind, and the length of its path
        self.in_key = False

    def read(self, text: bytes, place: int, offset: int) -> int:
        """Read the token at ``place``, as far as ``offset``; the place after it."""
        byte = text[place]
        if byte in _SPACES:
            return place + 1
        if byte in b"{[":
            self._open("object" if byte == ord("{") else "array")
            return place + 1
        if byte in b"}]":
            self._close()
            return place + 1
        if byte == ord(","):
            self._next()
            return place + 1
        if byte == ord(":"):
            return place + 1
        end = _string_end(text, place) if byte == ord('"') else _scalar_end(text, place)
        if self.in_key and end <= offset:
            self.path.append(_name(text[place:end]))
            self.in_key = False
        return min(end, offset)

    def _open(self, kind: str) -> None:
        self.containers.append((kind, len(self.path)))
        self.in_key = kind == "object"
        if kind == "array":
            self.path.append(0)

    def _close(self) -> None:
        if self.containers:
            _, length = self.containers.pop()
            del self.path[length:]
            self.in_key = False

    def _next(self) -> None:
        if not self.containers:
            return
        kind, length = self.containers[-1]
        last = self.path[length] if len(self.path) > length else 0
        del self.path[length:]
        if kind == "array":
            self.path.append(last + 1 if isinstance(last, int) else 0)
        self.in_key = kind == "object"


def _string_end(text: bytes, place: int) -> int:
    """The place after the string that begins at ``place``, or the text's length + 1 if it does not end."""
    at = place + 1
    while at < len(text):
        if text[at] == ord("\\"):
            at += 1
        elif text[at] == ord('"'):
            return at + 1
        at += 1
    return len(text) + 1


def _scalar_end(text: bytes, place: int) -> int:
    at = place + 1
    while at < len(text) and text[at] not in _SCALAR_ENDS and text[at] not in _SPACES:
        at += 1
    return at


def _name(token: bytes) -> str:
    try:
        name = json.loads(token)
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""
