"""Decoding one output with an MLX model: where it starts.

The loop is ``stcc.runtime.decoding.loop``; docs/decoding.md says what it does. Importing this module imports no MLX.

>>> from stcc.runtime import load                                                            # doctest: +SKIP
>>> from stcc.runtime.models import load_model                                               # doctest: +SKIP
>>> smollm2 = load_model("smollm2")                                                          # doctest: +SKIP
>>> grammar = load("person.stc", vocabulary=vocabulary)                                      # doctest: +SKIP
>>> generation = generate(smollm2.model, grammar, smollm2.prompt_tokens("Who is Ada?"))      # doctest: +SKIP
>>> for piece in generation.pieces(): print(piece, end="")                                   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stcc.runtime.decoding.constraint import Constraint, Unconstrained
from stcc.runtime.decoding.errors import ContextExceeded, DecodeError, EmptyPromptError, NarrowHeadError
from stcc.runtime.decoding.healing import Healing
from stcc.runtime.decoding.loop import Generation
from stcc.runtime.decoding.model import Cache, DecodingModel
from stcc.runtime.decoding.results import Span, Statistics, StopReason
from stcc.runtime.decoding.sampling import LogitsProcessor, Sampler, Sampling
from stcc.runtime.decoding.settings import Forcing, Loop, Settings
from stcc.runtime.errors import BudgetTooSmall, VocabularyRequired

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.grammar import Grammar

__all__ = [
    "Constraint", "ContextExceeded", "DecodeError", "DecodingModel", "EmptyPromptError", "Forcing", "Generation", "Healing", "Loop",
    "NarrowHeadError", "Sampling", "Settings", "Span", "Statistics", "StopReason", "Unconstrained", "generate", "generate_with",
]


def generate(model: Any, grammar: Grammar, prompt_tokens: Sequence[int], *, max_tokens: int | None = None, temperature: float = 0.0,
             top_p: float = 1.0, seed: int = 0, top_k: int = 0, min_p: float = 0.0, sampler: Sampler | None = None,
             logits_processors: Sequence[LogitsProcessor] = (), forcing: Forcing = "span", loop: Loop = "sync",
             healing: Healing | None = None, cache: Cache | None = None, cached: int = 0) -> Generation:
    """Decode one output of ``grammar`` after ``prompt_tokens``.

    Args:
        model: an mlx-lm model, or a ``DecodingModel``.
        grammar: loaded with the model's vocabulary; the model's head may be wider (padding is never chosen), not narrower.
        prompt_tokens: at least one.
        max_tokens: most tokens emitted; every mask keeps a valid ending within reach (Theorem 21), and so it does for the model's context.
            None: no limit but the context. A prompt token that healing opens again does not count.
        temperature: 0 is greedy.
        top_p: share of the allowed mass that is sampled from.
        seed: of the draws.
        top_k: most likely tokens that are sampled from; 0 for all.
        min_p: least likelihood that is sampled from, relative to the likeliest token.
        sampler: mlx-lm's (``make_sampler``) or the caller's, log-probabilities ``[1, head]`` to a token ``[1]``, in place of the above.
        logits_processors: mlx-lm's, applied before the mask. In loops that run ahead they get tokens whose values are still to come.
        forcing: ``span`` feeds forced text along with the token before it; ``step`` feeds it token by token (same tokens, more passes);
            ``off`` forces nothing: the model spells out every token under the mask.
        loop: ``sync``, ``pipelined`` or ``eager``; see ``stcc.runtime.decoding.loop``. The tokens are the same.
        healing: spells boundaries as the tokenizer would; see ``stcc.runtime.decoding.healing``.
        cache: the model's, holding the first ``cached`` prompt tokens; it is used up.
        cached: prompt tokens that are not fed again.

    Returns:
        The generation, not yet started.

    Raises:
        EmptyPromptError: no prompt tokens.
        ContextExceeded: the shortest output does not fit the model's context after the prompt.
        BudgetTooSmall: no valid output fits in ``max_tokens``.
        NarrowHeadError: on the first pass, if the model scores fewer tokens than the vocabulary has.
        VocabularyRequired: the grammar was loaded without a vocabulary.
        DecodeError: an option out of range, or options that do not go together.
    """
    model = model if isinstance(model, DecodingModel) else DecodingModel(model)
    sampling = Sampling(temperature, top_p, seed, top_k, min_p)
    settings = Settings(max_tokens, sampling, sampler, logits_processors, forcing, loop, healing, cache, cached)
    settings.check(prompt_tokens)
    if grammar.vocabulary is None:
        raise VocabularyRequired(grammar.name)
    room = None if model.context_length is None else max(model.context_length - len(prompt_tokens), 0)
    by_context = room is not None and (max_tokens is None or room < max_tokens)
    try:
        matcher = grammar.matcher(max_tokens=room if by_context else max_tokens, canonical=forcing != "off")
    except BudgetTooSmall as error:
        if by_context and model.context_length is not None:
            raise ContextExceeded(len(prompt_tokens), model.context_length, error.need) from None
        raise
    return Generation(model, matcher, grammar.vocabulary, prompt_tokens, settings, "context" if by_context else "length")


def generate_with(model: Any, constraint: Constraint, vocabulary: Vocabulary, prompt_tokens: Sequence[int],
                  settings: Settings | None = None) -> Generation:
    """Decode one output under any ``Constraint``, in the sync loop unless it is a ``Matcher``.

    Args:
        model: an mlx-lm model, or a ``DecodingModel``.
        constraint: at the start of the output.
        vocabulary: the model's; it says which tokens end an output, and what the others spell.
        prompt_tokens: at least one.
        settings: how to decode; ``max_tokens`` cuts the output, unless the constraint is a ``Matcher`` that has a budget.

    Raises:
        DecodeError: as ``generate``.
    """
    model = model if isinstance(model, DecodingModel) else DecodingModel(model)
    return Generation(model, constraint, vocabulary, prompt_tokens, settings or Settings())
