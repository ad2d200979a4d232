"""Replies that are either calls or an answer: ``tools`` and ``response_format`` in one request.

In: a ``ToolSet``, the request, and the answer: a JSON Schema, or a portable artifact of any kind (a pattern's, say). Out: the grammar of

    REPLY = REASONING? section_open CALL (separator CALL)* section_close | REASONING? ANSWER

without free text, so that every reply is one or the other. An answer stands where text in place of calls would, inside the format's
opening (``harmony``: the ``final`` channel). No answer begins like a call, or with another mark that readers go by (``beginnings``): a JSON
answer cannot but in formats whose calls are bare JSON objects, and there one that begins with a listed tool's name and the word for its
arguments is left out. Cost: that of the two grammars; where beginnings are taken away, that of the answer twice.
"""

from __future__ import annotations

import re
from typing import Any

from stcc.compiler.errors import UnsatisfiableError, UnsupportedError
from stcc.compiler.frontends.json_schema import schema_grammar
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.frontends.tools.beginnings import machine_grammar, without_beginnings
from stcc.compiler.frontends.tools.families import CallFormat
from stcc.compiler.frontends.tools.replies import Reply, ToolSet
from stcc.compiler.frontends.tools.requests import ToolRequest
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.compiler.trim import trim
from stcc.compiler.union import either, sequence
from stcc.formats import Artifact
from stcc.formats.artifact import TAGS
from stcc.formats.machine import Machine

_SPACE = r"[ \t\r\n]*"


def answering(tool_set: ToolSet, request: ToolRequest, answer: Any, options: Options, deadline: Deadline) -> Grammar:
    """The grammar of replies to ``request`` whose text is an answer.

    Args:
        tool_set: the tools.
        request: what is asked of them.
        answer: a JSON Schema, or an ``Artifact``.
        options: of the schema.
        deadline: for all of it.

    Raises:
        UnsupportedError: the artifact is itself that of a format with special tokens, or an answer is told from a call only inside a nested
            value.
        CompileError: the answer's schema cannot be compiled.
    """
    choice, call_format = request.choice, request.format
    calls = tool_set.grammar(Reply(True, choice.several, False, request.reasoning), choice.names) if choice.names else None
    if calls is not None and choice.required:
        return calls
    found = _answer(tool_set, calls is not None, answer, options, deadline)
    if call_format.text.open:
        found = sequence(_text(call_format.text.open), found)
    if request.reasoning:
        found = sequence(tool_set.grammar(Reply(False, False, False, request.reasoning), ()), found)
    return found if calls is None else either(calls, found)


def _answer(tool_set: ToolSet, called: bool, answer: Any, options: Options, deadline: Deadline) -> Grammar:
    """The answer's grammar, without answers that begin like something else."""
    beginnings = _beginnings(tool_set.format, tool_set.names if called else (), deadline)
    if isinstance(answer, Artifact):
        if answer.metadata.options.get(TAGS):
            raise UnsupportedError("the answer's artifact holds special tokens of its own, as artifacts of tools do", pointer="#",
                                   keyword="answer", hint="give the artifact of a JSON Schema or of a pattern")
        return machine_grammar(answer.machine) if beginnings is None else _left(answer.machine, beginnings, deadline)
    found, notes = schema_grammar(answer, options, deadline)
    tool_set.notes.warnings.extend(note for note in notes.warnings if note not in tool_set.notes.warnings)
    tool_set.notes.unenforced.extend(note for note in notes.unenforced if note not in tool_set.notes.unenforced)
    bare = called and tool_set.format.preamble is None
    if not bare or beginnings is None:  # the other marks begin with nothing that JSON begins with
        return found
    return _left(link(trim(found, deadline), options, deadline), beginnings, deadline)


def _left(answer: Machine, beginnings: Machine, deadline: Deadline) -> Grammar:
    """The answers without those that begin like something else; some must be left."""
    found = without_beginnings(answer, beginnings)
    try:
        return trim(found, deadline)
    except UnsatisfiableError:
        raise UnsatisfiableError("all answers begin like calls, or with another mark of the format: no answer is left", pointer="#",
                                 keyword="answer", hint="ask for the calls alone, or change the answer") from None


def _beginnings(call_format: CallFormat, names: tuple[str, ...], deadline: Deadline) -> Machine | None:
    """What no answer begins with: the marks that readers of the format go by. None for a format without any."""
    marks = [call_format.text.open, call_format.reasoning.open if call_format.reasoning is not None else ""]
    if call_format.preamble is not None:
        marks += [call_format.preamble.open, call_format.preamble.close + call_format.preamble.after]
    if names and call_format.preamble is not None:
        marks.append(call_format.section_open + call_format.head)
    patterns = [re.escape(mark) for mark in dict.fromkeys(marks) if mark]
    if names and call_format.preamble is None and call_format.keys is not None:
        name, arguments = map(re.escape, call_format.keys)
        chosen = "|".join(map(re.escape, names))
        patterns.append(_SPACE.join(["", r"\{", f'"{name}"', ":", f'"({chosen})"', ",", f'"{arguments}"', ":"]))
    if not patterns:
        return None
    builder = RuleBuilder("#")
    end = builder.node()
    builder.scan(0, compile_pattern("|".join(f"({pattern})" for pattern in patterns), dialect="python", mode="fullmatch"), [end])
    builder.exit(end, 0)
    return link(trim(Grammar((builder.build(),)), deadline), Options(), deadline)


def _text(text: str) -> Grammar:
    builder = RuleBuilder("#")
    end = builder.node()
    builder.literal(0, text.encode(), end)
    builder.exit(end, 0)
    return Grammar((builder.build(),))
