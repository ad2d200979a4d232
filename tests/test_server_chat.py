"""Chat templates: what they are given, tools they know nothing of, turns put back token by token."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import transformers  # noqa: E402
from decoding_cases import vocabulary  # noqa: E402
from server_cases import ADD, HELLO, NOTE, TEMPLATE, tokenizer  # noqa: E402
from tokenizer_cases import SHARED  # noqa: E402
from tool_cases import accepts  # noqa: E402

from stcc.compiler import compile_tools  # noqa: E402
from stcc.compiler.frontends.tools import FORMATS  # noqa: E402
from stcc.runtime.server.chat import REMEMBERED, ChatTemplate, Turns, guess_format, spelled_calls  # noqa: E402
from stcc.runtime.server.errors import ApiError  # noqa: E402
from stcc.runtime.server.replies import ReplyReader  # noqa: E402

KNOWING = ("{% for t in tools or [] %}TOOL {{ t['function']['name'] }}\n{% endfor %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
           "{{ m['content'] }}{% for c in m['tool_calls'] or [] %}CALL {{ c['function']['name'] }} "
           "{{ c['function']['arguments'] | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
           "{% if add_generation_prompt %}<|im_start|>assistant\n{{ mood or '' }}{% endif %}")
ARGUMENTS = '{"a":1,   "b":"x"}'
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
TURNS: list[dict[str, Any]] = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                               {"role": "tool", "tool_call_id": "call_1", "content": "42"}]


def text(tokens: Any) -> str:
    return tokenizer().decode(list(tokens))


def prompt(template: str, messages: list[dict[str, Any]], tools: Any = None, turns: Turns | None = None, **more: Any) -> str:
    return text(ChatTemplate(tokenizer(template)).prompt(messages, tools, turns or Turns(), **more).tokens)


def test_a_template_without_tools_gets_them_in_the_system_message() -> None:
    shown = prompt(TEMPLATE, HELLO, [ADD])
    assert shown.startswith("<|im_start|>system") and "<tools>\n" + json.dumps(ADD) in shown and "hello world" in shown
    assert prompt(TEMPLATE, HELLO) == prompt(TEMPLATE, HELLO, [])
    extended = prompt(TEMPLATE, [{"role": "developer", "content": "be brief"}, *HELLO], [ADD])
    assert extended.count("system\n") == 1 and "be brief\n\n" in extended
    assert '<tool_call>\n{"name": "add", "arguments": ' + ARGUMENTS in prompt(TEMPLATE, TURNS, [ADD])


def test_a_template_that_knows_tools_gets_them_parsed() -> None:
    shown = prompt(KNOWING, TURNS, [ADD], arguments={"mood": "well"})
    assert shown.startswith("TOOL add\n") and 'CALL add {"a": 1, "b": "x"}' in shown and shown.endswith("well")
    broken = [*HELLO, {**TURNS[1], "tool_calls": [{**CALL, "function": {"name": "add", "arguments": "{"}}]}, TURNS[2]]
    assert 'CALL add "{"' in prompt(KNOWING, broken, [ADD])


@pytest.mark.parametrize("template", [TEMPLATE, KNOWING])
def test_turns_come_back_as_the_tokens_that_were_written(template: str) -> None:
    """Tokens that no tokenizer would choose for the text, to see that they are not made anew."""
    spelled = [token for character in '<tool_call>' for token in tokenizer().encode(character, add_special_tokens=False)]
    turns = Turns()
    turns.remember(["call_1"], [("add", ARGUMENTS)], spelled)
    found = ChatTemplate(tokenizer(template)).prompt(TURNS, [ADD], turns).tokens
    before = ChatTemplate(tokenizer(template)).prompt(HELLO, [ADD], turns).tokens
    assert found[:len(before) + len(spelled)] == (*before, *spelled)
    told = "tool\n42" if template is KNOWING else "user\n<tool_response>\n42\n</tool_response>"
    assert text(found).endswith(f"{told}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("changed", [
    {"tool_calls": [{**CALL, "id": "call_2"}]}, {"tool_calls": [{**CALL, "function": {"name": "add", "arguments": '{"a": 2, "b": "x"}'}}]},
    {"tool_calls": [CALL, {**CALL, "id": "call_2"}]}, {"tool_calls": []},
])
def test_a_turn_that_was_changed_is_not_put_back(changed: dict[str, Any]) -> None:
    turns = Turns()
    turns.remember(["call_1"], [("add", ARGUMENTS)], [9, 9, 9])
    assert turns.find({**TURNS[1], **changed}) is None
    assert turns.find(TURNS[1]) == (9, 9, 9)


def test_turns_are_bounded() -> None:
    turns = Turns()
    for number in range(REMEMBERED + 5):
        turns.remember([str(number)], [("f", "{}")], [number])
    assert len(turns._turns) == REMEMBERED
    assert turns.find({"tool_calls": [{"id": "0", "function": {"name": "f", "arguments": "{}"}}]}) is None


def test_parts_of_text_are_joined() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hello "}, {"type": "text", "text": "world"}]}]
    assert prompt(TEMPLATE, parts) == prompt(TEMPLATE, HELLO)


def test_templates_that_refuse() -> None:
    with pytest.raises(ApiError, match="only users"):
        prompt("{{ raise_exception('only users') }}", HELLO)
    with pytest.raises(ApiError, match="no chat template"):
        ChatTemplate(object()).prompt(HELLO, None, Turns())
    turns = Turns()
    turns.remember(["call_1"], [("add", ARGUMENTS)], [9])
    with pytest.raises(ApiError, match="leaves out"):
        prompt("{{ messages[0]['content'] }}", TURNS, None, turns)


def test_an_open_reasoning_section_is_seen() -> None:
    opening = TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    assert ChatTemplate(tokenizer(opening), "qwen3", "<think>\n").prompt(HELLO, None, Turns()).reasoning
    assert not ChatTemplate(tokenizer(TEMPLATE), "qwen3", "<think>\n").prompt(HELLO, None, Turns()).reasoning
    assert not ChatTemplate(tokenizer(opening), "llama3", "").prompt(HELLO, None, Turns()).reasoning


@pytest.mark.parametrize(("template", "expected"), [
    ("", "hermes"), ("<tool_call>\n{", "hermes"), ("<tool_call>\n<function=x>", "qwen3_coder"), ("<|channel|>analysis", "harmony"),
    ("[TOOL_CALLS] [", "mistral"), ("[TOOL_CALLS]f[ARGS]", "mistral_v11"), ("<|python_tag|>", "llama3"), ("<start_of_turn>", "gemma"),
    ("<tool_call>f\n<arg_key>", "glm4"), ("<|tool_calls_section_begin|>", "kimi_k2"), ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ("<｜tool▁calls▁begin｜>```json", "deepseek_v3"),
])
def test_formats_by_template(template: str, expected: str) -> None:
    assert guess_format(template) == expected


def test_prompts_hold_special_tokens_as_such() -> None:
    found = ChatTemplate(tokenizer()).prompt(HELLO, None, Turns()).tokens
    assert set(found) & set(vocabulary().stop_token_ids)


# ---- formats and real templates


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_calls_are_spelled_as_the_grammar_has_them(name: str) -> None:
    """What stands in the prompt for an earlier turn is a reply that the format's grammar admits, and reads back as the same calls."""
    calls = [("add", '{"a": 1, "b": "x"}'), ("note", '{"text": "hello"}')][:2 if FORMATS[name].parallel else 1]
    spelled = spelled_calls(name, calls)
    assert accepts(compile_tools([ADD, NOTE], format=name, tool_choice="required"), spelled)
    reader = ReplyReader(FORMATS[name], {tool["function"]["name"]: tool["function"]["parameters"] for tool in (ADD, NOTE)})
    readings = (reader.feed(spelled.encode()), reader.finish())
    read = [(call.name, json.loads(call.arguments)) for reading in readings for call in reading.calls]
    assert read == [(name, json.loads(arguments)) for name, arguments in calls]


@pytest.mark.parametrize(("name", "format"), [("qwen3", "qwen3"), ("llama3", "llama3"), ("gemma3", "gemma")])
def test_real_templates_take_a_tool_round_trip(name: str, format: str) -> None:
    """Templates with tools write the call as the format has it; those without are given it, and take the result as a turn of the user."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip("the real tokenizers are not beside the repository")
    wrapped = transformers.AutoTokenizer.from_pretrained(str(folder))
    template = ChatTemplate(wrapped, format)
    if template.knows_tools:
        assert guess_format(template.source) in (format, "hermes")
    turns = [*TURNS[:-1], {**TURNS[-1]}, {"role": "tool", "tool_call_id": "call_2", "content": "43"}]
    shown = wrapped.decode(template.prompt(turns, [ADD, NOTE], Turns()).tokens)
    arguments = json.dumps(json.loads(ARGUMENTS))
    assert spelled_calls(format, [("add", arguments)]) in shown.replace(ARGUMENTS, arguments)
    assert shown.index('"add"') < shown.index("42") < shown.index("43")
