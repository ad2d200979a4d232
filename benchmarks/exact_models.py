"""Exact sampling with models of tokens: a toy whose language can be enumerated, and SmolLM2, as the author of texts and as a policy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from exact_policies import SAMPLES, Row, environment_of, p_value

from stcc.compiler import compile_regex
from stcc.formats import Vocabulary
from stcc.runtime import load
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.enumeration import normalized, proposal_law, total_variation, valid_law
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.local_masking import ActionMask, masked_kernel
from stcc.runtime.exact.model_policy import ModelPolicy, live_histories
from stcc.runtime.exact.samplers import TooManyAttemptsError
from stcc.runtime.exact.score_table import load_scores, save_scores
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank
from stcc.runtime.exact.text import MaskedText, TextCars, TextSample, TextSampler
from stcc.runtime.exact.token_models import FunctionTokens, ModelTokens
from stcc.runtime.exact.transcript import Transcript

TOKENS = (b"a", b"b", b"ab", b"ba", b"c", b"", b"bc")
STOP, LIMIT = 5, 5
LANGUAGE = "(ab|ba){1,2}c?"
TASKS = (
    ("one of 5 colours", "(red|green|blue|dark green|light blue)[.]?", 8,
     "Name one colour of these and nothing else, in lower case: red, green, blue, dark green, light blue."),
    ("a date", (SAMPLES / "iso_date.regex").read_text().strip(), 12, (SAMPLES / "iso_date.prompt.txt").read_text()),
    ("a version", (SAMPLES / "semver.regex").read_text().strip(), 12, (SAMPLES / "semver.prompt.txt").read_text()),
)
"""Name, pattern, most tokens, prompt."""
LABELS = (SAMPLES / "policies" / "refund.prompt.txt").read_text().strip()


# -- a language that can be enumerated -------------------------------------------------------------------------------------


@cache
def toy(seed: int, taken: tuple[int, ...]) -> Any:
    """Probabilities of the next token: every sequence has its own, made of a hash."""
    digest = hashlib.blake2b(json.dumps([seed, *taken]).encode(), digest_size=8).digest()
    weights = np.exp(np.random.default_rng(int.from_bytes(digest, "little")).normal(0.0, 1.5, len(TOKENS)))
    return weights / weights.sum()


def enumerated(seed: int) -> dict[tuple[int, ...], float]:
    """P of every token sequence of the language, stop token included, by Python's ``re``."""
    law = {}
    for length in range(LIMIT + 1):
        for taken in product([token for token in range(len(TOKENS)) if TOKENS[token]], repeat=length):
            if re.fullmatch(LANGUAGE.encode(), b"".join(TOKENS[token] for token in taken)):
                sequence = (*taken, STOP)
                law[sequence] = float(np.prod([toy(seed, sequence[:place])[token] for place, token in enumerate(sequence)]))
    return law


def frequencies(drawn: list[Any]) -> dict[Any, float]:
    return {one: drawn.count(one) / len(drawn) for one in set(drawn)}


def toy_text(seeds: int, samples: int) -> list[Row]:
    """Both samplers against the enumerated conditional; the floor is the distance of as many perfect draws, mean of 50."""
    grammar = load(compile_regex(LANGUAGE), vocabulary=Vocabulary.from_tokens(TOKENS, [STOP]))
    rows = []
    for seed in range(seeds):
        law = enumerated(seed)
        mass = fsum(law.values())
        target = {sequence: weight / mass for sequence, weight in law.items()}
        cells, rng = list(target), np.random.default_rng(seed)
        floor = [total_variation(frequencies([cells[cell] for cell in rng.choice(len(cells), samples, p=list(target.values()))]), target)
                 for _ in range(50)]
        row: Row = {"seed": seed, "outputs": len(law), "p_valid": mass, "tv_floor": float(np.mean(floor)), "tv_floor_most": max(floor)}
        for name, make in (("exact", TextCars), ("masking", MaskedText)):
            sampler = make(grammar, FunctionTokens(lambda taken, seed=seed: toy(seed, taken), len(TOKENS)), LIMIT)
            drawn = [(*one.tokens, one.stop) for one in sampler.draw(samples, np.random.default_rng(seed))]
            row |= {f"tv_{name}": total_variation(frequencies(drawn), target), f"p_{name}": p_value(drawn, target),
                    f"passes_{name}": sampler.accounting.passes}
            row[f"acceptance_{name}"] = sampler.accounting.accepted / sampler.accounting.attempts
        rows.append(row)
    return rows


# -- SmolLM2 ---------------------------------------------------------------------------------------------------------------


def limited(sampler: TextSampler, count: int, seconds: float) -> list[TextSample]:
    """As many outputs as come in the time allowed, ``count`` at most."""
    drawn: list[TextSample] = []
    rng, started = np.random.default_rng(0), time.perf_counter()
    while len(drawn) < count and time.perf_counter() - started < seconds:
        with contextlib.suppress(TooManyAttemptsError):  # one attempt at a time, so that the clock is looked at
            drawn += sampler.draw(1, rng, 1)
    return drawn


def model_text(loaded: Any, count: int, seconds: float, tasks: int) -> list[Row]:
    """Cost of exact text and of masking, and how far apart they are: the effective number of samples that masking's weights leave."""
    from stcc.runtime.models import model_vocabulary

    vocabulary, rows = model_vocabulary(loaded), []
    for name, pattern, limit, prompt in TASKS[:tasks]:
        grammar = load(compile_regex(pattern), vocabulary=vocabulary)
        for kind, make in (("exact", TextCars), ("masking", MaskedText)):
            sampler = make(grammar, ModelTokens(loaded.model, loaded.prompt_tokens(prompt), vocabulary.size), limit)
            drawn = limited(sampler, count, seconds)
            cost, weights = sampler.accounting, np.array([one.weight for one in drawn])
            rows.append({
                "task": name, "sampler": kind, "outputs": len(drawn), "attempts": cost.attempts,
                "acceptance": cost.accepted / cost.attempts, "passes": cost.passes, "passes/output": cost.passes / max(len(drawn), 1),
                "tokens read": cost.fed, "seconds": cost.seconds,
                "p_valid": sampler.validity if isinstance(sampler, TextCars) else float(weights.mean()),
                "effective": float(weights.sum() ** 2 / (weights ** 2).sum()) if len(weights) else 0.0,
                "most frequent": max(sorted({one.text.decode() for one in drawn}), default="-",
                                     key=lambda text, drawn=drawn: sum(one.text.decode() == text for one in drawn)),
            })
    return rows


def model_policy(loaded: Any, samples: int, temperatures: Sequence[float]) -> list[Row]:
    """SmolLM2 as the policy of the refund workflow: cost of scoring, laws enumerated, and draws replayed."""
    environment, rows = environment_of("refund"), []
    graph = environment.graph
    transcript = Transcript.of(graph, lambda text: loaded.tokenizer.encode(text, add_special_tokens=False), loaded.prompt_tokens(LABELS))
    for temperature in temperatures:
        policy = ModelPolicy(loaded.model, transcript, temperature=temperature)
        scored = policy.score(live_histories(environment))

        def sampler_of(source: Any) -> StatefulCars:
            walk = HistoryWalk(source, environment.actions, Accounting())
            return StatefulCars(environment, walk, bank=compiled_bank(environment), update="none")

        sampler = sampler_of(policy)
        drawn = sampler.draw(samples, np.random.default_rng(0))
        walk = HistoryWalk(policy, environment.actions, Accounting())
        valid = valid_law(environment, walk)
        target = normalized(valid)
        masked = normalized(valid_law(environment, walk, masked_kernel(ActionMask(environment, walk, "state_aware"))))
        with tempfile.TemporaryDirectory() as folder:
            save_scores(Path(folder) / "scores.json", graph, policy.table, {"model": loaded.name})
            replayed = sampler_of(load_scores(Path(folder) / "scores.json", graph)).draw(samples, np.random.default_rng(0))
        rows.append({
            "temperature": temperature, "histories": scored, "passes": policy.cost.passes, "tokens read": policy.cost.tokens,
            "seconds": policy.cost.seconds, "label tokens": sum(map(len, transcript.labels)), "p_valid": fsum(valid.values()),
            "tv_exact": total_variation(normalized(proposal_law(sampler.proposal)), target), "tv_local": total_variation(masked, target),
            "samples": samples, "p": p_value([(one.world, one.history) for one in drawn], target), "replayed alike": replayed == drawn,
        })
    return rows
