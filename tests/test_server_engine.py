"""The engine against our own loop and against itself: rows together and alone, forced text in wide passes, seeds, guards, prompts kept."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import mlx.core as mx  # noqa: E402
from decoding_cases import MODELS, NAMES, encode, grammar, is_valid, vocabulary  # noqa: E402

from stcc.compiler import compile_json_schema, compile_regex, compile_tools  # noqa: E402
from stcc.compiler.frontends.tools import FORMATS  # noqa: E402
from stcc.runtime import load  # noqa: E402
from stcc.runtime.decode import generate  # noqa: E402
from stcc.runtime.decoding.model import DecodingModel  # noqa: E402
from stcc.runtime.server import wide  # noqa: E402
from stcc.runtime.server.engine import Engine  # noqa: E402
from stcc.runtime.server.job import Choosing, End, Guards, Job  # noqa: E402
from stcc.runtime.server.limits import Limits  # noqa: E402
from stcc.runtime.server.row import Row  # noqa: E402

GREEDY = Choosing(temperature=0)
PROMPTS = [encode(text) for text in ("hello world", "the quick brown fox", "a", '{"name":"N7","list":[1', "end", "12")]
CONTEXT = 240  # tokens of a job, within the models' context


class Numbers:
    """Job numbers."""

    last = 0

    @classmethod
    def fresh(cls) -> int:
        cls.last += 1
        return cls.last


def job(number: int, **more: Any) -> Job:
    name = NAMES[number % len(NAMES)]
    fields = {"prompt": tuple(PROMPTS[number % len(PROMPTS)]), "grammar": name, "max_tokens": 80, "choosing": GREEDY, **more}
    return Job(Numbers.fresh(), **fields)


@cache
def engine(model: str) -> Engine:
    found = Engine(MODELS[model](0), vocabulary(), Limits(rows=4), formats=FORMATS.get)
    found.start()
    return found


@pytest.fixture(scope="module", autouse=True)
def engines() -> Iterator[None]:
    yield
    for name in MODELS:
        assert engine(name).stop()
    engine.cache_clear()


def run(running: Engine, jobs: list[Job], grammars: dict[str, Any] | None = None) -> list[tuple[bytes, End, list[Any]]]:
    """Text, end and tokens of jobs that run together."""
    queues: list[queue.SimpleQueue[Any]] = []
    for each in jobs:
        queues.append(queue.SimpleQueue())
        held = None if each.grammar is None else (grammars or {}).get(each.grammar) or grammar(each.grammar)
        running.submit(each, held, queues[-1].put)
    found = []
    for events in queues:
        text, tokens = b"", []
        while True:
            event = events.get(timeout=60)
            text += event.text
            if isinstance(event, End):
                break
            tokens += event.tokens
        found.append((text, event, tokens))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_rows_together_are_as_alone_and_as_our_own_loop(model: str) -> None:
    """More rows than places, so that they join and leave; recurrent layers too."""
    jobs = [job(number) for number in range(12)]
    together = run(engine(model), jobs)
    for each, (text, end, tokens) in zip(jobs, together, strict=True):
        assert end.reason in ("complete", "stop", "length") and end.valid and is_valid(str(each.grammar), text)
        own = generate(MODELS[model](0), grammar(str(each.grammar)), list(each.prompt), max_tokens=each.max_tokens)
        own.finish()
        assert own.text == text
        assert sum(token.forced for token in tokens) == own.statistics.forced
    alone = [run(engine(model), [job(number)])[0] for number in range(6)]
    assert [found[0] for found in alone] == [found[0] for found in together[:6]]
    assert [found[1].passes for found in alone] <= [found[1].passes for found in together[:6]]


def test_forced_text_takes_no_passes_of_its_own() -> None:
    (text, end, tokens), = run(engine("llama"), [job(0, prompt=tuple(encode("hello fox")))])
    own = generate(MODELS["llama"](0), grammar(NAMES[0]), encode("hello fox"), max_tokens=80)
    own.finish()
    assert (text, end.passes) == (own.text, own.statistics.passes)
    assert end.passes < len(tokens)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("slope", [0.0, 10.0])
def test_widths_change_no_text(model: str, slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest passes with slope 0, with padding cut off after every pass; single tokens with a steep one."""
    expected = [found[0] for found in run(engine(model), [job(number) for number in range(6)])]
    plain = wide.paying_width
    monkeypatch.setattr(wide, "paying_width", lambda forced, roll: plain(forced, 0.0, slope))
    monkeypatch.setattr(wide, "SLACK", 1)
    assert [found[0] for found in run(engine(model), [job(number) for number in range(6)])] == expected


@pytest.mark.parametrize("model", MODELS)
def test_draws_depend_on_the_seed_alone(model: str) -> None:
    sampled = [job(number, choosing=Choosing(temperature=1.0, seed=number)) for number in range(8)]
    together = [found[0] for found in run(engine(model), sampled)]
    alone = [run(engine(model), [job(number, choosing=Choosing(temperature=1.0, seed=number))])[0][0] for number in range(8)]
    assert together == alone
    assert all(is_valid(str(each.grammar), text) for each, text in zip(sampled, together, strict=True))


def test_free_text_beside_grammars() -> None:
    jobs = [job(0), Job(Numbers.fresh(), tuple(PROMPTS[0]), None, 20, GREEDY), job(1)]
    found = run(engine("llama"), jobs)
    assert is_valid(NAMES[0], found[0][0]) and is_valid(NAMES[1], found[2][0])
    assert found[1][1].reason == "length" and len(found[1][2]) == 20
    logits = MODELS["llama"](0)(mx.array([PROMPTS[0]]))[0, -1, :vocabulary().size]
    assert found[1][2][0].token == int(mx.argmax(logits).item())


def test_stored_prompts_change_nothing_but_what_is_read() -> None:
    prompt = tuple(encode("the quick brown fox's two  spaces and more words to read"))
    first = run(engine("llama"), [job(0, prompt=prompt)])[0]
    again = run(engine("llama"), [job(0, prompt=prompt)])[0]
    assert again[0] == first[0] and again[1].cached >= len(prompt) - 1 > first[1].cached
    reply = tuple(token.token for token in first[2])
    longer = run(engine("llama"), [job(1, prompt=(*prompt, *reply, 7))])[0]
    assert longer[1].cached >= len(prompt) + len(reply) - 2
    fresh = Engine(MODELS["llama"](0), vocabulary(), Limits(prompt_cache_bytes=0))
    fresh.start()
    assert run(fresh, [job(1, prompt=(*prompt, *reply, 7))])[0][0] == longer[0]
    assert fresh.stop()


def test_cancelled_rows_end_and_leave() -> None:
    running = engine("llama")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    endless = Job(Numbers.fresh(), tuple(PROMPTS[0]), None, 10_000, GREEDY)
    running.submit(endless, None, events.put)
    events.get(timeout=30)
    running.cancel(endless.number)
    running.cancel(123456)  # nobody's
    while not isinstance(event := events.get(timeout=30), End):
        pass
    assert event.reason == "cancelled" and not running._uids
    assert is_valid(NAMES[0], run(running, [job(0)])[0][0])


def test_a_row_that_cannot_begin_is_told() -> None:
    found = run(engine("llama"), [job(0, max_tokens=1), job(1)])
    assert found[0][1].reason == "failed" and "no valid output fits" in found[0][1].message
    assert is_valid(NAMES[1], found[1][0])


def test_arrays_whose_items_must_differ() -> None:
    schema = {"type": "array", "items": {"enum": ["a", "b", "cc"]}, "uniqueItems": True, "minItems": 3, "maxItems": 3}
    unique = load(compile_json_schema(schema), vocabulary=vocabulary())
    texts = [run(engine("llama"), [Job(Numbers.fresh(), tuple(PROMPTS[0]), "u", 60, Choosing(temperature=2.0, seed=seed), budget=False)],
                 {"u": unique})[0] for seed in range(4)]
    for text, end, _ in texts:
        assert end.valid and sorted(json.loads(text)) == ["a", "b", "cc"]


# ---- guards


CALL = '<tool_call>\n{{"name": "f", "arguments": {{"a": {}}}}}\n</tool_call>'


def driven(text: str, guards: Guards, tools: dict[str, Any] | None = None) -> tuple[Row, bytes]:
    """A row that is made to say ``text``, as far as it goes."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}}}
    artifact = compile_tools([tool], format="hermes", **(tools or {}))
    shown: list[bytes] = []
    row = Row(Job(1, (5,), "g", 600, GREEDY, guards=guards), lambda event: shown.append(event.text), load(artifact,
                                                                                                          vocabulary=vocabulary()),
              vocabulary(), FORMATS["hermes"])
    for token in encode(text):
        if row.reason is not None:
            break
        if token not in row._queue or row._queue[0] != token:
            row.take(token)
        else:
            row._queue.pop(0)
    row.collect()
    return row, b"".join(shown)


def test_a_repeated_call_ends_the_reply() -> None:
    text = "\n".join([CALL.format(1), CALL.format(2), CALL.format(1), CALL.format(3)])
    row, _ = driven(text, Guards("hermes", 9, True, True))
    assert row.reason == "guard" and row.message == "repeated_call" and row.valid()
    said = b"".join(vocabulary().token(token) for token in row.output).decode()
    assert said == "\n".join([CALL.format(1), CALL.format(2), CALL.format(1)])


def test_too_many_calls_end_the_reply() -> None:
    row, _ = driven("\n".join(CALL.format(number) for number in range(5)), Guards("hermes", 2, True, True))
    assert (row.reason, row.message) == ("guard", "calls")


def test_a_reply_that_goes_in_circles_is_led_to_its_end() -> None:
    row, _ = driven("I will look at it, yes. " * 12, Guards("hermes", 9, True, True))
    assert (row.reason, row.message) == ("guard", "repeated_tail") and row.valid()
    assert len(row.output) < len(encode("I will look at it, yes. " * 12))


def test_a_call_of_the_previous_turn_ends_the_reply_where_it_began() -> None:
    previous = Guards("hermes", 9, previous=(("f", '{"a": 1}'),))
    row, _ = driven("I will. " + CALL.format(1) + "\n" + CALL.format(2), previous)
    assert (row.reason, row.message) == ("guard", "previous_call")
    assert row._watch is not None and row._watch.before == b"I will. "
    row, _ = driven(CALL.format(2) + "\n" + CALL.format(1), previous)
    assert (row.reason, row.message) == ("guard", "repeated_call") and row.valid()
    assert driven(CALL.format(2), previous)[0].reason is None


def test_a_row_goes_on_behind_what_is_begun() -> None:
    whole = run(engine("llama"), [job(0)])[0]
    tokens = [token.token for token in whole[2]]
    begun = tuple(tokens[:5])
    rest = run(engine("llama"), [job(0, begun=begun)])[0]
    assert [token.token for token in rest[2]] == tokens[5:] and rest[1].valid
    assert rest[0] == whole[0][sum(len(vocabulary().token(token)) for token in begun):]
    assert run(engine("llama"), [job(0, begun=(tokens[0], tokens[0], tokens[0]))])[0][1].reason == "failed"


def test_without_guards_nothing_is_cut() -> None:
    text = "\n".join([CALL.format(1)] * 3)
    row, _ = driven(text, Guards())
    assert row.reason is None
    assert b"".join(vocabulary().token(token) for token in row.output).decode() == text


# ---- hastening


def test_a_hastened_matcher_ends_as_soon_as_it_can() -> None:
    matcher = grammar("tree").matcher(200)
    assert matcher.accept_bytes(b'{"name":"ab')
    need = matcher.need()
    matcher.hasten()
    steps = 0
    while not matcher.is_accepting():
        assert matcher.accept_token(int(matcher.allowed_tokens()[0]))
        steps += 1
    assert steps == need
    matcher.rollback(steps)
    assert matcher.need() == need
    unlimited = load(compile_regex("a{3,9}"), vocabulary=vocabulary()).matcher()
    unlimited.hasten()
    assert unlimited.tokens_left == unlimited.need()


def test_the_model_is_wrapped_for_generation_steps_only() -> None:
    model = DecodingModel(MODELS["llama"](0))
    wrapped = wide.WideModel(model, lambda: None, lambda uid: None)
    tokens, cache = mx.array([PROMPTS[0]]), model.make_cache()
    assert mx.allclose(wrapped(tokens, cache), model.model(tokens, cache=model.make_cache()))
    assert wrapped.args is model.model.args
