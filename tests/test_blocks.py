"""Certified blocks against sequential greedy decoding from its definition, over random grammars and models."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from block_cases import PROMPT, HashModel, gemma3, grammar_of, llama, qwen3_5, random_grammar, sequential, vocabulary  # noqa: E402

from stcc.compiler import compile_json_schema, compile_regex  # noqa: E402
from stcc.runtime import load  # noqa: E402
from stcc.runtime.decode import generate  # noqa: E402
from stcc.runtime.decoding.block_plan import open_path, plan_blocks  # noqa: E402
from stcc.runtime.decoding.blocks import BlockDecoder, BlockOutput  # noqa: E402
from stcc.runtime.decoding.cuts import find_cuts  # noqa: E402
from stcc.runtime.decoding.errors import ContextExceeded, DecodeError, EmptyPromptError, NarrowHeadError  # noqa: E402
from stcc.runtime.decoding.model import DecodingModel  # noqa: E402
from stcc.runtime.decoding.prompt_cache import PromptCache  # noqa: E402
from stcc.runtime.decoding.rows import CacheKindError  # noqa: E402
from stcc.runtime.decoding.spelling import longest_token  # noqa: E402
from stcc.runtime.decoding.trail import Trail  # noqa: E402
from stcc.runtime.errors import BudgetTooSmall, VocabularyRequired  # noqa: E402
from stcc.runtime.grammar import Grammar  # noqa: E402

PERSON = json.dumps({
    "type": "object", "additionalProperties": False, "required": ["name", "age", "inner", "list", "kind"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-d]{0,6}$"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "inner": {"type": "object", "additionalProperties": False, "required": ["x", "kind"],
                  "properties": {"x": {"enum": ["red", "blue"]}, "kind": {"type": "boolean"}}},
        "list": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}, "kind": {"type": "boolean"},
    },
})


def decoded(model: Any, grammar: Grammar, limit: int | None = 80, **options: Any) -> BlockOutput:
    return BlockDecoder(DecodingModel(model), grammar, **options).decode(PROMPT, limit)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 100_000), memory=st.sampled_from([0.0, 0.3, 1.0, 4.0]), trimmable=st.booleans(), slack=st.integers(0, 40),
       rounds=st.integers(0, 4), rows=st.integers(1, 6))
def test_blocks_are_the_sequential_tokens(seed: int, memory: float, trimmable: bool, slack: int, rounds: int, rows: int) -> None:
    grammar = random_grammar(seed % 60)
    limit = grammar.need() + slack  # without slack the budget narrows every choice
    model = HashModel(seed, memory, trimmable)
    expected, choices, _ = sequential(model, grammar, limit)
    output = decoded(model, grammar, limit, rounds=rounds, rows=rows)
    statistics = output.statistics
    assert output.tokens == expected
    assert statistics.sequential_passes == choices
    assert statistics.passes <= choices and statistics.certificates <= rounds  # never more passes than sequential decoding
    assert output.valid and len(output.tokens) <= limit
    assert statistics.chosen + statistics.forced == len(output.tokens)
    assert max((batch for batch, _ in model.passes), default=0) <= rows


@pytest.mark.parametrize("trimmable", [True, False])
def test_independent_fields_take_one_wave_and_one_certificate(trimmable: bool) -> None:
    model = HashModel(1, memory=0.0, trimmable=trimmable)  # scores depend on the last token: the bare keys say all
    _, choices, _ = sequential(model, grammar_of(PERSON), 80)
    model.passes.clear()
    output = decoded(model, grammar_of(PERSON))
    statistics = output.statistics
    assert statistics.certificates == 1 and statistics.accepted == statistics.places > 0
    assert statistics.passes < choices
    assert len(model.passes) == statistics.passes + statistics.prefill_passes  # what is counted is what the model was asked


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1000))
@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_models_with_real_caches(build: Any, seed: int) -> None:
    model, grammar = build(seed), random_grammar(seed % 40) if seed % 2 else grammar_of(PERSON)
    expected, choices, _ = sequential(model, grammar, 60)
    output = decoded(model, grammar, 60)
    assert output.tokens == expected
    assert output.statistics.passes <= choices


@pytest.mark.parametrize("build", [llama, qwen3_5])
def test_waves_and_certificates_run_on_real_caches(build: Any) -> None:
    certificates = rows = 0
    for seed in range(3):
        model = build(seed)
        output = decoded(model, grammar_of(PERSON), 60)
        assert output.tokens == sequential(model, grammar_of(PERSON), 60)[0]
        certificates += output.statistics.certificates
        rows = max(rows, output.statistics.row_steps - output.statistics.wave_steps)
    assert certificates >= 3 and rows > 4


@pytest.mark.parametrize("repeats", [1, 8])  # within the window, and past it, where nothing can be cut from the cache any more
def test_windowed_attention(repeats: int) -> None:
    certificates = 0
    for seed in range(4):
        model, prompt = gemma3(seed), PROMPT * repeats
        expected = generate(model, grammar_of(PERSON), prompt, max_tokens=60).finish()
        output = BlockDecoder(DecodingModel(model), grammar_of(PERSON)).decode(prompt, 60)
        assert output.tokens == expected.tokens and output.statistics.passes <= expected.statistics.passes
        certificates += output.statistics.certificates
    assert certificates >= 4


def test_the_cap_on_rounds_ends_drafting() -> None:
    model = HashModel(3, memory=6.0)  # the whole text decides: drafts are wrong
    expected, choices, _ = sequential(model, grammar_of(PERSON), 80)
    free = decoded(model, grammar_of(PERSON))
    assert free.statistics.certificates > 1
    capped = decoded(model, grammar_of(PERSON), rounds=1)
    none = decoded(model, grammar_of(PERSON), rounds=0)
    assert capped.tokens == none.tokens == free.tokens == expected
    assert (capped.statistics.certificates, none.statistics.certificates) == (1, 0)
    assert none.statistics.passes == none.statistics.row_steps == choices and none.statistics.saved == 0


def test_a_region_longer_than_the_budget_is_cut_to_a_valid_output() -> None:
    grammar = grammar_of(json.dumps({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                                     "required": ["name", "age"], "additionalProperties": False}))
    model = HashModel(5, memory=0.2, closing=-3.0)  # strings that would go on and on
    for limit in range(grammar.need(), grammar.need() + 30, 3):
        output = decoded(model, grammar, limit)
        assert output.tokens == sequential(model, grammar, limit)[0]
        assert output.valid and json.loads(output.text).keys() == {"name", "age"}
    assert output.statistics.narrowed > 0


def test_later_outputs_know_the_length_of_blocks() -> None:
    grammar = grammar_of(PERSON)
    decoder = BlockDecoder(DecodingModel(HashModel(2, memory=0.5)), grammar)
    first = decoder.decode(PROMPT, 80)
    again = decoder.decode(PROMPT, 80)
    assert first.tokens == again.tokens
    assert again.statistics.row_steps <= first.statistics.row_steps


def test_the_prompt_is_read_once() -> None:
    model = DecodingModel(llama(0))
    prompts = PromptCache(model)
    decoder = BlockDecoder(model, grammar_of(PERSON), prompt_cache=prompts)
    first, again = decoder.decode(PROMPT * 5, 60), decoder.decode(PROMPT * 5, 60)
    assert first.tokens == again.tokens == BlockDecoder(model, grammar_of(PERSON)).decode(PROMPT * 5, 60).tokens
    assert (first.statistics.cached_tokens, again.statistics.cached_tokens) == (0, 14)
    assert again.statistics.prefill_passes == 0


def test_texts_without_blocks_decode_sequentially() -> None:
    grammar = load(compile_regex("[a-d]{2}-[0-9]{2}"), vocabulary=vocabulary())
    assert len(plan_blocks(grammar).blocks) == 1
    model = HashModel(0)
    output = decoded(model, grammar)
    assert output.tokens == sequential(model, grammar, 80)[0]
    assert output.statistics.saved == 0


def test_blocks_in_a_text_that_is_not_json() -> None:
    grammar = load(compile_regex("name: [a-d]{1,4}; age: [0-9]{1,3}; kind: (true|false)"), vocabulary=vocabulary())
    plan = plan_blocks(grammar)
    assert len(plan.blocks) == 3
    model = HashModel(4, memory=0.0)
    output = decoded(model, grammar)
    assert output.tokens == sequential(model, grammar, 80)[0]


def test_contexts_are_bare_paths() -> None:
    plan = plan_blocks(grammar_of(PERSON))
    texts = [b"".join(map(vocabulary().token, block.context)) for block in plan.blocks]
    assert len(texts) == 6
    whole = [b'{"name":"', b'{"age":', b'{"inner":{"x":"', b'{"inner":{"kind":', b'{"list":[', b'{"kind":']
    for text, path in zip(texts, whole, strict=True):  # a plan may stop short of the last characters, which may merge with what follows
        assert path.startswith(text) and len(text) >= len(path) - 3
    assert all(block.start[1].site < 0 or block.start[0] >= 0 for block in plan.blocks)


@pytest.mark.parametrize(("text", "path"), [
    (b'{"a":1,"b":{"c":[],"d":"', b'{"b":{"d":"'), (b'[{"a":"x,{\\"","b', b'[{"b'), (b'{"a":{},"k":', b'{"k":'), (b" [1,2,", b"["),
    (b"name: ", None), (b"", None), (b'{"a":{}}', None),
])
def test_open_paths(text: bytes, path: bytes | None) -> None:
    assert open_path(text) == path


def lazily_returned(grammar: Grammar, place: Any, byte: int) -> list[int]:
    """The states with an empty stack that reading ``byte`` returns to before it is read."""
    machine, (state, level), met = grammar.machine, place, []
    while machine.table[state, machine.byte_class[byte]] < 0 and level.site >= 0:
        state, level = int(machine.returns[level.site, machine.exits[state]]), level.below
        met += [state] if level.site < 0 else []
    return met


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 59), data=st.data())
def test_every_output_passes_every_cut_in_order(seed: int, data: st.DataObject) -> None:
    """Random walks through the machine, byte by byte: each cut state is met, in order, by its first visit."""
    grammar = random_grammar(seed)
    stacks, cuts = grammar.stacks, find_cuts(grammar.stacks)
    place = stacks.start()
    met = [place[0]]
    for _ in range(400):
        live = stacks.live_bytes(*place).tolist()
        if not live or (stacks.may_end(*place) and data.draw(st.booleans())):
            break
        closing = [byte for byte in live if chr(byte) in '"]},']
        byte = data.draw(st.sampled_from(closing or live))
        met += lazily_returned(grammar, place, byte)
        after = stacks.step(*place, byte)
        assert after is not None
        place = after
        if place[1].site < 0 and place[0] >= 0:
            met.append(place[0])
            assert cuts.stage[place[0]] >= 1
    if not stacks.may_end(*place):
        return
    first = {state: number for number, state in reversed(list(enumerate(met)))}
    visits = [first[state] for state in cuts.states.tolist()]
    assert visits == sorted(visits)
    for number, state in enumerate(met):  # what was passed by then is what the stage says, on the first visit at least
        if first[state] == number:
            assert cuts.stage[state] <= sum(visit <= number for visit in visits)


def test_no_cut_is_missed() -> None:
    """A state that some output avoids is no cut, one that none avoids is: by removing each state in turn."""
    checked = 0
    for seed in range(12):
        grammar = random_grammar(seed)
        stacks, cuts = grammar.stacks, find_cuts(grammar.stacks)
        if grammar.machine.sites:
            continue
        start = stacks.start()[0]
        edges = {state: {int(cell) for cell in grammar.machine.table[state] if cell >= 0} for state in range(grammar.machine.states)}
        over = {state for state in edges if stacks.eager_exit(state) == 0}  # an output never stands there
        ends = over | set(np.flatnonzero(grammar.machine.accepting).tolist())
        unavoidable = {state for state in _reached(edges, start, None) - over if not ends & _reached(edges, start, state)}
        assert set(cuts.states.tolist()) == unavoidable
        checked += 1
    assert checked > 3


def _reached(edges: dict[int, set[int]], start: int, without: int | None) -> set[int]:
    seen = {start} - {without}
    stack = list(seen)
    while stack:
        for target in edges[stack.pop()] - seen - {without}:
            seen.add(target)
            stack.append(target)
    return seen


def test_scores_that_are_not_finite_stop_the_output() -> None:
    grammar = grammar_of(PERSON)
    whole = decoded(HashModel(1, 0.0), grammar)
    for after in range(1, whole.statistics.passes + 1):  # the first pass reads the prompt
        model = HashModel(1, 0.0)
        model.broken_after = after
        output = decoded(model, grammar)
        assert output.stop_reason == "not_finite" and not output.valid
        assert output.tokens == whole.tokens[:len(output.tokens)]


def test_recursive_grammars_with_a_stack() -> None:
    grammar = grammar_of(RECURSIVE)
    assert grammar.machine.sites
    for seed in range(6):
        model = HashModel(seed, 0.3, trimmable=bool(seed % 2), closing=2.0)
        output = decoded(model, grammar, 60)
        expected, choices, _ = sequential(model, grammar, 60)
        assert output.tokens == expected and output.statistics.passes <= choices


RECURSIVE = json.dumps({"$ref": "#/$defs/node", "$defs": {"node": {
    "type": "object", "additionalProperties": False, "required": ["name", "list", "kind"],
    "properties": {"name": {"enum": ["red", "blue"]}, "list": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                   "kind": {"type": "boolean"}}}}})


def test_cuts_are_places_where_an_output_may_stand() -> None:
    """The state behind the last brace is none where the rule ends there: the output is over."""
    for text in (RECURSIVE, PERSON, '{"type": ["object", "array"], "maxItems": 0, "maxProperties": 0}'):
        stacks = grammar_of(text).stacks
        cuts = find_cuts(stacks)
        assert len(cuts.states) and all(stacks.eager_exit(state) < 0 for state in cuts.states.tolist())
    assert find_cuts(grammar_of(RECURSIVE).stacks).text == b'{"name":"red","list":[],"kind":true}'


def test_a_block_is_not_entered_again() -> None:
    """The keys of the first item lie on every way and on a cycle: what later items write belongs to the last block begun."""
    item = {"type": "object", "additionalProperties": False, "required": ["name", "kind"],
            "properties": {"name": {"enum": ["red", "blue"]}, "kind": {"type": "boolean"}}}
    grammar = grammar_of(json.dumps({"type": "object", "additionalProperties": False, "required": ["list", "age"], "properties": {
        "list": {"type": "array", "items": item, "minItems": 1}, "age": {"type": "boolean"}}}))
    plan = plan_blocks(grammar)
    text = b'{"list":[{"name":"red","kind":true},{"name":"blue","kind":false},{"name":"red","kind":true}],"age":true}'
    trail = Trail(grammar.matcher(canonical=True), None, plan, vocabulary(), [])
    seen = [trail.block]
    while trail.stop_reason is None:
        rest = text[sum(len(vocabulary().token(token)) for token in trail.tokens):]
        allowed = set(trail.matcher.allowed_tokens().tolist())
        assert trail.choose(longest_token(vocabulary(), rest, allowed.__contains__) or 0)
        seen.append(trail.block)
    assert seen == sorted(seen) and seen[-1] == len(plan.blocks) - 1
    assert sum(map(len, trail.choices.values())) == trail.chosen == len(seen) - 1


def test_bad_arguments_are_typed() -> None:
    grammar, model = grammar_of(PERSON), DecodingModel(HashModel(0))
    with pytest.raises(EmptyPromptError):
        BlockDecoder(model, grammar).decode([])
    with pytest.raises(BudgetTooSmall):
        BlockDecoder(model, grammar).decode(PROMPT, grammar.need() - 1)
    with pytest.raises(ContextExceeded):
        BlockDecoder(DecodingModel(HashModel(0), context_length=10), grammar).decode(PROMPT)
    with pytest.raises(NarrowHeadError):
        BlockDecoder(DecodingModel(HashModel(0, width=vocabulary().size - 1)), grammar).decode(PROMPT)
    with pytest.raises(VocabularyRequired):
        BlockDecoder(model, load(compile_json_schema(PERSON)))
    for rounds, rows in ((-1, 1), (1, 0)):
        with pytest.raises(DecodeError, match="out of range"):
            BlockDecoder(model, grammar, rounds=rounds, rows=rows)


def test_caches_that_cannot_be_batched_are_refused() -> None:
    class Opaque:
        def make_cache(self) -> list[Any]:
            return [object()]

    with pytest.raises(CacheKindError, match="object"):
        BlockDecoder(DecodingModel(Opaque()), grammar_of(PERSON))
    BlockDecoder(DecodingModel(Opaque()), grammar_of(PERSON), rounds=0)  # a single stream needs no batch


def test_a_context_as_long_as_the_output_is_enough() -> None:
    grammar, model = grammar_of(PERSON), HashModel(9, 0.3)
    length = len(PROMPT) + grammar.need() + 2
    output = BlockDecoder(DecodingModel(model, context_length=length), grammar).decode(PROMPT)
    assert output.valid and len(PROMPT) + len(output.tokens) <= length
    assert output.tokens == sequential(model, grammar, grammar.need() + 2)[0]
