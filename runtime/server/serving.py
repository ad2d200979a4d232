"""Starting and stopping: a model, a folder of artifacts and limits become a listening server.

On SIGTERM or SIGINT the server takes no more requests (503), finishes what is under way within ``grace_seconds``, ends the rest with an
error, and leaves; a second signal leaves at once. With several ranks, rank 0 serves and the others follow its engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from stcc.runtime.seam import call_format
from stcc.runtime.server.app import create_app
from stcc.runtime.server.chat import ChatTemplate, guess_format
from stcc.runtime.server.cluster import Channel, Follower, SingleRank
from stcc.runtime.server.constraints import Family
from stcc.runtime.server.engine import Engine
from stcc.runtime.server.errors import ServeError
from stcc.runtime.server.gate import Gate
from stcc.runtime.server.grammars import GrammarStore
from stcc.runtime.server.limits import Limits
from stcc.runtime.server.session import Defaults, Service
from stcc.runtime.server.worker import CompileWorker

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

LAST_WORDS_SECONDS = 2
"""In which ended streams may send their error once the grace time is over."""


@dataclass(frozen=True)
class Setup:
    """What a server is made of.

    Attributes:
        name: of the model, as clients ask for it.
        artifacts: folder of ``.stc`` files; None for none.
        api_key: that requests must send; None for none.
        tool_format: of the model's tool calls; None to go by its chat template.
        whitespace: of JSON in answers.
        workers: compiling processes.
    """

    name: str
    artifacts: Path | None = None
    api_key: str | None = None
    tool_format: str | None = None
    whitespace: str = "compact"
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    defaults: Defaults = field(default_factory=Defaults)


def family_of(template: str, setup: Setup) -> Family:
    """How the model with this chat template spells replies. ServeError for an unknown format."""
    name = setup.tool_format or guess_format(template)
    try:
        description = call_format(name)
    except KeyError:
        raise ServeError(f"{name!r} is not a format of tool calls", "docs/tools.md lists them") from None
    opening = description.reasoning.open.strip() if description.reasoning is not None else ""
    return Family(name, description, bool(opening) and opening in template, setup.whitespace)


def build_service(model: Any, tokenizer: Any, vocabulary: Vocabulary, setup: Setup, scratch: Path,
                  channel: Channel | None = None) -> Service:
    """A service whose engine and processes do not run yet.

    Args:
        model: an mlx-lm model.
        tokenizer: mlx-lm's wrapper of its tokenizer.
        vocabulary: of the tokenizer.
        setup: the rest.
        scratch: a folder for the vocabulary that compiling processes read.
        channel: to the other ranks.

    Raises:
        ServeError: the artifacts folder or the tool format cannot be used.
    """
    source = getattr(tokenizer, "chat_template", None)
    family = family_of(str(source or ""), setup)
    reasoning = family.description.reasoning
    template = ChatTemplate(tokenizer, family.format, reasoning.open if reasoning is not None else "")
    pack = scratch / "model.stv"
    vocabulary.save(pack)
    limits = setup.limits
    workers = [CompileWorker(pack, limits.compile_bytes, limits.compile_seconds, limits.compile_states)
               for _ in range(max(1, setup.workers))]
    store = GrammarStore(vocabulary, workers, limits.grammars, limits.grammar_bytes)
    if setup.artifacts is not None:
        store.load_folder(setup.artifacts)
    engine = Engine(model, vocabulary, limits, formats=lambda name: call_format(name) if name else None, channel=channel)
    return Service(engine, store, template, family, Gate(limits, setup.api_key), setup.name, setup.defaults)


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """The service's engine and processes run while the block does."""
    service.engine.start()
    starts = [asyncio.ensure_future(worker.start()) for worker in service.store.workers]
    try:
        yield
    finally:
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        await service.store.close()
        await asyncio.to_thread(service.engine.stop)


class GracefulServer(uvicorn.Server):
    """uvicorn's server, which goes on answering while it drains."""

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[], None] | None = None) -> None:
        """``announce`` is called once connections are accepted."""
        super().__init__(config)
        self._service, self._announce, self._drained_since = service, announce, 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        if self._announce is not None and self.started:
            self._announce()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to drain at the first signal, leave at the second."""
        if self._service.gate.draining:
            super().handle_exit(sig, frame)
        else:
            self._service.gate.draining = True
            self._drained_since = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Whether to leave now; called ten times a second."""
        gate = self._service.gate
        if gate.draining and not self.should_exit:
            waited = time.monotonic() - self._drained_since
            if waited > gate.limits.grace_seconds:
                gate.expire()
            if not gate.requests or waited > gate.limits.grace_seconds + LAST_WORDS_SECONDS:
                self.should_exit = True
        return await super().on_tick(counter)


def serve(service: Service, host: str, port: int, *, announce: Any = None) -> None:
    """Answer requests until a signal comes. OSError if the address is taken.

    Args:
        service: not running yet.
        host: address to listen on.
        port: 0 for any free one.
        announce: called with the URL once connections are accepted.
    """
    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with running(service):
            yield

    config = uvicorn.Config(create_app(service, lifespan), host=host, port=port, log_level="warning", access_log=False, lifespan="on",
                            timeout_graceful_shutdown=LAST_WORDS_SECONDS, server_header=False)
    listening = config.bind_socket()
    shown, chosen = listening.getsockname()[:2]
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{chosen}"
    try:
        GracefulServer(config, service, None if announce is None else lambda: announce(url)).run(sockets=[listening])
    finally:
        listening.close()


def serve_model(model: Any, tokenizer: Any, vocabulary: Vocabulary, setup: Setup, host: str, port: int, *, channel: Channel | None = None,
                announce: Any = None) -> None:
    """Serve a loaded model until a signal comes; a rank other than 0 follows rank 0 until that one stops."""
    channel = channel or SingleRank()
    if isinstance(channel, Follower):
        Engine(model, vocabulary, setup.limits, formats=lambda name: call_format(name) if name else None, channel=channel).run()
        return
    with tempfile.TemporaryDirectory(prefix="stcc-serve-") as scratch:
        serve(build_service(model, tokenizer, vocabulary, setup, Path(scratch), channel), host, port, announce=announce)


def api_key_of(given: str | None) -> str | None:
    """The key given, or that of ``STCC_API_KEY``."""
    return given or os.environ.get("STCC_API_KEY") or None
