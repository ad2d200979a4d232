"""``stcc bind``: add a vocabulary's sections to an artifact."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from stcc.compiler.binding.bind import bind
from stcc.formats import Artifact, Vocabulary


@click.command("bind")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--vocab", "packs", required=True, multiple=True, type=click.Path(exists=True, dir_okay=False), help="A .stv file; repeatable.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The .stc file to write.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def bind_command(artifact: Path, packs: tuple[str, ...], output: Path, as_json: bool) -> None:
    """Bind ARTIFACT (.stc) to the given vocabularies."""
    bound = Artifact.load(artifact)
    with Console(stderr=True).status(f"binding {artifact.name}"):
        for pack in packs:
            bound = bind(bound, Vocabulary.load(pack))
        bound.save(output)
    report = {"file": str(output), "bytes": output.stat().st_size, "vocabularies": [{"fingerprint": vocabulary.fingerprint, "name": vocabulary.name} for vocabulary in bound.vocabularies],
              "actions": [vocabulary.actions for vocabulary in bound.vocabularies]}
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{output}: {report['bytes']:,} bytes")
    for vocabulary in bound.vocabularies:
        click.echo(f"  {vocabulary.name or vocabulary.fingerprint[:16]}  {vocabulary.actions:,} token actions")
