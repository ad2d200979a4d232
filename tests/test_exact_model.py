"""A language model as the policy: scores against plain forward passes, stored tables, and draws repeated from them bit for bit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

from decoding_cases import CONTEXT, MODELS, encode, vocabulary  # noqa: E402
from exact_cases import environment_of, fit  # noqa: E402

from stcc.compiler import compile_regex  # noqa: E402
from stcc.runtime import load  # noqa: E402
from stcc.runtime.decoding.errors import EmptyPromptError, NarrowHeadError  # noqa: E402
from stcc.runtime.decoding.rows import CacheKindError  # noqa: E402
from stcc.runtime.errors import ConstraintError  # noqa: E402
from stcc.runtime.exact import model_policy  # noqa: E402
from stcc.runtime.exact.accounting import Accounting  # noqa: E402
from stcc.runtime.exact.enumeration import normalized, proposal_law, total_variation, valid_law  # noqa: E402
from stcc.runtime.exact.histories import HistoryWalk, PolicyError  # noqa: E402
from stcc.runtime.exact.model_policy import ModelPolicy, TooManyHistoriesError, live_histories  # noqa: E402
from stcc.runtime.exact.policies import UnscoredHistoryError  # noqa: E402
from stcc.runtime.exact.score_table import ScoreTableError, load_scores, save_scores  # noqa: E402
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank  # noqa: E402
from stcc.runtime.exact.text import TextCars  # noqa: E402
from stcc.runtime.exact.token_models import ModelTokens, ScoresError  # noqa: E402
from stcc.runtime.exact.transcript import LabelError, Transcript  # noqa: E402
from stcc.runtime.models import LoadedModel, model_vocabulary  # noqa: E402

PROMPT = encode("work on it:")
ROUNDING = 2e-4  # of log-probabilities: a pass of another shape sums in another order


def transcript_of(name: str = "refund", **options: Any) -> Transcript:
    return Transcript.of(environment_of(name).graph, encode, PROMPT, **options)


def plain(model: Any, transcript: Transcript, history: Any) -> np.ndarray:
    """Log-probability of each label: one forward pass a label, from the start, without a cache."""
    context, sums = transcript.context(history), []
    for label in transcript.labels:
        logits = np.array(model(mx.array([[*context, *label[:-1]]]))[0], np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        scores = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        sums.append(sum(scores[len(context) - 1 + place, token] for place, token in enumerate(label)))
    return np.array(sums)


HISTORIES: list[Any] = [(), ((0, 0),), ((1, 1),), ((1, 2),), ((3, 0), (1, 1)), ((0, 0), (3, 0), (1, 1), (2, 0)), ((3, 0), (3, 0), (0, 0))]


@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_whole_labels(kind: str, rows: int) -> None:
    model, transcript = MODELS[kind](3), transcript_of()
    assert max(map(len, transcript.labels)) > 2, "labels of several tokens"
    for temperature in (1.0, 4.0):
        policy = ModelPolicy(model, transcript, temperature=temperature, rows=rows)
        assert policy.score(HISTORIES) == len(HISTORIES) and policy.score(HISTORIES) == 0
        for history in HISTORIES:
            logits = plain(model, transcript, history) / temperature
            expected = np.exp(logits - logits.max())
            assert np.abs(np.log(policy(history)) - np.log(expected / expected.sum())).max() < ROUNDING
            assert abs(policy(history).sum() - 1) < 1e-12 and policy(history).dtype == np.float64


def test_caches_that_make_no_batch_are_fed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batched = ModelPolicy(MODELS["llama"](3), transcript_of())
    batched.score(HISTORIES)

    def refuse(model: Any) -> None:
        raise CacheKindError("OddCache", "merged into a batch")

    monkeypatch.setattr(model_policy, "require_batches", refuse)
    single = ModelPolicy(MODELS["llama"](3), transcript_of())
    single.score(HISTORIES)
    assert single.cost.passes > batched.cost.passes
    for history in HISTORIES:
        assert np.abs(np.log(single(history)) - np.log(batched(history))).max() < ROUNDING


@pytest.mark.parametrize("most_bytes", [0, 100_000])
@pytest.mark.parametrize("kind", MODELS)
def test_without_room_for_prompts_they_are_read_again(kind: str, most_bytes: int) -> None:
    model, transcript = MODELS[kind](3), transcript_of()
    policy = ModelPolicy(model, transcript, rows=6, most_bytes=most_bytes)
    policy.score(HISTORIES)
    for history in HISTORIES:
        logits = plain(model, transcript, history)
        assert np.abs(np.log(policy(history)) - (logits - np.log(np.exp(logits).sum()))).max() < ROUNDING
    tokens = ModelTokens(model, PROMPT, vocabulary().size, most_bytes=most_bytes)
    once = ModelTokens(model, PROMPT, vocabulary().size).after((5, 6), (), 1)
    for taken in ((1, 2, 3), (5, 6), (1, 2), (5, 6)):
        found = tokens.after(taken, (), 1)
    assert np.abs(found - once).max() < ROUNDING


def test_several_histories_share_a_pass_and_longer_ones_read_their_last_step_only() -> None:
    transcript = transcript_of()
    policy = ModelPolicy(MODELS["llama"](3), transcript, rows=1000)
    policy.score(HISTORIES[:4])
    assert policy.cost.passes == 2, "the prompt, and all labels of all four"
    before, rows = policy.cost.tokens, len(policy._beginnings.rows)
    policy(((1, 1), (3, 0)))
    longest, whole = max(map(len, transcript.labels)), len(transcript.context(((1, 1), (3, 0))))
    read = 1 + max(map(len, transcript.notes)) + longest  # of the last step, at most
    assert policy.cost.passes == 3
    assert policy.cost.tokens - before <= rows * (read + longest) < rows * whole
    assert policy(((1, 1), (3, 0))) is policy(((1, 1), (3, 0))) and policy.cost.passes == 3


def test_labels_with_a_common_beginning_are_told_apart_by_their_end() -> None:
    """``a`` begins ``ab``: without an end its chance would hold the other's; with it, the events are disjoint and fit a free spelling."""
    graph = environment_of("refund").graph
    names = dict(zip(graph.actions, ("a", "ab", "abc", "b", "c"), strict=True))
    written = Transcript.of(graph, lambda text: [ord(letter) for letter in text], [1], labels=names)
    assert [len(label) for label in written.labels] == [2, 3, 4, 2, 2]
    with pytest.raises(LabelError, match="begin"):
        Transcript((1,), ((5,), (5, 6)), ((),))
    policy = ModelPolicy(MODELS["llama"](1), written)
    total = np.exp(plain(MODELS["llama"](1), written, ())).sum()
    assert 0 < total < 1, "disjoint events of one distribution"
    assert abs(policy(()).sum() - 1) < 1e-12


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6))
def test_transcripts_take_prefix_free_labels_and_no_others(labels: list[tuple[int, ...]]) -> None:
    overlap = any(one == other[:len(one)] for place, one in enumerate(labels) for number, other in enumerate(labels) if place != number)
    if overlap:
        with pytest.raises(LabelError):
            Transcript((0,), tuple(labels), ())
        return
    Transcript((0,), tuple(labels), ())
    rows = model_policy._Beginnings(labels)
    for label, places in zip(labels, rows.places, strict=True):
        assert [rows.rows[row][:read] for row, read in places] == [label[:size] for size in range(len(label))]
    assert not any(one == other[:len(one)] for one in rows.rows for other in rows.rows if one is not other)


def test_faults_of_transcripts_and_policies() -> None:
    graph = environment_of("refund").graph
    for options in ({"labels": {"NOPE": "x"}}, {"end": ""}, {"end": "U"}, {"labels": {"AUTH": "STOP"}}):
        with pytest.raises(LabelError):
            Transcript.of(graph, encode, PROMPT, **options)
    with pytest.raises(LabelError):
        Transcript.of(graph, encode, [])
    for bad in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConstraintError, match="temperature"):
            ModelPolicy(MODELS["llama"](3), transcript_of(), temperature=bad)
    with pytest.raises(ConstraintError, match="rows"):
        ModelPolicy(MODELS["llama"](3), transcript_of(), rows=0)
    long = Transcript.of(graph, encode, encode("word " * CONTEXT))
    with pytest.raises(PolicyError, match="context"):
        ModelPolicy(MODELS["llama"](3), long)(())
    with pytest.raises(TooManyHistoriesError):
        list(live_histories(environment_of("refund"), most=5))

    class Broken:
        layers: tuple[Any, ...] = ()

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            return mx.full((*tokens.shape, 512), float("nan"))

    with pytest.raises(PolicyError, match="no label a chance"):
        ModelPolicy(Broken(), transcript_of())(())


# -- sampling, and replaying -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored() -> ModelPolicy:
    policy = ModelPolicy(MODELS["llama"](3), transcript_of(), temperature=8.0)
    policy.score(live_histories(environment_of("refund")))
    return policy


def draws(policy: Any, count: int = 200, **options: Any) -> tuple[list[Any], StatefulCars]:
    environment = environment_of("refund")
    sampler = StatefulCars(environment, HistoryWalk(policy, environment.actions, Accounting()), **options)
    return sampler.draw(count, np.random.default_rng(7)), sampler


def test_the_live_histories_are_all_that_the_compiled_bank_asks_for(scored: ModelPolicy) -> None:
    environment, count = environment_of("refund"), len(scored.table)
    passes = scored.cost.passes
    samples, sampler = draws(scored, 300, bank=compiled_bank(environment), update="none")
    assert len(scored.table) == count == 133 and scored.cost.passes == passes < count
    target = normalized(valid_law(environment, HistoryWalk(scored, environment.actions, Accounting())))
    assert total_variation(normalized(proposal_law(sampler.proposal)), target) < 1e-13
    assert fit([(one.world, one.history) for one in samples], target) > 0.001


def test_a_replayed_table_gives_the_same_draws_bit_for_bit(scored: ModelPolicy, tmp_path: Path) -> None:
    graph = environment_of("refund").graph
    policy = ModelPolicy(scored.model, scored.transcript, temperature=8.0)
    first, sampler = draws(policy)
    digest = save_scores(tmp_path / "scores.json", graph, policy.table, {"model": "tiny"})
    replayed = load_scores(tmp_path / "scores.json", graph)
    assert replayed.digest == digest and replayed.about == {"model": "tiny"} and len(digest) == 64
    assert replayed.vectors.keys() == policy.table.keys()
    for history, vector in policy.table.items():
        assert replayed(history).tobytes() == vector.tobytes()
    again, other = draws(replayed)
    assert again == first
    assert sampler.accounting.distinct_policy_calls == other.accounting.distinct_policy_calls
    assert save_scores(tmp_path / "twice.json", graph, replayed.vectors, replayed.about) == digest
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "scores.json").read_bytes()
    missing = ((0, 0),) * 6
    with pytest.raises(UnscoredHistoryError) as error:
        replayed(missing)
    assert error.value.history == missing


def damaged(content: Any, path: Path, resign: bool = True) -> Path:
    from stcc.runtime.exact.score_table import _digest

    if resign:
        content["sha256"] = _digest(content["body"])
    path.write_text(json.dumps(content))
    return path


EDITS: dict[str, Any] = {
    "no list": lambda body: body.update(scores=3),
    "about": lambda body: body.update(about={"model": 3}),
    "actions": lambda body: body["actions"].reverse(),
    "observations": lambda body: body["observations"].pop(),
    "pair": lambda body: body["scores"].append([[]]),
    "history": lambda body: body["scores"].append([[[99, 0]], [0.2] * 5]),
    "observation": lambda body: body["scores"].append([[[0, -1]], [0.2] * 5]),
    "boolean": lambda body: body["scores"].append([[[True, 0]], [0.2] * 5]),
    "long": lambda body: body["scores"].append([[[0, 0]] * 7, [0.2] * 5]),
    "sum": lambda body: body["scores"].append([[[0, 0]], [0.3] * 5]),
    "negative": lambda body: body["scores"].append([[[0, 0]], [-0.2, 0.6, 0.2, 0.2, 0.2]]),
    "width": lambda body: body["scores"].append([[[0, 0]], [0.5, 0.5]]),
    "text": lambda body: body["scores"].append([[[0, 0]], ["1", 0, 0, 0, 0]]),
    "huge": lambda body: body["scores"].append([[[0, 0]], [10**400, 0, 0, 0, 0]]),
    "twice": lambda body: body["scores"].append(body["scores"][0]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_tables_are_checked(edit: str, tmp_path: Path) -> None:
    graph = environment_of("refund").graph
    save_scores(tmp_path / "good.json", graph, {(): np.array([0.1, 0.2, 0.3, 0.15, 0.25])}, {})
    content = json.loads((tmp_path / "good.json").read_text())
    EDITS[edit](content["body"])
    with pytest.raises(ScoreTableError):
        load_scores(damaged(content, tmp_path / "bad.json"), graph)


def test_damaged_files(tmp_path: Path) -> None:
    graph = environment_of("refund").graph
    save_scores(tmp_path / "good.json", graph, {(): np.array([0.1, 0.2, 0.3, 0.15, 0.25])}, {})
    content = json.loads((tmp_path / "good.json").read_text())
    content["body"]["scores"][0][1][:2] = [0.2, 0.1]
    with pytest.raises(ScoreTableError, match="sha256"):
        load_scores(damaged(content, tmp_path / "bad.json", resign=False), graph)
    for text in (b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format":"stcc-scores","version":2}',
                 b'{"format":"stcc-scores","version":1}',
                 b'{"format":"stcc-scores","version":1,"sha256":"","body":{"scores":[[[],[NaN,1]]]}}'):
        (tmp_path / "bad.json").write_bytes(text)
        with pytest.raises(ScoreTableError):
            load_scores(tmp_path / "bad.json", graph)
    with pytest.raises(OSError):
        load_scores(tmp_path / "absent.json", graph)


# -- exact text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
def test_token_scores_are_those_of_plain_passes(kind: str) -> None:
    model, size = MODELS[kind](2), vocabulary().size
    tokens = ModelTokens(model, PROMPT, size, temperature=1.5)
    rng = np.random.default_rng(0)
    paths = [tuple(rng.integers(0, 200, rng.integers(0, 9)).tolist()) for _ in range(6)]
    for taken in [*paths, *(path[:3] for path in paths), *paths]:
        for ahead in ((), (3, 4, 5)):
            found = tokens.after(taken, ahead, len(ahead) + 1)
            logits = np.array(model(mx.array([[*PROMPT, *taken, *ahead]]))[0], np.float64)[-len(ahead) - 1:, :size] / 1.5
            expected = logits - np.log(np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)) - logits.max(
                axis=-1, keepdims=True)
            assert found.shape == (len(ahead) + 1, size) and found.dtype == np.float64
            assert np.abs(found - expected).max() < ROUNDING
            assert np.abs(np.exp(found).sum(axis=-1) - 1).max() < 1e-12
    read = tokens.cost.tokens
    tokens.after((*paths[0], 9), (), 1)
    tokens.after((*paths[0], 9, 9), (), 1)
    again = len(paths[0]) if kind == "qwen3_5" else 1  # recurrent caches are not cut: the branch is read anew
    assert tokens.cost.tokens - read <= again + 2, "goes on from what it has"


@pytest.mark.parametrize("kind", MODELS)
def test_exact_text_with_a_model(kind: str) -> None:
    """Drawn outputs match, their log-probabilities are the model's, and the estimate agrees with that of masking."""
    size = vocabulary().size
    language = load(compile_regex("(yes|no|maybe)( so)?"), vocabulary=vocabulary())
    sampler = TextCars(language, ModelTokens(MODELS[kind](2), PROMPT, size, temperature=30.0), 12)
    drawn = sampler.draw(12, np.random.default_rng(0), 20_000)
    for one in drawn:
        assert re.fullmatch("(yes|no|maybe)( so)?", one.text.decode())
        logits = np.array(MODELS[kind](2)(mx.array([[*PROMPT, *one.tokens]]))[0], np.float64)[len(PROMPT) - 1:, :size] / 30.0
        scores = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        expected = sum(scores[place, token] for place, token in enumerate((*one.tokens, one.stop)))
        assert abs(one.log_probability - expected) < 12 * ROUNDING
    cost = sampler.accounting
    assert cost.accepted == 12 <= cost.attempts and cost.passes <= cost.distinct_policy_calls and cost.fed >= cost.passes
    assert cost.memory_entries == len(sampler.trie) and cost.output_tokens == sum(len(one.tokens) for one in drawn)


def test_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/exact-sampling.md: the program that draws texts, with what it leaves to the reader."""
    text = (Path(__file__).parents[1] / "docs" / "exact-sampling.md").read_text(encoding="utf-8")
    _, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"np": np, "loaded": SimpleNamespace(model=MODELS["llama"](2)), "prompt_tokens": PROMPT, "vocabulary": vocabulary(),
             "grammar": load(compile_regex("(yes|no)[.]?"), vocabulary=vocabulary())}
    exec(compile(program, "exact-sampling.md", "exec"), names)
    *lines, report = capsys.readouterr().out.splitlines()
    assert len(lines) == 20 and all(re.fullmatch("(yes|no)[.]?", line.split()[0]) and float(line.split()[1]) < 0 for line in lines)
    assert "'accepted': 20" in report


def test_faults_of_token_models() -> None:
    model, size = MODELS["llama"](2), vocabulary().size
    with pytest.raises(EmptyPromptError):
        ModelTokens(model, [], size)
    for bad in (0.0, float("nan")):
        with pytest.raises(ConstraintError, match="temperature"):
            ModelTokens(model, PROMPT, size, temperature=bad)
    tokens = ModelTokens(model, PROMPT, 10_000)
    with pytest.raises(NarrowHeadError):
        tokens.after((), (), 1)
    tokens.size = size
    again = ModelTokens(model, PROMPT, size)
    assert np.abs(tokens.after((1,), (), 1) - again.after((1,), (), 1)).max() < ROUNDING, "a fault leaves no half-read cache behind"

    class Broken:
        layers: tuple[Any, ...] = ()

        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            return mx.full((*tokens.shape, size), float("nan"))

    with pytest.raises(ScoresError):
        ModelTokens(Broken(), PROMPT, size).after((), (), 1)


# -- SmolLM2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_smollm2_writes_and_decides(weights: LoadedModel) -> None:
    """A closed choice is learned whole, so that its texts come at their probabilities; labels get the scores of plain passes."""
    language = load(compile_regex("yes|no"), vocabulary=model_vocabulary(weights))
    prompt = weights.prompt_tokens("Yes or no? In lower case: ", chat=False)
    assert language.vocabulary is not None
    sampler = TextCars(language, ModelTokens(weights.model, prompt, language.vocabulary.size), 6)
    drawn = sampler.draw(100, np.random.default_rng(0))
    assert sampler.accounting.attempts < 300 and sampler.accounting.passes < 40 and 0 < sampler.validity <= 1
    likeliest = max(drawn, key=lambda one: one.log_probability)
    share = sum(one.tokens == likeliest.tokens for one in drawn) / 100
    assert abs(share - np.exp(likeliest.log_probability) / sampler.bound) < 4.5 * 0.5 / np.sqrt(100)

    def encode_with(text: str) -> list[int]:
        return list(weights.tokenizer.encode(text, add_special_tokens=False))

    transcript = Transcript.of(environment_of("refund").graph, encode_with, prompt)
    policy, logits = ModelPolicy(weights.model, transcript), plain(weights.model, transcript, ())
    assert np.abs(np.log(policy(())) - (logits - np.log(np.exp(logits).sum()))).max() < 10 * ROUNDING
