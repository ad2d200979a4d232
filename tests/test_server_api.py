"""The server's API over HTTP: every endpoint and field, judged by Python's own json and re, and by jsonschema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("starlette", reason="the server's packages are not installed")
pytest.importorskip("uvicorn", reason="the server's packages are not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from decoding_cases import NAMES, SOURCES, is_valid, vocabulary  # noqa: E402
from server_cases import ADD, HELLO, NOTE, RECORD, TEMPLATE, Live, live  # noqa: E402

from stcc.compiler import compile_regex  # noqa: E402
from stcc.compiler.frontends.tools import FORMATS  # noqa: E402
from stcc.runtime.server.limits import Limits  # noqa: E402

SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (ADD, NOTE)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("artifacts")
    compile_regex("[0-9]{4}-[0-9]{2}", vocabularies=[vocabulary()]).save(folder / "month.stc")
    compile_regex("(yes|no)").save(folder / "vote.stc")
    with live(Limits(max_tokens=120, grace_seconds=1), artifacts=folder) as found:
        yield found


def format_of(name: str) -> dict[str, Any]:
    source = SOURCES[name]
    if isinstance(source, str):
        return {"guided_regex": source}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": source}}}


def events(response: Any) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def check_calls(message: dict[str, Any]) -> None:
    for call in message["tool_calls"]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])


# ---- constraints


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_constrained_answers_are_valid(server: Live, name: str, temperature: float) -> None:
    response = server.chat(**format_of(name), temperature=temperature, n=3, seed=1)
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert all(is_valid(name, choice["message"]["content"].encode()) for choice in choices)


def test_every_limit_that_can_be_met_is_met(server: Live) -> None:
    """Theorem 21 over HTTP: a limit is refused or the answer is valid within it."""
    schema = {"type": "object", "properties": {"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}},
              "required": ["s", "l"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    met = []
    for limit in range(1, 24, 2):
        response = server.chat(response_format=wanted, max_tokens=limit, temperature=1, seed=limit)
        if response.status_code == 400:
            assert response.json()["error"]["code"] == "max_tokens_too_small" and not met, response.text
            continue
        answer = response.json()
        jsonschema.validate(json.loads(answer["choices"][0]["message"]["content"]), schema)
        assert answer["usage"]["completion_tokens"] <= limit
        met.append(limit)
    assert met


def test_both_names_of_the_limit(server: Live) -> None:
    assert server.answer(max_tokens=None, max_completion_tokens=5)["finish_reason"] == "length"
    assert server.refusal(max_tokens=4, max_completion_tokens=5)["code"] == "invalid_value"
    response = server.chat(max_tokens=None)
    assert response.json()["usage"]["completion_tokens"] <= 120


def test_json_object(server: Live) -> None:
    assert isinstance(json.loads(server.answer(response_format={"type": "json_object"})["message"]["content"]), dict)


def test_strict_closes_objects(server: Live) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    assert set(json.loads(server.answer(response_format=wanted)["message"]["content"])) == {"a"}


def test_artifacts(server: Live) -> None:
    for name, pattern in (("month", r"\d{4}-\d\d"), ("vote", "yes|no")):
        assert re.fullmatch(pattern, server.answer(response_format={"type": "stc", "artifact": name})["message"]["content"])
    error = server.refusal(response_format={"type": "stc", "artifact": "other"})
    assert error["code"] == "unknown_artifact" and "month" in error["hint"]


def test_items_that_must_differ(server: Live) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4}
    response = server.chat(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, temperature=1.5, n=4, seed=2,
                           max_tokens=30)
    if response.status_code == 400:  # a vocabulary with which a limit cannot be kept is refused with the reason
        assert "uniqueItems" in response.json()["error"]["message"]
        response = server.chat(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, temperature=1.5, n=4, seed=2,
                               max_tokens=None)
    for choice in response.json()["choices"]:
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), schema)


# ---- tools


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "note"}}, "auto", "none"])
@pytest.mark.parametrize("temperature", [0, 1.3])
def test_tools(server: Live, choice: Any, temperature: float) -> None:
    found = server.answer(tools=[ADD, NOTE], tool_choice=choice, temperature=temperature, seed=3, max_tokens=100)
    calls = found["message"].get("tool_calls", [])
    assert (found["finish_reason"] == "tool_calls") == bool(calls)
    if choice in ("required",) or isinstance(choice, dict):
        assert calls and found["message"]["content"] is None
    if isinstance(choice, dict):
        assert [call["function"]["name"] for call in calls] == ["note"]
    if choice == "none":
        assert not calls
    check_calls({"tool_calls": calls})
    assert len({call["id"] for call in calls}) == len(calls)


def test_parallel_calls_can_be_turned_off(server: Live) -> None:
    for seed in range(4):
        calls = server.answer(tools=[ADD, NOTE], tool_choice="required", parallel_tool_calls=False, temperature=1.5, seed=seed,
                              max_tokens=120)["message"]["tool_calls"]
        assert len(calls) == 1


def test_tools_and_an_answer_are_one_or_the_other(server: Live) -> None:
    seen = set()
    for seed in range(8):
        found = server.answer(tools=[ADD], response_format=RECORD, temperature=3, seed=seed, max_tokens=100)
        calls = found["message"].get("tool_calls")
        seen.add(bool(calls))
        if calls:
            check_calls(found["message"])
        else:
            jsonschema.validate(json.loads(found["message"]["content"]), SOURCES["record"])
    assert server.answer(tools=[ADD], response_format=RECORD, tool_choice="required", max_tokens=100)["message"]["tool_calls"]
    only = server.answer(tools=[ADD], response_format=RECORD, tool_choice="none", max_tokens=100)
    jsonschema.validate(json.loads(only["message"]["content"]), SOURCES["record"])


def test_a_tool_turn_comes_back_from_the_cache_verbatim(server: Live) -> None:
    first = server.chat(tools=[ADD, NOTE], tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    message, usage = first.json()["choices"][0]["message"], first.json()["usage"]
    call = message["tool_calls"][0]
    turns = [*HELLO, message, {"role": "tool", "tool_call_id": call["id"], "content": "42"}]
    again = server.chat(messages=turns, tools=[ADD, NOTE], max_tokens=60).json()["usage"]
    read = usage["prompt_tokens"] + usage["completion_tokens"]
    assert again["prompt_tokens_details"]["cached_tokens"] >= read - 2  # the last token was not read
    changed = [*HELLO, {**message, "tool_calls": [{**call, "id": "call_other"}]}, turns[-1]]
    assert server.chat(messages=changed, tools=[ADD, NOTE], max_tokens=60).status_code == 200


@pytest.fixture
def family(server: Live) -> Iterator[Any]:
    """Makes the server's model one of another family."""
    from stcc.runtime.server.serving import Setup, family_of

    before = server.service.family

    def change(name: str, template: str = "") -> None:
        server.service.family = family_of(template, Setup("x", tool_format=name))

    yield change
    server.service.family = before


def fixed(name: str) -> dict[str, Any]:
    """A tool that can be called in one way only."""
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]}}}


def after_a_call(name: str, *more: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"a":"x"}'}}
    return [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "done"}, *more]


@pytest.mark.parametrize("name", ["hermes", "harmony", "llama3", "qwen3_coder"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_repeats_the_previous_call_is_steered(server: Live, family: Any, name: str, stream: bool) -> None:
    family(name)

    def called(messages: Any, seed: int, **fields: Any) -> list[str]:
        asked = {"messages": messages, "seed": seed, "temperature": 1.5, "max_tokens": 120, "parallel_tool_calls": False, **fields}
        if not stream:
            return [call["function"]["name"] for call in server.answer(**asked)["message"].get("tool_calls") or []]
        return [call["function"]["name"] for chunk in events(server.chat(stream=True, **asked)) for choice in chunk["choices"]
                for call in choice["delta"].get("tool_calls") or []]

    towards = {str(token): 50 for token in range(vocabulary().size) if vocabulary().token(token)[:1] == b"o"}
    both: dict[str, Any] = {"tools": [fixed("one"), fixed("two")], "tool_choice": "required", "logit_bias": towards}
    steered = server.service.metrics.steered._value
    before = steered.get()
    assert called(after_a_call("one"), 1, **both) == ["two"] and steered.get() == before + 1
    assert called(after_a_call("two"), 1, **both) == ["one"]
    assert called(after_a_call("one", {"role": "user", "content": "again"}), 1, **both) == ["one"]
    for guards in (False, {"previous_call": False}):
        assert called(after_a_call("one"), 1, **both, guards=guards) == ["one"]
    only = {"tools": [fixed("one")], "tool_choice": "required"}
    assert called(after_a_call("one"), 1, **only) == ["one"], "there is nothing else to do"
    assert steered.get() == before + 1
    answered = server.answer(messages=after_a_call("one"), tools=[fixed("one")], guided_regex="[a-z]{3}", logit_bias={
        str(token): 50 for token in range(vocabulary().size) if vocabulary().token(token)[:1] in b"<{" and vocabulary().token(token)},
        temperature=0, max_tokens=100)["message"]
    assert not answered.get("tool_calls") and re.fullmatch("[a-z]{3}", answered["content"])


def test_guards_of_a_request(server: Live) -> None:
    tools = {"tools": [ADD], "tool_choice": "required", "temperature": 1.5, "max_tokens": 400, "seed": 3}
    assert len(server.answer(**tools, guards={"calls": 1})["message"]["tool_calls"]) == 1
    assert server.refusal(**tools, guards={"calls": 0})["param"].startswith("guards")
    assert server.refusal(**tools, guards={"unknown": True})["param"].startswith("guards")
    assert server.refusal(guards=True)["param"] is None


@pytest.mark.parametrize("name", ["hermes", "llama3", "harmony", "qwen3_coder"])
def test_patterns_and_artifacts_beside_tools(server: Live, family: Any, name: str) -> None:
    """A reply is calls or the answer, whichever the model begins; both occur."""
    family(name)
    answers: tuple[tuple[dict[str, Any], str], ...] = (
        ({"guided_regex": "[a-z]{3,9}"}, "[a-z]{3,9}"), ({"response_format": {"type": "stc", "artifact": "month"}}, r"\d{4}-\d\d"))
    seen = set()
    for fields, pattern in answers:
        for choice in ("auto", "none", "required"):
            response = server.chat(tools=[ADD], tool_choice=choice, **fields, temperature=1.5, n=4, seed=1, max_tokens=200)
            for found in response.json()["choices"]:
                calls = found["message"].get("tool_calls")
                check_calls({"tool_calls": calls or []})
                assert bool(calls) == (found["finish_reason"] == "tool_calls") and (choice != "none" or not calls)
                assert calls or choice != "required"
                assert calls or re.fullmatch(pattern, found["message"]["content"])
                seen.add("calls" if calls else "answer")
    assert seen == {"calls", "answer"}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_family_of_tool_calls(server: Live, family: Any, name: str) -> None:
    family(name)
    found = server.answer(tools=[ADD, NOTE], tool_choice="required", temperature=1.2, seed=1, max_tokens=200)
    assert found["finish_reason"] == "tool_calls" and found["message"]["content"] is None
    check_calls(found["message"])
    message = server.answer(tools=[ADD], response_format=RECORD, temperature=1.2, seed=1, max_tokens=200)["message"]
    if message.get("tool_calls"):
        check_calls(message)
    else:
        jsonschema.validate(json.loads(message["content"]), SOURCES["record"])
    alone = server.answer(response_format=RECORD, temperature=1.2, seed=1, max_tokens=200)
    jsonschema.validate(json.loads(alone["message"]["content"]), SOURCES["record"])


def test_models_that_reason(server: Live, family: Any) -> None:
    """The prompt opens a section: the answer comes behind it, and is valid; without room for both it is refused."""
    family("qwen3", "<think>")
    opened = [*HELLO, {"role": "assistant", "content": "x"}, {"role": "user", "content": "<think>"}]
    for messages in (HELLO, opened):
        for fields in ({"response_format": RECORD}, {"tools": [ADD], "tool_choice": "required"}):
            found = server.answer(messages=messages, temperature=1.0, seed=2, max_tokens=90, **fields)
            if "tools" in fields:
                check_calls(found["message"])
            else:
                jsonschema.validate(json.loads(found["message"]["content"]), SOURCES["record"])
    with live(template=TEMPLATE.replace("assistant\n", "assistant\n<think>\n"), tool_format="qwen3") as thinking:
        found = thinking.answer(response_format=RECORD, max_tokens=90)
        jsonschema.validate(json.loads(found["message"]["content"]), SOURCES["record"])
        assert found["message"]["reasoning_content"]
        found = thinking.answer(guided_regex="[a-z]{3,9}", max_tokens=90)["message"]
        assert re.fullmatch("[a-z]{3,9}", found["content"]) and found["reasoning_content"]
        assert "reasoning_content" in thinking.answer(max_tokens=10)["message"]


@pytest.mark.parametrize(("fields", "param"), [
    ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
    ({"tools": [ADD, ADD]}, "tools/1"),
    ({"tools": [{"type": "web_search"}]}, "tools/0"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "a": {"type": "string", "pattern": "(?<x>a)\\k<x>"}}}}}]}, "tools/0/function/parameters/properties/a"),
    ({"tools": [ADD], "guided_regex": "(a"}, "guided_regex"),
    ({"tools": [ADD], "guided_regex": "<tool_call>\n.*"}, "guided_regex"),
    ({"tools": [ADD], "response_format": {"type": "stc", "artifact": "other"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"properties": {"a": {"minimum": "x"}}}}}},
     "response_format.json_schema.schema/properties/a"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": False}}}, "response_format.json_schema.schema"),
    ({"guided_regex": "(a"}, "guided_regex"),
    ({"response_format": {"type": "xml"}}, "response_format"), ({"response_format": RECORD, "guided_regex": "a"}, None),
    ({"tool_choice": "auto"}, None), ({"functions": []}, "functions"), ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"), ({"n": 99}, "n"), ({"temperature": -1}, "temperature"), ({"stop": [""]}, None),
    ({"top_logprobs": 2}, None), ({"messages": []}, "messages"), ({"store": True}, "store"), ({"stream_options": {}}, None),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages.0"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"), ({"messages": [{"role": "assistant"}]}, "messages.0"),
    ({"chat_template_kwargs": {"tools": []}}, None),
])
def test_what_cannot_be_done_is_refused_with_its_place(server: Live, fields: dict[str, Any], param: str | None) -> None:
    error = server.refusal(**fields)
    assert error["message"] and error["type"] == "invalid_request_error"
    assert error["param"] is None if param is None else error["param"].startswith(param), error


def test_refusals_come_from_the_stream_too(server: Live) -> None:
    assert server.refusal(stream=True, response_format={"type": "json_schema", "json_schema": {"schema": False}})["code"] == "unenforceable"


# ---- text


def test_the_same_seed_draws_the_same(server: Live) -> None:
    one, other, third = (server.answer(temperature=1.2, seed=seed, max_tokens=20, top_p=0.95)["message"]["content"] for seed in (7, 7, 8))
    assert one == other != third


def test_sampling_fields_reach_mlx_lm(server: Live) -> None:
    greedy = server.answer(max_tokens=12)["message"]["content"]
    assert server.answer(max_tokens=12, temperature=2, top_k=1, seed=5)["message"]["content"] == greedy
    assert server.answer(max_tokens=12, temperature=2, min_p=1, seed=5)["message"]["content"] == greedy
    token = 70
    assert server.answer(max_tokens=4, logit_bias={str(token): 1000})["message"]["content"] == vocabulary().token(token).decode() * 4
    penalized = server.answer(max_tokens=12, frequency_penalty=2, presence_penalty=2, repetition_penalty=1.5)["message"]["content"]
    assert penalized != greedy
    text = server.answer(max_tokens=30, response_format=RECORD, repetition_penalty=1.5, logit_bias={"70": -50})["message"]["content"]
    assert is_valid("record", text.encode())


def test_stop_strings(server: Live) -> None:
    plain = server.answer(guided_regex="[a-z ]{20,25}")["message"]["content"]
    stop = plain[4:7]
    found = server.answer(guided_regex="[a-z ]{20,25}", stop=[stop, "never"])
    assert found["message"]["content"] == plain[:plain.find(stop)] and found["finish_reason"] == "stop"


def test_logprobs(server: Live) -> None:
    found = server.answer(guided_regex="(red|green) [a-c]{3}", logprobs=True, top_logprobs=3)
    content = found["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == found["message"]["content"]
    for entry in content:
        scores = [top["logprob"] for top in entry["top_logprobs"]]
        assert scores == sorted(scores, reverse=True) and len(scores) <= 3
        assert entry["logprob"] <= 0
        if scores:  # greedy: the token is the likeliest
            assert entry["logprob"] == pytest.approx(scores[0], abs=1e-4)


def test_usage_counts_forced_tokens(server: Live) -> None:
    usage = server.chat(guided_regex="the quick brown fox [ab]").json()["usage"]
    details = usage["completion_tokens_details"]
    assert 0 < details["forced_tokens"] < usage["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    forced = server.chat(guided_regex="hello world").json()
    assert forced["choices"][0]["message"]["content"] == "hello world"
    assert forced["usage"]["completion_tokens_details"]["forced_tokens"] == forced["usage"]["completion_tokens"]


def test_a_prompt_that_is_too_long(server: Live) -> None:
    error = server.refusal(messages=[{"role": "user", "content": "x y " * 2000}])
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"


# ---- streams


@pytest.mark.parametrize("fields", [
    {"max_tokens": 12}, {"response_format": RECORD}, {"tools": [ADD, NOTE], "tool_choice": "required", "max_tokens": 100},
    {"guided_regex": "[a-z ]{20,25}", "stop": "e"}, {"max_tokens": 10, "n": 2, "temperature": 1, "seed": 4},
    {"guided_regex": "[a-c]{4}", "logprobs": True, "top_logprobs": 2},
])
def test_a_stream_says_the_same(server: Live, fields: dict[str, Any]) -> None:
    whole = server.chat(**fields).json()
    chunks = events(server.chat(**fields, stream=True, stream_options={"include_usage": True}))
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]} and chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[-1]["choices"] == []
    for key in ("prompt_tokens", "completion_tokens", "completion_tokens_details"):
        assert chunks[-1]["usage"][key] == whole["usage"][key]
    for choice in whole["choices"]:
        mine = [each for chunk in chunks for each in chunk["choices"] if each["index"] == choice["index"]]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [each["finish_reason"] for each in mine if each["finish_reason"]] == [choice["finish_reason"]] == [mine[-1]["finish_reason"]]
        assert "".join(each["delta"].get("content", "") for each in mine) == (choice["message"]["content"] or "")
        calls = [call for each in mine for call in each["delta"].get("tool_calls", [])]
        assert [call["function"] for call in calls] == [call["function"] for call in choice["message"].get("tool_calls", [])]
        assert [call["index"] for call in calls] == list(range(len(calls)))
        if choice["logprobs"]:
            tokens = [entry for each in mine if each["logprobs"] for entry in each["logprobs"]["content"]]
            assert [entry["token"] for entry in tokens] == [entry["token"] for entry in choice["logprobs"]["content"]]


# ---- the other endpoints


def test_text_completions(server: Live) -> None:
    response = server.post("/v1/completions", prompt=["hello", "world"], max_tokens=8, temperature=0, n=2, logprobs=2,
                           guided_regex="[a-d]{6}")
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    for choice in choices:
        assert re.fullmatch("[a-d]{6}", choice["text"]) and "".join(choice["logprobs"]["tokens"]) == choice["text"]
    chunks = events(server.post("/v1/completions", prompt="hello", max_tokens=8, temperature=0, guided_regex="[a-d]{6}", stream=True))
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == choices[0]["text"]
    assert server.post("/v1/completions", prompt=[[5, 6, 7], [8]], max_tokens=2).json()["usage"]["prompt_tokens"] == 4
    assert server.post("/v1/completions", prompt=[10 ** 6]).json()["error"]["param"] == "prompt"
    assert server.post("/v1/completions", prompt="").status_code == 400
    assert server.post("/v1/completions", prompt="a", suffix="b").status_code == 400


def test_models_and_health(server: Live) -> None:
    listed = server.client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["tiny/llama"] and listed["artifacts"] == ["month", "vote"]
    assert server.client.get("/v1/models/tiny/llama").json()["id"] == "tiny/llama"
    assert server.client.get("/v1/models/other").status_code == 404
    assert server.client.get("/health").json()["status"] == "ok"
    assert server.answer(model="llama", max_tokens=1) and server.refusal(404, model="gpt")["code"] == "model_not_found"
    assert server.client.get("/v1/none").json()["error"]["code"] == "unknown_path"
    assert server.client.get("/v1/chat/completions").status_code == 405


def test_metrics_count(server: Live) -> None:
    def read(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", server.client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    requests, forced = 'stcc_requests_total{endpoint="chat",status="200"}', 'stcc_tokens_total{kind="forced"}'
    before = read(requests), read(forced), read('stcc_requests_total{endpoint="chat",status="400"}')
    usage = server.chat(guided_regex="the quick [ab]").json()["usage"]
    server.chat(nothing=1)
    assert read(requests) == before[0] + 1
    assert read(forced) == before[1] + usage["completion_tokens_details"]["forced_tokens"]
    assert read('stcc_requests_total{endpoint="chat",status="400"}') == before[2] + 1
    assert read("stcc_outputs") == 0 and read("stcc_engine_failures") == 0


def test_the_openapi_document_describes_the_requests(server: Live) -> None:
    document = server.client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    request = {"$ref": "#/components/schemas/ChatRequest", "components": {"schemas": schemas}}
    validator = jsonschema.Draft202012Validator(request)
    good = {"messages": HELLO, "tools": [ADD], "response_format": RECORD, "temperature": 0, "stop": ["a"]}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "unknown": 1}) and not validator.is_valid({"messages": []})
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert used <= set(schemas)
    answer = {"$ref": "#/components/schemas/ChatCompletion", "components": {"schemas": schemas}}
    for fields in ({"max_tokens": 3}, {"tools": [ADD], "tool_choice": "required", "max_tokens": 100}):
        jsonschema.validate(server.chat(**fields).json(), answer)
    jsonschema.validate(server.chat(unknown=1).json(), {"$ref": "#/components/schemas/Error", "components": {"schemas": schemas}})


def test_the_openai_client(server: Live) -> None:
    openai = pytest.importorskip("openai", reason="the openai client is not installed")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(model="llama", messages=HELLO, response_format=RECORD, temperature=0)
    assert is_valid("record", answer.choices[0].message.content.encode())
    calls = client.chat.completions.create(model="llama", messages=HELLO, tools=[ADD], tool_choice="required", temperature=0,
                                           max_tokens=100)
    follow = [*HELLO, calls.choices[0].message, *({"role": "tool", "tool_call_id": call.id, "content": "1"}
                                                  for call in calls.choices[0].message.tool_calls)]
    assert client.chat.completions.create(model="llama", messages=follow, tools=[ADD], max_tokens=50).choices
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="llama", messages=HELLO, response_format=RECORD, max_tokens=2)
    assert caught.value.code == "max_tokens_too_small"
    stream = client.chat.completions.create(model="llama", messages=HELLO, response_format=RECORD, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == answer.choices[0].message.content


def test_the_api_key() -> None:
    with live(api_key="secret") as server:
        assert server.refusal(401)["code"] == "invalid_api_key"
        assert server.client.get("/v1/models").status_code == 401 and server.client.get("/health").status_code == 200
        server.client.headers["Authorization"] = "Bearer wrong"
        assert server.refusal(401)["code"] == "invalid_api_key"
        server.client.headers["Authorization"] = "Bearer secret"
        assert server.answer(max_tokens=1)


def test_a_folder_that_cannot_be_served(tmp_path: Path) -> None:
    from stcc.runtime.server.errors import ServeError

    with pytest.raises(ServeError, match=r"holds no \.stc"), live(artifacts=tmp_path):
        pass
    (tmp_path / "broken.stc").write_bytes(b"no")
    with pytest.raises(ServeError, match="broken.stc"), live(artifacts=tmp_path):
        pass
