"""The one place where the runtime calls the compiler: to bind a portable artifact at load, and to compile a source given to a command.

The compiler is imported when a function is called, so that decoding with bound artifacts needs numpy and msgpack only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcc.formats import Artifact, Vocabulary
from stcc.runtime.errors import ConstraintError

if TYPE_CHECKING:
    from stcc.compiler.options import Options

KINDS = {".schema.json": "json_schema", ".json": "json_schema", ".regex": "regex"}
"""File name endings and the kind of source they stand for."""


def bind_artifact(artifact: Artifact, vocabulary: Vocabulary) -> Artifact:
    """``artifact``, also bound to ``vocabulary``. Some 10-100 ms. CompileError past the limits of ``stcc.compiler.bind``."""
    from stcc.compiler.binding.bind import bind

    return bind(artifact, vocabulary)


def bind_machine(machine: Any, vocabulary: Vocabulary) -> Any:
    """The ``Binding`` of a bare machine to ``vocabulary``."""
    from stcc.compiler.binding import bind

    return bind.bind_machine(machine, vocabulary)


def vocabulary_from_tokenizer(source: Any) -> Vocabulary:
    """The vocabulary of a tokenizer (a file, a folder, a hub name, or a loaded one). CompileError if its bytes cannot be recovered."""
    from stcc.compiler.vocabularies import vocabulary_from_tokenizer as prepare

    return prepare(source)


def source_kind(path: str | os.PathLike[str]) -> str:
    """The kind of source that a file name announces: ``artifact``, or a value of ``KINDS``. ConstraintError if it announces none."""
    name = os.fspath(path)
    if name.endswith(".stc"):
        return "artifact"
    for ending, kind in KINDS.items():
        if name.endswith(ending):
            return kind
    raise ConstraintError(f"{name}: what is it? Known endings are .stc, {', '.join(KINDS)}")


def compile_file(path: str | os.PathLike[str], *, options: Options | None = None, kind: str | None = None) -> Artifact:
    """The artifact of a source file (or the artifact that the file is), portable unless it was bound.

    Args:
        path: the file.
        options: compile options; unused for a ``.stc``.
        kind: ``json_schema``, ``regex`` or ``artifact``; by default what the name announces.

    Raises:
        ConstraintError: the kind is not known.
        FormatError: a broken ``.stc``.
        CompileError: a source that cannot be compiled.
        OSError: the file cannot be read.
    """
    kind = kind or source_kind(path)
    if kind == "artifact":
        return Artifact.load(path)
    from stcc.compiler.errors import SourceError
    from stcc.compiler.pipeline import compile_json_schema, compile_regex

    try:
        text = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"the file is not UTF-8 at byte {error.start}", source=os.fspath(path), hint="save it as UTF-8") from None
    if kind == "json_schema":
        return compile_json_schema(text, options=options, source=os.fspath(path))
    if kind == "regex":
        return compile_regex(text.removesuffix("\n").removesuffix("\r"), options=options, source=os.fspath(path))
    raise ConstraintError(f"there is no kind of source called {kind!r}; known are artifact, json_schema, regex")
