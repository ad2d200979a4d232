"""``stcc inspect``: what an artifact or a vocabulary pack holds, what it costs, and what was left unenforced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from stcc.formats import Artifact, Vocabulary
from stcc.formats.binding import UNREACHABLE, Binding
from stcc.formats.machine import Machine, end_states
from stcc.runtime.seam import open_artifact


@click.command("inspect")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def inspect_command(file: Path, as_json: bool) -> None:
    """Show what FILE holds: a .stc, a .stv, or a source (compiled in memory)."""
    if file.suffix == ".stv":
        report = vocabulary_report(Vocabulary.load(file), file)
    else:
        report = artifact_report(open_artifact(file), file)
    if as_json:
        click.echo(json.dumps(report))
    else:
        _print(report, Console())


def vocabulary_report(vocabulary: Vocabulary, file: Path) -> dict[str, Any]:
    """A vocabulary pack, as plain data."""
    return {"file": str(file), "kind": "vocabulary", "name": vocabulary.name, "size": vocabulary.size, "fingerprint": vocabulary.fingerprint,
            "stop_token_ids": list(vocabulary.stop_token_ids), "spelled": int(vocabulary.byte_order.size), "nodes": int(vocabulary.trie_parent.size),
            "bytes": file.stat().st_size}


def artifact_report(artifact: Artifact, file: Path) -> dict[str, Any]:
    """An artifact, as plain data: the keys of interfaces, and per vocabulary actions, need and sizes."""
    machine, known = artifact.machine, artifact.metadata
    bindings = [artifact.binding(fingerprint) for fingerprint in artifact.fingerprints]
    return {
        "file": str(file), "kind": artifact.kind, "states": machine.states, "classes": machine.classes, "sites": machine.sites,
        "enter_edges": int(machine.edge_target.size), "forced_states": forced_share(machine),
        "actions": [vocabulary.actions for vocabulary in artifact.vocabularies],
        "bytes": len(artifact.to_bytes()), "portable_bytes": len(artifact.without_bindings().to_bytes()), "name": known.name,
        "source_sha256": known.source_sha256, "compiler": known.compiler, "options": dict(known.options),
        "warnings": [dict(note) for note in known.warnings], "unenforced": [dict(note) for note in known.unenforced],
        "vocabularies": [{"fingerprint": vocabulary.fingerprint, "name": vocabulary.name} for vocabulary in artifact.vocabularies],
        "need": [_need(binding, machine) for binding in bindings],
    }


def forced_share(machine: Machine) -> float:
    """Share of states at which the next byte is forced: one live byte, and the output may not end there."""
    counts = np.bincount(machine.byte_class, minlength=machine.classes)
    live = ((machine.table >= 0) * counts).sum(axis=1)
    forced = (live == 1) & ~machine.accepting & ((machine.exits < 0) | end_states(machine))
    return round(float(forced.mean()), 4)


def _need(binding: Binding, machine: Machine) -> int | None:
    need = int(binding.need_finish[machine.start])
    return need if need < UNREACHABLE else None


def _print(report: dict[str, Any], console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in report.items():
        if key not in ("warnings", "unenforced") and value not in ([], None):
            table.add_row(f"[bold]{key}[/]", f"{value:,}" if isinstance(value, int) else f"{value:.1%}" if isinstance(value, float) else str(value))
    console.print(table, highlight=False)
    for style, key in (("yellow", "warnings"), ("red", "unenforced")):
        for entry in report.get(key, []):
            console.print(f"[{style}]{'warning' if key == 'warnings' else 'NOT ENFORCED'}[/] {entry['pointer']}: {entry['keyword']}: {entry['message']}",
                          highlight=False, soft_wrap=True)
