"""What a request asks of its tools: the ``tools`` list, ``tool_choice`` and ``parallel_tool_calls``, read as OpenAI's API has them.

In: plain data, JSON text, or the document of a ``.tools.json`` file. Out: a ``ToolRequest`` of ``Tool`` values and a ``Choice``. Whatever
cannot be meant is a typed error with a JSON pointer into the tools document: an unknown tool in ``tool_choice``, two tools of one name, a
name that the format cannot spell, parameters that are no object schema. Cost: one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stcc.compiler.errors import SourceError, UnsupportedError
from stcc.compiler.frontends.json_schema.document import json_type, parse_schema
from stcc.compiler.frontends.tools.families import FORMATS, CallFormat

DEFAULT_FORMAT = "hermes"
"""The format of a bare list of tools for which none is named."""
_KEYS = ("tools", "format", "tool_choice", "parallel_tool_calls", "strict", "reasoning", "text")
_REASONING = (False, True, "open", "required")
LONGEST_NAME = 256
"""Most characters of a tool's name; OpenAI takes 64."""


@dataclass(frozen=True, eq=False)
class Tool:
    """One function: its name, its parameters' schema, where that stands in the document, and its own ``strict`` flag."""

    name: str
    parameters: Any
    pointer: str
    strict: bool


@dataclass(frozen=True)
class Choice:
    """What ``tool_choice`` admits.

    Attributes:
        names: the tools that may be called, in the order of the request.
        required: whether at least one call must be made.
        several: whether a reply may hold more than one call.
    """

    names: tuple[str, ...]
    required: bool
    several: bool


@dataclass(frozen=True, eq=False)
class ToolRequest:
    """A request, read.

    Attributes:
        tools: in order.
        format: how calls are spelled.
        choice: which calls there may be.
        strict: whether objects whose schema does not say otherwise are closed at every depth, for all tools.
        reasoning: False (none), True (there may be a section first), ``required`` or ``open`` (the prompt has opened one).
        text: whether free text may stand before calls, or in their place where none is required.
        notes: warnings, each with pointer, keyword and message.
    """

    tools: tuple[Tool, ...]
    format: CallFormat
    choice: Choice
    strict: bool
    reasoning: bool | str
    text: bool
    notes: tuple[dict[str, str], ...]


def read_request(
    tools: Any, *, format: str | None, tool_choice: Any, parallel_tool_calls: bool | None, strict: bool | None,
    reasoning: bool | str | None, text: bool | None, max_depth: int,
) -> ToolRequest:
    """Read a request; arguments that are None are taken from the document, if ``tools`` is one, else have their defaults.

    Raises:
        SourceError: not what the API takes; the message names the place.
        UnsupportedError: a kind of tool that is not a function, or a name that the format cannot spell.
    """
    document, base = _document(tools, max_depth)
    given = {"format": format, "tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls, "strict": strict,
             "reasoning": reasoning, "text": text}
    settings = {**document, **{key: value for key, value in given.items() if value is not None}}
    notes: tuple[dict[str, str], ...] = ()
    if settings.get("format") is None:
        notes = ({"pointer": "#", "keyword": "format", "message": f"no format is named: {DEFAULT_FORMAT} is taken"},)
    call_format = _format(settings.get("format") or DEFAULT_FORMAT)
    found = _tools(document["tools"], base, call_format)
    parallel = _flag(settings, "parallel_tool_calls", True) and call_format.parallel
    choice = read_choice(settings.get("tool_choice", "auto"), [tool.name for tool in found], parallel)
    return ToolRequest(tuple(found), call_format, choice, _flag(settings, "strict", False), _reasoning(settings, call_format),
                       _flag(settings, "text", not choice.required), notes)


def _document(tools: Any, max_depth: int) -> tuple[dict[str, Any], str]:
    """The request as one object, and the pointer of its list of tools."""
    if isinstance(tools, (bytes, str)):
        text = _decoded(tools)
        if text.lstrip()[:1] == "[":  # a bare list; columns of its first line are counted from the object put around it
            return parse_schema('{"tools":' + text + "}", max_depth), "#"
        document = parse_schema(text, max_depth)
    elif isinstance(tools, Mapping):
        document = parse_schema(tools, max_depth)
    elif isinstance(tools, (list, tuple)):
        return parse_schema({"tools": [_plain(tool) for tool in tools]}, max_depth), "#"
    else:
        raise SourceError(f"tools are a list, a document or JSON text, not {type(tools).__name__}", hint="pass OpenAI's tools list")
    if not isinstance(document, dict) or "tools" not in document:
        raise SourceError("the document has no list of tools", pointer="#", keyword="tools", hint='write {"format": ..., "tools": [...]}')
    unknown = [key for key in document if key not in _KEYS]
    if unknown:
        raise SourceError(f"{unknown[0]!r} is not part of a tools document", pointer="#", keyword=unknown[0],
                          hint=f"known are {', '.join(_KEYS)}")
    return document, "#/tools"


def _decoded(text: bytes | str) -> str:
    try:
        return text.decode("utf-8-sig") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise SourceError("the tools are not UTF-8 text", pointer=f"offset {error.start}", hint="save the file as UTF-8") from None


def _plain(tool: Any) -> Any:
    """A tool as plain data; OpenAI's client has them as models too."""
    dump = getattr(tool, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) and not isinstance(tool, type) else tool


def _format(name: Any) -> CallFormat:
    if not isinstance(name, str) or name not in FORMATS:
        raise SourceError(f"{name!r} is not a format of tool calls", pointer="#", keyword="format", hint=f"known are {', '.join(FORMATS)}")
    return FORMATS[name]


def _flag(settings: Mapping[str, Any], key: str, default: bool) -> bool:
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise SourceError(f"expected true or false, found {json_type(value)} {str(value)[:60]!r}", pointer=f"#/{key}", keyword=key)
    return value


def _reasoning(settings: Mapping[str, Any], call_format: CallFormat) -> bool | str:
    value = settings.get("reasoning", False)
    if value not in _REASONING or not isinstance(value, (bool, str)):
        raise SourceError(f"{value!r} is not a way to reason", pointer="#/reasoning", keyword="reasoning",
                          hint='give false, true (a section may come first), "required", or "open" (the prompt has opened it)')
    if value and call_format.reasoning is None:
        raise SourceError(f"the format {call_format.name} has no reasoning section", pointer="#/reasoning", keyword="reasoning",
                          hint="leave reasoning out")
    return value


# ---- tools


def _tools(listed: Any, base: str, call_format: CallFormat) -> list[Tool]:
    if not isinstance(listed, list):
        raise SourceError(f"expected a list of tools, found {json_type(listed)}", pointer=base, keyword="tools")
    found: dict[str, Tool] = {}
    for number, entry in enumerate(listed):
        tool = _tool(entry, f"{base}/{number}", call_format)
        if tool.name in found:
            raise SourceError(f"two tools are called {tool.name!r}: {found[tool.name].pointer} is the other", pointer=f"{base}/{number}",
                              keyword="name", hint="give each tool a name of its own")
        found[tool.name] = tool
    return list(found.values())


def _tool(entry: Any, pointer: str, call_format: CallFormat) -> Tool:
    """A tool, in the form of chat completions (``function`` inside) or of responses (all in one object)."""
    if not isinstance(entry, dict):
        raise SourceError(f"a tool is an object, not {json_type(entry)}", pointer=pointer,
                          hint='write {"type": "function", "function": {...}}')
    kind = entry.get("type", "function")
    if kind != "function":
        raise UnsupportedError(f"tools of type {kind!r} have no arguments that a schema describes", pointer=pointer, keyword="type",
                               hint="leave the tool out, or describe it as a function")
    nested = "function" in entry
    function = entry["function"] if nested else entry
    place = f"{pointer}/function" if nested else pointer
    if not isinstance(function, dict):
        raise SourceError(f"expected an object, found {json_type(function)}", pointer=place, keyword="function")
    name = _checked_name(function.get("name"), place, call_format)
    parameters = function.get("parameters")
    _check_parameters(parameters, f"{place}/parameters")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise SourceError(f"expected true or false, found {json_type(strict)}", pointer=f"{place}/strict", keyword="strict")
    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    return Tool(name, empty if parameters is None else parameters, f"{place}/parameters", bool(strict))


def _checked_name(name: Any, place: str, call_format: CallFormat) -> str:
    if not isinstance(name, str) or not name:
        raise SourceError("a tool needs a name", pointer=place, keyword="name", hint="letters, digits, _ and - are understood everywhere")
    if len(name) > LONGEST_NAME:
        raise SourceError(f"the name has {len(name):,} characters; {LONGEST_NAME} are taken", pointer=f"{place}/name", keyword="name",
                          hint="shorten it")
    marks = {*call_format.openers, *call_format.closers, *'"\\', *(call_format.neck[:1] if call_format.keys is None else "")}
    marks |= {":"} if call_format.numbered else set()
    found = next((mark for mark in sorted(marks) if mark and mark in name), None)
    if found is None and any(character.isspace() or not character.isprintable() for character in name):
        found = "white space, or a character that cannot be printed"
    if found is not None:
        raise UnsupportedError(f"the name {name!r} holds {found!r}, which the format {call_format.name} cannot spell in a name",
                               pointer=f"{place}/name", keyword="name", hint="rename the tool: letters, digits, _ and - are always fine")
    return name


def _check_parameters(parameters: Any, pointer: str) -> None:
    if parameters is None:
        return
    if not isinstance(parameters, dict):
        raise SourceError(f"parameters are the schema of an object, not {json_type(parameters)}", pointer=pointer, keyword="parameters",
                          hint='write {"type": "object", "properties": {...}}')
    kind = parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise SourceError(f"arguments are an object, and these are of type {kind!r}", pointer=pointer, keyword="type",
                          hint='write {"type": "object", "properties": {...}}')


# ---- choice


def read_choice(value: Any, names: list[str], parallel: bool) -> Choice:
    """``tool_choice`` over the tools called ``names``; several calls only where ``parallel``.

    A named tool is called exactly once. Raises SourceError for unknown tools and where a call is required but there is none to make.
    """
    if value in ("auto", "none", "required") and isinstance(value, str):
        admitted = () if value == "none" else tuple(names)
        return _checked_choice(Choice(admitted, value == "required", parallel))
    if not isinstance(value, Mapping):
        raise SourceError(f"{value!r} is not a tool choice", pointer="#/tool_choice", keyword="tool_choice",
                          hint='give "auto", "none", "required", a named function or allowed_tools')
    if value.get("type") == "allowed_tools":
        return _allowed(value, names, parallel)
    return Choice((_chosen(value, names, "#/tool_choice"),), True, False)


def _allowed(value: Mapping[str, Any], names: list[str], parallel: bool) -> Choice:
    nested = isinstance(value.get("allowed_tools"), Mapping)
    inner = value["allowed_tools"] if nested else value
    place = "#/tool_choice/allowed_tools" if nested else "#/tool_choice"
    mode, listed = inner.get("mode", "auto"), inner.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise SourceError("allowed_tools has a mode, auto or required, and a list of tools", pointer=place, keyword="allowed_tools")
    chosen = {_chosen(entry, names, f"{place}/tools/{number}") for number, entry in enumerate(listed)}
    return _checked_choice(Choice(tuple(name for name in names if name in chosen), mode == "required", parallel))


def _chosen(entry: Any, names: list[str], place: str) -> str:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise SourceError("the choice names no function", pointer=place, keyword="tool_choice",
                          hint='write {"type": "function", "function": {"name": ...}}')
    if name not in names:
        known = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise SourceError(f"no tool is called {name!r}", pointer=place, keyword="tool_choice", hint=f"there are {known or 'none'}")
    return name


def _checked_choice(choice: Choice) -> Choice:
    if choice.required and not choice.names:
        raise SourceError("a call is required, and there is no tool to call", pointer="#/tool_choice", keyword="tool_choice",
                          hint="list a tool, or choose auto or none")
    return choice
