"""Policies on disk and on the command line: round trips, files that nobody vouches for, what inspect says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_cases import NAMES, POLICIES, artifact_of, documents, text_of, yaml_text

from stcc.compiler import compile_policy
from stcc.compiler.errors import UnsatisfiableError
from stcc.compiler.sources import compile_source
from stcc.formats import Artifact, FormatError
from stcc.formats.container import Container, SectionData, pack
from stcc.formats.errors import ContentError
from stcc.formats.policy import PolicyGraph, Steps, verify_policy
from stcc.formats.policy_sections import NAMES as SECTIONS
from stcc.formats.policy_sections import PREFIX
from stcc.runtime.cli import main
from stcc.runtime.load import load


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if hasattr(left, "__dataclass_fields__"):
        return all(same(getattr(left, name), getattr(right, name)) for name in left.__dataclass_fields__)
    return bool(left == right)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    artifact = artifact_of(name)
    data = artifact.to_bytes()
    read = Artifact.from_bytes(data)
    assert read.kind == "policy" and same(read.policy, artifact.policy) and read.to_bytes() == data and len(data) < 12_000


@settings(max_examples=25, deadline=None)
@given(documents(horizon=3))
def test_round_trip_of_random_policies(document: dict[str, Any]) -> None:
    try:
        artifact = compile_policy(yaml_text(document))
    except UnsatisfiableError:
        return
    assert same(Artifact.from_bytes(artifact.to_bytes()).policy, artifact.policy)


def test_the_same_bytes_under_any_hash_seed() -> None:
    source = POLICIES / "refund.policy.yaml"
    code = "import sys; from stcc.compiler.sources import compile_source; sys.stdout.buffer.write(compile_source(sys.argv[1]).to_bytes())"
    outputs = set()
    for seed in ("0", "7"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        outputs.add(subprocess.run([sys.executable, "-c", code, str(source)], capture_output=True, check=True, env=environment).stdout)
    assert outputs == {compile_source(source).to_bytes()}


def test_other_artifacts_have_no_policy() -> None:
    from stcc.compiler import compile_regex

    assert Artifact.from_bytes(compile_regex("a").to_bytes()).policy is None


# -- hostile files ---------------------------------------------------------------------------------------------------------


def rebuilt(data: bytes, name: str, array: Any) -> bytes:
    """The file with one section replaced or, for None, left out."""
    box = Container.parse(data)
    sections = []
    for section in box.sections.values():
        given = array if section.name == PREFIX + name else box.array(section.name, section.dtype, len(section.shape))
        if given is not None:
            sections.append(SectionData(section.name, given, section.required))
    return pack(box.content, box.meta, sections)


def stored(name: str) -> Any:
    box = Container.parse(artifact_of("refund").to_bytes())
    section = box.sections[PREFIX + name]
    return box.array(section.name, section.dtype, len(section.shape))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([name for name in SECTIONS if name != "about"]), st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_number_is_found_or_harmless(name: str, place: int, value: int) -> None:
    array = stored(name).copy()
    array.reshape(-1)[place % array.size] = value
    try:
        graph = Artifact.from_bytes(rebuilt(artifact_of("refund").to_bytes(), name, array)).policy
    except FormatError:
        return
    assert graph is not None and verify_policy(graph) == []


@pytest.mark.parametrize("name", SECTIONS)
def test_a_missing_section_is_found(name: str) -> None:
    with pytest.raises(FormatError):
        artifact = Artifact.from_bytes(rebuilt(artifact_of("refund").to_bytes(), name, None))
        if artifact.policy is None:
            raise ContentError("x", "policy", "left out whole")  # without its names there is no policy: the machine remains


ABOUT = {"abstractions": [], "actions": ["A"], "explored": [1, 1], "horizon": 3, "observations": [""], "worlds": ["w"]}


@pytest.mark.parametrize("about", [
    b"", b"[]", b"{}", b"[" * 5000, b'{"actions": 3}', b"\xff", b"null",
    json.dumps({**ABOUT, "horizon": 1 << 80}).encode(), json.dumps({**ABOUT, "abstractions": [{"name": "x"}]}).encode(),
    json.dumps({**ABOUT, "actions": [3]}).encode(), json.dumps({**ABOUT, "explored": [1]}).encode(),
])
def test_hostile_names(about: bytes) -> None:
    data = rebuilt(artifact_of("refund").to_bytes(), "about", np.frombuffer(about, np.uint8))
    with pytest.raises(FormatError):
        _ = Artifact.from_bytes(data).policy


def broken(**changes: Any) -> list[str]:
    graph = artifact_of("refund").policy
    assert graph is not None
    return verify_policy(replace(graph, **changes))


def test_every_broken_promise_is_named() -> None:
    graph = artifact_of("refund").policy
    assert isinstance(graph, PolicyGraph) and broken() == []
    backwards = Steps(graph.classes.offsets, graph.classes.observation, graph.classes.target[::-1].copy())
    cases: list[dict[str, Any]] = [
        {"actions": graph.actions[:-1] + ("a b",)}, {"actions": ()}, {"observations": ("x",)}, {"horizon": 0}, {"horizon": 3},
        {"world_weights": graph.world_weights * 2}, {"world_weights": np.array([np.nan, 1.0])}, {"starts": graph.starts + 10**6},
        {"ending": np.zeros_like(graph.ending)}, {"outcome_weights": graph.outcome_weights * 0.5}, {"classes": backwards},
        {"dead": graph.dead[1:]}, {"dead": graph.dead[::-1]}, {"class_accepting": ~graph.class_accepting}, {"positions": None},
        {"outcomes": replace(graph.outcomes, target=graph.outcomes.target * 0)}, {"abstractions": graph.abstractions[:1]},
        {"outcomes": replace(graph.outcomes, observation=graph.outcomes.observation + 9)},
    ]
    for changes in cases:
        assert broken(**changes), changes


# -- command line ----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def test_compile_inspect_check_and_sample(tmp_path: Path) -> None:
    source, target = tmp_path / "refund.policy.yaml", tmp_path / "refund.stc"
    source.write_text(text_of("refund"), encoding="utf-8")
    assert run("compile", str(source)).exit_code == 0 and target.exists()
    for file in (source, target):
        report = json.loads(run("inspect", str(file), "--json").output)["policy"]
        assert report["classes"] == 18 and report["dead_continuations"] == 45
        assert [world["traces"] for world in report["worlds"]] == [5461, 5461]
        assert sum(len(entry["dead"]) for entry in report["class_list"]) == 45
        assert {verdict["name"]: verdict["sound"] for verdict in report["abstractions"]} == {
            "observed_state": True, "ownership_dropped": False, "budget_dropped": False}
    shown = run("inspect", str(target)).output
    assert "5,461 complete histories, 60 valid" in shown and "NOT SOUND" in shown and "completes the first only" in shown
    assert run("check", str(target), "READ AUTH PROBE=confirmed REFUND STOP").exit_code == 0
    assert run("check", str(target), "AUTH PROBE=denied READ REFUND STOP").exit_code == 1
    lines = run("sample", str(target), "-n", "5").output.splitlines()
    assert len(lines) == 5 and all(run("check", str(target), line).exit_code == 0 for line in lines)


def test_faults_on_the_command_line(tmp_path: Path) -> None:
    source = tmp_path / "bad.policy.yaml"
    source.write_text(text_of("refund").replace("refunds == 1", "refunds = 1"), encoding="utf-8")
    shown = run("compile", str(source))
    assert shown.exit_code == 1 and "#/accept" in shown.output and "CEL" in shown.output
    assert run("compile", str(source), "--whitespace", "compact").exit_code == 2


def test_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/exact-sampling.md: its policy is the sample, and its first program draws valid histories (the other one needs a model)."""
    text = (POLICIES.parents[1] / "docs" / "exact-sampling.md").read_text(encoding="utf-8")
    (policy,), (program, *_) = (re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) for language in ("yaml", "python"))
    artifact, sample = compile_policy(policy), artifact_of("refund")
    assert sample.policy is not None
    assert same(artifact.policy, replace(sample.policy, positions=None, abstractions=()))
    monkeypatch.chdir(tmp_path)
    artifact.save("refund.stc")
    exec(compile(program, "exact-sampling.md", "exec"), {})
    *lines, report = capsys.readouterr().out.splitlines()
    matcher = load(artifact).matcher()
    for line in lines:
        matcher.reset()
        assert line.startswith("owner ") and matcher.accept_bytes(line.removeprefix("owner ").encode()) and matcher.is_accepting()
    assert len(lines) == 10 and "'accepted': 10" in report
