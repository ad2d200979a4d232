"""``stcc bench``: one model, one loop, several ways to constrain it, in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from stcc.formats import Artifact, Vocabulary
    from stcc.runtime.decoding.comparison import Measurement, Task
    from stcc.runtime.models import LoadedModel

PEERS = ("llguidance", "llguidance-ff")
NAMES = ("free", "masked", "sync", "pipelined", "eager", *PEERS)
DEFAULT = ("free", "sync", "pipelined", *PEERS)
PHRASINGS = ("{task}", "{task}\n\nAnswer with the JSON object only.", "Read the text and give the facts in it as JSON.\n\n{task}")
PERSON: dict[str, Any] = {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "email", "status", "tags"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type": "string"},
                   "status": {"enum": ["pending", "approved", "rejected"]}, "tags": {"type": "array", "items": {"type": "string"}}},
}
PERSON_TASK = """Extract the person as JSON with the keys name, age, email, status (pending, approved or rejected) and tags (interests).

Maria Gonzalez, 34, applied for membership last week and her application has been approved. She can be reached at maria.g@example.com. In
her free time she enjoys hiking, photography and machine learning."""


@click.command("bench")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", default="smollm2", show_default=True, help="smollm2 (fetched once), an mlx-lm model folder, or a hub name.")
@click.option("--n", "outputs", type=click.IntRange(1), default=8, show_default=True, help="Outputs per engine and round.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds; the least time of each output counts.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Most tokens of an output.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(NAMES), help=f"Repeatable; by default {', '.join(DEFAULT)}.")
@click.option("--workload", type=click.Choice(["outputs", "agents", "requests"]), default="outputs", show_default=True,
              help="outputs: one after the other, in one process. agents, requests: servers, asked for tool calls by many at once.")
@click.option("--agents", type=click.IntRange(1), help="How many at once: 16 agents or 8 requests by default.")
@click.option("--turns", type=click.IntRange(1), help="Calls of one agent, 2 by default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of the table.")
def bench_command(files: tuple[Path, ...], model: str, outputs: int, rounds: int, max_tokens: int, engines: tuple[str, ...],
                  workload: str, agents: int | None, turns: int | None, as_json: bool) -> None:
    """Decode the same outputs by several engines and compare passes and seconds.

    FILES are .schema.json or .regex sources, each with its task in NAME.prompt.txt beside it; without any, a built-in task is used. Every
    engine runs in the same loop on the same model, one output after the other, interleaved. llguidance takes part if it is installed.

    With --workload agents or requests, `stcc serve` is compared with mlx-lm's own server that llguidance constrains, each a process.
    """
    if workload != "outputs":
        if files or engines or (turns and workload == "requests"):
            raise click.UsageError(f"--workload {workload} takes no FILES, no --engine and, for requests, no --turns")
        count = agents or (16 if workload == "agents" else 8)
        serve_workload(workload, model, count, turns or 2 if workload == "agents" else 1, max_tokens, rounds, as_json)
        return
    if agents or turns:
        raise click.UsageError("--agents and --turns belong to --workload agents or requests")
    from stcc.runtime.decoding.comparison import compare, contenders, summary
    from stcc.runtime.decoding.llguidance_matcher import Llguidance, LlguidanceMissing
    from stcc.runtime.decoding.model import DecodingModel
    from stcc.runtime.models import load_model, model_vocabulary

    wanted, peer, note = list(engines or DEFAULT), None, ""
    with Console(stderr=True).status("") as status:
        sources = _sources(files)
        status.update(f"loading {model}")
        loaded = load_model(model)
        vocabulary = model_vocabulary(loaded)
        if any(name in PEERS for name in wanted):
            try:
                peer = Llguidance((loaded.vocabulary_source / "tokenizer.json").read_text(encoding="utf-8"), vocabulary)
            except LlguidanceMissing as error:
                if engines:
                    raise
                note = f"{error.message}: {error.hint}"
                wanted = [name for name in wanted if name not in PEERS]
        decoding = DecodingModel(loaded.model)
        tasks = _tasks(sources, loaded, vocabulary, outputs)
        measured = compare(decoding, tasks, contenders(wanted, decoding, max_tokens, peer), rounds, status.update)
    rows = summary(measured)
    report = {"model": loaded.name, "outputs": outputs, "rounds": rounds, "engines": rows, "identical": _identical(measured), "note": note}
    if as_json:
        click.echo(json.dumps(report))
        return
    Console().print(bench_table(rows))
    if note:
        click.echo(note, err=True)
    if not report["identical"]:
        click.echo("Our loops did not emit the same tokens: two scores are tied within rounding.", err=True)


def serve_workload(workload: str, model: str, count: int, turns: int, max_tokens: int, rounds: int, as_json: bool) -> None:
    """Run a workload against both servers, or ours alone where llguidance is not installed, and print the rows."""
    from importlib.util import find_spec

    from stcc.runtime.commands.workloads import OURS, measure, servers_of
    from stcc.runtime.decoding.llguidance_matcher import LlguidanceMissing

    peer = find_spec("llguidance") is not None
    note = "" if peer else f"{LlguidanceMissing().message}: {LlguidanceMissing().hint}"
    with Console(stderr=True).status("starting") as status, servers_of(model, peer) as servers:
        rows = measure(servers, count, turns, max_tokens, rounds, status.update)
    report = {"model": model, "workload": workload, "at_once": count, "turns": turns, "max_tokens": max_tokens, "rounds": rounds,
              "servers": rows, "note": note}
    if as_json:
        click.echo(json.dumps(report))
        return
    seconds = next(row["seconds"] for row in rows if row["server"] == OURS)
    table = Table(box=None)
    for column in ("server", "requests", "valid calls", "tokens", "seconds", "tokens/s", f"x {OURS}"):
        table.add_column(Text(column), justify="left" if column == "server" else "right")
    for row in rows:
        table.add_row(row["server"], str(row["requests"]), f"{row['valid']}/{row['requests']}", str(row["tokens"]), f"{row['seconds']:.2f}",
                      f"{row['tokens_per_second']:.1f}", f"{row['seconds'] / max(seconds, 1e-9):.2f}")
    Console().print(table)
    if note:
        click.echo(note, err=True)


class _Source(NamedTuple):
    name: str
    source: dict[str, Any] | str
    artifact: Artifact
    task: str


def _sources(files: tuple[Path, ...]) -> list[_Source]:
    """What each file holds, or the built-in source. UsageError for a file without a task, or of another kind."""
    from stcc.runtime.seam import compile_file, compile_schema

    found = []
    for file in files:
        name = file.name.split(".")[0]
        prompt = file.with_name(f"{name}.prompt.txt")
        if not file.name.endswith((".schema.json", ".regex")):
            raise click.UsageError(f"{file} is neither a .schema.json nor a .regex")
        if not prompt.is_file():
            raise click.UsageError(f"{file} has no task: write it to {prompt}")
        artifact, text = compile_file(file), file.read_text(encoding="utf-8")
        source = json.loads(text) if file.name.endswith(".json") else text.removesuffix("\n")
        found.append(_Source(name, source, artifact, prompt.read_text(encoding="utf-8").strip()))
    return found or [_Source("person", PERSON, compile_schema(PERSON), PERSON_TASK)]


def _tasks(sources: list[_Source], loaded: LoadedModel, vocabulary: Vocabulary, outputs: int) -> list[Task]:
    """As many tasks as outputs: the sources in turn, each time in another phrasing."""
    from stcc.runtime.decoding.comparison import Task
    from stcc.runtime.load import load

    grammars = [load(source.artifact, vocabulary=vocabulary) for source in sources]
    tasks = []
    for number in range(outputs):
        turn, place = divmod(number, len(sources))
        source = sources[place]
        prompt = loaded.prompt_tokens(PHRASINGS[turn % len(PHRASINGS)].format(task=source.task))
        tasks.append(Task(f"{source.name} {turn + 1}", prompt, grammars[place], source.source))
    return tasks


def _identical(measured: list[Measurement]) -> bool:
    """Whether all our forcing loops emitted the same tokens, task by task."""
    seen: dict[str, list[int]] = {}
    ours = [each for each in measured if each.contender in ("sync", "pipelined", "eager")]
    return all(seen.setdefault(each.task, each.tokens) == each.tokens for each in ours)


def bench_table(rows: list[dict[str, Any]]) -> Table:
    """The summary as a table for people; times are compared with those of the first of our loops."""
    ours = next((row for row in rows if row["engine"] in ("sync", "pipelined", "eager", "masked")), rows[0])
    table = Table(box=None)
    for column in ("engine", "valid", "tokens", "passes", "passes/token", "forced", "ms/pass", "seconds", f"x {ours['engine']}"):
        table.add_column(Text(column), justify="left" if column == "engine" else "right")
    for row in rows:
        valid = "-" if row["valid"] is None else f"{row['valid']}/{row['outputs']}"
        table.add_row(row["engine"], valid, str(row["tokens"]), str(row["passes"]), f"{row['passes_per_token']:.2f}",
                      f"{row['forced'] / max(row['tokens'], 1):.0%}", f"{row['ms_per_pass']:.1f}", f"{row['seconds']:.2f}",
                      f"{row['seconds'] / max(ours['seconds'], 1e-9):.2f}")
    return table
