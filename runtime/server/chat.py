"""Messages to prompt tokens, by the model's chat template; turns that this server wrote are put back as they were written.

In: OpenAI's ``messages`` and ``tools``. Out: the prompt's text and tokens. A template renders a tool call from its parsed arguments, and so
rarely as the model spelled it; then the prompt differs from what the model has read, and the prompt cache helps no further than to there.
So replies with calls are remembered by the ids of their calls, and an assistant turn that comes back with them, unchanged, is replaced by
the very tokens (section D.8 of the few-path paper).

Where a template knows nothing of tools, they are described in a system message, in the words that the Hermes family was trained on; calls
of earlier turns are written in the server's format of tool calls, and what they found stands in a user's turn, since many such templates
take no other roles than those of a conversation.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stcc.runtime.seam import call_format
from stcc.runtime.server.errors import ApiError

REMEMBERED = 1024
"""Replies with calls that are kept."""
_MARK = "\ue000stcc{}\ue001"
"""Stands for a remembered turn while the template is applied; private-use characters, which no template changes."""
_INSTRUCTIONS = """You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return {form}"""
_JSON_FORM = """a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
_GENERAL_FORM = "your calls in this form:\n{form}"
_RESPONSE = "<tool_response>\n{}\n</tool_response>"


@dataclass(frozen=True)
class Prompt:
    """A prompt: its tokens, and whether it ends inside an open reasoning section."""

    tokens: tuple[int, ...]
    reasoning: bool


@dataclass(frozen=True)
class _Turn:
    calls: tuple[tuple[str, str], ...]
    tokens: tuple[int, ...]


class Turns:
    """Replies with calls, by the ids of their calls; the one used longest ago goes first. Any thread."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[str, ...], _Turn] = OrderedDict()

    def remember(self, ids: Sequence[str], calls: Sequence[tuple[str, str]], tokens: Sequence[int]) -> None:
        """Keep a reply's tokens; ``calls`` are its names and arguments, as they were sent."""
        self._turns[tuple(ids)] = _Turn(tuple(calls), tuple(tokens))
        while len(self._turns) > REMEMBERED:
            self._turns.popitem(last=False)

    def find(self, message: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The tokens of an assistant message that came back unchanged; None for others."""
        calls = message.get("tool_calls") or []
        turn = self._turns.get(tuple(str(call.get("id")) for call in calls)) if calls else None
        if turn is None or turn.calls != tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls):
            return None
        return turn.tokens


class ChatTemplate:
    """The chat template of one tokenizer.

    Attributes:
        knows_tools: whether it renders ``tools`` itself.
    """

    def __init__(self, tokenizer: Any, tool_format: str = "hermes", reasoning_open: str = "") -> None:
        """Wrap mlx-lm's (or transformers') ``tokenizer``; ``reasoning_open`` is what a reasoning section begins with."""
        self._tokenizer, self._tool_format, self._reasoning_open = tokenizer, tool_format, reasoning_open.strip()
        source = getattr(tokenizer, "chat_template", None)
        self.source = source if isinstance(source, str) else "" if source is None else json.dumps(source)
        self.knows_tools = "tools" in self.source

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``; ``special`` adds what the tokenizer puts around texts."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=special)]

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, turns: Turns,
               arguments: Mapping[str, Any] | None = None) -> Prompt:
        """The prompt of a conversation.

        Args:
            messages: as they came, checked.
            tools: as they came; None or empty for none.
            turns: replies to put back.
            arguments: more variables of the template.

        Raises:
            ApiError: 400 where the model has no chat template, or the template refuses the messages.
        """
        if not self.source:
            raise ApiError(400, "the model has no chat template", param="messages", code="no_chat_template", hint="use /v1/completions")
        written, pieces = self._plain(messages, turns)
        if tools and not self.knows_tools:
            written = described(written, tools, self._tool_format)
        text = self._apply(written, list(tools) if tools and self.knows_tools else None, arguments or {})
        tokens: list[int] = []
        for number, piece in enumerate(pieces):
            before, met, text = text.partition(_MARK.format(number))
            if not met:
                raise ApiError(400, "the chat template leaves out an assistant turn with tool calls", param="messages")
            tokens += [*self.encode(before), *piece]
        tokens += self.encode(text)
        return Prompt(tuple(tokens), bool(self._reasoning_open) and text.rstrip().endswith(self._reasoning_open))

    def _apply(self, messages: list[dict[str, Any]], tools: list[Any] | None, arguments: Mapping[str, Any]) -> str:
        try:
            found = self._tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False, **arguments)
        except Exception as error:  # templates raise what they like on messages they do not take
            raise ApiError(400, f"the chat template does not take these messages: {error}", param="messages", code="template") from error
        return str(found)

    def _plain(self, messages: Sequence[Mapping[str, Any]], turns: Turns) -> tuple[list[dict[str, Any]], list[tuple[int, ...]]]:
        """Messages as templates take them, with a mark in place of each turn to put back, and those turns' tokens."""
        written: list[dict[str, Any]] = []
        pieces: list[tuple[int, ...]] = []
        for message in messages:
            tokens = turns.find(message) if message["role"] == "assistant" else None
            if tokens is not None:
                written.append({"role": "assistant", "content": _MARK.format(len(pieces))})
                pieces.append(tokens)
            else:
                written.append(_message(message, None if self.knows_tools else self._tool_format))
        return written if self.knows_tools else _told(written), pieces


def _message(message: Mapping[str, Any], tool_format: str | None) -> dict[str, Any]:
    """A message as templates take it; its calls are text in ``tool_format``, None for a template that writes them itself."""
    found = {key: value for key, value in message.items() if value is not None}
    found["role"] = "system" if message["role"] == "developer" else message["role"]
    found["content"] = _content(message.get("content"))
    calls = message.get("tool_calls")
    if not calls:
        return found
    parsed = [{**call, "function": {**call["function"], "arguments": _arguments(call["function"]["arguments"])}} for call in calls]
    if tool_format is None:
        return {**found, "tool_calls": parsed}
    text = spelled_calls(tool_format, [(call["function"]["name"], call["function"]["arguments"]) for call in calls])
    return {"role": "assistant", "content": "\n".join(filter(None, [found["content"], text]))}


def _told(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with results of calls, one after the other, as one turn of the user."""
    found: list[dict[str, Any]] = []
    told = False
    for message in messages:
        if message["role"] != "tool":
            found.append(message)
        elif told:
            found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n{_RESPONSE.format(message['content'])}"}
        else:
            found.append({"role": "user", "content": _RESPONSE.format(message["content"])})
        told = message["role"] == "tool"
    return found


def spelled_calls(tool_format: str, calls: Sequence[tuple[str, str]]) -> str:
    """Calls, as names and JSON texts of arguments, in a family's format.

    >>> spelled_calls("llama3", [("f", '{"a": 1}')])
    '{"name": "f", "parameters": {"a": 1}}'
    """
    form = call_format(tool_format)
    texts = [form.head + _call(form, number, name, arguments) + form.tail for number, (name, arguments) in enumerate(calls)]
    return str(form.section_open + form.separator.join(texts) + form.section_close)


def _call(form: Any, number: int, name: str, arguments: str) -> str:
    if form.keys is not None:
        return f'{{"{form.keys[0]}": {json.dumps(name, ensure_ascii=False)}, "{form.keys[1]}": {arguments}}}'
    head = f"{name}:{number}{form.neck}" if form.numbered else f"{name}{form.neck}"
    values = _arguments(arguments)
    if form.tags is None or not isinstance(values, dict):
        return head + arguments
    texts = [(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in values.items()]
    return head + "".join(f"{form.tags.open}{key}{form.tags.between}{value}{form.tags.close}" for key, value in texts) + str(form.tags.end)


def _content(content: Any) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _arguments(text: str) -> Any:
    """Templates take arguments as a value."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _example(tool_format: str) -> str:
    tagged = call_format(tool_format).tags is not None
    return spelled_calls(tool_format, [("<function-name>", '{"<argument-name>": "<value>"}' if tagged else "<args-json-object>")])


def described(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], tool_format: str) -> list[dict[str, Any]]:
    """The messages with the tools described in the system message."""
    form = _JSON_FORM if tool_format in ("hermes", "qwen3") else _GENERAL_FORM.format(form=_example(tool_format))
    text = _INSTRUCTIONS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools), form=form)
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def guess_format(template: str) -> str:
    """The format of tool calls that a chat template speaks of; ``hermes`` where it says nothing.

    >>> guess_format("... <tool_call>\\\\n<function=... "), guess_format("")
    ('qwen3_coder', 'hermes')
    """
    signs = (("<function=", "qwen3_coder"), ("<arg_key>", "glm4"), ("<|tool_calls_section_begin|>", "kimi_k2"), ("<|channel|>", "harmony"),
             ("[ARGS]", "mistral_v11"), ("[TOOL_CALLS]", "mistral"), ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
             ("<start_of_turn>", "gemma"), ("<|python_tag|>", "llama3"), ('"parameters":', "llama3"))
    if "<｜tool▁calls▁begin｜>" in template and "```json" in template:
        return "deepseek_v3"
    return next((name for sign, name in signs if sign in template), "hermes")
