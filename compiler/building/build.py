"""A build: plan, compile what is stale, install; or only check.

In: a manifest. Out: a ``Report``. Afterwards each output holds exactly what its source, options, vocabularies and this compiler make of
it, except for the targets that failed, whose outputs are as they were. An output whose bytes are right is not written again, so that a
second build touches nothing. Everything on disk is replaced in one step and keyed by content: a build that is killed anywhere and run
again ends with the same bytes. Cost of a build that finds nothing to do: hashing the inputs and the outputs.
"""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stcc.compiler.building.cache import Cache, Record
from stcc.compiler.building.changes import language_change
from stcc.compiler.building.inputs import Inputs, file_digest
from stcc.compiler.building.lock import held
from stcc.compiler.building.manifest import Manifest, Target
from stcc.compiler.building.work import Job, plain_error
from stcc.compiler.building.workers import run_all
from stcc.compiler.errors import CompileError
from stcc.formats import FormatError
from stcc.formats.container import write_atomic

FRESH, BUILT, STALE, FAILED = "fresh", "built", "stale", "failed"


@dataclass
class Outcome:
    """What became of one target.

    Attributes:
        target: it.
        status: ``fresh`` (the file was right), ``built`` (it was written), ``stale`` (it is not right, and only checked), or ``failed``.
        record: facts of the artifact, empty where there is none.
        error: why it failed, as plain data.
        before: size of the file that was there, None if none was.
        change: what the new artifact accepts that the one before did not, and the other way round (``changes.language_change``).
        reason: of a stale or built one: ``missing`` or ``differs``.
        seconds: time spent compiling; 0 where the cache knew.
    """

    target: Target
    status: str = FRESH
    record: Record = field(default_factory=dict)
    error: dict[str, Any] | None = None
    before: int | None = None
    change: dict[str, Any] | None = None
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """What became of a build: outcomes in the manifest's order, seconds on the clock, and how many targets were compiled."""

    manifest: Manifest
    outcomes: list[Outcome]
    checked: bool
    compiled: int
    seconds: float

    def names(self, status: str) -> list[str]:
        """Names of the targets with ``status``."""
        return [outcome.target.name for outcome in self.outcomes if outcome.status == status]

    @property
    def passed(self) -> bool:
        """Whether every output is right and within its budgets."""
        return not self.names(FAILED) and not self.names(STALE)


@dataclass
class _Planned:
    """A target under way: what is known of it, and the job that would compile it (None where its inputs cannot be read)."""

    outcome: Outcome
    job: Job | None = None
    record: Record | None = None


def build(
    manifest: Manifest, *, check: bool = False, processes: int = 1, use_cache: bool = True, prune: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Build every target of ``manifest``.

    Args:
        manifest: what to build.
        check: write no output; report which are not what they would be built to.
        processes: how many to compile on.
        use_cache: whether artifacts may come from the cache; they are kept there in either case.
        prune: forget what this manifest no longer builds.
        progress: told what is being done, a line at a time.

    Raises:
        OSError: the cache cannot be written.
    """
    started = time.perf_counter()
    cache = Cache(manifest.cache)
    with held(cache.folder / "lock", lambda: progress("waiting for another build")):
        cache.sweep()
        planned = _plan(manifest, cache, use_cache)
        if not check:
            _sweep_outputs(manifest)
        compiled = _compile(planned, processes, progress)
        for item in planned:
            _settle(item, cache, check)
        if prune:
            cache.prune(item.job.key for item in planned if item.job is not None)
    return Report(manifest, [item.outcome for item in planned], check, compiled, time.perf_counter() - started)


def _plan(manifest: Manifest, cache: Cache, use_cache: bool) -> list[_Planned]:
    """Each target's job, and what the cache knows of its artifact."""
    inputs = Inputs(cache.vocabularies)
    planned = []
    for target in manifest.targets:
        item = _Planned(Outcome(target))
        try:
            digests = tuple((path, inputs.digest(path)) for path in target.files)
            item.job = Job(target, inputs.key(target), digests, inputs.packs(target), cache.folder)
            item.record = _known(item.job, cache) if use_cache else None
        except CompileError as error:
            _fail(item.outcome, error.to_dict())
        except (OSError, FormatError) as error:
            _fail(item.outcome, plain_error(error))
        planned.append(item)
    return planned


def _known(job: Job, cache: Cache) -> Record | None:
    """The record of a job that need not run: its output is right, its artifact is in the cache whole, or it was refused."""
    record = cache.record(job.key)
    if record is None or "error" in record:
        return record
    return record if _digest_of(job.target.output) == record.get("sha256") or cache.artifact(job.key) is not None else None


def _compile(planned: list[_Planned], processes: int, progress: Callable[[str], None]) -> int:
    """Run the jobs that the cache does not answer; how many those were."""
    waiting: dict[str, list[_Planned]] = {}  # targets that differ in their output only share a job
    jobs: list[Job] = []
    for item in planned:
        if item.job is not None and item.record is None:
            if item.job.key not in waiting:
                jobs.append(item.job)
            waiting.setdefault(item.job.key, []).append(item)
    for number, (job, record) in enumerate(run_all(jobs, processes), 1):
        seconds = record.pop("seconds", 0.0)
        for item in waiting[job.key]:
            item.record = record
        waiting[job.key][0].outcome.seconds = seconds
        progress(f"{number} of {len(jobs)}: {job.target.name}")
    return len(jobs)


def _settle(item: _Planned, cache: Cache, check: bool) -> None:
    """Decide what became of a target, and write its output if that is to be."""
    outcome, target = item.outcome, item.outcome.target
    if item.job is None or item.record is None:
        return
    if "error" in item.record:
        _fail(outcome, item.record["error"])
        return
    outcome.record = item.record
    try:
        outcome.before = target.output.stat().st_size if target.output.is_file() else None
    except OSError as error:  # it lies where this user may not look
        _fail(outcome, plain_error(error))
        return
    exceeded = target.budgets.exceeded(item.record)
    if exceeded:
        _fail(outcome, {"error": "BudgetExceeded", "message": "; ".join(exceeded), "hint": "make the source smaller, or raise its budgets"})
    elif _digest_of(target.output) == item.record["sha256"]:
        outcome.status = FRESH
    else:
        _replace(item.job, cache, outcome, check)


def _replace(job: Job, cache: Cache, outcome: Outcome, check: bool) -> None:
    """Say how the artifact differs from what is there, and write it unless that is only checked."""
    outcome.status, outcome.reason = (STALE if check else BUILT), ("missing" if outcome.before is None else "differs")
    data, output = cache.artifact(job.key), job.target.output
    if data is None:
        _fail(outcome, {"error": "CacheDamaged", "message": "the artifact could not be read back from the cache", "hint": "build again"})
        return
    try:
        if outcome.before is not None:
            outcome.change = language_change(output.read_bytes(), data)
        if not check:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(output, data)
    except OSError as error:
        _fail(outcome, plain_error(error))


def _sweep_outputs(manifest: Manifest) -> None:
    """Remove what a killed build left unfinished beside the outputs."""
    for target in manifest.targets:
        with contextlib.suppress(OSError):  # a folder that cannot be read, or written: the target says so itself
            for path in target.output.parent.glob(f".{glob.escape(target.output.name)}.*.tmp"):
                path.unlink(missing_ok=True)


def _digest_of(path: Path) -> str:
    """SHA-256 of a file; empty if there is none."""
    try:
        return file_digest(path)
    except OSError:
        return ""


def _fail(outcome: Outcome, error: dict[str, Any]) -> None:
    outcome.status, outcome.error = FAILED, error
