"""The ASGI application: routes, error bodies, streams that end when their client goes away.

Every answer but a stream is made whole before its first byte is sent. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stcc.runtime.server import responses
from stcc.runtime.server.errors import ApiError
from stcc.runtime.server.gate import status_of
from stcc.runtime.server.openapi import document
from stcc.runtime.server.requests import ChatRequest, CompletionRequest, parse
from stcc.runtime.server.session import Service, Session

KEEPALIVE_SECONDS = 10.0
CLOSED = 499
"""Counted for requests whose client went away."""
Endpoint = Callable[[Request], Awaitable[Response]]


class Disconnected(Exception):  # noqa: N818 - named for what happened
    """The client went away."""


def create_app(service: Service, lifespan: Any = None) -> Starlette:
    """The application over ``service``; ``lifespan`` starts and stops what it needs."""
    routes = [
        Route("/v1/chat/completions", _guarded(service, "chat", lambda request: _complete(service, request, ChatRequest)),
              methods=["POST"]),
        Route("/v1/completions", _guarded(service, "completions", lambda request: _complete(service, request, CompletionRequest)),
              methods=["POST"]),
        Route("/v1/models", _guarded(service, "models", lambda request: _models(service)), methods=["GET"]),
        Route("/v1/models/{name:path}", _guarded(service, "models", lambda request: _model(service, request)), methods=["GET"]),
        Route("/health", lambda request: _health(service), methods=["GET"]),
        Route("/metrics", lambda request: Response(service.metrics.text(), media_type="text/plain; version=0.0.4"), methods=["GET"]),
        Route("/openapi.json", lambda request: JSONResponse(document(service.name)), methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error}, lifespan=lifespan)


def _error(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body(), error.status, error.headers())


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the form of the other errors."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path} is not part of this API" if error.status_code in (404, 405) else error.detail
    found = _error(ApiError(error.status_code, message, code="unknown_path", hint="GET /openapi.json lists it"))
    found.headers.update(error.headers or {})
    return found


def _guarded(service: Service, name: str, endpoint: Endpoint) -> Endpoint:
    """``endpoint`` with the key checked, errors written and requests counted."""
    async def run(request: Request) -> Response:
        started = time.monotonic()
        try:
            service.gate.authorize(request.headers.get("authorization"))
            response = await endpoint(request)
        except ApiError as error:
            response = _error(error)
        except (Disconnected, ClientDisconnect):
            response = Response(status_code=CLOSED)
        if not isinstance(response, EventStream):
            service.metrics.requests.labels(name, response.status_code).inc()
            service.metrics.seconds.labels(name).observe(time.monotonic() - started)
        return response

    return run


def _health(service: Service) -> Response:
    status = status_of(service.gate, service.engine)
    return JSONResponse(status, 200 if status["status"] == "ok" else 503)


async def _models(service: Service) -> Response:
    return JSONResponse({"object": "list", "data": [_described(service)], "artifacts": sorted(service.store.artifacts)})


async def _model(service: Service, request: Request) -> Response:
    service.check_model(request.path_params["name"])
    return JSONResponse(_described(service))


def _described(service: Service) -> dict[str, Any]:
    return {"id": service.name, "object": "model", "created": service.created, "owned_by": "stcc",
            "max_model_len": service.engine.context_length, "tool_format": service.family.format}


# ---- completions


async def _complete(service: Service, request: Request, kind: type[ChatRequest] | type[CompletionRequest]) -> Response:
    service.gate.admit()
    body = await service.gate.body(request.headers.get("content-length"), request.stream())
    parsed = parse(kind, body)
    session = Session(service, parsed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(service.gate.slots(session.choices, session.fail))
        stack.callback(session.close)
        await _unless_disconnected(request.receive, _started(session))
        if parsed.stream:
            return EventStream(session, stack.pop_all(), KEEPALIVE_SECONDS)
        return JSONResponse(await _unless_disconnected(request.receive, _whole(session)))


async def _started(session: Session) -> None:
    """Begin; a grammar that waits long for its turn to be compiled counts as a late answer."""
    seconds = session.service.limits.request_seconds
    try:
        await asyncio.wait_for(session.start(), seconds)
    except asyncio.TimeoutError:
        raise ApiError(504, f"the request could not begin within {seconds:g} seconds", code="timeout", hint="try again later") from None


async def _whole(session: Session) -> dict[str, Any]:
    async for _ in session.events():
        pass
    return Writer(session).whole()


async def _unless_disconnected(receive: Receive, work: Any) -> Any:
    """The result of ``work``; Disconnected, and ``work`` cancelled, if the client goes away first."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Disconnected
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Writer:
    """Bodies and chunks of one session's answers."""

    def __init__(self, session: Session) -> None:
        self.session, self.chat = session, isinstance(session.request, ChatRequest)
        self.head = {"id": f"{'chatcmpl' if self.chat else 'cmpl'}-{secrets.token_hex(12)}", "created": int(time.time()),
                     "model": session.service.name, "system_fingerprint": f"stcc-{session.vocabulary.fingerprint[:12]}"}
        self._calls, self._offsets = [0] * len(session.answers), [0] * len(session.answers)

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        kind = "chat.completion" if self.chat else "text_completion"
        choices = [self._choice(index, answer) for index, answer in enumerate(self.session.answers)]
        return {**self.head, "object": kind, "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """The counts of all choices."""
        return responses.usage(self.session.prompt_tokens, self.session.answers)

    def _choice(self, index: int, answer: responses.Answer) -> dict[str, Any]:
        shared = {"index": index, "finish_reason": answer.finish_reason, "logprobs": self._logprobs(answer.tokens, 0)}
        if self.chat:
            return {**shared, "message": responses.message(answer)}
        return {**shared, "text": answer.content}

    def _logprobs(self, tokens: Any, offset: int) -> dict[str, Any] | None:
        request, vocabulary = self.session.request, self.session.vocabulary
        if isinstance(request, ChatRequest):
            return responses.chat_logprobs(tokens, vocabulary) if request.logprobs else None
        wanted = isinstance(request, CompletionRequest) and request.logprobs is not None
        return responses.text_logprobs(tokens, vocabulary, offset) if wanted else None

    def opening(self) -> list[dict[str, Any]]:
        """The chunks that say who speaks."""
        return [self._chunk(index, {"role": "assistant", "content": ""}, None, None) for index in range(len(self.session.answers))] \
            if self.chat else []

    def delta(self, index: int, delta: responses.Delta) -> list[dict[str, Any]]:
        """The chunks that say what is new; the last of a choice has its ``finish_reason``."""
        answer, found = self.session.answers[index], []
        logprobs = self._logprobs(delta.tokens, self._offsets[index]) if delta.tokens else None
        shown = responses.chat_delta(delta, self._calls[index]) if self.chat else {"text": delta.content} if delta.content else {}
        if shown or logprobs:
            found.append(self._chunk(index, shown, logprobs, None))
        self._calls[index] += len(delta.calls)
        self._offsets[index] += len(delta.content)
        if answer.end is not None:
            found.append(self._chunk(index, {}, None, answer.finish_reason))
        return found

    def _chunk(self, index: int, shown: dict[str, Any], logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "logprobs": logprobs, "finish_reason": finish}
        choice = {**choice, "delta": shown} if self.chat else {"text": "", **choice, **shown}
        options = self.session.request.stream_options
        extra = {"usage": None} if options is not None and options.include_usage else {}
        return {**self.head, "object": "chat.completion.chunk" if self.chat else "text_completion", "choices": [choice], **extra}

    def closing(self) -> list[dict[str, Any]]:
        """The chunk with the counts, if it was asked for."""
        options = self.session.request.stream_options
        if options is None or not options.include_usage:
            return []
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return [{**self.head, "object": kind, "choices": [], "usage": self.usage()}]


class EventStream(Response):
    """A session as server-sent events. It ends the session's rows as soon as the client is gone, and comments keep idle
    connections open."""

    def __init__(self, session: Session, stack: contextlib.ExitStack, keepalive: float) -> None:
        """Take over ``stack``, which holds what the session occupies."""
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._session, self._stack, self._keepalive = session, stack, keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        started, status = time.monotonic(), 200
        with self._stack:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await _unless_disconnected(receive, self._send(send))
            except Disconnected:
                status = CLOSED
        metrics = self._session.service.metrics
        name = "chat" if isinstance(self._session.request, ChatRequest) else "completions"
        metrics.requests.labels(name, status).inc()
        metrics.seconds.labels(name).observe(time.monotonic() - started)

    async def _send(self, send: Send) -> None:
        async for data in _kept_alive(self._events(), self._keepalive):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        writer = Writer(self._session)
        try:
            for chunk in writer.opening():
                yield responses.event(chunk)
            async for index, delta in self._session.events():
                for chunk in writer.delta(index, delta):
                    yield responses.event(chunk)
            for chunk in writer.closing():
                yield responses.event(chunk)
        except ApiError as error:
            yield responses.event(error.body())
        yield responses.event("[DONE]")


async def _kept_alive(source: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """``source``, with a comment whenever it was silent for ``seconds``."""
    following = asyncio.ensure_future(_next(source))
    try:
        while True:
            done, _ = await asyncio.wait((following,), timeout=seconds)
            if not done:
                yield b": waiting\n\n"
                continue
            data = following.result()
            if data is None:
                return
            yield data
            following = asyncio.ensure_future(_next(source))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)
