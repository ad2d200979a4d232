"""stcc diff on the command line: reports, exit codes, and sources of every kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stcc.compiler import compile_json_schema
from stcc.runtime.cli import main

OLD = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["age"],
       "additionalProperties": False}
NEW = {**OLD, "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 130.0}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.schema.json").write_text(json.dumps(OLD))
    (tmp_path / "new.schema.json").write_text(json.dumps(NEW))
    (tmp_path / "a.regex").write_text("a+\n")
    (tmp_path / "b.regex").write_text("a*\n")
    return tmp_path


def run(folder: Path, *arguments: str, code: int = 0) -> Result:
    named = [str(folder / argument) if "." in argument and not argument.startswith("-") else argument for argument in arguments]
    result = CliRunner().invoke(main, ["diff", *named])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def reported(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    found = json.loads(run(folder, *arguments, "--json", code=code).stdout)
    assert isinstance(found, dict)
    return found


def test_report(folder: Path) -> None:
    found = reported(folder, "old.schema.json", "new.schema.json")
    assert (found["relation"], found["exact"], found["only_old"], found["only_new"]) == ("wider", True, None, '{"age":121}')
    assert found["places"] == {"only_new": {
        "offset": 9, "instance": "/age", "old": ["#/properties/age"], "new": ["#/properties/age"],
        "changes": [{"pointer": "#/properties/age", "keyword": "maximum", "old": 120, "new": 130}]}}
    assert found["old"]["kind"] == found["new"]["kind"] == "json_schema"


def test_text_for_people(folder: Path) -> None:
    lines = run(folder, "new.schema.json", "old.schema.json").output.splitlines()
    assert lines == ["narrower: OLD accepts all that NEW does, and more", 'only old  {"age":121}', "          NEW refuses byte 9, at /age",
                     "          #/properties/age maximum: 130 -> 120"]
    assert run(folder, "a.regex", "a.regex").output == "equal: both accept the same texts\n"
    assert "only new  the empty text\n          OLD may not end there" in run(folder, "a.regex", "b.regex").output


@pytest.mark.parametrize(("old", "new", "required", "code"), [
    ("old", "new", "wider", 0), ("old", "new", "equal", 1), ("old", "new", "narrower", 1), ("new", "old", "narrower", 0),
    ("old", "old", "equal", 0), ("old", "old", "wider", 0), ("old", "old", "narrower", 0),
])
def test_require(folder: Path, old: str, new: str, required: str, code: int) -> None:
    arguments = (f"{old}.schema.json", f"{new}.schema.json", "--require", required)
    assert reported(folder, *arguments, code=code)["met"] is (code == 0)
    assert (f"not {required}" in run(folder, *arguments, code=code).output) is (code == 1)


def test_artifacts_have_no_schema_but_a_text(folder: Path) -> None:
    compile_json_schema(OLD).save(folder / "old.stc")
    found = reported(folder, "old.stc", "new.schema.json")
    assert (found["relation"], found["only_new"]) == ("wider", '{"age":121}')
    assert found["places"]["only_new"] == {"offset": 9, "instance": "/age", "old": [], "new": [], "changes": []}


def test_options_are_those_of_compile(folder: Path) -> None:
    (folder / "open.schema.json").write_text(json.dumps({key: value for key, value in OLD.items() if key != "additionalProperties"}))
    assert reported(folder, "old.schema.json", "open.schema.json")["relation"] == "wider"
    assert reported(folder, "old.schema.json", "open.schema.json", "--closed")["relation"] == "equal"
    compile_json_schema(OLD).save(folder / "old.stc")
    found = reported(folder, "old.stc", "old.schema.json", "--whitespace", "flexible")
    assert found["relation"] == "wider" and json.loads(found["only_new"]) == {"age": 0}


@pytest.mark.parametrize(("files", "flags", "message"), [
    (("old.stc", "old.stc"), ("--closed",), "--closed is for sources"), (("old.stc", "old.stc"), ("--dialect", "ecma"), "--dialect is for"),
    (("old.stc", "old.stc"), ("--max-states", "9"), "--max-states is for sources"),
    (("a.regex", "b.regex"), ("--whitespace", "spaced"), "means nothing for a pattern"),
    (("a.regex", "old.stc"), ("--formats", "annotate"), "means nothing for a pattern"),
    (("old.schema.json", "new.schema.json"), ("--dialect", "ecma"), "ecma is not a dialect of json_schema"),
])
def test_flags_that_would_change_nothing_are_refused(folder: Path, files: tuple[str, str], flags: tuple[str, ...], message: str) -> None:
    compile_json_schema(OLD).save(folder / "old.stc")
    assert message in run(folder, *files, *flags, code=2).output


def test_flags_that_mean_something_to_one_side_are_taken(folder: Path) -> None:
    compile_json_schema(OLD).save(folder / "old.stc")
    assert reported(folder, "old.stc", "old.schema.json", "--closed")["relation"] == "equal"
    assert reported(folder, "a.regex", "old.schema.json", "--whitespace", "spaced", "--dialect", "ecma")["relation"] == "incomparable"
    assert reported(folder, "old.stc", "old.stc", "--time-limit", "5")["relation"] == "equal"


def test_patterns_have_offsets_only(folder: Path) -> None:
    found = reported(folder, "b.regex", "a.regex")
    assert (found["relation"], found["only_old"], found["places"]) == ("narrower", "", {"only_old": {"offset": 0}})


def test_errors(folder: Path) -> None:
    (folder / "bad.schema.json").write_text("{")
    assert reported(folder, "bad.schema.json", "new.schema.json", code=1)["error"] == "SourceError"
    (folder / "bad.stc").write_bytes(b"nothing")
    assert "error:" in CliRunner().invoke(main, ["diff", str(folder / "bad.stc"), str(folder / "a.regex")]).output
    assert run(folder, "a.regex", "none.regex", code=2).exit_code == 2
    (folder / "big.regex").write_text("(?:a|b){900}a(?:a|b){8}")
    found = reported(folder, "big.regex", "a.regex", "--time-limit", "1e-9", code=1)
    assert found["error"] == "BudgetError"


def test_the_documented_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "diff.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```json\n((?:.*\n)*?)```", text):
        (tmp_path / json.loads(block)["$comment"]).write_text(block)
    blocks = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", text)
    assert len(blocks) == 2
    for command, shown in blocks:
        assert CliRunner().invoke(main, command.split()[1:]).output == shown
