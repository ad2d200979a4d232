"""The logits processor in mlx-lm's own loops, against our host loop, on tiny random llamas."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from decoding_cases import MODELS  # noqa: E402
from metal_shim import shim  # noqa: E402
from mlx_lm.generate import BatchGenerator, generate_step, stream_generate  # noqa: E402
from tokenizer_cases import TRAINED  # noqa: E402

from stcc.compiler import compile_json_schema, compile_regex, vocabulary_from_tokenizer  # noqa: E402
from stcc.formats import Vocabulary, VocabularyMismatch  # noqa: E402
from stcc.runtime import Grammar, load  # noqa: E402
from stcc.runtime.decode import NarrowHeadError, generate  # noqa: E402
from stcc.runtime.device import processor as module  # noqa: E402
from stcc.runtime.device.processor import CanonicalPlans, GrammarProcessor, Outcome, ProcessorError, canonical_plans  # noqa: E402
from stcc.runtime.device.tables import DeviceTables, build_tables  # noqa: E402

PROMPT = [5, 6, 7, 8]
PADDING = 9  # columns of the model's head beyond the vocabulary
TIE = 1e-3  # float32 logits of one row and of a batch differ by less
STEPS = 48
NAME = {"type": "string", "pattern": "^[a-z]{1,6}$"}
RECORD = {"type": "object", "properties": {"name": NAME, "kind": {"type": "boolean"}}, "required": ["name", "kind"],
          "additionalProperties": False}
TREE = {"type": "object", "properties": {"name": NAME, "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
        "required": ["name", "children"], "additionalProperties": False}
SOURCES: dict[str, Any] = {
    "record": RECORD, "tree": TREE, "names": {"type": "array", "items": NAME, "minItems": 1, "maxItems": 2},
    "choice": {"enum": ["red", "green", 12, None]}, "number": {"type": "integer", "minimum": 100, "maximum": 4999},
    "words": "(the |quick )+fox", "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}", "call": r"call_[a-f0-9]{3}\(\)",
}
NAMES = list(SOURCES)


@cache
def vocabulary() -> Vocabulary:
    return vocabulary_from_tokenizer(TRAINED["byte-level"], stop_tokens=["<|im_end|>"])


@cache
def grammars() -> list[Grammar]:
    return [load(compile_regex(source) if isinstance(source, str) else compile_json_schema(source), vocabulary=vocabulary())
            for source in SOURCES.values()]


def parts() -> list[Any]:
    return [(grammar.machine, grammar.binding) for grammar in grammars()]


@cache
def tables() -> DeviceTables:
    return build_tables(parts(), vocabulary())


@cache
def plans() -> CanonicalPlans:
    return canonical_plans(parts(), vocabulary())


@cache
def tokenizer() -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=TRAINED["byte-level"], eos_token="<|im_end|>")


@cache
def llama(seed: int, width: int | None = None) -> Any:
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
                            num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=width or vocabulary().size + PADDING))
    head = model.model.embed_tokens
    head.weight = head.weight * 20  # random heads are nearly flat; scale them away from ties
    mx.eval(model.parameters())
    return model


def is_valid(name: str, text: bytes) -> bool:
    """Judged by Python's own ``re`` and ``json``."""
    source = SOURCES[name]
    if isinstance(source, str):
        return re.fullmatch(source, text.decode()) is not None
    value = json.loads(text)
    if json.dumps(value, separators=(",", ":")).encode() != text:
        return False
    checks: dict[str, Callable[[], bool]] = {
        "record": lambda: list(value) == ["name", "kind"] and is_name(value["name"]) and isinstance(value["kind"], bool),
        "tree": lambda: is_tree(value), "names": lambda: 1 <= len(value) <= 2 and all(map(is_name, value)),
        "choice": lambda: value in source["enum"], "number": lambda: type(value) is int and 100 <= value <= 4999,
    }
    return checks[name]()


def is_name(value: Any) -> bool:
    return re.fullmatch("[a-z]{1,6}", value) is not None


def is_tree(value: Any) -> bool:
    return (list(value) == ["name", "children"] and is_name(value["name"]) and len(value["children"]) <= 1
            and all(map(is_tree, value["children"])))


def spelled(tokens: Sequence[int]) -> bytes:
    return b"".join(map(vocabulary().token, tokens))


def one_run(processor: GrammarProcessor, model: Any, prompt: Sequence[int] = PROMPT, steps: int = STEPS) -> tuple[list[int], list[Any]]:
    """``generate_step`` up to the first stop token: the tokens before it, and the log-probabilities of every step."""
    tokens, scores = [], []
    for token, found in generate_step(mx.array(list(prompt)), model, max_tokens=steps, logits_processors=[processor]):
        scores.append(found)
        if token in vocabulary().stop_token_ids:
            break
        tokens.append(int(token))
    return tokens, scores


def host_run(number: int, model: Any, forcing: Any) -> tuple[list[int], bool]:
    """Tokens of our host loop under the same limit, and whether the output was complete by then."""
    tokens: list[int] = []
    generation = generate(model, grammars()[number], PROMPT, forcing=forcing)
    for span in generation:
        tokens += span.tokens
        if len(tokens) >= STEPS:
            return tokens[:STEPS], False
    assert generation.stop_reason in ("stop", "complete")
    return tokens, True


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_generate_step_emits_the_planof_the_host_loop(seed: int, canonical: bool) -> None:
    complete = 0
    for number, name in enumerate(NAMES):
        processor = GrammarProcessor(tables(), number, plans=plans() if canonical else None)
        tokens, _ = one_run(processor, llama(seed))
        expected, whole = host_run(number, llama(seed), "step" if canonical else "off")
        assert tokens == expected, name
        outcome = processor.outcome()
        assert outcome.valid == (grammars()[number].matcher().accept_bytes(spelled(tokens)) and is_whole(number, tokens))
        if whole:
            complete += 1
            assert outcome == Outcome("stop", True) and is_valid(name, spelled(tokens))
    assert complete >= 6


def is_whole(number: int, tokens: Sequence[int]) -> bool:
    matcher = grammars()[number].matcher()
    return all(map(matcher.accept_token, tokens)) and matcher.is_accepting()


def test_canonical_planare_the_tokenizers() -> None:
    """With plans, what a grammar forces is spelled as the tokenizer would, whatever the model prefers."""
    number = NAMES.index("record")
    free, canonical = GrammarProcessor(tables(), number), GrammarProcessor(tables(), number, plans=plans())
    brace = next(token for token in range(vocabulary().size) if vocabulary().token(token) == b"{")
    logits = mx.zeros((1, vocabulary().size)).at[0, brace].add(9.0)
    context = mx.array(PROMPT)
    assert int(mx.argmax(free(context, logits)).item()) == brace
    first = grammars()[number].matcher(canonical=True).forced_tokens()[0]
    assert len(vocabulary().token(first)) > 1
    allowed = np.array(canonical(context, logits))[0] > -np.inf
    assert np.flatnonzero(allowed).tolist() == [first]


def random_plans(grammar: Grammar, rng: np.random.Generator, planned: bool) -> Grammar:
    """The grammar with made-up covers and plans: stretches of random outputs, some of which go wrong."""
    found: dict[int, list[int]] = {}
    for _ in range(60 if planned else 0):
        matcher, states, tokens = grammar.matcher(), list[int](), list[int]()
        while not matcher.is_accepting():
            states.append(matcher.state)
            tokens.append(int(rng.choice(matcher.allowed_tokens())))
            assert matcher.accept_token(tokens[-1])
        for place, state in enumerate(states):
            if rng.random() < 0.3:
                found[state] = tokens[place:place + rng.integers(1, 4)]
                if rng.random() < 0.3:
                    found[state].insert(int(rng.integers(len(found[state]))), int(rng.integers(vocabulary().size)))
    rows = [found.get(state, []) for state in range(grammar.machine.states)]
    cover = rng.integers(0, 4, grammar.machine.states).astype(np.uint8)
    offsets, plan = np.cumsum([0, *map(len, rows)]).astype(np.int32), np.array(sum(rows, []), np.int32)
    binding = dataclasses.replace(grammar.binding, plan_offsets=offsets, plan_tokens=plan, cover=cover)
    return Grammar(grammar.machine, binding, vocabulary())


def test_any_plans_and_covers_are_followed_as_the_host_does() -> None:
    rng, forced = np.random.default_rng(8), 0
    for round_ in range(4):
        made = [random_plans(grammar, rng, name in ("record", "choice", "date", "call"))  # the others have cycles, plans without an end
                for name, grammar in zip(NAMES, grammars(), strict=True)]
        own = [(grammar.machine, grammar.binding) for grammar in made]
        found, enforced = build_tables(own, vocabulary()), canonical_plans(own, vocabulary())
        for number, grammar in enumerate(made):
            tokens, _ = one_run(GrammarProcessor(found, number, plans=enforced), llama(round_ % 2))
            generation, expected = generate(llama(round_ % 2), grammar, PROMPT, forcing="step"), list[int]()
            for span in generation:
                expected += span.tokens
                if len(expected) >= STEPS:
                    break
            assert tokens == expected[:STEPS], NAMES[number]
            forced += generation.statistics.forced
        number, digits = NAMES.index("number"), TRAINED["byte-level"].encode("1234", add_special_tokens=False).ids
        matcher = made[number].matcher(canonical=True)  # where the output may end and may go on
        assert all(map(matcher.accept_token, digits)) and matcher.is_accepting() and len(matcher.allowed_tokens()) > 1
        ending = GrammarProcessor(found, number, prompt_length=len(PROMPT), plans=enforced)
        limited = call(ending, digits, mx.zeros((1, vocabulary().size)))
        assert np.flatnonzero(limited > -np.inf).tolist() == matcher.allowed_tokens().tolist()
    assert forced > 50


@pytest.mark.parametrize("name", ["record", "words"])
def test_stream_generate_streams_valid_text(name: str) -> None:
    number = NAMES.index(name)
    processor = GrammarProcessor(tables(), number, plans=plans())
    responses = list(stream_generate(llama(0), tokenizer(), PROMPT, max_tokens=STEPS, logits_processors=[processor]))
    text = "".join(response.text for response in responses)
    assert text.encode() == spelled(host_run(number, llama(0), "step")[0])
    if responses[-1].finish_reason == "stop":
        assert is_valid(name, text.encode()) and processor.outcome() == Outcome("stop", True)
    else:
        assert processor.outcome().reason == "open"


def test_speculative_decoding_takes_planback() -> None:
    """A draft model of other weights: rejected tokens rewind the state, and the text is that of the model alone."""
    for number in (0, 1, 2):
        processor = GrammarProcessor(tables(), number)
        responses = list(stream_generate(llama(0), tokenizer(), PROMPT, max_tokens=STEPS, draft_model=llama(1), num_draft_tokens=3,
                                         logits_processors=[processor]))
        assert any(response.from_draft for response in responses) and not all(response.from_draft for response in responses)
        alone = list(stream_generate(llama(0), tokenizer(), PROMPT, max_tokens=STEPS,
                                     logits_processors=[GrammarProcessor(tables(), number)]))
        assert [response.token for response in responses] == [response.token for response in alone]


def equal_up_to_a_tie(batched: Sequence[int], single: Sequence[int], scores: Sequence[Any]) -> bool:
    """Whether the runs agree; after a step where the single run's two best are tied they may go different ways."""
    for place, (one, other) in enumerate(zip(batched, single, strict=False)):
        if one != other:
            return bool(abs(scores[place][one] - scores[place][other]) < TIE)
    return len(batched) == len(single)


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_eight_rows_of_eight_grammars_join_and_leave(kind: str) -> None:
    model, stop = llama(2) if kind == "llama" else MODELS[kind](2), list(vocabulary().stop_token_ids)
    prompts = [PROMPT[:1 + number % 4] + [20 + number] for number in range(8)]
    processors = [GrammarProcessor(tables(), number, plans=plans() if number % 2 else None) for number in range(8)]
    batch = BatchGenerator(model, max_tokens=STEPS, stop_tokens=[[token] for token in stop], completion_batch_size=8, prefill_batch_size=3)
    row_of: dict[int, int] = {}
    found: list[list[int]] = [[] for _ in range(8)]
    together, waiting, left = set(), list(range(8)), 0
    while left < 8:
        for number in waiting[:2]:  # two rows join at every round, while others go on
            uid, = batch.insert([prompts[number]], logits_processors=[[processors[number]]])
            row_of[uid] = number
            waiting.remove(number)
        responses = batch.next_generated()
        together.add(len(responses))
        for response in responses:
            left += response.finish_reason is not None
            if response.token not in stop:
                found[row_of[response.uid]].append(int(response.token))
    batch.close()
    assert max(together) >= 5 and len(together) > 3
    same = 0
    for number, name in enumerate(NAMES):
        single, scores = one_run(GrammarProcessor(tables(), number, plans=plans() if number % 2 else None), model, prompts[number])
        assert equal_up_to_a_tie(found[number], single, scores), name
        same += found[number] == single
        assert processors[number].outcome().valid == is_whole(number, found[number])
        if processors[number].outcome().reason == "stop":
            assert is_valid(name, spelled(found[number]))
    assert same >= 6


class Recorded(Exception):  # noqa: N818 - not an error
    """The operations of a loop were recorded; compiling them would take long and prove no more."""


def traced(processor: Callable[[Any, Any], Any], rows: Any, run: bool = True) -> Any:
    """A greedy loop of which MLX records the operations with no values behind them: reading one is an error, whatever way it is read."""
    def loop(context: Any, scores: Any) -> Any:
        for place in range(rows.shape[0]):
            context = mx.concatenate([context, mx.argmax(processor(context, scores[place:place + 1]), axis=-1)])
        if not run:
            raise Recorded
        return context

    return mx.compile(loop)(mx.array(PROMPT), rows)[len(PROMPT):]


def random_rows(steps: int) -> Any:
    return mx.array(np.random.default_rng(3).normal(size=(steps, vocabulary().size + PADDING)).astype(np.float32))


@pytest.mark.parametrize("canonical", [False, True])
def test_no_call_reads_a_device_value(canonical: bool) -> None:
    for number in range(8):
        with pytest.raises(Recorded):
            traced(GrammarProcessor(tables(), number, plans=plans() if canonical else None), random_rows(14), run=False)


def test_what_was_recorded_computes_the_same() -> None:
    number, rows = NAMES.index("tree"), random_rows(5)
    tokens = traced(GrammarProcessor(tables(), number, plans=plans()), rows)
    context, eager = mx.array(PROMPT), GrammarProcessor(tables(), number, plans=plans())
    for row in rows:
        context = mx.concatenate([context, mx.argmax(eager(context, row[None]), axis=-1)])
    assert tokens.tolist() == context[len(PROMPT):].tolist()
    assert all(map(grammars()[number].matcher().accept_token, tokens.tolist()))


@pytest.mark.parametrize("read", [lambda array: array.item(), lambda array: array.tolist(), np.array, mx.eval, bool, int])
def test_the_proof_would_notice_a_read(read: Callable[[Any], Any]) -> None:
    processor = GrammarProcessor(tables(), 0)

    def reading(tokens: Any, logits: Any) -> Any:
        read(mx.max(processor(tokens, logits), axis=-1))
        return logits

    with pytest.raises((ValueError, RuntimeError), match="eval"):
        traced(reading, mx.zeros((2, vocabulary().size)))


class ReadError(Exception):
    """Something read a device value in a call of the processor."""


def test_a_call_in_the_loop_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In mlx-lm's own loop, with every way to a value shut while the processor runs."""
    processor, calls = GrammarProcessor(tables(), 0, plans=plans()), 0

    def refuse(*_: Any, **__: Any) -> Any:
        raise ReadError

    def guarded(tokens: Any, logits: Any) -> Any:
        nonlocal calls
        calls += 1
        with monkeypatch.context() as shut:
            for name in ("item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__array__", "__iter__"):
                if hasattr(mx.array, name):
                    shut.setattr(mx.array, name, refuse)
            for name in ("eval", "async_eval", "synchronize"):
                shut.setattr(mx, name, refuse)
            with pytest.raises(ReadError):
                tokens.item()
            return processor(tokens, logits)

    tokens = [token for token, _ in generate_step(mx.array(PROMPT), llama(0), max_tokens=STEPS, logits_processors=[guarded])]
    stop = vocabulary().stop_token_ids[0]
    if stop in tokens:
        tokens = tokens[:tokens.index(stop)]
    assert tokens == host_run(0, llama(0), "step")[0] and calls > 10


def call(processor: GrammarProcessor, tokens: Sequence[int], logits: Any) -> np.ndarray:
    return np.array(processor(mx.array([*PROMPT, *tokens]), logits))[0]


def test_padding_is_never_chosen_and_types_are_kept() -> None:
    for kind in (mx.float32, mx.float16, mx.bfloat16):
        logits = mx.zeros((1, vocabulary().size + PADDING), dtype=kind)
        limited = GrammarProcessor(tables())(mx.array(PROMPT), logits)
        assert limited.dtype == kind and limited.shape == logits.shape
        allowed = np.array(limited.astype(mx.float32))[0] > -np.inf
        assert np.flatnonzero(allowed).tolist() == grammars()[0].matcher().allowed_tokens().tolist()


def test_after_the_end_only_stop_tokens() -> None:
    number, stops = NAMES.index("choice"), list(vocabulary().stop_token_ids)
    processor = GrammarProcessor(tables(), number)
    tokens = TRAINED["byte-level"].encode('"red"', add_special_tokens=False).ids
    logits = mx.zeros((1, vocabulary().size))
    for length in range(len(tokens) + 1):
        limited = call(processor, tokens[:length], logits)
    assert processor.outcome() == Outcome("complete", True)
    for _ in range(3):
        assert np.flatnonzero(limited > -np.inf).tolist() == stops
        tokens.append(stops[0])
        limited = call(processor, tokens, logits)
        assert processor.outcome() == Outcome("stop", True)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_scores_that_are_not_finite_end_the_output_with_a_reason(bad: float) -> None:
    processor, size = GrammarProcessor(tables()), vocabulary().size
    sound, brace = mx.zeros((1, size)), grammars()[0].matcher().allowed_tokens().tolist()[0]
    assert (call(processor, [], sound) == 0).any()
    for tokens in ([brace], [brace, vocabulary().stop_token_ids[0]]):  # once wrong it stays wrong
        limited = call(processor, tokens, mx.full((1, size), bad) if len(tokens) == 1 else sound)
        assert np.flatnonzero(limited == 0).tolist() == list(vocabulary().stop_token_ids)
        assert np.isneginf(limited).sum() == size - len(vocabulary().stop_token_ids)
        assert processor.outcome() == Outcome("not_finite", False)


def test_one_nan_is_enough() -> None:
    processor = GrammarProcessor(tables())
    stop = vocabulary().stop_token_ids[0]
    limited = call(processor, [], mx.zeros((1, vocabulary().size + PADDING)).at[0, stop].add(float("nan")))
    assert np.isfinite(limited).sum() == len(vocabulary().stop_token_ids) and processor.outcome().reason == "not_finite"


def small(texts: Sequence[bytes], source: str | dict[str, Any]) -> tuple[Grammar, DeviceTables]:
    """A grammar over a vocabulary of ``texts`` and a stop token."""
    found = Vocabulary.from_tokens([*texts, b""], [len(texts)])
    artifact = compile_regex(source) if isinstance(source, str) else compile_json_schema(source)
    grammar = load(artifact, vocabulary=found)
    return grammar, build_tables([(grammar.machine, grammar.binding)], found)


def test_a_text_that_no_token_spells_is_a_dead_end() -> None:
    _, found = small([b"a", b"b"], "abc")
    processor = GrammarProcessor(found)
    for length in range(3):
        limited = call(processor, [0, 1][:length], mx.zeros((1, 3)))
    assert processor.outcome() == Outcome("dead_end", False) and np.flatnonzero(limited == 0).tolist() == [2]


def test_nesting_past_the_stack_stops_with_a_reason() -> None:
    """A vocabulary that can only nest deeper."""
    texts = [b"[", b"]"]
    grammar, found = small(texts, {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"const": 0}]}, "minItems": 1})
    processor, tokens = GrammarProcessor(found), list[int]()
    while len(tokens) < 100:
        limited = call(processor, tokens, mx.array([[2.0, 1.0, 0.0]]))
        token = int(limited.argmax())
        if token == len(texts):
            break
        tokens.append(token)
    assert processor.outcome() == Outcome("nesting", False)
    matcher = grammar.matcher()
    assert all(map(matcher.accept_token, tokens)) and len(matcher.stack) == 64


def test_an_output_that_was_begun_goes_on() -> None:
    begun = TRAINED["byte-level"].encode('{"name":"ab', add_special_tokens=False).ids
    processor, matcher = GrammarProcessor(tables(), prompt_length=len(PROMPT)), grammars()[0].matcher()
    assert all(map(matcher.accept_token, begun))
    limited = call(processor, begun, mx.zeros((1, vocabulary().size)))
    assert np.flatnonzero(limited > -np.inf).tolist() == matcher.allowed_tokens().tolist()


def test_planare_taken_back() -> None:
    begun = TRAINED["byte-level"].encode('{"name":"ab', add_special_tokens=False).ids
    processor, logits = GrammarProcessor(tables()), mx.zeros((1, vocabulary().size))
    seen = [call(processor, begun[:length], logits) for length in range(len(begun) + 1)]
    for length in (len(begun), 3, 4, 1, 0, 1, 2):
        assert (call(processor, begun[:length], logits) == seen[length]).all()
    other = [token for token in grammars()[0].matcher().allowed_tokens().tolist() if token != begun[0]][:1]
    fresh = GrammarProcessor(tables(), prompt_length=len(PROMPT))
    call(processor, begun[:1], logits)
    assert (call(processor, other, logits) == call(fresh, other, logits)).all()  # another token in the same place
    call(processor, [], mx.full(logits.shape, float("nan")))
    assert (call(processor, [], logits) == seen[0]).all()  # another model's logits at the same place


def test_misuse_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    size = vocabulary().size
    for options, message in (({"grammar": 8}, "hold 8"), ({"grammar": -1}, "no grammar"), ({"prompt_length": -1}, "-1 tokens")):
        with pytest.raises(ProcessorError, match=message):
            GrammarProcessor(tables(), **options)
    with pytest.raises(NarrowHeadError, match=f"{size - 1} tokens and the vocabulary has {size}"):
        GrammarProcessor(tables())(mx.array(PROMPT), mx.zeros((1, size - 1)))
    with pytest.raises(NarrowHeadError):
        one_run(GrammarProcessor(tables()), llama(0, width=size - 1))
    with pytest.raises(ProcessorError, match="one output"):
        GrammarProcessor(tables())(mx.array(PROMPT), mx.zeros((2, size)))
    with pytest.raises(ProcessorError, match="other grammars"):
        GrammarProcessor(tables(), plans=canonical_plans(parts()[:2], vocabulary()))
    other = Vocabulary.from_tokens([b"a", b""], [1])
    for build in (build_tables, canonical_plans):
        with pytest.raises(VocabularyMismatch):
            build(parts(), other)
    grammar, _ = small([b"a"], "a")
    endless = Vocabulary.from_tokens([b"a"], [])
    grammar = load(compile_regex("a"), vocabulary=endless)
    with pytest.raises(ProcessorError, match="no stop token"):
        GrammarProcessor(build_tables([(grammar.machine, grammar.binding)], endless))
    used = GrammarProcessor(tables())
    call(used, [], mx.zeros((1, size)))
    with pytest.raises(ProcessorError, match="each output"):
        used(mx.array(PROMPT[:2]), mx.zeros((1, size)))
    monkeypatch.setattr(module, "REWIND", 3)
    short = GrammarProcessor(tables())
    for length in range(6):
        call(short, [1] * length, mx.zeros((1, size)))
    with pytest.raises(ProcessorError, match="taken back"):
        call(short, [1] * 2, mx.zeros((1, size)))


@pytest.mark.skipif(shim.COMPILER is None, reason="the kernel's text is compiled with g++, which is missing")
def test_the_kernel_makes_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = TRAINED["byte-level"].encode('{"name":"ab', add_special_tokens=False).ids
    logits = mx.zeros((1, vocabulary().size + PADDING))
    plain = GrammarProcessor(tables())
    if not mx.metal.is_available():
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(mx.fast, "metal_kernel", shim.metal_kernel)
    kernel = GrammarProcessor(build_tables(parts(), vocabulary()))
    for length in range(len(begun) + 1):
        assert (call(plain, begun[:length], logits) == call(kernel, begun[:length], logits)).all()
