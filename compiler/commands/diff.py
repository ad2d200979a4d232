"""``stcc diff``: what one artifact or source accepts that another does not."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from stcc.compiler.commands.flags import option_flags, read_documents, refuse_idle_flags
from stcc.compiler.comparison.comparison import Comparison, compare_machines
from stcc.compiler.comparison.places import Change, Place, locate
from stcc.compiler.comparison.sides import Side, is_compiled, open_side
from stcc.compiler.options import Deadline, Options
from stcc.compiler.sources import source_kind
from stcc.formats.summary import printable

_MEANINGS = {
    "equal": "both accept the same texts", "wider": "NEW accepts all that OLD does, and more",
    "narrower": "OLD accepts all that NEW does, and more", "incomparable": "each accepts texts that the other does not",
}
_COLOURS = {"equal": "green", "wider": "cyan", "narrower": "yellow", "incomparable": "yellow"}
_LONGEST = 200
"""Most characters of a text or a value that are shown to people."""


@click.command("diff")
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--require", type=click.Choice(["equal", "wider", "narrower"]), default=None,
              help="Exit 1 unless NEW certainly is; equal satisfies wider and narrower.")
@option_flags
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.pass_context
def diff_command(
    ctx: click.Context, /, old: Path, new: Path, require: str | None, whitespace: str | None, closed: bool, documents: tuple[str, ...],
    dialect: str | None, as_json: bool, **flags: Any,
) -> None:
    """Compare the texts that OLD and NEW accept; each is a .stc or a source, which is compiled with the options given.

    Reports equal, wider, narrower or incomparable, with a shortest text of each alone. Exit code 0, or 1 where --require is not met.
    """
    console: Console = ctx.obj
    kinds = list(dict.fromkeys(source_kind(path) for path in (old, new) if not is_compiled(path)))
    refuse_idle_flags(ctx, kinds)
    options = Options(dialect=dialect or "", additional_properties="closed" if closed else "schema", schemas=read_documents(documents),
                      **flags)
    with console.status("compiling") as status:
        sides = (open_side(old, options, whitespace), open_side(new, options, whitespace))
        status.update("comparing")
        found = compare_machines(sides[0].machine, sides[1].machine, check=Deadline(options.time_limit).check_now)
        places = _places(found, *sides)
    met = require is None or found.satisfies(require)
    if as_json:
        click.echo(json.dumps(report_data(found, places, sides) | ({"require": require, "met": met} if require else {})))
    else:
        _show(found, places)
        if not met:
            click.secho(f"not certainly {require}" if not found.exact else f"not {require}", fg="red")
    if not met:
        ctx.exit(1)


def _places(found: Comparison, old: Side, new: Side) -> dict[str, Place]:
    """Where the text of either side alone is refused by the other."""
    schemas = (old.schema, new.schema) if old.kind == new.kind == "json_schema" else (None, None)
    places = {}
    for key, text, refusing in (("only_old", found.only_old, new), ("only_new", found.only_new, old)):
        if text is not None:
            places[key] = locate(text, refusing.machine, *schemas)
    return places


def report_data(found: Comparison, places: dict[str, Place], sides: tuple[Side, Side]) -> dict[str, Any]:
    """The comparison as plain data; texts that are not UTF-8 have their bytes escaped."""
    json_text = all(side.kind == "json_schema" for side in sides)
    return {
        "relation": found.relation, "exact": found.exact, "reason": found.reason, "only_old": _text(found.only_old),
        "only_new": _text(found.only_new), "places": {key: _place_data(place, json_text) for key, place in places.items()},
        "old": _side_data(sides[0]), "new": _side_data(sides[1]),
    }


def _place_data(place: Place, json_text: bool) -> dict[str, Any]:
    changes = [{"pointer": change.pointer, "keyword": change.keyword, "old": _plain(change.old), "new": _plain(change.new)}
               for change in place.changes]
    about = {"instance": place.instance, "old": list(place.old), "new": list(place.new), "changes": changes} if json_text else {}
    return {"offset": place.offset, **about}


def _side_data(side: Side) -> dict[str, Any]:
    return {"file": str(side.file), "kind": side.kind, "states": side.machine.states, "sites": side.machine.sites}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """Plain JSON data: schemas are read with exact decimals."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 1 << 53 else float(value)
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _show(found: Comparison, places: dict[str, Place]) -> None:
    click.secho(found.relation, fg=_COLOURS[found.relation], bold=True, nl=False)
    click.echo(f": {_MEANINGS[found.relation]}" if found.exact else f", as far as is known: {found.reason}")
    for key, text, who in (("only_old", found.only_old, "NEW"), ("only_new", found.only_new, "OLD")):
        if text is None:
            continue
        place = places[key]
        click.echo(f"{key.replace('_', ' ')}  {_short(_text(text) or '')}" if text else f"{key.replace('_', ' ')}  the empty text")
        what = "may not end there" if place.offset == len(text) else f"refuses byte {place.offset}"
        where = f", at {printable(place.instance)}" if place.instance else ""
        click.echo(f"          {who} {what}{where}")
        for change in place.changes:
            click.echo(f"          {_change_line(change)}")


def _change_line(change: Change) -> str:
    return f"{printable(change.pointer)} {printable(change.keyword)}: {_value(change.old)} -> {_value(change.new)}"


def _value(value: Any) -> str:
    return "not there" if value is None else _short(value if isinstance(value, str) else json.dumps(_plain(value)))


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST // 2]} … {shown[-_LONGEST // 2:]}"
