"""The engine: one thread that owns the model and mlx-lm's batch generator; rows join and leave between steps.

In: jobs, from any thread (``submit``, ``cancel``). Out: pieces and ends, through each job's sink, called in the engine's thread. A row
waits in the generator's queue until there is a place, is prefilled with others, and decodes with all that are there, each under a grammar
of its own. Prompts start from the longest stored beginning (``PromptCache``), and what a row has read is stored when it ends.

An error in a step ends all rows of that step as ``failed`` and a fresh generator goes on; the thread ends only when told to.

With several machines every rank runs an engine; rank 0 sends the others its commands before it acts on them (``cluster``), so that all
take the same steps on the same tokens.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.prompt_cache import PromptCache
from stcc.runtime.errors import ConstraintError
from stcc.runtime.server.cluster import Channel, SingleRank
from stcc.runtime.server.job import End, Job, Sink
from stcc.runtime.server.limits import Limits
from stcc.runtime.server.row import Row
from stcc.runtime.server.sampling import row_penalties, row_sampler
from stcc.runtime.server.wide import WideModel

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.grammar import Grammar

PREFILL_TOKENS = 512
ENDLESS = 1 << 30
"""Rows end by our rules; mlx-lm's own limit is out of the way."""
_log = logging.getLogger("stcc.serve")


@dataclass(frozen=True)
class Submit:
    """Decode a job; ``artifact`` holds its grammar's bytes for ranks that have not seen it."""

    job: Job
    grammar: Grammar | None
    sink: Sink


@dataclass(frozen=True)
class Cancel:
    """End a row, if it is still there."""

    number: int


@dataclass(frozen=True)
class Stop:
    """End all rows and the thread."""


Command = Submit | Cancel | Stop


@dataclass
class Counts:
    """What the engine has done; read from other threads, each number by itself.

    Attributes:
        running: rows that decode or are prefilled.
        waiting: rows without a place.
        passes: generation passes.
        read: tokens read in them.
        prompt: prompt tokens, and how many of them the prompt cache had.
        seconds: in passes, prompts included.
        failures: steps that failed.
    """

    running: int = 0
    waiting: int = 0
    passes: int = 0
    read: int = 0
    prompt: int = 0
    cached: int = 0
    seconds: float = 0.0
    failures: int = 0


class Engine:
    """See the module's text.

    Attributes:
        counts: see ``Counts``.
        context_length: most tokens of prompt and output; None if the model does not say.
    """

    def __init__(self, model: Any, vocabulary: Vocabulary, limits: Limits | None = None, *, formats: Callable[[str], Any] | None = None,
                 channel: Channel | None = None) -> None:
        """An engine that does not run yet.

        Args:
            model: an mlx-lm model.
            vocabulary: its vocabulary.
            limits: rows and bytes of the prompt cache are used.
            formats: name -> ``CallFormat``, for the guards.
            channel: to the other ranks.
        """
        self.limits = limits or Limits()
        self.vocabulary, self._formats = vocabulary, formats or (lambda name: None)
        self.counts = Counts()
        self._decoding = DecodingModel(model)
        self.context_length = self._decoding.context_length
        self._channel: Channel = channel or SingleRank()
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._rows: dict[int, Row] = {}  # by uid
        self._uids: dict[int, int] = {}  # job number -> uid
        self._generator: Any = None
        self._prompts: PromptCache | None = None
        self._width = 0
        self._thread: threading.Thread | None = None
        self.error = ""

    # ---- from any thread

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="stcc-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Job, grammar: Grammar | None, sink: Sink) -> None:
        """Decode ``job``; its grammar is ``grammar``, loaded with the engine's vocabulary."""
        self._inbox.put(Submit(job, grammar, sink))

    def cancel(self, number: int) -> None:
        """End a job's row before the next step, if it is still there; its sink gets an ``End``."""
        self._inbox.put(Cancel(number))

    def stop(self, seconds: float = 10.0) -> bool:
        """End all rows and the thread. Returns whether the thread ended in time."""
        self._inbox.put(Stop())
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    # ---- in the engine's thread

    def run(self) -> None:
        """Serve commands until told to stop."""
        import mlx.core as mx

        _bound_buffers(self.limits.buffer_bytes)
        with mx.stream(mx.default_device()):
            try:
                self._renew()
                while self._turn():
                    pass
            except Exception as error:
                _log.exception("the engine stopped")
                self.error = f"{type(error).__name__}: {error}"
                self._fail_all(self.error)
            finally:
                self._generator = None

    def _renew(self) -> None:
        """A fresh generator, without rows."""
        from mlx_lm.generate import BatchGenerator

        if self._generator is not None:
            self._generator.close()
        if self._prompts is None:
            self._prompts = PromptCache(self._decoding, self.limits.prompt_cache_bytes)
            self._width = self._decoding.width
        wide = WideModel(self._decoding, lambda: getattr(self._generator, "_generation_batch", None), self._rows.get)
        self._wide = wide
        self._generator = BatchGenerator(
            wide, max_tokens=ENDLESS, completion_batch_size=self.limits.rows, prefill_batch_size=min(8, self.limits.rows),
            prefill_step_size=PREFILL_TOKENS, stream=_default_stream())

    def _turn(self) -> bool:
        """Take the commands that are there, then one step. False to stop."""
        for command in self._channel.share(self._commands()):
            if isinstance(command, Stop):
                for row in self._rows.values():
                    row.cancel()
                self._sweep()
                return False
            if isinstance(command, Cancel):
                self._cancel(command.number)
            else:
                self._insert(command)
        if self._rows:
            self._step()
        self.counts.waiting = len(self._generator._unprocessed_sequences)
        self.counts.running = len(self._rows) - self.counts.waiting
        return True

    def _commands(self) -> list[Command]:
        """What is in the inbox; waits for something where there is no row to decode."""
        import mlx.core as mx

        found: list[Command] = []
        if not self._channel.leads:
            return found
        with contextlib.suppress(queue.Empty):
            if not self._rows:
                if self._inbox.empty():
                    mx.clear_cache()  # what the last outputs needed; nothing is decoding that would miss it
                found.append(self._inbox.get())
            while True:
                found.append(self._inbox.get_nowait())
        return found

    def _insert(self, command: Submit) -> None:
        job, sink = command.job, command.sink
        try:
            row = Row(job, sink, command.grammar, self.vocabulary, self._formats(job.guards.format))
            if row.reason is not None:  # all of it was forced
                row.collect()
                return
            assert self._prompts is not None
            cache, length = self._prompts.fetch(row.read[:-1])
            row.cached = length
            self.counts.prompt += len(row.read)
            self.counts.cached += length
            uid = self._generator.insert_segments(
                [[row.read[length:]]], max_tokens=[ENDLESS], caches=[cache], all_tokens=[row.read[:length]],
                samplers=[row_sampler(job.choosing, self._width, lambda: row.draws)], logits_processors=[_processors(row)])[0]
        except ConstraintError as error:
            sink(End("failed", message=str(error)))
        except Exception as error:  # a row that cannot begin must not take the others with it
            _log.exception("a row could not begin")
            sink(End("failed", message=f"{type(error).__name__}: {error}"))
        else:
            self._rows[uid], self._uids[job.number] = row, uid
            row.collect()

    def _cancel(self, number: int) -> None:
        uid = self._uids.get(number)
        if uid is not None:
            self._rows[uid].cancel()
            self._sweep()

    def _step(self) -> None:
        started = time.perf_counter()
        try:
            _, responses = self._generator.next()
        except Exception as error:
            _log.exception("a step failed")
            self.counts.failures += 1
            self._fail_all(f"{type(error).__name__}: {error}")
            self._renew()
            return
        for response in responses:
            row = self._rows.get(response.uid)
            if row is not None:
                if row.reason is None:
                    row.collect(response.logprobs)
                else:
                    row.last = response.logprobs
        self._sweep()
        self._count(time.perf_counter() - started)

    def _sweep(self) -> None:
        """Take out the rows that are over, store what they read, and tell their clients."""
        over = [uid for uid, row in self._rows.items() if row.reason is not None]
        if not over:
            return
        for uid in over:
            self._store(uid)
        self._generator.remove(over)
        for uid in over:
            row = self._rows.pop(uid)
            self._uids.pop(row.job.number, None)
            row.collect(row.last)

    def _store(self, uid: int) -> None:
        """Keep what a row's cache holds for the next prompt that begins so, if it is past its prompt."""
        assert self._prompts is not None
        batch = self._generator._generation_batch
        if self._prompts.most_bytes == 0 or uid not in batch.uids or self._rows[uid].reason == "failed":
            return
        read = self._rows[uid].read
        try:
            self._prompts.insert(read, batch.extract_cache(batch.uids.index(uid)))
        except ConstraintError as error:  # a cache class that cannot be stored: the next prompt is read in full
            _log.debug("a prompt was not stored: %s", error)

    def _fail_all(self, message: str) -> None:
        rows, self._uids = list(self._rows.values()), {}
        self._rows.clear()
        for row in rows:
            row.sink(End("failed", passes=row.passes, valid=False, message=message))

    def _count(self, seconds: float) -> None:
        counts, wide = self.counts, self._wide
        counts.passes, counts.read = counts.passes + wide.passes, counts.read + wide.tokens
        wide.passes = wide.tokens = 0
        counts.seconds += seconds


def _processors(row: Row) -> list[Any]:
    """The row's penalties and its mask, as mlx-lm's logits processors; the penalties see all tokens, forced ones too."""
    import mlx.core as mx

    penalties = row_penalties(row.job.choosing)

    def process(context: Any, logits: Any) -> Any:
        if penalties:
            tokens = mx.array([*row.job.prompt, *row.output])
            for penalty in penalties:
                logits = penalty(tokens, logits)
        return row.limit(context, logits)

    return [process]


def _bound_buffers(most: int) -> None:
    """Let MLX keep at most ``most`` bytes of freed buffers for reuse; a lower limit that is set already stays."""
    import mlx.core as mx

    before = mx.set_cache_limit(most)
    if before < most:
        mx.set_cache_limit(before)


def _default_stream() -> Any:
    import mlx.core as mx

    return mx.default_stream(mx.default_device())
