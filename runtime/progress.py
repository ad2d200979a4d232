"""What commands show while they work: a status line on standard error, once the work takes longer than a moment.

In: a description. Out: rich's ``Status``, which appears after ``PATIENCE`` seconds, only on a terminal, and leaves nothing behind. The
command line hands one such console to every command (``click.pass_obj``), typed as rich's own ``Console``.
"""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status

PATIENCE = 1.0
"""Seconds of work before anything is shown."""


class DelayedStatus(Status):
    """A status line that starts late; stopping before that shows nothing."""

    _timer: threading.Timer | None = None

    def start(self) -> None:
        """Begin to wait; on anything but a terminal, for good."""
        if self.console.is_terminal:
            self._timer = threading.Timer(PATIENCE, super().start)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Remove the line, or keep it from appearing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            super().stop()


class ProgressConsole(Console):
    """Standard error, with status lines that wait; texts are shown as they are, without markup."""

    def __init__(self) -> None:
        super().__init__(stderr=True, markup=False, highlight=False, emoji=False)

    def status(self, status: RenderableType, **style: Any) -> Status:
        """A ``DelayedStatus`` of this console; ``style`` as for ``rich.console.Console.status``."""
        return DelayedStatus(status, console=self, **style)
