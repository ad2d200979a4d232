"""Decoding with regions read ahead: where few strings may follow, all are read in one pass and the choices are made among their scores.

In: a model, a grammar, a prompt and how tokens are chosen, greedily or sampled. Out: the tokens that decoding one token after the other
would have chosen, in at most as many passes. At a choice the strings that may follow (``regions.near_strings``) are spelled with the
longest tokens that the mask allows, and each is a row of one batch behind the text. The scores at every choice of every row are exact, so
that the walk from choice to choice needs no further pass as long as it stays on a row; where the model chooses another token than any row
has, that token is right all the same, and the next pass goes on from it. So a region of r strings, which has at most r - 1 choices on any
way through it, costs one pass in place of one a choice.

Sampled choices draw as ``stcc.runtime.decode`` does: draw n depends on the seed, n and the scores alone, so that the text is the same.

Where no string holds a second choice the pass reads one row, as in sequential decoding. A pass over r rows may take longer than one over a
single row, which ``row_steps`` lets one judge.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcc.runtime.bitmask import apply_token_bitmask
from stcc.runtime.decoding.errors import DecodeError, NarrowHeadError
from stcc.runtime.decoding.opening import Opening, begin
from stcc.runtime.decoding.regions import MOST_STRINGS, near_strings
from stcc.runtime.decoding.rows import Anchor, Rows, copy_cache, require_batches
from stcc.runtime.decoding.sampling import Chooser, Sampling
from stcc.runtime.decoding.spelling import longest_token
from stcc.runtime.errors import VocabularyRequired

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.decoding.model import DecodingModel
    from stcc.runtime.decoding.prompt_cache import PromptCache
    from stcc.runtime.decoding.results import StopReason
    from stcc.runtime.decoding.trail import Trail
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.stack import Configuration

MOST_ROW_TOKENS = 192
"""Most tokens of all rows together, pending text left out: where the strings are longer, one row is read."""
MOST_REMEMBERED = 1 << 12
"""Configurations whose strings are kept."""


@dataclass
class RegionStatistics:
    """What an output cost.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those that a prompt cache had.
        prefill_passes: passes over the prompt but its last token.
        passes: passes that scored a choice.
        region_passes: of them, those over several rows or choices.
        row_steps: rows fed, over all passes.
        chosen: tokens chosen, stop tokens not counted.
        forced: tokens added without a choice.
        sequential_passes: passes of sequential decoding, which makes one for each choice.
        seconds: in all.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_passes: int = 0
    passes: int = 0
    region_passes: int = 0
    row_steps: int = 0
    chosen: int = 0
    forced: int = 0
    sequential_passes: int = 0
    seconds: float = 0.0

    @property
    def saved(self) -> int:
        """Passes fewer than sequential decoding makes."""
        return self.sequential_passes - self.passes


@dataclass(frozen=True)
class RegionOutput:
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
    statistics: RegionStatistics


@dataclass
class _Tree:
    """The choices that are read ahead.

    Attributes:
        ends: the trail at the end of each row.
        choices: tokens chosen on the way -> the trail there, and the row that holds it.
    """

    ends: list[Trail]
    choices: dict[tuple[int, ...], tuple[Trail, int]]


class RegionDecoder:
    """Decodes outputs of one grammar with one model; see the module's text."""

    def __init__(self, model: DecodingModel, grammar: Grammar, *, most_strings: int = MOST_STRINGS, sampling: Sampling | None = None,
                 prompt_cache: PromptCache | None = None) -> None:
        """Ready to decode.

        Args:
            model: the model.
            grammar: loaded with the model's vocabulary.
            most_strings: most rows of a pass; 1 decodes sequentially.
            sampling: how tokens are chosen; greedily if left out.
            prompt_cache: where prompts are looked up and left.

        Raises:
            VocabularyRequired: the grammar was loaded without a vocabulary.
            DecodeError: ``most_strings`` is below 1.
            CacheKindError: the model's caches cannot become rows of a batch.
        """
        if grammar.vocabulary is None:
            raise VocabularyRequired(grammar.name)
        if most_strings < 1:
            raise DecodeError(f"most_strings {most_strings} is out of range", "give at least 1")
        if most_strings > 1:
            require_batches(model)
        self._model, self._grammar = model, grammar
        self._vocabulary: Vocabulary = grammar.vocabulary
        self._most, self._prompt_cache = most_strings, prompt_cache
        self._sampling = Sampling() if sampling is None else sampling
        self._strings: dict[Configuration, list[bytes]] = {}

    def decode(self, prompt_tokens: Sequence[int], max_tokens: int | None = None) -> RegionOutput:
        """The output after a prompt.

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
        opening = begin(self._model, self._grammar, prompt_tokens, max_tokens, None, self._prompt_cache)
        statistics = RegionStatistics(len(opening.prompt), opening.cached_tokens, opening.prefill_passes)
        chooser, certain = Chooser(self._sampling), opening.certain
        while certain.stop_reason is None:
            self._pass(opening, chooser, statistics)
        statistics.chosen, statistics.forced = certain.chosen, certain.forced
        statistics.seconds = time.perf_counter() - started
        text = b"".join(map(self._vocabulary.token, certain.tokens))
        return RegionOutput(certain.tokens, text, certain.matcher.is_accepting(), certain.stop_reason, statistics)

    def _pass(self, opening: Opening, chooser: Chooser, statistics: RegionStatistics) -> None:
        """One pass: read the region ahead, and choose as long as its scores say how."""
        certain, anchor, prompt = opening.certain, opening.anchor, opening.prompt
        tree = self._tree(certain)
        pieces = [[*prompt, *end.tokens][anchor.length:] for end in tree.ends]
        places = [(row, len(prompt) + len(trail.tokens) - anchor.length - 1) for trail, row in tree.choices.values()]
        numbers = {key: number for number, key in enumerate(tree.choices)}
        batch = Rows(self._model, [copy_cache(anchor.cache) for _ in pieces])
        logits = batch.feed(pieces, places)
        if logits.shape[-1] < self._vocabulary.size:
            raise NarrowHeadError(logits.shape[-1], self._vocabulary.size)
        statistics.passes += 1
        statistics.region_passes += len(places) > 1
        statistics.row_steps += len(pieces)
        walked: tuple[int, ...] = ()
        last = walked
        while walked in numbers and certain.stop_reason is None:
            last, held = walked, len(prompt) + len(certain.tokens)
            token = self._choose(certain, logits[numbers[walked]:numbers[walked] + 1], chooser, statistics)
            walked = (*walked, token)
        row = tree.choices[last][1]
        opening.anchor = anchor.moved(Anchor(batch.extract(row), anchor.length + len(pieces[row])), held)

    def _choose(self, certain: Trail, logits: Any, chooser: Chooser, statistics: RegionStatistics) -> int:
        """Choose a token at ``certain`` and go on by it."""
        limited = apply_token_bitmask(logits, certain.row()[None])
        choice = chooser.choose(logits, limited, statistics.sequential_passes)
        statistics.sequential_passes += 1
        token, sound = int(choice.token.item()), bool(choice.sound.item())
        if not sound or not certain.choose(token):
            certain.stop_reason = "not_finite" if not sound else "dead_end"
        return token

    def _tree(self, certain: Trail) -> _Tree:
        """The rows that go on from ``certain``: the strings that may follow, or nothing more than ``certain`` itself."""
        alone = _Tree([certain], {(): (certain, 0)})
        configuration = certain.matcher.configuration()
        strings = self._strings.get(configuration)
        if strings is None:
            strings = near_strings(self._grammar.stacks, configuration, self._most) if self._most > 1 else [b""]
            if len(self._strings) < MOST_REMEMBERED:
                self._strings[configuration] = strings
        tree = _Tree([], {})
        for string in strings:
            self._spell(tree, certain, string)
        added = sum(len(end.tokens) - len(certain.tokens) for end in tree.ends)
        return alone if len(tree.choices) < 2 or added > MOST_ROW_TOKENS else tree

    def _spell(self, tree: _Tree, certain: Trail, text: bytes) -> None:
        """Add a row that spells ``text`` as far as it goes, unless another row holds it all."""
        trail, key = certain.fork(), tuple[int, ...]()
        passed = [(key, trail.fork())]
        token = self._longest(trail, text)
        while token is not None:
            length = len(trail.tokens)
            if not trail.choose(token):
                break
            key = (*key, token)
            spelled = b"".join(map(self._vocabulary.token, trail.tokens[length:]))
            if trail.stop_reason is None:
                passed.append((key, trail.fork()))
            if not text.startswith(spelled):
                break
            text = text[len(spelled):]
            token = self._longest(trail, text)
        if key in tree.choices and trail.stop_reason is None:
            return
        number = len(tree.ends)
        tree.ends.append(passed[-1][1])
        for place, (way, there) in enumerate(passed):
            if way not in tree.choices or place == len(passed) - 1:
                tree.choices[way] = (there, number)

    def _longest(self, trail: Trail, text: bytes) -> int | None:
        """The longest token that begins ``text`` and is allowed at ``trail``."""
        if trail.stop_reason is not None:
            return None
        row = trail.row()
        return longest_token(self._vocabulary, text, lambda token: bool(row[token >> 5] >> (token & 31) & 1))
