"""One target compiled: what a worker of a build does.

In: a ``Job``, plain data that crosses processes. Out: a record, and an entry in the cache: the artifact, or why there is none. Afterwards
the entry is of the text that the key was made of: a source that changes while it is compiled is refused.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stcc.compiler.analyses.forced import forced_chains
from stcc.compiler.building.cache import Cache, Record
from stcc.compiler.building.inputs import file_digest, open_vocabulary
from stcc.compiler.building.manifest import Target, with_documents
from stcc.compiler.errors import BudgetError, CompileError, SourceError
from stcc.compiler.sources import compile_source
from stcc.formats import Artifact, FormatError
from stcc.formats.errors import system_error
from stcc.formats.summary import summarize

_NOT_FACTS = ("name",)
_DIGITS = 4
"""Digits of a forced share: what ``stcc inspect`` shows."""


@dataclass(frozen=True)
class Job:
    """A target to be compiled.

    Attributes:
        target: it.
        key: its cache key.
        digests: SHA-256 of its source and documents, as the key has them.
        packs: the ``.stv`` files of its vocabularies.
        cache: folder of the cache.
    """

    target: Target
    key: str
    digests: tuple[tuple[Path, str], ...]
    packs: tuple[Path, ...]
    cache: Path


def run_job(job: Job) -> Record:
    """Compile and keep what came of it; the record has ``error`` where nothing did, and the ``seconds`` it took.

    A refusal that may end otherwise on another try (limits of time and memory, files that change or cannot be read) is not kept, nor is
    a fault of the compiler.
    """
    started = time.perf_counter()
    cache = Cache(job.cache)
    try:
        data = _compiled(job)
        record = facts(data)
        cache.store(job.key, record, data)
    except BudgetError as error:
        record = {"error": error.to_dict()}
    except _ChangedError as error:
        record = {"error": error.to_dict()}
    except CompileError as error:
        record = {"error": error.to_dict()}
        cache.store(job.key, record)
    except (OSError, FormatError) as error:
        record = {"error": plain_error(error)}
    return {**record, "seconds": round(time.perf_counter() - started, 3)}


def plain_error(error: OSError | FormatError) -> dict[str, Any]:
    """An error of a file as plain data: ``error``, ``message`` and ``hint``, and what else its type knows."""
    if isinstance(error, FormatError):
        return dict(error.to_dict())
    message, hint = system_error(error)
    return {"error": type(error).__name__, "message": message, "hint": hint}


class _ChangedError(SourceError):
    """A file changed while it was compiled."""


def _compiled(job: Job) -> bytes:
    target = job.target
    vocabularies = [open_vocabulary(pack) for pack in job.packs]
    artifact = compile_source(target.source, target.kind, with_documents(target), vocabularies, text=target.text,
                              selection=target.selection)
    for path, digest in job.digests:
        if file_digest(path) != digest:
            raise _ChangedError("the file changed while it was compiled", source=str(path), hint="build again")
    return artifact.to_bytes()


def facts(data: bytes) -> dict[str, Any]:
    """What reports and budgets read of an artifact: the keys of ``formats.summary.summarize``, ``sha256`` and ``forced_share``."""
    artifact = Artifact.from_bytes(data)
    summary = {key: value for key, value in summarize(artifact, len(data)).items() if key not in _NOT_FACTS}
    cells, _ = forced_chains(artifact.machine)
    return {**summary, "forced_share": round(float((cells >= 0).mean()), _DIGITS), "sha256": hashlib.sha256(data).hexdigest()}
