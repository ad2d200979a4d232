"""``stcc explain``: what a grammar costs, field by field, and what to know before it is served."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stcc.formats import Vocabulary
from stcc.formats.container import write_atomic
from stcc.formats.few_collections import few_collections
from stcc.formats.summary import printable
from stcc.runtime.commands.explain_tokens import FieldBlocks, need_after, shortest_output
from stcc.runtime.commands.targets import check_target
from stcc.runtime.drawing import draw_machine
from stcc.runtime.grammar import Grammar
from stcc.runtime.load import load
from stcc.runtime.seam import drawing_parts, explain_file, explanation_data, is_artifact

MOST_ROWS = 200
MOST_WARNINGS = 12
"""Rows and warnings that are shown; ``--json`` and ``--html`` have all."""


@click.command("explain")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--vocab", "pack", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A .stv: adds the numbers that depend on a tokenizer.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that stands alone.")
@click.option("--whitespace", type=click.Choice(["compact", "spaced", "flexible"]), default=None, help="Of a source that is compiled.")
@click.option("--closed", is_flag=True, help="Of a source: additionalProperties left out means false.")
@click.option("--unenforced", type=click.Choice(["error", "warn"]), default=None, help="Of a source: stop, or record them.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_obj
def explain_command(console: Console, file: Path, pack: Path | None, page: Path | None, whitespace: str | None, closed: bool,
                    unenforced: str | None, as_json: bool) -> None:
    """Explain FILE, a .stc or a source: states, forced share, passes and need of each field, and warnings with a way out."""
    options = {"whitespace": whitespace, "unenforced": unenforced, "additional_properties": "closed" if closed else None}
    given = {name: value for name, value in options.items() if value is not None}
    if given and is_artifact(file):
        raise click.UsageError("--whitespace, --closed and --unenforced are for sources; a .stc is compiled already")
    if page is not None:
        check_target(page, "--html", file, pack)
    with console.status(f"explaining {printable(file.name)}"), few_collections():
        explanation = explain_file(file, given or None)
        vocabulary = Vocabulary.load(pack) if pack is not None else None
        report = {"file": str(file), **full_report(explanation, vocabulary)}
        if page is not None:
            from stcc.runtime.commands.explain_page import explanation_page

            svg = draw_machine(explanation.artifact.machine, *drawing_parts(explanation))
            write_atomic(page, explanation_page(report, svg).encode("utf-8", "backslashreplace"))
    if as_json:
        click.echo(json.dumps(report))
    else:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        _show(report, Console(markup=False, highlight=False, emoji=False, width=None if terminal else 400))


def full_report(explanation: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """An explanation (of ``seam.explain_file``) as plain data, with blocks, and with tokens if there is a vocabulary."""
    report = explanation_data(explanation)
    artifact = explanation.artifact
    grammar = load(artifact, vocabulary, warm=False)
    blocks = FieldBlocks(grammar)
    report["blocks"] = blocks.count
    for row, entry in zip(report["fields"], explanation.explained, strict=True):
        row["block"] = blocks.of(entry.prefix)
        row["need"] = None if vocabulary is None else need_after(grammar, entry.prefix)
    report |= _token_numbers(grammar, vocabulary)
    for name, tool in (explanation.tools or {}).items():
        report["tools"][name] = full_report(tool, vocabulary)
    return report


def _token_numbers(grammar: Grammar, vocabulary: Vocabulary | None) -> dict[str, Any]:
    if vocabulary is None:
        return {"vocabulary": None, "need": None, "shortest": None}
    shortest = shortest_output(grammar)
    return {"vocabulary": {"name": vocabulary.name, "fingerprint": vocabulary.fingerprint, "size": vocabulary.size},
            "need": need_after(grammar, b""), "shortest": None if shortest is None else shortest.data}


def count_text(value: int | None, none: str = "no bound") -> str:
    """A number for people; ``none`` where there is none."""
    return none if value is None else f"{value:,}"


def share_text(value: float | None) -> str:
    """A share for people."""
    return "-" if value is None else f"{value:.0%}"


def summary_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What is said of the whole output: names and values."""
    certified = sum(region["certified"] for region in report["regions"])
    rows = [
        ("kind", report["kind"]), ("source", f"{report['name']}  SHA-256 {report['source_sha256'][:16]}"),
        ("options", ", ".join(f"{name} {value}" for name, value in report["options"].items() if value != "" and "\n" not in str(value))),
        ("machine", f"{report['states']:,} states, {report['classes']} byte classes, {report['sites']:,} call sites"),
        ("passes", f"at most {report['passes']:,} sampled tokens" if report["passes"] is not None else "no bound: some text may go on"),
        ("shortest", f"{report['need_bytes']:,} bytes, {report['chosen_bytes']:,} of them chosen"),
        ("texts", count_text(report["texts"], "more than can be counted")),
        ("cuts", f"{report['cuts']:,} cut states; {len(report['regions']):,} parts between them, {certified:,} with few texts"),
        ("blocks", f"{report['blocks']:,} can be drafted at once"),
    ]
    if report["vocabulary"] is not None:
        rows.append(("vocabulary", f"{report['vocabulary']['name'] or '-'}  {report['vocabulary']['fingerprint'][:16]}"))
    if report["shortest"] is not None:
        found = report["shortest"]
        rows.append(("in tokens", f"{found['tokens']:,} at least; of those {found['sampled']:,} sampled, {found['forced']:,} forced "
                                  f"({share_text(found['forced_share'])})"))
    if report["unread"]:
        rows.append(("read by parts", report["unread"]))
    return rows


FIELD_COLUMNS = ("field", "type", "states", "forced", "passes", "bytes", "texts", "cut", "block", "need")


def field_row(field: dict[str, Any]) -> tuple[str, ...]:
    """A field's cells, in the order of ``FIELD_COLUMNS``."""
    name = field["path"] or "(all)"
    if field["same_as"] is not None:
        name += f"  = {field['same_as'] or '(all)'}"
    exact = "" if field["forced_of"] == "all texts" or field["forced_share"] is None else "~"
    return (name, " or ".join(field["types"]) or "text", f"{field['states']:,}", exact + share_text(field["forced_share"]),
            count_text(field["passes"]), f"{field['need_bytes']:,}", count_text(field["texts"], "many"), "yes" if field["cut"] else "",
            str(field["block"] + 1), count_text(field["need"], "-"))


def _show(report: dict[str, Any], console: Console) -> None:
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in [("file", report["file"]), *summary_rows(report)]:
        facts.add_row(name, printable(value))
    console.print(facts)
    console.print()
    console.print(_fields_table(report))
    for name, tool in report["tools"].items():
        console.print()
        console.print(f"arguments of {printable(name)}, compiled alone", style="bold")
        console.print(_fields_table(tool))
    if report["warnings"]:
        console.print()
    for warning in report["warnings"][:MOST_WARNINGS]:
        console.print("warning", style="yellow", end=" ")
        place = " ".join(printable(part) for part in (warning["pointer"], warning["keyword"]) if part)
        console.print(f"{place}: {printable(warning['message'])}", soft_wrap=True)
        console.print(f"        way out: {printable(warning['hint'])}", soft_wrap=True)
    if len(report["warnings"]) > MOST_WARNINGS:
        console.print(f"{len(report['warnings']) - MOST_WARNINGS:,} more warnings: --json and --html have all")


def _fields_table(report: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [number for number, name in enumerate(FIELD_COLUMNS) if name != "need" or report["vocabulary"] is not None]
    for number in columns:
        table.add_column(FIELD_COLUMNS[number], justify="left" if number < 2 else "right", no_wrap=True)
    for field in report["fields"][:MOST_ROWS]:
        cells = field_row(field)
        table.add_row(*(printable(cells[number]) for number in columns))
    if len(report["fields"]) > MOST_ROWS:
        table.add_row(f"and {len(report['fields']) - MOST_ROWS:,} more")
    return table
