"""The cache folder: where downloaded models and prepared vocabularies live.

``STCC_CACHE`` names it; else it is the platform's own (``$XDG_CACHE_HOME/stcc``, ``~/Library/Caches/stcc``,
``%LOCALAPPDATA%\\stcc``). Nothing outside it is ever written. Everything in it can be deleted at any time; it is made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder's path; it need not exist yet."""
    named = os.environ.get("STCC_CACHE")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "stcc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "stcc"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stcc"


@contextlib.contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A fresh folder beside ``target`` that becomes ``target`` when the block ends well and vanishes when it does not.

    Readers therefore see all of it or none. When another process finished the same folder first, theirs stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield fresh
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A fresh path beside ``target`` that replaces it when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    fresh = Path(name)
    try:
        yield fresh
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
