"""The grammars of a server: artifacts loaded from a folder, and what requests bring, compiled once.

In: an artifact's name, or a *spec* (what ``seam.compile_request`` takes). Out: a ``Held`` grammar under a key that is the digest of its
content. Equal specs compile once, also when they arrive together; past a number of grammars, or of bytes of their mask rows, the one used
longest ago goes first. A spec that cannot be compiled
is an ``ApiError`` 400 with the pointer, the keyword and the hint, and is remembered too, so that it costs its compile once.

Compiling runs in a process of its own (``worker``), loading in a thread; the event loop waits for neither.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcc.formats import FormatError
from stcc.runtime.load import load
from stcc.runtime.server.errors import ApiError, ServeError
from stcc.runtime.server.worker import CompileWorker, WorkerKilled

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.grammar import Grammar

_SIZE_HINT = ("split it, shorten what is counted (maxLength, maxItems), or compile it ahead of time and put the .stc into the artifacts "
              "folder")


@dataclass(frozen=True, eq=False)
class Held:
    """A grammar, its key, and the fewest tokens of an output."""

    key: str
    grammar: Grammar
    need: int


@dataclass
class GrammarCounts:
    """Requests for grammars since the start: found, compiled, refused."""

    found: int = 0
    compiled: int = 0
    refused: int = 0


class GrammarStore:
    """See the module's text. Belongs to one event loop."""

    def __init__(self, vocabulary: Vocabulary, workers: list[CompileWorker], most: int, most_bytes: int = 1 << 30) -> None:
        """No grammars yet; of those that requests bring ``most`` are kept, and as many as have rows of ``most_bytes`` together."""
        self.vocabulary, self._most, self._most_bytes = vocabulary, most, most_bytes
        self.workers = workers
        self.artifacts: dict[str, Held] = {}
        self._files: dict[str, bytes] = {}
        self.counts = GrammarCounts()
        self._held: OrderedDict[str, asyncio.Task[Held]] = OrderedDict()
        self._turn = 0

    def load_folder(self, folder: Path) -> None:
        """Load every ``.stc`` of ``folder``; its name without the suffix is the artifact's.

        Raises:
            ServeError: the folder has none, or one is broken, bound to another vocabulary only, or needs what cannot be decoded.
        """
        paths = sorted(folder.glob("*.stc"))
        if not paths:
            raise ServeError(f"{folder} holds no .stc file", "compile one: stcc compile SOURCE -o NAME.stc --vocab MODEL.stv")
        for path in paths:
            try:
                grammar, data = load(path, vocabulary=self.vocabulary), path.read_bytes()
                self.artifacts[path.stem], self._files[path.stem] = _held(_digest(data), grammar), data
            except (ValueError, FormatError) as error:
                raise ServeError(f"{path.name} cannot be served: {error}", "bind it to this model's vocabulary: stcc bind") from error

    def artifact(self, name: str) -> Held:
        """A preloaded artifact. ApiError 400 if there is none of that name."""
        held = self.artifacts.get(name)
        if held is None:
            known = ", ".join(list(self.artifacts)[:20]) or "none"
            raise ApiError(400, f"there is no artifact {name!r}", param="response_format.artifact", code="unknown_artifact",
                           hint=f"there are: {known}")
        self.counts.found += 1
        return held

    def file(self, name: str) -> bytes:
        """The file of a preloaded artifact. ApiError 400 if there is none of that name."""
        self.artifact(name)
        return self._files[name]

    async def get(self, spec: Mapping[str, Any], place: str) -> Held:
        """The grammar of ``spec``. ApiError 400, saying where below the request's field ``place``, if it cannot be compiled."""
        key = _digest(json.dumps(spec, ensure_ascii=True).encode())
        task = self._held.get(key)
        if task is None:
            task = self._held[key] = asyncio.ensure_future(self._compile(key, dict(spec), place))
            task.add_done_callback(_retrieved)
        else:
            self.counts.found += 1
        self._held.move_to_end(key)
        self._make_room()
        return await asyncio.shield(task)

    def _make_room(self) -> None:
        """Let go of the grammars used longest ago; the newest stays. Rows of outputs under way hold theirs until they end."""
        sizes = {key: _row_bytes(task) for key, task in self._held.items()}
        total = sum(sizes.values())
        while len(self._held) > 1 and (len(self._held) > self._most or total > self._most_bytes):
            key, _ = self._held.popitem(last=False)
            total -= sizes[key]

    async def close(self) -> None:
        """Stop the processes."""
        for worker in self.workers:
            await worker.close()

    async def _compile(self, key: str, spec: dict[str, Any], place: str) -> Held:
        self._turn += 1
        worker = self.workers[self._turn % len(self.workers)]
        try:
            found = await worker.compile(spec)
        except WorkerKilled as error:
            self.counts.refused += 1
            if not error.late:
                self._held.pop(key, None)  # it may fare better the next time
            raise ApiError(400, f"the grammar was not compiled: {error}", param=place, code="compile_limit", hint=_SIZE_HINT) from error
        if "error" in found:
            self.counts.refused += 1
            raise _refusal(found["error"], place)
        held = await asyncio.to_thread(lambda: _held(key, load(found["artifact"], vocabulary=self.vocabulary, warm=True)))
        self.counts.compiled += 1
        return held


def _held(key: str, grammar: Grammar) -> Held:
    return Held(key, grammar, grammar.need())


def _row_bytes(task: asyncio.Task[Held]) -> int:
    """Bytes of the mask rows of a grammar; 0 while it is compiled, and for a source that cannot be."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return 0
    return task.result().grammar.masks.nbytes


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _retrieved(task: asyncio.Task[Held]) -> None:
    """Mark an error as seen, for the case that all who waited for it are gone."""
    if not task.cancelled():
        task.exception()


def _refusal(error: Mapping[str, str], place: str) -> ApiError:
    """A compile error, said of the request: ``#/tools/0/..`` is a place in it already, other pointers lie below ``place``."""
    pointer, keyword = error.get("pointer", ""), error.get("keyword", "")
    ours = pointer.startswith(("#/tools/", "#/tool_choice", "#/parallel_tool_calls"))
    param = pointer[2:] if ours else f"{place}{pointer.removeprefix('#')}" if pointer.startswith("#") else place
    message = f"{keyword}: {error['message']}" if keyword else error["message"]
    if pointer and not pointer.startswith("#"):
        message = f"{pointer}: {message}"
    limit = error["error"] == "BudgetError"
    return ApiError(400, f"{param}: {message}", param=param, code="compile_limit" if limit else "unenforceable",
                    hint=error.get("hint") or (_SIZE_HINT if limit else ""))
