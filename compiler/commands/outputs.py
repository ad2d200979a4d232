"""What the compiler's commands share: a target is looked at before any work is done for it, and a report of what was written."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stcc.formats.summary import note_lines, printable


def check_target(target: Path, inputs: Iterable[Path]) -> None:
    """Refuse a target before any work is done for it.

    Raises:
        click.BadParameter: it is one of ``inputs``.
        OSError: its folder is not there.
    """
    if any(os.path.exists(target) and os.path.samefile(target, path) for path in inputs):
        raise click.BadParameter(f"{target} is read by this command; give another name", param_hint="-o")
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(target.parent))


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """The report of a written artifact on standard output."""
    if as_json:
        click.echo(json.dumps(report))
        return
    console = plain_console()
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("file", f"{printable(report['file'])}  ({report['bytes']:,} bytes)")
    table.add_row("machine", f"{report['states']:,} states, {report['classes']} byte classes, {report['sites']} call sites")
    for vocabulary in report["vocabularies"]:
        name = printable(vocabulary["name"]) or vocabulary["fingerprint"][:16]
        table.add_row("bound to", f"{name}  ({vocabulary['size']:,} tokens, {vocabulary['actions']:,} token actions)")
    console.print(table)
    for style, key, label in (("yellow", "warnings", "warning"), ("red", "unenforced", "NOT ENFORCED")):
        for line in note_lines(report[key]):
            console.print(label, style=style, end=" ")
            console.print(line, soft_wrap=True)


def plain_console() -> Console:
    """Standard output, texts shown as they are; off a terminal, lines are as long as they need."""
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout is not None and sys.stdout.isatty() else 400)


def print_times(seconds: dict[str, float], console: Console) -> None:
    """The seconds of each stage, as a table."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, taken in [*seconds.items(), ("total", sum(seconds.values()))]:
        table.add_row(name, f"{taken * 1e3:,.1f} ms")
    console.print(table)
