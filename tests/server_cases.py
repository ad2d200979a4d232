"""What the server's tests share: a tiny llama with random weights, a tokenizer with a chat template, and a server that listens
in a thread."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
import transformers
import uvicorn
from decoding_cases import PADDING, SOURCES, away_from_ties, vocabulary
from tokenizer_cases import TRAINED

from stcc.runtime.server.app import create_app
from stcc.runtime.server.limits import Limits
from stcc.runtime.server.serving import GracefulServer, Setup, build_service, running
from stcc.runtime.server.session import Defaults, Service

CONTEXT = 2000
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
HELLO = [{"role": "user", "content": "hello world"}]
RECORD = {"type": "json_schema", "json_schema": {"name": "record", "schema": SOURCES["record"]}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}}, "required": ["a",
                                                                                                                                     "b"]}}}
NOTE = {"type": "function", "function": {"name": "note", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "pattern": "^[a-z ]{1,8}$"}}, "required": ["text"]}}}
LONG = "[a-z]{200,400}"
"""A pattern whose outputs keep a row busy for a while."""


@cache
def tokenizer(template: str = TEMPLATE) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=TRAINED["byte-level"], eos_token="<|im_end|>", chat_template=template)


def arguments() -> dict[str, Any]:
    return {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": vocabulary().size + PADDING,
            "max_position_embeddings": CONTEXT, "tie_word_embeddings": False}


@cache
def llama(seed: int = 0) -> Any:
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(seed)
    model = Model(ModelArgs(**arguments()))
    return away_from_ties(model, model.lm_head)


def model_folder(folder: Path, seed: int = 0) -> Path:
    """The tiny llama as an mlx-lm model folder."""
    import json

    from mlx.utils import tree_flatten

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**arguments(), "eos_token_id": list(vocabulary().stop_token_ids)}))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(llama(seed).parameters())))
    return folder


class Slow:
    """A model whose passes take at least ``seconds``, wait while it is stopped, and fail when it is told to."""

    def __init__(self, model: Any) -> None:
        self.model, self.seconds, self.fail, self.calls = model, 0.0, False, 0
        self._goes_on = threading.Event()
        self._goes_on.set()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """No pass begins while the block runs."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def __call__(self, *given: Any, **named: Any) -> Any:
        assert self._goes_on.wait(60)
        self.calls += 1
        time.sleep(self.seconds)
        if self.fail:
            self.fail = False
            raise RuntimeError("the device is lost")
        return self.model(*given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


class Live:
    """A server that listens."""

    def __init__(self, service: Service, url: str, server: GracefulServer) -> None:
        self.service, self.url, self.server = service, url, server
        self.client = httpx.Client(base_url=url, timeout=60)

    def post(self, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        return self.client.post(path, json=fields)

    def chat(self, **fields: Any) -> httpx.Response:
        return self.post(**{"messages": HELLO, "max_tokens": 60, "temperature": 0, **fields})

    def answer(self, **fields: Any) -> dict[str, Any]:
        """The first choice of a completion that must succeed."""
        response = self.chat(**fields)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()["choices"][0]
        return found

    def refusal(self, status: int = 400, **fields: Any) -> dict[str, Any]:
        response = self.chat(**fields)
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()["error"]
        return found

    def idle(self, seconds: float = 10) -> bool:
        """Whether nothing is under way, soon."""
        return until(lambda: self.service.gate.rows == 0 and self.service.engine.counts.running == 0 and not self.service.engine._rows,
                     seconds)


def until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def live(limits: Limits | None = None, *, model: Any = None, artifacts: Path | None = None, api_key: str | None = None,
         defaults: Defaults | None = None, template: str = TEMPLATE, tool_format: str | None = None) -> Iterator[Live]:
    setup = Setup("tiny/llama", artifacts, api_key, tool_format, limits=limits or Limits(grace_seconds=2), defaults=defaults or Defaults())
    with tempfile.TemporaryDirectory() as scratch:
        service = build_service(model or llama(), tokenizer(template), vocabulary(), setup, Path(scratch))

        @contextlib.asynccontextmanager
        async def lifespan(app: Any) -> Any:
            async with running(service):
                yield

        config = uvicorn.Config(create_app(service, lifespan), host="127.0.0.1", port=0, log_level="error", lifespan="on",
                                timeout_graceful_shutdown=2)
        socket = config.bind_socket()
        server = GracefulServer(config, service)
        thread = threading.Thread(target=lambda: server.run(sockets=[socket]), daemon=True)
        thread.start()
        assert until(lambda: server.started, 30)
        found = Live(service, f"http://127.0.0.1:{socket.getsockname()[1]}", server)
        try:
            yield found
        finally:
            found.client.close()
            server.should_exit = True
            thread.join(20)
            socket.close()
            assert not thread.is_alive()
