"""The way in: the API key, the body's size and time, how many outputs may be under way, and whether the server still takes any.

Each check raises the ``ApiError`` that the client gets: 401, 413, 408, 429 with Retry-After, 503. A body that is too large is read to its
end and dropped, up to ``MOST_DROPPED``, so that the client has sent it and sees the answer. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from stcc.runtime.server.errors import ApiError
from stcc.runtime.server.limits import Limits

MOST_DROPPED = 64 << 20
RETRY_SECONDS = 2


class Gate:
    """See the module's text.

    Attributes:
        rows: outputs under way, waiting ones included.
        draining: whether the server is stopping and takes no more.
    """

    def __init__(self, limits: Limits, api_key: str | None = None) -> None:
        """An open gate; without ``api_key`` everyone may pass."""
        self.limits, self._key = limits, api_key
        self.rows = 0
        self.draining = False
        self._enders: set[Callable[[ApiError], None]] = set()

    @property
    def requests(self) -> int:
        """Requests that are being answered."""
        return len(self._enders)

    def authorize(self, authorization: str | None) -> None:
        """Raise 401 unless the header holds the key."""
        if self._key is None:
            return
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), self._key.encode()):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key", hint="send Authorization: Bearer KEY")

    def admit(self) -> None:
        """Raise 503 while the server stops."""
        if self.draining:
            raise ApiError(503, "the server is stopping", code="stopping", retry_after=RETRY_SECONDS)

    async def body(self, length: str | None, chunks: AsyncIterator[bytes]) -> bytes:
        """The body, whose declared length is ``length``. Raises 413 or 408."""
        try:
            return await asyncio.wait_for(self._read(length, chunks), self.limits.body_seconds)
        except asyncio.TimeoutError:
            raise ApiError(408, f"the request did not arrive within {self.limits.body_seconds:g} seconds", code="slow_request") from None

    async def _read(self, length: str | None, chunks: AsyncIterator[bytes]) -> bytes:
        most = self.limits.body_bytes
        found, size = bytearray(), 0
        too_large = length is not None and length.isdigit() and int(length) > most
        async for chunk in chunks:
            size += len(chunk)
            too_large = too_large or size > most
            if too_large:
                found.clear()
                if size > MOST_DROPPED:
                    break
            else:
                found += chunk
        if too_large:
            raise ApiError(413, f"the request has more than {most:,} bytes", code="too_large", hint="shorten it, or raise --max-body")
        return bytes(found)

    @contextlib.contextmanager
    def slots(self, rows: int, ender: Callable[[ApiError], None]) -> Iterator[None]:
        """Room for ``rows`` outputs while the block runs; ``ender`` is called if they must end early. Raises 429 or 503."""
        self.admit()
        if self.rows + rows > self.limits.rows + self.limits.waiting:
            raise ApiError(429, f"{self.rows} outputs are under way or waiting", code="busy", retry_after=RETRY_SECONDS,
                           hint="try again later")
        self.rows += rows
        self._enders.add(ender)
        try:
            yield
        finally:
            self._enders.discard(ender)
            self.rows -= rows

    def expire(self) -> None:
        """End what is still under way: the time to finish is up."""
        for ender in list(self._enders):
            ender(ApiError(503, "the server stopped before the answer was complete", code="stopping", retry_after=RETRY_SECONDS))


def status_of(gate: Gate, engine: Any) -> dict[str, Any]:
    """What ``/health`` says."""
    state = "stopping" if gate.draining else "ok" if engine.alive else "failed"
    return {"status": state, "outputs": gate.rows, "running": engine.counts.running, **({"error": engine.error} if engine.error else {})}
