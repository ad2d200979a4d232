"""A language model as the policy: the probability of an action is that of writing its label (``transcript`` says what that is).

In: an mlx-lm model and a ``Transcript``. Out: full history -> float64 probabilities, ``softmax(log P(label | history) / temperature)`` over
the actions; at temperature 1 that is the model's own distribution given that it writes one of the labels. Log-probabilities are taken in
float64 over the whole head; the head's scores are whatever the model computes in.

One pass scores all labels of several histories. Each history gives one row for each *distinct beginning* that its labels need (labels of
one token share the history's own last place, ``REFUND`` and ``READ`` share a common first token), every row begins with a copy of the
longest stored prompt (``PromptCache``), and the rows' caches are stored again, so that a longer history reads its last step only. Caches
that cannot be rows of a batch are fed one by one.

``table`` is the one memo: whatever is in it is never scored again. Floating-point sums depend on the shape of a pass in their last bits, so
that what was scored first stays, and a stored table (``score_table``), not the weights, is what makes draws repeatable bit for bit.

>>> policy = ModelPolicy(loaded.model, Transcript.of(environment.graph, encode, opening))         # doctest: +SKIP
>>> policy.score(live_histories(environment)); policy(())                                         # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.prompt_cache import PromptCache
from stcc.runtime.decoding.rows import CacheKindError, Rows, require_batches
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import History, PolicyError, Vector
from stcc.runtime.exact.policies import softmax
from stcc.runtime.exact.transcript import Transcript

MOST_ROWS = 32
"""Rows of a pass, about: a history's rows are never split."""
MOST_BYTES = 1 << 30
MOST_HISTORIES = 1_000_000


@dataclass
class ModelCost:
    """What a model was run for.

    Attributes:
        passes: forward passes, those over the prompt included.
        tokens: tokens fed in them, padding not counted.
        seconds: wall time of the passes.
    """

    passes: int = 0
    tokens: int = 0
    seconds: float = 0.0


class TooManyHistoriesError(ConstraintError):
    """More histories than are scored beforehand."""


class _Beginnings:
    """What must be read after a history so that each token of each label has its scores.

    Attributes:
        rows: token sequences, none a beginning of another; one row each, at least one.
        places: per label and token, (row, tokens of it read before).
    """

    def __init__(self, labels: Sequence[tuple[int, ...]]) -> None:
        needed = sorted({label[:size] for label in labels for size in range(len(label))})
        self.rows = [one for one, after in zip(needed, [*needed[1:], None], strict=True) if after is None or after[:len(one)] != one]
        self.places = [[self._place(label[:size]) for size in range(len(label))] for label in labels]

    def _place(self, beginning: tuple[int, ...]) -> tuple[int, int]:
        for number, row in enumerate(self.rows):
            if row[:len(beginning)] == beginning:
                return number, len(beginning)
        raise AssertionError("every beginning is one of a row")


class ModelPolicy:
    """See the module's text.

    Args:
        model: an mlx-lm model, or a ``DecodingModel``.
        transcript: how histories are written.
        temperature: above 0.
        rows: rows of a pass, about.
        most_bytes: bound on the stored prompt caches.

    Attributes:
        table: full history -> float64 ``[actions]``, everything scored so far.
        cost: what the model was run for.
    """

    def __init__(self, model: Any, transcript: Transcript, *, temperature: float = 1.0, rows: int = MOST_ROWS,
                 most_bytes: int = MOST_BYTES) -> None:
        if not 0.0 < temperature < float("inf"):
            raise ConstraintError(f"temperature {temperature} is out of range", "give a number above 0; 1 is the model's own distribution")
        if rows < 1:
            raise ConstraintError(f"{rows} rows are too few", "give at least 1")
        self.model = model if isinstance(model, DecodingModel) else DecodingModel(model)
        self.transcript, self.temperature, self._most_rows = transcript, temperature, rows
        self.table: dict[History, Vector] = {}
        self.cost = ModelCost()
        self._beginnings = _Beginnings(transcript.labels)
        self._prompts = PromptCache(self.model, most_bytes)
        try:
            require_batches(self.model)
            self._batched = True
        except CacheKindError:
            self._batched = False

    def __call__(self, history: History) -> Vector:
        """float64 ``[actions]``; scored if it is not in the table. PolicyError where the model gives no label a chance."""
        vector = self.table.get(history)
        if vector is None:
            self.score([history])
            vector = self.table[history]
        return vector

    def score(self, histories: Iterable[History]) -> int:
        """Score those that are not in the table, several a pass. Returns how many that were.

        Raises:
            PolicyError: the model's scores are not numbers, or give no label a chance, or a history is longer than its context.
        """
        count, batch = 0, list[History]()
        most = max(1, self._most_rows // len(self._beginnings.rows))
        for history in dict.fromkeys(histories):
            if history not in self.table:
                batch.append(history)
                count += 1
                if len(batch) == most:
                    self._score_batch(batch)
                    batch = []
        if batch:
            self._score_batch(batch)
        return count

    def _score_batch(self, histories: Sequence[History]) -> None:
        started = time.perf_counter()
        contexts = [self.transcript.context(history) for history in histories]
        self._check_lengths(contexts)
        self._store_opening()
        caches, pieces, fed = [], [], []
        for context in contexts:
            for row in self._beginnings.rows:
                cache, length = self._prompts.fetch(context[:-1])
                caches.append(cache)
                pieces.append([*context[length:], *row])
                fed.append(len(context) - length)
        scores = self._run(caches, pieces, fed, contexts)
        per_history = len(self._beginnings.rows)
        for number, history in enumerate(histories):
            self.table[history] = self._vector(scores, number * per_history, history)
        self.cost.seconds += time.perf_counter() - started

    def _vector(self, scores: dict[tuple[int, int], Any], first: int, history: History) -> Vector:
        labels = self.transcript.labels
        sums = np.array([sum(scores[first + row, read][token] for token, (row, read) in zip(label, places, strict=True))
                         for label, places in zip(labels, self._beginnings.places, strict=True)], np.float64)
        if np.isnan(sums).any() or not np.isfinite(sums.max()):
            raise PolicyError(f"the model gives no label a chance after {len(history)} steps", "its scores are infinite or not numbers")
        vector = softmax(sums / self.temperature)
        vector.flags.writeable = False
        return vector

    def _check_lengths(self, contexts: Sequence[list[int]]) -> None:
        longest, room = max(map(len, contexts)) + max(map(len, self._beginnings.rows)), self.model.context_length
        if room is not None and longest > room:
            raise PolicyError(f"a history takes {longest} tokens and the model's context has {room}", "shorten the prompt or the horizon")

    def _store_opening(self) -> None:
        """Read the prompt once; every history begins with it."""
        opening = self.transcript.opening[:-1]
        if opening and not len(self._prompts):
            cache = self.model.make_cache()
            self.cost.passes += self.model.prefill(opening, cache)
            self.cost.tokens += len(opening)
            self._prompts.insert(opening, cache)

    def _run(self, caches: list[Any], pieces: list[list[int]], fed: list[int],
             contexts: Sequence[list[int]]) -> dict[tuple[int, int], npt.NDArray[np.float64]]:
        """One pass, or one a row where caches cannot be batched. (row, tokens of the label read before) -> float64 log-probabilities."""
        per_history = len(self._beginnings.rows)
        used = sorted({place for places in self._beginnings.places for place in places})
        wanted = [(number + row, read) for number in range(0, len(pieces), per_history) for row, read in used]
        groups = [list(range(len(pieces)))] if self._batched else [[row] for row in range(len(pieces))]
        found: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        for group in groups:
            rows = Rows(self.model, [caches[row] for row in group])
            here = [place for place in wanted if group[0] <= place[0] <= group[-1]]
            logits = rows.feed([pieces[row] for row in group], [(row - group[0], fed[row] - 1 + read) for row, read in here])
            found.update(zip(here, log_probabilities(logits), strict=True))
            self.cost.passes += 1
            self.cost.tokens += sum(len(pieces[row]) for row in group)
            for row in group:
                tokens = [*contexts[row // per_history], *self._beginnings.rows[row % per_history]]
                self._prompts.insert(tokens, rows.extract(row - group[0]))
        return found


def log_probabilities(logits: Any) -> npt.NDArray[np.float64]:
    """float64 ``[n, width]`` of logits on the device, ``[n, width]``: natural logarithms of their softmax. Waits for them."""
    import mlx.core as mx

    values = np.array(logits.astype(mx.float32)).astype(np.float64)
    values -= values.max(axis=-1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return values


def live_histories(environment: Environment, most: int = MOST_HISTORIES) -> Iterator[History]:
    """The running histories that can still become valid, short ones first: what a residual under the compiled bank may ask for.

    Raises:
        TooManyHistoriesError: there are more than ``most``.
    """
    level: list[tuple[History, int]] = [((), 0)]
    count = 0
    while level:
        following: list[tuple[History, int]] = []
        for history, number in level:
            if environment.accepting[number]:
                continue
            count += 1
            if count > most:
                raise TooManyHistoriesError(f"more than {most:,} histories can become valid", "let the sampler ask for what it needs")
            yield history
            following += [((*history, (action, seen)), target) for action, targets in enumerate(environment.classes[number])
                          for seen, target in targets.items()]
        level = following
