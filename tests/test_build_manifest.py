"""The manifest of stcc build: what it means, and that every mistake in one is an error that names its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from stcc.compiler.building.budgets import Budgets
from stcc.compiler.building.manifest import Manifest, find_manifest, read_manifest
from stcc.compiler.errors import SourceError
from stcc.runtime.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("schemas/a.schema.json", "schemas/deep/b.json", "schemas/deep/draft.json", "zip.regex", "calls.tools.json", "base.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path


def read(folder: Path, text: str, name: str = "stc.toml") -> Manifest:
    file = folder / name
    file.write_text(text)
    return read_manifest(file)


def refused(folder: Path, text: str, name: str = "stc.toml") -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(folder, text, name)
    assert caught.value.source == str(folder / name) and caught.value.hint
    return caught.value


def test_targets_take_what_they_leave_out_from_the_manifest(folder: Path) -> None:
    manifest = read(folder, """
        output = "artifacts"
        report = "report.json"
        options = { whitespace = "flexible", max_states = 500, dialect = "ecma" }
        budgets = { max_bytes = 4000, min_forced_share = 0 }
        [schemas]
        "https://example.com/base.json" = "base.json"
        [[targets]]
        source = "schemas/**/*.json"
        exclude = "schemas/**/draft*"
        budgets = { max_states = 90 }
        [[targets]]
        source = ["zip.regex", "calls.tools.json"]
        options = { whitespace = "spaced" }
        output = "other"
    """)
    assert [target.name for target in manifest.targets] == ["artifacts/a.stc", "artifacts/deep/b.stc", "other/calls.stc", "other/zip.stc"]
    schema, _, tools, pattern = manifest.targets
    assert schema.options.whitespace == "flexible" and schema.options.max_states == 500 and schema.options.dialect == ""
    assert schema.budgets == Budgets(max_bytes=4000, max_states=90, min_forced_share=0)
    assert schema.documents == {"https://example.com/base.json": folder / "base.json"}
    assert (tools.kind, tools.options.whitespace) == ("tools", "spaced")
    assert (pattern.kind, pattern.options.dialect, pattern.options.whitespace) == ("regex", "ecma", "compact")
    assert manifest.report == folder / "report.json" and manifest.summary is None and manifest.cache == folder / ".stcc-cache"


def test_one_source_may_name_its_output(folder: Path) -> None:
    (target,) = read(folder, '[[targets]]\nsource = "base.json"\noutput = "out/person.stc"\nkind = "json_schema"').targets
    assert (target.output, target.name) == (folder / "out" / "person.stc", "out/person.stc")


def test_tools_are_spaced_unless_told_otherwise(folder: Path) -> None:
    (target,) = read(folder, '[[targets]]\nsource = "calls.tools.json"').targets
    assert target.options.whitespace == "spaced"


def test_pyproject(folder: Path) -> None:
    text = '[project]\nname = "x"\n[tool.stcc]\noutput = "o"\n[[tool.stcc.targets]]\nsource = "zip.regex"\n'
    assert read(folder, text, "pyproject.toml").targets[0].name == "o/zip.stc"
    inner = folder / "schemas" / "deep"
    assert find_manifest(inner) == folder / "pyproject.toml"
    (folder / "stc.toml").write_text("")
    assert find_manifest(inner) == folder / "stc.toml"
    error = refused(folder, '[tool.stcc]\noutptu = "o"\n[[tool.stcc.targets]]\nsource = "zip.regex"\n', "pyproject.toml")
    assert (error.pointer, error.hint) == ("tool.stcc.outptu", "did you mean output?")


def test_a_pyproject_without_a_table_is_no_manifest(folder: Path) -> None:
    assert "no [tool.stcc] table" in refused(folder, "[tool.ruff]\n", "pyproject.toml").message
    with pytest.raises(SourceError, match="there is no manifest here or above"):
        find_manifest(folder)


@pytest.mark.parametrize(("text", "pointer", "message"), [
    ("[[targets", "", "it is not TOML"),
    ("", "targets", "there are no targets"),
    ("targets = 3", "targets", "it is not a list"),
    ("targets = [3]", "targets[0]", "it is not a table"),
    ("[[targets]]\n", "targets[0].source", "has no source"),
    ('[[targets]]\nsource = 3', "targets[0].source", "not a string or a list of strings"),
    ('[[targets]]\nsource = "nothing.json"', "targets[0].source", "there is no file nothing.json"),
    ('[[targets]]\nsource = "*.nothing"', "targets[0].source", "no file matches"),
    ('[[targets]]\nsource = "schemas"', "targets[0].source", "is not a file"),
    ('[[targets]]\nsource = "stc.toml"', "targets[0].source", "does not tell the kind"),
    ('[[targets]]\nsource = "base.json"\nkind = "yaml"', "targets[0].kind", "not a kind of source"),
    ('[[targets]]\nsource = "base.json"\nsuorce = 1', "targets[0].suorce", "no such key"),
    ('[[targets]]\nsource = "base.json"\n[targets.options]\nwhitespace = "wide"', "targets[0].options", "whitespace='wide'"),
    ('[[targets]]\nsource = "base.json"\n[targets.options]\nmax_states = "many"', "targets[0].options.max_states", "not a whole number"),
    ('[[targets]]\nsource = "base.json"\n[targets.options]\nmax_states = true', "targets[0].options.max_states", "not a whole number"),
    ('[[targets]]\nsource = "base.json"\n[targets.options]\nmax_states = 0', "targets[0].options", "must be positive"),
    ('[[targets]]\nsource = "base.json"\n[targets.options]\ndialect = "ecma"', "targets[0].options.dialect", "not a dialect of"),
    ('[[targets]]\nsource = "zip.regex"\n[targets.options]\nwhitespace = "spaced"', "targets[0].options.whitespace", "means nothing"),
    ('[[targets]]\nsource = "base.json"\n[targets.budgets]\nmax_bytes = -1', "targets[0].budgets.max_bytes", "not a number from 0"),
    ('[[targets]]\nsource = "base.json"\n[targets.budgets]\nmin_forced_share = 40', "targets[0].budgets.min_forced_share", "a share"),
    ('[[targets]]\nsource = "base.json"\nvocabularies = "gone.stv"', "targets[0].vocabularies", "no file gone.stv"),
    ('[[targets]]\nsource = ["base.json", "schemas/deep/b.json"]\noutput = "o"\n[[targets]]\nsource = "base.json"\noutput = "o"',
     "targets", "base.json and base.json are both written to o/base.stc"),
    ('[[targets]]\nsource = ["schemas/deep/b.json", "link/schemas/deep/b.json"]', "targets",
     "link/schemas/deep/b.json and schemas/deep/b.json are both written to b.stc"),
    ('[schemas]\nu = "gone.json"\n[[targets]]\nsource = "base.json"', "schemas.u", "no file gone.json"),
    ('[schemas]\nu = "schemas"\n[[targets]]\nsource = "base.json"', "schemas.u", "schemas is not a file"),
    ('[[targets]]\nsource = "**a/*.json"', "targets[0].source", "a whole part of a path"),
    ('[[targets]]\nsource = "schemas/**.json"', "targets[0].source", "a whole part of a path"),
    ('[[targets]]\nsource = "/schemas/*.json"', "targets[0].source", "is absolute"),
    ('[[targets]]\nsource = "*.json"\nexclude = "/a/*"', "targets[0].exclude", "is absolute"),
    ('[[targets]]\nsource = "a\\u0000*.json"', "targets[0].source", "no NUL"),
    ('output = "a\\u0000"\n[[targets]]\nsource = "base.json"', "output", "no NUL"),
    ('cache = "a\\u0000"\n[[targets]]\nsource = "base.json"', "cache", "no NUL"),
    ('report = "base.json"\n[[targets]]\nsource = "base.json"', "report", "base.json is read by this build"),
    ('summary = "stc.toml"\n[[targets]]\nsource = "base.json"', "summary", "stc.toml is read by this build"),
    ('report = "base.stc"\n[[targets]]\nsource = "base.json"', "report", "both written to base.stc"),
    ('report = "x"\nsummary = "./x"\n[[targets]]\nsource = "base.json"', "summary", "the report and the summary are both written to x"),
    ('[[targets]]\nsource = "base.json"\noutput = "a.stc"\n[[targets]]\nsource = "zip.regex"\noutput = "link/a.stc"', "targets",
     "zip.regex are both written to link/a.stc"),
    ('[[targets]]\nsource = "none.openapi.json"', "targets[0].source", "has no operations"),
])
def test_mistakes_are_named(folder: Path, text: str, pointer: str, message: str) -> None:
    (folder / "none.openapi.json").write_text('{"openapi": "3.1.0", "paths": {}}')
    (folder / "link").symlink_to(folder)
    error = refused(folder, text)
    assert error.pointer == pointer and message in str(error)


def test_an_output_is_no_input(folder: Path) -> None:
    (folder / "a.stc").write_text("[0-9]")
    error = refused(folder, '[[targets]]\nsource = "a.stc"\nkind = "regex"\noutput = "a.stc"')
    assert "is read by this build" in error.message


def test_an_output_is_not_the_manifest(folder: Path) -> None:
    error = refused(folder, '[[targets]]\nsource = "base.json"\noutput = "m.stc"', "m.stc")
    assert error.message == "m.stc is read by this build"


def test_what_is_read_is_a_file_that_stays(folder: Path) -> None:
    """A pipe would be waited for, and would be empty the second time."""
    os.mkfifo(folder / "pipe.json")
    for text in ('[[targets]]\nsource = "pipe.json"', '[schemas]\nu = "pipe.json"\n[[targets]]\nsource = "base.json"',
                 'vocabularies = "pipe.json"\n[[targets]]\nsource = "base.json"'):
        assert "pipe.json is not a file" in refused(folder, text).message


def test_names_are_text(folder: Path) -> None:
    try:
        (folder / os.fsdecode(b"schemas/\xff.json")).write_text("{}")
    except OSError:
        pytest.skip("this file system refuses such names")
    assert "\\xff.json' is not UTF-8 text" in refused(folder, '[[targets]]\nsource = "schemas/*.json"').message


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nstcc = 3"])
def test_a_pyproject_that_is_none(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(folder, text, "pyproject.toml")
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, ["build"])
    assert result.exit_code == 1 and "it is not a table" in result.output


def test_budgets_say_what_is_exceeded() -> None:
    facts = {"bytes": 2000, "states": 30, "forced_share": 0.25, "unenforced": [{"pointer": "#/a", "keyword": "not", "message": "m"}]}
    assert Budgets(2000, 30, 0.25).exceeded(facts) == []
    found = Budgets(1999, 29, 0.26, True).exceeded(facts)
    assert [line.split(" ")[0] for line in found] == ["2,000", "30", "a", "1"] and "#/a not" in found[3]
