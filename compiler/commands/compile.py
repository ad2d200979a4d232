"""``stcc compile``: one source file to one ``.stc``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stcc.compiler.commands.sources import compile_source, source_kind
from stcc.compiler.emit import render
from stcc.compiler.options import Options
from stcc.compiler.pipeline import STAGES, Trace
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Artifact, Vocabulary


def _option_flags(command: Any) -> Any:
    for flag in reversed((
        click.option("--whitespace", type=click.Choice(["compact", "spaced", "flexible"]), default="compact", show_default=True),
        click.option("--closed", is_flag=True, help="additionalProperties left out means false."),
        click.option("--property-order", type=click.Choice(["declared", "any"]), default="declared", show_default=True),
        click.option("--formats", type=click.Choice(["enforce", "annotate"]), default="enforce", show_default=True),
        click.option("--unenforced", type=click.Choice(["error", "warn"]), default="error", show_default=True,
                     help="warn: leave unsupported keywords unenforced, and record them in the artifact."),
        click.option("--dialect", type=click.Choice(["python", "ecma", "outlines"]), default=None,
                     help="Regex syntax, or outlines: the language outlines-core gives a schema."),
        click.option("--max-states", type=click.IntRange(1), default=200_000, show_default=True),
        click.option("--time-limit", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, help="Seconds."),
        click.option("--max-depth", type=click.IntRange(1), default=128, show_default=True),
        click.option("--schemas", "documents", multiple=True, metavar="URI=FILE", help="Another document for remote references; repeatable."),
    )):
        command = flag(command)
    return command


def _documents(pairs: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        uri, _, file = pair.partition("=")
        if not file:
            raise click.BadParameter(f"{pair!r} is not URI=FILE", param_hint="--schemas")
        found[uri] = Path(file).read_bytes()
    return found


@click.command("compile")
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write; default: the source's name with .stc.")
@click.option("--kind", type=click.Choice(["json_schema", "regex"]), default=None, help="Default: by the file's name.")
@click.option("--vocab", "packs", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Bind to this .stv; repeatable.")
@click.option("--tokenizer", "tokenizers", multiple=True, help="Bind to this tokenizer (file, folder or hub name); repeatable.")
@_option_flags
@click.option("--emit", type=click.Choice(STAGES), default=None, help="Print this stage instead of writing a file.")
@click.option("--time-passes", is_flag=True, help="Say how long each stage took.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def compile_command(
    source: Path, output: Path | None, kind: str | None, packs: tuple[str, ...], tokenizers: tuple[str, ...], closed: bool, documents: tuple[str, ...],
    dialect: str | None, emit: str | None, time_passes: bool, as_json: bool, **flags: Any,
) -> None:
    """Compile SOURCE (.schema.json, .json or .regex) to a .stc file."""
    options = Options(additional_properties="closed" if closed else "schema", dialect=dialect or "", schemas=_documents(documents), **flags)
    trace = Trace()
    console = Console(stderr=True)
    with console.status(f"compiling {source.name}"):
        vocabularies = [Vocabulary.load(pack) for pack in packs] + [vocabulary_from_tokenizer(name) for name in tokenizers]
        artifact = compile_source(source, kind or source_kind(source), options, vocabularies, trace)
    if emit:
        click.echo(render(emit, trace, artifact))
        return
    target = output or default_output(source)
    artifact.save(target)
    report = compile_report(artifact, target, trace if time_passes else None)
    if as_json:
        click.echo(json.dumps(report))
    else:
        _print(report, artifact, Console())


def default_output(source: Path) -> Path:
    """``person.schema.json`` -> ``person.stc``, beside it."""
    return source.with_name(source.name.split(".")[0] + ".stc")


def compile_report(artifact: Artifact, target: Path, trace: Trace | None) -> dict[str, Any]:
    """The keys of interfaces: kind, states, classes, actions, bytes, warnings, unenforced, vocabularies (and seconds by stage)."""
    report: dict[str, Any] = {
        "file": str(target), "kind": artifact.kind, "states": artifact.machine.states, "classes": artifact.machine.classes, "sites": artifact.machine.sites,
        "actions": [vocabulary.actions for vocabulary in artifact.vocabularies], "bytes": target.stat().st_size, "warnings": [dict(note) for note in artifact.metadata.warnings],
        "unenforced": [dict(note) for note in artifact.metadata.unenforced], "vocabularies": [{"fingerprint": vocabulary.fingerprint, "name": vocabulary.name} for vocabulary in artifact.vocabularies],
    }
    if trace is not None:
        report["seconds"] = trace.seconds
    return report


def _print(report: dict[str, Any], artifact: Artifact, console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("file", f"{report['file']}  ({report['bytes']:,} bytes)")
    table.add_row("machine", f"{report['states']:,} states, {report['classes']} byte classes, {report['sites']} call sites")
    for vocabulary in artifact.vocabularies:
        table.add_row("bound to", f"{vocabulary.name or vocabulary.fingerprint[:16]}  ({vocabulary.actions:,} token actions)")
    for name, seconds in report.get("seconds", {}).items():
        table.add_row(f"  {name}", f"{seconds * 1e3:.1f} ms")
    console.print(table)
    for style, entries in (("yellow", report["warnings"]), ("red", report["unenforced"])):
        for entry in entries:
            label = "warning" if style == "yellow" else "NOT ENFORCED"
            console.print(f"[{style}]{label}[/] {entry['pointer']}: {entry['keyword']}: {entry['message']}", highlight=False, soft_wrap=True)
