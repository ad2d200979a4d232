"""``stcc completion``: the script that makes a shell complete commands, flags and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_STCC_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Write the completion script of SHELL to standard output."""
    kind = get_completion_class(shell)
    assert kind is not None
    # the script itself, not ``source()``, which asks bash for its version: it may be written for another machine
    complete = kind(ctx.find_root().command, {}, "stcc", _VARIABLE)
    click.echo(complete.source_template % complete.source_vars())
