"""``stcc check``: does a text match an artifact, and if not, where does it fail and what could have followed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from stcc.runtime.load import load
from stcc.runtime.matcher import Matcher
from stcc.runtime.seam import open_artifact


@click.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
def check_command(file: Path, text: str | None, as_json: bool) -> None:
    """Check TEXT (or standard input, - or left out) against FILE, a .stc or a source. One final line break of standard input is ignored."""
    data = _standard_input() if text in (None, "-") else (text or "").encode("utf-8", "surrogateescape")
    report = check_bytes(load(open_artifact(file)).matcher(), data)
    if as_json:
        click.echo(json.dumps(report))
    elif report["matches"]:
        click.secho("matches", fg="green")
    else:
        offset = int(str(report["offset"]))
        shown = data[max(0, offset - 30):offset].decode("utf-8", "replace")
        click.secho(f"does not match: byte {offset}, after {shown!r}", fg="red")
        click.echo("expected " + (str(report["expected"]) or "nothing more"))
    if not report["matches"]:
        sys.exit(1)


def _standard_input() -> bytes:
    data = click.get_binary_stream("stdin").read()
    return data.removesuffix(b"\n").removesuffix(b"\r")


def check_bytes(matcher: Matcher, data: bytes) -> dict[str, object]:
    """``matches``; ``offset``, the first byte that cannot stand (or the length); ``expected``, what could have stood there, as text."""
    for offset in range(len(data)):
        if not matcher.accept_bytes(data[offset:offset + 1]):
            return {"matches": False, "offset": offset, "expected": describe(matcher)}
    if not matcher.is_accepting():
        return {"matches": False, "offset": len(data), "expected": describe(matcher)}
    return {"matches": True, "offset": len(data), "expected": ""}


def describe(matcher: Matcher) -> str:
    """What may follow, for a reader: forced text whole, else the set of bytes; the end where the output may end."""
    ending = ["the end"] if matcher.is_accepting() else []
    forced = matcher.forced_bytes()
    if len(forced) > 1 and not ending:
        return repr(forced.decode("utf-8", "replace"))
    return ", ".join(_ranges(list(matcher.allowed_bytes())) + ending)


def _ranges(values: list[int]) -> list[str]:
    groups: list[list[int]] = []
    for value in values:
        if groups and value == groups[-1][-1] + 1 and chr(value).isalnum() == chr(groups[-1][-1]).isalnum():
            groups[-1].append(value)
        else:
            groups.append([value])
    return [_name(group[0]) if len(group) == 1 else f"{_name(group[0])} to {_name(group[-1])}" for group in groups]


def _name(value: int) -> str:
    return repr(chr(value)) if 0x20 <= value < 0x7F else f"byte {value:#04x}"
