"""Every sample of every format parses in the format's reference parser, and its calls satisfy their tools' schemas."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tool_cases import PARSERS, SCHEMAS, TOOLS, accepts, problems, walker

from stcc.compiler import compile_tools
from stcc.compiler.frontends.tools import FORMATS
from stcc.formats import Artifact

SAMPLES, SAMPLES_QUICK = 500, 20
LONGEST_FRAME = {"deepseek_v3": 120, "deepseek_v31": 80, "kimi_k2": 100, "harmony": 60}
"""Bytes of what surrounds a call, where that is long."""
CITY, ADD = {"city": "Lyon", "days": 3}, {"a": 1, "b": -2.5}
REPLIES: dict[str, list[str]] = {  # two calls, then text before one; as the families' templates write them
    "hermes": ['<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lyon", "days": 3}}\n</tool_call>\n'
               '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": -2.5}}\n</tool_call>',
               'I will look. <\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'],
    "qwen3_coder": ["<tool_call>\n<function=get_weather>\n<parameter=city>\nLyon\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
                    "</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n-2.5\n</parameter>\n"
                    "</function>\n</tool_call>",
                    "I will look.\n\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>"],
    "llama3": ['{"name": "get_weather", "parameters": {"city": "Lyon", "days": 3}}; {"name": "add", "parameters": {"a": 1, "b": -2.5}}'],
    "mistral": ['[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Lyon", "days": 3}}, '
                '{"name": "add", "arguments": {"a": 1, "b": -2.5}}]',
                'I will look.[TOOL_CALLS] [{"name": "get_time", "arguments": {}}]'],
    "mistral_v11": ['[TOOL_CALLS]get_weather[ARGS]{"city": "Lyon", "days": 3}[TOOL_CALLS]add[ARGS]{"a": 1, "b": -2.5}',
                    "I will look.[TOOL_CALLS]get_time[ARGS]{}"],
    "harmony": ['<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Lyon", "days": 3}<|call|>',
                "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
                "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|>"],
    "deepseek_v3": ['<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n'
                    '{"city": "Lyon", "days": 3}\n```'
                    "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
                    '{"a": 1, "b": -2.5}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
    "deepseek_v31": ['<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Lyon", "days": 3}<｜tool▁call▁end｜>'
                     '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1, "b": -2.5}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
    "kimi_k2": ["<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
                '{"city": "Lyon", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>'
                '{"a": 1, "b": -2.5}<|tool_call_end|><|tool_calls_section_end|>'],
    "glm4": ["<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Lyon</arg_value>\n<arg_key>days</arg_key>\n"
             "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
             "<arg_value>-2.5</arg_value>\n</tool_call>",
             "I will look.\n<tool_call>get_time\n</tool_call>"],
    "gemma": ['{"name": "get_weather", "parameters": {"city": "Lyon", "days": 3}}'],
}


def test_every_format_has_a_parser() -> None:
    assert set(PARSERS) == set(FORMATS)


SHARED = {"qwen3": "hermes", "qwen3_5": "qwen3_coder"}
DISTINCT = sorted(set(FORMATS) - set(SHARED))


@pytest.mark.parametrize("format", DISTINCT)
@pytest.mark.parametrize("samples", [SAMPLES_QUICK, pytest.param(SAMPLES, marks=pytest.mark.slow)])
def test_samples_parse_and_validate(format: str, samples: int) -> None:
    rng, seen = np.random.default_rng(samples), set()
    outputs = walker(format, tool_choice="required", text=False)
    for _ in range(samples):
        reply = outputs.output(rng, 170 + LONGEST_FRAME.get(format, 0)).decode()
        parsed = PARSERS[format](reply)
        assert parsed.calls and not parsed.text, reply
        for call in parsed.calls:
            assert problems(call) == [], (reply, call)
            seen.add(call[0])
    assert len(seen) >= min(15, samples // 8), f"the samples call few tools: {seen}"


@pytest.mark.parametrize("format", sorted(SHARED))
def test_formats_that_are_spelled_alike(format: str) -> None:
    one, other = (compile_tools(TOOLS, format=name) for name in (format, SHARED[format]))
    assert np.array_equal(one.machine.table, other.machine.table)


@pytest.mark.parametrize("format", DISTINCT)
def test_reasoning_and_text_before_calls(format: str) -> None:
    thinks = FORMATS[format].reasoning is not None
    rng, reasoned, worded = np.random.default_rng(6), 0, 0
    outputs = walker(format, tool_choice="required", text=True, reasoning="required" if thinks else False)
    for _ in range(8):
        reply = outputs.output(rng, 300).decode()
        parsed = PARSERS[format](reply)
        assert parsed.calls and not any(map(problems, parsed.calls)), reply
        reasoned += parsed.reasoning is not None
        worded += bool(parsed.text)
    assert reasoned == (8 if thinks else 0)
    if format != "harmony":  # whose preamble is a channel of its own, which a random walk rarely enters
        assert (worded > 0) == (FORMATS[format].preamble is not None)


@functools.cache
def compiled(format: str, parallel: bool = True) -> Artifact:
    return compile_tools(TOOLS, format=format, text=True, parallel_tool_calls=parallel)


@pytest.mark.parametrize("format", sorted(REPLIES))
def test_replies_as_the_templates_write_them(format: str) -> None:
    artifact = compiled(format)
    for reply in REPLIES[format]:
        assert accepts(artifact, reply), reply
        calls = PARSERS[format](reply).calls
        assert calls and all(name in SCHEMAS for name, _ in calls)
        for end in range(1, 4):
            cut = reply[:-end]
            assert not accepts(artifact, cut) or not PARSERS[format](cut).calls, "a call that is cut off is no reply"
        if len(calls) == 2:
            assert calls == [("get_weather", CITY), ("add", ADD)]


@pytest.mark.parametrize("format", sorted(REPLIES))
def test_several_calls_only_where_asked_for(format: str) -> None:
    artifact = compiled(format, parallel=False)
    reply = REPLIES[format][0]
    assert accepts(artifact, reply) == (len(PARSERS[format](reply).calls) == 1)
