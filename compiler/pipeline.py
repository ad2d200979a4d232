"""The pipeline, source to artifact, as a list a reader can recite.

    source -> grammar -> trimmed -> inlined -> machine -> artifact (-> bound, once a vocabulary)

Every stage is a pure function in the module named after it; ``Trace`` keeps each stage's value for ``--emit`` and its
time for ``--time- passes``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stcc.compiler.binding.bind import bind
from stcc.compiler.calls import ConflictError
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsupportedError
from stcc.compiler.frontends.context_free import ContextFree, conflict_place, context_free_grammar, grammar_text
from stcc.compiler.frontends.gbnf import parse_gbnf
from stcc.compiler.frontends.json_schema import Notes, schema_grammar
from stcc.compiler.frontends.json_schema.document import parse_schema
from stcc.compiler.frontends.json_schema.types import is_type, type_schema
from stcc.compiler.frontends.lark import parse_lark
from stcc.compiler.frontends.openapi import OPENAPI_HOLDERS, operation_schema
from stcc.compiler.frontends.outlines import outlines_pattern
from stcc.compiler.frontends.policy import compile_graph, history_grammar, parse_document
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.frontends.tools import ToolSet, answering, read_request, reply_of
from stcc.compiler.inline import inline
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.compiler.trim import trim
from stcc.formats import Artifact, Vocabulary
from stcc.formats.artifact import TAGS, Metadata
from stcc.formats.few_collections import few_collections
from stcc.formats.fingerprint import source_digest
from stcc.formats.machine import Machine
from stcc.formats.policy import PolicyGraph

Value = TypeVar("Value")
STAGES = ("grammar", "trimmed", "inlined", "machine", "actions")
VERSION = "0.1.0"
"""Version of the compiler, recorded in artifacts (pyproject.toml says the same; a test compares them)."""
_NO_NOTES = Notes([], [])


@dataclass
class Trace:
    """What happened in one compile: seconds and value of each stage, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str, run: Callable[[], Value]) -> Value:
        """Run one stage under ``name``."""
        started = time.perf_counter()
        value = run()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        self.values[name] = value
        return value


def compile_json_schema(
    schema: Any,
    *,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<schema>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile a JSON Schema, bound to each of ``vocabularies``: a dict, a bool, JSON text, or a type that pydantic describes.

    Types are pydantic models, dataclasses, TypedDict classes and type hints. What does not fit in relaxed order is compiled in declared
    order, with a warning.

    Raises CompileError: SourceError, UnsupportedError, UnsatisfiableError or BudgetError, each naming pointer, keyword and what to do.
    """
    options, vocabularies = options or Options(), tuple(vocabularies)
    if options.dialect == "outlines":
        return _from_outlines(schema, options, vocabularies, source, trace)
    return _from_schema(_Run("json_schema", source, options, trace), lambda: (schema, []), _schema_text(schema), vocabularies)


def compile_openapi(
    document: Any,
    operation: str,
    part: str = "request",
    status: str | None = None,
    *,
    media_type: str | None = None,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<openapi>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile one part of an operation of an OpenAPI 3.0 or 3.1 document (data, or JSON or YAML text): the texts that its schema admits.

    Args:
        document: the document; ``list_operations`` says what is in it.
        operation: an ``operationId``, or ``METHOD /path``.
        part: ``request``, ``response`` or ``parameters`` (an object with one member a parameter).
        status: of the response; None: 200, else the first success that has content.
        media_type: where there are several JSON ones.
        options: as for a schema.
        vocabularies: to bind to.
        source: for messages.
        trace: keeps stages.

    Raises CompileError, with a pointer into the document.
    """
    options = options or Options()
    if options.dialect:
        raise SourceError(f"the dialect {options.dialect} says nothing of OpenAPI", source=source, hint="leave it out")
    run = _Run("openapi", source, options, trace)
    run.recorded = {"operation": operation, "part": part, **({"status": status} if status else {})}

    def read() -> tuple[Any, list[dict[str, str]]]:
        return operation_schema(document, operation, part, status, media_type, max_depth=options.max_depth,
                                enforce_formats=options.formats == "enforce")

    return _from_schema(run, read, _schema_text(document), tuple(vocabularies), OPENAPI_HOLDERS)


def _from_schema(run: _Run, read: Callable[[], tuple[Any, list[dict[str, str]]]], digest_of: bytes, vocabularies: tuple[Vocabulary, ...],
                 holders: Collection[str] = ()) -> Artifact:
    """The artifact of the schema that ``read`` gives with warnings; ``holders`` are keys of its root that ask for nothing."""
    def built(run: _Run, *warnings: dict[str, str]) -> Artifact:
        def build() -> Grammar:
            schema, first = read()
            grammar, notes = schema_grammar(schema, run.options, run.deadline)
            own = [note for note in notes.warnings if not (note["pointer"] == "#" and note["keyword"] in holders)]
            run.notes = Notes([*warnings, *first, *own], notes.unenforced)
            return grammar

        return run.artifact(build, digest_of, vocabularies)

    try:
        return built(run)
    except (BudgetError, UnsupportedError) as error:
        if run.options.order != "relaxed" or run.deadline.passed or not _depends_on_order(error):
            raise
        declared = _Run(run.kind, run.source, replace(run.options, property_order="declared"), run.trace, run.deadline)
        declared.recorded = run.recorded
        return built(declared, _kept_order(error))


def _depends_on_order(error: CompileError) -> bool:
    """Whether another order of members may do: what is known when a value is read decides its size, and whether its items must differ."""
    return isinstance(error, BudgetError) or error.keyword == "uniqueItems"


def _kept_order(error: CompileError) -> dict[str, str]:
    """The warning that ``error`` made the compiler keep the declared order."""
    message = f"members come in the declared order: in relaxed order, {error.message}"
    return {"pointer": error.pointer or "#", "keyword": "properties", "message": message}


def compile_regex(
    pattern: str,
    *,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<pattern>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile a regular expression that the whole output matches (``re.fullmatch``); ``options.dialect`` is ``python``
    (default) or ``ecma``.
    """
    options = options or Options()
    if not isinstance(pattern, str):
        raise SourceError(f"a pattern is a string, not {type(pattern).__name__}", source=source)
    run = _Run("regex", source, options, trace)
    return run.artifact(lambda: _pattern_grammar(pattern, options, run.deadline), pattern.encode("utf-8", "surrogatepass"), vocabularies)


def compile_tools(
    tools: Any,
    *,
    format: str | None = None,
    tool_choice: Any = None,
    parallel_tool_calls: bool | None = None,
    strict: bool | None = None,
    reasoning: bool | str | None = None,
    text: bool | None = None,
    answer: Any = None,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<tools>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile the replies of a model that is given tools: text, or calls whose arguments satisfy their schemas.

    Args:
        tools: OpenAI's ``tools`` list, or the document of a ``.tools.json`` file (a dict or JSON text) with ``tools`` and any of the
            arguments below; an argument that is given here wins.
        format: a name in ``stcc.compiler.frontends.tools.FORMATS``; default ``hermes``, with a warning.
        tool_choice: ``"auto"`` (default), ``"none"``, ``"required"``, a named function, or ``allowed_tools``.
        parallel_tool_calls: whether a reply may hold several calls (default True, where the format can).
        strict: close objects at every depth; default: as each tool's own ``strict`` says. Arguments themselves are always closed unless
            their schema says what other names there may be.
        reasoning: a section before all else: False (default), True (may be there), ``"required"``, ``"open"`` (the prompt has opened it).
        text: whether free text may stand before calls; default: unless a call is required.
        answer: what a reply without calls is, in place of free text: a JSON Schema, or a portable ``Artifact`` (of a pattern, say); there
            is no text before calls then.
        options: ``whitespace`` holds of the JSON around arguments too; default here ``spaced``, as chat templates write it.
        vocabularies: to bind to; special tokens of the format (``<|channel|>``) are spelled there.
        source: for messages.
        trace: keeps stages.

    Raises CompileError, with a pointer into the tools document.
    """
    options = options or Options(whitespace="spaced")
    run = _Run("tools", source, options, trace)

    def build() -> Grammar:
        request = read_request(tools, format=format, tool_choice=tool_choice, parallel_tool_calls=parallel_tool_calls, strict=strict,
                               reasoning=reasoning, text=text, max_depth=options.max_depth)
        tool_set = ToolSet(request.tools, request.format, options, run.deadline, request.strict)
        run.recorded = {"format": request.format.name, **({TAGS: "\n".join(request.format.special)} if request.format.special else {})}
        grammar = (tool_set.grammar(reply_of(request.choice, request.text, request.reasoning), request.choice.names) if answer is None
                   else answering(tool_set, request, answer, options, run.deadline))
        run.notes = Notes([*request.notes, *tool_set.notes.warnings], tool_set.notes.unenforced)
        return grammar

    return run.artifact(build, _schema_text(tools) + _answer_text(answer), vocabularies)


def compile_gbnf(
    grammar: str | bytes,
    *,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<gbnf>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile a grammar in GBNF, llama.cpp's dialect: the texts that its rule ``root`` derives.

    Raises CompileError; UnsupportedError where one byte does not decide when a rule is entered or left, with the shortest text that leads
    to the place.
    """
    return _from_rules("gbnf", grammar, lambda text, depth: parse_gbnf(text, depth), options, vocabularies, source, trace)


def compile_lark(
    grammar: str | bytes,
    start: str = "start",
    *,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<lark>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile a grammar in Lark's notation: the texts that its rule ``start`` derives. Raises as ``compile_gbnf``."""
    return _from_rules("lark", grammar, lambda text, depth: parse_lark(text, start, depth), options, vocabularies, source, trace)


def _from_rules(kind: str, grammar: str | bytes, read: Callable[[str, int], ContextFree], options: Options | None,
                vocabularies: Iterable[Vocabulary], source: str, trace: Trace | None) -> Artifact:
    options = options or Options()
    if options.dialect:
        raise SourceError(f"the dialect {options.dialect} says nothing of a {kind} grammar", source=source, hint="leave it out")
    run = _Run(kind, source, options, trace)

    def build() -> Grammar:
        found, warnings = context_free_grammar(read(grammar_text(grammar), options.max_depth), options, run.deadline)
        run.notes = Notes(warnings, [])
        return found

    digest_of = grammar if isinstance(grammar, bytes) else str(grammar).encode("utf-8", "surrogatepass")
    return run.artifact(build, digest_of, vocabularies)


def compile_policy(
    policy: Any,
    *,
    options: Options | None = None,
    vocabularies: Iterable[Vocabulary] = (),
    source: str = "<policy>",
    trace: Trace | None = None,
) -> Artifact:
    """Compile an action policy (the text of a ``.policy.yaml``, or its data): a workflow with state, observations and a horizon.

    The artifact's ``policy`` is what samplers run; its machine reads valid histories as text, ``AUTH PROBE=confirmed STOP``.

    Raises CompileError, with the path of the value at fault.
    """
    options = options or Options()
    run = _Run("policy", source, options, trace)

    def build() -> Grammar:
        document = policy
        if isinstance(policy, (str, bytes)):
            document = parse_document(policy if isinstance(policy, bytes) else policy.encode("utf-8", "surrogatepass"), options.max_depth)
        name, run.policy = compile_graph(document, options, run.deadline)
        run.recorded = {"policy": name}
        return history_grammar(run.policy)

    return run.artifact(build, _schema_text(policy), vocabularies)


def _from_outlines(schema: Any, options: Options, vocabularies: Iterable[Vocabulary], source: str, trace: Trace | None) -> Artifact:
    run = _Run("json_schema", source, options, trace)

    def build() -> Grammar:
        return _pattern_grammar(outlines_pattern(parse_schema(schema, options.max_depth)), options, run.deadline)

    return run.artifact(build, _schema_text(schema), vocabularies)


def _pattern_grammar(pattern: str, options: Options, deadline: Deadline) -> Grammar:
    dialect = options.dialect if options.dialect in ("python", "ecma") else "python"
    return dfa_grammar(compile_pattern(pattern, dialect=dialect, mode="fullmatch", max_states=options.max_states, deadline=deadline), "#")


def dfa_grammar(dfa: Dfa, name: str) -> Grammar:
    """The one-rule grammar of a DFA's language."""
    builder = RuleBuilder(name)
    end = builder.node()
    builder.exit(end, 0)
    builder.scan(0, dfa, [end] * (int(dfa.accept.max()) + 1))
    return Grammar((builder.build(),))


def _answer_text(answer: Any) -> bytes:
    return b"" if answer is None else answer.to_bytes() if isinstance(answer, Artifact) else _schema_text(answer)


def _schema_text(schema: Any) -> bytes:
    """What the source digest is taken over: the text as given, else its canonical JSON."""
    if isinstance(schema, bytes):
        return schema
    if isinstance(schema, str):
        return schema.encode("utf-8", "surrogatepass")
    try:
        plain = type_schema(schema) if is_type(schema) else schema
        return json.dumps(plain, separators=(",", ":"), default=str).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):  # a CompileError is a ValueError; the front end says what is wrong with it
        return b""


class _Run:
    """One compile under way."""

    def __init__(self, kind: str, source: str, options: Options, trace: Trace | None, deadline: Deadline | None = None) -> None:
        self.kind, self.source, self.options = kind, source, options
        self.trace = trace or Trace()
        self.deadline = deadline or Deadline(options.time_limit)
        self.notes = _NO_NOTES
        self.recorded: dict[str, str] = {}
        self.policy: PolicyGraph | None = None

    def artifact(self, build: Callable[[], Grammar], digest_of: bytes, vocabularies: Iterable[Vocabulary]) -> Artifact:
        """The front end and the passes after it, with what stops them told as an error of this source."""
        try:
            with few_collections():
                return self._passes(build, digest_of, vocabularies)
        except CompileError as error:
            raise error.with_source(self.source) from error.__cause__
        except RecursionError:
            raise SourceError("the source nests too deeply", source=self.source, hint="flatten it with $defs and $ref") from None
        except MemoryError:
            raise BudgetError("compiling needs more memory than there is", source=self.source,
                              hint="lower max_states to stop earlier, or simplify the source") from None

    def _passes(self, build: Callable[[], Grammar], digest_of: bytes, vocabularies: Iterable[Vocabulary]) -> Artifact:
        options, deadline, stage = self.options, self.deadline, self.trace.stage
        grammar = stage("grammar", build)
        trimmed = stage("trimmed", lambda: trim(grammar, deadline))
        inlined = stage("inlined", lambda: inline(trimmed, options.max_states, deadline=deadline))
        machine = stage("machine", lambda: self._linked(inlined))
        artifact = Artifact.create(self.kind, machine, self.metadata(digest_of), policy=self.policy)
        for vocabulary in vocabularies:
            artifact = stage("actions", lambda artifact=artifact, vocabulary=vocabulary:  # type: ignore[misc]
                             bind(artifact, vocabulary, deadline=deadline))
        return artifact

    def _linked(self, inlined: Grammar) -> Machine:
        """The machine; a grammar whose rules cannot be told apart is refused with the text after which they cannot."""
        try:
            return link(inlined, self.options, self.deadline)
        except ConflictError as error:
            where = conflict_place(error, inlined, self.options, self.deadline) if self.kind in ("gbnf", "lark") else ""
            raise UnsupportedError(where + error.message, pointer=error.pointer, keyword=error.keyword, hint=error.hint) from None

    def metadata(self, digest_of: bytes) -> Metadata:
        """What the artifact tells of its source."""
        return Metadata(
            name=self.source if self.source.startswith("<") else self.source.replace("\\", "/").rsplit("/", 1)[-1],
            source_sha256=source_digest(digest_of),
            options={**self.options.recorded(), **self.recorded},
            compiler=VERSION,
            warnings=tuple(self.notes.warnings),
            unenforced=tuple(self.notes.unenforced),
        )
