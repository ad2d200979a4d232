"""The options of a compile as flags of a command."""

from __future__ import annotations

from typing import Any

import click

from stcc.compiler.options import Options
from stcc.compiler.sources import read_source


def option_flags(command: Any) -> Any:
    """Decorate a command with the flags of ``stcc.compiler.Options``."""
    for flag in reversed((
        click.option("--whitespace", type=click.Choice(["compact", "spaced", "flexible"]), default=None,
                     help='Between the parts of the JSON text: none (the default), ", " and ": " (the default for tools), or any.'),
        click.option("--closed", is_flag=True, help="additionalProperties left out means false."),
        click.option("--property-order", type=click.Choice(["auto", "declared", "relaxed", "any"]), default="auto", show_default=True),
        click.option("--formats", type=click.Choice(["enforce", "annotate"]), default="enforce", show_default=True),
        click.option("--unenforced", type=click.Choice(["error", "warn"]), default="error", show_default=True,
                     help="warn: leave unsupported keywords unenforced, and record them in the artifact."),
        click.option("--dialect", type=click.Choice(["python", "ecma", "outlines"]), default=None,
                     help="Syntax of a .regex (python by default); outlines: the language that outlines-core gives a schema."),
        click.option("--max-states", type=click.IntRange(1), default=Options.max_states, show_default=True),
        click.option("--time-limit", type=click.FloatRange(0, min_open=True), default=Options.time_limit, show_default=True,
                     help="Seconds."),
        click.option("--max-depth", type=click.IntRange(1), default=Options.max_depth, show_default=True,
                     help="Deepest nesting of a schema."),
        click.option("--schemas", "documents", multiple=True, metavar="URI=FILE",
                     help="Another document for remote references; repeatable."),
    )):
        command = flag(command)
    return command


def read_documents(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The documents of ``--schemas``, by URI. click.BadParameter for what is not URI=FILE, OSError for a file that cannot be read."""
    found: dict[str, Any] = {}
    for pair in pairs:
        uri, _, file = pair.rpartition("=")
        if not uri or not file:
            raise click.BadParameter(f"{pair!r} is not URI=FILE", param_hint="--schemas")
        found[uri] = read_source(file)
    return found
