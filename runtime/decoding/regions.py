"""Finite regions: the few strings that may follow, read in one pass (the decision part of D.5).

In: a configuration and bounds. Out: ``near_strings``, the strings that may follow up to where the text becomes free again, as many as the
bounds allow; ``finite_region``, all strings up to the next cut state, or an error that says why there is no such list; and
``score_strings``, their log-probabilities under the model, in one pass over as many rows.

Enumerations, booleans, ``null``, the choice of the next optional key and short numbers are regions; forced text after them belongs to the
strings. They are read byte by byte, so that it does not matter how a tokenizer cuts them.

Cost: a table look-up a byte of all strings. Regions reach no further than ``most_strings`` strings and ``most_bytes`` bytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stcc.runtime.decoding.cuts import Cuts
from stcc.runtime.decoding.errors import DecodeError
from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.rows import Rows, copy_cache
from stcc.runtime.stack import MOST_FORCED

if TYPE_CHECKING:
    from stcc.runtime.stack import Configuration, Stacks

MOST_STRINGS = 12
MOST_BYTES = 256
"""Most bytes of one string; longer ones are left where they are."""


class RegionError(DecodeError):
    """There is no finite region here, or it is larger than asked for."""


@dataclass(frozen=True)
class StringScores:
    """Log-probabilities of strings after one text.

    Attributes:
        total: float64 ``[strings]``, summed over their tokens, under the model's own distribution.
        tokens: int64 ``[strings]``, how many tokens each has.
    """

    total: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]

    @property
    def best(self) -> int:
        """The likeliest string; ties go to the first."""
        return int(self.total.argmax())


def near_strings(stacks: Stacks, configuration: Configuration, most_strings: int = MOST_STRINGS,
                 most_bytes: int = MOST_BYTES) -> list[bytes]:
    """Strings that may follow, none a beginning of another: together they cover whatever follows.

    The shortest are read on first, each as long as the strings stay within the bounds and more than one byte is no reason to stop. A list
    of the empty string alone says that the text is free here, or over.
    """
    text, place = _read_forced(stacks, b"", configuration, most_bytes)
    waiting = [(len(text), text)]
    places, done = {text: place}, list[bytes]()
    while waiting:
        _, text = heapq.heappop(waiting)
        place = places.pop(text)
        live = stacks.live_bytes(*place)
        within = len(text) < most_bytes and 0 < len(live) <= most_strings - len(waiting) - len(done)
        if not within or stacks.may_end(*place):
            done.append(text)
            continue
        for byte in live.tolist():
            after = stacks.step(*place, byte)
            if after is not None:
                longer, after = _read_forced(stacks, text + bytes([byte]), after, most_bytes)
                places[longer] = after
                heapq.heappush(waiting, (len(longer), longer))
    return sorted(done)


def finite_region(stacks: Stacks, cuts: Cuts, configuration: Configuration, most_strings: int = 64) -> list[bytes]:
    """All strings from ``configuration`` to the next cut behind it, or to the end of the output, in byte order.

    Raises:
        RegionError: nothing may follow; the stack is not empty, where cuts are not known; or there are more than ``most_strings`` strings,
            as in free text.
    """
    state, level = configuration
    if state < 0 or (stacks.may_end(state, level) and not len(stacks.live_bytes(state, level))):
        raise RegionError("the region is empty: the output is over here", "ask before the output ends")
    if level.site >= 0:
        raise RegionError(f"regions end at cut states, which a place nested {level.depth} calls deep does not see",
                          "ask at the top level of the output")
    stage = int(cuts.stage[state])
    target = int(cuts.states[stage]) if stage < len(cuts.states) else None
    found: list[bytes] = []
    waiting: deque[tuple[bytes, Configuration]] = deque([(b"", configuration)])
    while waiting:
        text, place = waiting.popleft()
        if place[0] < 0 or (place[0] == target and place[1].site < 0):
            found.append(text)
            continue
        if target is None and stacks.may_end(*place):
            found.append(text)
        for byte in stacks.live_bytes(*place).tolist():
            after = stacks.step(*place, byte)
            if after is not None:
                waiting.append((text + bytes([byte]), after))
        if len(found) + len(waiting) > most_strings:
            raise RegionError(f"more than {most_strings} strings may follow", "raise most_strings, or decode the region token by token")
    return sorted(found)


def score_strings(model: DecodingModel, cache: Cache, pending: Sequence[int], spellings: Sequence[Sequence[int]]) -> StringScores:
    """Score strings after one text in one pass.

    Args:
        model: its caches must be able to become rows of a batch.
        cache: holds the text but for ``pending``; it is not changed.
        pending: the text's last tokens, at least one.
        spellings: tokens of each string; an empty one scores 0.

    Raises:
        RegionError: there are no strings.
        DecodeError: no pending token.
    """
    import mlx.core as mx

    if not spellings:
        raise RegionError("the region is empty: there are no strings to score", "ask where several strings may follow")
    if not pending:
        raise DecodeError("no token is pending, so there is nothing to score the strings after", "keep the last token out of the cache")
    pieces = [[*pending, *spelling[:-1]] for spelling in spellings]
    places = [(row, len(pending) - 1 + place) for row, spelling in enumerate(spellings) for place in range(len(spelling))]
    total = np.zeros(len(spellings))
    if places:
        logits: Any = Rows(model, [copy_cache(cache) for _ in pieces]).feed(pieces, places).astype(mx.float32)
        wanted = mx.array([token for spelling in spellings for token in spelling])
        scores = mx.take_along_axis(logits, wanted[:, None], axis=-1)[:, 0] - mx.logsumexp(logits, axis=-1)
        np.add.at(total, [row for row, _ in places], np.array(scores, np.float64))
    return StringScores(total, np.array([len(spelling) for spelling in spellings]))


def _read_forced(stacks: Stacks, text: bytes, place: Configuration, most_bytes: int) -> tuple[bytes, Configuration]:
    """``text`` and what must follow it, up to a choice, a possible end, or the bound."""
    most = min(most_bytes, MOST_FORCED)
    byte = stacks.forced_byte(*place)
    while byte >= 0 and len(text) < most:
        after = stacks.step(*place, byte)
        if after is None:
            break
        text, place = text + bytes([byte]), after
        byte = stacks.forced_byte(*place)
    return text, place
