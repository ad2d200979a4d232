"""``stcc build``: every artifact that a manifest names, built or checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from stcc.compiler.building.build import BUILT, FAILED, FRESH, STALE, Outcome, Report, build
from stcc.compiler.building.manifest import find_manifest, read_manifest, verify_paths
from stcc.compiler.building.report import error_line, markdown, report_data, totals
from stcc.compiler.building.workers import default_jobs
from stcc.formats.container import write_atomic
from stcc.formats.summary import note_lines, printable

_COLOURS = {BUILT: "green", STALE: "red", FAILED: "red"}


@click.command("build")
@click.argument("manifest", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Write no artifact; exit 1 if any is not what it would be built to.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=None, help="Processes; default: one a processor.")
@click.option("--report", "report_file", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write the report to this .json file.")
@click.option("--summary", "summary_file", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write a Markdown summary for a pull request to this file.")
@click.option("--no-cache", is_flag=True, help="Compile everything anew.")
@click.option("--prune", is_flag=True, help="Drop from the cache what this manifest no longer builds.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_context
def build_command(
    ctx: click.Context, manifest: Path | None, check: bool, jobs: int | None, report_file: Path | None, summary_file: Path | None,
    no_cache: bool, prune: bool, as_json: bool,
) -> None:
    """Build what MANIFEST (stc.toml, or [tool.stcc] in pyproject.toml) lists.

    Without MANIFEST the nearest one in this folder or above is taken. Only what changed is compiled: a source, an option, a vocabulary,
    or the compiler. Exit code 0: every artifact is right; 1: one failed, exceeds a budget, or (with --check) is stale.
    """
    console: Console = ctx.obj
    what = read_manifest(manifest or find_manifest(Path.cwd()))
    if report_file is not None or summary_file is not None:
        what = replace(what, report=report_file or what.report, summary=summary_file or what.summary)
        verify_paths(what)
    with console.status("reading what is to be built") as status:
        def progress(line: str) -> None:
            status.update(printable(line))

        found = build(what, check=check, processes=jobs or default_jobs(), use_cache=not no_cache, prune=prune, progress=progress)
    _write(what.report, lambda: json.dumps(report_data(found), indent=1) + "\n")
    _write(what.summary, lambda: markdown(found))
    if as_json:
        click.echo(json.dumps(report_data(found)))
    else:
        _show(found)
    if not found.passed:
        ctx.exit(1)


def _write(path: Path | None, text: Callable[[], str]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text().encode())


def _show(report: Report) -> None:
    """One line for each target that is not fresh, notes on what is not enforced, and the totals."""
    for outcome in report.outcomes:
        if outcome.status != FRESH:
            click.secho(f"{outcome.status:7}", fg=_COLOURS[outcome.status], nl=False)
            click.echo(f"{printable(outcome.target.name)}: {printable(_detail(outcome))}")
        for note in note_lines(outcome.record.get("unenforced", ())):
            click.secho("NOT ENFORCED", fg="red", nl=False)
            click.echo(f" in {printable(outcome.target.name)}: {note}")
    click.echo(totals(report))


def _detail(outcome: Outcome) -> str:
    if outcome.status == FAILED:
        return error_line(outcome)
    known, change = outcome.record, outcome.change
    language = "" if change is None else f", {change['relation']}{'' if change['exact'] else ' as far as is known'}"
    if outcome.status == STALE:
        if outcome.reason == "missing":
            return "the artifact is missing"
        return f"the artifact differs from what it would be built to{language}"
    return f"{known['bytes']:,} bytes, {known['states']:,} states, {known['forced_share']:.0%} forced{language}"
