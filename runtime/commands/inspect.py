"""``stcc inspect``: what an artifact or a vocabulary pack holds, what it costs, and what was left unenforced."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from stcc.formats import Artifact, Vocabulary, policy_sections
from stcc.formats.binding import UNREACHABLE
from stcc.formats.binding_sections import prefix
from stcc.formats.container import Container, write_atomic
from stcc.formats.machine import Machine, end_states
from stcc.formats.summary import note_lines, printable, summarize
from stcc.runtime.byte_needs import ByteNeeds
from stcc.runtime.commands.policy_report import policy_report, policy_rows, show_classes
from stcc.runtime.commands.targets import check_target
from stcc.runtime.drawing import draw_machine
from stcc.runtime.seam import compile_file, drawing_parts, explain_file, is_artifact
from stcc.runtime.stack import Stacks

_UNITS = ("bytes", "KiB", "MiB", "GiB")


@click.command("inspect")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--graph", type=click.Path(dir_okay=False, path_type=Path), help="Draw the machine to this .svg file.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_obj
def inspect_command(console: Console, file: Path, graph: Path | None, as_json: bool) -> None:
    """Show what FILE holds: a .stc, a .stv, or a source (compiled in memory)."""
    if graph is not None:
        check_target(graph, "--graph", file)
    if file.name.endswith(".stv"):
        if graph is not None:
            raise click.UsageError("--graph draws the machine of a .stc or of a source; a .stv has none")
        report = vocabulary_report(Vocabulary.load(file), file)
        show = _show_vocabulary
    else:
        with console.status(f"reading {printable(file.name)}"):
            made = None if is_artifact(file) else compile_file(file)
            data = file.read_bytes() if made is None else made.to_bytes()
            artifact = Artifact.from_bytes(data, str(file))
            report = {"file": str(file), **artifact_report(artifact, data)}
            if graph is not None:
                explanation = explain_file(file)
                write_atomic(graph, draw_machine(artifact.machine, *drawing_parts(explanation)).encode())
        show = _show_artifact
    if as_json:
        click.echo(json.dumps(report))
    else:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        show(report, Console(markup=False, highlight=False, emoji=False, width=None if terminal else 400))


def vocabulary_report(vocabulary: Vocabulary, file: Path) -> dict[str, Any]:
    """A vocabulary pack, as plain data."""
    return {"file": str(file), "kind": "vocabulary", "name": vocabulary.name, "bytes": file.stat().st_size, "size": vocabulary.size,
            "fingerprint": vocabulary.fingerprint, "stop_token_ids": list(vocabulary.stop_token_ids), "spelled": len(vocabulary.byte_order),
            "nodes": vocabulary.nodes, "longest": len(vocabulary.trie_levels) - 2, "special": len(vocabulary.special),
            "tokenizer": vocabulary.tokenizer_json is not None}


def artifact_report(artifact: Artifact, data: bytes) -> dict[str, Any]:
    """An artifact, as plain data: the keys of ``summarize``, and what its machine and bindings cost.

    ``need_bytes`` is the length of its shortest output, each vocabulary's ``need`` the fewest tokens of one (None: no tokens spell one, or
    they are not stored), ``forced_states`` the share of states where one byte may follow only.

    Raises:
        FormatError: a section is damaged.
    """
    machine, known = artifact.machine, artifact.metadata
    sections = Container.parse(data, artifact.file).sections
    stacks = Stacks(machine)
    need_bytes = ByteNeeds(stacks).need(*stacks.start())
    report = summarize(artifact, len(data))
    for number, entry in enumerate(report["vocabularies"]):
        binding = artifact.binding(entry["fingerprint"])
        need = UNREACHABLE if binding.has_no_needs else int(binding.need_finish[machine.start])
        entry["bytes"] = sum(section.stored for name, section in sections.items() if name.startswith(prefix(number)))
        entry["entries"], entry["plan_tokens"] = len(binding.row_actions), len(binding.plan_tokens)
        entry["need"] = need if need < UNREACHABLE else None
    if artifact.policy is not None:
        report["policy"] = policy_report(artifact.policy)
    return report | {
        "machine_bytes": sum(section.stored for name, section in sections.items()
                             if not name.startswith(("binding.", policy_sections.PREFIX))),
        "enter_edges": len(machine.edge_target), "unique_arrays": len(machine.unique), "forced_states": forced_share(machine),
        "need_bytes": need_bytes if need_bytes < UNREACHABLE else None, "need": [entry["need"] for entry in report["vocabularies"]],
        "source_sha256": known.source_sha256, "compiler": known.compiler, "options": dict(known.options),
    }


def forced_share(machine: Machine) -> float:
    """Share of states at which the next byte is forced: one live byte, and the output may not end there."""
    counts = np.bincount(machine.byte_class, minlength=machine.classes)
    live = ((machine.table >= 0) * counts).sum(axis=1)
    forced = (live == 1) & ~machine.accepting & ((machine.exits < 0) | end_states(machine))
    return round(float(forced.mean()), 4)


def size_text(count: int) -> str:
    """A number of bytes for people: ``12,345 bytes (12.1 KiB)``."""
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{count:,} bytes" + (f" ({value:.1f} {_UNITS[unit]})" if unit else "")


def _facts(rows: list[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _show_vocabulary(report: dict[str, Any], console: Console) -> None:
    console.print(_facts([
        ("file", f"{printable(report['file'])}  {size_text(report['bytes'])}"), ("kind", "vocabulary"), ("name", printable(report["name"])),
        ("tokens", f"{report['size']:,}; {report['spelled']:,} spell bytes, up to {report['longest']}; {report['special']:,} are special"),
        ("stop tokens", ", ".join(map(str, report["stop_token_ids"])) or "none"), ("trie", f"{report['nodes']:,} nodes"),
        ("tokenizer", "kept, for canonical splits" if report["tokenizer"] else "not kept: forced text is not planned"),
        ("fingerprint", report["fingerprint"]),
    ]))


def _show_artifact(report: dict[str, Any], console: Console) -> None:
    options = ", ".join(f"{name} {printable(str(value))}" for name, value in report["options"].items() if value != "")
    need = "no output is valid" if report["need_bytes"] is None else f"{report['need_bytes']:,} bytes"
    console.print(_facts([
        ("file", f"{printable(report['file'])}  {size_text(report['bytes'])}"), ("kind", printable(report["kind"])),
        ("source", f"{printable(report['name'])}  SHA-256 {report['source_sha256'][:16]}"), ("compiler", printable(report["compiler"])),
        ("options", options or "none"),
        ("machine", f"{report['states']:,} states, {report['classes']} byte classes, {size_text(report['machine_bytes'])}"),
        ("stack", f"{report['sites']:,} call sites, {report['enter_edges']:,} enter edges" if report["sites"] else "none is needed"),
        ("side conditions", _side_conditions(report["unique_arrays"])),
        ("forced", f"one byte only may follow at {report['forced_states']:.1%} of states"), ("shortest output", need),
        *(policy_rows(report["policy"]) if "policy" in report else ()),
    ]))
    console.print()
    if "policy" in report:
        show_classes(report["policy"], console)
        console.print()
    if report["vocabularies"]:
        console.print(_bindings(report["vocabularies"]))
    else:
        console.print("portable: bound to no vocabulary; load binds it in memory, stcc bind does so for good")
    for style, key, label in (("yellow", "warnings", "warning"), ("red", "unenforced", "NOT ENFORCED")):
        for line in note_lines(report[key]):
            console.print(label, style=style, end=" ")
            console.print(line, soft_wrap=True)


def _side_conditions(arrays: int) -> str:
    return f"{arrays:,} arrays whose items must differ (uniqueItems): kept by matchers, not by device masks" if arrays else "none"


def _bindings(vocabularies: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("bound to", "fingerprint"):
        table.add_column(name)
    for name in ("tokens", "actions", "entries", "planned", "bytes", "shortest"):
        table.add_column(name, justify="right")
    for entry in vocabularies:
        counts = (entry["size"], entry["actions"], entry["entries"], entry["plan_tokens"], entry["bytes"])
        need = "unreachable" if entry["need"] is None else f"{entry['need']:,} tokens"
        table.add_row(printable(entry["name"]) or "-", entry["fingerprint"][:12], *(f"{count:,}" for count in counts), need)
    return table
