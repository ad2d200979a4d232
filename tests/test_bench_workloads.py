"""``stcc bench --workload``: agents and requests against a stand-in server, what counts as a valid call, and the peer's grammars."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

pytest.importorskip("click", reason="the command line's packages are not installed")
mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

from click.testing import CliRunner  # noqa: E402

from stcc.runtime.cli import main  # noqa: E402
from stcc.runtime.commands import workloads  # noqa: E402
from stcc.runtime.commands.workloads import OURS, PEER, Server, WorkloadError, agent, measure, satisfied, tools_of  # noqa: E402
from stcc.runtime.server.peer import Processor, grammar_of  # noqa: E402

GOOD: dict[str, Any] = {"place": "Oslo", "count": 3, "unit": "metric", "exact": True, "code": "ABC"}


def call_of(tool: dict[str, Any], wrong: bool = False) -> str:
    properties = tool["function"]["parameters"]["properties"]
    return json.dumps({name: "WRONG!" if wrong and name == "code" else GOOD[name] for name in properties})


@contextlib.contextmanager
def stand_in(native: bool, wrong: bool = False) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that calls the first tool it is given, as OpenAI's calls or as text."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            tool = body["tools"][0]
            name, arguments = tool["function"]["name"], call_of(tool, wrong)
            text = f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if native:
                message = {"role": "assistant", "content": None, "tool_calls": [
                    {"id": f"c{len(seen)}", "type": "function", "function": {"name": name, "arguments": arguments}}]}
            data = json.dumps({"choices": [{"message": message}], "usage": {"completion_tokens": 7}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("native", [True, False])
def test_an_agent_is_told_what_its_calls_found(native: bool) -> None:
    with stand_in(native) as (url, seen):
        replies = agent(Server(OURS, url), 3, 2, 50)
    assert [(reply.tokens, valid) for reply, valid in replies] == [(7, True), (7, True)]
    first, second = seen
    assert second["messages"][:len(first["messages"])] == first["messages"]
    assert [message["role"] for message in second["messages"][len(first["messages"]):]] == ["assistant", "tool"]
    if native:
        assert second["messages"][-1]["tool_call_id"] == second["messages"][-2]["tool_calls"][0]["id"]


def test_rows_count_requests_tokens_and_valid_calls() -> None:
    with stand_in(True) as (one, seen), stand_in(False, wrong=True) as (other, _):
        rows = measure([Server(OURS, one), Server(PEER, other)], 5, 2, 50, 2, lambda text: None)
    assert len(seen) == 1 + 2 * 5 * 2
    mine, theirs = rows
    assert (mine["server"], mine["requests"], mine["valid"], mine["tokens"]) == (OURS, 10, 10, 70)
    valid = sum("code" not in tools_of(number)[0]["function"]["parameters"]["properties"] for number in range(5))
    assert (theirs["requests"], theirs["valid"]) == (10, 2 * valid) and 0 < valid < 5
    assert mine["seconds"] > 0


def test_what_counts_as_a_valid_call() -> None:
    tool = tools_of(0)[1]["function"]
    arguments = {name: GOOD[name] for name in tool["parameters"]["properties"]}
    assert satisfied((tool["name"], json.dumps(arguments)), 0) and satisfied((tool["name"], json.dumps(arguments, indent=1)), 0)
    for broken in ({}, {**arguments, "more": 1}, {**arguments, "count": 1000}, {**arguments, "count": "3"}):
        assert not satisfied((tool["name"], json.dumps(broken)), 0)
    assert not satisfied(("find_9", json.dumps(arguments)), 0) and not satisfied((tool["name"], "{"), 0)
    tool_sets = [json.dumps(tools_of(number)) for number in range(16)]
    assert len(set(tool_sets)) == 16


def test_a_server_that_does_not_answer() -> None:
    with pytest.raises(WorkloadError, match="did not answer"):
        agent(Server(OURS, "http://127.0.0.1:9"), 0, 1, 10)
    with pytest.raises(WorkloadError, match="did not start"), workloads.ours("no/such/model/anywhere"):
        pass


def test_options_that_do_not_fit_are_refused() -> None:
    for given in (["--agents", "2"], ["--workload", "requests", "--turns", "2"], ["--workload", "agents", "--engine", "sync"]):
        found = CliRunner().invoke(main, ["bench", *given])
        assert found.exit_code == 2 and "--workload" in found.output


def test_the_peer_without_llguidance_says_so() -> None:
    code = "import sys; sys.modules['llguidance'] = None\nfrom stcc.runtime.server.peer import main; main('smollm2', 1)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode and "LlguidanceMissing" in found.stderr and "stcc[bench]" in found.stderr


def test_the_grammar_of_a_request() -> None:
    assert grammar_of({}) is None and grammar_of({"tools": tools_of(0), "tool_choice": "auto"}) is None
    schema = {"type": "integer"}
    asked = json.loads(grammar_of({"response_format": {"json_schema": {"schema": schema}}}) or "")
    assert asked["grammars"][0]["json_schema"]["type"] == "integer"
    lark = json.loads(grammar_of({"tools": tools_of(0), "tool_choice": "required"}) or "")["grammars"][0]["lark_grammar"]
    assert all(tool["function"]["name"] in lark for tool in tools_of(0))


def test_the_peer_s_grammar_admits_calls() -> None:
    llguidance = pytest.importorskip("llguidance", reason="llguidance is not installed")
    tokenizer = llguidance.LLTokenizer("byte")
    for tool in tools_of(2):
        text = f'<tool_call>\n{{"name": "{tool["function"]["name"]}", "arguments": {call_of(tool)}}}\n</tool_call>'
        for broken in (text, text.replace('"count": 3', '"count": "3"').replace('"exact": true', '"exact": 1')):
            matcher = llguidance.LLMatcher(tokenizer, grammar_of({"tools": tools_of(2), "tool_choice": "required"}))
            read = all(matcher.consume_token(token) for token in tokenizer.tokenize_str(broken))
            assert (read and matcher.is_accepting()) == (broken == text)


class Listed:
    """What the processor uses of a matcher: the tokens of one text, one after the other."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.place = tokens, 0

    def consume_token(self, token: int) -> None:
        assert token == self.tokens[self.place]
        self.place += 1

    def is_stopped(self) -> bool:
        return self.place == len(self.tokens)

    def compute_bitmask(self) -> bytes:
        row = np.zeros(16, np.uint8)
        if not self.is_stopped():
            row[self.tokens[self.place]] = 1
        return np.packbits(row, bitorder="little").tobytes()


def test_the_processor_masks_what_the_matcher_does_not_allow() -> None:
    processor, tokens = Processor(Listed([3, 5, 9]), [15]), [1, 2]
    for expected in (3, 5, 9, 15):
        scores = processor(mx.array(tokens), mx.zeros((1, 20)))
        assert np.flatnonzero(np.isfinite(np.array(scores)[0])).tolist() == [expected]
        tokens.append(expected)
