"""``stcc run --exact``: texts and policies, the report, stored scores, and that no option is ignored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

from click.testing import CliRunner, Result  # noqa: E402

from stcc.formats import Vocabulary  # noqa: E402
from stcc.runtime import models  # noqa: E402
from stcc.runtime.cli import main  # noqa: E402
from stcc.runtime.commands import exact_run  # noqa: E402
from stcc.runtime.models import LoadedModel  # noqa: E402

SAMPLES = Path(__file__).parent.parent / "samples"
REFUND = str(SAMPLES / "policies" / "refund.policy.yaml")
KEYS = {"text", "valid", "tokens", "passes", "forced", "stop_reason", "seconds"}
VOCABULARY = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b"", b"ab", b"no"], [256], name="bytes")


class Guesser:
    """A model whose scores are a hash of the last token; the stop token and a few letters are likely."""

    layers: tuple[Any, ...] = ()
    args = None

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        return mx.array(np.stack([np.stack([self.scores(token) for token in row]) for row in tokens.tolist()]))

    def scores(self, token: int) -> np.ndarray:
        scores = np.random.default_rng(token).normal(size=VOCABULARY.size).astype(np.float32)
        scores[[ord(letter) for letter in "abno"] + [256, 257, 258]] += 4.0
        return scores


class Bytes:
    chat_template = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> Guesser:
    model = Guesser()
    monkeypatch.setattr(models, "load_model", lambda name: LoadedModel(model, Bytes(), Path("nowhere"), name))
    monkeypatch.setattr(models, "model_vocabulary", lambda loaded: VOCABULARY)
    return model


@pytest.fixture
def answer(tmp_path: Path) -> str:
    (tmp_path / "answer.regex").write_text("(ab){1,2}|no")
    return str(tmp_path / "answer.regex")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", *arguments])


def test_texts_and_their_report(answer: str) -> None:
    result = run(answer, "--prompt", "well?", "--exact", "-n", "40", "--compare", "--json", "--max-tokens", "6", "--seed", "3")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report.keys() >= KEYS and report["kind"] == "text" and report["valid"] is True and report["stop_reason"] == "stop"
    texts = [one["text"] for one in report["outputs"]]
    assert len(texts) == 40 and all(re.fullmatch("(ab){1,2}|no", text) for text in texts) and report["text"] == texts[0]
    assert report["tokens"] == sum(one["tokens"] for one in report["outputs"]) and report["max_tokens"] == 6
    exact, masking = report["exact"], report["masking"]
    assert exact["accepted"] == 40 <= exact["attempts"] and exact["acceptance"] == 40 / exact["attempts"]
    assert 0 < exact["passes"] == report["passes"] and exact["validity"] > 0 and exact["mass_bound"] < 1
    assert masking["attempts"] == 40 and masking["passes"] == masking["sampler_steps"] and 1 <= masking["effective_samples"] <= 40
    assert all(re.fullmatch("(ab){1,2}|no", text) for text in masking["outputs"])
    assert run(answer, "--prompt", "well?", "--exact", "-n", "40", "--max-tokens", "6", "--seed", "3").stdout.split() == texts


def test_the_table_for_people_and_the_temperature(answer: str) -> None:
    result = run(answer, "--prompt", "well?", "--exact", "-n", "5", "--compare", "--temp", "0.5", "--max-tokens", "6")
    assert result.exit_code == 0 and len(result.stdout.split()) == 5
    for words in ("exact", "masking", "acceptance", "model passes", "P(valid), estimated"):
        assert words in result.stderr


@pytest.mark.parametrize("temperature", [None, 0.5, 3.0])
def test_log_probabilities_are_those_of_a_spelling_at_the_temperature(temperature: float | None, answer: str, stub: Guesser) -> None:
    arguments = [] if temperature is None else ["--temp", str(temperature)]
    report = json.loads(run(answer, "--prompt", "well?", "--exact", "-n", "30", *arguments, "--max-tokens", "6", "--json").stdout)
    assert report["temperature"] == (temperature or 1.0)

    def logarithm(after: int, token: int) -> float:
        scores = stub.scores(after).astype(float) / (temperature or 1.0)
        return float(scores[token] - np.log(np.exp(scores).sum()))

    spellings = {"ab": [(97, 98), (257,)], "no": [(110, 111), (258,)], "abab": [(97, 98, 97, 98), (257, 97, 98), (97, 98, 257), (257, 257)]}
    for one in report["outputs"]:
        paths = [(ord("?"), *spelling, 256) for spelling in spellings[one["text"]] if len(spelling) == one["tokens"]]
        expected = [sum(map(logarithm, path, path[1:])) for path in paths]
        assert min(abs(one["log_probability"] - value) for value in expected) < 1e-5


def test_policies_are_drawn_stored_and_replayed(tmp_path: Path) -> None:
    table = str(tmp_path / "scores.json")
    arguments = [REFUND, "--exact", "-n", "6", "--seed", "5", "--json"]
    first = run(*arguments, "--prompt", "refund?", "--save-table", table, "--compare")
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert report.keys() >= KEYS and report["kind"] == "policy" and len(report["outputs"]) == 6 and report["valid"] is True
    assert all(one["text"].split()[-1] == "STOP" and "REFUND" in one["text"] and one["world"] == "owner" for one in report["outputs"])
    assert report["exact"]["acceptance"] == 1.0 and 0 < report["passes"] < 133 / 3 and report["masking"]["accepted"] == 6
    assert report["exact"]["distinct_policy_calls"] == 133
    stored = json.loads(Path(table).read_text())
    assert stored["sha256"] == report["scores"]["sha256"] and stored["body"]["about"]["temperature"] == "1.0"
    again = run(*arguments, "--table", table)
    assert again.exit_code == 0, again.output
    replayed = json.loads(again.stdout)
    assert replayed["outputs"] == report["outputs"] and replayed["passes"] == 0 and replayed["scores"]["sha256"] == stored["sha256"]
    assert replayed["scores"]["prompt_sha256"] == report["scores"]["prompt_sha256"]
    lines = run(REFUND, "--exact", "-n", "6", "--seed", "5", "--table", table).stdout.splitlines()
    assert lines == [one["text"] for one in report["outputs"]]
    Path(table).write_text(Path(table).read_text().replace("AUTH", "AUTO", 1))
    broken = run(*arguments, "--table", table)
    assert broken.exit_code == 1 and json.loads(broken.stdout)["error"] == "ScoreTableError"


@pytest.mark.parametrize("options", [
    ["--top-p", "0.5"], ["--top-k", "3"], ["--min-p", "0.1"], ["--loop", "sync"], ["--forcing", "off"], ["--heal"], ["--temp", "0"],
    ["--read-ahead", "blocks"], ["--prompt-cache", "prompts"],
    ["--table", REFUND], ["--save-table", "x.json"], ["--prompt-file", REFUND],
])
def test_options_that_do_not_go_with_exact_text(options: list[str], answer: str) -> None:
    result = run(answer, "--prompt", "well?", "--exact", *options)
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize("options", [["-n", "2"], ["--max-attempts", "5"], ["--compare"], ["--save-table", "x"]])
def test_options_of_exact_without_it(options: list[str], answer: str) -> None:
    result = run(answer, "--prompt", "well?", *options)
    assert result.exit_code == 2 and "goes with --exact" in result.stderr


def test_too_many_histories_are_scored_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [REFUND, "--exact", "-n", "6", "--json", "--prompt", "refund?"]
    batched = json.loads(run(*arguments).stdout)
    monkeypatch.setattr(exact_run, "SCORED_FIRST", 100)
    single = json.loads(run(*arguments).stdout)
    assert single["passes"] > 133 > batched["passes"] and single["exact"]["distinct_policy_calls"] == 133
    assert [one["text"] for one in single["outputs"]] == [one["text"] for one in batched["outputs"]]


def test_options_of_policies(tmp_path: Path) -> None:
    for options in (["--prompt", "x", "--max-tokens", "3"], []):
        assert run(REFUND, "--exact", *options).exit_code == 2
    table = str(tmp_path / "scores.json")
    assert run(REFUND, "--exact", "--prompt", "x", "--save-table", table).exit_code == 0
    for options in (["--prompt", "x"], ["--model", "m"], ["--temp", "2"], ["--raw"], ["--save-table", "y"]):
        result = run(REFUND, "--exact", "--table", table, *options)
        assert result.exit_code == 2 and "--table takes its place" in result.stderr


def test_faults_at_run_time(answer: str, stub: Guesser, tmp_path: Path) -> None:
    result = run(answer, "--prompt", "well?", "--exact", "-n", "900", "--max-attempts", "5", "--json", "--max-tokens", "4")
    assert result.exit_code == 1 and json.loads(result.stdout)["error"] == "TooManyAttemptsError"
    stub.args = {"max_position_embeddings": 12}
    assert json.loads(run(answer, "--prompt", "well?", "--exact", "--json").stdout)["max_tokens"] == 7
    result = run(answer, "--prompt", "well?", "--exact", "--json", "--max-tokens", "8")
    assert result.exit_code == 1 and "has room for 7" in json.loads(result.stdout)["message"]
    (tmp_path / "prompt.txt").write_bytes(b"\xff")
    assert run(answer, "--prompt-file", str(tmp_path / "prompt.txt"), "--exact").exit_code == 2
