"""Source files: which kind a file is, and compiling it. Used by the commands and by the runtime's seam."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stcc.compiler.errors import SourceError
from stcc.compiler.options import Options
from stcc.compiler.pipeline import Trace, compile_json_schema, compile_regex
from stcc.formats import Artifact, Vocabulary

SOURCE_LIMIT = 64 << 20
"""Largest source file read, in bytes."""


def source_kind(path: Path) -> str:
    """``json_schema`` or ``regex`` by the file's name. Raises SourceError for other names."""
    if path.name.endswith((".tools.json", ".policy.yaml")):
        raise SourceError("this version compiles schemas and patterns only", source=path.name, hint="give the tool's parameters as a .schema.json")
    if path.suffix == ".json":
        return "json_schema"
    if path.suffix == ".regex":
        return "regex"
    raise SourceError(f"{path.suffix or 'no extension'} does not tell the kind of source", source=path.name, hint="name it .schema.json or .regex, or pass --kind")


def compile_source(
    path: Path, kind: str, options: Options, vocabularies: Iterable[Vocabulary] = (), trace: Trace | None = None,
) -> Artifact:
    """Compile the file at ``path``; a ``.regex`` file's final line break is not part of the pattern."""
    if path.stat().st_size > SOURCE_LIMIT:
        raise SourceError(f"the file is larger than {SOURCE_LIMIT >> 20} MiB", source=path.name, hint="split it with $ref and --schemas")
    data = path.read_bytes()
    if kind == "json_schema":
        return compile_json_schema(data, options=options, vocabularies=vocabularies, source=path.name, trace=trace)
    try:
        pattern = data.decode()
    except UnicodeDecodeError as error:
        raise SourceError("the pattern is not UTF-8 text", source=path.name, pointer=f"offset {error.start}", hint="save it as UTF-8") from None
    pattern = pattern.removesuffix("\n").removesuffix("\r")
    return compile_regex(pattern, options=options, vocabularies=vocabularies, source=path.name, trace=trace)
