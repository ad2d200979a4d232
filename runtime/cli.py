"""The command line: a group whose commands come from entry points, and the one place where typed errors become exit codes.

Each command is a module in the room whose work it does (``compiler/commands``, ``runtime/commands``), registered in pyproject.toml under
``stcc.commands`` and imported only when it is asked for. It gets a ``rich`` console for standard error as click's ``obj``.

Exit code 0: fine; 1: the input is at fault, said as ``error:`` and ``hint:`` on standard error, or as one JSON object on standard output
where the command was given ``--json``; 2: wrong usage; 130: interrupted. An error without a type of its own is a fault of stcc and shows
its traceback.
"""

from __future__ import annotations

import contextlib
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

from stcc.formats.container import VERSION as FORMAT
from stcc.formats.errors import system_error
from stcc.formats.summary import printable

INTERRUPTED = 130
_GROUP = "stcc.commands"
_AS_JSON = "stcc.as_json"
_SUMMARIES = {
    "compile": "Compile a schema or a pattern to a .stc file.",
    "vocab": "Pack a tokenizer into a .stv file.",
    "bind": "Bind a .stc file to vocabularies.",
    "inspect": "Show what a .stc, a .stv or a source holds.",
    "explain": "Say what a grammar costs, field by field, and why.",
    "check": "Check a text against a .stc or a source.",
    "sample": "Write random valid outputs.",
    "build": "Build the artifacts that a manifest lists, or check them.",
    "diff": "Compare what two artifacts or sources accept.",
    "run": "Decode an output with an MLX model.",
    "serve": "Answer OpenAI clients, every constraint enforced.",
    "bench": "Compare decoding with and without constraints, and with llguidance.",
    "completion": "Write the completion script of a shell.",
}
"""The order and summaries of ``stcc --help``, so that it need not import the commands; others are imported and follow."""


class _Commands(click.Group):
    """Finds commands by entry point and reports typed errors."""

    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=_GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order in which they are used."""
        points = self._points()
        return [name for name in _SUMMARIES if name in points] + sorted(points.keys() - _SUMMARIES.keys())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands for ``--help``."""
        rows = []
        for name in self.list_commands(ctx):
            command = None if name in _SUMMARIES else self.get_command(ctx, name)
            rows.append((name, command.get_short_help_str(100) if command else _SUMMARIES.get(name, "")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called ``cmd_name``; one that cannot be imported says which extra it needs."""
        point = self._points().get(cmd_name)
        if point is None:
            return None
        try:
            command = point.load()
        except ModuleNotFoundError as error:
            message, hint = _missing(error)
            raise click.UsageError(f"{cmd_name}: {message}: {hint}") from None
        assert isinstance(command, click.Command)
        for parameter in command.params:
            if parameter.name == "as_json":
                parameter.callback, parameter.is_eager = _remember_json, True
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that is not stcc's own fault becomes a message and an exit code."""
        try:
            outcome = super().invoke(ctx)
            _flush()
            return outcome
        except KeyboardInterrupt:
            return ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _abandon_output()
            return ctx.exit(0)  # the reader has what it wanted
        except (OSError, ValueError, ModuleNotFoundError, MemoryError) as error:
            fields = _fields(error)
            if fields is None:
                raise
            if isinstance(error, OSError) and error.filename is None:
                _abandon_output()  # standard output cannot be written: the disk is full, say
            _report(fields, fields["message"] if isinstance(error, OSError) else str(error), bool(ctx.meta.get(_AS_JSON)))
            return ctx.exit(1)


def _remember_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
    ctx.meta[_AS_JSON] = value
    return value


def _missing(error: ModuleNotFoundError) -> tuple[str, str]:
    """Message and hint for a package that is not installed; raises the error again if it is a module of stcc."""
    name = error.name or ""
    if not name or name.split(".")[0] == "stcc":
        raise error
    return f"the package {name} is not installed", f"pip install 'stcc[{'mlx' if name.startswith('mlx') else 'compiler'}]'"


def _fields(error: Exception) -> dict[str, str] | None:
    """The error as plain data: ``error``, ``message``, ``hint`` and what else its type knows. None if it is a fault of stcc."""
    name = type(error).__name__
    if isinstance(error, OSError):
        message, hint = system_error(error)
        return {"error": name, "message": message, "hint": hint}
    if isinstance(error, MemoryError):
        return {"error": name, "message": "there is not enough memory for this", "hint": "give a smaller input, or lower --max-states"}
    if isinstance(error, ModuleNotFoundError):
        message, hint = _missing(error)
        return {"error": name, "message": message, "hint": hint}
    if not hasattr(error, "hint"):
        return None
    return dict(error.to_dict()) if hasattr(error, "to_dict") else {"error": name, "message": str(error), "hint": error.hint}


def _report(fields: dict[str, str], text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(fields))
        return
    hint = fields["hint"]
    # a typed error's own text says where it is, and ends with the hint in brackets
    head = text.removesuffix(f" ({hint})") if fields["message"] in text else fields["message"]
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(printable(head), err=True)
    if hint:
        click.secho("hint: ", fg="cyan", err=True, nl=False)
        click.echo(printable(hint), err=True)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _abandon_output() -> None:
    """Send whatever is still buffered for standard output nowhere, so that leaving does not fail on it once more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("stcc"), prog_name="stcc", message=f"%(prog)s, version %(version)s, .stc and .stv format {FORMAT}")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Compile schemas and patterns to .stc files, and decode with them."""
    from stcc.runtime.progress import ProgressConsole

    ctx.obj = ProgressConsole()
    if os.environ.get("NO_COLOR"):
        ctx.color = False
