"""A source explained: compiled, its fields named by the schema, and its patterns looked at for overlaps.

In: a path and compile options. Out: an ``Explanation``. The arguments of each tool of a set are explained by themselves, as if the tool
were the only one; the set as a whole has no fields that every reply would have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from stcc.compiler.errors import CompileError
from stcc.compiler.explaining.cautions import Caution
from stcc.compiler.explaining.explanation import Explanation, explain_artifact
from stcc.compiler.explaining.overlaps import alternative_overlaps
from stcc.compiler.frontends.json_schema.document import parse_schema
from stcc.compiler.frontends.tools import read_request
from stcc.compiler.options import Options
from stcc.compiler.pipeline import compile_json_schema
from stcc.compiler.sources import compile_source, pattern_text, read_source, source_kind


def explain_source(path: Path, options: Options | None = None) -> Explanation:
    """Explain the source at ``path``. CompileError if it cannot be compiled, OSError if it cannot be read."""
    kind = source_kind(path)
    if options is None:
        options = Options(whitespace="spaced" if kind == "tools" else "compact")
    artifact = compile_source(path, kind, options)
    data = read_source(path)
    if kind == "json_schema":
        return explain_artifact(artifact, parse_schema(data, options.max_depth))
    found = explain_artifact(artifact)
    if kind == "regex":
        overlaps = alternative_overlaps(pattern_text(data, str(path)), options.dialect or "python")
        return replace(found, cautions=(*found.cautions, *overlaps))
    if kind == "tools":
        tools = _tools(data, options)
        return replace(found, tools=tools, cautions=(*found.cautions, *_of_tools(tools)))
    return found


def _tools(data: bytes, options: Options) -> dict[str, Explanation]:
    request = read_request(data, format=None, tool_choice=None, parallel_tool_calls=None, strict=None, reasoning=None, text=None,
                           max_depth=options.max_depth)
    found = {}
    for tool in request.tools:
        closed = replace(options, additional_properties="closed" if request.strict or tool.strict else options.additional_properties)
        document = _closed(tool.parameters)
        try:
            found[tool.name] = explain_artifact(compile_json_schema(document, options=closed, source=tool.name), document)
        except CompileError:
            continue  # a schema that only means something inside the set; the set itself was compiled
    return found


def _closed(parameters: Any) -> Any:
    """A tool's parameters as tools are compiled: no other members than they name, unless they say what others there may be."""
    says = ("additionalProperties", "unevaluatedProperties", "patternProperties")
    if not isinstance(parameters, dict) or any(keyword in parameters for keyword in says):
        return parameters
    return {**parameters, "additionalProperties": False}


def _of_tools(tools: dict[str, Explanation]) -> list[Caution]:
    """What is said of each tool's arguments, at the tool."""
    return [replace(caution, place=f"{name}: {caution.place}") for name, explanation in tools.items() for caution in explanation.cautions
            if caution.code not in ("unenforced", "compiler", "unbounded-whitespace")]
