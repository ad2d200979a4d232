"""One build at a time: an advisory lock on a file, let go by the system when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PAUSE = 0.1
"""Seconds between two tries."""

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at ``path``, whose folder is made; ``waiting`` is called once if another build has it. OSError if it cannot be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        said = False
        while True:
            try:
                _take(descriptor)
                break
            except OSError:
                if not said:
                    waiting()
                    said = True
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)
