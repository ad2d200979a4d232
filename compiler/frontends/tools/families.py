"""How each model family spells tool calls: small declarative descriptions, no code.

A reply is read as

    [reasoning] [text] section_open CALL (separator CALL)* section_close

with ``CALL = head NAME neck ARGUMENTS tail`` or, where ``keys`` is given, ``CALL = head {"name": NAME, "arguments": ARGUMENTS} tail`` as
one JSON object. ``ARGUMENTS`` are a JSON object, or tagged parameters (``Tags``). The descriptions follow the chat templates that
the families publish; ``docs/tools.md`` shows a reply of each.

>>> FORMATS["qwen3"].head, FORMATS["qwen3"].tail
('<tool_call>\\n', '\\n</tool_call>')
"""

from __future__ import annotations

from dataclasses import dataclass

from stcc.compiler.frontends.json_schema.tagged import Tags


@dataclass(frozen=True)
class Section:
    """A stretch of free text: ``open TEXT close after``; the text does not hold ``close``, even without its last character."""

    open: str = ""
    close: str = ""
    after: str = ""


@dataclass(frozen=True)
class CallFormat:
    """One family's spelling.

    Attributes:
        name: what ``format`` calls it.
        head: before a call.
        neck: between the tool's name and the arguments; unused where ``keys`` is given.
        tail: after a call.
        tail_stops: the tail is a token that ends the output, so that the text may end before it.
        keys: names of the two members of a call that is one JSON object; None for others.
        tags: how arguments are spelled, if not as JSON.
        numbered: a running number stands between name and neck, after a colon.
        section_open: before the first call.
        section_close: after the last call.
        separator: between calls.
        parallel: whether a reply may hold several calls.
        openers: what begins a call; free text holds none of them.
        closers: what ends something around a value; no value holds one, even without its last character.
        reasoning: the reasoning section, None for families without one.
        text: text in place of calls.
        preamble: text before calls; None where a reply is either text or calls, told apart by its first character.
        special: texts that tokenizers of the family hold as special tokens, which spell nothing unless a grammar asks for them.
    """

    name: str
    head: str = ""
    neck: str = ""
    tail: str = ""
    tail_stops: bool = False
    keys: tuple[str, str] | None = None
    tags: Tags | None = None
    numbered: bool = False
    section_open: str = ""
    section_close: str = ""
    separator: str = ""
    parallel: bool = True
    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    reasoning: Section | None = None
    text: Section = Section()
    preamble: Section | None = Section()
    special: tuple[str, ...] = ()


_THINK = Section("<think>\n", "</think>", "\n\n")
_NAME_ARGUMENTS = ("name", "arguments")
_NAME_PARAMETERS = ("name", "parameters")

_HERMES = {
    "head": "<tool_call>\n", "tail": "\n</tool_call>", "keys": _NAME_ARGUMENTS, "separator": "\n",
    "openers": ("<tool_call>",), "closers": ("</tool_call>",), "reasoning": _THINK,
}
_QWEN_TAGS = {
    "head": "<tool_call>\n<function=", "neck": ">\n", "tail": "\n</tool_call>", "separator": "\n",
    "tags": Tags("<parameter=", ">\n", "\n</parameter>\n", "</function>"),
    "openers": ("<tool_call>", "<function="), "closers": ("</parameter>", "</function>", "</tool_call>"), "reasoning": _THINK,
}
_HARMONY = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
         "<|tool_calls_section_end|>")

_ALL = (
    CallFormat("hermes", **_HERMES),  # type: ignore[arg-type]
    CallFormat("qwen3", **_HERMES),  # type: ignore[arg-type]
    CallFormat("qwen3_coder", **_QWEN_TAGS),  # type: ignore[arg-type]
    CallFormat("qwen3_5", **_QWEN_TAGS),  # type: ignore[arg-type]
    CallFormat("llama3", keys=_NAME_PARAMETERS, separator="; ", preamble=None),
    CallFormat("mistral", section_open="[TOOL_CALLS] [", section_close="]", separator=", ", keys=_NAME_ARGUMENTS,
               openers=("[TOOL_CALLS]",), closers=("[TOOL_CALLS]",), special=("[TOOL_CALLS]",)),
    CallFormat("mistral_v11", head="[TOOL_CALLS]", neck="[ARGS]", openers=("[TOOL_CALLS]",), closers=("[TOOL_CALLS]", "[ARGS]"),
               reasoning=Section("[THINK]", "[/THINK]"), special=("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")),
    CallFormat("harmony", head="<|channel|>commentary to=functions.", neck=" <|constrain|>json<|message|>", tail="<|call|>",
               tail_stops=True, parallel=False, openers=_HARMONY, closers=_HARMONY,
               reasoning=Section("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),
               text=Section("<|channel|>final<|message|>"),
               preamble=Section("<|channel|>commentary<|message|>", "<|end|>", "<|start|>assistant"), special=_HARMONY),
    CallFormat("deepseek_v3", section_open=_DEEPSEEK[0], head=f"{_DEEPSEEK[1]}function{_DEEPSEEK[2]}", neck="\n```json\n",
               tail=f"\n```{_DEEPSEEK[3]}", separator="\n", section_close=_DEEPSEEK[4], openers=_DEEPSEEK[:2], closers=_DEEPSEEK,
               reasoning=_THINK, special=_DEEPSEEK),
    CallFormat("deepseek_v31", section_open=_DEEPSEEK[0], head=_DEEPSEEK[1], neck=_DEEPSEEK[2], tail=_DEEPSEEK[3],
               section_close=_DEEPSEEK[4], openers=_DEEPSEEK[:2], closers=_DEEPSEEK,
               reasoning=Section("<think>", "</think>"), special=_DEEPSEEK),
    CallFormat("kimi_k2", section_open=_KIMI[0], head=f"{_KIMI[1]}functions.", numbered=True, neck=_KIMI[2], tail=_KIMI[3],
               section_close=_KIMI[4], openers=_KIMI[:2], closers=_KIMI, reasoning=Section("<think>", "</think>"), special=_KIMI),
    CallFormat("glm4", head="<tool_call>", neck="\n", separator="\n",
               tags=Tags("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>"), openers=("<tool_call>",),
               closers=("</arg_value>", "</tool_call>"), reasoning=Section("<think>", "</think>", "\n")),
    CallFormat("gemma", keys=_NAME_PARAMETERS, parallel=False, preamble=None),
)
FORMATS: dict[str, CallFormat] = {each.name: each for each in _ALL}
"""The formats by name."""
