"""What the server answers in place of a completion: one error type with an HTTP status, in the form of OpenAI's API.

>>> error = ApiError(400, "no tool is called 'x'", param="tool_choice", code="unknown_tool", hint="there are f, g")
>>> error.body()["error"]["param"], error.status
('tool_choice', 400)
"""

from __future__ import annotations

from typing import Any

from stcc.runtime.errors import ConstraintError

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 405: "invalid_request_error",
          408: "timeout_error", 413: "invalid_request_error", 429: "rate_limit_error", 503: "unavailable_error", 504: "timeout_error"}


class ServeError(ConstraintError):
    """The server cannot start as asked."""


class ApiError(Exception):
    """A request that is not answered with a completion.

    Attributes:
        status: HTTP status.
        message: what is wrong, one sentence.
        param: the request's field, or a JSON pointer into it; None if none is at fault.
        code: a word for programs.
        hint: what to do next; empty where the message says it all.
        retry_after: seconds after which the same request may fare better; None if it would not.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None, hint: str = "",
                 retry_after: int | None = None) -> None:
        self.status, self.message, self.param, self.code, self.hint, self.retry_after = status, message, param, code, hint, retry_after
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """The JSON body, as OpenAI's clients read it; the hint is also part of the message."""
        message = f"{self.message} ({self.hint})" if self.hint else self.message
        fields = {"message": message, "type": _TYPES.get(self.status, "server_error"), "param": self.param, "code": self.code}
        return {"error": {**fields, **({"hint": self.hint} if self.hint else {})}}

    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        found = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**found, "WWW-Authenticate": "Bearer"} if self.status == 401 else found
