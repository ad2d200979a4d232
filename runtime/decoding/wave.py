"""A wave: the certain output and the drafts of other blocks go on together, one token a row and pass.

In: the certain ``Trail`` with a cache that holds its beginning, and trails that draft later blocks. Out: the trails, gone on; the first is
still certain, since each of its tokens was chosen by the model after the very text before it. So no pass of a wave is lost: it yields at
least the token that sequential decoding would have got from it, drafts or not.

A row drafts until it leaves its block, ends, or has used up its steps. The certain row goes on as long as another row does, or as long as
no draft fits on to it. Once all but one are done the rest runs as an ordinary stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stcc.runtime.bitmask import apply_token_bitmask
from stcc.runtime.decoding.errors import NarrowHeadError
from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.rows import Anchor, Rows, copy_cache
from stcc.runtime.decoding.trail import Trail


@dataclass
class DraftRow:
    """A row that drafts one block.

    Attributes:
        trail: its tokens; the prompt is not among them.
        block: the block it drafts.
        steps: most tokens that are still chosen.
    """

    trail: Trail
    block: int
    steps: int

    @property
    def active(self) -> bool:
        """Whether it goes on."""
        return self.steps > 0 and self.trail.stop_reason is None and self.trail.block == self.block


@dataclass
class WaveCounts:
    """What a wave cost.

    Attributes:
        steps: passes.
        row_steps: rows fed, over all passes.
    """

    steps: int = 0
    row_steps: int = 0


def choose_tokens(logits: Any, trails: Sequence[Trail]) -> tuple[list[int], list[bool]]:
    """The greedy choice of each trail.

    Args:
        logits: floating ``[trails, head]``.
        trails: whose masks apply.

    Returns:
        The tokens (largest allowed logit, ties to the lowest id), and whether each could be made: False for logits that hold NaN, or
        nothing finite where a token is allowed.

    Raises:
        NarrowHeadError: the head is narrower than the vocabulary.
    """
    import mlx.core as mx

    size = trails[0].vocabulary_size
    if logits.shape[-1] < size:
        raise NarrowHeadError(logits.shape[-1], size)
    masked = apply_token_bitmask(logits.astype(mx.float32), np.stack([trail.row() for trail in trails]))
    sound = mx.isfinite(mx.max(masked, axis=-1)) & ~mx.any(mx.isnan(logits), axis=-1)
    tokens = mx.argmax(masked, axis=-1)
    mx.eval(tokens, sound)
    chosen: Any = tokens.tolist()
    usable: Any = sound.tolist()
    return chosen, usable


def run_wave(model: DecodingModel, prompt: Sequence[int], anchor: Anchor, certain: Trail, drafts: Sequence[DraftRow],
             has_draft: Callable[[Trail], bool], counts: WaveCounts) -> Anchor:
    """Run a wave; ``certain`` and the trails of ``drafts`` are changed.

    Args:
        model: the model.
        prompt: the prompt's tokens.
        anchor: holds a beginning of prompt and certain output, not all of it; neither it nor its cache is changed unless it is returned.
        certain: the certain output, at a choice.
        drafts: none or more rows.
        has_draft: whether some draft says how the certain output may go on.
        counts: is added to.

    Returns:
        An anchor with what the certain row has read.
    """
    rows: list[DraftRow | None] = [None, *(draft for draft in drafts if draft.active)]
    batch = Rows(model, [copy_cache(anchor.cache) for _ in rows])
    pending = [[*prompt, *(certain if row is None else row.trail).tokens][anchor.length:] for row in rows]
    read = anchor.length
    while True:
        trails = [certain if row is None else row.trail for row in rows]
        counts.steps += 1
        counts.row_steps += len(rows)
        read += len(pending[0])
        tokens, sound = choose_tokens(batch.feed(pending), trails)
        pending = [_advance(row, trail, token, usable)
                   for row, trail, token, usable in zip(rows, trails, tokens, sound, strict=True)]
        going = [place for place, row in enumerate(rows) if row is None or (row.active and row.block >= certain.block)]
        if certain.stop_reason is not None or (len(going) == 1 and has_draft(certain)):
            return Anchor(batch.extract(0), read)
        if len(going) == 1 < len(rows):
            batch = Rows(model, [batch.extract(0)])
        else:
            batch.keep(going)
        rows, pending = [rows[place] for place in going], [pending[place] for place in going]


def _advance(row: DraftRow | None, trail: Trail, token: int, sound: bool) -> list[int]:
    """Go on by a choice; the tokens that the next pass must read."""
    length = len(trail.tokens)
    if not sound or not trail.choose(token):
        trail.stop_reason = "not_finite" if not sound else "dead_end"
    if row is not None:
        row.steps -= 1
    return trail.tokens[length:]
