"""``stcc compile``: one source file to one ``.stc``, or to the text of one of its stages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from stcc.compiler.commands.flags import option_flags, read_documents
from stcc.compiler.commands.outputs import check_target, print_report, print_times
from stcc.compiler.emit import StageReached, StageTrace, render
from stcc.compiler.options import Options
from stcc.compiler.pipeline import STAGES, Trace
from stcc.compiler.sources import KINDS, compile_source, source_kind, type_text
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Artifact, Vocabulary
from stcc.formats.container import write_atomic
from stcc.formats.summary import printable, summarize

_SCHEMA_FLAGS = ("whitespace", "closed", "property_order", "formats", "unenforced", "documents")
_DIALECTS = {"json_schema": ("outlines",), "regex": ("python", "ecma"), "tools": (), "policy": ()}


@click.command("compile")
@click.argument("source", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--type", "type_name", metavar="MODULE:NAME", default=None,
              help="In place of SOURCE: a Python type (pydantic model, dataclass, TypedDict, hint); its module is imported.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Where to write; default: the source's name with .stc.")
@click.option("--kind", type=click.Choice(KINDS), default=None, help="Default: by the file's name.")
@click.option("--vocab", "packs", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Bind to this .stv; repeatable.")
@click.option("--tokenizer", "tokenizers", multiple=True, help="Bind to this tokenizer (file, folder or hub name); repeatable.")
@option_flags
@click.option("--emit", type=click.Choice(STAGES), default=None, help="Print this stage in place of writing a file.")
@click.option("--time-passes", is_flag=True, help="Say how long each stage took, on standard error.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_context
def compile_command(
    ctx: click.Context, /, source: Path | None, type_name: str | None, output: Path | None, kind: str | None,
    packs: tuple[Path, ...], tokenizers: tuple[str, ...],
    whitespace: str | None, closed: bool, documents: tuple[str, ...], dialect: str | None, emit: str | None, time_passes: bool,
    as_json: bool, **flags: Any,
) -> None:
    """Compile SOURCE (.schema.json, .json, .regex, .tools.json or .policy.yaml), or a Python type, to a .stc file."""
    console: Console = ctx.obj
    if (source is None) == (type_name is None):
        raise click.UsageError("give one of SOURCE and --type")
    if type_name is not None and kind not in (None, "json_schema"):
        raise click.UsageError("--type gives a JSON Schema: leave --kind out")
    given = _Given(source, kind or source_kind(source)) if source is not None else _named_type(type_name or "")
    _refuse_idle_flags(ctx, given.kind, dialect)
    target = output or (default_output(source) if source is not None else Path((type_name or "").rpartition(":")[2] + ".stc"))
    if emit is None:
        check_target(target, [*([source] if source is not None else []), *packs])
    elif output is not None:
        raise click.UsageError("--emit prints to standard output and writes no file: leave -o out")
    elif emit == "actions" and not packs and not tokenizers:
        raise click.UsageError("--emit actions shows what a vocabulary's tokens do: give --vocab or --tokenizer")
    options = Options(whitespace=whitespace or ("spaced" if given.kind == "tools" else "compact"), dialect=dialect or "",
                      additional_properties="closed" if closed else "schema", schemas=read_documents(documents), **flags)
    trace = StageTrace(emit) if emit else Trace()
    with console.status(f"compiling {printable(given.path.name)}"):
        artifact = _compile(given, options, trace, packs, tokenizers)
        if artifact is None:
            report = {"stage": emit, "text": render(trace, emit or "")}
        else:
            data = trace.stage("file", artifact.to_bytes)
            write_atomic(target, data)
            report = {"file": str(target), **summarize(artifact, len(data))}
    if as_json:
        click.echo(json.dumps(report | {"seconds": trace.seconds} if time_passes else report))
        return
    if artifact is None:
        click.echo(report["text"])
    else:
        print_report(report, as_json=False)
    if time_passes:
        print_times(trace.seconds, console)


@dataclass(frozen=True)
class _Given:
    """What to compile: a file, or text that ``path`` names only."""

    path: Path
    kind: str
    text: bytes | None = None


def _named_type(name: str) -> _Given:
    """The type called ``name``, looked for in this folder too."""
    return _Given(Path(name), "json_schema", type_text(name, Path.cwd()))


def _compile(
    given: _Given, options: Options, trace: Trace, packs: tuple[Path, ...], tokenizers: tuple[str, ...],
) -> Artifact | None:
    """The artifact; None once the stage to emit is reached."""
    def vocabularies() -> list[Vocabulary]:
        return [Vocabulary.load(pack) for pack in packs] + [vocabulary_from_tokenizer(name) for name in tokenizers]

    try:
        bound_to = trace.stage("vocabularies", vocabularies) if packs or tokenizers else ()
        artifact = compile_source(given.path, given.kind, options, bound_to, trace, text=given.text)
        return None if isinstance(trace, StageTrace) else artifact
    except StageReached:
        return None


def _refuse_idle_flags(ctx: click.Context, kind: str, dialect: str | None) -> None:
    """A flag that would change nothing is wrong usage: it is not ignored."""
    if dialect is not None and dialect not in _DIALECTS[kind]:
        known = " and ".join(_DIALECTS[kind]) or "none"
        raise click.BadParameter(f"{dialect} is not a dialect of {kind}, which has {known}", param_hint="--dialect")
    idle = _SCHEMA_FLAGS if kind in ("regex", "policy") else ()
    for parameter in ctx.command.params:
        if parameter.name in idle and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            what = "pattern" if kind == "regex" else kind
            raise click.UsageError(f"{parameter.opts[0]} is about JSON Schemas and means nothing for a {what}")


def default_output(source: Path) -> Path:
    """``person.schema.json`` -> ``person.stc``, beside it."""
    name = source.name
    for ending in (".schema.json", ".tools.json", ".policy.yaml", ".policy.yml", ".json", ".regex", source.suffix):
        if ending and name.lower().endswith(ending.lower()) and len(name) > len(ending):
            name = name[:-len(ending)]
            break
    return source.with_name(name + ".stc")
