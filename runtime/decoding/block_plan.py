"""The blocks of a grammar: parts of an output that can be drafted at the same time, each from a context of its own (Theorem 23).

In: a ``Grammar`` with a vocabulary. Out: a ``BlockPlan``: where each block begins, as the configuration at which sequential decoding would
begin to choose tokens there, and the context it is drafted in. A block begins after a *key*: at a cut to which at least ``KEY_BYTES``
forced bytes lead; what is between two such cuts is one block, be it a string, an array or several optional properties. The first begins at
the start of the output.

The context of a block is the bare path of keys (``{"location":{"city":"``) where the text before it reads as JSON, else the key alone;
earlier values are left out, since a model copies what stands in their place. It only has to be likely, never right: what is drafted is
certified. It is spelled with the longest tokens that fit, which for keys is what a tokenizer gives.

Cost: the cuts (milliseconds) and one look-up a context token; made once a grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.runtime.decoding.cuts import Cuts, find_cuts
from stcc.runtime.decoding.spelling import longest_tokens
from stcc.runtime.errors import VocabularyRequired

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.stack import Configuration

KEY_BYTES = 3
"""Fewest forced bytes before a block; shorter ones are marks inside a value, as in a date."""
_SPACE, _QUOTE, _BACKSLASH = b" \t\r\n", ord('"'), ord("\\")


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        start: the configuration at which its first token is chosen.
        context: tokens of the text that it is drafted after, the prompt left out; for the first block those of the output itself.
    """

    start: Configuration
    context: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """The blocks of a grammar in order, at least one, and the way from a configuration to its block.

    Attributes:
        blocks: see ``Block``.
        cuts: the cuts they were made from.
        block_of_stage: int32 ``[cuts + 1]``, stage -> number of the block.
    """

    blocks: tuple[Block, ...]
    cuts: Cuts
    block_of_stage: npt.NDArray[np.int32]

    def block_at(self, configuration: Configuration) -> int:
        """The last block whose start lies at or before ``configuration``; 0 where nothing is known, as after the end."""
        return int(self.block_of_stage[_stage(self.cuts, configuration)])


def plan_blocks(grammar: Grammar) -> BlockPlan:
    """The blocks of ``grammar``. VocabularyRequired if it was loaded without one."""
    if grammar.vocabulary is None:
        raise VocabularyRequired(grammar.name)
    cuts = find_cuts(grammar.stacks)
    opening = grammar.matcher(canonical=True)
    forced = opening.forced_tokens()
    for token in forced:
        opening.accept_token(token)
    blocks, stages = [Block(opening.configuration(), tuple(forced))], [0]
    for cut in key_starts(cuts):
        block = _block_after(grammar, grammar.vocabulary, cuts, cut)
        stage = 0 if block is None else _stage(cuts, block.start)
        if block is not None and stage > max(stages[-1], _stage(cuts, blocks[0].start)):
            blocks.append(block)
            stages.append(stage)
    found = np.searchsorted(np.array(stages), np.arange(len(cuts.states) + 1), side="right") - 1
    return BlockPlan(tuple(blocks), cuts, found.astype(np.int32))


def _stage(cuts: Cuts, configuration: Configuration) -> int:
    state, level = configuration
    if state < 0:
        return 0
    if level.site < 0:
        return int(cuts.stage[state])
    while level.below.site >= 0:
        level = level.below
    return int(cuts.site_stage[level.site])


def key_starts(cuts: Cuts) -> list[int]:
    """The cuts at which a forced chain of at least ``KEY_BYTES`` begins."""
    starts = np.flatnonzero(cuts.forced & ~np.concatenate([[False], cuts.forced[:-1]]))
    ends = np.flatnonzero(cuts.forced & ~np.concatenate([cuts.forced[1:], [False]])) + 1
    return [int(start) for start, end in zip(starts, ends, strict=True) if end - start >= KEY_BYTES and end < len(cuts.states)]


def _block_after(grammar: Grammar, vocabulary: Vocabulary, cuts: Cuts, cut: int) -> Block | None:
    """The block that the key beginning at ``cut`` leads to; None if the output ends with the key."""
    matcher = grammar.matcher(canonical=True)
    matcher.move_to((int(cuts.states[cut]), grammar.stacks.bottom))
    key = matcher.forced_tokens()
    for token in key:
        matcher.accept_token(token)
    if matcher.configuration()[0] < 0:
        return None
    before, spelled = cuts.text[:int(cuts.offsets[cut])], b"".join(map(vocabulary.token, key))
    context = open_path(before + spelled)
    tokens = key if context is None else longest_tokens(vocabulary, context)
    return Block(matcher.configuration(), tuple(tokens))


def open_path(text: bytes) -> bytes | None:
    """What of the beginning of a JSON text ``text`` is still open: brackets, the keys that lead on, and an unfinished key or string.

    None if the text is not that of an object or array, or nothing of it is open.

    >>> open_path(b'{"a":1,"b":{"c":[],"d":"')
    b'{"b":{"d":"'
    """
    if text.lstrip(_SPACE)[:1] not in (b"{", b"["):
        return None
    members: list[int] = []  # where the member that is being read begins, for each open container, behind its bracket
    openings: list[int] = []
    quoted = escaped = False
    for place, byte in enumerate(text):
        if quoted:
            quoted = escaped or byte != _QUOTE
            escaped = not escaped and byte == _BACKSLASH
        elif byte == _QUOTE:
            quoted = True
        elif byte in b"{[":
            openings.append(place)
            members.append(place + 1)
        elif byte in b"}]" and members:
            openings.pop()
            members.pop()
        elif byte == ord(",") and members:
            members[-1] = place + 1
    if not openings:
        return None
    parts = [text[opening:opening + 1] + text[member:end] for opening, member, end in
             zip(openings, members, [*openings[1:], len(text)], strict=True)]
    return b"".join(parts)
