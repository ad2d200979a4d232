"""The OpenAPI 3.1 document of the server, made from the request models, so that it cannot say anything else than what is checked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic.json_schema import models_json_schema

from stcc.runtime.server.requests import ChatRequest, CompletionRequest

_REF = "#/components/schemas/{model}"
_STRING, _INTEGER, _NULLABLE = {"type": "string"}, {"type": "integer"}, {"type": ["string", "null"]}
_STATUSES = {
    "400": "The request cannot be done as asked; `param` names the field or a JSON pointer into it, `hint` what to do.",
    "401": "The API key is missing or wrong.", "404": "No such model.", "408": "The request did not arrive in time.",
    "413": "The request is too large.", "429": "Too many outputs are under way; see Retry-After.",
    "500": "The model failed.", "503": "The server is stopping.", "504": "The answer was not complete in time.",
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_USAGE = _object(
    prompt_tokens=_INTEGER, completion_tokens=_INTEGER, total_tokens=_INTEGER, prompt_tokens_details=_object(cached_tokens=_INTEGER),
    completion_tokens_details=_object(
        forced_tokens={**_INTEGER, "description": "Tokens that nothing else was allowed for; they cost no choice of the model."},
        narrowed={**_INTEGER, "description": "Choices from which the token limit took tokens, so that a valid ending stays in reach."}))
_CALL = _object(id=_STRING, type={"const": "function"}, function=_object(name=_STRING, arguments=_STRING))
_MESSAGE = {"type": "object", "required": ["role", "content"],
            "properties": {"role": {"const": "assistant"}, "content": _NULLABLE, "reasoning_content": _STRING, "tool_calls": _list(_CALL),
                           "refusal": {"type": "null"}}}
_FINISH = {"enum": ["stop", "length", "tool_calls"]}
_COMMON = {"id": _STRING, "created": _INTEGER, "model": _STRING, "system_fingerprint": _STRING, "usage": _USAGE}
_RESPONSES: dict[str, Any] = {
    "ChatCompletion": _object(**_COMMON, object={"const": "chat.completion"}, choices=_list(
        _object(index=_INTEGER, message=_MESSAGE, finish_reason=_FINISH, logprobs={"type": ["object", "null"]}))),
    "Completion": _object(**_COMMON, object={"const": "text_completion"}, choices=_list(
        _object(index=_INTEGER, text=_STRING, finish_reason=_FINISH, logprobs={"type": ["object", "null"]}))),
    "Model": _object(id=_STRING, object={"const": "model"}, created=_INTEGER, owned_by=_STRING,
                     max_model_len={"type": ["integer", "null"]}, tool_format=_STRING),
    "Error": _object(error={"type": "object", "required": ["message", "type", "param", "code"],
                            "properties": {"message": _STRING, "type": _STRING, "param": _NULLABLE, "code": _NULLABLE, "hint": _STRING}}),
}


@lru_cache(1)
def document(model: str) -> dict[str, Any]:
    """The document of a server of ``model``."""
    _, definitions = models_json_schema([(ChatRequest, "validation"), (CompletionRequest, "validation")], ref_template=_REF)
    models = {"200": _json("The models.", {"type": "object", "properties": {
        "data": _list(_ref("Model")), "artifacts": {**_list(_STRING), "description": 'Names for {"type": "stc"}.'}}})}
    return {
        "openapi": "3.1.0",
        "info": {"title": "stcc serve", "version": "1", "description":
                 f"OpenAI-compatible completions of {model}, under grammars. Every constraint holds or is refused with a 400; unknown "
                 "fields are refused, never ignored. Streams are server-sent events of chunks, ended by `[DONE]`."},
        "paths": {
            "/v1/chat/completions": {"post": _post("Complete a conversation.", "ChatRequest", "ChatCompletion")},
            "/v1/completions": {"post": _post("Complete a text.", "CompletionRequest", "Completion")},
            "/v1/models": {"get": {"summary": "The model, and the artifacts that were loaded.", "responses": models}},
            "/v1/models/{name}": {"get": {
                "summary": "One model.", "parameters": [{"name": "name", "in": "path", "required": True, "schema": _STRING}],
                "responses": {"200": _json("The model.", _ref("Model")), "404": _json(_STATUSES["404"], _ref("Error"))}}},
            "/health": {"get": {"summary": "Whether the server answers.", "security": [], "responses": {
                "200": {"description": "It does."}, "503": {"description": "It is stopping, or the engine has failed."}}}},
            "/metrics": {"get": {"summary": "Counters in Prometheus' text format.", "security": [],
                                 "responses": {"200": {"description": "The counters.", "content": {"text/plain": {}}}}}},
            "/openapi.json": {"get": {"summary": "This document.", "security": [], "responses": {"200": {"description": "It."}}}},
        },
        "components": {"schemas": {**definitions.get("$defs", {}), **_RESPONSES},
                       "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _post(summary: str, request: str, response: str) -> dict[str, Any]:
    answered = _json("The completion; with `stream: true`, events.", _ref(response))
    answered["content"]["text/event-stream"] = {"schema": _STRING}
    return {"summary": summary, "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(request)}}},
            "responses": {"200": answered, **{status: _json(text, _ref("Error")) for status, text in _STATUSES.items()}}}
