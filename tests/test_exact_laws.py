"""Stateful CARS by its exact law: frozen banks, soundness, compression, unsound abstractions, worlds. No sampling error anywhere."""

from __future__ import annotations

from itertools import product
from math import fsum
from typing import Any

import numpy as np
import pytest
from exact_cases import DOMAINS, SMALL, environment_of, target_of, walk_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.abstraction import Abstraction, HistoryAbstraction, UnknownAbstractionError
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.bank import Bank, BankFrozenError, BankStore
from stcc.runtime.exact.enumeration import (
    complete_law,
    empirical_law,
    excluded_valid_mass,
    is_excluded,
    normalized,
    proposal_law,
    total_variation,
    valid_law,
)
from stcc.runtime.exact.environment import Environment, NotAPolicyError
from stcc.runtime.exact.histories import HistoryWalk, MarkovWalk, PolicyError
from stcc.runtime.exact.local_masking import ActionMask, masked_kernel
from stcc.runtime.exact.matcher import SchemaMatcher
from stcc.runtime.exact.policies import CountingPolicy, TablePolicy
from stcc.runtime.exact.proposal import BankProposal, ResidualTooLargeError
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank, every_certificate

MACHINE_PRECISION = 1e-15
RARE = (0.0, 0.0, -4.0, 0.0, 3.4)  # REFUND rarely, STOP soon: valid trajectories become rare


def learned(name: str, attempts: int, abstraction: Abstraction | None = None, **settings_: Any) -> StatefulCars:
    sampler = StatefulCars(environment_of(name), walk_of(name), abstraction, **settings_)
    rng = np.random.default_rng(7)
    for _ in range(attempts):
        sampler.attempt(rng)
    return sampler


def proposal(name: str, bank: Bank, abstraction: Abstraction) -> BankProposal:
    return BankProposal(environment_of(name), walk_of(name), abstraction, SchemaMatcher(bank))


# -- the numbers of the paper ----------------------------------------------------------------------------------------------


def test_refund_enumerated() -> None:
    law = complete_law(environment_of("refund"), walk_of("refund"))
    assert len(law) == 2 * 5461 and sum(valid for _, valid in law.values()) == 60
    assert abs(fsum(weight for weight, _ in law.values()) - 1) < 1e-12
    pruned = valid_law(environment_of("refund"), walk_of("refund"))
    assert pruned.keys() == {outcome for outcome, (_, valid) in law.items() if valid}
    assert all(abs(weight - law[outcome][0]) < 1e-18 for outcome, weight in pruned.items())


@pytest.mark.parametrize("attempts", [0, 1, 5, 60])
@pytest.mark.parametrize("name", ["refund", "two_worlds", "booking"])
def test_the_law_of_a_frozen_bank_is_the_conditional(name: str, attempts: int) -> None:
    sampler = learned(name, attempts)
    law = proposal_law(sampler.proposal)
    assert total_variation(normalized(law), target_of(name)) < MACHINE_PRECISION


def test_validity_of_six_in_a_hundred_million() -> None:
    environment, walk = environment_of("refund"), walk_of("refund", tilt=RARE)
    valid = valid_law(environment, walk)
    assert 6e-8 < fsum(valid.values()) < 6.5e-8
    sampler = StatefulCars(environment, walk_of("refund", tilt=RARE))
    rng = np.random.default_rng(3)
    for _ in range(40):
        sampler.attempt(rng)
    assert total_variation(normalized(proposal_law(sampler.proposal)), normalized(valid)) < MACHINE_PRECISION
    assert len(sampler.draw(20, rng)) == 20 and sampler.accounting.attempts < 100


# -- conformance -----------------------------------------------------------------------------------------------------------


def test_three_hundred_attempts_without_a_write_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environment_of("refund")
    sampler = StatefulCars(environment, walk_of("refund"), Abstraction.named(environment, "observed_state"))
    inside: list[bool] = []
    committed: list[tuple[bool, Bank]] = []
    commit = BankStore.commit
    draw, judge = BankProposal.draw, StatefulCars.is_valid

    def committing(store: BankStore) -> Bank:
        committed.append((bool(inside and inside[-1]), commit(store)))
        return committed[-1][1]

    monkeypatch.setattr(BankStore, "commit", committing)

    def drawing(self: BankProposal, rng: np.random.Generator, world_draw: str = "reweighted") -> Any:
        inside.append(True)
        with pytest.raises(BankFrozenError):
            commit(sampler.store)
        return draw(self, rng, world_draw)

    def judging(self: StatefulCars, trajectory: Any) -> bool:
        before = self.store.current
        valid = judge(self, trajectory)
        assert self.store.current is before is self.proposal.matcher.bank
        inside[-1] = False
        return valid

    monkeypatch.setattr(BankProposal, "draw", drawing)
    monkeypatch.setattr(StatefulCars, "is_valid", judging)
    rng, valid = np.random.default_rng(11), target_of("refund")
    masses, versions = [], {}
    for _ in range(300):
        sampler.attempt(rng)
        versions[sampler.store.current.version] = sampler.store.current
    assert len(committed) == 300 and not any(during for during, _ in committed) and len(versions) >= 15
    for version in sorted(versions):
        assert excluded_valid_mass(valid, versions[version], sampler.abstraction) == 0.0
        masses.append(fsum(proposal("refund", versions[version], sampler.abstraction).world_weights("reweighted")))
    assert all(later <= earlier + 1e-15 for earlier, later in zip(masses, masses[1:], strict=False)), "acceptance P(C) / mass never falls"
    assert masses[-1] < masses[0] / 10


@pytest.mark.parametrize("name", DOMAINS)
def test_no_bank_excludes_valid_mass(name: str) -> None:
    environment = environment_of(name)
    for abstraction in (Abstraction.by_class(environment), Abstraction.named(environment, "observed_state", transfer=True)):
        policy = CountingPolicy(environment.actions, environment.graph.horizon, seed=3)
        sampler = StatefulCars(environment, MarkovWalk(policy, environment.actions, Accounting()), abstraction)
        rng, law = np.random.default_rng(5), target_of(name)
        for _ in range(25):
            sampler.attempt(rng)
            assert excluded_valid_mass(law, sampler.store.current, abstraction) == 0.0
    full = Bank(0, frozenset(compiled_bank(environment)))
    assert excluded_valid_mass(target_of(name), full, Abstraction.by_class(environment)) == 0.0


def test_the_compiled_bank_removes_everything_invalid_that_the_agent_can_know() -> None:
    for name in ("refund", "sql_txn", "booking", "warehouse"):
        environment = environment_of(name)
        sampler = StatefulCars(environment, walk_of(name), bank=compiled_bank(environment), update="none")
        law = proposal_law(sampler.proposal)
        assert abs(fsum(law.values()) - 1) < 1e-12 and total_variation(normalized(law), target_of(name)) < MACHINE_PRECISION
        assert len(sampler.draw(50, np.random.default_rng(0))) == 50 == sampler.accounting.attempts


@pytest.mark.parametrize("name", SMALL)
def test_compression_leaves_every_residual_bit_equal(name: str) -> None:
    environment = environment_of(name)
    abstraction = Abstraction.by_class(environment)
    rng = np.random.default_rng(9)
    raw = set(compiled_bank(environment))
    kept = [pair for pair in raw if rng.random() < 0.6]
    longer = {(key, (*word, action)) for key, word in kept if key >= 0 for action in range(environment.actions)}
    walk = walk_of(name)
    bank = Bank(0, frozenset(kept) | longer)
    matchers = [SchemaMatcher(bank), SchemaMatcher(bank.compressed(environment.actions))]
    assert len(matchers[1].bank.pairs) < len(matchers[0].bank.pairs)
    before, after = (BankProposal(environment, walk, abstraction, matcher) for matcher in matchers)

    def compare(left: Any, right: Any) -> int:
        assert before.mass(left) == after.mass(right)  # to the last bit
        if not environment.running[left[1]]:
            return 1
        here, there = before.kernel(left), after.kernel(right)
        assert [row for row, _ in here] == [row for row, _ in there]
        return 1 + sum(compare(one[1][2], other[1][2]) for (_, mine), (_, theirs) in zip(here, there, strict=True)
                       for one, other in zip(mine, theirs, strict=True))

    assert sum(compare(before.start(world), after.start(world)) for world in range(len(environment.starts))) > 100


words = st.lists(st.integers(0, 2), max_size=3).map(tuple)


@settings(max_examples=200, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 2), words), max_size=8), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=7))
def test_the_matcher_is_the_definition(pairs: set[tuple[int, tuple[int, ...]]], trace: list[tuple[int, int]]) -> None:
    """A trace is a list of key and action; Equation 2 by search, against the matcher over the raw and the compressed bank."""
    actions = tuple(action for _, action in trace)
    occurs = any(key == trace[time][0] and actions[time:time + len(word)] == word
                 for key, word in pairs for time in range(len(trace)) if time + len(word) <= len(trace))
    for bank in (Bank(0, frozenset(pairs)), Bank(0, frozenset(pairs)).compressed(actions=3)):
        matcher, state, hit = SchemaMatcher(bank), 0, False
        for key, action in trace:
            hit = hit or matcher.excludes(key)
            state = matcher.step(max(state, 0), key, action)
            hit = hit or state < 0
            if hit:
                break
        assert hit == occurs


# -- post-invalid certificates and words of several actions ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["refund", "two_worlds"])
def test_longer_continuations_are_sound_and_exact(name: str) -> None:
    sampler = learned(name, 150, update="post_invalid")
    assert any(len(word) > 1 for _, word in sampler.store.current.pairs)
    assert excluded_valid_mass(target_of(name), sampler.store.current, sampler.abstraction) == 0.0
    assert total_variation(normalized(proposal_law(sampler.proposal)), target_of(name)) < MACHINE_PRECISION


def test_the_residual_is_the_mass_outside_the_event() -> None:
    sampler = learned("refund", 25, update="post_invalid")
    law = complete_law(environment_of("refund"), walk_of("refund"))
    outside = fsum(weight for outcome, (weight, _) in law.items() if not is_excluded(outcome, sampler.store.current, sampler.abstraction))
    assert abs(fsum(sampler.proposal.world_weights("reweighted")) - outside) < 1e-12


# -- what an unsound abstraction costs -------------------------------------------------------------------------------------


def test_unsound_abstractions_cost_exactly_the_valid_mass_they_remove() -> None:
    environment, target, walk = environment_of("refund"), target_of("refund"), walk_of("refund")
    transferring = Abstraction.named(environment, "budget_dropped", transfer=True)
    positions = environment.graph.positions
    assert positions is not None
    keys = positions.keys[[verdict.name for verdict in environment.graph.abstractions].index("budget_dropped")]
    late = {int(key) for place, key in enumerate(keys) if key >= 0 and positions.class_of[place] < 0}
    removed_somewhere = 0
    for key, action in product(sorted(set(keys[keys >= 0].tolist())), range(environment.actions)):
        if key not in late:
            continue
        bank = Bank(0, frozenset({(key, (action,))}))
        removed = excluded_valid_mass(target, bank, transferring)
        if removed >= 1:
            continue
        law = proposal_law(BankProposal(environment, walk, transferring, SchemaMatcher(bank)))
        assert abs(total_variation(normalized(law), target) - removed) < 1e-14
        removed_somewhere += removed > 0
    assert removed_somewhere >= 3


def test_dropping_the_observed_ownership_removes_all_valid_mass() -> None:
    environment = environment_of("refund")
    unsound = Abstraction.named(environment, "ownership_dropped", transfer=True)
    assert excluded_valid_mass(target_of("refund"), Bank(0, frozenset(every_certificate(unsound))), unsound) == 1.0
    proved = learned("refund", 300, Abstraction.named(environment, "ownership_dropped"))
    assert excluded_valid_mass(target_of("refund"), proved.store.current, proved.abstraction) == 0.0, "proofs over the whole key stay sound"


# -- worlds ----------------------------------------------------------------------------------------------------------------


def test_a_plain_draw_of_the_world_is_biased_and_the_reweighted_one_exact() -> None:
    sampler = learned("two_worlds", 400)
    target = target_of("two_worlds")
    plain, exact = (normalized(proposal_law(sampler.proposal, draw)) for draw in ("prior", "reweighted"))
    assert total_variation(exact, target) < MACHINE_PRECISION and total_variation(plain, target) > 0.2
    marginals = [fsum(weight for (world, _), weight in law.items() if world == 0) for law in (target, plain, exact)]
    assert abs(marginals[2] - marginals[0]) < 1e-14 and abs(marginals[1] - marginals[0]) > 0.2


def test_one_satisfiable_world_needs_no_reweighting() -> None:
    sampler = learned("refund", 30)
    assert total_variation(normalized(proposal_law(sampler.proposal, "prior")), target_of("refund")) < MACHINE_PRECISION


# -- the finite-Markov shortcut --------------------------------------------------------------------------------------------


def test_the_markov_shortcut_gives_the_same_law_with_fewer_nodes() -> None:
    environment = environment_of("refund")
    policy = CountingPolicy(environment.actions, environment.graph.horizon, seed=4)
    full = HistoryWalk(policy, environment.actions, Accounting())
    short = MarkovWalk(policy, environment.actions, Accounting())
    banks = learned("refund", 20).store.current
    proposals = [BankProposal(environment, walk, Abstraction.by_class(environment), SchemaMatcher(banks)) for walk in (full, short)]
    laws = [proposal_law(one) for one in proposals]
    assert total_variation(*laws) < MACHINE_PRECISION
    assert total_variation(normalized(laws[1]), normalized(valid_law(environment, full))) < MACHINE_PRECISION
    assert proposals[1].nodes < proposals[0].nodes / 3 and short.accounting.distinct_policy_calls < full.accounting.distinct_policy_calls


# -- local masking, enumerated ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["refund", "triage", "warehouse"])
def test_local_masking_is_elsewhere(name: str, record_property: Any) -> None:
    environment, walk = environment_of(name), walk_of(name)
    local = normalized(valid_law(environment, walk, masked_kernel(ActionMask(environment, walk, "state_aware"))))
    record_property("tv_local", total_variation(local, target_of(name)))
    assert total_variation(local, target_of(name)) > 0.1
    assert abs(fsum(local.values()) - 1) < 1e-12 and local.keys() == target_of(name).keys()


# -- faults ----------------------------------------------------------------------------------------------------------------


def test_faults() -> None:
    environment = environment_of("refund")
    with pytest.raises(UnknownAbstractionError, match="observed_state"):
        Abstraction.named(environment, "nonsense")
    with pytest.raises(ResidualTooLargeError):
        StatefulCars(environment, walk_of("refund"), max_nodes=20).draw(20, np.random.default_rng(0))
    with pytest.raises(ConstraintError):
        StatefulCars(environment, walk_of("refund"), update="sometimes")
    with pytest.raises(ConstraintError):
        learned("refund", 1, world_draw="often")
    for bad in ([1.0, 2.0], [0.2] * 4 + [0.3], [float("nan")] * 5, [0.5, 0.7, -0.2, 0.0, 0.0]):
        walk = HistoryWalk(lambda history, bad=bad: np.array(bad), 5, Accounting())  # type: ignore[misc]
        with pytest.raises(PolicyError):
            StatefulCars(environment, walk).draw(1, np.random.default_rng(0))
    with pytest.raises(PolicyError, match="score it"):
        TablePolicy({})(())
    from stcc.compiler import compile_regex

    with pytest.raises(NotAPolicyError, match="regex"):
        Environment.of(compile_regex("a"))


def test_history_keys_share_nothing() -> None:
    environment = environment_of("refund")
    pinned = StatefulCars(environment, walk_of("refund"), HistoryAbstraction(environment))
    shared = StatefulCars(environment, walk_of("refund"))
    for sampler in (pinned, shared):
        sampler.draw(150, np.random.default_rng(1))
        assert total_variation(normalized(proposal_law(sampler.proposal)), target_of("refund")) < MACHINE_PRECISION
    assert len(pinned.store.current.pairs) > 3 * len(shared.store.current.pairs)
    assert pinned.accounting.sampler_steps > shared.accounting.sampler_steps
    assert empirical_law([(0, ()), (0, ())]) == {(0, ()): 1.0}
