"""``stcc run``: decode one output of a grammar with an MLX model, and show it as it is produced."""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stcc.runtime.commands.exact_run import exact_options, refuse_exact_options, run_exact
from stcc.runtime.commands.fewer_passes import (
    READ_AHEAD,
    ahead_rows,
    decode_ahead,
    open_prompts,
    prompt_row,
    read_prompt,
    refuse_other_options,
    store_prompts,
)

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.decode import DecodingModel, Generation
    from stcc.runtime.decoding.prompt_cache import PromptCache
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.models import LoadedModel

DEFAULT_MAX_TOKENS = 1024
_REASONS = {
    "stop": "the model ended the output",
    "complete": "the grammar allows nothing more",
    "length": "the token limit; the model might have gone on",
    "context": "the model's context is full; it might have gone on",
    "not_finite": "the model's scores were not finite",
    "dead_end": "no token of the vocabulary may follow",
    "refused": "a token that the mask allowed was not taken",
}
_CPU_NOTE = """
On Linux, MLX's own matrix products are slow for long prompts. With OpenBLAS they take a tenth of the time or less:

\b
    apt-get install libopenblas0-pthread
    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 stcc run ...
"""


@click.command("run", epilog=_CPU_NOTE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", default="smollm2", show_default=True, help="smollm2 (fetched once), an mlx-lm model folder, or a hub name.")
@click.option("--prompt", help="What to ask; the model's chat template is applied.")
@click.option("--prompt-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Read the prompt from a file.")
@click.option("--raw", is_flag=True, help="Give the prompt as it is, without the chat template.")
@click.option("--max-tokens", type=click.IntRange(1), default=DEFAULT_MAX_TOKENS, show_default=True, help="The output is valid anyway.")
@click.option("--temp", type=click.FloatRange(0), default=0.0, show_default=True, help="Temperature; 0 takes the likeliest allowed token.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True, help="Share of the mass sampled from.")
@click.option("--top-k", type=click.IntRange(0), default=0, show_default=True, help="Likeliest tokens sampled from; 0 for all.")
@click.option("--min-p", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Least likelihood, relative to the likeliest.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--loop", type=click.Choice(["sync", "pipelined", "eager"]), default="sync", show_default=True,
              help="Whether steps are enqueued before the host knows the last token; the text is the same.")
@click.option("--forcing", type=click.Choice(["span", "step", "off"]), default="span", show_default=True,
              help="Feed forced text with the token before it, token by token, or leave it to the model.")
@click.option("--heal", is_flag=True, help="Spell the prompt's end and forced text as the tokenizer would across their boundaries.")
@click.option("--read-ahead", type=click.Choice(READ_AHEAD),
              help="Draft blocks side by side, or read short alternatives in one pass; the text is the same.")
@click.option("--prompt-cache", type=click.Path(file_okay=False, path_type=Path),
              help="Keep prompts in this folder, one model a folder, and read only what is new of the next.")
@exact_options
@click.option("--stats", is_flag=True, help="A table of tokens, passes and seconds after the text.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of the text.")
def run_command(file: Path, model: str, prompt: str | None, prompt_file: Path | None, raw: bool, max_tokens: int, temp: float, top_p: float,
                top_k: int, min_p: float, seed: int, loop: str, forcing: str, heal: bool, read_ahead: str | None, prompt_cache: Path | None,
                stats: bool, as_json: bool, **exact: Any) -> None:
    """Decode an output of FILE (.stc, .schema.json or .regex) with a model; --exact takes a .policy.yaml, too.

    A .stc for the model's vocabulary is used as it is; a portable one is bound, and a source compiled, in memory.
    """
    if exact["exact"]:
        run_exact(click.get_current_context())
        return
    refuse_exact_options(click.get_current_context())
    if (prompt is None) == (prompt_file is None):
        raise click.UsageError("give one of --prompt and --prompt-file")
    text = prompt if prompt_file is None else _read(prompt_file)
    options = {"max_tokens": max_tokens, "temperature": temp, "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed, "loop": loop,
               "forcing": forcing}
    if read_ahead is not None:
        refuse_other_options(click.get_current_context(), read_ahead)
    run = _open(file, model, text or "", raw)
    prompts = open_prompts(run.decoding, prompt_cache)
    if read_ahead is None:
        report, rows = _stream(run, prompts, heal, as_json, options)
    else:
        report = {**decode_ahead(read_ahead, run.decoding, run.grammar, run.prompt, prompts, options), "model": run.loaded.name}
        rows = ahead_rows(report)
        if not as_json:
            click.echo(report["text"])
    store_prompts(prompts, prompt_cache)
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    elif stats:
        Console(stderr=True).print(stats_table(report, rows))
    if not report["valid"]:
        if not as_json:
            click.echo(f"The output is not valid: {_REASONS[report['stop_reason']]}.", err=True)
        raise click.exceptions.Exit(1)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not UTF-8 text (byte {error.start})", param_hint="--prompt-file") from None


class _Run(NamedTuple):
    loaded: LoadedModel
    decoding: DecodingModel
    vocabulary: Vocabulary
    grammar: Grammar
    prompt: list[int]


def _open(file: Path, model: str, prompt: str, raw: bool) -> _Run:
    """Load the model and the grammar, cheap checks first: a source that does not compile is told before a model is fetched."""
    from stcc.runtime.decode import DecodingModel
    from stcc.runtime.load import load
    from stcc.runtime.models import load_model, model_vocabulary
    from stcc.runtime.seam import compile_file

    with Console(stderr=True).status(f"opening {file.name}") as status:
        artifact = compile_file(file)
        status.update(f"loading {model}")
        loaded = load_model(model)
        vocabulary = model_vocabulary(loaded)
        grammar = load(artifact, vocabulary=vocabulary)
        return _Run(loaded, DecodingModel(loaded.model), vocabulary, grammar, loaded.prompt_tokens(prompt, chat=not raw))


def _stream(run: _Run, prompts: PromptCache | None, heal: bool, as_json: bool, options: dict[str, Any],
            ) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Decode span by span, shown as they come unless a report was asked for; the report, and its rows for people."""
    from stcc.runtime.decode import Healing, generate

    if heal:
        options["healing"] = Healing(lambda text: run.loaded.tokenizer.encode(text, add_special_tokens=False), run.vocabulary)
    generation = generate(run.decoding, run.grammar, run.prompt, **options)
    if prompts is not None:  # only now, since all that is cheap has been checked
        cache, cached = read_prompt(run.decoding, prompts, run.prompt, 2 if heal else 1)
        generation = generate(run.decoding, run.grammar, run.prompt, cache=cache, cached=cached, **options)
    if as_json:
        generation.finish()
    else:
        show_spans(generation)
    report = run_report(generation, run.loaded.name)
    if prompts is not None:
        report["cached_prompt_tokens"] = prompts.statistics.found
    return report, stream_rows(report)


def show_spans(generation: Generation) -> None:
    """Write the text to standard output as it comes: bytes as they are to a file or pipe; to a terminal as text, the forced part dim."""
    console = Console()
    if not console.is_terminal:
        for span in generation:
            sys.stdout.buffer.write(span.text)
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for span in generation:
        piece = Text(decoder.decode(span.sampled_text))
        piece.append(decoder.decode(span.forced_text), style="dim")
        console.print(piece, end="", soft_wrap=True)
    console.print(decoder.decode(b"", final=True), markup=False, highlight=False)


def run_report(generation: Generation, model: str) -> dict[str, Any]:
    """A finished generation as plain data; ``text`` replaces bytes that are not UTF-8."""
    counts = generation.statistics
    return {
        "text": generation.text.decode("utf-8", "replace"), "valid": generation.valid, "tokens": counts.tokens, "passes": counts.passes,
        "forced": counts.forced, "forced_share": round(counts.forced_share, 4), "narrowed": counts.narrowed,
        "stop_reason": generation.stop_reason,
        "sampled": counts.sampled, "prefill_passes": counts.prefill_passes, "ahead": counts.ahead, "dropped": counts.dropped,
        "healed": counts.healed, "seconds": round(counts.seconds, 4), "prefill_seconds": round(counts.prefill_seconds, 4),
        "enqueue_seconds": round(counts.enqueue_seconds, 4), "wait_seconds": round(counts.wait_seconds, 4),
        "constraint_seconds": round(counts.constraint_seconds, 5), "prompt_tokens": counts.prompt_tokens,
        "model": model,
    }


def stream_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The counts of the stream for people: name and value."""
    return [
        ("model passes", f"{report['passes']} ({report['ahead']} ahead of the host, {report['dropped']} dropped), "
                         f"{report['prefill_passes']} for the prompt alone"),
        ("narrowed by the limit", f"{report['narrowed']} choices"),
        prompt_row(report),
        ("boundaries healed", str(report["healed"])),
        ("seconds", f"{report['seconds']:.2f} ({report['prefill_seconds']:.2f} until the first choice)"),
        ("ms per part", f"enqueue {1e3 * report['enqueue_seconds']:.0f}, wait {1e3 * report['wait_seconds']:.0f}, "
                        f"constraint {1e3 * report['constraint_seconds']:.1f}"),
    ]


def stats_table(report: dict[str, Any], rows: list[tuple[str, str]]) -> Table:
    """A report as a table for people: what every decoder has, around its own ``rows``."""
    table = Table(show_header=False, box=None)
    shared = [
        ("valid", "yes" if report["valid"] else "no"),
        ("stopped by", _REASONS[report["stop_reason"]]),
        ("tokens", f"{report['tokens']} ({report['forced']} forced, {report['forced_share']:.0%})"),
    ]
    for name, value in (*shared, *rows, ("model", report["model"])):
        table.add_row(Text(name, style="dim"), Text(value))
    return table
