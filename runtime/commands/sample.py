"""``stcc sample``: random valid outputs, one a line (JSON strings under ``--json``)."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from stcc.runtime.sampling import random_output
from stcc.runtime.seam import open_artifact


@click.command("sample")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-n", "--count", type=click.IntRange(0), default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--max-bytes", type=click.IntRange(1), default=400, show_default=True, help="Length at which an output winds down.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def sample_command(file: Path, count: int, seed: int, max_bytes: int, as_json: bool) -> None:
    """Write random valid outputs of FILE, a .stc or a source."""
    machine = open_artifact(file).machine
    rng = np.random.default_rng(seed)
    outputs = [random_output(machine, rng, max_bytes=max_bytes).decode("utf-8", "replace") for _ in range(count)]
    if as_json:
        click.echo(json.dumps({"file": str(file), "seed": seed, "outputs": outputs}))
        return
    for output in outputs:
        click.echo(output)
