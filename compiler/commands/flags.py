"""The options of a compile as flags of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from stcc.compiler.options import Options
from stcc.compiler.sources import ABOUT_JSON, DIALECTS, read_source

_SCHEMA_FLAGS = ("whitespace", "closed", "property_order", "formats", "content", "unenforced", "documents")
_FLAGS = ("dialect", "max_states", "max_depth")
"""Names of the parameters of ``option_flags``: those about schemas, and the others but ``time_limit``, which bounds other work, too."""


def option_flags(command: Any) -> Any:
    """Decorate a command with the flags of ``stcc.compiler.Options``."""
    for flag in reversed((
        click.option("--whitespace", type=click.Choice(["compact", "spaced", "flexible"]), default=None,
                     help='Between the parts of the JSON text: none (the default), ", " and ": " (the default for tools), or any.'),
        click.option("--closed", is_flag=True, help="additionalProperties left out means false."),
        click.option("--property-order", type=click.Choice(["auto", "declared", "relaxed", "any"]), default="auto", show_default=True),
        click.option("--formats", type=click.Choice(["enforce", "annotate"]), default="enforce", show_default=True),
        click.option("--content", type=click.Choice(["draft", "enforce", "annotate"]), default="draft", show_default=True,
                     help="contentEncoding and contentMediaType: draft enforces them in draft 7, where it can."),
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


def given_flags(ctx: click.Context) -> list[click.Parameter]:
    """The flags and arguments that were written on the command line."""
    return [parameter for parameter in ctx.command.params
            if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE]


def refuse_idle_flags(ctx: click.Context, kinds: Sequence[str]) -> None:
    """A flag of ``option_flags`` that would change nothing is wrong usage: it is not ignored.

    Args:
        ctx: of the command.
        kinds: of the sources that it was given; none where all that it was given is compiled already.
    """
    known = [dialect for kind in kinds for dialect in DIALECTS.get(kind, ())]
    for parameter in given_flags(ctx):
        flag = parameter.opts[0]
        if parameter.name in (*_SCHEMA_FLAGS, *_FLAGS) and not kinds:
            raise click.UsageError(f"{flag} is for sources, and means nothing for what is compiled already")
        if parameter.name == "dialect" and ctx.params["dialect"] not in known:
            raise click.BadParameter(f"{ctx.params['dialect']} is not a dialect of {' or '.join(kinds)}, which has "
                                     f"{' and '.join(known) or 'none'}", param_hint=flag)
        if parameter.name in _SCHEMA_FLAGS and not set(kinds) & set(ABOUT_JSON):
            named = " or ".join("pattern" if kind == "regex" else kind for kind in kinds)
            raise click.UsageError(f"{flag} is about JSON Schemas and means nothing for a {named}")


def read_documents(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The documents of ``--schemas``, by URI. click.BadParameter for what is not URI=FILE, OSError for a file that cannot be read."""
    found: dict[str, Any] = {}
    for pair in pairs:
        uri, _, file = pair.rpartition("=")
        if not uri or not file:
            raise click.BadParameter(f"{pair!r} is not URI=FILE", param_hint="--schemas")
        found[uri] = read_source(file)
    return found
