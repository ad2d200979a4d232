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
