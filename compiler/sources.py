"""Source files: which kind a file is, its bytes, and its artifact.

In: the path of a schema, a pattern, a set of tools or a policy. Out: its kind, or what it compiles to. Afterwards no more than
``SOURCE_LIMIT`` bytes were read, whatever the path leads to. Commands come here, and the runtime through its seam.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stcc.compiler.errors import CompileError, SourceError
from stcc.compiler.frontends.json_schema.types import import_type, type_schema
from stcc.compiler.options import Options
from stcc.compiler.pipeline import (
    Trace,
    compile_gbnf,
    compile_json_schema,
    compile_lark,
    compile_openapi,
    compile_policy,
    compile_regex,
    compile_tools,
)
from stcc.formats import Artifact, Vocabulary

SOURCE_LIMIT = 64 << 20
"""Largest source file read, in bytes."""
KINDS = ("json_schema", "regex", "tools", "policy", "openapi", "gbnf", "lark")
"""The kinds of source that this version compiles."""
ABOUT_JSON = ("json_schema", "tools", "openapi")
"""The kinds in which schemas occur, so that options about JSON mean something."""
DIALECTS = {"json_schema": ("outlines",), "regex": ("python", "ecma")}
"""The dialects that sources of a kind may be read in."""
ENDINGS = {".tools.json": "tools", ".openapi.json": "openapi", ".openapi.yaml": "openapi", ".openapi.yml": "openapi",
           ".schema.json": "json_schema", ".json": "json_schema", ".regex": "regex", ".policy.yaml": "policy", ".policy.yml": "policy",
           ".gbnf": "gbnf", ".lark": "lark"}
"""Endings of names and the kinds they announce, the longer of two that fit first."""

_NO_WORD = re.compile(r"[^\w.~-]+")


@dataclass(frozen=True)
class Selection:
    """Which part of a source is compiled, where that holds several: see ``pipeline.compile_openapi``."""

    operation: str
    part: str = "request"
    status: str | None = None
    media_type: str | None = None

    @property
    def stem(self) -> str:
        """A file name's part: ``createPet.response.201``; what is no word in an operation's name becomes a dash."""
        words = [_NO_WORD.sub("-", self.operation).strip("-") or "operation", self.part, *([self.status] if self.status else [])]
        return ".".join(words)


def source_kind(path: str | os.PathLike[str]) -> str:
    """One of ``KINDS``, by the file's name. SourceError for other names."""
    name = os.fspath(path)
    lowered = name.lower()
    for ending, kind in ENDINGS.items():
        if lowered.endswith(ending):
            return kind
    raise SourceError("the name does not tell the kind of source", source=name,
                      hint="name it .schema.json, .json, .regex, .tools.json, .policy.yaml, .openapi.yaml, .gbnf or .lark, or give compile "
                           "a --kind; compiled files begin as .stc files do")


def read_source(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a source file. SourceError past ``SOURCE_LIMIT``, OSError if it cannot be read."""
    with open(path, "rb") as file:
        data = file.read(SOURCE_LIMIT + 1)
    if len(data) > SOURCE_LIMIT:
        raise SourceError(f"the file is larger than {SOURCE_LIMIT >> 20} MiB", source=os.fspath(path),
                          hint="split it with $ref and --schemas")
    return data


def pattern_text(data: bytes, source: str) -> str:
    """The pattern in a ``.regex`` file: its text without the final line break. SourceError unless it is UTF-8."""
    try:
        pattern = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError("the pattern is not UTF-8 text", source=source, pointer=f"offset {error.start}",
                          hint="save it as UTF-8") from None
    return pattern.removesuffix("\n").removesuffix("\r")


def type_text(name: str, folder: str | os.PathLike[str]) -> bytes:
    """The JSON Schema of the Python type called ``package.module:Name``, as JSON text. Imports the module; ``folder`` is searched first.

    Raises CompileError where there is no such type, or none that has a schema.
    """
    try:
        schema = type_schema(import_type(name, folder))
        return json.dumps(schema, indent=1).encode("utf-8", "surrogatepass")
    except CompileError as error:
        raise error.with_source(name) from error.__cause__
    except (TypeError, ValueError, RecursionError) as error:
        raise SourceError(f"its JSON Schema is not JSON: {error}", source=name, hint="see what its hooks add to the schema") from None


def compile_source(
    path: str | os.PathLike[str], kind: str | None = None, options: Options | None = None, vocabularies: Iterable[Vocabulary] = (),
    trace: Trace | None = None, *, text: bytes | None = None, selection: Selection | None = None,
) -> Artifact:
    """Compile the file at ``path``, as ``kind`` or what its name announces, and bind it to each of ``vocabularies``.

    ``text`` is what to compile where it does not stand in a file: ``path`` only names it then. ``selection`` is the part to compile of
    an OpenAPI document, and of nothing else.

    Raises:
        CompileError: the kind is not known, or the source cannot be compiled.
        OSError: the file cannot be read.
    """
    source = os.fspath(path)
    kind = kind or source_kind(path)
    if kind not in KINDS:
        raise SourceError(f"{kind!r} is not a kind of source", source=source, hint=f"known are {', '.join(KINDS)}")
    data = read_source(Path(path)) if text is None else text
    if (selection is not None) != (kind == "openapi"):
        raise SourceError("the operation to compile is not given" if selection is None else f"a {kind} source has no operations",
                          source=source, hint="give compile an --operation of an OpenAPI document, or list them in a manifest for build")
    if selection is not None:
        return compile_openapi(data, **vars(selection), options=options, vocabularies=vocabularies, source=source, trace=trace)
    if kind == "json_schema":
        return compile_json_schema(data, options=options, vocabularies=vocabularies, source=source, trace=trace)
    if kind == "tools":
        return compile_tools(data, options=options, vocabularies=vocabularies, source=source, trace=trace)
    if kind == "gbnf":
        return compile_gbnf(data, options=options, vocabularies=vocabularies, source=source, trace=trace)
    if kind == "lark":
        return compile_lark(data, options=options, vocabularies=vocabularies, source=source, trace=trace)
    if kind == "policy":
        return compile_policy(data, options=options, vocabularies=vocabularies, source=source, trace=trace)
    return compile_regex(pattern_text(data, source), options=options, vocabularies=vocabularies, source=source, trace=trace)
