"""``stcc vocab``: a tokenizer to a vocabulary pack."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from stcc.compiler.vocabularies import vocabulary_from_tokenizer


@click.command("vocab")
@click.argument("tokenizer")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The .stv file to write.")
@click.option("--size", type=click.IntRange(1), default=None, help="Width of the model's head, where it is padded beyond the tokenizer.")
@click.option("--stop", "stops", multiple=True, help="A stop token, by text or number; repeatable. Default: what the tokenizer's files say.")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def vocab_command(tokenizer: str, output: Path, size: int | None, stops: tuple[str, ...], as_json: bool) -> None:
    """Pack TOKENIZER (a tokenizer.json, a folder or a hub name) into a .stv file."""
    with Console(stderr=True).status(f"packing {tokenizer}"):
        named = [int(stop) if stop.isdigit() else stop for stop in stops]
        vocabulary = vocabulary_from_tokenizer(tokenizer, size=size, stop_tokens=named or None)
        vocabulary.save(output)
    report = {"file": str(output), "bytes": output.stat().st_size, "size": vocabulary.size, "fingerprint": vocabulary.fingerprint,
              "stop_token_ids": list(vocabulary.stop_token_ids), "name": vocabulary.name}
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{output}: {vocabulary.size:,} tokens, stop tokens {', '.join(map(str, vocabulary.stop_token_ids))}, {report['bytes']:,} bytes")
    click.echo(f"fingerprint {vocabulary.fingerprint}")
