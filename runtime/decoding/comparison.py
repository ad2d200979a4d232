"""One loop, several ways to constrain it: tasks decoded by each of them in turn, in one process.

In: tasks (a prompt, a grammar and its source) and contenders. Out: for every pair a ``Measurement``: counts, text and the seconds of each
round. The prompt is read once a task and its cache copied for every run, so that what is timed is decoding: from the prompt's last token
on. Rounds go task by task and, within a task, contender by contender, each round beginning with another one, so that all meet the same
load of the machine; of a task's rounds the least time counts, since other programs can only add to it.

    free         no constraint
    masked       our matcher, every token chosen by the model
    sync, pipelined, eager     our loops
    llguidance   its masks; ``llguidance-ff`` with its fast-forward tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stcc.runtime.decode import generate, generate_with
from stcc.runtime.decoding.constraint import Unconstrained
from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.rows import copy_cache
from stcc.runtime.decoding.settings import Settings

if TYPE_CHECKING:
    from stcc.runtime.decode import Generation
    from stcc.runtime.decoding.llguidance_matcher import Llguidance
    from stcc.runtime.grammar import Grammar

CONTENDERS = ("free", "masked", "sync", "pipelined", "eager", "llguidance", "llguidance-ff")


@dataclass(frozen=True)
class Task:
    """What is asked.

    Attributes:
        name: of the task.
        prompt_tokens: at least two.
        grammar: of the answer.
        source: its JSON schema or pattern, for contenders that compile it themselves.
    """

    name: str
    prompt_tokens: Sequence[int]
    grammar: Grammar
    source: dict[str, Any] | str


Start = Callable[[Task, Cache], "Generation"]
"""A generation of a task; the cache holds its prompt but for the last token."""


@dataclass
class Measurement:
    """How one contender did on one task.

    Attributes:
        contender: its name.
        task: the task's name.
        tokens: tokens emitted.
        text: what they spell.
        passes: model runs.
        forced: tokens that cost none.
        accepted: whether the contender's own constraint took the output for a whole one.
        stop_reason: see ``stcc.runtime.decode.StopReason``.
        seconds: decoding, a number a round.
        constraint_seconds: of them, the constraint on the host; of the last round.
    """

    contender: str
    task: str
    tokens: list[int]
    text: bytes
    passes: int
    forced: int
    accepted: bool
    stop_reason: str
    seconds: list[float] = field(default_factory=list)
    constraint_seconds: float = 0.0


def contenders(names: Iterable[str], model: DecodingModel, max_tokens: int, peer: Llguidance | None = None) -> dict[str, Start]:
    """The contenders called ``names``; those of llguidance need ``peer``. ``max_tokens`` bounds each output."""
    def ours(**options: Any) -> Start:
        def start(task: Task, cache: Cache) -> Generation:
            return generate(model, task.grammar, task.prompt_tokens, max_tokens=max_tokens, cache=cache,
                            cached=len(task.prompt_tokens) - 1, **options)
        return start

    def other(make: Callable[[Task], Any]) -> Start:
        def start(task: Task, cache: Cache) -> Generation:
            settings = Settings(max_tokens=max_tokens, cache=cache, cached=len(task.prompt_tokens) - 1)
            assert task.grammar.vocabulary is not None
            return generate_with(model, make(task), task.grammar.vocabulary, task.prompt_tokens, settings)
        return start

    def vocabulary(task: Task) -> Any:
        return task.grammar.vocabulary

    known: dict[str, Start] = {
        "free": other(lambda task: Unconstrained(vocabulary(task))), "masked": ours(forcing="off"), "sync": ours(),
        "pipelined": ours(loop="pipelined"), "eager": ours(loop="eager"),
    }
    if peer is not None:
        known["llguidance"] = other(lambda task: peer.matcher(task.source))
        known["llguidance-ff"] = other(lambda task: peer.matcher(task.source, fast_forward=True))
    return {name: known[name] for name in names}


def compare(model: DecodingModel, tasks: Sequence[Task], starts: dict[str, Start], rounds: int,
            progress: Callable[[str], None] = lambda _: None) -> list[Measurement]:
    """Decode every task by every contender, ``rounds`` times. The measurements, tasks first."""
    import mlx.core as mx

    found: dict[tuple[str, str], Measurement] = {}
    for number in range(rounds):
        for place, task in enumerate(tasks):
            prompt = model.make_cache()
            model.prefill(task.prompt_tokens[:-1], prompt)
            names = list(starts)
            turn = (number + place) % len(names)
            for name in names[turn:] + names[:turn]:
                progress(f"round {number + 1}, {task.name}, {name}")
                cache = copy_cache(prompt)
                mx.eval([layer.state for layer in cache])
                done = starts[name](task, cache).finish()
                counts = done.statistics
                measured = found.setdefault((task.name, name), Measurement(
                    name, task.name, done.tokens, done.text, counts.passes, counts.forced, done.valid, str(done.stop_reason)))
                measured.seconds.append(counts.seconds)
                measured.constraint_seconds = counts.constraint_seconds
    return [found[task.name, name] for task in tasks for name in starts]


def summary(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """One row a contender, over its tasks: sums of counts, and of the least seconds of each task."""
    rows = []
    for name in dict.fromkeys(measured.contender for measured in measurements):
        own = [measured for measured in measurements if measured.contender == name]
        tokens, passes = sum(len(measured.tokens) for measured in own), sum(measured.passes for measured in own)
        seconds = sum(min(measured.seconds) for measured in own)
        rows.append({
            "engine": name, "outputs": len(own), "valid": sum(measured.accepted for measured in own) if name != "free" else None,
            "tokens": tokens, "passes": passes, "forced": sum(measured.forced for measured in own),
            "passes_per_token": round(passes / max(tokens, 1), 3), "seconds": round(seconds, 3),
            "ms_per_pass": round(1e3 * seconds / max(passes, 1), 2),
            "constraint_ms_per_pass": round(1e3 * sum(measured.constraint_seconds for measured in own) / max(passes, 1), 3),
        })
    return rows
