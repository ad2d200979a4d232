"""Tables of a manifest: typed access to TOML values, with the place of whatever is wrong.

In: a table as ``tomllib`` reads it. Out: its values, each checked for its type when asked for. ``finish`` refuses keys that nobody
asked for, so that nothing in a manifest is ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from stcc.compiler.errors import SourceError

_EXAMPLES = {str: 'key = "text"', bool: "key = true", int: "key = 100", float: "key = 0.5", dict: "[key] and what it holds below it",
             list: "[[key]] before each of its tables"}
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number", dict: "a table", list: "a list"}


class Table:
    """One table; ``place`` names it in messages (empty for the root)."""

    def __init__(self, values: Mapping[str, Any], source: str, place: str = "") -> None:
        self.values, self.source, self.place = values, source, place
        self._known: list[str] = []

    def error(self, key: str, message: str, hint: str = "") -> SourceError:
        """The error that ``message`` says of ``key`` (empty: of the table)."""
        return SourceError(message, source=self.source, pointer=".".join(filter(None, (self.place, key))), hint=hint)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of ``key``; ``default`` where it is left out. SourceError unless it is of ``kind``; whole numbers are numbers."""
        self._known.append(key)
        if key not in self.values:
            return default
        value = self.values[key]
        fits = type(value) in (int, float) if kind is float else type(value) is kind
        if not fits:
            raise self.error(key, f"it is not {_TYPE_NAMES[kind]}", f"write {_EXAMPLES[kind]}")
        return value

    def path(self, key: str) -> str | None:
        """A path; None where it is left out. SourceError where it cannot be one."""
        text: str | None = self.get(key, str)
        if text is not None and "\0" in text:
            raise self.error(key, "a path has no NUL", "take it out")
        return text

    def strings(self, key: str) -> list[str] | None:
        """A string or a list of strings as a list; None where it is left out."""
        self._known.append(key)
        value = self.values.get(key)
        if value is None:
            return None
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(entry, str) and entry for entry in found):
            raise self.error(key, "it is not a string or a list of strings", 'write key = "text" or key = ["one", "other"]')
        return found

    def table(self, key: str) -> Table:
        """The table under ``key``; an empty one where it is left out."""
        return Table(self.get(key, dict, {}), self.source, ".".join(filter(None, (self.place, key))))

    def tables(self, key: str) -> list[Table]:
        """The tables of a list; SourceError where one is something else."""
        entries = self.get(key, list, [])
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise self.error(f"{key}[{number}]", "it is not a table", f"write [[{key}]] before each")
        return [Table(entry, self.source, ".".join(filter(None, (self.place, f"{key}[{number}]")))) for number, entry in enumerate(entries)]

    def finish(self) -> None:
        """SourceError for the first key that was never asked for, with the one that was likely meant."""
        for key in self.values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                raise self.error(key, "there is no such key", f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}")
