"""``stcc compile``: one source file to one ``.stc``, or to the text of one of its stages."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from stcc.compiler.commands.flags import given_flags, option_flags, read_documents, refuse_idle_flags
from stcc.compiler.commands.outputs import check_target, print_report, print_times
from stcc.compiler.emit import StageReached, StageTrace, render
from stcc.compiler.errors import CompileError
from stcc.compiler.frontends.openapi import PARTS
from stcc.compiler.frontends.openapi import list_operations as operations_of
from stcc.compiler.options import Options
from stcc.compiler.pipeline import STAGES, Trace
from stcc.compiler.sources import ENDINGS, KINDS, Selection, compile_source, read_source, source_kind, type_text
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Artifact, Vocabulary
from stcc.formats.container import write_atomic
from stcc.formats.summary import printable, summarize

_PART_FLAGS = ("part", "status", "media_type")


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
@click.option("--operation", default=None, metavar="NAME", help="Of an OpenAPI document: an operationId, or 'METHOD /path'.")
@click.option("--part", type=click.Choice(PARTS), default="request", show_default=True, help="Of the operation.")
@click.option("--status", default=None, help="Of the response; default: 200, else the first success that has content.")
@click.option("--media-type", default=None, help="Of the body, where there are several JSON ones.")
@click.option("--list-operations", is_flag=True, help="Say what operations an OpenAPI document has, and compile nothing.")
@option_flags
@click.option("--emit", type=click.Choice(STAGES), default=None, help="Print this stage in place of writing a file.")
@click.option("--time-passes", is_flag=True, help="Say how long each stage took, on standard error.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_context
def compile_command(
    ctx: click.Context, /, source: Path | None, type_name: str | None, output: Path | None, kind: str | None,
    packs: tuple[Path, ...], tokenizers: tuple[str, ...], operation: str | None, part: str, status: str | None, media_type: str | None,
    list_operations: bool,
    whitespace: str | None, closed: bool, documents: tuple[str, ...], dialect: str | None, emit: str | None, time_passes: bool,
    as_json: bool, **flags: Any,
) -> None:
    """Compile SOURCE (.schema.json, .json, .regex, .tools.json, .policy.yaml, an operation of .openapi.yaml), or a type, to a .stc file."""
    console: Console = ctx.obj
    given = _given(source, type_name, kind)
    _refuse_idle_flags(ctx, given.kind)
    if given.kind == "openapi":
        if list_operations:
            _print_operations(given.path, flags["max_depth"], as_json)
            return
        if operation is None:
            raise click.UsageError("an OpenAPI document has many operations: name one with --operation, or see --list-operations")
        given = replace(given, selection=Selection(operation, part, status, media_type))
    target = output or _default_target(given, type_name)
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
    selection: Selection | None = None


def _default_target(given: _Given, type_name: str | None) -> Path:
    """Beside the source, named after it and the operation; for a type, in this folder."""
    if type_name is not None:
        return Path(type_name.rpartition(":")[2] + ".stc")
    target = default_output(given.path)
    return target if given.selection is None else target.with_name(f"{target.stem}.{given.selection.stem}.stc")


def _print_operations(source: Path, max_depth: int, as_json: bool) -> None:
    try:
        found = operations_of(read_source(source), max_depth)
    except CompileError as error:
        raise error.with_source(str(source)) from error.__cause__
    if as_json:
        click.echo(json.dumps({"operations": [asdict(each) for each in found]}))
        return
    for each in found:
        parts = ["request"] * each.has_request + [f"response {status}" for status in each.statuses] + ["parameters"] * each.has_parameters
        click.echo(printable(f"{each.name}: {each.method.upper()} {each.path}: {', '.join(parts) or 'no body'}"))


def _given(source: Path | None, type_name: str | None, kind: str | None) -> _Given:
    """The file, or the type, which is looked for in this folder too; click.UsageError unless one of them is given."""
    if (source is None) == (type_name is None):
        raise click.UsageError("give one of SOURCE and --type")
    if source is not None:
        return _Given(source, kind or source_kind(source))
    if kind not in (None, "json_schema"):
        raise click.UsageError("--type gives a JSON Schema: leave --kind out")
    return _Given(Path(type_name or ""), "json_schema", type_text(type_name or "", Path.cwd()))


def _compile(
    given: _Given, options: Options, trace: Trace, packs: tuple[Path, ...], tokenizers: tuple[str, ...],
) -> Artifact | None:
    """The artifact; None once the stage to emit is reached."""
    def vocabularies() -> list[Vocabulary]:
        return [Vocabulary.load(pack) for pack in packs] + [vocabulary_from_tokenizer(name) for name in tokenizers]

    try:
        bound_to = trace.stage("vocabularies", vocabularies) if packs or tokenizers else ()
        artifact = compile_source(given.path, given.kind, options, bound_to, trace, text=given.text,
                                  selection=given.selection)
        return None if isinstance(trace, StageTrace) else artifact
    except StageReached:
        return None


def _refuse_idle_flags(ctx: click.Context, kind: str) -> None:
    """A flag that would change nothing is wrong usage: it is not ignored."""
    refuse_idle_flags(ctx, [kind])
    for parameter in given_flags(ctx):
        if parameter.name in ("operation", "list_operations", *_PART_FLAGS) and kind != "openapi":
            raise click.UsageError(f"{parameter.opts[0]} is about OpenAPI documents and means nothing for a {kind} source")


def default_output(source: Path) -> Path:
    """``person.schema.json`` -> ``person.stc``, beside it."""
    name = source.name
    for ending in (*ENDINGS, source.suffix):
        if ending and name.lower().endswith(ending.lower()) and len(name) > len(ending):
            name = name[:-len(ending)]
            break
    return source.with_name(name + ".stc")
