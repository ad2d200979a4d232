"""The command line: a group whose commands come from entry points, and one place where typed errors become exit codes.

Each command is a module in the room whose work it does (``compiler/commands``, ``runtime/commands``), registered in pyproject.toml under
``stcc.commands`` and imported only when it is asked for. Exit code 0: fine; 1: the input is at fault; 2: wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

try:
    import click
except ImportError:  # the deploy install has NumPy and msgpack only
    sys.stderr.write("The stcc command needs click and rich: pip install 'stcc[cli]'\n")
    raise SystemExit(2) from None

_GROUP = "stcc.commands"


class _Commands(click.Group):
    """Finds commands by entry point and reports typed errors."""

    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=_GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted(self._points())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called ``cmd_name``; one that cannot be imported says which extra it needs."""
        point = self._points().get(cmd_name)
        if point is None:
            return None
        try:
            command = point.load()
        except ModuleNotFoundError as error:
            extra = "mlx" if (error.name or "").startswith("mlx") else "compiler"
            raise click.UsageError(f"{cmd_name} needs the package {error.name}: pip install 'stcc[{extra}]'") from None
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a typed error (it has a ``hint``) goes to standard error, or as JSON to standard output."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader left; nothing more can be said to it
            return ctx.exit(0)
        except OSError as error:
            if error.filename is None:
                raise
            _report({"error": type(error).__name__, "message": f"{error.filename}: {error.strerror}", "hint": ""})
            return ctx.exit(1)
        except ValueError as error:
            if not hasattr(error, "hint"):
                raise
            _report(_as_dict(error))
            return ctx.exit(1)


def _as_dict(error: Any) -> dict[str, str]:
    if hasattr(error, "to_dict"):
        return dict(error.to_dict())
    return {"error": type(error).__name__, "message": str(error), "hint": ""}


def _report(fields: dict[str, str]) -> None:
    if "--json" in sys.argv:
        click.echo(json.dumps(fields))
        return
    place = "".join(filter(None, (fields.get("source", ""), fields.get("pointer", "") if fields.get("pointer", "").startswith("#") else " " * bool(
        fields.get("pointer")) + fields.get("pointer", ""))))
    head = ": ".join(filter(None, (place, fields.get("keyword", ""), fields["message"])))
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(head, err=True)
    if fields.get("hint"):
        click.secho("hint: ", fg="cyan", err=True, nl=False)
        click.echo(fields["hint"], err=True)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("stcc"), prog_name="stcc")
def main() -> None:
    """Compile schemas and patterns to .stc files, and decode with them."""
