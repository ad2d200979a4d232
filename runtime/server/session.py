"""From a request to its answer: the prompt, the grammar, the limits, one job a choice, and the events that come back.

In: a parsed request. Out: a ``Session`` with its jobs handed to the engine; whoever holds it reads ``events`` until all choices have ended,
and leaves it through ``close``, which ends what still runs. What is wrong with a request is an ``ApiError`` before any job exists.

The event loop waits for nothing here but other tasks: templates and tokenizers run in one thread, compiling in a process, decoding in the
engine's thread. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from stcc.runtime.errors import BudgetTooSmall, BudgetUnavailable, ConstraintError
from stcc.runtime.server.chat import ChatTemplate, Turns
from stcc.runtime.server.constraints import Constraint, Family, constraint_of
from stcc.runtime.server.errors import ApiError
from stcc.runtime.server.gate import Gate
from stcc.runtime.server.grammars import GrammarStore, Held
from stcc.runtime.server.job import Choosing, End, Guards, Job, Piece
from stcc.runtime.server.limits import Limits
from stcc.runtime.server.metrics import Metrics
from stcc.runtime.server.replies import ReplyReader
from stcc.runtime.server.requests import ChatRequest, CompletionRequest, Request
from stcc.runtime.server.responses import Answer, Delta
from stcc.runtime.server.steering import guards_of, narrowed

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.server.engine import Engine

T = TypeVar("T")


@dataclass(frozen=True)
class Defaults:
    """What a request that leaves it out gets.

    Attributes:
        temperature: OpenAI's is 1.
        top_p: share of the mass sampled from.
        guards: whether replies with tools are watched (``guards``).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    guards: bool = True


class Service:
    """Everything that answers requests, made once.

    Attributes:
        name: of the model, as clients ask for it.
        created: Unix time of the start.
    """

    def __init__(self, engine: Engine, store: GrammarStore, template: ChatTemplate, family: Family, gate: Gate, name: str,
                 defaults: Defaults | None = None) -> None:
        self.engine, self.store, self.template, self.family, self.gate, self.name = engine, store, template, family, gate, name
        self.defaults = defaults or Defaults()
        self.turns = Turns()
        self.metrics = Metrics(engine, gate, store)
        self.created = int(time.time())
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="stcc-text")
        self._numbers = itertools.count(1)

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self.store.vocabulary

    @property
    def limits(self) -> Limits:
        """The server's limits."""
        return self.gate.limits

    async def text(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the thread of templates and tokenizers."""
        return await asyncio.get_running_loop().run_in_executor(self._texts, work)

    def number(self) -> int:
        """A fresh job number."""
        return next(self._numbers)

    def check_model(self, name: str | None) -> None:
        """Raise 404 unless ``name`` is the model's, its last part, or not given."""
        if name not in (None, self.name, self.name.rsplit("/", 1)[-1], "default"):
            raise ApiError(404, f"the model {name!r} is not served", param="model", code="model_not_found", hint=f"there is {self.name!r}")


class Session:
    """One request under way; see the module's text.

    Attributes:
        answers: one a choice.
        prompt_tokens: of all its prompts.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self.service, self.request = service, request
        self.answers: list[Answer] = []
        self.prompt_tokens = 0
        self.constraint = Constraint()
        self.vocabulary = service.vocabulary
        self._queue: asyncio.Queue[tuple[int, Piece | End] | ApiError] = asyncio.Queue()
        self._jobs: list[Job] = []
        self._started = time.monotonic()
        self._first = self._opened = False
        self._left_out: dict[int, set[str]] = {}

    @property
    def choices(self) -> int:
        """Outputs that the request asks for."""
        prompts = self.request.prompt if isinstance(self.request, CompletionRequest) else ""
        several = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
        return (self.request.n or 1) * (len(prompts) if several else 1)

    def fail(self, error: ApiError) -> None:
        """End the session with ``error``: whoever reads its events gets it."""
        self._queue.put_nowait(error)

    # ---- the beginning

    async def start(self) -> None:
        """Make the jobs and hand them to the engine. ApiError for what cannot be done."""
        request, service = self.request, self.service
        service.check_model(request.model)
        if (request.n or 1) > service.limits.choices:
            raise ApiError(400, f"n is at most {service.limits.choices}", param="n", code="invalid_value")
        if not service.engine.alive:
            raise ApiError(503, "the engine has stopped", code="engine_stopped")
        prompts, opened = await service.text(lambda: self._prompts(request))
        self.constraint, self._opened = constraint_of(request, service.family, opened), opened
        held = await self._grammar(self.constraint.spec)
        if held is not None and held.grammar.vocabulary is not None:
            self.vocabulary = held.grammar.vocabulary
        jobs = [await self._job(prompt, held) for prompt in prompts]
        self.prompt_tokens = sum(map(len, prompts))
        loop = asyncio.get_running_loop()
        for job in [self._numbered(job, place) for job in jobs for place in range(request.n or 1)]:
            index = len(self._jobs)
            self._jobs.append(job)
            self.answers.append(Answer(self._reader(opened), job.guards))
            service.engine.submit(job, held.grammar if held is not None else None, self._sink(loop, index))
        service.metrics.tokens.labels("prompt").inc(self.prompt_tokens)

    def _prompts(self, request: Request) -> tuple[list[tuple[int, ...]], bool]:
        """The prompts' tokens, and whether they end in an open reasoning section."""
        template = self.service.template
        if isinstance(request, ChatRequest):
            messages = [message.model_dump(exclude_none=True) for message in request.messages]
            prompt = template.prompt(messages, request.tools, self.service.turns, request.chat_template_kwargs)
            return [prompt.tokens], prompt.reasoning
        assert isinstance(request, CompletionRequest)
        given = request.prompt
        listed: list[Any] = given if isinstance(given, list) and not (given and isinstance(given[0], int)) else [given]
        found = [tuple(template.encode(each, special=True) if isinstance(each, str) else each) for each in listed]
        size = self.vocabulary.size
        if any(not 0 <= token < size for prompt in found for token in prompt):
            raise ApiError(400, f"prompt tokens are from 0 to {size - 1}", param="prompt", code="invalid_value")
        return found, False

    async def _grammar(self, spec: Mapping[str, Any] | None) -> Held | None:
        """The grammar of the constraint, or of ``spec``, which stands in its place."""
        constraint, store = self.constraint, self.service.store
        if spec is None:
            return None if constraint.artifact is None else store.artifact(constraint.artifact)
        if constraint.artifact is not None:
            spec = {**spec, "answer_artifact": base64.b64encode(store.file(constraint.artifact)).decode()}
        return await store.get(spec, constraint.place)

    async def _job(self, prompt: tuple[int, ...], held: Held | None) -> Job:
        """The job of one prompt, with its limit checked."""
        param = "messages" if isinstance(self.request, ChatRequest) else "prompt"
        if not prompt:
            raise ApiError(400, "the prompt has no tokens", param=param, code="invalid_value")
        need = max(1, held.need if held is not None else 1)
        asked = self.request.limit if isinstance(self.request, (ChatRequest, CompletionRequest)) else None
        limit = asked if asked is not None else max(self.service.limits.max_tokens, need)
        context = self.service.engine.context_length
        if context is not None:
            room = context - len(prompt)
            if room < need:
                raise ApiError(400, f"the prompt has {len(prompt)} of the {context} tokens that the model takes; an output needs {need}",
                               param=param, code="context_length_exceeded", hint=f"shorten it to at most {max(0, context - need)} tokens")
            limit = min(limit, room)
        job = Job(0, prompt, held.key if held is not None else None, limit, self._choosing(), self.request.stops, self._top_logprobs(),
                  self._guards())
        return job if held is None else await asyncio.to_thread(_within_budget, job, held, asked is not None)

    def _numbered(self, job: Job, place: int) -> Job:
        """The job of choice ``place``, with a number and draws of its own."""
        seed = job.choosing.seed + place if self.request.seed is not None else secrets.randbelow(1 << 31)
        return replace(job, number=self.service.number(), choosing=replace(job.choosing, seed=seed & 0x7FFFFFFF))

    def _choosing(self) -> Choosing:
        request, defaults = self.request, self.service.defaults
        wrong = [token for token in request.logit_bias or {} if not 0 <= token < self.vocabulary.size]
        if wrong:
            raise ApiError(400, f"token {wrong[0]} is not in the vocabulary", param="logit_bias", code="invalid_value")
        given = {
            "temperature": request.temperature, "top_p": request.top_p, "top_k": request.top_k, "min_p": request.min_p,
            "xtc_probability": request.xtc_probability, "xtc_threshold": request.xtc_threshold, "seed": request.seed,
            "bias": request.logit_bias, "repetition_penalty": request.repetition_penalty, "presence_penalty": request.presence_penalty,
            "frequency_penalty": request.frequency_penalty,
        }
        return Choosing(**{"temperature": defaults.temperature, "top_p": defaults.top_p,  # type: ignore[arg-type]
                           **{key: value for key, value in given.items() if value is not None}})

    def _top_logprobs(self) -> int | None:
        if isinstance(self.request, ChatRequest):
            return (self.request.top_logprobs or 0) if self.request.logprobs else None
        return self.request.logprobs if isinstance(self.request, CompletionRequest) else None

    def _guards(self) -> Guards:
        if not self.constraint.calls or not isinstance(self.request, ChatRequest):
            return Guards()
        service = self.service
        return guards_of(self.request, service.family.format, self.constraint.answers, service.defaults.guards, service.limits.calls)

    def _reader(self, opened: bool, begun: bool = False) -> ReplyReader:
        constraint, family = self.constraint, self.service.family
        sections = isinstance(self.request, ChatRequest) and (
            constraint.artifact is None if constraint.spec is None else constraint.spec["kind"] == "tools")
        if not sections or (constraint.spec is None and not (family.thinks or opened or family.description.text.open)):
            return ReplyReader(None, {})
        return ReplyReader(family.description, constraint.parameters, opened=opened, answers=constraint.answers, calls=constraint.calls,
                           begun=begun)

    async def _steered(self, index: int, end: End) -> bool:
        """Whether the choice goes on, where its first call began, without the tool that it called; see ``steering``."""
        job, spec = self._jobs[index], self.constraint.spec
        if end.message != "previous_call" or spec is None or not isinstance(self.request, ChatRequest):
            return False
        left_out = self._left_out.setdefault(index, set())
        name = self.answers[index].taken_back
        left_out |= {name} if name is not None else {key for key, _ in job.guards.previous}
        choice = narrowed(self.request.tools or [], self.request.tool_choice, left_out)
        if choice is None:
            return False
        held = await self._grammar({**spec, "source": {**spec["source"], "tool_choice": choice}})
        assert held is not None
        begun = tuple(await self.service.text(lambda: self.service.template.encode(end.before.decode()))) if end.before else ()
        guards = replace(job.guards, previous=tuple(key for key in job.guards.previous if key[0] not in left_out))
        job = replace(job, number=self.service.number(), grammar=held.key, begun=begun, guards=guards)
        if not await asyncio.to_thread(_may_begin, job, held):
            return False
        opened = self._opened and not end.before
        self._jobs[index] = job
        self.answers[index].go_on(self._reader(opened, bool(begun)), begun, guards)
        self.service.metrics.steered.inc()
        self.service.engine.submit(job, held.grammar, self._sink(asyncio.get_running_loop(), index))
        return True

    def _sink(self, loop: asyncio.AbstractEventLoop, index: int) -> Callable[[Any], None]:
        def sink(event: Piece | End) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._queue.put_nowait, (index, event))

        return sink

    # ---- the events

    async def events(self) -> AsyncIterator[tuple[int, Delta]]:
        """What is new, choice by choice, until all have ended. ApiError if one fails, or the session is made to."""
        left = len(self._jobs)
        while left:
            found = await self._next()
            index, event = found
            if isinstance(event, End):
                if await self._steered(index, event):
                    continue
                left -= 1
                self._count(event)
                if event.reason == "failed":
                    raise ApiError(500, f"the output could not be decoded: {event.message}", code="decode_failed")
            elif not self._first:
                self._first = True
                self.service.metrics.first_seconds.observe(time.monotonic() - self._started)
            delta = self.answers[index].take(event)
            if isinstance(event, End):
                self._remember(self.answers[index])
            yield index, delta

    async def _next(self) -> tuple[int, Piece | End]:
        left = self._started + self.service.limits.request_seconds - time.monotonic()
        try:
            found = await asyncio.wait_for(self._queue.get(), max(left, 0.0))
        except asyncio.TimeoutError:
            raise ApiError(504, f"the answer was not complete within {self.service.limits.request_seconds:g} seconds",
                           code="timeout", hint="ask for fewer tokens, or stream") from None
        if isinstance(found, ApiError):
            raise found
        return found

    def _remember(self, answer: Answer) -> None:
        if answer.calls:
            self.service.turns.remember([number for number, _ in answer.calls], [(call.name, call.arguments) for _, call in answer.calls],
                                        [token.token for token in answer.tokens])

    def _count(self, end: End) -> None:
        metrics = self.service.metrics
        metrics.endings.labels(end.reason).inc()
        metrics.tokens.labels("cached").inc(end.cached)

    def close(self) -> None:
        """End what still runs, and count."""
        for job, answer in zip(self._jobs, self.answers, strict=True):
            if answer.end is None:
                self.service.engine.cancel(job.number)
            self.service.metrics.tokens.labels("forced").inc(answer.forced)
            self.service.metrics.tokens.labels("sampled").inc(len(answer.tokens) - answer.forced)


def _may_begin(job: Job, held: Held) -> bool:
    """Whether a valid output within the job's limit begins with what is begun."""
    try:
        return all(map(held.grammar.matcher(job.max_tokens if job.budget else None, canonical=True).accept_token, job.begun))
    except ConstraintError:
        return False


def _within_budget(job: Job, held: Held, asked: bool) -> Job:
    """``job``, if a valid output fits in its limit; without a budget where the grammar cannot keep one and the client named none."""
    try:
        held.grammar.matcher(job.max_tokens, canonical=True)
    except BudgetTooSmall as error:
        raise ApiError(400, error.message, param="max_tokens", code="max_tokens_too_small", hint=error.hint) from None
    except BudgetUnavailable as error:
        if asked:
            raise ApiError(400, error.message, param="max_tokens", code="unenforceable", hint=error.hint) from None
        return replace(job, budget=False)
    except ConstraintError as error:
        raise ApiError(400, error.message, param="response_format", code="unenforceable", hint=error.hint) from None
    return job
