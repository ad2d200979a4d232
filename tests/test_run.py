"""``stcc run``: exit codes, what it prints, and that what it calls valid is valid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

import block_cases  # noqa: E402
from click.testing import CliRunner, Result  # noqa: E402

from stcc.formats import Vocabulary  # noqa: E402
from stcc.runtime import models  # noqa: E402
from stcc.runtime.cli import main  # noqa: E402
from stcc.runtime.models import LoadedModel, model_vocabulary  # noqa: E402

SAMPLES = Path(__file__).parent.parent / "samples"
KEYS = {"text", "valid", "tokens", "passes", "forced", "stop_reason", "seconds"}
VOCABULARY = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b"", b'":"', b"19", b"-0"], [256], name="bytes")


class Guesser:
    """A model whose scores are a hash of the last token; ``broken`` scores are not numbers."""

    layers: tuple[Any, ...] = ()

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        rows = [np.random.default_rng(token).normal(size=VOCABULARY.size).astype(np.float32) for token in tokens[0].tolist()]
        return mx.array(np.stack(rows))[None] * (float("nan") if self.broken else 1.0)


class Bytes:
    chat_template = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Guesser:
    model = Guesser()
    monkeypatch.setattr(models, "load_model", lambda name: LoadedModel(model, Bytes(), Path("nowhere"), name))
    monkeypatch.setattr(models, "model_vocabulary", lambda loaded: VOCABULARY)
    return model


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", *arguments])


DATE = str(SAMPLES / "iso_date.regex")


def test_json_report(stub: Guesser) -> None:
    result = run(DATE, "--prompt", "when?", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report.keys() >= KEYS
    assert report["valid"] is True and report["stop_reason"] == "complete"
    assert re.fullmatch((SAMPLES / "iso_date.regex").read_text().strip(), report["text"])
    assert report["forced"] < report["tokens"] == report["passes"] + report["forced"]


def test_the_text_is_all_that_goes_to_standard_output(stub: Guesser, tmp_path: Path) -> None:
    text = json.loads(run(DATE, "--prompt", "when?", "--json").stdout)["text"]
    shown = run(DATE, "--prompt", "when?", "--stats")
    assert shown.stdout == f"{text}\n"
    assert "model passes" in shown.stderr
    (tmp_path / "prompt.txt").write_text("when?")
    assert run(DATE, "--prompt-file", str(tmp_path / "prompt.txt")).stdout == f"{text}\n"


def test_seeds_repeat(stub: Guesser) -> None:
    texts = [run(DATE, "--prompt", "?", "--temp", "1.5", "--seed", str(seed)).stdout for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_a_limit_below_the_shortest_output_is_an_error_that_says_so(stub: Guesser) -> None:
    result = run(DATE, "--prompt", "?", "--max-tokens", "3")
    assert result.exit_code == 1 and "the shortest needs" in result.stderr
    report = json.loads(run(DATE, "--prompt", "?", "--max-tokens", "3", "--json").stdout)
    assert report["error"] == "BudgetTooSmall"


def test_an_output_that_is_not_valid_is_never_called_so(stub: Guesser) -> None:
    stub.broken = True
    result = run(DATE, "--prompt", "?", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["valid"] is False
    shown = run(DATE, "--prompt", "?")
    assert shown.exit_code == 1 and "not valid" in shown.stderr


def test_an_empty_prompt_is_an_error(stub: Guesser) -> None:
    assert run(DATE, "--prompt", "").exit_code == 1


def test_wrong_usage() -> None:
    assert run(DATE).exit_code == 2
    assert run(DATE, "--prompt", "a", "--prompt-file", DATE).exit_code == 2
    assert run("no-such-file.stc", "--prompt", "a").exit_code == 2
    assert run(DATE, "--prompt", "a", "--temp", "-1").exit_code == 2


def test_inputs_at_fault(tmp_path: Path) -> None:
    (tmp_path / "bad.stc").write_bytes(b"not an artifact")
    (tmp_path / "bad.regex").write_text("(")
    for name in ("bad.stc", "bad.regex"):
        result = run(str(tmp_path / name), "--prompt", "a", "--json")
        assert result.exit_code == 1, name
        assert not isinstance(result.exception, (TypeError, KeyError)), result.exception
    assert run(DATE, "--prompt", "a", "--model", "nonsense").exit_code == 1


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A llama of random weights, with the caches that rows of a batch need."""
    words, model = block_cases.vocabulary(), block_cases.llama(3)
    loaded = LoadedModel(model, Bytes(), Path("nowhere"), "tiny")
    monkeypatch.setattr(models, "load_model", lambda name: loaded)
    monkeypatch.setattr(models, "model_vocabulary", lambda _: words)
    monkeypatch.setattr(LoadedModel, "prompt_tokens", lambda self, text, chat=True: [1 + code % 40 for code in text.encode()])
    return loaded


@pytest.mark.parametrize("way", ["blocks", "regions"])
def test_reading_ahead_changes_passes_and_nothing_else(tiny: LoadedModel, tmp_path: Path, way: str) -> None:
    schema = {"type": "object", "additionalProperties": False, "required": ["a", "b", "c"],
              "properties": {"a": {"enum": ["x", "yes", "no"]}, "b": {"type": "boolean"}, "c": {"enum": ["one", "two", "three"]}}}
    (tmp_path / "s.schema.json").write_text(json.dumps(schema))
    source = str(tmp_path / "s.schema.json")
    plain = json.loads(run(source, "--prompt", "hello", "--json").stdout)
    ahead = json.loads(run(source, "--prompt", "hello", "--json", "--read-ahead", way).stdout)
    assert ahead["text"] == plain["text"] and ahead["valid"] and ahead["read_ahead"] == way
    assert ahead["passes"] <= ahead["sequential_passes"] == plain["passes"] and ahead["saved"] > 0
    shown = run(source, "--prompt", "hello", "--read-ahead", way, "--stats")
    assert shown.stdout == f"{plain['text']}\n" and "saved" in shown.stderr


def test_reading_ahead_refuses_what_it_does_not_have(tiny: LoadedModel) -> None:
    for options in (["blocks", "--temp", "1"], ["blocks", "--heal"], ["regions", "--forcing", "off"], ["regions", "--loop", "eager"]):
        result = run(DATE, "--prompt", "a", "--read-ahead", *options)
        assert result.exit_code == 2 and options[1] in result.stderr, options
    assert run(DATE, "--prompt", "a", "--read-ahead", "regions", "--temp", "1", "--json").exit_code == 0
    assert run(DATE, "--prompt", "a", "--exact", "--read-ahead", "blocks").exit_code == 2


@pytest.mark.parametrize("options", [[], ["--heal"], ["--read-ahead", "blocks"], ["--read-ahead", "regions"]])
def test_prompts_are_kept_and_found_again(tiny: LoadedModel, tmp_path: Path, options: list[str]) -> None:
    """The second run reads only what is new of its prompt, and writes the same text."""
    if "--heal" in options:
        tiny.tokenizer.encode = lambda text, add_special_tokens=True: list(text.encode())  # type: ignore[method-assign]
    store = ["--prompt-cache", str(tmp_path / "prompts"), "--json", *options]
    plain = json.loads(run(DATE, "--prompt", "a question", "--json", *options).stdout)
    first = json.loads(run(DATE, "--prompt", "a question", *store).stdout)
    again = json.loads(run(DATE, "--prompt", "a question", *store).stdout)
    longer = json.loads(run(DATE, "--prompt", "a question more", *store).stdout)
    assert plain["text"] == first["text"] == again["text"]
    assert first["cached_prompt_tokens"] == 0
    assert again["cached_prompt_tokens"] >= 8 and 8 <= longer["cached_prompt_tokens"] < 14
    (tmp_path / "prompts" / "prompt-000000.safetensors").write_bytes(b"nothing of the kind")
    assert json.loads(run(DATE, "--prompt", "a question", *store).stdout)["error"] == "PromptCacheError"


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit"), [("tool_call", 64), ("event", 48), ("tree", 40)])
def test_smollm2_outputs_follow_the_samples(weights: LoadedModel, monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    monkeypatch.setattr(models, "load_model", lambda _: weights)
    source = SAMPLES / f"{name}.schema.json"
    result = run(str(source), "--prompt-file", str(SAMPLES / f"{name}.prompt.txt"), "--max-tokens", str(limit), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["valid"] and report["tokens"] <= limit
    jsonschema.Draft202012Validator(json.loads(source.read_text())).validate(json.loads(report["text"]))
    assert report["forced"] > 0


@pytest.mark.model
def test_smollm2_vocabulary_spells_its_own_tokens(weights: LoadedModel) -> None:
    vocabulary = model_vocabulary(weights)
    text = '{"name":"Ada","age":36,"tags":["é","🙂 x"]}'
    assert b"".join(vocabulary.token(token) for token in weights.tokenizer.encode(text)) == text.encode()
    assert vocabulary.stop_token_ids == (weights.tokenizer.eos_token_id,)
