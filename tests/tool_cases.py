"""What the tests of tool grammars share: a set of 20 tools, and a reference parser for each format, written from the format alone."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema

from stcc.compiler import compile_tools
from stcc.runtime.sampling import Walker

Call = tuple[str, Any]


def function(name: str, properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}
    return {"type": "function", "function": {"name": name, "description": f"What {name} does.", "parameters": parameters}}


POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"],
         "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [
    function("get_weather", {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer"}},
             ["city"]),
    function("get_weather_map", {"area": POINT, "zoom": {"type": "integer", "minimum": 1, "maximum": 18}}),
    function("get_time", {}),
    function("add", {"a": {"type": "number"}, "b": {"type": "number"}}),
    function("search", {"query": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 1, "maximum": 50},
                        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2}}, ["query"]),
    function("write_file", {"path": {"type": "string", "pattern": "^/[a-z/]+$"}, "content": {"type": "string"},
                            "append": {"type": "boolean"}}),
    function("move", {"from": POINT, "to": POINT}),
    function("note", {"text": {"type": ["string", "null"]}}),
    function("mark", {"value": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]}}),
    function("tree", {"root": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": {
        "type": "object", "properties": {"v": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["v"], "additionalProperties": False}}}),
    function("book", {"date": {"type": "string", "format": "date"}, "time": {"type": "string", "format": "time"}}),
    function("pay", {"amount": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.25}, "currency": {"enum": ["EUR", "USD"]}}),
    function("label", {"name": {"const": "label"}, "short": {"type": "string", "maxLength": 8}}),
    function("long", {"summary": {"type": "string", "minLength": 2, "maxLength": 60}}),
    function("either", {"a": {"type": "string"}, "b": {"type": "string"}}, [], oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
    function("depends", {"card": {"type": "string"}, "code": {"type": "integer"}}, [], dependentRequired={"card": ["code"]}),
    function("env", {"cmd": {"type": "string"}}, ["cmd"], additionalProperties={"type": "integer"}),
    function("prefixed", {"n": {"type": "integer"}}, ["n"], patternProperties={"^x_": {"type": "boolean"}}, additionalProperties=False),
    function("anything", {"value": True, "list": {"type": "array"}}, ["value"]),
    function("pick", {"one": {"enum": [1, "two", None, [3], {"four": 5}]}}),
]
SCHEMAS: dict[str, Any] = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
_VALIDATORS = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


@dataclass(frozen=True)
class Parsed:
    """A reply: what was reasoned, the free text, the calls in order."""

    reasoning: str | None
    text: str
    calls: list[Call]


# ---- reference parsers: a reply -> Parsed, ValueError for anything else


class Members(dict[str, Any]):
    """An object as read, and the names that came more than once: of undeclared names the grammar does not remember which came."""

    repeated: frozenset[str] = frozenset()


def members(pairs: list[tuple[str, Any]]) -> Members:
    found = Members(pairs)
    names = [name for name, _ in pairs]
    found.repeated = frozenset(name for name in names if names.count(name) > 1)
    return found


def json_value(text: str) -> Any:
    return json.loads(text, object_pairs_hook=members)


def json_call(text: str, arguments: str) -> Call:
    call = json_value(text)
    if list(call) != ["name", arguments]:
        raise ValueError(f"not a call: {text!r}")
    return call["name"], call[arguments]


def split_thinking(reply: str, opening: str = "<think>", closing: str = "</think>") -> tuple[str | None, str]:
    if not reply.startswith(opening):
        return None, reply
    reasoning, found, rest = reply.removeprefix(opening).partition(closing)
    if not found:
        raise ValueError("the reasoning does not end")
    return reasoning, rest


def between(text: str, opening: str, closing: str, separator: str) -> list[str]:
    """What stands between the marks, of stretches joined by ``separator``."""
    parts = []
    while text:
        if not text.startswith(opening) or closing not in text:
            raise ValueError(f"expected {opening!r} … {closing!r}: {text[:80]!r}")
        inside, _, text = text.removeprefix(opening).partition(closing)
        parts.append(inside)
        if text:
            if not text.startswith(separator):
                raise ValueError(f"expected {separator!r}: {text[:80]!r}")
            text = text.removeprefix(separator)
    return parts


def cut(reply: str, mark: str) -> tuple[str, str]:
    place = reply.find(mark)
    return (reply, "") if place < 0 else (reply[:place], reply[place:])


def hermes(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<tool_call>")
    return Parsed(reasoning, text, [json_call(call, "arguments") for call in between(calls, "<tool_call>\n", "\n</tool_call>", "\n")])


def typed(name: str, key: str, raw: str) -> Any:
    """A tagged value: a string where the schema admits strings only, else what JSON makes of it, else a string."""
    schema = SCHEMAS[name]["properties"].get(key, {})
    listed = schema.get("enum", [schema["const"]] if "const" in schema else []) if isinstance(schema, dict) else []
    if isinstance(schema, dict) and (schema.get("type") == "string" or (listed and all(isinstance(item, str) for item in listed))):
        return raw
    try:
        return json_value(raw)
    except json.JSONDecodeError:
        return raw


def qwen_coder(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<tool_call>")
    found = []
    for call in between(calls, "<tool_call>\n<function=", "</function>\n</tool_call>", "\n"):
        name, mark, body = call.partition(">\n")
        if not mark:
            raise ValueError(f"no name: {call!r}")
        pairs = []
        for parameter in between(body, "<parameter=", "\n</parameter>\n", ""):
            key, mark, raw = parameter.partition(">\n")
            if not mark or "</parameter" in raw:
                raise ValueError(f"not a parameter: {parameter!r}")
            pairs.append((key, typed(name, key, raw)))
        found.append((name, members(pairs)))
    return Parsed(reasoning, text, found)


def glm(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<tool_call>")
    found = []
    for call in between(calls, "<tool_call>", "</tool_call>", "\n"):
        name, _, body = call.partition("\n")
        pairs = []
        for parameter in between(body, "<arg_key>", "</arg_value>\n", ""):
            key, mark, raw = parameter.partition("</arg_key>\n<arg_value>")
            if not mark:
                raise ValueError(f"not a parameter: {parameter!r}")
            pairs.append((key, typed(name, key, raw)))
        found.append((name, members(pairs)))
    return Parsed(reasoning, text, found)


def bare(separator: str) -> Callable[[str], Parsed]:
    def parse(reply: str) -> Parsed:
        if not reply.lstrip().startswith("{"):
            return Parsed(None, reply, [])
        decoder = json.JSONDecoder(object_pairs_hook=members)
        calls, place = [], 0
        while place < len(reply):
            if place and not reply.startswith(separator, place):
                raise ValueError(f"expected {separator!r}: {reply[place:]!r}")
            call, end = decoder.raw_decode(reply, place + (len(separator) if place else 0))
            if list(call) != ["name", "parameters"]:
                raise ValueError(f"not a call: {call!r}")
            calls.append((call["name"], call["parameters"]))
            place = end
        return Parsed(None, "", calls)

    return parse


def mistral(reply: str) -> Parsed:
    text, calls = cut(reply, "[TOOL_CALLS]")
    listed = json_value(calls.removeprefix("[TOOL_CALLS]")) if calls else []
    if any(list(call) != ["name", "arguments"] for call in listed):
        raise ValueError(f"not calls: {calls!r}")
    return Parsed(None, text, [(call["name"], call["arguments"]) for call in listed])


def mistral_v11(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply, "[THINK]", "[/THINK]")
    text, *calls = rest.split("[TOOL_CALLS]")
    pairs = [call.split("[ARGS]") for call in calls]
    return Parsed(reasoning, text, [(name, json_value(arguments)) for name, arguments in pairs])


def harmony(reply: str) -> Parsed:
    reasoning, texts, calls = None, [], []
    for message in ("<|start|>assistant" + reply).split("<|start|>assistant")[1:]:
        found = re.fullmatch(r"<\|channel\|>([^<]*?)( <\|constrain\|>json)?<\|message\|>(.*?)(<\|end\|>|<\|call\|>)?", message, re.DOTALL)
        if found is None:
            raise ValueError(f"not a message: {message!r}")
        channel, constrained, content, ending = found.groups()
        if channel.startswith("commentary to=functions."):
            if not constrained or ending == "<|end|>":
                raise ValueError(f"not a call: {message!r}")
            calls.append((channel.removeprefix("commentary to=functions."), json_value(content)))
        elif channel == "analysis":
            reasoning = content
        elif channel in ("final", "commentary") and not calls:
            texts.append(content)
        else:
            raise ValueError(f"not a channel: {channel!r}")
    return Parsed(reasoning, "".join(texts), calls)


def deepseek_v3(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<｜tool▁calls▁begin｜>")
    found = []
    for section in between(calls, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<never>"):
        for call in between(section, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>", "\n"):
            name, _, arguments = call.partition("\n```json\n")
            found.append((name, json_value(arguments)))
    return Parsed(reasoning, text, found)


def deepseek_v31(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<｜tool▁calls▁begin｜>")
    found = []
    for section in between(calls, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<never>"):
        for call in between(section, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", ""):
            name, _, arguments = call.partition("<｜tool▁sep｜>")
            found.append((name, json_value(arguments)))
    return Parsed(reasoning, text, found)


def kimi_k2(reply: str) -> Parsed:
    reasoning, rest = split_thinking(reply)
    text, calls = cut(rest, "<|tool_calls_section_begin|>")
    found = []
    for section in between(calls, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<never>"):
        for call in between(section, "<|tool_call_begin|>", "<|tool_call_end|>", ""):
            named, _, arguments = call.partition("<|tool_call_argument_begin|>")
            name = re.fullmatch(r"functions\.([^:]+):[0-9]+", named)
            if name is None:
                raise ValueError(f"not a name: {named!r}")
            found.append((name[1], json_value(arguments)))
    return Parsed(reasoning, text, found)


PARSERS: dict[str, Callable[[str], Parsed]] = {
    "hermes": hermes, "qwen3": hermes, "qwen3_coder": qwen_coder, "qwen3_5": qwen_coder, "llama3": bare("; "), "mistral": mistral,
    "mistral_v11": mistral_v11, "harmony": harmony, "deepseek_v3": deepseek_v3, "deepseek_v31": deepseek_v31, "kimi_k2": kimi_k2,
    "glm4": glm, "gemma": bare("<never>"),
}


def problems(call: Call) -> list[str]:
    """Why a call is not one of a tool; empty if it is."""
    name, arguments = call
    if name not in SCHEMAS:
        return [f"no tool is called {name!r}"]
    twice = getattr(arguments, "repeated", frozenset()) & set(SCHEMAS[name]["properties"])
    return [f"{key!r} comes twice" for key in twice] + [error.message for error in _VALIDATORS[name].iter_errors(arguments)]


@functools.cache
def walker(format: str, **settings: Any) -> Walker:
    return Walker(compile_tools(TOOLS, format=format, **settings).machine)


def accepts(machine: Any, text: str) -> bool:
    from stcc.runtime import load

    matcher = load(machine).matcher()
    return matcher.accept_bytes(text.encode()) and matcher.is_accepting()

