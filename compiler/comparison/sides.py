"""The two sides of a comparison: an artifact or a source, opened or compiled, with the schema where it has one.

In: a path and compile options. Out: a ``Side``. A ``.stc`` holds no schema, so that places in it are known by the text alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stcc.compiler.frontends.json_schema.document import parse_schema
from stcc.compiler.options import Options
from stcc.compiler.sources import compile_source, read_source, source_kind
from stcc.formats import Artifact
from stcc.formats.container import MAGIC
from stcc.formats.machine import Machine


@dataclass(frozen=True)
class Side:
    """One side: its file, kind, machine, and schema document (None where there is none)."""

    file: Path
    kind: str
    machine: Machine
    schema: Any = None


def open_side(path: Path, options: Options, whitespace: str | None = None) -> Side:
    """Open a ``.stc``, or compile a source with ``options``; ``whitespace`` None means what is usual for the kind.

    Raises:
        FormatError: a broken ``.stc``.
        CompileError: a source that cannot be compiled, or whose kind is not known.
        OSError: the file cannot be read.
    """
    if is_compiled(path):
        artifact = Artifact.load(path)
        return Side(path, artifact.kind, artifact.machine)
    kind = source_kind(path)
    usual = "spaced" if kind == "tools" else "compact"
    artifact = compile_source(path, kind, replace(options, whitespace=whitespace or usual))
    schema = parse_schema(read_source(path), options.max_depth) if kind == "json_schema" else None
    return Side(path, kind, artifact.machine, schema)


def is_compiled(path: Path) -> bool:
    """Whether a file is a ``.stc``, by its name or its first bytes. OSError if it cannot be read."""
    if os.fspath(path).endswith(".stc"):
        return True
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
