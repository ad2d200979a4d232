"""What a command is asked to write, looked at before any work is done for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click


def check_target(target: Path, flag: str, *inputs: Path | None) -> None:
    """Refuse ``target``, given with ``flag``, where it would replace one of ``inputs`` or cannot be made.

    Raises:
        click.BadParameter: it is one of ``inputs``.
        OSError: its folder is not there.
    """
    if any(path is not None and os.path.exists(target) and os.path.samefile(target, path) for path in inputs):
        raise click.BadParameter(f"{target} is read by this command; give another name", param_hint=flag)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(target.parent))
