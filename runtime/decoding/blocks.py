"""Certified blocks: the parts of an output drafted at the same time, and exactly the sequential greedy output (Theorem 23).

In: a model, a grammar and a prompt. Out: the tokens that greedy decoding one token after the other would have chosen under the same policy
(canonical forced text, and the token limit if there is one), in at most as many passes, usually in fewer.

1. *Plan.* The grammar's cut states say where blocks begin (``block_plan``).
2. *Wave.* One row of a batch goes on with the certain output; the others draft later blocks, each after the bare path of its keys
   (``wave``).
3. *Certificate.* The drafts are put together behind the certain output and replayed by the matcher. One pass over them gives the scores at
   every choice; as long as a draft's token is the greedy one under the mask, it is certain. The first that is not is put right. Drafts of
   later blocks that were found wrong go on from the token put right, in the next wave.
4. Again from 2, at most ``rounds`` times; what is left is decoded as one stream.

Why it is exact: a token becomes certain only as the greedy choice after certain tokens, at the matcher's configuration. In floating point a
pass over many places may round differently from many passes over one; a near tie can then fall the other way, as in any batch.

Why it takes no more passes than sequential decoding: a wave's pass gives its certain row one token, and a certificate gives at least the
first token that it examines. A pass over many rows or places may take longer, though, which ``row_steps`` and ``places`` let one judge.

Caches are copied, never rolled back: after a certificate that fails, an attention cache is cut to the certain tokens, and a recurrent one
is dropped in favour of its copy, so that some certain tokens are read again, in a pass that is made anyway.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stcc.runtime.decoding.block_plan import BlockPlan, plan_blocks
from stcc.runtime.decoding.errors import DecodeError
from stcc.runtime.decoding.model import DecodingModel
from stcc.runtime.decoding.opening import begin
from stcc.runtime.decoding.results import StopReason
from stcc.runtime.decoding.rows import Anchor, Rows, copy_cache, require_batches
from stcc.runtime.decoding.trail import Trail
from stcc.runtime.decoding.wave import DraftRow, WaveCounts, choose_tokens, run_wave
from stcc.runtime.errors import VocabularyRequired

if TYPE_CHECKING:
    from stcc.runtime.decoding.prompt_cache import PromptCache
    from stcc.runtime.grammar import Grammar

ROUNDS = 24
"""Most certificates of an output; each is a pass over what is drafted, so that a cap bounds the work, not the passes."""
MOST_ROWS = 12
"""Most rows of a wave; later blocks are drafted once earlier ones are certain."""
FIRST_STEPS = 24
"""Most tokens that a block is drafted for before its length is known."""


@dataclass
class BlockStatistics:
    """What an output cost.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those that a prompt cache had.
        prefill_passes: passes over the prompt but its last token.
        wave_steps: passes of waves, those of a single row included.
        certificates: passes that examined drafts; also the rounds.
        row_steps: rows fed, over all wave steps.
        places: places that certificates examined.
        accepted: of them, those where the draft was right and everything before it.
        first_places: likewise ``places`` of the first certificate.
        first_accepted: likewise ``accepted``.
        chosen: tokens chosen, stop tokens not counted.
        forced: tokens added without a choice.
        narrowed: choices from which the token limit took tokens away.
        sequential_passes: passes of sequential decoding, which makes one for each choice.
        seconds: in all.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_passes: int = 0
    wave_steps: int = 0
    certificates: int = 0
    row_steps: int = 0
    places: int = 0
    accepted: int = 0
    first_places: int = 0
    first_accepted: int = 0
    chosen: int = 0
    forced: int = 0
    narrowed: int = 0
    sequential_passes: int = 0
    seconds: float = 0.0

    @property
    def passes(self) -> int:
        """Passes that scored a choice."""
        return self.wave_steps + self.certificates

    @property
    def saved(self) -> int:
        """Passes fewer than sequential decoding makes."""
        return self.sequential_passes - self.passes


@dataclass(frozen=True)
class BlockOutput:
    """A decoded output.

    Attributes:
        tokens: its tokens, stop tokens not included.
        text: their bytes.
        valid: whether the text is a whole output, as the matcher says.
        stop_reason: why it ended.
        statistics: what it cost.
    """

    tokens: list[int]
    text: bytes
    valid: bool
    stop_reason: StopReason
    statistics: BlockStatistics


@dataclass
class _Lengths:
    """How many choices a block took so far, on average; bounds later drafts and changes no token."""

    outputs: int = 0
    choices: int = 0

    def bound(self) -> int:
        return FIRST_STEPS if not self.outputs else int(1.5 * self.choices / self.outputs) + 2


@dataclass
class _Session:
    """One output being decoded."""

    prompt: list[int]
    certain: Trail
    anchor: Anchor
    statistics: BlockStatistics
    drafts: dict[int, list[int]] = field(default_factory=dict)  # block -> the choices drafted for it
    repairs: list[DraftRow] = field(default_factory=list)

    def next_choice(self, trail: Trail) -> int | None:
        """What the drafts say the trail chooses next; None if they say nothing, or began otherwise."""
        return _following(self.drafts.get(trail.block, []), trail)


def _following(draft: list[int], trail: Trail) -> int | None:
    """What ``draft``, of the block that the trail is in, holds behind the choices made there; None if it does not begin with them."""
    chosen = trail.choices[trail.block]
    fits = trail.stop_reason is None and len(draft) > len(chosen) and draft[:len(chosen)] == chosen
    return draft[len(chosen)] if fits else None


class BlockDecoder:
    """Decodes outputs of one grammar with one model; see the module's text. Later outputs draft blocks for as long as earlier ones took."""

    def __init__(self, model: DecodingModel, grammar: Grammar, *, rounds: int = ROUNDS, rows: int = MOST_ROWS,
                 prompt_cache: PromptCache | None = None) -> None:
        """Plan the blocks.

        Args:
            model: the model.
            grammar: loaded with the model's vocabulary.
            rounds: most certificates of an output; 0 decodes sequentially.
            rows: most rows of a wave, the certain one included.
            prompt_cache: where prompts are looked up and left.

        Raises:
            VocabularyRequired: the grammar was loaded without a vocabulary.
            DecodeError: ``rounds`` is negative or ``rows`` below 1.
            CacheKindError: the model's caches cannot become rows of a batch.
        """
        if grammar.vocabulary is None:
            raise VocabularyRequired(grammar.name)
        if rounds < 0 or rows < 1:
            raise DecodeError(f"rounds {rounds} and rows {rows} are out of range", "give rounds from 0 and rows from 1 up")
        if rounds and rows > 1:
            require_batches(model)
        self._model, self._grammar, self._vocabulary = model, grammar, grammar.vocabulary
        self._rounds, self._rows, self._prompt_cache = rounds, rows, prompt_cache
        self.plan: BlockPlan = plan_blocks(grammar)
        self._lengths = [_Lengths() for _ in self.plan.blocks]

    def decode(self, prompt_tokens: Sequence[int], max_tokens: int | None = None) -> BlockOutput:
        """The greedy output after a prompt.

        Args:
            prompt_tokens: at least one.
            max_tokens: most tokens of the output; every mask keeps a valid ending within reach.

        Raises:
            EmptyPromptError: no prompt tokens.
            BudgetTooSmall: no valid output fits in ``max_tokens``.
            ContextExceeded: the prompt leaves no room for a valid output in the model's context.
            NarrowHeadError: the model scores fewer tokens than the vocabulary has.
        """
        started = time.perf_counter()
        opening = begin(self._model, self._grammar, prompt_tokens, max_tokens, self.plan, self._prompt_cache)
        statistics = BlockStatistics(len(opening.prompt), opening.cached_tokens, opening.prefill_passes)
        session = _Session(opening.prompt, opening.certain, opening.anchor, statistics)
        while session.certain.stop_reason is None:
            within = session.statistics.certificates < self._rounds
            rows = self._draft_rows(session) if within else []
            if not within:
                session.drafts.clear()
            if rows or session.next_choice(session.certain) is None:
                self._wave(session, rows)
            if session.next_choice(session.certain) is not None:
                self._certify(session)
        return self._finish(session, started)

    def _draft_rows(self, session: _Session) -> list[DraftRow]:
        """Rows for the blocks behind the certain one that were found wrong or not drafted yet, the nearest ones."""
        front = session.certain.block
        wanted = {row.block: row for row in session.repairs if row.block > front}
        session.repairs = []
        for block in range(front + 1, min(front + self._rows, len(self.plan.blocks))):
            if block not in session.drafts and block not in wanted:
                wanted[block] = self._fresh_row(block)
        return [wanted[block] for block in sorted(wanted)][:self._rows - 1]

    def _fresh_row(self, block: int) -> DraftRow:
        plan = self.plan.blocks[block]
        matcher = self._grammar.matcher(canonical=True)
        matcher.move_to(plan.start)
        return DraftRow(Trail(matcher, None, self.plan, self._vocabulary, list(plan.context)), block, self._lengths[block].bound())

    def _wave(self, session: _Session, rows: list[DraftRow]) -> None:
        counts = WaveCounts()
        for row in rows:
            session.drafts.pop(row.block, None)
        under_way = {row.block: row.trail.choices.get(row.block, []) for row in rows}
        session.anchor = run_wave(
            self._model, session.prompt, session.anchor, session.certain, rows,
            lambda trail: _following(under_way.get(trail.block) or session.drafts.get(trail.block, []), trail) is not None, counts)
        session.drafts.update(under_way)
        session.statistics.wave_steps += counts.steps
        session.statistics.row_steps += counts.row_steps

    def _certify(self, session: _Session) -> None:
        """Replay the drafts, score every choice in one pass, and make certain what is right."""
        replay, places, drafted = session.certain.fork(), list[Trail](), list[int]()
        token = session.next_choice(replay)
        while token is not None:
            before = replay.fork()
            if not replay.choose(token):
                break
            places.append(before)
            drafted.append(token)
            token = session.next_choice(replay)
        # the scores behind a draft that did not end choose one token more
        places += [replay] if replay.stop_reason is None else []
        offset = len(session.prompt) - session.anchor.length
        piece = [*session.prompt, *places[-1].tokens][session.anchor.length:]
        batch = Rows(self._model, [copy_cache(session.anchor.cache)])
        logits = batch.feed([piece], [(0, offset + len(place.tokens) - 1) for place in places])
        tokens, sound = choose_tokens(logits, places)
        accepted = self._accept(session, drafted, tokens, sound)
        self._count(session.statistics, len(drafted), accepted)
        read = Anchor(batch.extract(0), session.anchor.length + len(piece))
        session.anchor = session.anchor.moved(read, len(session.prompt) + len(places[min(accepted, len(places) - 1)].tokens))
        self._repair(session, places, drafted, tokens, sound, accepted)

    def _accept(self, session: _Session, drafted: list[int], tokens: list[int], sound: list[bool]) -> int:
        """Make certain what the scores allow, and the token after it. Returns how many drafted tokens were right."""
        certain = session.certain
        for place, (token, usable) in enumerate(zip(tokens, sound, strict=True)):
            if not usable or not certain.choose(token):
                certain.stop_reason = "not_finite" if not usable else "dead_end"
                return place
            if place == len(drafted) or token != drafted[place]:
                return place
        return len(drafted)

    def _repair(self, session: _Session, places: list[Trail], drafted: list[int], tokens: list[int], sound: list[bool],
                accepted: int) -> None:
        """Rows for later blocks whose draft was not what the scores chose: they go on from the first such token, put right."""
        seen = set(range(session.certain.block + 1))
        for place, token, right, usable in zip(places[accepted:], drafted[accepted:], tokens[accepted:], sound[accepted:], strict=False):
            block = place.block
            if block in seen or token == right or not usable:
                continue
            seen.add(block)
            steps = self._lengths[block].bound() - len(place.choices[block]) - 1
            if place.choose(right):
                session.drafts[block] = place.choices[block].copy()
                session.repairs.append(DraftRow(place, block, max(steps, 1)))

    @staticmethod
    def _count(statistics: BlockStatistics, places: int, accepted: int) -> None:
        if not statistics.certificates:
            statistics.first_places, statistics.first_accepted = places, accepted
        statistics.certificates += 1
        statistics.places += places
        statistics.accepted += accepted

    def _finish(self, session: _Session, started: float) -> BlockOutput:
        certain, statistics = session.certain, session.statistics
        assert certain.stop_reason is not None
        for block, choices in certain.choices.items():
            self._lengths[block].outputs += 1
            self._lengths[block].choices += len(choices)
        statistics.chosen, statistics.forced, statistics.narrowed = certain.chosen, certain.forced, certain.narrowed
        statistics.sequential_passes = certain.chosen + (certain.stop_reason in ("stop", "not_finite"))
        statistics.seconds = time.perf_counter() - started
        text = b"".join(map(self._vocabulary.token, certain.tokens))
        return BlockOutput(certain.tokens, text, certain.matcher.is_accepting(), certain.stop_reason, statistics)
