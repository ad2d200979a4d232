"""What clients send, as pydantic models that forbid unknown fields: what would change the output and is not supported is never ignored.

``parse`` turns a body into a model or an ``ApiError`` whose ``param`` is the place at fault. Fields that only describe the client
(``user``, ``metadata``, ``store``: false, ``service_tier``, ``safety_identifier``, ``prompt_cache_key``) are taken and have no effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stcc.runtime.decoding.sampling import MAX_SEED
from stcc.runtime.server.errors import ApiError

MOST_LOGPROBS = 20
MOST_STOPS = 16
Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A model without room for unknown fields."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), hide_input_in_errors=True)


class TextPart(Strict):
    """A piece of text; other kinds of content are refused."""

    type: Literal["text"]
    text: str


class CalledFunction(Strict):
    """Name and arguments of a call; ``arguments`` is JSON text."""

    name: str
    arguments: str


class ToolCall(Strict):
    """A call in an assistant turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    annotations: list[Any] | None = Field(None, max_length=0)
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _fits_its_role(self) -> Message:
        if self.content is None and not self.tool_calls:
            raise ValueError("a message has content, or is an assistant's with tool_calls")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only assistant messages have tool_calls")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a tool message needs tool_call_id")
        return self


class TextFormat(Strict):
    """Free text."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(Strict):
    """A named schema; ``strict`` also closes objects that say nothing of further names."""

    name: str = "answer"
    description: str | None = None
    schema_: dict[str, Any] | bool = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """JSON that satisfies a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class ArtifactFormat(Strict):
    """What an artifact of the server's folder admits, by the file's name without ``.stc``."""

    type: Literal["stc"]
    artifact: str


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat | ArtifactFormat, Field(discriminator="type")]


class StreamOptions(Strict):
    """What a stream ends with."""

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class Request(Strict):
    """What both kinds of completions share."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    xtc_probability: float | None = Field(None, ge=0, le=1)
    xtc_threshold: float | None = Field(None, ge=0, le=0.5)
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    logit_bias: dict[int, float] | None = None
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    stop: str | list[str] | None = None
    n: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    guided_regex: str | None = Field(None, description="A regular expression that the whole output matches (Python's syntax).")
    user: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: Literal[False] | None = None

    @model_validator(mode="after")
    def _fields_fit(self) -> Request:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MOST_STOPS or any(not stop for stop in stops):
            raise ValueError(f"stop takes up to {MOST_STOPS} strings, none of them empty")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        if self.guided_regex is not None and self.response_format is not None and self.response_format.type != "text":
            raise ValueError("guided_regex and response_format exclude each other")
        return self

    @property
    def stops(self) -> tuple[bytes, ...]:
        """The stop strings."""
        return tuple(stop.encode("utf-8", "surrogatepass") for stop in ([self.stop] if isinstance(self.stop, str) else self.stop or []))


class GuardOptions(Strict):
    """Which guards watch a reply with tools (``docs/server.md``)."""

    calls: int | None = Field(default=None, ge=1, description="Most calls of the reply; at most the server's own bound.")
    repeated_call: bool = Field(default=True, description="A call that the reply has made already ends it.")
    repeated_tail: bool = Field(default=True, description="A tail that stands there three times ends it.")
    previous_call: bool = Field(default=True, description="A first call that the previous turn made is taken back, and its tool left out.")


class ChatRequest(Request):
    """The body of ``/v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    tools: list[Any] | None = Field(None, description="OpenAI's tools; functions only.")
    tool_choice: str | dict[str, Any] | None = Field(None, description="auto, none, required, a named function, or allowed_tools.")
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="More variables of the chat template.")
    guards: bool | GuardOptions | None = Field(None, description="How a reply with tools is watched; the server's way by default.")
    modalities: list[Literal["text"]] | None = None

    @model_validator(mode="after")
    def _chat_fields_fit(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if self.max_tokens is not None and self.max_completion_tokens is not None and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ")
        if self.tool_choice is not None and self.tools is None:
            raise ValueError("tool_choice needs tools")
        if self.guards is not None and self.tools is None:
            raise ValueError("guards needs tools")
        if self.parallel_tool_calls is not None and self.tools is None:
            raise ValueError("parallel_tool_calls needs tools")
        reserved = {"messages", "tools", "add_generation_prompt", "tokenize", "continue_final_message", "return_dict", "conversation",
                    "return_tensors", "chat_template"}
        if wrong := sorted(reserved & set(self.chat_template_kwargs or {})):
            raise ValueError(f"chat_template_kwargs cannot set {wrong[0]}")
        return self

    @property
    def limit(self) -> int | None:
        """The token limit, by either name."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class CompletionRequest(Request):
    """The body of ``/v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _completion_fields_fit(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise ValueError("best_of other than n is not supported")
        return self

    @property
    def limit(self) -> int | None:
        """The token limit."""
        return self.max_tokens


def parse(model: type[Model], body: bytes) -> Model:
    """The request that ``body`` holds. ApiError 400 with the place and the reason if it holds none."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    except RecursionError:
        raise ApiError(400, "the body nests too deeply", code="invalid_json") from None
    place = ".".join(str(part) for part in first["loc"])
    kind, message = first["type"], first["msg"].removeprefix("Value error, ")
    if kind == "json_invalid":
        raise ApiError(400, message, code="invalid_json", hint="send one JSON object, as UTF-8")
    if kind == "extra_forbidden":
        raise ApiError(400, f"{place!r} is not supported", param=place, code="unknown_field",
                       hint="it would be ignored; leave it out. GET /openapi.json lists the fields")
    raise ApiError(400, f"{place}: {message}" if place else message, param=place or None, code="invalid_value")
