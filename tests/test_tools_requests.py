"""What a request may ask for, and every way in which it may be wrong: a typed error with a pointer into the tools document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import TOOLS, accepts, function, hermes

from stcc.compiler import CompileError, Options, SourceError, UnsatisfiableError, UnsupportedError, compile_tools
from stcc.compiler.frontends.tools import FORMATS, Reply, ToolSet, read_request
from stcc.compiler.options import Deadline
from stcc.formats import Artifact
from stcc.runtime import cli

SAMPLE = Path(__file__).parents[1] / "samples" / "agents.tools.json"
THREE = [function("a", {"x": {"type": "integer"}}), function("ab", {"x": {"type": "integer"}}), function("c", {})]
A, AB, C = (f'<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>'
            for name, given in (("a", '{"x": 1}'), ("ab", '{"x": 2}'), ("c", "{}")))
NAMED = {"type": "function", "function": {"name": "ab"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "c"}},
                                                                               {"type": "function", "function": {"name": "a"}}]}}
REQUIRED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "c"}]}


@pytest.mark.parametrize(("choice", "taken", "refused"), [
    ("auto", ["", "Hello.", A, f"Well.\n{A}\n{AB}"], [A[:-1], f"{A}{AB}", f"{A}\n", f"{A}\nmore"]),
    ("none", ["", "Hello. <tool"], [A, f"Well.{A}", "<tool_call>"]),
    ("required", [A, C, f"{A}\n{A}"], ["", "Hello.", f"Well.\n{A}"]),
    (NAMED, [AB], ["", A, f"{AB}\n{AB}", "Hello."]),
    ({"type": "function", "name": "c"}, [C], [A, AB]),
    (ALLOWED, ["", "Hello.", A, f"{C}\n{A}"], [AB, f"{A}\n{AB}"]),
    (REQUIRED, [C, f"{C}\n{C}"], ["", A, AB]),
])
def test_tool_choice(choice: Any, taken: list[str], refused: list[str]) -> None:
    artifact = compile_tools(THREE, format="hermes", tool_choice=choice)
    assert [reply for reply in taken if not accepts(artifact, reply)] == []
    assert [reply for reply in refused if accepts(artifact, reply)] == []


def test_one_call_at_most() -> None:
    artifact = compile_tools(THREE, format="hermes", parallel_tool_calls=False)
    assert accepts(artifact, A) and not accepts(artifact, f"{A}\n{C}") and accepts(artifact, "Hello.")


def test_text_may_be_allowed_before_required_calls_and_forbidden_otherwise() -> None:
    artifact = compile_tools(THREE, format="hermes", tool_choice="required", text=True)
    assert accepts(artifact, f"Well.\n{A}") and not accepts(artifact, "Well.")
    silent = compile_tools(THREE, format="hermes", text=False)
    assert accepts(silent, A) and accepts(silent, "") and not accepts(silent, f"Well.{A}") and not accepts(silent, "Well.")


@pytest.mark.parametrize(("reasoning", "taken", "refused"), [
    (False, [A], [f"<think>\nhm\n</think>\n\n{A}"]),
    (True, [A, f"<think>\nhm <tool_call>\n</think>\n\n{A}", f"<think>\n</think>\n\n{A}"],
     [f"<think>\nhm{A}", f"<think>\n</think\n</think>\n\n{A}"]),
    ("required", [f"<think>\nhm\n</think>\n\n{A}"], [A]),
    ("open", [f"hm\n</think>\n\n{A}", f"</think>\n\n{A}"], [A, f"<think>\nhm\n{A}"]),
])
def test_reasoning(reasoning: Any, taken: list[str], refused: list[str]) -> None:
    artifact = compile_tools(THREE, format="qwen3", tool_choice="required", reasoning=reasoning)
    assert [reply for reply in taken if not accepts(artifact, reply)] == []
    assert [reply for reply in refused if accepts(artifact, reply)] == []


def test_reasoning_may_come_before_text() -> None:
    artifact = compile_tools(THREE, format="qwen3", reasoning=True)
    assert accepts(artifact, "<think>\nhm\n</think>\n\nHello.") and accepts(artifact, f"<think>\nhm\n</think>\n\nWell.\n{A}")
    assert not accepts(artifact, "Hello <think>")


# ---- arguments


def call(name: str, arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def test_arguments_are_closed_unless_the_schema_says_otherwise() -> None:
    inner = {"type": "object", "properties": {"i": {"type": "integer"}}}
    tools = [function("f", {"o": inner}), function("open", {"o": inner}, additionalProperties=True),
             function("any", {"a": {"type": "integer"}}, [], allOf=[{"properties": {"b": {"type": "integer"}}}])]
    artifact = compile_tools(tools, format="hermes", text=False)
    assert accepts(artifact, call("f", {"o": {"i": 1, "other": 2}})) and not accepts(artifact, call("f", {"o": {}, "other": 2}))
    assert accepts(artifact, call("open", {"o": {}, "other": 2}))
    assert accepts(artifact, call("any", {"a": 1, "b": 2})) and not accepts(artifact, call("any", {"a": 1, "c": 2}))
    strict = compile_tools(tools, format="hermes", text=False, strict=True)
    assert accepts(strict, call("f", {"o": {"i": 1}})) and not accepts(strict, call("f", {"o": {"i": 1, "other": 2}}))
    assert accepts(strict, call("open", {"o": {}, "other": 2})), "a schema that says true means it"
    tools[0]["function"]["strict"] = True
    assert not accepts(compile_tools(tools, format="hermes", text=False), call("f", {"o": {"i": 1, "other": 2}}))


@pytest.mark.parametrize("format", ["hermes", "qwen3_coder"])
def test_required_parameters_are_there_and_none_comes_twice(format: str) -> None:
    tools = [function("f", {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, ["a", "c"])]
    artifact, free = (compile_tools(tools, format=format, text=False, options=options)
                      for options in (None, Options(whitespace="spaced", property_order="any")))

    def reply(*names: str) -> str:
        if format == "hermes":
            return call("f", {}).replace("{}", "{" + ", ".join(f'"{name}": 1' for name in names) + "}")
        parameters = "".join(f"<parameter={name}>\n1\n</parameter>\n" for name in names)
        return f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>"

    for names, declared, anyhow in (("abc", True, True), ("ac", True, True), ("a", False, False), ("", False, False), ("bc", False, False),
                                    ("cab", False, True), ("aac", False, False), ("acc", False, False), ("acd", False, False)):
        assert (accepts(artifact, reply(*names)), accepts(free, reply(*names))) == (declared, anyhow), names


@pytest.mark.parametrize("format", ["hermes", "qwen3_coder", "kimi_k2"])
def test_no_parameters(format: str) -> None:
    for parameters in ({}, {"parameters": None}, {"parameters": {"type": "object", "properties": {}}}):
        artifact = compile_tools([{"type": "function", "function": {"name": "now", **parameters}}], format=format, tool_choice="required")
        reply = {"hermes": call("now", {}), "qwen3_coder": "<tool_call>\n<function=now>\n</function>\n</tool_call>",
                 "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
                            "<|tool_calls_section_end|>"}[format]
        assert accepts(artifact, reply)
        assert not accepts(artifact, reply.replace("{}", '{"a": 1}').replace("</function>", "<parameter=a>\n1\n</parameter>\n</function>"))


def test_references_stay_inside_a_tool() -> None:
    tools = [function(name, {"v": {"$ref": "#/$defs/v"}}, **{"$defs": {"v": {"type": type_}}})
             for name, type_ in (("i", "integer"), ("b", "boolean"))]
    artifact = compile_tools(tools, format="hermes", text=False)
    assert accepts(artifact, call("i", {"v": 1})) and accepts(artifact, call("b", {"v": True}))
    assert not accepts(artifact, call("i", {"v": True})) and not accepts(artifact, call("b", {"v": 1}))


def test_whitespace_is_an_option() -> None:
    reply = '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>'
    for whitespace, spaced, dense in (("spaced", True, False), ("compact", False, True), ("flexible", True, True)):
        artifact = compile_tools(THREE, format="hermes", options=Options(whitespace=whitespace), text=False)
        assert (accepts(artifact, reply), accepts(artifact, reply.replace(" ", ""))) == (spaced, dense)


def test_equal_schemas_are_built_once() -> None:
    word = {"type": "string", "pattern": "^[a-z]{3,9}$"}
    tools = [function(f"tool_{number}", {"a": word, "b": {"type": "integer"}}) for number in range(30)]
    other = [function(f"tool_{number}", {f"a{number}": word}) for number in range(30)]
    shared, distinct = (compile_tools(each, format="hermes").machine for each in (tools, other))
    assert shared.states < distinct.states / 2


# ---- subsets


@settings(max_examples=12, deadline=None)
@given(st.sets(st.sampled_from([tool["function"]["name"] for tool in TOOLS[:8]])))
def test_the_grammar_of_a_subset_calls_that_subset(names: set[str]) -> None:
    from stcc.compiler.ir import verify_grammar

    tool_set = subset_of()
    grammar = tool_set.grammar(Reply(), names)
    assert verify_grammar(grammar) == []
    whole = tool_set.grammar(Reply())
    assert len(grammar.rules) <= len(whole.rules)
    called = {call.rule for call in grammar.rules[0].calls}
    assert called <= set(range(1, len(grammar.rules))) and bool(called) == bool(names)


_SETS: list[ToolSet] = []


def subset_of() -> ToolSet:
    if not _SETS:
        request = read_request(TOOLS[:8], format="hermes", tool_choice=None, parallel_tool_calls=None, strict=None, reasoning=None,
                               text=None, max_depth=64)
        _SETS.append(ToolSet(request.tools, request.format, Options(whitespace="spaced"), Deadline(60)))
    return _SETS[0]


def test_a_subset_is_what_allowed_tools_compiles() -> None:
    from stcc.compiler.inline import inline
    from stcc.compiler.machine import link
    from stcc.compiler.trim import trim

    names = ["get_time", "add"]
    grammar = subset_of().grammar(Reply(), names)
    machine = link(inline(trim(grammar)), Options(), Deadline(60))
    chosen = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name} for name in names]}
    whole = compile_tools(TOOLS[:8], format="hermes", tool_choice=chosen).machine
    assert machine.table.tolist() == whole.table.tolist()


def test_an_unknown_name_in_a_subset() -> None:
    with pytest.raises(SourceError, match="no tool is called 'x'"):
        subset_of().grammar(Reply(), ["x"])


# ---- what is wrong


def wrong(name: str, **function_: Any) -> list[Any]:
    return [function("fine", {}), {"type": "function", "function": {"name": name, **function_}}]


@pytest.mark.parametrize(("tools", "settings_", "error", "pointer"), [
    (THREE, {"tool_choice": {"type": "function", "function": {"name": "d"}}}, SourceError, "#/tool_choice"),
    (THREE, {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "c"}, {"name": "d"}]}}, SourceError,
     "#/tool_choice/tools/1"),
    (THREE, {"tool_choice": {"type": "allowed_tools", "mode": "any", "tools": []}}, SourceError, "#/tool_choice"),
    (THREE, {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, SourceError, "#/tool_choice"),
    (THREE, {"tool_choice": "always"}, SourceError, "#/tool_choice"),
    (THREE, {"tool_choice": {"type": "function"}}, SourceError, "#/tool_choice"),
    ([], {"tool_choice": "required"}, SourceError, "#/tool_choice"),
    ([*THREE, THREE[0]], {}, SourceError, "#/3"),
    (wrong(""), {}, SourceError, "#/1/function"),
    (wrong("x" * 300), {}, SourceError, "#/1/function/name"),
    (wrong("a b"), {}, UnsupportedError, "#/1/function/name"),
    (wrong('a"b'), {}, UnsupportedError, "#/1/function/name"),
    (wrong("a<tool_call>"), {}, UnsupportedError, "#/1/function/name"),
    (wrong("a>"), {"format": "qwen3_coder"}, UnsupportedError, "#/1/function/name"),
    (wrong("a:b"), {"format": "kimi_k2"}, UnsupportedError, "#/1/function/name"),
    (wrong("f", parameters=[]), {}, SourceError, "#/1/function/parameters"),
    (wrong("f", parameters={"type": "array"}), {}, SourceError, "#/1/function/parameters"),
    (wrong("f", parameters={"type": "object", "properties": {"a": {"type": "strin"}}}), {}, SourceError,
     "#/1/function/parameters/properties/a"),
    (wrong("f", parameters={"type": "object", "properties": {"a": {"pattern": "(a)\\1"}}}), {}, UnsupportedError,
     "#/1/function/parameters/properties/a"),
    (wrong("f", parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"minLength": -1}}}), {},
     SourceError, "#/1/function/parameters/$defs/b"),
    (wrong("f", parameters={"properties": {"a": {"$ref": "#/nowhere"}}}), {}, SourceError, "#/1/function/parameters/properties/a"),
    (wrong("f", parameters={"type": "object", "properties": {"a": False}, "required": ["a"]}), {}, UnsatisfiableError,
     "#/1/function/parameters"),
    (wrong("f", parameters={"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}), {}, CompileError,
     "#/1/function/parameters"),
    (wrong("f", strict="yes"), {}, SourceError, "#/1/function/strict"),
    ([{"type": "web_search"}], {}, UnsupportedError, "#/0"),
    (["x"], {}, SourceError, "#/0"),
    ({"tools": [{"name": "x", "parameters": 3}]}, {}, SourceError, "#/tools/0/parameters"),
    ({"tools": [], "extra": 1}, {}, SourceError, "#"),
    ({"format": "hermes"}, {}, SourceError, "#"),
    ({"tools": {}, "format": "hermes"}, {}, SourceError, "#/tools"),
    ({"tools": [], "parallel_tool_calls": "no"}, {}, SourceError, "#/parallel_tool_calls"),
    (THREE, {"format": "morse"}, SourceError, "#"),
    (THREE, {"format": "llama3", "reasoning": True}, SourceError, "#/reasoning"),
    (THREE, {"reasoning": "maybe"}, SourceError, "#/reasoning"),
    ("{", {}, SourceError, ""),
    (7, {}, SourceError, ""),
])
def test_wrong_requests(tools: Any, settings_: dict[str, Any], error: type[CompileError], pointer: str) -> None:
    with pytest.raises(error) as raised:
        compile_tools(tools, **{"format": None if isinstance(tools, dict) else "hermes", **settings_})
    assert raised.value.pointer.startswith(pointer)
    assert raised.value.message


def test_tagged_parameter_names_that_cannot_be_spelled() -> None:
    with pytest.raises(UnsupportedError, match="'a b'"):
        compile_tools([function("f", {"a b": {}})], format="qwen3_coder")


def test_an_unsatisfiable_tool_is_not_left_out_silently() -> None:
    loop = {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}}
    with pytest.raises(UnsatisfiableError) as raised:
        compile_tools([THREE[0], function("f", {"n": {"$ref": "#/$defs/n"}}, **{"$defs": loop})], format="hermes")
    assert raised.value.pointer.startswith("#/1/function/parameters")


def test_warnings_are_recorded_with_their_place() -> None:
    noted = compile_tools([function("f", {"a": {"type": "string", "format": "zip"}})], format="hermes").metadata.warnings
    assert [note["pointer"] for note in noted] == ["#/0/function/parameters/properties/a"]


def test_a_bare_list_takes_the_default_format_with_a_warning() -> None:
    artifact = compile_tools(json.dumps(THREE))
    assert accepts(artifact, A) and artifact.metadata.options["format"] == "hermes"
    assert artifact.metadata.warnings[0]["keyword"] == "format"


def test_responses_style_and_models() -> None:
    class Model:
        def model_dump(self, exclude_none: bool) -> dict[str, Any]:
            return {"type": "function", "function": {"name": "c", "parameters": None}}

    flat = {"type": "function", "name": "ab", "parameters": THREE[1]["function"]["parameters"]}
    artifact = compile_tools([flat, Model()], format="hermes", text=False)
    assert accepts(artifact, AB) and accepts(artifact, C) and not accepts(artifact, A)


def test_a_thousand_tools() -> None:
    tools = [function(f"tool_{number}", {"a": {"type": "string"}, "b": {"type": "integer"}}) for number in range(1000)]
    artifact = compile_tools(tools, format="hermes")
    assert accepts(artifact, call("tool_999", {"a": "x", "b": 1})) and not accepts(artifact, call("tool_1000", {"a": "x", "b": 1}))
    with pytest.raises(CompileError):
        compile_tools(tools, format="hermes", options=Options(max_states=300))


# ---- files


def test_the_sample_compiles_from_the_command_line(tmp_path: Path) -> None:
    target = tmp_path / "agents.stc"
    result = CliRunner().invoke(cli.main, ["compile", str(SAMPLE), "-o", str(target), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["kind"] == "tools"
    artifact = Artifact.load(target)
    reply = call("search_hotels", {"city": "Nice", "nights": 2, "amenities": ["wifi", "pool"],
                                   "near": {"latitude": 43.7, "longitude": 7.2}})
    assert accepts(artifact, reply) and hermes(reply).calls
    assert not accepts(artifact, reply.replace("wifi", "bar"))
    assert accepts(artifact, call("send_message", {"to": "a@b.org", "subject": None, "body": "hi"}))
    assert not accepts(artifact, call("get_time", {"zone": 1}))
    assert artifact.to_bytes() == compile_tools(SAMPLE.read_bytes(), source=str(SAMPLE)).to_bytes()


def test_default_name_and_idle_flags(tmp_path: Path) -> None:
    source = tmp_path / "app.tools.json"
    source.write_text(SAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    assert CliRunner().invoke(cli.main, ["compile", str(source)]).exit_code == 0 and (tmp_path / "app.stc").is_file()
    assert CliRunner().invoke(cli.main, ["compile", str(source), "--dialect", "ecma"]).exit_code == 2


def test_formats_are_recorded() -> None:
    for name in FORMATS:
        assert compile_tools(THREE[2:], format=name).metadata.options["format"] == name
