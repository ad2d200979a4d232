"""``stcc bench`` and what it measures: engines in one loop, on a stub model and with a stand-in for llguidance."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from click.testing import CliRunner, Result  # noqa: E402
from decoding_cases import SOURCES, grammar, is_valid, llama, vocabulary  # noqa: E402
from tokenizer_cases import TRAINED  # noqa: E402

from stcc.runtime import models  # noqa: E402
from stcc.runtime.cli import main  # noqa: E402
from stcc.runtime.decode import DecodingModel  # noqa: E402
from stcc.runtime.decoding.comparison import Task, compare, contenders, summary  # noqa: E402
from stcc.runtime.decoding.llguidance_matcher import Llguidance, LlguidanceError, LlguidanceMissing  # noqa: E402
from stcc.runtime.models import LoadedModel  # noqa: E402

NAMES = ("free", "masked", "sync", "pipelined", "eager")
TASKS = [Task(name, [5, 6, 7, 8 + place], grammar(name), SOURCES[name]) for place, name in enumerate(("record", "date", "text"))]


def test_engines_are_compared_on_the_same_outputs() -> None:
    model = DecodingModel(llama(1))
    measured = compare(model, TASKS, contenders(NAMES, model, 30), rounds=2)
    assert [(each.task, each.contender) for each in measured] == [(task.name, name) for task in TASKS for name in NAMES]
    assert all(len(each.seconds) == 2 and min(each.seconds) > 0 for each in measured)
    for task in TASKS:
        own = {each.contender: each for each in measured if each.task == task.name}
        assert own["sync"].tokens == own["pipelined"].tokens == own["eager"].tokens
        assert own["sync"].passes + own["sync"].forced >= len(own["sync"].tokens)
        assert own["masked"].forced == own["free"].forced == 0
        assert is_valid(task.name, own["sync"].text) and is_valid(task.name, own["masked"].text)
    rows = {row["engine"]: row for row in summary(measured)}
    assert rows["sync"]["valid"] == rows["sync"]["outputs"] == 3 and rows["free"]["valid"] is None
    assert rows["sync"]["passes_per_token"] < rows["masked"]["passes_per_token"]
    assert rows["sync"]["tokens"] == sum(len(each.tokens) for each in measured if each.contender == "sync")


class Guided:
    """What our adapter uses of ``llguidance.LLMatcher``, by our own matcher."""

    def __init__(self, _: Any, source: str) -> None:
        if source == "bad":
            self.matcher = None
            return
        name = "date" if "[0-9]" in source else "record"
        assert name == "date" or json.loads(source)["grammars"][0]["json_schema"]["x-guidance"]["key_separator"] == ":"
        self.matcher = grammar(name).matcher(canonical=True)

    @staticmethod
    def grammar_from_regex(pattern: str) -> str:
        return pattern

    def is_error(self) -> bool:
        return self.matcher is None

    def get_error(self) -> str:
        return "no\nmore"

    def is_stopped(self) -> bool:
        return self.matcher.state < 0

    def is_accepting(self) -> bool:
        return self.matcher.is_accepting()

    def compute_bitmask(self) -> bytes:
        mask = np.zeros((1, (vocabulary().size + 31) // 32), np.int32)
        self.matcher.fill_next_token_bitmask(mask)
        return mask.tobytes()

    def consume_token(self, token: int) -> bool:
        return self.matcher.accept_token(token)

    def compute_ff_tokens(self) -> list[int]:
        return self.matcher.forced_tokens()


@pytest.fixture
def guided(monkeypatch: pytest.MonkeyPatch) -> Llguidance:
    module = types.ModuleType("llguidance")
    module.LLTokenizer = lambda *_, **__: None  # type: ignore[attr-defined]
    module.LLMatcher = Guided  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llguidance", module)
    return Llguidance("{}", vocabulary())


def test_llguidance_decodes_in_the_same_loop(guided: Llguidance) -> None:
    model = DecodingModel(llama(1))
    measured = compare(model, TASKS[:2], contenders(("sync", "llguidance", "llguidance-ff"), model, 40, guided), rounds=1)
    for task in TASKS[:2]:
        own = {each.contender: each for each in measured if each.task == task.name}
        assert own["llguidance-ff"].tokens == own["sync"].tokens and own["llguidance-ff"].passes == own["sync"].passes
        assert own["llguidance"].forced == 0 and is_valid(task.name, own["llguidance"].text)
        assert own["llguidance"].stop_reason in ("stop", "complete")
    with pytest.raises(LlguidanceError, match="does not compile the source: no"):
        guided.matcher("bad")


def test_llguidance_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(LlguidanceMissing, match="stcc\\[bench\\]"):
        Llguidance("{}", vocabulary())


def test_the_real_llguidance_masks_what_we_do() -> None:
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    peer = Llguidance(TRAINED["byte-level"].to_str(), vocabulary())
    model = DecodingModel(llama(1))
    for name in ("record", "date"):
        task = Task(name, [5, 6, 7, 8], grammar(name), SOURCES[name])
        for each in compare(model, [task], contenders(("llguidance", "llguidance-ff"), model, 60, peer), rounds=1):
            assert is_valid(name, each.text) and each.accepted and each.stop_reason in ("stop", "complete")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tiny llama in place of the model, and two sources with their tasks."""
    class Tokens:
        chat_template = None

        def encode(self, text: str) -> list[int]:
            return TRAINED["byte-level"].encode(text, add_special_tokens=False).ids[:40]

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(models, "load_model", lambda name: LoadedModel(llama(1), Tokens(), tmp_path, name))
    monkeypatch.setattr(models, "model_vocabulary", lambda loaded: vocabulary())
    (tmp_path / "date.regex").write_text(SOURCES["date"] + "\n")
    (tmp_path / "record.schema.json").write_text(json.dumps(SOURCES["record"]))
    for name in ("date", "record"):
        (tmp_path / f"{name}.prompt.txt").write_text(f"give a {name}")
    return tmp_path


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_the_command_reports_every_engine(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    files = [str(stub / "date.regex"), str(stub / "record.schema.json")]
    result = bench(*files, "--n", "3", "--rounds", "1", "--max-tokens", "30", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [row["engine"] for row in report["engines"]] == ["free", "sync", "pipelined"] and "not installed" in report["note"]
    assert all(row["outputs"] == 3 for row in report["engines"]) and report["identical"] and report["rounds"] == 1
    shown = bench(files[0], "--n", "1", "--rounds", "1", "--max-tokens", "20", "--engine", "sync", "--engine", "masked")
    assert shown.exit_code == 0 and "passes/token" in shown.stdout and "masked" in shown.stdout


def test_the_command_without_files_has_a_task_of_its_own(stub: Path) -> None:
    result = bench("--n", "1", "--rounds", "1", "--max-tokens", "60", "--engine", "sync", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["engines"][0]["valid"] == 1


def test_wrong_usage_of_the_command(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    (stub / "lonely.regex").write_text("a")
    (stub / "other.txt").write_text("a")
    (stub / "other.prompt.txt").write_text("a")
    for name in ("lonely.regex", "other.txt"):
        assert bench(str(stub / name)).exit_code == 2
    asked = bench(str(stub / "date.regex"), "--engine", "llguidance")
    assert asked.exit_code == 1 and "stcc[bench]" in asked.stderr
