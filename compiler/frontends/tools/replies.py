"""The reply grammar: a reply with tool calls as one rule, over argument rules that are built once for a set of tools.

In: tools and a format. ``ToolSet`` builds one rule for each distinct arguments schema; ``ToolSet.grammar`` writes the reply around them
for any subset of the tools, by name, and leaves the schemas alone: a workflow that admits other tools in each state asks for one grammar
a state. Out: a grammar whose texts are

    REPLY = REASONING? TEXT | REASONING? TEXT? section_open CALL (separator CALL)* section_close

(section D.8 of the few-path paper). Free text holds nothing that begins a call (Proposition 3), so a reply reads in one way only.
Tools whose names begin alike share states, once the grammar is determinised. Cost: the front end once; then a few edges a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stcc.compiler.errors import SourceError, UnsatisfiableError
from stcc.compiler.frontends.json_schema import Notes
from stcc.compiler.frontends.json_schema.embedding import Embedding
from stcc.compiler.frontends.json_schema.tagged import OBJECT, tagged_rules
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.frontends.tools.families import CallFormat, Section
from stcc.compiler.frontends.tools.markers import endings_cut, not_containing
from stcc.compiler.frontends.tools.requests import Choice, Tool
from stcc.compiler.ir import CallEdge, Grammar, Rule, RuleBuilder
from stcc.compiler.options import Deadline, Options
from stcc.compiler.trim import productive_exits

SPECIAL_PREFIX = 3
"""Characters of a special token's text that values do not hold: ``<|c`` for ``<|call|>``."""
_NOT_A_CALL = r"[ \t\r\n]*([^ \t\r\n{][\s\S]*)?"
"""Text that is told from a call by its first character."""
_OPENING = ("additionalProperties", "unevaluatedProperties")
_IN_PLACE = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies",
             "not")


@dataclass(frozen=True)
class Reply:
    """What a reply may hold; see ``ToolRequest`` for the words."""

    required: bool = False
    several: bool = True
    text: bool = True
    reasoning: bool | str = False


class ToolSet:
    """Tools with their argument rules built.

    Attributes:
        format: how calls are spelled.
        names: the tools' names, in order.
        notes: what the schemas gave rise to.
    """

    def __init__(self, tools: Sequence[Tool], format: CallFormat, options: Options, deadline: Deadline, strict: bool = False) -> None:
        """Build the rules.

        Raises CompileError where a schema cannot be compiled, with a pointer into the tools document; UnsatisfiableError for a tool that
        cannot be called because nothing satisfies its schema.
        """
        if options.property_order == "auto":
            options = replace(options, property_order="declared")
        self.format, self.names = format, tuple(tool.name for tool in tools)
        builders = tagged_rules(format.tags) if format.tags is not None else {}
        self._embedding = Embedding(options, deadline, value_markers(format), builders)
        kind = OBJECT if format.tags is not None else "object"
        self._arguments: dict[str, int] = {}
        for tool in tools:
            number = self._embedding.document.add(closed(tool.parameters, deep=strict or tool.strict), tool.pointer)
            self._arguments[tool.name] = self._embedding.object_rule(number, kind)
        self._rules = self._embedding.rules()
        self._check(tools)
        expander = self._embedding.expander
        self.notes = Notes(expander.warnings, expander.unenforced)

    def _check(self, tools: Sequence[Tool]) -> None:
        """Raise UnsatisfiableError for a tool that no text calls: it would be left out silently."""
        if not tools:
            return
        exits = productive_exits(self.grammar(Reply(text=False)))
        numbers = self._numbers([self._arguments[tool.name] for tool in tools])
        for tool in tools:
            if not exits[numbers[self._arguments[tool.name]]]:
                raise UnsatisfiableError("nothing can satisfy the arguments of this tool", pointer=tool.pointer,
                                         hint="relax the constraints that contradict each other, or leave the tool out")

    def grammar(self, reply: Reply, names: Iterable[str] | None = None) -> Grammar:
        """The grammar of replies that call only the tools called ``names`` (default: all). SourceError for unknown names."""
        chosen = self.names if names is None else tuple(dict.fromkeys(names))
        unknown = [name for name in chosen if name not in self._arguments]
        if unknown:
            raise SourceError(f"no tool is called {unknown[0]!r}", pointer="#/tools",
                              hint=f"there are {', '.join(self.names[:10]) or 'none'}")
        arguments = [self._arguments[name] for name in chosen]
        numbers = self._numbers(arguments)
        root = _ReplyRule(self._embedding, self.format, reply).build({name: numbers[self._arguments[name]] for name in chosen})
        kept = [rule for number in numbers if (rule := self._rules[number]) is not None]
        return Grammar((root, *(_renumbered(rule, numbers) for rule in kept)))

    def _numbers(self, roots: Iterable[int]) -> dict[int, int]:
        """The rules that ``roots`` reach -> their numbers in a grammar whose rule 0 is the reply."""
        order = dict.fromkeys(roots)
        queue = list(order)
        for number in queue:
            rule = self._rules[number]
            for call in rule.calls if rule is not None else ():
                if call.rule not in order:
                    order[call.rule] = None
                    queue.append(call.rule)
        return {number: place for place, number in enumerate(order, 1)}


def value_markers(format: CallFormat) -> tuple[str, ...]:
    """What no value may hold: what ends something around it, without its last character; of special tokens even what they begin with.

    Each character of a marker is a state in every string, and a tokenizer has many special tokens. No text but theirs begins so.
    """
    marks = {mark[:SPECIAL_PREFIX] if mark in format.special else mark[:-1] for mark in (*format.closers, *format.special)}
    return tuple(sorted(mark for mark in marks if not any(other != mark and other in mark for other in marks)))


def _renumbered(rule: Rule, numbers: dict[int, int]) -> Rule:
    return replace(rule, calls=tuple(CallEdge(call.node, numbers[call.rule], call.returns) for call in rule.calls))


def closed(parameters: dict[str, Any], *, deep: bool) -> dict[str, Any]:
    """The schema of arguments that name declared parameters only, unless the schema itself says what others may be.

    Args:
        parameters: a tool's parameters.
        deep: close the objects inside, too (``strict``).
    """
    contents: dict[str, Any] = _closed_inside(parameters) if deep else parameters
    declares = "properties" in contents or any(keyword in contents for keyword in _IN_PLACE)
    if not declares or any(keyword in contents for keyword in _OPENING):
        return contents
    return {**contents, "unevaluatedProperties" if any(keyword in contents for keyword in _IN_PLACE) else "additionalProperties": False}


def _closed_inside(contents: Any) -> Any:
    """``contents`` with every object schema that lists properties closed."""
    if isinstance(contents, list):
        return [_closed_inside(item) for item in contents]
    if not isinstance(contents, dict):
        return contents
    inner = {keyword: _closed_inside(value) if keyword not in ("const", "enum", "default", "examples") else value
             for keyword, value in contents.items()}
    listed = isinstance(contents.get("properties"), dict) and contents.get("type") in ("object", None)
    if listed and not any(keyword in contents for keyword in (*_OPENING, *_IN_PLACE)):
        inner["additionalProperties"] = False
    return inner


class _ReplyRule:
    """The root rule under construction."""

    def __init__(self, embedding: Embedding, format: CallFormat, reply: Reply) -> None:
        self.embedding, self.format, self.reply = embedding, format, reply
        self.builder = RuleBuilder("#")
        self.end = self.builder.node()
        self.builder.exit(self.end, 0)

    def build(self, arguments: dict[str, int]) -> Rule:
        """The rule; ``arguments`` gives the rule of each tool's arguments."""
        start = self.reasoning(0) if self.reply.reasoning and self.format.reasoning is not None else 0
        required = self.reply.required
        if not required:
            self.text(start)
        if arguments:
            self.calls(self.preamble(start), arguments)
        return self.builder.build()

    def literal(self, node: int, text: str) -> int:
        """The node after ``text``."""
        if not text:
            return node
        after = self.builder.node()
        self.builder.literal(node, text.encode(), after)
        return after

    def stretch(self, node: int, section: Section, markers: Iterable[str]) -> int:
        """The node after a section of free text without ``markers``, its opening and closing included."""
        inside = self.builder.node()
        kept_out = (*markers, *endings_cut((section.close,) if section.close else ()))
        self.builder.scan(self.literal(node, section.open), not_containing(kept_out), [inside])
        return self.literal(inside, section.close + section.after)

    def reasoning(self, node: int) -> int:
        """The node after the reasoning section."""
        section = self.format.reasoning or Section()
        opened = replace(section, open="") if self.reply.reasoning == "open" else section
        after = self.stretch(node, opened, self.format.special)
        if self.reply.reasoning is True:
            self.builder.epsilon(node, after)
        return after

    @property
    def kept_out(self) -> tuple[str, ...]:
        """What free text may not hold."""
        thinks = self.reply.reasoning and self.format.reasoning is not None
        opening = (self.format.reasoning.open.strip(),) if thinks and self.format.reasoning is not None else ()
        return (*self.format.openers, *self.format.special, *opening)

    def text(self, node: int) -> None:
        """A reply without calls."""
        if not self.reply.text:
            self.builder.epsilon(node, self.end)
        elif self.format.preamble is None:
            self.builder.scan(node, compile_pattern(_NOT_A_CALL, dialect="python", mode="fullmatch"), [self.end])
        else:
            self.builder.epsilon(self.stretch(node, self.format.text, self.kept_out), self.end)

    def preamble(self, node: int) -> int:
        """The node where calls begin: after free text, if there may be any."""
        section = self.format.preamble
        if not self.reply.text or section is None:
            return node
        after = self.stretch(node, section, self.kept_out)
        self.builder.epsilon(node, after)
        return after

    # ---- calls

    def calls(self, node: int, arguments: dict[str, int]) -> None:
        """One call, or several, to the end."""
        first = self.builder.node()
        self.builder.epsilon(self.literal(node, self.format.section_open), first)
        named, over = self.head(self.literal(first, self.format.head)), self.builder.node()
        for name, rule in arguments.items():
            self.arguments(named, name, rule, over)
        last = self.literal(over, self.format.tail)
        if self.format.tail_stops:
            self.builder.epsilon(over, self.end)
        if self.reply.several and self.format.parallel:
            self.builder.literal(last, self.format.separator.encode(), first)
        self.builder.literal(last, self.format.section_close.encode(), self.end)

    def head(self, node: int) -> int:
        """The node where a tool's name begins."""
        if self.format.keys is None:
            return node
        node = self.embedding.gap(self.builder, self.literal(node, "{"))
        node = self.embedding.separator(self.builder, self.literal(node, f'"{self.format.keys[0]}"'), b":")
        return self.literal(node, '"')

    def arguments(self, node: int, name: str, rule: int, over: int) -> None:
        """A tool's name at ``node``, then its arguments, to ``over``."""
        if self.format.keys is None:
            node = self.literal(node, name)
            node = self.literal(self.running_number(node) if self.format.numbered else node, self.format.neck)
            self.builder.call(node, rule, [over])
            return
        node = self.embedding.separator(self.builder, self.literal(node, f'{name}"'), b",")
        node = self.embedding.separator(self.builder, self.literal(node, f'"{self.format.keys[1]}"'), b":")
        after = self.builder.node()
        self.builder.call(node, rule, [after])
        self.builder.literal(self.embedding.gap(self.builder, after), b"}", over)

    def running_number(self, node: int) -> int:
        """The node after a colon and a number."""
        after = self.builder.node()
        self.builder.scan(self.literal(node, ":"), compile_pattern("0|[1-9][0-9]*", dialect="python", mode="fullmatch"), [after])
        return after


def reply_of(choice: Choice, text: bool, reasoning: bool | str) -> Reply:
    """The reply that a tool choice admits."""
    return Reply(choice.required, choice.several, text, reasoning)


