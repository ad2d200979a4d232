"""Steering: a turn that begins with a call of the previous turn is taken up again without that tool (section D.8 of the few-path paper).

A small model that has just been told what its call found often makes the same call again. The reply ends at that call, which the client
never sees; the request's tools are narrowed to the others, and the reply goes on where the call began, from the prompt cache. Where no
other tool is left the reply is text, if the request admits that; otherwise there is nothing to steer to, and the call stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stcc.runtime.server.guards import call_key
from stcc.runtime.server.job import Guards
from stcc.runtime.server.requests import ChatRequest, GuardOptions, Message

Key = tuple[str, str]


def guards_of(request: ChatRequest, format: str, answers: bool, watched: bool, most_calls: int) -> Guards:
    """The guards of a reply with tools.

    Args:
        request: what it asks for.
        format: of its calls.
        answers: whether a reply without calls is an answer.
        watched: whether replies are watched where a request does not say.
        most_calls: the server's own bound.
    """
    given = request.guards if request.guards is not None else watched
    if given is False:
        return Guards()
    options = given if isinstance(given, GuardOptions) else GuardOptions()
    previous = previous_calls(request.messages) if options.previous_call and not (request.logprobs or request.stops) else ()
    kept = tuple(key for key in previous if narrowed(request.tools or [], request.tool_choice, {key[0]}) is not None)
    names = tuple(filter(None, map(_name, request.tools or [])))
    return Guards(format, min(options.calls or most_calls, most_calls), options.repeated_tail, options.repeated_call, answers, names, kept)


def previous_calls(messages: Sequence[Message]) -> tuple[Key, ...]:
    """The calls of the turn whose results end the conversation; none where somebody has spoken since."""
    turn = len(messages)
    while turn and messages[turn - 1].role == "tool":
        turn -= 1
    if turn in (0, len(messages)) or messages[turn - 1].role != "assistant":
        return ()
    return tuple(call_key(call.function.name, call.function.arguments) for call in messages[turn - 1].tool_calls or [])


def narrowed(tools: Sequence[Any], choice: str | Mapping[str, Any] | None, left_out: set[str]) -> str | dict[str, Any] | None:
    """The ``tool_choice`` that admits no tool of ``left_out`` and is otherwise ``choice``; None where that leaves nothing to reply."""
    names = [_name(tool) for tool in tools]
    mode = choice if isinstance(choice, str) else "auto"
    if isinstance(choice, Mapping):
        if choice.get("type") != "allowed_tools":
            return None  # a named tool
        inner = choice["allowed_tools"] if isinstance(choice.get("allowed_tools"), Mapping) else choice
        mode, listed = str(inner.get("mode", "auto")), inner.get("tools")
        chosen = [_name(tool) for tool in listed] if isinstance(listed, list) else []
        names = [name for name in names if name in chosen]
    left = [name for name in names if name and name not in left_out]
    if not left:
        return "none" if mode == "auto" else None
    functions = [{"type": "function", "function": {"name": name}} for name in left]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": functions}}


def _name(tool: Any) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""
