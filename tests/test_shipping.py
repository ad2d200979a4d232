"""What is shipped: the wheel, completion, the samples for pre-commit and GitHub, the workflow and the pages of the site."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from stcc.formats.container import VERSION as FORMAT
from stcc.runtime.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STCC = [sys.executable, "-c", "from stcc.runtime.cli import main; main()"]
_ALLOWED = ("numpy", "msgpack", "stcc")
_IMPORT_ONLY = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.split('.')[0]
        if root not in sys.stdlib_module_names and root not in {_ALLOWED!r}:
            raise ModuleNotFoundError(f'{{name}} is not allowed here', name=name)
sys.meta_path.insert(0, Refuse())
import stcc.runtime
grammar = stcc.runtime.load(sys.argv[1])
matcher = grammar.matcher()
assert matcher.accept_bytes(b'ab') and matcher.is_accepting()
print(stcc.runtime.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the tree."""
    source = tmp_path_factory.mktemp("source")
    for room in ("formats", "compiler", "runtime"):
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(target), str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode and "setuptools" in built.stderr:
        pytest.skip("building needs setuptools>=77 in this environment: pip install '.[test]'")
    assert built.returncode == 0, built.stderr
    (found,) = target.glob("*.whl")
    return found


def test_the_wheel_is_pure_python_and_whole(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
        metadata = archive.read(next(name for name in held if name.endswith("METADATA"))).decode()
    files = [path for room in ("formats", "compiler", "runtime") for path in (ROOT / room).rglob("*")]
    wanted = {f"stcc/{path.relative_to(ROOT).as_posix()}" for path in files
              if path.suffix in (".py", ".metal") or path.name in ("py.typed", "SPEC.md")}
    assert wanted <= held
    assert not [name for name in held if name.endswith((".so", ".pyc")) or "test" in name.split("/")[0]]
    thin = [line for line in re.findall("Requires-Dist: (.*)", metadata) if "extra ==" not in line]
    assert sorted(re.split(r"[<>=;]", line)[0] for line in thin) == ["msgpack", "numpy"]


def test_the_installed_wheel_decodes_with_numpy_and_msgpack_alone(wheel: Path, tmp_path: Path) -> None:
    from stcc.compiler import compile_regex

    compile_regex("a(b|c)").save(tmp_path / "x.stc")
    install = ["install", "--quiet", "--no-deps", "--target", str(tmp_path / "lib"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    found = subprocess.run([sys.executable, "-c", _IMPORT_ONLY, str(tmp_path / "x.stc")], capture_output=True, text=True, cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")})
    assert found.returncode == 0, found.stderr
    assert str(tmp_path / "lib") in found.stdout


NOT_YET = ("hashlib", "secrets", "random", "pathlib", "urllib.parse", "ipaddress", "threading", "asyncio", "subprocess", "tempfile",
           "stcc.compiler", "stcc.formats.policy", "stcc.formats.policy_sections", "stcc.runtime.sampling", "stcc.runtime.seam",
           "stcc.runtime.unique_matcher", "stcc.runtime.unique_items", "stcc.runtime.json_values", "stcc.runtime.decoding",
           "stcc.runtime.exact")
"""What takes a while to import and is imported where it is needed."""


def test_importing_the_runtime_imports_little_else(tmp_path: Path) -> None:
    """Beyond what numpy and msgpack import. Loading an artifact and masks take none of it, either, but for the digest of a vocabulary."""
    from stcc.compiler import bind, compile_regex
    from stcc.formats import Vocabulary

    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"ab", b""], [3])
    bind(compile_regex("a(b|c)"), vocabulary).save(tmp_path / "x.stc")
    vocabulary.save(tmp_path / "x.stv")
    script = ("import sys, numpy, msgpack\nbefore = set(sys.modules)\nimport stcc.runtime\n"
              "imported = set(sys.modules)\nfrom stcc.formats import Vocabulary\n"
              "grammar = stcc.runtime.load('x.stc', vocabulary=Vocabulary.load('x.stv'))\n"
              "assert grammar.matcher().allowed_tokens().tolist() == [0, 2]\n"
              "import json\nprint(json.dumps([sorted(imported - before), sorted(set(sys.modules) - before)]))\n")
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    imported, used = json.loads(shown)
    assert "stcc.runtime.matcher" in imported and not set(NOT_YET) & set(imported)
    assert set(NOT_YET) & set(used) <= {"hashlib"}


def test_what_is_imported_late_is_there() -> None:
    script = "import stcc.runtime\nfrom stcc.runtime import *\nassert random_output is stcc.runtime.random_output\nstcc.runtime.nothing"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "AttributeError: module 'stcc.runtime' has no attribute 'nothing'" in found.stderr


# -- the command line ------------------------------------------------------------------------------------------------------


def test_the_version_names_the_format() -> None:
    shown = CliRunner().invoke(main, ["--version"]).output
    assert shown == f"stcc, version {PROJECT['project']['version']}, .stc and .stv format {FORMAT}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0 and f"_STCC_COMPLETE={shell}_complete" in script.output
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.output, text=True, check=True)


def test_completion_knows_commands_and_flags(tmp_path: Path) -> None:
    def completed(words: str) -> list[str]:
        environment = {**os.environ, "_STCC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        run = [sys.executable, "-c", "import sys; sys.argv[0] = 'stcc'; from stcc.runtime.cli import main; main(prog_name='stcc')"]
        shown = subprocess.run(run, env=environment, capture_output=True, text=True, cwd=tmp_path).stdout
        return [line.split(",", 1)[1] for line in shown.splitlines()]

    assert completed("stcc expl") == ["explain"]
    assert completed("stcc compile --white") == ["--whitespace"]


# -- samples for CI --------------------------------------------------------------------------------------------------------


def document(*parts: str) -> Any:
    return yaml.safe_load((ROOT.joinpath(*parts)).read_text(encoding="utf-8"))


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a workflow in a shell whose ``stcc`` is the one under test."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    (tools / "stcc").write_text(f"#!/bin/sh\nexec {shlex.join(STCC)} \"$@\"\n")
    (tools / "stcc").chmod(0o755)
    return subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", **environment})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "flag.schema.json").write_text('{"type": "boolean"}')
    (tmp_path / "stc.toml").write_text("[[targets]]\nsource = \"schemas/*.schema.json\"\n")
    (tmp_path / ".gitignore").write_text(".tools/\n.stcc-cache/\n")
    return tmp_path


def test_the_pre_commit_hooks_do_what_they_say(project: Path) -> None:
    hooks = {hook["id"]: hook for hook in document(".pre-commit-hooks.yaml")}
    assert set(hooks) == {"stcc-build", "stcc-check"}
    for hook in hooks.values():
        assert hook["language"] == "python" and hook["entry"].startswith("stcc ") and re.compile(hook["files"])
    assert shell(hooks["stcc-check"]["entry"], project).returncode == 1, "nothing is built yet"
    assert shell(hooks["stcc-build"]["entry"], project).returncode == 0
    assert shell(hooks["stcc-check"]["entry"], project).returncode == 0
    (project / "schemas" / "flag.schema.json").write_text('{"type": "null"}')
    stale = shell(hooks["stcc-check"]["entry"], project)
    assert stale.returncode == 1 and "flag" in stale.stdout + stale.stderr
    assert all(re.search(hooks["stcc-check"]["files"], name) for name in ("stc.toml", "a/b.schema.json", "x.regex", "t.tools.json"))


def test_the_action_checks_builds_and_schema_changes(project: Path) -> None:
    action = document("samples", "ci", "action.yml")
    steps = {step["name"]: step["run"] for step in action["runs"]["steps"] if "run" in step}
    assert all(step["shell"] == "bash" for step in action["runs"]["steps"] if "run" in step)
    assert set(steps) == {"Install stcc", "Check that artifacts are fresh", "Compare schemas with the base"}
    assert shell("stcc build", project).returncode == 0
    summary = project / "summary.md"
    checked = shell(steps["Check that artifacts are fresh"], project, GITHUB_STEP_SUMMARY=str(summary), MANIFEST="stc.toml")
    assert checked.returncode == 0, checked.stderr
    assert "flag" in summary.read_text()
    commit = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm base"
    assert shell(commit, project).returncode == 0
    (project / "schemas" / "flag.schema.json").write_text('{"type": ["boolean", "null"]}')
    compare = steps["Compare schemas with the base"]
    wider = shell(compare, project, BASE="HEAD", REQUIRE="wider", GITHUB_STEP_SUMMARY=str(summary))
    assert wider.returncode == 0, wider.stdout + wider.stderr
    assert "wider" in summary.read_text()
    narrower = shell(compare, project, BASE="HEAD", REQUIRE="narrower", GITHUB_STEP_SUMMARY=str(summary))
    assert narrower.returncode == 1 and "schemas/flag.schema.json" in narrower.stdout


def test_the_workflow_runs_what_the_project_asks_for() -> None:
    jobs = document(".github", "workflows", "ci.yml")["jobs"]
    lines = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert ".ci/run" in lines["checks"] and "tests/test_device.py" in lines["metal"] and "python -m build" in lines["wheel"]
    assert jobs["metal"]["runs-on"].startswith("macos")
    named = re.findall(r"tests/[\w/]+\.py", "\n".join(lines.values()))
    assert named and all((ROOT / name).exists() for name in named)


def test_the_site_has_every_page() -> None:
    def pages(part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [page for inner in (part.values() if isinstance(part, dict) else part) for page in pages(inner)]

    site = document("mkdocs.yml")
    listed = [page for page in pages(site["nav"]) if page.endswith(".md")]
    assert sorted(listed) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert len(set(listed)) == len(listed)


def test_json_is_json() -> None:
    """The samples are read by other tools, too."""
    for path in sorted((ROOT / "samples").rglob("*.json")):
        json.loads(path.read_text(encoding="utf-8"))
