"""``stcc serve``: an OpenAI-compatible server of one MLX model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stcc.runtime.server.serving import Setup

DEFAULT_MODEL = "smollm2"
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _Bytes(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic in newer versions of click only
    """A number of bytes: 1000, 64k, 20m or 4g."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip().lower().removesuffix("b")
        factor = _SIZES.get(text[-1:], 1)
        digits = text[:-1] if text[-1:] in _SIZES else text
        if not digits.isdigit():
            self.fail(f"{value!r} is not a number of bytes such as 64k, 20m or 4g", param, ctx)
        return int(digits) * factor


_BYTES = _Bytes()


@click.command("serve")
@click.argument("model", required=False)
@click.option("--model", "named", help="MODEL, by a flag as other commands have it.")
@click.option("--artifacts", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help='Folder of .stc files, for response_format {"type": "stc", "artifact": NAME}.')
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 for any free one.")
@click.option("--api-key", help="Requests must send it; default: the environment's STCC_API_KEY, or none.")
@click.option("--name", help="What clients call the model; default: MODEL.")
@click.option("--tool-format", help="How the model spells tool calls (docs/tools.md); default: by its chat template.")
@click.option("--whitespace", type=click.Choice(["compact", "spaced", "flexible"]), default="compact", show_default=True,
              help="Of JSON answers.")
@click.option("--temp", type=click.FloatRange(0), default=1.0, show_default=True, help="Temperature where a request names none.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True, help="Likewise.")
@click.option("--no-guards", is_flag=True, help="Let replies with tools repeat calls and go in circles.")
@click.option("--rows", type=click.IntRange(1), default=16, show_default=True, help="Outputs decoded together.")
@click.option("--waiting", type=click.IntRange(0), default=256, show_default=True, help="Outputs that may wait; more are answered 429.")
@click.option("--max-tokens", type=click.IntRange(1), default=4096, show_default=True, help="Of an output whose request names no limit.")
@click.option("--max-choices", type=click.IntRange(1), default=16, show_default=True, help="Most of n.")
@click.option("--max-calls", type=click.IntRange(1), default=16, show_default=True, help="Most tool calls of one reply.")
@click.option("--max-body", type=_BYTES, default="4m", show_default=True, help="Bytes of a request.")
@click.option("--body-timeout", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="Seconds to send one.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=600.0, show_default=True, help="Seconds to answer one.")
@click.option("--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to finish once told to stop.")
@click.option("--compile-timeout", type=click.FloatRange(0, min_open=True), default=20.0, show_default=True, help="Seconds a grammar.")
@click.option("--compile-memory", type=_BYTES, default="4g", show_default=True, help="Bytes of a compiling process.")
@click.option("--compile-states", type=click.IntRange(1), default=200_000, show_default=True, help="States of a grammar.")
@click.option("--compile-workers", type=click.IntRange(1), default=1, show_default=True, help="Compiling processes.")
@click.option("--grammars", type=click.IntRange(1), default=256, show_default=True, help="Grammars of requests that are kept.")
@click.option("--grammar-rows", type=_BYTES, default="1g", show_default=True, help="Bytes of their mask rows that are kept.")
@click.option("--prompt-cache", type=_BYTES, default="1g", show_default=True, help="Bytes of prompts that are kept.")
@click.option("--buffers", type=_BYTES, default="1g", show_default=True, help="Bytes of freed device buffers that are kept for reuse.")
@click.option("--json", "as_json", is_flag=True, help="Say on standard output, as one JSON object, when and where it listens.")
def serve_command(model: str | None, named: str | None, host: str, port: int, as_json: bool, **options: Any) -> None:
    """Serve MODEL (smollm2, the default, an mlx-lm model folder, or a hub name) to OpenAI clients, every constraint enforced.

    With mlx.launch it serves on several machines: rank 0 listens, all decode.
    """
    if model is not None and named is not None:
        raise click.UsageError("give MODEL or --model, not both")
    chosen = model or named or DEFAULT_MODEL
    try:
        import prometheus_client  # noqa: F401
        import pydantic  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        from stcc.runtime.server.errors import ServeError

        raise ServeError(f"the server needs the package {error.name}, which is not installed", "pip install 'stcc[serve]'") from None
    import mlx.core as mx

    from stcc.runtime.models import model_vocabulary
    from stcc.runtime.server.cluster import channel_of, load_ranked
    from stcc.runtime.server.serving import serve_model

    setup = setup_of(chosen, options)
    group = mx.distributed.init()
    loaded = load_ranked(chosen, group)
    vocabulary = model_vocabulary(loaded)
    serve_model(loaded.model, loaded.tokenizer, vocabulary, setup, host, port, channel=channel_of(group, vocabulary),
                announce=lambda url: _announce(setup.name, url, as_json))


def _announce(name: str, url: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"model": name, "url": url}))
        sys.stdout.flush()
    else:
        click.echo(f"serving {name} on {url}", err=True)


def setup_of(model: str, options: dict[str, Any]) -> Setup:
    """The setup that the command's options describe."""
    from stcc.runtime.server.limits import Limits
    from stcc.runtime.server.serving import Setup, api_key_of
    from stcc.runtime.server.session import Defaults

    limits = Limits(
        rows=options["rows"], waiting=options["waiting"], body_bytes=options["max_body"], body_seconds=options["body_timeout"],
        request_seconds=options["timeout"], grace_seconds=options["grace"], max_tokens=options["max_tokens"],
        choices=options["max_choices"],
        compile_seconds=options["compile_timeout"], compile_bytes=options["compile_memory"], compile_states=options["compile_states"],
        grammars=options["grammars"], grammar_bytes=options["grammar_rows"], prompt_cache_bytes=options["prompt_cache"],
        buffer_bytes=options["buffers"], calls=options["max_calls"])
    return Setup(options["name"] or model, options["artifacts"], api_key_of(options["api_key"]), options["tool_format"],
                 options["whitespace"], options["compile_workers"], limits,
                 Defaults(options["temp"], options["top_p"], not options["no_guards"]))
