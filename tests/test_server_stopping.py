"""Signals and ranks: a server that is told to stop finishes its streams, and several ranks decode as one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("starlette", reason="the server's packages are not installed")
pytest.importorskip("uvicorn", reason="the server's packages are not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from server_cases import HELLO, LONG, model_folder, until  # noqa: E402

BUSY = {"messages": HELLO, "max_tokens": 400, "temperature": 0, "guided_regex": LONG}


def start(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", "from stcc.runtime.cli import main; main()", "serve", str(folder), "--port", "0", *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"serving .* on (http://\S+)", line):
            return process, found[1]
    raise AssertionError(f"the server did not start: {process.wait(5)}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny")


def test_a_signal_under_load_loses_no_stream(folder: Path) -> None:
    process, url = start(folder, "--grace", "60", "--rows", "2", "--temp", "0")
    results: list[Any] = []

    def stream() -> None:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json={**BUSY, "stream": True}, timeout=60) as response:
            results.append((response.status_code, "".join(response.iter_text())))

    try:
        threads = [threading.Thread(target=stream) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert until(lambda: httpx.get(f"{url}/health").json()["outputs"] == 4, 20)
        process.send_signal(signal.SIGTERM)
        assert until(lambda: httpx.get(f"{url}/health").status_code == 503, 5)
        refused = httpx.post(f"{url}/v1/chat/completions", json=BUSY)
        assert refused.status_code == 503 and refused.headers["retry-after"] and refused.json()["error"]["code"] == "stopping"
        for thread in threads:
            thread.join(60)
        assert process.wait(20) == 0
    finally:
        process.kill()
    assert len(results) == 4
    for status, text in results:
        assert status == 200 and text.endswith("data: [DONE]\n\n") and '"finish_reason":"stop"' in text


def test_what_does_not_finish_in_time_is_told(folder: Path) -> None:
    process, url = start(folder, "--grace", "0", "--temp", "0")
    try:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json={**BUSY, "guided_regex": "[a-z]{1500}", "max_tokens": 1900,
                                                                      "stream": True},
                          timeout=30) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = "\n".join(lines)
        assert '"code":"stopping"' in rest and rest.rstrip().endswith("data: [DONE]")
        assert process.wait(20) == 0
    finally:
        process.kill()
