"""What the server does with too much, too slow, gone and broken: status codes, freed rows, flat memory, streams that end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("starlette", reason="the server's packages are not installed")
pytest.importorskip("uvicorn", reason="the server's packages are not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from decoding_cases import NAMES, SOURCES, is_valid, vocabulary  # noqa: E402
from server_cases import HELLO, LONG, RECORD, Live, Slow, live, llama, until  # noqa: E402

from stcc.runtime.server.errors import ApiError  # noqa: E402
from stcc.runtime.server.grammars import GrammarStore  # noqa: E402
from stcc.runtime.server.limits import Limits  # noqa: E402
from stcc.runtime.server.worker import CompileWorker, WorkerKilled, answer  # noqa: E402

EXPLODING = {"type": "object", "properties": {f"k{number}": {"type": "string", "pattern": f"^(a|b)*a(a|b){{{14 + number}}}$"}
                                              for number in range(4)}}
BUSY = {"messages": HELLO, "max_tokens": 400, "temperature": 0, "guided_regex": LONG}


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[Live, Slow]]:
    """A server whose model can be made slow, with few places and short times."""
    model = Slow(llama())
    limits = Limits(rows=2, waiting=3, body_bytes=100_000, body_seconds=0.7, request_seconds=4, compile_seconds=1.5, grace_seconds=1)
    with live(limits, model=model) as server:
        yield server, model


@contextlib.contextmanager
def pace(model: Slow, seconds: float) -> Iterator[None]:
    model.seconds = seconds
    try:
        yield
    finally:
        model.seconds = 0.0


def rows(server: Live) -> int:
    return len(server.service.engine._rows)


# ---- bodies


def test_a_body_that_is_too_large(slow: tuple[Live, Slow]) -> None:
    server, _ = slow
    body = json.dumps({"messages": [{"role": "user", "content": "x" * (20 << 20)}]}).encode()
    assert server.client.post("/v1/chat/completions", content=body).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * (1 << 20)

    assert server.client.post("/v1/chat/completions", content=chunks()).json()["error"]["code"] == "too_large"
    assert server.answer(max_tokens=1)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": [{"role": "user", "content": "x"}], "n": NaN}',
                                  b"[" * 50_000, b'{"messages": "x"}', b'{"messages": [{"role": "user", "content": "\\ud800"}]} x'])
def test_malformed_bodies(slow: tuple[Live, Slow], body: bytes) -> None:
    response = slow[0].client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400 and response.json()["error"]["message"]


def test_a_body_that_does_not_arrive(slow: tuple[Live, Slow]) -> None:
    server, _ = slow
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


# ---- grammars


def test_a_schema_that_explodes(slow: tuple[Live, Slow]) -> None:
    server, _ = slow
    started = time.monotonic()
    error = server.refusal(response_format={"type": "json_schema", "json_schema": {"schema": EXPLODING}})
    assert error["code"] == "compile_limit" and error["hint"], error
    assert time.monotonic() - started < 10
    first = time.monotonic()
    assert server.refusal(response_format={"type": "json_schema", "json_schema": {"schema": EXPLODING}})["code"] == "compile_limit"
    assert time.monotonic() - first < 1, "what could not be compiled is remembered"
    assert is_valid("record", server.answer(response_format=RECORD)["message"]["content"].encode())


def test_one_compile_for_many_that_ask_at_once(slow: tuple[Live, Slow]) -> None:
    counts = slow[0].service.store.counts
    schema = {"type": "object", "properties": {"only here": {"type": "boolean"}}, "required": ["only here"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    before = counts.compiled, counts.found
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: slow[0].answer(response_format=wanted, max_tokens=30), range(4)))
    assert {answer["message"]["content"] for answer in answers} <= {'{"only here":true}', '{"only here":false}'}
    assert (counts.compiled, counts.found) == (before[0] + 1, before[1] + 3)


def worker(tmp_path: Path, **limits: Any) -> CompileWorker:
    vocabulary().save(tmp_path / "v.stv")
    return CompileWorker(tmp_path / "v.stv", **{"memory": 4 << 30, "seconds": 20.0, "states": 200_000, **limits})


def test_the_least_used_grammars_go(tmp_path: Path) -> None:
    async def run() -> None:
        store = GrammarStore(vocabulary(), [worker(tmp_path)], 2)
        specs = [{"kind": "regex", "source": pattern} for pattern in ("a", "b", "c")]
        for number in (0, 1, 0, 2, 0, 1):  # 1 goes when 2 comes
            await store.get(specs[number], "guided_regex")
        assert (store.counts.compiled, store.counts.found) == (4, 2)
        with pytest.raises(ApiError, match="guided_regex"):
            await store.get({"kind": "regex", "source": "("}, "guided_regex")
        await store.close()

    asyncio.run(run())


def test_grammars_with_many_rows_go(tmp_path: Path) -> None:
    async def run() -> None:
        store = GrammarStore(vocabulary(), [worker(tmp_path)], 100)
        for number in range(6):
            held = await store.get({"kind": "regex", "source": f"[a-z]{{{number + 2}}}"}, "guided_regex")
            assert held.grammar.masks.nbytes > 0
        assert len(store._held) == 6
        store._most_bytes = held.grammar.masks.nbytes + 1
        again = await store.get({"kind": "regex", "source": "[a-z]{4}"}, "guided_regex")
        assert len(store._held) == 1 and store.counts.found == 1 and again.need > 0
        await store.get({"kind": "regex", "source": "[a-z]{5}"}, "guided_regex")
        assert store.counts.compiled == 7
        await store.close()

    asyncio.run(run())


def test_a_process_that_is_stopped_is_started_again(tmp_path: Path) -> None:
    async def run() -> None:
        compiling = worker(tmp_path)
        await compiling.start()
        assert compiling._process is not None
        compiling._process.kill()
        await compiling._process.wait()
        assert "artifact" in await compiling.compile({"kind": "regex", "source": "abc"})
        task = asyncio.ensure_future(compiling.compile({"kind": "regex", "source": "(a|b)*a(a|b){17}"}))
        await asyncio.sleep(0.05)
        compiling._process.kill()
        with pytest.raises(WorkerKilled):
            await task
        assert "artifact" in await compiling.compile({"kind": "regex", "source": "abc"})
        await compiling.close()

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms may not bound a process's memory")
def test_memory_of_a_compile_is_bounded() -> None:
    code = "from stcc.runtime.server.worker import bound_memory; bound_memory(1 << 30); bytearray(1 << 31)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode != 0 and "MemoryError" in found.stderr


def test_a_compile_without_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_request(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("stcc.runtime.seam.compile_request", compile_request)
    assert answer({}, None, {})["error"]["error"] == "BudgetError"


def test_a_process_that_cannot_start(tmp_path: Path) -> None:
    async def run() -> None:
        broken = CompileWorker(tmp_path / "none.stv", 4 << 30, 5.0, 1000)
        with pytest.raises(WorkerKilled, match="start"):
            await broken.compile({"kind": "regex", "source": "abc"})

    asyncio.run(run())


# ---- clients that go, wait, or are too many


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[Live, Slow]]:
    """A server with time, and two places, whose model can be stopped."""
    model = Slow(llama())
    with live(Limits(rows=2), model=model) as server:
        yield server, model


@contextlib.contextmanager
def calling(server: Live, **fields: Any) -> Iterator[None]:
    """A client that has sent a request and goes away, without a word, when the block ends."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({**BUSY, **fields}).encode()
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        yield


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_row_at_once(patient: tuple[Live, Slow], stream: bool) -> None:
    server, model = patient
    with model.stopped():
        with calling(server, stream=stream):
            assert until(lambda: rows(server) == 1, 60)
            row = next(iter(server.service.engine._rows.values()))
        assert until(lambda: server.service.gate.rows == 0, 60), "the server did not notice"
        passes = model.calls
    assert server.idle(60) and row.reason == "cancelled"
    assert model.calls <= passes + 4, "the row went on"  # a prompt's and a row's pass, both under way, and the passes enqueued after them
    assert server.answer(max_tokens=1)


def test_a_client_that_goes_away_while_it_waits(patient: tuple[Live, Slow]) -> None:
    server, model = patient
    with ThreadPoolExecutor(2) as pool:
        with model.stopped():
            busy = [pool.submit(server.chat, guided_regex="[a-z]{30}", max_tokens=60) for _ in range(2)]
            assert until(lambda: server.service.gate.rows == 2, 60)
            with calling(server):
                assert until(lambda: server.service.gate.rows == 3, 60)
            assert until(lambda: server.service.gate.rows == 2, 60), "the server did not notice"
        assert all(job.result().status_code == 200 for job in busy)
    assert server.idle(60)
    assert len(server.service.engine._generator._unprocessed_sequences) == 0


def test_too_many_are_told_when_to_come_back(slow: tuple[Live, Slow]) -> None:
    server, model = slow
    with pace(model, 0.02), ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(server.chat, guided_regex="[a-z]{30}", max_tokens=60) for _ in range(8)]
        found = [job.result() for job in jobs]
    statuses = [response.status_code for response in found]
    assert statuses.count(200) >= 5 and statuses.count(429) >= 1 and set(statuses) == {200, 429}
    assert all(int(response.headers["retry-after"]) > 0 for response in found if response.status_code == 429)
    assert server.refusal(429, n=6)["code"] == "busy"
    assert server.idle() and server.answer(max_tokens=1)


def test_an_answer_that_takes_too_long(slow: tuple[Live, Slow]) -> None:
    server, model = slow
    with pace(model, 0.3):
        started = time.monotonic()
        assert server.refusal(504, guided_regex=LONG, max_tokens=400)["code"] == "timeout"
        assert time.monotonic() - started < 8
        assert server.idle(30)
        response = server.chat(guided_regex=LONG, max_tokens=400, stream=True)
        assert response.status_code == 200 and '"code":"timeout"' in response.text and response.text.endswith("data: [DONE]\n\n")
    assert server.idle() and server.answer(max_tokens=1)


def test_a_step_that_fails_fails_its_rows_only(slow: tuple[Live, Slow]) -> None:
    server, model = slow
    model.fail = True
    assert server.refusal(500, max_tokens=3)["code"] == "decode_failed"
    assert server.client.get("/health").status_code == 200
    assert is_valid("record", server.answer(response_format=RECORD)["message"]["content"].encode())


def test_scores_that_are_not_finite(slow: tuple[Live, Slow], monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx.core as mx

    server, model = slow
    with monkeypatch.context() as patch:
        patch.setattr(server.service.engine._decoding, "model", lambda tokens, cache: model(tokens, cache=cache) * mx.array(float("nan")))
        response = server.chat(response_format=RECORD)
    assert response.status_code in (200, 500)  # argmax of scores that are all NaN may be an allowed token
    if response.status_code == 200:
        assert is_valid("record", response.json()["choices"][0]["message"]["content"].encode())
    assert is_valid("record", server.answer(response_format=RECORD)["message"]["content"].encode())


# ---- many


def test_two_hundred_queued_requests_are_all_answered() -> None:
    with live(Limits(rows=8, waiting=256)) as server:
        constraints = [{"guided_regex": source} if isinstance(source, str) else
                       {"response_format": {"type": "json_schema", "json_schema": {"schema": source}}} for source in SOURCES.values()]

        async def run() -> list[Any]:
            async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=httpx.Limits(max_connections=None)) as client:
                return await asyncio.gather(*(client.post("/v1/chat/completions", json={
                    "messages": HELLO, "temperature": 1, "seed": number, "max_tokens": 60, **constraints[number % len(constraints)]})
                    for number in range(200)))

        answers = asyncio.run(run())
        assert {answer.status_code for answer in answers} == {200}
        for number, answer in enumerate(answers):
            assert is_valid(NAMES[number % len(NAMES)], answer.json()["choices"][0]["message"]["content"].encode())
        assert server.idle()


def test_memory_stays_flat() -> None:
    """Objects of the engine, by count: nothing of a request outlives it."""
    import gc

    from stcc.runtime.server.row import Row
    from stcc.runtime.server.session import Session

    with live(Limits(rows=4, grammars=4, prompt_cache_bytes=2 << 20)) as server:
        def ask(number: int) -> None:
            pattern = f"[a-c]{{{1 + number % 8}}}"
            server.chat(guided_regex=pattern, max_tokens=10, messages=[{"role": "user", "content": f"say {number}"}],
                        stream=number % 3 == 0)

        for number in range(40):
            ask(number)
        assert server.idle()
        gc.collect()
        assert sum(isinstance(each, (Row, Session)) for each in gc.get_objects()) <= 2
        engine, store = server.service.engine, server.service.store
        assert len(store._held) <= 4 and not engine._uids and engine._prompts is not None and engine._prompts.nbytes <= 2 << 20


def test_device_memory_holds_what_is_alive_and_what_the_prompt_cache_counts() -> None:
    """A row's cache that is stored must not keep the batch that it was taken from."""
    import mlx.core as mx

    with live(Limits(rows=8, prompt_cache_bytes=1 << 20)) as server:
        engine = server.service.engine

        def ask(number: int) -> None:
            server.answer(guided_regex="[a-c]{6}", max_tokens=2 + number % 8 + 5, seed=number,
                          messages=[{"role": "user", "content": f"say {number} and {number * 7919 % 1000}"}])

        def hundred(start: int) -> tuple[int, float]:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(ask, range(start, start + 100)))
            assert server.idle()
            assert until(lambda: mx.get_cache_memory() == 0, 5), "buffers are kept while nothing is decoding"
            assert engine._prompts is not None
            return mx.get_active_memory() - engine._prompts.nbytes, resident()

        seen = [hundred(start) for start in range(0, 400, 100)]
    beside = [each for each, _ in seen]
    assert max(beside) - min(beside) < 256 << 10, "arrays that nothing counts"
    if sys.platform == "linux":
        assert seen[-1][1] - seen[1][1] < 16, f"MB resident: {[size for _, size in seen]}"


def resident() -> float:
    """MB of this process; 0 where the platform does not say."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))
