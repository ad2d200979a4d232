"""``stcc run --read-ahead`` and ``--prompt-cache``: fewer passes over the model for the same text (docs/blocks.md).

In: the grammar, the model and the prompt of a run. Out: its report, as plain data. Options that these decoders do not have are refused, not
ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stcc.runtime.commands.exact_run import is_given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stcc.runtime.decoding.blocks import BlockOutput
    from stcc.runtime.decoding.model import Cache, DecodingModel
    from stcc.runtime.decoding.prompt_cache import PromptCache
    from stcc.runtime.decoding.region_decode import RegionOutput
    from stcc.runtime.grammar import Grammar

READ_AHEAD = ("blocks", "regions")
_NOT_AHEAD = {"loop": "--loop", "forcing": "--forcing", "heal": "--heal"}
_NOT_GREEDY = {"temp": "--temp", "top_p": "--top-p", "top_k": "--top-k", "min_p": "--min-p", "seed": "--seed"}


def refuse_other_options(context: click.Context, read_ahead: str) -> None:
    """UsageError for options that the decoder ``read_ahead`` does not have."""
    refused = _NOT_AHEAD | (_NOT_GREEDY if read_ahead == "blocks" else {})
    for name, option in refused.items():
        if is_given(context, name):
            why = "decodes greedily" if name in _NOT_GREEDY else "feeds forced text in a way of its own"
            raise click.UsageError(f"--read-ahead {read_ahead} {why}: leave out {option}")


def open_prompts(model: DecodingModel, folder: Path | None) -> PromptCache | None:
    """The prompts stored in ``folder``, if one was given; an empty cache if it is new. PromptCacheError if it is another model's."""
    from stcc.runtime.decoding.prompt_cache import PromptCache

    if folder is None:
        return None
    prompts = PromptCache(model)
    if folder.is_dir():
        prompts.load(folder)
    return prompts


def store_prompts(prompts: PromptCache | None, folder: Path | None) -> None:
    """Write the prompts back, if anything was read that they did not hold."""
    if prompts is not None and folder is not None and prompts.statistics.found < prompts.statistics.tokens:
        prompts.save(folder)


def read_prompt(model: DecodingModel, prompts: PromptCache, prompt: Sequence[int], held_back: int) -> tuple[Cache, int]:
    """A cache that has read all of the prompt but ``held_back`` tokens, and how many those are."""
    tokens = list(prompt[:-held_back])
    if not tokens:
        return model.make_cache(), 0
    cache, length = prompts.fetch(tokens)
    model.prefill(tokens[length:], cache)
    if length < len(tokens):
        prompts.insert(tokens, cache)
    return cache, len(tokens)


def decode_ahead(read_ahead: str, model: DecodingModel, grammar: Grammar, prompt: Sequence[int], prompts: PromptCache | None,
                 options: dict[str, Any]) -> dict[str, Any]:
    """Decode by ``blocks`` or ``regions``; the report of the run.

    Raises what ``BlockDecoder`` and ``RegionDecoder`` raise: BudgetTooSmall, ContextExceeded, EmptyPromptError, CacheKindError and others.
    """
    from stcc.runtime.decoding.blocks import BlockDecoder
    from stcc.runtime.decoding.region_decode import RegionDecoder
    from stcc.runtime.decoding.sampling import Sampling

    output: BlockOutput | RegionOutput
    if read_ahead == "blocks":
        output = BlockDecoder(model, grammar, prompt_cache=prompts).decode(prompt, options["max_tokens"])
    else:
        sampling = Sampling(*(options[name] for name in ("temperature", "top_p", "seed", "top_k", "min_p")))
        output = RegionDecoder(model, grammar, sampling=sampling, prompt_cache=prompts).decode(prompt, options["max_tokens"])
    counts = output.statistics
    return {
        "text": output.text.decode("utf-8", "replace"), "valid": output.valid, "tokens": len(output.tokens), "passes": counts.passes,
        "forced": counts.forced, "forced_share": round(counts.forced / len(output.tokens), 4) if output.tokens else 0.0,
        "stop_reason": output.stop_reason, "sampled": counts.chosen, "prefill_passes": counts.prefill_passes,
        "sequential_passes": counts.sequential_passes, "saved": counts.saved, "rows": counts.row_steps,
        "cached_prompt_tokens": counts.cached_tokens, "prompt_tokens": counts.prompt_tokens, "seconds": round(counts.seconds, 4),
        "read_ahead": read_ahead,
    }


def ahead_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The counts that only these decoders have, and what goes with them, for people: name and value."""
    return [
        ("model passes", f"{report['passes']} in place of {report['sequential_passes']} ({report['saved']} saved), {report['rows']} rows, "
                         f"{report['prefill_passes']} for the prompt alone"),
        prompt_row(report),
        ("seconds", f"{report['seconds']:.2f}"),
    ]


def prompt_row(report: dict[str, Any]) -> tuple[str, str]:
    """The prompt's tokens, and how many of them a prompt cache held, if there was one."""
    cached = f" ({report['cached_prompt_tokens']} from the prompt cache)" if "cached_prompt_tokens" in report else ""
    return "prompt tokens", f"{report['prompt_tokens']}{cached}"
