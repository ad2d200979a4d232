"""``stcc check``: does a text match an artifact, and if not, where does it fail and what could have followed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console

from stcc.formats.summary import printable
from stcc.runtime.expectations import expected
from stcc.runtime.load import load
from stcc.runtime.matcher import Matcher
from stcc.runtime.seam import compile_file

CHUNK = 4096
"""Bytes read in one step; only the chunk that fails is read again byte by byte."""
AROUND = 36
"""Characters shown on either side of a failure."""


@click.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_context
def check_command(ctx: click.Context, file: Path, text: str | None, as_json: bool) -> None:
    """Check TEXT (or standard input, if it is - or left out) against FILE, a .stc or a source.

    Standard input may end in one line break that is not part of the text. Exit code 0: it matches; 1: it does not.
    """
    console: Console = ctx.obj
    from_input = text is None or text == "-"
    data = _standard_input() if from_input else (text or "").encode("utf-8", "surrogateescape")
    with console.status(f"opening {printable(file.name)}"):
        matcher = load(compile_file(file)).matcher()
        found = find_failure(matcher, data)
        if found is not None and from_input and data.endswith(b"\n"):
            data = data.removesuffix(b"\n").removesuffix(b"\r")
            found = find_failure(matcher, data)
    if as_json:
        click.echo(json.dumps(_report(data, found)))
    elif found is None:
        click.secho("matches", fg="green")
    else:
        _explain(data, found)
    if found is not None:
        ctx.exit(1)


def _standard_input() -> bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer.read()  # None: it was closed


@dataclass(frozen=True)
class Failure:
    """Where a text stops matching.

    Attributes:
        offset: the first byte that cannot stand there; the text's length if it ends too early.
        line: 1-based; lines end with a line feed.
        column: 1-based, in characters.
        expected: what could have followed, as ``expectations.expected`` puts it.
    """

    offset: int
    line: int
    column: int
    expected: list[str]


def find_failure(matcher: Matcher, data: bytes) -> Failure | None:
    """The failure of ``data``; None if it matches. The matcher is left just before it."""
    matcher.reset()
    offset = 0
    while offset < len(data) and matcher.accept_bytes(data[offset:offset + CHUNK]):
        offset += CHUNK
    while offset < len(data) and matcher.accept_bytes(data[offset:offset + 1]):
        offset += 1
    offset = min(offset, len(data))
    if offset == len(data) and matcher.is_accepting():
        return None
    before = data[:character_start(data, offset)]
    line_start = before.rfind(b"\n") + 1
    return Failure(offset, before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1, expected(matcher))


def character_start(data: bytes, offset: int) -> int:
    """Where the character begins that ``offset`` lies in; ``offset`` itself where the bytes are not UTF-8 text."""
    for start in range(offset, max(-1, offset - 4), -1):
        if start < len(data) and data[start] & 0xC0 != 0x80:
            size = 1 + (data[start] >= 0xC0) + (data[start] >= 0xE0) + (data[start] >= 0xF0)
            return start if offset < start + size <= len(data) and _is_text(data[start:start + size]) else offset
    return offset


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _report(data: bytes, found: Failure | None) -> dict[str, object]:
    if found is None:
        return {"matches": True, "offset": len(data), "expected": []}
    return {"matches": False, "offset": found.offset, "line": found.line, "column": found.column, "ended": found.offset == len(data),
            "expected": found.expected}


def _explain(data: bytes, found: Failure) -> None:
    ended = found.offset == len(data)
    what = "the text ends too early" if ended else "the text does not match"
    click.secho(f"{what}: byte {found.offset}, line {found.line}, column {found.column}", fg="red")
    before, after = surroundings(data, character_start(data, found.offset))
    click.echo(f"  {before}{after}")
    click.echo(f"  {' ' * cell_len(before)}^")
    lead, *others = found.expected
    click.echo(f"expected {lead}" if not others else "expected one of")
    for alternative in found.expected if others else ():
        click.echo(f"  {alternative}")


def surroundings(data: bytes, offset: int) -> tuple[str, str]:
    """The text before and after a place, on its line, shortened with an ellipsis; what cannot be printed is spelled as escapes."""
    low = max(data.rfind(b"\n", 0, offset) + 1, offset - 4 * AROUND)
    high = data.find(b"\n", offset)
    before = printable(data[low:offset].decode("utf-8", "backslashreplace"))
    after = printable(data[offset:min(high if high >= 0 else len(data), offset + 4 * AROUND)].decode("utf-8", "backslashreplace"))
    return (f"…{before[-AROUND:]}" if len(before) > AROUND else before), (f"{after[:AROUND]}…" if len(after) > AROUND else after)
