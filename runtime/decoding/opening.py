"""How an output begins: the limits that hold for it, and the prompt read but for its last token.

In: a prompt, a grammar and a limit. Out: an ``Opening``: the certain trail at its first choice, and an anchor that holds the prompt. What a
prompt cache has of the prompt is not read again, and what was read is left there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stcc.runtime.decoding.errors import ContextExceeded, EmptyPromptError
from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.rows import Anchor
from stcc.runtime.decoding.trail import Trail
from stcc.runtime.errors import VocabularyRequired

if TYPE_CHECKING:
    from stcc.runtime.decoding.block_plan import BlockPlan
    from stcc.runtime.decoding.prompt_cache import PromptCache
    from stcc.runtime.grammar import Grammar


@dataclass
class Opening:
    """See the module's text.

    Attributes:
        prompt: the prompt's tokens.
        certain: the output, at its first choice, or over before any.
        anchor: holds the prompt but for its last token; nothing if the output is over.
        prefill_passes: passes made.
        cached_tokens: tokens that the prompt cache had.
    """

    prompt: list[int]
    certain: Trail
    anchor: Anchor
    prefill_passes: int = 0
    cached_tokens: int = 0


def begin(model: DecodingModel, grammar: Grammar, prompt_tokens: Sequence[int], max_tokens: int | None, plan: BlockPlan | None,
          prompt_cache: PromptCache | None) -> Opening:
    """Begin an output.

    Args:
        model: the model.
        grammar: loaded with the model's vocabulary.
        prompt_tokens: at least one.
        max_tokens: most tokens of the output; None for no limit but the model's context.
        plan: the grammar's blocks, if they matter.
        prompt_cache: where the prompt is looked up and left.

    Raises:
        EmptyPromptError: no prompt tokens.
        VocabularyRequired: the grammar was loaded without a vocabulary.
        BudgetTooSmall: no valid output fits in ``max_tokens``.
        ContextExceeded: the prompt leaves no room for a valid output in the model's context.
    """
    prompt = [int(token) for token in prompt_tokens]
    if not prompt:
        raise EmptyPromptError
    if grammar.vocabulary is None:
        raise VocabularyRequired(grammar.name)
    limit = _limit(model, grammar, len(prompt), max_tokens)
    unlimited = None if limit is None else grammar.matcher(canonical=True)
    certain = Trail(grammar.matcher(limit, canonical=True), unlimited, plan, grammar.vocabulary, [])
    opening = Opening(prompt, certain, Anchor([], 0))
    if certain.stop_reason is None:
        _read(opening, model, prompt_cache)
    return opening


def _limit(model: DecodingModel, grammar: Grammar, prompt: int, max_tokens: int | None) -> int | None:
    """The token limit, that of the model's context included."""
    if model.context_length is None:
        return max_tokens
    need, room = 0 if grammar.binding.has_no_needs else grammar.need(), model.context_length - prompt
    if need > room:
        raise ContextExceeded(prompt, model.context_length, need)
    return room if max_tokens is None else min(max_tokens, room)


def _read(opening: Opening, model: DecodingModel, prompt_cache: PromptCache | None) -> None:
    tokens = opening.prompt[:-1]
    cache: Cache
    cache, length = (model.make_cache(), 0) if prompt_cache is None else prompt_cache.fetch(tokens)
    opening.cached_tokens, opening.prefill_passes = length, model.prefill(tokens[length:], cache)
    if prompt_cache is not None and length < len(tokens):
        prompt_cache.insert(tokens, cache)
    opening.anchor = Anchor(cache, len(tokens))
