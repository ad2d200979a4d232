"""Jobs on several processes; one that takes its process down takes no other job with it.

In: jobs. Out: each with its record, in the order in which they end. A process that dies (out of memory, say) breaks its whole pool: the
jobs that were not finished then run again, each in a pool of its own, so that the one at fault is known. Processes are spawned, not
forked: the same on every system, and safe beside threads. Cost: half a second a process; a single job runs where the build runs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from stcc.compiler.building.cache import Record
from stcc.compiler.building.work import Job, run_job

_CRASHED = {"error": "WorkerCrash", "message": "the process that compiled this died",
            "hint": "it may have been out of memory: lower max_states, or build with fewer --jobs"}


def default_jobs() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(jobs: Sequence[Job], processes: int, run: Callable[[Job], Record] = run_job) -> Iterator[tuple[Job, Record]]:
    """Every job with its record, as they end. An exception of ``run`` is a fault of the compiler, told by the record."""
    if processes <= 1 or len(jobs) <= 1:
        for job in jobs:
            try:
                yield job, run(job)
            except Exception as error:  # one target's fault must not hide what the others are
                yield job, _fault(error)
        return
    unfinished: list[Job] = []
    for job, record in _pooled(jobs, processes, run):
        if record is None:
            unfinished.append(job)
        else:
            yield job, record
    for job in unfinished:
        for _, record in _pooled([job], 1, run):
            yield job, record if record is not None else {"error": dict(_CRASHED)}


def _pooled(jobs: Sequence[Job], processes: int, run: Callable[[Job], Record]) -> Iterator[tuple[Job, Record | None]]:
    """Every job with its record; None for those that a broken pool left unfinished."""
    pool = ProcessPoolExecutor(min(processes, len(jobs)), multiprocessing.get_context("spawn"), _end_when_interrupted)
    try:
        waiting = {pool.submit(run, job): job for job in jobs}
        for future in as_completed(waiting):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                yield waiting[future], None
            except Exception as error:
                yield waiting[future], _fault(error)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_when_interrupted() -> None:
    """In a worker: an interrupt, which a terminal sends to every process, ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _fault(error: Exception) -> Record:
    return {"error": {"error": type(error).__name__, "message": f"{error or 'no message'}: this is a fault of stcc",
                      "hint": "compile the source alone with stcc compile to see the traceback, and report it"}}
