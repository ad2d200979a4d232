"""mlx-lm's samplers and penalties for one row, seeded so that a row's draws depend on nothing but its own.

In: a ``Choosing``. Out: a sampler and logits processors in mlx-lm's form. Draw ``n`` sets MLX's key from ``(seed, n)``; greedy rows have
no sampler of their own, so that mlx-lm chooses for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stcc.runtime.server.job import Choosing


def row_sampler(choosing: Choosing, width: int, draws: Callable[[], int]) -> Any:
    """mlx-lm's sampler: log-probabilities ``[1, head]`` to a token ``[1]``; None for a greedy choice.

    Args:
        choosing: how.
        width: of the head.
        draws: the choices made before.
    """
    if choosing.temperature == 0:
        return None
    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    chosen = make_sampler(
        temp=choosing.temperature, top_p=choosing.top_p if choosing.top_p < 1 else 0.0, min_p=choosing.min_p,
        top_k=choosing.top_k if choosing.top_k < width else 0, xtc_probability=choosing.xtc_probability,
        xtc_threshold=choosing.xtc_threshold)

    def sampler(logprobs: Any) -> Any:
        mx.random.seed((choosing.seed << 32) + draws())
        return chosen(logprobs)

    return sampler


def row_penalties(choosing: Choosing) -> list[Any]:
    """mlx-lm's logits processors: tokens so far ``[n]`` and logits ``[1, head]`` to logits. Empty where nothing is asked for."""
    from mlx_lm.sample_utils import make_logits_processors

    found: list[Any] = make_logits_processors(
        dict(choosing.bias) or None, choosing.repetition_penalty or None, presence_penalty=choosing.presence_penalty or None,
        frequency_penalty=choosing.frequency_penalty or None)
    return found
