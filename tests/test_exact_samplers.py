"""Samplers by their samples. Tests of fit are multinomial, by simulation, at alpha = 0.001 with fixed seeds: a right sampler fails none of
them by bad luck, since nothing here is redrawn."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from math import fsum, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_cases import environment_of, fit, target_of, walk_of

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.action_prefix import ActionPrefixProposal, ActionRootPrefixCars
from stcc.runtime.exact.bank import BankFrozenError
from stcc.runtime.exact.enumeration import complete_law, empirical_law, normalized, proposal_law, total_variation, valid_law
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk, MarkovWalk
from stcc.runtime.exact.local_masking import ActionMask, IndependenceMetropolis, LocalMasking, TerminalRejection, masked_kernel
from stcc.runtime.exact.particles import AdaptiveWeightedRejection, ParticleFilter
from stcc.runtime.exact.policies import CountingPolicy, SyntheticPolicy
from stcc.runtime.exact.proposal import pick
from stcc.runtime.exact.root_prefix import PrefixProposal, RootPrefixCars, VisitedGrounding
from stcc.runtime.exact.samplers import Sampler, TooManyAttemptsError
from stcc.runtime.exact.sqlite_validator import AMOUNT, BALANCES, SqliteAccount
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank

ALPHA = 0.001
LIKELY = (0.5, 0.5, 0.0, 0.5, -1.0)  # refund's valid trajectories become common enough for terminal rejection

Maker = Callable[[Environment, HistoryWalk], Sampler]


def outcomes(sampler: Sampler, count: int, seed: int = 0) -> list[tuple[int, Any]]:
    return [(sample.world, sample.history) for sample in sampler.draw(count, np.random.default_rng(seed))]


EXACT: dict[str, Maker] = {
    "stateful": StatefulCars,
    "stateful, post-invalid": lambda environment, walk: StatefulCars(environment, walk, update="post_invalid"),
    "stateful, batches of 16": lambda environment, walk: StatefulCars(environment, walk, batch=16),
    "stateful, compiled bank": lambda environment, walk: StatefulCars(environment, walk, bank=compiled_bank(environment), update="none"),
    "root-prefix": RootPrefixCars,
    "root-prefix, actions": ActionRootPrefixCars,
    "visited grounding": VisitedGrounding,
    "visited grounding, post-invalid": lambda environment, walk: VisitedGrounding(environment, walk, update="post_invalid"),
    "terminal rejection": TerminalRejection,
}


@pytest.mark.parametrize("kind", EXACT)
def test_exact_samplers_fit_the_conditional(kind: str) -> None:
    sampler = EXACT[kind](environment_of("refund"), walk_of("refund", 2, LIKELY))
    drawn = outcomes(sampler, 2500 if kind != "terminal rejection" else 80)
    assert fit(drawn, target_of("refund", 2, LIKELY)) > ALPHA
    cost = sampler.accounting
    assert cost.accepted == len(drawn) <= cost.attempts == cost.validator_calls and cost.seconds > 0
    assert cost.distinct_policy_calls <= cost.policy_calls and cost.sampler_steps >= 4 * len(drawn)


@pytest.mark.parametrize("name", ["two_worlds", "warehouse"])
def test_exact_samplers_fit_with_worlds_and_chance(name: str) -> None:
    """Two satisfiable worlds; and an action with outcomes of its own, drawn with their residual."""
    environment = environment_of(name)
    policy = CountingPolicy(environment.actions, environment.graph.horizon, seed=6)
    target = normalized(valid_law(environment, HistoryWalk(policy, environment.actions, Accounting())))
    markov = StatefulCars(environment, MarkovWalk(policy, environment.actions, Accounting()))
    rooted = RootPrefixCars(environment, HistoryWalk(policy, environment.actions, Accounting()))
    for sampler in (markov, rooted):
        assert fit(outcomes(sampler, 4000), target) > ALPHA


def test_a_plain_draw_of_the_world_fails_and_the_reweighted_one_fits() -> None:
    """N = 4,000 accepted, five seeds, alpha = 0.001: the plain draw is rejected every time, the reweighted one never."""
    target = target_of("two_worlds")
    share = fsum(weight for (world, _), weight in target.items() if world == 0)
    for seed in range(5):  # paired
        for draw in ("prior", "reweighted"):
            drawn = outcomes(StatefulCars(environment_of("two_worlds"), walk_of("two_worlds"), world_draw=draw), 4000, seed)
            found = sum(world == 0 for world, _ in drawn) / len(drawn)
            if draw == "prior":
                assert fit(drawn, target, replicates=1000) < 2 * ALPHA and abs(found - share) > 0.2
            else:
                assert fit(drawn, target, replicates=1000) > ALPHA and abs(found - share) < 4 * sqrt(share * (1 - share) / 4000)


def test_samples_are_independent_of_what_was_learned() -> None:
    """The first accepted sample of many short runs, from banks of every age, follows the conditional as well."""
    environment = environment_of("two_worlds")
    policy = CountingPolicy(environment.actions, environment.graph.horizon, seed=1, tilt=(1.0, 1.0, 0.0, 0.0, -1.0))
    target = normalized(valid_law(environment, HistoryWalk(policy, environment.actions, Accounting())))
    drawn = []
    for seed in range(400):
        drawn += outcomes(StatefulCars(environment, MarkovWalk(policy, environment.actions, Accounting())), 1, seed)
    assert fit(drawn, target) > ALPHA


# -- samplers that are not exact -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["state_aware", "blind"])
def test_local_masking_converges_to_its_own_law(kind: str) -> None:
    environment, walk = environment_of("refund"), walk_of("refund")
    law = normalized(valid_law(environment, walk, masked_kernel(ActionMask(environment, walk, kind))))
    drawn = outcomes(LocalMasking(environment, walk_of("refund"), kind), 4000)
    assert fit(drawn, law) > ALPHA and total_variation(empirical_law(drawn), target_of("refund")) > 0.5


def test_a_blind_mask_is_weaker_than_one_that_reads_observations() -> None:
    environment = environment_of("two_worlds")
    masks = {kind: ActionMask(environment, walk_of("two_worlds"), kind) for kind in ("state_aware", "blind")}
    read, refund_b = environment.graph.actions.index("READ"), environment.graph.actions.index("REFUND_B")
    seen = environment.graph.observations.index("key_a")
    for mask in masks.values():
        walk, number, node = mask.walk, 0, 0
        for action in (environment.graph.actions.index("AUTH"), read, read):
            observed = seen if action == read else 0
            node, number = walk.advance(node, action, observed), environment.step_class(number, action, observed)
        assert mask(node, number)[refund_b] == (mask.kind == "blind")


def test_metropolis_repeats_itself() -> None:
    sampler = IndependenceMetropolis(environment_of("refund"), walk_of("refund"))
    drawn = outcomes(sampler, 3000)
    assert sampler.repeats > 0.98 * len(drawn) and total_variation(empirical_law(drawn), target_of("refund")) > 0.2


@pytest.mark.parametrize("kind", ["none", "state_aware"])
def test_metropolis_has_the_conditional_as_its_limit(kind: str) -> None:
    """The share of each outcome in a long chain; errors by batch means."""
    sampler = IndependenceMetropolis(environment_of("refund"), walk_of("refund", 2, LIKELY), kind)
    drawn = outcomes(sampler, 40_000, 3)[1000:]
    target = target_of("refund", 2, LIKELY)
    top = sorted(target, key=target.__getitem__, reverse=True)[:5]
    for outcome in top:
        batches = np.array([found == outcome for found in drawn], float).reshape(30, -1).mean(axis=1)
        error = float(batches.std(ddof=1)) / sqrt(30)
        assert abs(float(batches.mean()) - target[outcome]) < 4.5 * error + 1e-9


@pytest.mark.parametrize("make", [ParticleFilter, AdaptiveWeightedRejection])
def test_particles_come_closer_with_more_of_them(make: Any) -> None:
    target, distances = target_of("refund", 2, LIKELY), []
    for particles in (1, 4, 64):
        sampler = make(environment_of("refund"), walk_of("refund", 2, LIKELY), particles)
        distances.append(total_variation(empirical_law(outcomes(sampler, 200 if particles == 64 else 1000)), target))
    assert distances[0] > distances[1] + 0.05 and distances[2] < 0.75 * distances[0]


def test_adaptive_weighted_rejection_draws_the_masked_law_with_an_unbiased_weight() -> None:
    environment, walk = environment_of("refund"), walk_of("refund", 8)
    sampler = AdaptiveWeightedRejection(environment, walk, 1)
    chances, total = ActionMask(environment, walk, "state_aware").renormalized(0, 0)
    rng = np.random.default_rng(4)
    draws = [sampler.choose(0, 0, rng) for _ in range(20_000)]
    weights = np.array([weight for _, weight in draws])
    counts = Counter(action for action, _ in draws)
    assert set(counts) == {action for action, chance in enumerate(chances) if chance > 0} and total < 0.95
    for action, chance in enumerate(chances):
        if chance > 0:
            share, here = chance / total, np.array([found == action for found, _ in draws])
            assert abs(here.mean() - share) < 4.5 * sqrt(share * (1 - share) / len(draws))
            product = weights * here  # properly weighted: E[weight; action] is the model's probability
            assert abs(product.mean() - chance) < 4.5 * product.std() / sqrt(len(draws))
    assert abs(weights.mean() - total) < 4.5 * weights.std() / sqrt(len(draws))


# -- the trie --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [0, 3, 60])
@pytest.mark.parametrize("name", ["refund", "two_worlds", "booking"])
def test_action_prefixes_give_the_conditional_and_a_residual_that_is_the_mass_outside(name: str, attempts: int) -> None:
    environment = environment_of(name)
    sampler = ActionRootPrefixCars(environment, walk_of(name, 5))
    rng, before = np.random.default_rng(1), 2.0
    for _ in range(attempts):
        sampler.attempt(rng)
        mass = fsum(sampler.proposal.world_weights("reweighted"))
        assert mass <= before + 1e-15
        before = mass
    words = sampler.proposal.words
    assert total_variation(normalized(proposal_law(sampler.proposal)), target_of(name, 5)) < 1e-15
    outside = fsum(weight for (_, history), (weight, _) in complete_law(environment, walk_of(name, 5)).items()
                   if not any(tuple(action for action, _ in history)[:size] in words for size in range(1, len(history) + 1)))
    assert abs(fsum(sampler.proposal.world_weights("reweighted")) - outside) < 1e-12
    fresh = ActionPrefixProposal(environment, walk_of(name, 5))
    for word in sorted(words):
        assert fresh.exclude(word) and not fresh.exclude(word) and not fresh.exclude((*word, 0))
    assert fresh.world_weights("reweighted") == sampler.proposal.world_weights("reweighted")
    sampler.measure()
    assert sampler.accounting.memory_entries == len(words) and (sampler.accounting.memory_bytes > 1) == (attempts > 0)


def test_action_prefixes_may_exclude_what_is_dead_in_both_worlds_and_no_more() -> None:
    """The paper's count: of 5,461 action traces 5,401 are dead under both worlds; an action-keyed memory never excludes the other 60."""
    environment = environment_of("refund")
    sampler = ActionRootPrefixCars(environment, walk_of("refund"))
    rng = np.random.default_rng(0)
    for _ in range(1500):
        sampler.attempt(rng)
    kept = {tuple(action for action, _ in history) for world, history in complete_law(environment, walk_of("refund"))
            if not any(tuple(action for action, _ in history)[:size] in sampler.proposal.words for size in range(1, len(history) + 1))}
    valid = {tuple(action for action, _ in history) for _, history in target_of("refund")}
    assert valid <= kept and len(valid) == 60
    observed = RootPrefixCars(environment, walk_of("refund"))
    for _ in range(1500):
        observed.attempt(rng)
    masses = [fsum(one.proposal.world_weights("reweighted")) for one in (sampler, observed)]
    assert masses[0] > 1.5 * masses[1], "the stranger's world can be excluded by what was observed only"
    exhaustive = ActionPrefixProposal(environment, walk_of("refund"))
    traces = {tuple(action for action, _ in history) for _, history in complete_law(environment, walk_of("refund"))}
    for word in traces - valid:
        exhaustive.exclude(word)
    assert len(traces) == 5461 and len(exhaustive.words) == 5401
    assert total_variation(normalized(proposal_law(exhaustive)), target_of("refund")) < 1e-15
    exhaustive._frozen = True
    with pytest.raises(BankFrozenError):
        exhaustive.exclude((0, 0))


@pytest.mark.parametrize("update", ["official", "post_invalid"])
def test_the_trie_residual_is_the_mass_outside_and_its_law_exact(update: str) -> None:
    environment = environment_of("refund")
    sampler = VisitedGrounding(environment, walk_of("refund", 5), update=update)
    rng = np.random.default_rng(1)
    for _ in range(60):
        sampler.attempt(rng)
    trie = sampler.proposal
    assert any(len(word) > 1 for words in trie.grounded.values() for word in words) == (update == "post_invalid")

    def is_out(history: Any) -> bool:
        node = 0
        for time in range(len(history)):
            rest = tuple(action for action, _ in history[time:])
            if any(rest[:len(word)] == word for word in trie.grounded.get(node, ())):
                return True
            node = trie.histories.advance(node, *history[time])
        return False

    outside = fsum(weight for (_, history), (weight, _) in complete_law(environment, walk_of("refund", 5)).items() if not is_out(history))
    assert abs(fsum(trie.world_weights("reweighted")) - outside) < 1e-12
    assert total_variation(normalized(proposal_law(trie)), target_of("refund", 5)) < 1e-15
    fresh = PrefixProposal(environment, trie.histories, trie.abstraction)
    for node, words in trie.grounded.items():
        for word in words:
            fresh.ground(node, word)
    assert fresh.world_weights("reweighted") == trie.world_weights("reweighted"), "updating along the path loses nothing"
    sampler.measure()
    assert sampler.accounting.memory_bytes == len(trie.serialized()) > trie.entries > 0


def test_nothing_is_grounded_inside_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = RootPrefixCars(environment_of("refund"), walk_of("refund"))
    original = PrefixProposal.mass
    tried: list[bool] = []

    def mass(self: PrefixProposal, state: Any) -> float:
        with pytest.raises(BankFrozenError):
            self.ground(0, (0,))
        tried.append(True)
        return original(self, state)

    monkeypatch.setattr(PrefixProposal, "mass", mass)
    sampler.attempt(np.random.default_rng(0))
    assert tried


def test_grounding_under_the_official_update_is_root_prefix() -> None:
    runs = [make(environment_of("booking"), walk_of("booking")) for make in (RootPrefixCars, VisitedGrounding)]
    assert outcomes(runs[0], 200) == outcomes(runs[1], 200) and runs[0].proposal.grounded == runs[1].proposal.grounded


# -- the same draws again, and faults --------------------------------------------------------------------------------------


def test_seeds_decide_everything() -> None:
    makers: list[Maker] = [*EXACT.values(), LocalMasking, IndependenceMetropolis]
    for make in makers[:-3] + makers[-2:]:
        first, second = (outcomes(make(environment_of("refund"), walk_of("refund")), 10, 9) for _ in range(2))
        assert first == second


def test_too_many_attempts() -> None:
    with pytest.raises(TooManyAttemptsError, match="terminal_rejection: 0 of 5"):
        TerminalRejection(environment_of("sql_txn"), walk_of("sql_txn")).draw(5, np.random.default_rng(0), max_attempts=50)
    with pytest.raises(ConstraintError):
        ParticleFilter(environment_of("refund"), walk_of("refund"), 0)
    with pytest.raises(ConstraintError):
        LocalMasking(environment_of("refund"), walk_of("refund"), "some")


def test_pick_never_takes_what_has_no_weight() -> None:
    class Last:
        def random(self) -> float:
            return 1.0 - 2.0**-53

    assert pick([0.3, 0.0, 0.1 + 0.2 - 0.3, 0.0], 0.3 + 1e-9, Last()) == 2  # type: ignore[arg-type]
    assert pick([0.0, 1.0, 0.0], 1.0, Last()) == 1  # type: ignore[arg-type]


def test_the_synthetic_policy_depends_on_everything_and_is_normalised() -> None:
    policy, blind = SyntheticPolicy(4, 3), SyntheticPolicy(4, 3, observed=False)
    first, second = policy(((1, 0),)), policy(((1, 2),))
    assert not np.array_equal(first, second) and np.array_equal(blind(((1, 0),)), blind(((1, 2),)))
    vectors = np.array([policy(((0, number),)) for number in range(500)])
    assert np.abs(vectors.sum(axis=1) - 1).max() < 1e-15
    logits = np.log(vectors) - np.log(vectors).mean(axis=1, keepdims=True)
    assert abs(float(logits.std()) - sqrt(3 / 4)) < 0.05 and log(2) > 0


# -- a real database -------------------------------------------------------------------------------------------------------


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return list(connection.iterdump())


def test_sqlite_agrees_with_the_policy_and_rejected_trajectories_leave_no_trace(tmp_path: Path) -> None:
    environment = environment_of("sql_txn")
    account = SqliteAccount(environment.graph, tmp_path / "bank.db")
    rng, accepted, refused = np.random.default_rng(6), 0, 0
    law = complete_law(environment, walk_of("sql_txn"))
    valid = [outcome for outcome, (_, good) in law.items() if good]
    others = [outcome for outcome in law if not law[outcome][1]]

    def apart(left: Any, right: Any) -> int:
        return sum(one != other for one, other in zip(left, right, strict=True)) if len(left) == len(right) else 9

    near = [other for other in others if any(apart(other[1], one[1]) == 1 for one in valid)]
    chosen = [others[number] for number in rng.choice(len(others), 100, replace=False)]
    for world, history in [*valid, *near, *chosen]:
        balance = BALANCES[environment.graph.worlds[world]]
        account.deposit(balance)
        before = dump(tmp_path / "bank.db")
        if account.run(history):
            assert law[world, history][1] and account.balance() == balance - AMOUNT
            accepted += 1
        else:
            assert not law[world, history][1] and dump(tmp_path / "bank.db") == before and account.balance() == balance
            refused += 1
    assert accepted == len(valid) and refused > 100 and len(near) > 30


def test_exact_sampling_against_sqlite() -> None:
    environment = environment_of("sql_txn")
    account = SqliteAccount(environment.graph)
    sampler = StatefulCars(environment, walk_of("sql_txn"), validator=account)
    assert fit(outcomes(sampler, 2000), target_of("sql_txn")) > ALPHA
    account.close()
