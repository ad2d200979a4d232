"""``stcc run --exact``: outputs drawn from the model's own distribution conditioned on being valid, and what that cost.

Of a grammar the outputs are texts (``stcc.runtime.exact.text``), of a policy histories, with the model or a stored table of its scores as
the policy (``stcc.runtime.exact.model_policy``). ``--compare`` draws as many by plain masking, so that the two costs can be set side by
side: texts with a memory of its own, histories from the same table of scores, of which only what it adds is counted as its model passes.
Options that would change the distribution, and options that only the other kind knows, are refused, not ignored.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stcc.formats.summary import printable

if TYPE_CHECKING:
    from stcc.formats import Artifact
    from stcc.runtime.exact.accounting import Accounting
    from stcc.runtime.exact.environment import Environment
    from stcc.runtime.exact.histories import Policy
    from stcc.runtime.exact.samplers import Sampler
    from stcc.runtime.exact.text import TextSample, TextSampler
    from stcc.runtime.models import LoadedModel

MAX_ATTEMPTS = 10_000
MOST_OUTPUTS = 1_000_000
SCORED_FIRST = 20_000
"""Histories that are scored in batches before the first draw, which asks for all of them; if there are more, it asks one by one."""
_OURS = {"count": "-n", "max_attempts": "--max-attempts", "compare": "--compare", "table": "--table", "save_table": "--save-table"}
_POLICY_ONLY = {"table": "--table", "save_table": "--save-table"}
_NOT_EXACT = {"top_p": "--top-p", "top_k": "--top-k", "min_p": "--min-p", "loop": "--loop", "forcing": "--forcing", "heal": "--heal",
              "read_ahead": "--read-ahead", "prompt_cache": "--prompt-cache"}
_FUNCTION = TypeVar("_FUNCTION", bound=Callable[..., Any])
_PATH = click.Path(dir_okay=False, path_type=Path)


def exact_options(command: _FUNCTION) -> _FUNCTION:
    """The options of ``stcc run`` that belong to ``--exact``."""
    for option in reversed((
        click.option("--exact", is_flag=True, help="Draw from the model's distribution given that the output is valid; --temp is 1 then."),
        click.option("-n", "--count", type=click.IntRange(1, MOST_OUTPUTS), default=1, show_default=True, help="With --exact: outputs."),
        click.option("--max-attempts", type=click.IntRange(1), default=MAX_ATTEMPTS, show_default=True, help="With --exact: then give up."),
        click.option("--compare", is_flag=True, help="With --exact: draw as many by plain masking, and report its cost too."),
        click.option("--table", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="With --exact, of a policy: scores stored before, in place of a model."),
        click.option("--save-table", type=_PATH, help="With --exact, of a policy: store the scores here."),
    )):
        command = option(command)
    return command


def refuse_exact_options(context: click.Context) -> None:
    """UsageError if options of ``--exact`` were given without it."""
    for name, option in _OURS.items():
        if is_given(context, name):
            raise click.UsageError(f"{option} goes with --exact")


def is_given(context: click.Context, name: str) -> bool:
    """Whether a parameter was written on the command line."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def run_exact(context: click.Context) -> None:
    """Run the command whose parameters ``context`` holds."""
    options = context.params
    for name, option in _NOT_EXACT.items():
        if is_given(context, name):
            raise click.UsageError(f"{option} would change the distribution that --exact draws from, or how it is decoded; leave it out")
    if is_given(context, "temp") and options["temp"] == 0:
        raise click.UsageError("--temp 0 leaves nothing to draw; with --exact give a number above 0, or leave it out for 1")
    options["temp"] = options["temp"] or 1.0
    if options["table"] is None and (options["prompt"] is None) == (options["prompt_file"] is None):
        raise click.UsageError("give one of --prompt and --prompt-file")
    from stcc.runtime.seam import compile_file

    artifact = compile_file(options["file"])
    if artifact.policy is not None:
        if is_given(context, "max_tokens"):
            raise click.UsageError("--max-tokens limits texts; a policy has its horizon")
        _run_policy(artifact, context)
        return
    for name, option in _POLICY_ONLY.items():
        if is_given(context, name):
            raise click.UsageError(f"{option} goes with a policy, and {options['file'].name} is none")
    _run_text(artifact, context)


def _prompt(options: dict[str, Any]) -> str:
    if options["prompt_file"] is None:
        return str(options["prompt"])
    try:
        return str(options["prompt_file"].read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{options['prompt_file']} is not UTF-8 text (byte {error.start})", param_hint="--prompt-file") from None


def _loaded(options: dict[str, Any]) -> LoadedModel:
    from stcc.runtime.models import load_model

    with Console(stderr=True).status(f"loading {options['model']}"):
        return load_model(options["model"])


# -- texts -----------------------------------------------------------------------------------------------------------------


def _run_text(artifact: Artifact, context: click.Context) -> None:
    import numpy as np

    from stcc.runtime.exact.text import MaskedText, TextCars
    from stcc.runtime.exact.token_models import ModelTokens
    from stcc.runtime.load import load
    from stcc.runtime.models import model_vocabulary

    options = context.params
    loaded = _loaded(options)
    vocabulary = model_vocabulary(loaded)
    grammar = load(artifact, vocabulary=vocabulary)
    prompt = loaded.prompt_tokens(_prompt(options), chat=not options["raw"])
    limit = _limit(loaded, prompt, options["max_tokens"], is_given(context, "max_tokens"))

    def model() -> ModelTokens:
        return ModelTokens(loaded.model, prompt, vocabulary.size, temperature=options["temp"])

    sampler = TextCars(grammar, model(), limit)
    found = _shown_texts(sampler, options)
    cost = sampler.accounting
    report = {"text": _readable(found[0].text), "valid": True, "tokens": cost.output_tokens, "passes": cost.passes, "forced": 0,
              "stop_reason": "stop", "seconds": round(cost.seconds, 4), "kind": "text", "max_tokens": limit, "model": loaded.name,
              "temperature": options["temp"],
              "outputs": [{"text": _readable(one.text), "tokens": len(one.tokens), "log_probability": one.log_probability}
                          for one in found],
              "exact": {**_cost(cost), "mass_bound": sampler.bound, "validity": sampler.validity}}
    if options["compare"]:
        masked = MaskedText(grammar, model(), limit)
        drawn = masked.draw(options["count"], np.random.default_rng(options["seed"]), options["max_attempts"])
        weights = np.array([one.weight for one in drawn])
        report["masking"] = {**_cost(masked.accounting), "validity": float(weights.sum()) / masked.accounting.attempts,
                             "effective_samples": float(weights.sum() ** 2 / (weights ** 2).sum()) if weights.any() else 0.0,
                             "outputs": [_readable(one.text) for one in drawn]}
    _finish(report, options)


def _limit(loaded: LoadedModel, prompt: list[int], wanted: int, given: bool) -> int:
    """Most tokens of an output: what was asked for; if nothing was, no more than the model's context has room for."""
    from stcc.runtime.decoding.model import DecodingModel
    from stcc.runtime.errors import ConstraintError

    length = DecodingModel(loaded.model).context_length
    room = wanted if length is None else length - len(prompt)
    if room < (wanted if given else 1):
        raise ConstraintError(f"after the prompt's {len(prompt)} tokens the model's context has room for {max(room, 0)}, and --max-tokens "
                              f"is {wanted}", "shorten the prompt, or lower --max-tokens")
    return min(wanted, room)


def _shown_texts(sampler: TextSampler, options: dict[str, Any]) -> list[TextSample]:
    """Draw, writing each text as it is found unless the report is to be JSON."""
    import numpy as np

    found = []
    for one in _with_status(sampler.draws(options["count"], np.random.default_rng(options["seed"]), options["max_attempts"])):
        found.append(one)
        if not options["as_json"]:
            sys.stdout.buffer.write((printable(_readable(one.text)).encode() if sys.stdout.isatty() else one.text) + b"\n")
            sys.stdout.buffer.flush()
    return found


def _with_status(draws: Iterator[TextSample]) -> Iterator[TextSample]:
    with Console(stderr=True).status("drawing"):
        yield from draws


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


# -- policies --------------------------------------------------------------------------------------------------------------


def _run_policy(artifact: Artifact, context: click.Context) -> None:
    import numpy as np

    from stcc.runtime.exact.environment import Environment
    from stcc.runtime.exact.local_masking import LocalMasking
    from stcc.runtime.exact.stateful import StatefulCars, compiled_bank

    options = context.params
    environment = Environment.of(artifact)
    graph = environment.graph
    policy, about = _policy(environment, context)
    cost = getattr(policy, "cost", None)
    if cost is not None:
        _score_first(policy, environment)
    sampler = StatefulCars(environment, _walk(policy, environment), bank=compiled_bank(environment), update="none")
    found = sampler.draw(options["count"], np.random.default_rng(options["seed"]), options["max_attempts"])
    passes = cost.passes if cost is not None else 0
    report: dict[str, Any] = {
        "text": graph.spell(found[0].history), "valid": True, "tokens": sum(len(one.history) for one in found), "passes": passes,
        "forced": 0, "stop_reason": "stop", "seconds": round(sampler.accounting.seconds, 4), "kind": "policy", "scores": about,
        "outputs": [{"world": graph.worlds[one.world], "text": graph.spell(one.history)} for one in found],
        "exact": {**_cost(sampler.accounting), "passes": passes}}
    if options["compare"]:
        masked: Sampler = LocalMasking(environment, _walk(policy, environment))
        drawn = masked.draw(options["count"], np.random.default_rng(options["seed"]), options["max_attempts"])
        report["masking"] = {**_cost(masked.accounting), "passes": cost.passes - passes if cost is not None else 0,
                             "outputs": [{"world": graph.worlds[one.world], "text": graph.spell(one.history)} for one in drawn]}
    if options["save_table"] is not None:
        report["scores"] = {**about, "sha256": _save(policy, environment, options["save_table"], about)}
    if not options["as_json"]:
        for one in report["outputs"]:
            click.echo(one["text"])
    _finish(report, options)


def _walk(policy: Policy, environment: Environment) -> Any:
    from stcc.runtime.exact.accounting import Accounting
    from stcc.runtime.exact.histories import HistoryWalk

    return HistoryWalk(policy, environment.actions, Accounting())


def _policy(environment: Environment, context: click.Context) -> tuple[Policy, dict[str, str]]:
    """The stored table or the model, and what to say of it."""
    from stcc.runtime.exact.model_policy import ModelPolicy
    from stcc.runtime.exact.score_table import load_scores
    from stcc.runtime.exact.transcript import Transcript

    options = context.params
    if options["table"] is not None:
        for name, option in (("model", "--model"), ("prompt", "--prompt"), ("prompt_file", "--prompt-file"), ("temp", "--temp"),
                             ("raw", "--raw"), ("save_table", "--save-table")):
            if is_given(context, name):
                raise click.UsageError(f"{option} belongs to a model, and --table takes its place")
        stored = load_scores(options["table"], environment.graph)
        return stored, {**stored.about, "table": str(options["table"]), "sha256": stored.digest}
    loaded = _loaded(options)
    prompt = _prompt(options)
    opening = loaded.prompt_tokens(prompt, chat=not options["raw"])
    transcript = Transcript.of(environment.graph, lambda text: loaded.tokenizer.encode(text, add_special_tokens=False), opening)
    about = {"model": loaded.name, "temperature": repr(options["temp"]), "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
             "chat": str(not options["raw"]).lower()}
    return ModelPolicy(loaded.model, transcript, temperature=options["temp"]), about


def _score_first(policy: Any, environment: Environment) -> None:
    """Score, in batches, what the compiled bank's residual asks for: every running history that can become valid."""
    from stcc.runtime.exact.model_policy import live_histories

    histories = list(islice(live_histories(environment), SCORED_FIRST + 1))
    if len(histories) <= SCORED_FIRST:
        with Console(stderr=True).status(f"scoring {len(histories):,} histories"):
            policy.score(histories)


def _save(policy: Any, environment: Environment, path: Path, about: dict[str, str]) -> str:
    from stcc.runtime.exact.score_table import save_scores

    return save_scores(path, environment.graph, policy.table, about)


# -- reports ---------------------------------------------------------------------------------------------------------------


def _cost(accounting: Accounting) -> dict[str, Any]:
    return {**accounting.report(), "acceptance": accounting.accepted / max(accounting.attempts, 1)}


def _finish(report: dict[str, Any], options: dict[str, Any]) -> None:
    if options["as_json"]:
        click.echo(json.dumps(report, ensure_ascii=False))
    elif options["stats"] or options["compare"]:
        Console(stderr=True).print(_table(report))


def _table(report: dict[str, Any]) -> Table:
    """Exact draws beside masking, where it was run."""
    sides = [side for side in ("exact", "masking") if side in report]
    table = Table(box=None)
    for title in ("", *sides):
        table.add_column(title, style="dim" if not title else "")
    rows: list[tuple[str, str]] = [
        ("attempts", "attempts"), ("accepted", "accepted"), ("acceptance", "acceptance"), ("model passes", "passes"),
        ("tokens or actions drawn", "sampler_steps"), ("rows asked for", "policy_calls"), ("rows scored", "distinct_policy_calls"),
        ("tokens read", "fed"), ("memory entries", "memory_entries"), ("memory bytes", "memory_bytes"),
        ("P(valid), estimated", "validity"), ("P(valid), at most", "mass_bound"), ("effective samples", "effective_samples"),
        ("seconds", "seconds")]
    for label, key in rows:
        values = [report[side].get(key) for side in sides]
        if any(value is not None for value in values):
            table.add_row(label, *(Text(_number(value)) for value in values))
    return table


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
