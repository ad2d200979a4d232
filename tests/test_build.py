"""stcc build: what it writes, when it compiles, and that it converges whatever happens to it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizer_cases import byte_level_bpe

from stcc.compiler import compile_json_schema, compile_regex
from stcc.compiler.building import build as build_module
from stcc.compiler.building.build import Report, build
from stcc.compiler.building.cache import Cache, Record
from stcc.compiler.building.inputs import Inputs
from stcc.compiler.building.manifest import read_manifest
from stcc.compiler.building.report import markdown, report_data
from stcc.compiler.building.work import Job, run_job
from stcc.compiler.building.workers import run_all
from stcc.formats import Artifact, Vocabulary
from stcc.runtime.cli import main

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "import sys; from stcc.runtime.cli import main; sys.argv[0] = 'stcc'; main()"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}}, "required": ["name"]}
MANIFEST = """
output = "out"
[[targets]]
source = "*.schema.json"
[[targets]]
source = "*.regex"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "person.schema.json").write_text(json.dumps(PERSON))
    (tmp_path / "flag.schema.json").write_text('{"type": "boolean"}')
    (tmp_path / "date.regex").write_text("[0-9]{4}-[0-9]{2}\n")
    (tmp_path / "stc.toml").write_text(MANIFEST)
    return tmp_path


def run(project: Path, **options: Any) -> Report:
    return build(read_manifest(project / "stc.toml"), **options)


def command(project: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["build", str(project / "stc.toml"), "--jobs", "1", "--json", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def traces(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, time of change and contents of every file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def outputs(project: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((project / "out").iterdir())}


def test_artifacts_are_those_of_the_compiler(project: Path) -> None:
    found = command(project)
    assert found["built"] == ["out/date.stc", "out/flag.stc", "out/person.stc"] and found["fresh"] == found["failed"] == []
    assert outputs(project) == {
        "date.stc": compile_regex("[0-9]{4}-[0-9]{2}", source="date.regex").to_bytes(),
        "flag.stc": compile_json_schema('{"type": "boolean"}', source="flag.schema.json").to_bytes(),
        "person.stc": compile_json_schema(json.dumps(PERSON), source="person.schema.json").to_bytes(),
    }


def test_a_second_build_touches_nothing(project: Path) -> None:
    run(project)
    before = traces(project)
    found = command(project)
    assert traces(project) == before and found["compiled"] == 0
    assert found["fresh"] == ["out/date.stc", "out/flag.stc", "out/person.stc"] and found["built"] == []


def test_an_edit_compiles_one(project: Path) -> None:
    run(project)
    before = traces(project / "out")
    (project / "flag.schema.json").write_text('{"type": "null"}')
    report = run(project)
    assert report.names("built") == ["out/flag.stc"] and report.compiled == 1
    after = traces(project / "out")
    assert {name for name in after if after[name] != before[name]} == {str(project / "out" / "flag.stc")}
    (project / "flag.schema.json").write_text('{"type": "boolean"}')
    assert (run(project).compiled, run(project).names("fresh")) == (0, ["out/date.stc", "out/flag.stc", "out/person.stc"])
    assert traces(project / "out").keys() == before.keys() and outputs(project)["flag.stc"] == before[str(project / "out/flag.stc")][2]


def test_options_and_documents_and_vocabularies_are_part_of_it(project: Path) -> None:
    (project / "base.json").write_text('{"type": "string", "enum": ["x"]}')
    (project / "flag.schema.json").write_text('{"$ref": "https://example.com/base.json"}')
    text = MANIFEST + '[schemas]\n"https://example.com/base.json" = "base.json"\n'
    (project / "stc.toml").write_text(text)
    assert run(project).compiled == 3
    (project / "base.json").write_text('{"type": "string", "enum": ["y"]}')
    assert run(project).names("built") == ["out/flag.stc"]  # the others' documents changed too, their artifacts did not
    (project / "stc.toml").write_text('options = {whitespace = "spaced"}\n' + text)
    assert run(project).names("built") == ["out/flag.stc", "out/person.stc"]  # whitespace means nothing for a pattern
    vocabulary = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b""], [256], name="bytes")
    vocabulary.save(project / "bytes.stv")
    (project / "stc.toml").write_text('vocabularies = "bytes.stv"\n' + text)
    assert run(project).compiled == 3
    assert Artifact.load(project / "out" / "date.stc").fingerprints == (vocabulary.fingerprint,)


def test_a_tokenizer_is_packed_once(project: Path) -> None:
    (project / "model").mkdir()
    (project / "model" / "tokenizer.json").write_text(byte_level_bpe().to_str())
    (project / "stc.toml").write_text('vocabularies = "model"\n[[targets]]\nsource = "*.regex"\n')
    report = run(project)
    assert report.passed and report.outcomes[0].record["vocabularies"][0]["name"] == "model"
    before = traces(project)
    assert run(project).compiled == 0 and traces(project) == before


def test_check_names_what_is_stale_and_writes_no_artifact(project: Path) -> None:
    run(project)
    (project / "out" / "date.stc").write_bytes(b"something else")
    (project / "out" / "flag.stc").unlink()
    before = traces(project / "out")
    shutil.rmtree(project / ".stcc-cache")
    found = command(project, "--check", code=1)
    assert found["stale"] == ["out/date.stc", "out/flag.stc"] and found["fresh"] == ["out/person.stc"] and not found["passed"]
    assert [target.get("reason") for target in found["targets"]] == ["differs", "missing", None]
    assert traces(project / "out") == before
    result = CliRunner().invoke(main, ["build", str(project / "stc.toml"), "--check"])
    assert result.exit_code == 1 and "out/date.stc: the artifact differs from what it would be built to\n" in result.output
    assert run(project).names("built") == ["out/date.stc", "out/flag.stc"]
    assert command(project, "--check")["stale"] == []


@pytest.mark.parametrize(("budget", "text"), [
    ("max_bytes = 100", "bytes are more than max_bytes = 100"),
    ("max_states = 3", "states are more than max_states = 3"),
    ("min_forced_share = 1.0", "is less than min_forced_share = 1"),
])
def test_a_budget_fails_the_build_and_keeps_the_artifact_back(project: Path, budget: str, text: str) -> None:
    (project / "stc.toml").write_text(f'{MANIFEST.replace("*.regex", "date.regex")}budgets = {{ {budget} }}\n')
    found = command(project, code=1)
    assert found["failed"] == ["out/date.stc"] and text in found["targets"][0]["error"]["message"]
    assert sorted(outputs(project)) == ["flag.stc", "person.stc"]


def test_unenforced_keywords_can_fail_the_build(project: Path) -> None:
    (project / "flag.schema.json").write_text('{"oneOf": [{"type": "array", "uniqueItems": true}, {"type": "array", "maxItems": 1}]}')
    (project / "stc.toml").write_text('options = {unenforced = "warn"}\nbudgets = {no_unenforced = true}\n' + MANIFEST)
    report = run(project)
    (outcome,) = [outcome for outcome in report.outcomes if outcome.target.name == "out/flag.stc"]
    assert outcome.record["unenforced"] and outcome.status == "failed" and outcome.error is not None
    assert "not enforced" in outcome.error["message"] and "not enforced in out/flag.stc" in markdown(report)


def test_a_source_that_cannot_be_compiled_fails_alone_and_is_not_tried_again(project: Path) -> None:
    (project / "flag.schema.json").write_text('{"type": "strange"}')
    found = command(project, code=1)
    assert found["failed"] == ["out/flag.stc"] and found["built"] == ["out/date.stc", "out/person.stc"]
    (failed,) = [target for target in found["targets"] if target["status"] == "failed"]
    assert failed["error"]["pointer"] == "#" and failed["error"]["keyword"] == "type"
    assert command(project, code=1)["compiled"] == 0
    result = CliRunner().invoke(main, ["build", str(project / "stc.toml")])
    assert result.exit_code == 1 and "out/flag.stc: # type" in result.output and "1 failed, 2 fresh" in result.output


def test_limits_of_time_are_tried_again(project: Path) -> None:
    (project / "stc.toml").write_text("options = {time_limit = 1e-9}\n" + MANIFEST)
    assert run(project).compiled == 3
    report = run(project)
    assert report.compiled == 3 and all((outcome.error or {}).get("error") == "BudgetError" for outcome in report.outcomes)
    (project / "stc.toml").write_text(MANIFEST)
    assert run(project).passed


def test_a_damaged_cache_costs_a_compile_only(project: Path) -> None:
    run(project)
    clean = outputs(project)
    entries = sorted((project / ".stcc-cache" / "entries").glob("*/*"))
    assert len(entries) == 3
    entries[0].write_bytes(b"not json")
    entries[1].write_bytes(entries[1].read_bytes()[:-1])
    entries[2].write_bytes(b"[]\n")
    shutil.rmtree(project / "out")
    report = run(project)
    assert report.compiled == 3 and outputs(project) == clean


def test_outputs_that_cannot_be_written_fail_alone(project: Path) -> None:
    (project / "taken").write_text("")
    long, inside = f"{'x' * 300}.stc", "taken/x.stc"
    (project / "stc.toml").write_text(MANIFEST + "".join(
        f'[[targets]]\nsource = "flag.schema.json"\noutput = "{name}"\n' for name in (long, inside)))
    report = run(project)
    assert sorted(report.names("failed")) == [inside, long] and len(report.names("built")) == 3
    for outcome in report.outcomes:
        if outcome.error is not None:
            assert outcome.error["hint"] and outcome.error["message"].startswith(str(project)), outcome.error


def test_the_cache_removes_its_own_only(project: Path) -> None:
    """A cache in a folder that holds other things, with names like its own."""
    (project / "stc.toml").write_text('cache = "."\n' + MANIFEST)
    kept = [project / "entries" / "ab" / "notes.txt", project / "entries" / "ab" / ".notes.tmp", project / "vocabularies" / ".x.tmp"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    stale, unfinished = project / "entries" / "ab" / ("ab" * 32), project / "entries" / "ab" / f".{'ab' * 32}.0123456789abcdef.tmp"
    stale.write_text("{}")
    unfinished.write_text("")
    assert run(project, prune=True).compiled == 3
    assert all(path.exists() for path in kept) and not stale.exists() and not unfinished.exists()
    assert run(project).compiled == 0


def test_no_cache_and_prune(project: Path) -> None:
    run(project)
    assert run(project, use_cache=False).compiled == 3
    (project / "flag.schema.json").write_text('{"type": "null"}')
    run(project, prune=True)
    assert len(list((project / ".stcc-cache" / "entries").glob("*/*"))) == 3


def test_a_source_that_changes_while_it_is_compiled_is_not_kept(project: Path) -> None:
    (target, *_) = read_manifest(project / "stc.toml").targets
    cache = Cache(project / "cache")
    job = Job(target, Inputs(cache.vocabularies).key(target), ((target.source, "0" * 64),), (), cache.folder)
    assert "changed while it was compiled" in run_job(job)["error"]["message"] and cache.record(job.key) is None


def crash_on_flag(job: Job) -> Record:
    """For workers: dies where the target is ``flag``, fails otherwise where it is ``date``."""
    if job.target.name.endswith("flag.stc"):
        os._exit(9)
    if job.target.name.endswith("date.stc"):
        raise KeyError("lost")
    return {"ran": job.target.name}


def test_a_process_that_dies_takes_its_own_job_only(project: Path) -> None:
    targets = read_manifest(project / "stc.toml").targets
    jobs = [Job(target, str(place), (), (), project) for place, target in enumerate(targets)]
    found = {job.target.name: record for job, record in run_all(jobs, 2, crash_on_flag)}
    assert found["out/flag.stc"]["error"]["error"] == "WorkerCrash"
    assert found["out/person.stc"] == {"ran": "out/person.stc"}
    assert found["out/date.stc"]["error"]["error"] == "KeyError" and "fault of stcc" in found["out/date.stc"]["error"]["message"]


def test_processes_give_the_same_bytes(project: Path) -> None:
    lines: list[str] = []
    run(project, processes=2, progress=lines.append)
    assert [line.split(":")[0] for line in lines] == ["1 of 3", "2 of 3", "3 of 3"]
    found = outputs(project)
    shutil.rmtree(project / "out")
    run(project, use_cache=False)
    assert outputs(project) == found


def start(project: Path, **environment: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", SOURCE, "build", str(project / "stc.toml"), "--jobs", "1"]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment})


def test_a_killed_build_converges(project: Path) -> None:
    for number in range(12):
        (project / f"s{number}.schema.json").write_text(json.dumps({"type": "string", "maxLength": 40 + number}))
    run(project)
    clean = outputs(project)
    shutil.rmtree(project / "out")
    shutil.rmtree(project / ".stcc-cache")
    chance = random.Random(7)
    for _ in range(4):
        building = start(project)
        deadline = time.monotonic() + 10  # until it has begun to compile, then a moment more
        while not list(project.glob(".stcc-cache/entries/*/*")) and building.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.1)
        building.kill()
        building.wait()
        for path in (project / "out").glob("*.stc"):
            assert path.read_bytes() == clean[path.name]  # whole, or not there
    (project / "out").mkdir(exist_ok=True)
    (project / "out" / ".flag.stc.0123456789abcdef.tmp").write_bytes(b"left by a killed build")
    assert run(project).passed
    assert outputs(project) == clean and not [path for path in project.rglob("*.tmp")]


def test_hash_seeds_do_not_matter(project: Path) -> None:
    (project / "person.schema.json").write_text(json.dumps({"oneOf": [PERSON, {"required": ["b", "a"]}], "unevaluatedProperties": False}))
    found = []
    for seed in ("0", "1"):
        assert start(project, PYTHONHASHSEED=seed).wait() == 0
        found.append(outputs(project))
        shutil.rmtree(project / "out")
        shutil.rmtree(project / ".stcc-cache")
    assert found[0] == found[1] and len(found[0]) == 3


def test_two_builds_at_once_take_turns(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()
    compiled = build_module._compile

    def slowly(*arguments: Any) -> int:
        entered.set()
        time.sleep(0.3)
        return compiled(*arguments)

    monkeypatch.setattr(build_module, "_compile", slowly)
    lines: list[str] = []
    reports: list[Report] = []
    first = threading.Thread(target=lambda: reports.append(run(project)))
    first.start()
    assert entered.wait(5)
    reports.append(run(project, progress=lines.append))
    first.join()
    assert [report.compiled for report in reports] == [3, 0] and "waiting for another build" in lines


def test_reports_are_written_where_asked(project: Path) -> None:
    (project / "stc.toml").write_text('report = "reports/build.json"\nsummary = "reports/build.md"\n' + MANIFEST)
    (project / "a|b_*.regex").write_text("x")
    command(project)
    found = json.loads((project / "reports" / "build.json").read_text())
    assert found["built"] == ["out/a|b_*.stc", "out/date.stc", "out/flag.stc", "out/person.stc"]
    assert {"name", "status", "bytes", "states", "forced_share", "sha256", "warnings", "unenforced"} <= found["targets"][0].keys()
    summary = (project / "reports" / "build.md").read_text()
    assert "### stcc build: passed" in summary and "| out/a\\|b\\_\\*.stc | built |" in summary


def test_reports_replace_no_input(project: Path) -> None:
    before = traces(project)
    for flag, file in (("--report", "stc.toml"), ("--summary", "person.schema.json"), ("--report", "out/flag.stc")):
        assert command(project, flag, str(project / file), code=1)["error"] == "SourceError"
    assert traces(project) == before


def test_the_summary_tells_how_sizes_changed(project: Path) -> None:
    run(project)
    before = (project / "out" / "flag.stc").stat().st_size
    (project / "flag.schema.json").write_text(json.dumps({"enum": [f"value {number * 7919}" for number in range(200)]}))
    report = run(project)
    row = next(line for line in markdown(report).splitlines() if line.startswith("| out/flag"))
    assert f"| {(project / 'out' / 'flag.stc').stat().st_size - before:+,} |" in row
    assert report_data(report)["targets"][1]["bytes_before"] == before


def test_the_summary_tells_how_the_language_changed(project: Path) -> None:
    run(project)
    (project / "date.regex").write_text("[0-9]{4}-[0-9]{2}`?")
    (project / "flag.schema.json").write_text('{"enum": [true, false]}')
    for check in (True, False):
        report = run(project, check=check)
        found = {target["name"]: target.get("change") for target in report_data(report)["targets"]}
        assert found["out/date.stc"] == {"relation": "wider", "exact": True, "only_old": None, "only_new": "0000-00`"}
        assert found["out/flag.stc"] == {"relation": "equal", "exact": True, "only_old": None, "only_new": None}
        assert found["out/person.stc"] is None
        lines = markdown(report).splitlines()
        assert "- out/date.stc is now **wider**: only new `` 0000-00` ``" in lines and "- out/flag.stc is now **equal**" in lines
    (project / "out" / "date.stc").write_bytes(b"not an artifact")
    assert run(project).outcomes[0].change is None


def test_a_vocabulary_listed_twice_is_refused(project: Path) -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b""], [1])
    vocabulary.save(project / "v.stv")
    (project / "stc.toml").write_text('vocabularies = ["v.stv", "v.stv"]\n' + MANIFEST)
    report = run(project)
    assert len(report.names("failed")) == 3 and "listed twice" in str(report.outcomes[0].error)


def test_without_a_manifest_the_nearest_is_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "inner").mkdir()
    monkeypatch.chdir(project / "inner")
    result = CliRunner().invoke(main, ["build", "--jobs", "1"])
    assert result.exit_code == 0 and "3 built" in result.output
    monkeypatch.chdir(project.parent)


# -- the documentation --------------------------------------------------------------------------------------------------------


def test_the_documented_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for sizes and seconds, which change with the compiler."""
    text = (ROOT / "docs" / "build.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    first, second = re.findall(r"```toml\n((?:.*\n)*?)```", text)
    (tmp_path / "stc.toml").write_text(second)
    blocks = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", text)
    assert [command for command, _ in blocks] == ["stcc build", "stcc build --check"]
    for command, shown in blocks:
        result = CliRunner().invoke(main, [*command.split()[1:], "--jobs", "1"])
        assert result.exit_code == 1 and re.sub(r"[\d,.]+", "0", result.output) == re.sub(r"[\d,.]+", "0", shown)
    for folder in ("schemas/drafts", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    for name, copied in (("schemas/a.schema.json", "person.schema.json"), ("schemas/drafts/b.schema.json", "person.schema.json"),
                         ("tools/agents.tools.json", "agents.tools.json")):
        shutil.copy(ROOT / "samples" / copied, tmp_path / name)
    Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b""], [256]).save(tmp_path / "qwen3.stv")
    (tmp_path / "stc.toml").write_text(first)
    assert [target.name for target in read_manifest(tmp_path / "stc.toml").targets] == ["artifacts/a.stc", "artifacts/agents.stc"]
