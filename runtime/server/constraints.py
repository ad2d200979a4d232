"""What a request constrains: ``response_format``, ``guided_regex`` and ``tools`` become one grammar, or none for free text.

In: a request, the server's format of tool calls, and whether the prompt has opened a reasoning section. Out: a ``Constraint``: an
artifact's name or a spec to compile, and how the reply is to be read. Combinations that no grammar enforces are an ``ApiError`` 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stcc.runtime.server.errors import ApiError
from stcc.runtime.server.requests import ArtifactFormat, ChatRequest, JsonSchemaFormat, Request

SCHEMA_PLACE = "response_format.json_schema.schema"


@dataclass(frozen=True)
class Constraint:
    """See the module's text.

    Attributes:
        artifact: name of a preloaded artifact.
        spec: what to compile; neither of the two for free text.
        place: the request's field that errors of compiling point into.
        calls: whether the reply may hold tool calls.
        answers: whether a reply without calls is a JSON answer.
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
    """The constraint of ``request``. ApiError 400 for what cannot be enforced."""
    tools = request.tools if isinstance(request, ChatRequest) else None
    wanted = request.response_format
    if tools and isinstance(request, ChatRequest):
        return _with_tools(request, tools, family, reasoning_open)
    if wanted is None or wanted.type == "text":
        if request.guided_regex is None:
            return Constraint()
        _no_section(family, reasoning_open, "guided_regex")
        return Constraint(spec={"kind": "regex", "source": request.guided_regex}, place="guided_regex")
    if isinstance(wanted, ArtifactFormat):
        _no_section(family, reasoning_open, "response_format")
        return Constraint(artifact=wanted.artifact)
    schema, options = _answer(wanted, family)
    if isinstance(request, ChatRequest) and (family.thinks or reasoning_open or family.description.text.open):
        reasoning = _reasoning(family, reasoning_open)
        spec = {"kind": "tools", "source": {"tools": []}, "format": family.format, "answer": schema, "options": options,
                "reasoning": reasoning}
        return Constraint(spec=spec, answers=True)
    return Constraint(spec={"kind": "json_schema", "source": schema, "options": options})


def _with_tools(request: ChatRequest, tools: list[Any], family: Family, reasoning_open: bool) -> Constraint:
    wanted = request.response_format
    if request.guided_regex is not None or isinstance(wanted, ArtifactFormat):
        name = "guided_regex" if request.guided_regex is not None else "response_format"
        raise ApiError(400, f"{name} of this kind and tools cannot be enforced together", param=name, code="unenforceable",
                       hint="use response_format json_schema beside tools, or leave the tools out")
    document = {"tools": tools, **({} if request.tool_choice is None else {"tool_choice": request.tool_choice}),
                **({} if request.parallel_tool_calls is None else {"parallel_tool_calls": request.parallel_tool_calls})}
    spec: dict[str, Any] = {"kind": "tools", "source": document, "format": family.format, "reasoning": _reasoning(family, reasoning_open)}
    answers = wanted is not None and wanted.type != "text"
    spec["options"] = {"whitespace": "spaced"}
    if wanted is not None and wanted.type != "text":
        spec["answer"], options = _answer(wanted, family)
        if options.get("additional_properties") == "closed":
            spec["answer"] = _closed(spec["answer"])
    functions = [tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)]
    parameters = {function["name"]: function.get("parameters") or {} for function in functions if isinstance(function.get("name"), str)}
    return Constraint(spec=spec, calls=request.tool_choice != "none", answers=answers, parameters=parameters)


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


def _no_section(family: Family, reasoning_open: bool, param: str) -> None:
    if reasoning_open:
        raise ApiError(400, "the chat template opens a reasoning section, which this constraint has no room for", param=param,
                       code="unenforceable",
                       hint='turn reasoning off, for many models with "chat_template_kwargs": {"enable_thinking": false}')
