"""Replies that are either calls or an answer that satisfies a JSON Schema: ``tools`` and ``response_format`` in one request.

In: a ``ToolSet``, the request, and the schema of the answer. Out: the grammar of

    REPLY = REASONING? section_open CALL (separator CALL)* section_close | REASONING? ANSWER

without free text, so that every reply is one or the other. An answer stands where text in place of calls would, inside the format's
opening (``harmony``: the ``final`` channel). Cost: that of the two grammars.
"""

from __future__ import annotations

from typing import Any

from stcc.compiler.errors import UnsupportedError
from stcc.compiler.frontends.json_schema import schema_grammar
from stcc.compiler.frontends.tools.replies import Reply, ToolSet
from stcc.compiler.frontends.tools.requests import ToolRequest
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.options import Deadline, Options
from stcc.compiler.union import either, sequence


def answering(tool_set: ToolSet, request: ToolRequest, answer: Any, options: Options, deadline: Deadline) -> Grammar:
    """The grammar of replies to ``request`` whose text is an answer that satisfies the schema ``answer``.

    Raises:
        UnsupportedError: the format tells calls from text by the character ``{``, with which answers begin as well.
        CompileError: the answer's schema cannot be compiled.
    """
    choice, call_format = request.choice, request.format
    calls = None
    if choice.names:
        if call_format.preamble is None and not choice.required:
            raise UnsupportedError(f"calls in the format {call_format.name} begin like JSON answers, so a reply could be read in two ways",
                                   pointer="#", keyword="format", hint="ask for tools or for an answer, not for both")
        calls = tool_set.grammar(Reply(True, choice.several, False, request.reasoning), choice.names)
        if choice.required:
            return calls
    found, notes = schema_grammar(answer, options, deadline)
    tool_set.notes.warnings.extend(note for note in notes.warnings if note not in tool_set.notes.warnings)
    tool_set.notes.unenforced.extend(note for note in notes.unenforced if note not in tool_set.notes.unenforced)
    if call_format.text.open:
        found = sequence(_text(call_format.text.open), found)
    if request.reasoning:
        found = sequence(tool_set.grammar(Reply(False, False, False, request.reasoning), ()), found)
    return found if calls is None else either(calls, found)


def _text(text: str) -> Grammar:
    builder = RuleBuilder("#")
    end = builder.node()
    builder.literal(0, text.encode(), end)
    builder.exit(end, 0)
    return Grammar((builder.build(),))
