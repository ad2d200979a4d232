"""``stcc vocab``: a tokenizer to a vocabulary pack."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stcc.compiler.commands.outputs import check_target, plain_console
from stcc.compiler.vocabularies import MOST_TOKENS, vocabulary_from_tokenizer
from stcc.formats.container import write_atomic
from stcc.formats.summary import printable


@click.command("vocab")
@click.argument("tokenizer")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The .stv file to write.")
@click.option("--size", type=click.IntRange(1, MOST_TOKENS), default=None,
              help="Width of the model's head, where it is padded beyond the tokenizer.")
@click.option("--stop", "stops", multiple=True,
              help="A stop token, by text or number; repeatable. Default: what the tokenizer's files say.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_obj
def vocab_command(console: Console, tokenizer: str, output: Path, size: int | None, stops: tuple[str, ...], as_json: bool) -> None:
    """Pack TOKENIZER (a tokenizer.json, a folder or a hub name) into a .stv file."""
    check_target(output, [Path(tokenizer)] if Path(tokenizer).is_file() else [])
    with console.status(f"packing {printable(tokenizer)}"):
        named = [int(stop) if stop.isascii() and stop.isdigit() else stop for stop in stops]
        vocabulary = vocabulary_from_tokenizer(tokenizer, size=size, stop_tokens=named or None)
        data = vocabulary.to_bytes()
        write_atomic(output, data)
    report = {"file": str(output), "kind": "vocabulary", "name": vocabulary.name, "bytes": len(data), "size": vocabulary.size,
              "fingerprint": vocabulary.fingerprint, "stop_token_ids": list(vocabulary.stop_token_ids)}
    if as_json:
        click.echo(json.dumps(report))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("file", f"{printable(str(output))}  ({len(data):,} bytes)")
    table.add_row("tokens", f"{vocabulary.size:,}")
    table.add_row("stop tokens", ", ".join(map(str, vocabulary.stop_token_ids)))
    table.add_row("fingerprint", vocabulary.fingerprint)
    plain_console().print(table)
