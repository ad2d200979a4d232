"""``stcc bind``: add a vocabulary's sections to an artifact."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from stcc.compiler.binding.bind import bind
from stcc.compiler.commands.outputs import check_target, print_report
from stcc.formats import Artifact, Vocabulary
from stcc.formats.container import write_atomic
from stcc.formats.summary import printable, summarize


@click.command("bind")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--vocab", "packs", required=True, multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A .stv file; repeatable.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="The .stc file to write; may be ARTIFACT.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_obj
def bind_command(console: Console, artifact: Path, packs: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Bind ARTIFACT (.stc) to vocabularies, beside those that it is bound to already."""
    check_target(output, packs)
    bound = Artifact.load(artifact)
    with console.status(f"binding {printable(artifact.name)}"):
        for pack in packs:
            bound = bind(bound, Vocabulary.load(pack))
        data = bound.to_bytes()
        write_atomic(output, data)
    print_report({"file": str(output), **summarize(bound, len(data))}, as_json)
