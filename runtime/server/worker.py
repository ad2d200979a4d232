"""The process that compiles: sources that strangers send are compiled where they can be stopped, and cannot take the server with them.

In, on standard input: messages of a length (4 bytes, little-endian) and that much msgpack, ``{"spec": JSON text, "limits": {..}}``. Out, on
standard output, in the same form: ``{"artifact": bytes}`` or ``{"error": {..}}``. One at a time. What the compiler's own limits do not
stop is stopped from outside: the server kills the process when its time is up, and the process's memory is bounded (where the platform
can).

``python -m stcc.runtime.server.worker VOCABULARY.stv BYTES`` runs one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import msgpack

START_SECONDS = 60.0
"""In which a fresh process has to be ready."""
LENGTH = struct.Struct("<I")
GRACE_SECONDS = 2.0
"""Beyond the compiler's own time limit, before the process is killed."""


class WorkerKilled(Exception):  # noqa: N818 - named for what happened
    """The process was stopped: its time was up, or its memory.

    Attributes:
        late: whether its time was up, as it would be again.
    """

    def __init__(self, message: str, late: bool = False) -> None:
        self.late = late
        super().__init__(message)


class CompileWorker:
    """One compiling process, started when needed and again after it was killed. Belongs to one event loop."""

    def __init__(self, vocabulary: Path, memory: int, seconds: float, states: int) -> None:
        """Nothing is started yet.

        Args:
            vocabulary: a ``.stv`` that artifacts are bound to.
            memory: most bytes of the process.
            seconds: of one compile.
            states: most states of one grammar.
        """
        self._arguments = (str(vocabulary), str(memory))
        self._seconds, self._limits = seconds, {"time_limit": seconds, "max_states": states}
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.kills = 0

    async def start(self) -> None:
        """Start the process, so that the first request need not wait for it."""
        async with self._turn:
            await self._ready()

    async def compile(self, spec: dict[str, Any]) -> dict[str, Any]:
        """What the process answers: ``artifact`` or ``error``. WorkerKilled if it had to be stopped, or stopped by itself."""
        message = msgpack.packb({"spec": json.dumps(spec), "limits": self._limits})
        async with self._turn:
            try:
                process = await self._ready()
            except (asyncio.TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                await self.close()
                raise WorkerKilled("the process that compiles does not start") from error
            try:
                return await asyncio.wait_for(self._exchange(process, message), self._seconds + GRACE_SECONDS)
            except (asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError, BrokenPipeError) as error:
                self.kills += 1
                await self.close()
                late = isinstance(error, asyncio.TimeoutError)
                raise WorkerKilled(f"it took more than {self._seconds:g} seconds" if late else "it took more memory than there is",
                                   late) from error
            except asyncio.CancelledError:
                await self.close()
                raise

    async def close(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ready(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "stcc.runtime.server.worker", *self._arguments, stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, start_new_session=True)
            await asyncio.wait_for(self._answer(self._process), START_SECONDS)
        return self._process

    async def _exchange(self, process: asyncio.subprocess.Process, message: bytes) -> dict[str, Any]:
        assert process.stdin is not None
        process.stdin.write(LENGTH.pack(len(message)) + message)
        await process.stdin.drain()
        return await self._answer(process)

    @staticmethod
    async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
        found: dict[str, Any] = msgpack.unpackb(await process.stdout.readexactly(length))
        return found


# ---- the process itself


def answer(spec: dict[str, Any], vocabulary: Any, limits: dict[str, Any]) -> dict[str, Any]:
    """Compile one spec."""
    from stcc.runtime.seam import compile_request

    try:
        return {"artifact": compile_request(spec, vocabulary, limits).to_bytes()}
    except MemoryError:
        return {"error": {"error": "BudgetError", "pointer": "", "keyword": "", "message": "compiling needs more memory than there is",
                          "hint": "simplify the source"}}
    except ValueError as error:
        if not hasattr(error, "to_dict"):
            raise
        return {"error": error.to_dict()}


def main(path: str, memory: int) -> None:
    """Answer messages until standard input ends."""
    from stcc.formats import Vocabulary
    from stcc.runtime import seam

    bound_memory(memory)
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not end up between messages
    vocabulary = Vocabulary.load(path)
    seam.compile_request({"kind": "json_schema", "source": {"type": "object"}}, vocabulary, {})  # imports everything, and binds once
    _send(target, {"ready": True})
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        message = msgpack.unpackb(source.read(LENGTH.unpack(head)[0]))
        _send(target, answer(json.loads(message["spec"]), vocabulary, message["limits"]))


def _send(target: Any, message: dict[str, Any]) -> None:
    data = msgpack.packb(message)
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()


def bound_memory(memory: int) -> None:
    """Let this process take no more than ``memory`` bytes of address space, where the platform can see to that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
