"""Builds: how long ``stcc build`` takes when all is new, when nothing changed, and after one edit; and that it keeps its promises.

    python benchmarks/build.py [--quick] [--json OUT] [--cases FILE.jsonl[.gz]] [--count 300] [--jobs N] [--interpreter PYTHON]

Cases are lines of MaskBench (``schema``), every n-th of the file; without one, schemas are generated. Each build is a process of its own,
as in CI, timed from start to end. Checked as well, and said if broken: a second build touches nothing; one edit compiles one; builds that
are killed at random points end with the bytes of one that was not; hash seeds 0 to 4, and ``--interpreter`` if given (one that can import
stcc), write the same bytes. ``--quick`` takes 20 schemas.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BUILD = """
import json, pathlib, sys
from stcc.compiler.building.build import build
from stcc.compiler.building.manifest import read_manifest
from stcc.compiler.building.report import report_data
if __name__ == "__main__":
    found = build(read_manifest(pathlib.Path(sys.argv[1])), processes=int(sys.argv[2]))
    print(json.dumps(report_data(found)))
"""
SEEDS = range(5)
KILLS = 6


def generated(number: int) -> dict[str, Any]:
    """A schema of some fields."""
    fields = {f"field_{place}": {"type": ["string", "integer"][place % 2]} for place in range(2 + number % 9)}
    return {"type": "object", "title": f"generated {number}", "properties": fields, "required": ["field_0"]}


def write_cases(folder: Path, cases: Path | None, count: int) -> None:
    """``count`` schemas as files of ``folder``."""
    folder.mkdir()
    if cases is None:
        found = [generated(number) for number in range(count)]
    else:
        with gzip.open(cases, "rt") if cases.suffix == ".gz" else open(cases, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found = [row["schema"] for row in rows[::max(1, len(rows) // count)][:count]]
    for number, schema in enumerate(found):
        (folder / f"{number:04}.schema.json").write_text(json.dumps(schema), encoding="utf-8")


class Project:
    """A folder with a manifest, built by processes of its own."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self.script, self.manifest = folder / "run_build.py", folder / "stc.toml"
        self.script.write_text(BUILD)
        self.manifest.write_text('output = "out"\n[[targets]]\nsource = "schemas/*.json"\n')

    def start(self, interpreter: str = sys.executable, **environment: str) -> subprocess.Popen[str]:
        """A build under way."""
        command = [interpreter, str(self.script), str(self.manifest), str(self.jobs)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, start_new_session=True)

    def build(self, interpreter: str = sys.executable, **environment: str) -> tuple[float, dict[str, Any]]:
        """Seconds and report of a build."""
        started = time.perf_counter()
        text, _ = self.start(interpreter, **environment).communicate()
        return time.perf_counter() - started, json.loads(text)

    def clean(self) -> None:
        """Forget everything that was built."""
        for name in ("out", ".stcc-cache"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def digest(self) -> str:
        """One digest of all artifacts and their names."""
        digest = hashlib.sha256()
        for path in sorted((self.folder / "out").glob("**/*")):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def traces(self) -> dict[str, tuple[int, int]]:
        """Inode and time of change of every artifact and cache entry."""
        files = [path for name in ("out", ".stcc-cache") for path in (self.folder / name).rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def times(project: Project) -> tuple[dict[str, Any], list[str]]:
    """Seconds of a first build, one with nothing to do, one after an edit, and one of outputs lost; and broken promises."""
    broken = []
    first, report = project.build()
    before = project.traces()
    second, again = project.build()
    if project.traces() != before or again["compiled"]:
        broken.append("a second build touched something")
    edited = sorted((project.folder / "schemas").iterdir())[0]
    text = edited.read_text()
    edited.write_text('{"type": "boolean"}')
    one, after = project.build()
    if after["compiled"] != 1 or len(after["built"]) != 1:
        broken.append(f"one edit compiled {after['compiled']}")
    edited.write_text(text)
    project.build()
    shutil.rmtree(project.folder / "out")
    restored, _ = project.build()
    found = {"first": first, "nothing_to_do": second, "one_edit": one, "outputs_lost": restored, "built": len(report["built"]),
             "refused": len(report["failed"]), "bytes": sum(target.get("bytes", 0) for target in report["targets"])}
    return found, broken


def killed(project: Project, expected: str, seconds: float, chance: random.Random) -> tuple[int, list[str]]:
    """Kill builds at random points of their time, then let one end: how many were under way, and what is not as expected."""
    project.clean()
    hit = 0
    for _ in range(KILLS):
        building = project.start()
        time.sleep(chance.random() * seconds / 2)  # each goes on where the last was killed
        hit += building.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(building.pid, 9)  # the build and its workers, a session that was started here
        building.communicate()
    project.build()
    broken = [] if project.digest() == expected else ["killed builds ended with other bytes"]
    return hit, broken + (["unfinished files are left"] if list(project.folder.rglob("*.tmp")) else [])


def same_bytes(project: Project, expected: str, interpreter: str | None) -> list[str]:
    """Hash seeds and another interpreter."""
    broken = []
    for seed in SEEDS:
        project.clean()
        project.build(PYTHONHASHSEED=str(seed))
        if project.digest() != expected:
            broken.append(f"PYTHONHASHSEED={seed} gave other bytes")
    if interpreter is not None:
        project.clean()
        project.build(interpreter)
        if project.digest() != expected:
            broken.append(f"{interpreter} gave other bytes")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--interpreter")
    arguments = parser.parse_args()
    count = arguments.count or (20 if arguments.quick else 300)
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name), arguments.jobs)
        write_cases(project.folder / "schemas", arguments.cases, count)
        found, broken = times(project)
        expected = project.digest()
        found["killed"], unlike = killed(project, expected, found["first"], random.Random(0))
        broken += unlike + same_bytes(project, expected, arguments.interpreter)
    print(f"{found['built']} built, {found['refused']} refused, {found['bytes']:,} bytes, {arguments.jobs} processes")
    for key, text in (("first", "everything is new"), ("nothing_to_do", "nothing changed"), ("one_edit", "one source changed"),
                      ("outputs_lost", "the outputs were removed, the cache was not")):
        print(f"{text:45} {found[key]:8.2f} s")
    others = f"hash seeds 0 to {SEEDS[-1]}" + (f", {arguments.interpreter}" if arguments.interpreter else "")
    kept = f"promises kept: a second build touches nothing, one edit compiles one, {found['killed']} kills, {others}"
    print(kept if not broken else "BROKEN: " + "; ".join(broken))
    if arguments.json:
        about = {"machine": platform.platform(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({**about, **found, "broken": broken}))
    if broken:
        sys.exit(1)


if __name__ == "__main__":
    main()
