"""The one place where the runtime calls the compiler: to bind a portable artifact at load, and to compile a source given to a command.

The compiler is imported when a function is called, so that decoding with bound artifacts needs numpy and msgpack only.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

from stcc.formats import Artifact, Vocabulary
from stcc.formats.container import MAGIC

if TYPE_CHECKING:
    from stcc.compiler.explaining.explanation import Explanation
    from stcc.compiler.options import Options


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


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file is meant to be compiled already: it is called ``.stc``, or begins as stcc's files do. OSError if it cannot be read."""
    if os.fspath(path).endswith(".stc"):
        return True
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def compile_file(path: str | os.PathLike[str], *, options: Options | None = None, kind: str | None = None) -> Artifact:
    """The artifact of a source file (or the artifact that the file is), portable unless it was bound.

    Args:
        path: the file.
        options: compile options; unused for a ``.stc``.
        kind: ``json_schema``, ``regex`` or ``artifact``; by default what ``is_artifact`` and the name say.

    Raises:
        FormatError: a broken ``.stc``.
        CompileError: a source that cannot be compiled, or whose kind is not known.
        OSError: the file cannot be read.
    """
    if kind == "artifact" or (kind is None and is_artifact(path)):
        return Artifact.load(path)
    from stcc.compiler.sources import compile_source

    return compile_source(path, kind, options)


def explain_file(path: str | os.PathLike[str], options: dict[str, Any] | None = None) -> Explanation:
    """What is known of a ``.stc`` or a source, which is compiled with ``options`` (those of its kind where None).

    Raises:
        FormatError: a broken ``.stc``.
        CompileError: a source that cannot be compiled, or whose kind is not known.
        OSError: the file cannot be read.
    """
    from pathlib import Path

    from stcc.compiler.explaining.explanation import explain_file as explain

    if options is None:
        return explain(Path(path))
    from stcc.compiler.options import Options

    return explain(Path(path), Options(**options))


def drawing_parts(explanation: Explanation) -> tuple[Any, Any]:
    """What a drawing of the explained machine may put together: functions that give groups of states, and a sketch."""
    from stcc.compiler.explaining.groups import field_groups, sketch

    return lambda: field_groups(explanation), lambda: sketch(explanation)


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """An explanation as plain data."""
    from stcc.compiler.explaining.report import explanation_data as data

    return data(explanation)


def compile_schema(schema: dict[str, Any], *, options: Options | None = None) -> Artifact:
    """The portable artifact of a JSON schema. CompileError if it cannot be compiled."""
    from stcc.compiler.pipeline import compile_json_schema

    return compile_json_schema(schema, options=options)


def compile_request(spec: dict[str, Any], vocabulary: Vocabulary, limits: dict[str, Any]) -> Artifact:
    """The artifact of what a request to the server constrains, bound to ``vocabulary``.

    Args:
        spec: ``kind`` (``json_schema``, ``regex`` or ``tools``) and the arguments of that compile function, ``options`` among them. With
            ``tools``, an ``answer`` that is no schema is ``answer_pattern``, a pattern, or ``answer_artifact``, a ``.stc`` in base 64.
        vocabulary: the model's.
        limits: options that the server sets, whatever the request says.

    Raises:
        CompileError: the source cannot be compiled, or not within the limits.
    """
    from stcc.compiler import pipeline
    from stcc.compiler.options import Options

    options = Options(**{**spec.get("options", {}), **limits})
    arguments = {key: value for key, value in spec.items() if key not in ("kind", "options", "source", "answer_pattern", "answer_artifact")}
    if "answer_pattern" in spec:
        arguments["answer"] = pipeline.compile_regex(spec["answer_pattern"], options=options)
    if "answer_artifact" in spec:
        arguments["answer"] = Artifact.from_bytes(base64.b64decode(spec["answer_artifact"]))
    compile_source = {"json_schema": pipeline.compile_json_schema, "regex": pipeline.compile_regex, "tools": pipeline.compile_tools}
    return compile_source[spec["kind"]](spec["source"], options=options, vocabularies=[vocabulary], **arguments)


def call_format(name: str) -> Any:
    """The description of a family's tool calls (``stcc.compiler.frontends.tools.CallFormat``); KeyError for an unknown name."""
    from stcc.compiler.frontends.tools import FORMATS

    return FORMATS[name]


def call_formats() -> list[str]:
    """The names that ``call_format`` knows."""
    from stcc.compiler.frontends.tools import FORMATS

    return list(FORMATS)
