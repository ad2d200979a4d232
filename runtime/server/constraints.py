"""What a request constrains: ``response_format``, ``guided_regex`` and ``tools`` become one grammar, or none for free text.

In: a request, the server's format of tool calls, and whether the prompt has opened a reasoning section. Out: a ``Constraint``: an
artifact's name or a spec to compile, and how the reply is to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stcc.runtime.server.requests import ArtifactFormat, ChatRequest, JsonSchemaFormat, Request

SCHEMA_PLACE = "response_format.json_schema.schema"


@dataclass(frozen=True)
class Constraint:
    """See the module's text.

    Attributes:
        artifact: name of a preloaded artifact.
        spec: what to compile; neither of the two for free text. With both, the artifact is the spec's answer.
        place: the request's field that errors of compiling point into.
        calls: whether the reply may hold tool calls.
        answers: whether a reply without calls is an answer, not free text.
        parameters: tool -> schema of its arguments.
    """

    artifact: str | None = None
    spec: Mapping[str, Any] | None = None
    place: str = SCHEMA_PLACE
    calls: bool = False
    answers: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """How the model spells replies.

    Attributes:
        format: name of its tool calls' format.
        description: the ``CallFormat``.
        thinks: whether a reply may begin with a reasoning section.
        whitespace: of JSON in answers.
    """

    format: str
    description: Any
    thinks: bool = False
    whitespace: str = "compact"


def constraint_of(request: Request, family: Family, reasoning_open: bool) -> Constraint:
    """The constraint of ``request``. What cannot be enforced is found out when it is compiled."""
    tools = request.tools if isinstance(request, ChatRequest) else None
    wanted = request.response_format
    if tools and isinstance(request, ChatRequest):
        return _with_tools(request, tools, family, reasoning_open)
    free = wanted is None or wanted.type == "text"
    if free and request.guided_regex is None:
        return Constraint()
    chat = isinstance(request, ChatRequest)
    if free or isinstance(wanted, ArtifactFormat):
        if chat and reasoning_open:
            return _answered({"kind": "tools", "source": {"tools": []}, "format": family.format, "reasoning": "open"}, request, family)
        if isinstance(wanted, ArtifactFormat):
            return Constraint(artifact=wanted.artifact)
        return Constraint(spec={"kind": "regex", "source": request.guided_regex}, place="guided_regex")
    if chat and (family.thinks or reasoning_open or family.description.text.open):
        reasoning = _reasoning(family, reasoning_open)
        return _answered({"kind": "tools", "source": {"tools": []}, "format": family.format, "reasoning": reasoning}, request, family)
    schema, options = _answer(wanted, family)
    return Constraint(spec={"kind": "json_schema", "source": schema, "options": options})


def _with_tools(request: ChatRequest, tools: list[Any], family: Family, reasoning_open: bool) -> Constraint:
    document = {"tools": tools, **({} if request.tool_choice is None else {"tool_choice": request.tool_choice}),
                **({} if request.parallel_tool_calls is None else {"parallel_tool_calls": request.parallel_tool_calls})}
    spec: dict[str, Any] = {"kind": "tools", "source": document, "format": family.format, "reasoning": _reasoning(family, reasoning_open),
            "options": {"whitespace": "spaced"}}
    functions = [tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)]
    parameters = {function["name"]: function.get("parameters") or {} for function in functions if isinstance(function.get("name"), str)}
    return replace(_answered(spec, request, family), calls=request.tool_choice != "none", parameters=parameters)


def _answered(spec: dict[str, Any], request: Request, family: Family) -> Constraint:
    """The constraint of ``spec``, replies of tools, with the answer that the request asks for in place of free text."""
    wanted = request.response_format
    if isinstance(wanted, ArtifactFormat):
        return Constraint(artifact=wanted.artifact, spec=spec, place="response_format", answers=True)
    if wanted is not None and wanted.type != "text":
        schema, options = _answer(wanted, family)
        if "options" not in spec:
            return Constraint(spec={**spec, "answer": schema, "options": options}, answers=True)
        return Constraint(spec={**spec, "answer": _closed(schema) if options.get("additional_properties") == "closed" else schema},
                          answers=True)
    if request.guided_regex is not None:
        return Constraint(spec={**spec, "answer_pattern": request.guided_regex}, place="guided_regex", answers=True)
    return Constraint(spec=spec)


def _answer(wanted: Any, family: Family) -> tuple[Any, dict[str, Any]]:
    """The schema that ``response_format`` asks for, and the options it is compiled with."""
    options: dict[str, Any] = {"whitespace": family.whitespace}
    if not isinstance(wanted, JsonSchemaFormat):
        return {"type": "object"}, options
    if wanted.json_schema.strict:
        options["additional_properties"] = "closed"
    return wanted.json_schema.schema_, options


def _closed(schema: Any) -> Any:
    """``schema`` with objects closed that list properties and say nothing of others, as the option ``closed`` reads it."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed_below(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and "unevaluatedProperties" not in schema:
        found["additionalProperties"] = False
    return found


def _closed_below(keyword: str, value: Any) -> Any:
    if keyword in ("const", "enum", "default", "examples"):
        return value
    if keyword in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(value, dict):
        return {name: _closed(part) for name, part in value.items()}
    return _closed(value)


def _reasoning(family: Family, opened: bool) -> bool | str:
    if family.description.reasoning is None:
        return False
    return "open" if opened else family.thinks
