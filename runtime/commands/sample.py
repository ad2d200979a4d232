"""``stcc sample``: random valid outputs, one a line (JSON strings under ``--json``), written as they are made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from rich.console import Console

from stcc.formats.summary import printable
from stcc.runtime.sampling import Walker
from stcc.runtime.seam import compile_file

MOST_OUTPUTS = 1_000_000
LONGEST = 1 << 20


@click.command("sample")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-n", "--count", type=click.IntRange(0, MOST_OUTPUTS), default=5, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--max-bytes", type=click.IntRange(1, LONGEST), default=400, show_default=True, help="Length at which an output winds down.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_obj
def sample_command(console: Console, file: Path, count: int, seed: int, max_bytes: int, as_json: bool) -> None:
    """Write random valid outputs of FILE, a .stc or a source.

    To a terminal, control characters are shown as escapes; to a file or pipe, outputs are written as they are.
    """
    with console.status(f"opening {printable(file.name)}"):
        walker = Walker(compile_file(file).machine)
    rng = np.random.default_rng(seed)
    outputs = (walker.output(rng, max_bytes) for _ in range(count))
    if as_json:
        _write_json(file, seed, outputs)
        return
    for output in outputs if sys.stdout is not None else ():
        text = printable(output.decode("utf-8", "backslashreplace")).encode() if sys.stdout.isatty() else output
        sys.stdout.buffer.write(text + b"\n")


def _write_json(file: Path, seed: int, outputs: Iterator[bytes]) -> None:
    """One object, its list written item by item, so that memory does not grow with it."""
    click.echo(json.dumps({"file": str(file), "seed": seed})[:-1] + ', "outputs": [', nl=False)
    for number, output in enumerate(outputs):
        click.echo((", " if number else "") + json.dumps(output.decode("utf-8", "replace")), nl=False)
    click.echo("]}")
