"""What an artifact holds, as plain data for reports, and as text that is safe to show.

In: an ``Artifact``. Out: the keys that every report of one carries. Names, pointers and messages come from sources and files that nobody
vouches for, so that what goes to a terminal goes through ``printable`` first. Cost: nothing is decoded but the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stcc.formats.artifact import Artifact


def summarize(artifact: Artifact, size: int) -> dict[str, Any]:
    """Kind, sizes, notes and vocabularies of ``artifact``; ``size`` is that of its file in bytes.

    Raises:
        FormatError: the machine's sections are damaged.
    """
    machine, known = artifact.machine, artifact.metadata
    return {
        "kind": artifact.kind, "name": known.name, "bytes": size, "states": machine.states, "classes": machine.classes,
        "sites": machine.sites, "actions": [bound.actions for bound in artifact.vocabularies],
        "vocabularies": [{"fingerprint": bound.fingerprint, "name": bound.name, "size": bound.size, "actions": bound.actions}
                         for bound in artifact.vocabularies],
        "warnings": [dict(note) for note in known.warnings], "unenforced": [dict(note) for note in known.unenforced],
    }


def note_lines(notes: Iterable[Mapping[str, str]]) -> list[str]:
    """Warnings or unenforced keywords, one line each: ``pointer: keyword: message``."""
    return [": ".join(printable(note[key]) for key in ("pointer", "keyword", "message") if note.get(key)) for note in notes]


def printable(text: str) -> str:
    """``text`` with control characters, lone surrogates and other invisible ones spelled as escapes.

    >>> printable("a\\x1b[31m b")
    'a\\\\x1b[31m b'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
