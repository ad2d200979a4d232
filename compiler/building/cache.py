"""The cache of builds: key -> artifact and what is known of it.

    <folder>/entries/<first two digits>/<key>        one JSON line, then the bytes of the artifact
    <folder>/vocabularies/<digest>.stv               packs of tokenizers
    <folder>/lock                                    held by the build that writes here

An entry is written in one step and never changed, and its line says the digest of its bytes: whatever a killed build leaves is whole or
is not there, and what is damaged otherwise is no entry. Entries without bytes hold refusals that do not depend on the machine's speed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stcc.formats.container import write_atomic

Record = dict[str, Any]
"""Facts of one artifact (see ``work.facts``), or ``{"error": ...}``."""


_KEY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}(?:\.stv)?\.[0-9a-f]+\.tmp")
"""Names of what the cache writes: nothing else is removed from its folder, whatever else lies there."""


class Cache:
    """A folder of entries; it need not exist before something is stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def vocabularies(self) -> Path:
        """Where packs of tokenizers are kept."""
        return self.folder / "vocabularies"

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / "entries" / key[:2] / key

    def record(self, key: str) -> Record | None:
        """What is known of ``key``'s artifact; None if there is no entry."""
        try:
            with open(self.path(key), "rb") as file:
                record = json.loads(file.readline())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def artifact(self, key: str) -> bytes | None:
        """The artifact's bytes; None if there is no entry, or its bytes are not those it was made with."""
        try:
            line, data = self.path(key).read_bytes().split(b"\n", 1)
            whole = hashlib.sha256(data).hexdigest() == json.loads(line)["sha256"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return data if whole else None

    def store(self, key: str, record: Record, data: bytes = b"") -> None:
        """Keep an artifact, or a refusal. OSError if the folder cannot be written."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(record, sort_keys=True).encode() + b"\n" + data)

    def sweep(self) -> None:
        """Remove what killed builds left unfinished. Only for the holder of the lock."""
        for path in (*self.folder.glob("entries/??/.*.tmp"), *self.folder.glob("vocabularies/.*.tmp")):
            if _UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def prune(self, keys: Iterable[str]) -> int:
        """Remove all entries but ``keys``; how many those were. Only for the holder of the lock."""
        kept = set(keys)
        dropped = [path for path in self.folder.glob("entries/??/*") if _KEY.fullmatch(path.name) and path.name not in kept]
        for path in dropped:
            path.unlink(missing_ok=True)
        return len(dropped)
