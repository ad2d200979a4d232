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

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("starlette", reason="the server's packages are not installed")
pytest.importorskip("uvicorn", reason="the server's packages are not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from decoding_cases import NAMES  # noqa: E402
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


RANK = """
import json, sys
sys.path.insert(0, {tests!r})
import mlx.core as mx
from pathlib import Path
from decoding_cases import grammar, vocabulary
from server_cases import model_folder
from stcc.runtime.server import engine as module
from stcc.runtime.server.cluster import channel_of, load_ranked
from stcc.runtime.server.job import Choosing, End, Job

group = mx.distributed.init(strict={several!r}, backend="ring" if {several!r} else "any")
model = load_ranked({folder!r}, group).model
collect, ended = module.Row.collect, []

def recorded(row, logprobs=None):
    collect(row, logprobs)
    if row.reason is not None:
        ended.append((row.job.number, row.output, row.reason))

module.Row.collect = recorded
engine = module.Engine(model, vocabulary(), channel=channel_of(group, vocabulary()))
if group.rank() == 0:
    engine.start()
    import queue
    for round in range(2):
        found = queue.SimpleQueue()
        for number, name in enumerate({names!r}):
            temperature = 0.9 if number % 2 else 0.0
            engine.submit(Job(10 * round + number, (5, 6, 7 + number), name, 60, Choosing(temperature=temperature, seed=number)),
                          grammar(name), found.put)
        left = len({names!r})
        while left:
            left -= isinstance(found.get(timeout=120), End)
    engine.submit(Job(90, (5, 6), None, 2000, Choosing(temperature=0)), None, lambda event: None)
    engine.cancel(90)
    assert engine.stop(30)
else:
    engine.run()
Path({out!r} + str(group.rank())).write_text(json.dumps(sorted(ended)))
"""


@pytest.mark.slow
def test_two_ranks_decode_as_one(folder: Path, tmp_path: Path) -> None:
    """The model in two shares, the commands over mlx's ring: both ranks choose the same tokens, which are those of one rank."""
    import json
    import shutil

    launch = shutil.which("mlx.launch")
    if launch is None or not mx.distributed.is_available("ring"):
        pytest.skip("mlx.launch or its ring backend is not installed")
    found = {}
    for several in (False, True):
        out = str(tmp_path / f"{several}-")
        script = tmp_path / f"rank{several}.py"
        script.write_text(RANK.format(tests=str(Path(__file__).parent), folder=str(folder), out=out, names=NAMES, several=several))
        command = [launch, "-n", "2", "--backend", "ring", sys.executable, str(script)] if several else [sys.executable, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        for rank in range(1 + several):
            path = Path(f"{out}{rank}")
            assert path.is_file(), done.stdout + done.stderr
            found[several, rank] = json.loads(path.read_text())
    assert len(found[True, 0]) == 2 * len(NAMES) + 1
    assert found[True, 0] == found[True, 1]
    free = [ended for ended in found[True, 0] if ended[0] != 90]
    assert free == [ended for ended in found[False, 0] if ended[0] != 90]


def test_the_command_says_where_it_listens(folder: Path) -> None:
    import json

    command = [sys.executable, "-c", "from stcc.runtime.cli import main; main()", "serve", "--model", str(folder), "--port", "0", "--json",
               "--name", "mine", "--max-body", "1k", "--api-key", "k"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        shown = json.loads(process.stdout.readline())
        assert shown["model"] == "mine"
        headers = {"Authorization": "Bearer k"}
        assert httpx.get(f"{shown['url']}/v1/models", headers=headers).json()["data"][0]["id"] == "mine"
        assert httpx.post(f"{shown['url']}/v1/completions", headers=headers, content=b"x" * 2000).status_code == 413
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["smollm2", "--model", "smollm2"], 2, "not both"), (["smollm2", "--max-body", "much"], 2, "number of bytes"),
    (["no/such", "--artifacts", "/no/such/folder"], 2, "does not exist"), (["./no such model"], 1, "is not a model"),
])
def test_wrong_usage(arguments: list[str], status: int, said: str) -> None:
    from click.testing import CliRunner

    from stcc.runtime.cli import main

    found = CliRunner().invoke(main, ["serve", *arguments])
    assert found.exit_code == status and said in " ".join(found.output.split())


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from stcc.runtime.cli import main

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = CliRunner().invoke(main, ["serve"])
    assert found.exit_code == 1 and "stcc[serve]" in found.output
