"""Exact sampling of policy-constrained workflows: the tables of the Stateful CARS paper, on the sample policies.

    python benchmarks/exact.py [--quick] [--json OUT] [--seed N] [--no-model]

Models are synthetic: every full history has its own probabilities, made of a hash (``SyntheticPolicy``). Everything named ``tv_`` without
``sampled`` is computed, not sampled: the law of the very kernel that draws, against the enumerated conditional.

* *domains*: histories counted, validity, classes and dead continuations; total variation of Stateful CARS from a bank it learned, and of
  the local masks; share of valid mass that the bank removes.
* *rarity*: refund with validity tuned down; steps an accepted trajectory costs, against terminal rejection (computed).
* *samplers*: all of them on one workflow, with their accounting.
* *matched*: root-prefix CARS over Stateful CARS under one update, one certificate oracle and one model, paired by seed; mean ratio with its
  95 % t interval. A ratio under 1 means root-prefix is cheaper.
* *reuse*: the same sampler with certificates pinned to histories, over certificates shared by abstract state.
* *certificates*: how many the exhaustive bank needs by class, grounded at every history that reaches the class, and the fan-out.
* *worlds*: two satisfiable worlds, the world drawn from its prior and reweighted.
* *abstractions*: what each proposal of the refund policy's author removes.
* *sqlite*: the transaction policy judged by a real database.
* *toy text*: exact text and masking on a language that can be enumerated.
* *SmolLM2*: texts of three patterns, cost of exact draws beside masking's; and the refund policy, its labels scored by the model. On Linux,
  give MLX a fast BLAS (docs/decoding.md). ``--no-model`` leaves it out; it is left out, too, where the weights cannot be had.
* *must show*: what conformance asks for, one line a claim (``exact_conformance``).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from math import fsum, sqrt
from pathlib import Path
from typing import Any

import exact_conformance
import exact_models
import numpy as np
from exact_policies import ALPHA, DOMAINS, LARGE, Row, attempts, environment_of, walk_of

from stcc.formats.policy import world_counts
from stcc.runtime.exact.abstraction import Abstraction, HistoryAbstraction
from stcc.runtime.exact.action_prefix import ActionRootPrefixCars
from stcc.runtime.exact.bank import Bank
from stcc.runtime.exact.enumeration import (
    Law,
    empirical_law,
    excluded_valid_mass,
    normalized,
    proposal_law,
    total_variation,
    valid_law,
)
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk
from stcc.runtime.exact.local_masking import ActionMask, IndependenceMetropolis, LocalMasking, TerminalRejection, masked_kernel
from stcc.runtime.exact.particles import AdaptiveWeightedRejection, ParticleFilter
from stcc.runtime.exact.root_prefix import RootPrefixCars, VisitedGrounding
from stcc.runtime.exact.samplers import Sampler
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank, every_certificate

TILTS = ((0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 0.0, -2.0, 0.0, 1.0), (0.0, 0.0, -3.0, 0.0, 2.4), (0.0, 0.0, -4.0, 0.0, 3.4))
"""Added to the logits of AUTH, PROBE, REFUND, READ, STOP; the last gives a validity of some 6e-8."""
T_FOUR = 2.776  # 97.5 % quantile of Student's t with four degrees of freedom: five paired seeds
SEEDS = 5


def local_law(environment: Environment, walk: HistoryWalk, kind: str) -> Law:
    return normalized(valid_law(environment, walk, masked_kernel(ActionMask(environment, walk, kind))))


def domain(name: str, seed: int, quick: bool) -> Row:
    environment = environment_of(name)
    graph, walk = environment.graph, walk_of(environment, seed)
    valid = valid_law(environment, walk)
    target = normalized(valid)
    sampler = StatefulCars(environment, walk, Abstraction.named(environment, "observed_state"))
    attempts(sampler, (3 if quick else 10) if name in LARGE else 60, seed)
    law = proposal_law(sampler.proposal)
    counts = world_counts(graph)
    return {
        "traces": counts[0].traces, "valid": max(count.valid for count in counts), "prefixes": counts[0].prefixes,
        "valid_by_world": {count.world: count.valid for count in counts}, "p_valid": fsum(valid.values()),
        "classes": len(graph.class_accepting), "dead": len(graph.dead), "bank": len(sampler.store.current.pairs),
        "acceptance": fsum(law.values()), "tv_exact": total_variation(normalized(law), target),
        "excluded_valid_mass": excluded_valid_mass(target, sampler.store.current, sampler.abstraction),
        "tv_local": total_variation(local_law(environment, walk, "state_aware"), target),
        "tv_local_blind": total_variation(local_law(environment, walk, "blind"), target) if name not in LARGE or not quick else None,
    }


def expected_length(environment: Environment, walk: HistoryWalk) -> float:
    """Mean number of actions of a trajectory of the model."""
    total = 0.0
    stack = [(0, start, weight) for start, weight in zip(environment.starts, environment.world_weights, strict=True)]
    while stack:
        node, configuration, weight = stack.pop()
        if environment.running[configuration]:
            total += weight
            for action, chance in enumerate(walk.probabilities(node)):
                stack += [(walk.advance(node, action, seen), target, weight * chance * share)
                          for seen, target, share in environment.outcomes[configuration][action]]
    return total


def rarity(seed: int, samples: int) -> list[Row]:
    environment, rows = environment_of("refund"), []
    for tilt in TILTS:
        walk = walk_of(environment, seed, tilt)
        valid = valid_law(environment, walk)
        target, chance = normalized(valid), fsum(valid.values())
        sampler = StatefulCars(environment, walk_of(environment, seed, tilt))
        drawn = sampler.draw(samples, np.random.default_rng(seed))
        rejection = expected_length(environment, walk) / chance
        steps = sampler.accounting.per_accept("sampler_steps")
        rows.append({
            "p_valid": chance, "tv_exact": total_variation(normalized(proposal_law(sampler.proposal)), target),
            "tv_local": total_variation(local_law(environment, walk, "state_aware"), target),
            "tv_sampled": total_variation(empirical_law((one.world, one.history) for one in drawn), target), "steps": steps,
            "steps_rejection": rejection, "ratio": rejection / steps,
        })
    return rows


def samplers(seed: int, samples: int) -> list[Row]:
    environment = environment_of("refund")
    target = normalized(valid_law(environment, walk_of(environment, seed)))
    makers: list[tuple[int, Callable[[Environment, HistoryWalk], Sampler]]] = [
        (samples, StatefulCars), (samples, lambda env, walk: StatefulCars(env, walk, update="post_invalid")),
        (samples, lambda env, walk: StatefulCars(env, walk, bank=compiled_bank(env), update="none")),
        (samples, RootPrefixCars), (samples, ActionRootPrefixCars),
        (samples, lambda env, walk: VisitedGrounding(env, walk, update="post_invalid")),
        (samples // 50, TerminalRejection), (samples, LocalMasking), (samples, lambda env, walk: LocalMasking(env, walk, "blind")),
        (samples, IndependenceMetropolis), (samples // 10, ParticleFilter), (samples // 10, AdaptiveWeightedRejection),
    ]
    names = {1: "stateful_cars, post_invalid", 2: "stateful_cars, compiled bank", 5: "visited_grounding, post_invalid"}
    rows = []
    for number, (count, make) in enumerate(makers):
        sampler = make(environment, walk_of(environment, seed))
        drawn = sampler.draw(count, np.random.default_rng(seed))
        if isinstance(sampler, (RootPrefixCars, ActionRootPrefixCars)):
            sampler.measure()
        cost = sampler.accounting
        floor = [total_variation(empirical_law([list(target)[cell] for cell in np.random.default_rng(again).choice(
            len(target), count, p=list(target.values()))]), target) for again in range(3)]
        rows.append({
            "sampler": names.get(number, sampler.name), "samples": count,
            "tv_sampled": total_variation(empirical_law((one.world, one.history) for one in drawn), target),
            "tv_floor": sum(floor) / len(floor),
            **{key: cost.per_accept(key) for key in ("sampler_steps", "policy_calls", "validator_calls")},
            "distinct_policy_calls": cost.distinct_policy_calls, "residual_nodes": cost.residual_nodes,
            "memory_entries": cost.memory_entries, "memory_bytes": cost.memory_bytes, "seconds": cost.seconds,
        })
    return rows


def ratio(pairs: list[tuple[float, float]]) -> Row:
    """Mean of the paired ratios, with its 95 % interval."""
    values = np.array([numerator / denominator for numerator, denominator in pairs if denominator])
    if not len(values):
        return {"ratio": None, "low": None, "high": None}
    half = T_FOUR * float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0
    return {"ratio": float(values.mean()), "low": float(values.mean()) - half, "high": float(values.mean()) + half}


MEASURED = ("sampler_steps", "policy_calls", "distinct_policy_calls", "memory_entries", "memory_bytes", "seconds")


def paired(name: str, samples: int, left: Callable[[Environment, HistoryWalk], Sampler],
           right: Callable[[Environment, HistoryWalk], Sampler]) -> Row:
    """Per counter, left over right, seed by seed: the seed names the model and drives the draws of both."""
    environment = environment_of(name)
    found: dict[str, list[tuple[float, float]]] = {key: [] for key in MEASURED}
    for seed in range(SEEDS):
        costs = []
        for make in (left, right):
            sampler = make(environment, walk_of(environment, seed))
            sampler.draw(samples, np.random.default_rng(seed))
            if isinstance(sampler, (RootPrefixCars, ActionRootPrefixCars)):
                sampler.measure()
            costs.append(sampler.accounting)
        for key in MEASURED:
            found[key].append((float(getattr(costs[0], key)), float(getattr(costs[1], key))))
    return {"domain": name, "samples": samples, **{key: ratio(pairs) for key, pairs in found.items()}}


def matched(samples: int) -> Row:
    """In refund one world can be satisfied, so that drawing the world from its prior is exact there, as in the paper."""
    def conservative(environment: Environment, walk: HistoryWalk, world_draw: str = "reweighted") -> Sampler:
        return StatefulCars(environment, walk, Abstraction.named(environment, "observed_state"), world_draw=world_draw)

    found = {f"{name}, {label}": paired(name, samples, RootPrefixCars, stateful) for name in ("refund", "two_worlds")
             for label, stateful in (("conservative state", conservative), ("coarsest state", StatefulCars))}
    found["refund, conservative state, world from its prior"] = paired(
        "refund", samples, lambda environment, walk: RootPrefixCars(environment, walk, world_draw="prior"),
        lambda environment, walk: conservative(environment, walk, "prior"))
    found["refund, coarsest state, root-prefix keyed by actions"] = paired("refund", samples, ActionRootPrefixCars, StatefulCars)
    return found


def reuse(samples: int) -> Row:
    def pinned(environment: Environment, walk: HistoryWalk) -> Sampler:
        return StatefulCars(environment, walk, HistoryAbstraction(environment))

    return paired("refund", samples, pinned, StatefulCars)


def certificates(name: str) -> Row:
    """Histories are counted along live classes; a history grounds every certificate of the class that it reaches."""
    environment = environment_of(name)
    reaching = [1] + [0] * (len(environment.classes) - 1)
    for number, moves in enumerate(environment.classes):
        for targets in moves:
            for target in targets.values():
                reaching[target] += reaching[number]
    dead = environment.graph.dead.tolist()
    bearing = sorted({number for number, _ in dead})
    fan_out = [reaching[number] for number in bearing]
    grounded = sum(reaching[number] for number, _ in dead)
    conservative = every_certificate(Abstraction.named(environment, "observed_state"))
    return {"by_class": len(dead), "by_conservative_state": len(conservative), "grounded": grounded, "ratio": grounded / len(dead),
            "bearing_classes": len(bearing), "histories": sum(fan_out), "fan_out_mean": sum(fan_out) / len(fan_out),
            "fan_out_most": max(fan_out)}


def worlds(seed: int, samples: int) -> Row:
    environment = environment_of("two_worlds")
    target = normalized(valid_law(environment, walk_of(environment, seed)))
    result: Row = {"support": len(target), "target_marginal": fsum(weight for (world, _), weight in target.items() if world == 0)}
    for draw in ("prior", "reweighted"):
        sampler = StatefulCars(environment, walk_of(environment, seed), world_draw=draw)
        drawn = sampler.draw(samples, np.random.default_rng(seed))
        law = normalized(proposal_law(sampler.proposal, draw))
        result[draw] = {"tv": total_variation(law, target), "marginal": fsum(weight for (world, _), weight in law.items() if world == 0),
                        "tv_sampled": total_variation(empirical_law((one.world, one.history) for one in drawn), target),
                        "steps": sampler.accounting.per_accept("sampler_steps")}
    return result


def abstractions(seed: int) -> list[Row]:
    environment = environment_of("refund")
    target, rows = normalized(valid_law(environment, walk_of(environment, seed))), []
    for verdict in environment.graph.abstractions:
        for transfer in (False, True):
            abstraction = Abstraction.named(environment, verdict.name, transfer)
            bank = Bank(0, frozenset(every_certificate(abstraction)))
            rows.append({"abstraction": verdict.name, "certificates": "taken over" if transfer else "proved", "keys": verdict.keys,
                         "sound": verdict.sound, "bank": len(bank.pairs),
                         "removed_valid_mass": excluded_valid_mass(target, bank, abstraction)})
    return rows


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['ratio']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" if value.get("ratio") is not None else "-"
    if isinstance(value, float):
        return f"{value:.2e}" if value and (abs(value) < 1e-3 or abs(value) >= 1e6) else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else "-" if value is None else str(value)


def print_table(title: str, rows: list[Row]) -> None:
    columns = [key for key, value in rows[0].items() if not isinstance(value, dict) or "ratio" in value]
    print(f"\n{title}\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for row in rows:
        print("| " + " | ".join(shown(row[key]) for key in columns) + " |", flush=True)


def must_show(result: Row) -> list[tuple[str, str]]:
    """Claim and measurement, one line each."""
    refund, checks = result["refund"], result["conformance"]
    runs = checks["instrumented"]
    worlds_tested = {row["world drawn"]: row for row in checks["two_worlds"]}
    arm = result["matched"]["refund, conservative state"]
    lines = [
        ("refund, a world: complete traces, valid, prefixes", f"{refund['traces']:,}, {refund['valid']}, {refund['prefixes']:,}"),
        ("frozen banks: TV to the enumerated conditional, most", f"{checks['banks']['tv_most']:.1e} at P(valid) "
         f"{checks['banks']['p_valid']:.1e}; {checks['rare_banks']['tv_most']:.1e} at {checks['rare_banks']['p_valid']:.1e}"),
    ]
    lines += [(f"abstraction {row['abstraction']} ({'sound' if row['sound'] else 'unsound'})",
               f"all its certificates remove {row['removed_by_all']:.6f} of the valid mass; {row['certificates_that_remove_some']} remove "
               f"some, one by one: |TV - removed| at most {row['tv_minus_removed_most']:.1e}") for row in checks["unsound"]]
    lines += [
        (f"{exact_conformance.INSTRUMENTED} attempts in each domain: bank writes inside", str(sum(row["writes_inside"] for row in runs))),
        ("  versions after which acceptance fell", f"{sum(row['acceptance_falls'] for row in runs)} of "
         f"{sum(row['versions'] for row in runs)}"),
        ("  residuals that compression changes in any bit", f"{sum(row['differing'] for row in runs)} of "
         f"{sum(row['residuals'] for row in runs):,}"),
        ("  valid mass excluded, most over all versions", f"{max(row['excluded_valid_mass'] for row in runs):g} (five domains)"),
        ("local state-aware masking, TV beside exact", "; ".join(
            f"{name} {result[name]['tv_local']:.3f} beside {result[name]['tv_exact']:.0e}" for name in DOMAINS)),
        (f"two worlds, N = {worlds_tested['prior']['samples']:,}, five seeds, alpha {ALPHA}", f"prior: p at most "
         f"{worlds_tested['prior']['p_most']:.4f} (biased); reweighted: p at least {worlds_tested['reweighted']['p_least']:.4f}"),
        ("root-prefix over Stateful, steps, policy calls, distinct", ", ".join(shown(arm[key]) for key in MEASURED[:3])),
        ("certificates by class, grounded, fan-out mean and most", "; ".join(
            f"{name} {row['by_class']}, {row['grounded']}, {row['fan_out_mean']:.1f}, {row['fan_out_most']}"
            for name, row in result["certificates"].items())),
        ("toy text: TV exact, masking, floor (most)", "; ".join(
            f"{row['tv_exact']:.3f}, {row['tv_masking']:.3f}, {row['tv_floor']:.3f} ({row['tv_floor_most']:.3f})"
            for row in result["toy_text"])),
        (f"toy text: p of exact and of masking, alpha {ALPHA}", "; ".join(
            f"{row['p_exact']:.3f}, {row['p_masking']:.4f}" for row in result["toy_text"])),
        ("sqlite3: accepted that committed, rejected that left no trace", "{committed} of {accepted}, {untouched} of {rejected}".format(
            **checks["database"])),
    ]
    lines += [(f"SmolLM2, {row['task']}, {row['sampler']}",
               f"{row['outputs']} outputs of {row['attempts']} attempts, {row['passes']} passes, {row['seconds']:.1f} s, "
               f"P(valid) {row['p_valid']:.1e}, effective samples {row['effective']:.1f}") for row in result.get("model_text", [])]
    lines += [(f"SmolLM2 as the policy, temperature {row['temperature']:g}",
               f"{row['histories']} histories, {row['passes']} passes; P(valid) {row['p_valid']:.1e}, TV exact {row['tv_exact']:.0e}, "
               f"local {row['tv_local']:.3f}; replayed alike: {row['replayed alike']}") for row in result.get("model_policy", [])]
    return lines


def conformance(seed: int, quick: bool) -> Row:
    return {"banks": exact_conformance.frozen_banks(seed), "rare_banks": exact_conformance.frozen_banks(seed, exact_conformance.RARE),
            "instrumented": [exact_conformance.instrumented(name, seed) for name in DOMAINS], "unsound": exact_conformance.unsound(seed),
            "two_worlds": exact_conformance.two_worlds(4000, SEEDS), "database": exact_conformance.database(seed, 100 if quick else 300)}


def with_model(result: Row, quick: bool) -> None:
    """Add what SmolLM2 does; say so where it cannot be had."""
    from stcc.runtime.models import ModelError, load_model

    try:
        loaded = load_model("smollm2")
    except ModelError as error:
        print(f"\nSmolLM2 is left out: {error}")
        return
    result["model_text"] = exact_models.model_text(loaded, 10 if quick else 50, 20.0 if quick else 150.0, 1 if quick else 3)
    print_table("SmolLM2, texts", result["model_text"])
    result["model_policy"] = exact_models.model_policy(loaded, 300 if quick else 4000, (1.0,) if quick else (1.0, 2.0))
    print_table("SmolLM2, the refund policy", result["model_policy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", type=Path, help="also write the result here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-model", action="store_true", help="leave out what needs SmolLM2")
    options = parser.parse_args()
    started, seed = time.perf_counter(), options.seed
    samples = 300 if options.quick else 1500
    result: Row = {name: domain(name, seed, options.quick) for name in DOMAINS}
    print_table("domains", [{"domain": name, **result[name]} for name in DOMAINS])
    result["rarity"] = rarity(seed, samples)
    print_table("rarity (refund)", result["rarity"])
    result["samplers"] = samplers(seed, samples)
    print_table("samplers (refund)", result["samplers"])
    result["matched"] = matched(samples)
    print_table("root-prefix over Stateful CARS, five paired seeds", [{"arm": name, **row} for name, row in result["matched"].items()])
    result["reuse"] = reuse(samples)
    print_table("pinned over shared certificates, five paired seeds", [result["reuse"]])
    result["certificates"] = {name: certificates(name) for name in DOMAINS}
    print_table("certificates", [{"domain": name, **row} for name, row in result["certificates"].items()])
    result["worlds"] = worlds(seed, 4000)
    print_table("two satisfiable worlds", [{"world drawn": draw, **result["worlds"][draw]} for draw in ("prior", "reweighted")])
    result["abstractions"] = abstractions(seed)
    print_table("abstractions (refund)", result["abstractions"])
    result["conformance"] = conformance(seed, options.quick)
    print_table("300 instrumented attempts", result["conformance"]["instrumented"])
    print_table("one certificate at a time", result["conformance"]["unsound"])
    print_table("two satisfiable worlds, tested", result["conformance"]["two_worlds"])
    print_table("a real database", [result["conformance"]["database"]])
    result["toy_text"] = exact_models.toy_text(3, 4000)
    print_table("text of a language that can be enumerated", result["toy_text"])
    if not options.no_model:
        with_model(result, options.quick)
    print("\nmust show")
    for claim, measured in must_show(result):
        print(f"  {claim}: {measured}")
    result["seconds"] = time.perf_counter() - started
    print(f"\n{result['seconds']:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
