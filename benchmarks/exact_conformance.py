"""Conformance of the exact samplers, measured on the code that draws: frozen banks, instrumented attempts, unsound abstractions, the two
worlds, and a real database. Each function returns what ``benchmarks/exact.py`` prints as a line of *must show*.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from exact_policies import DOMAINS, LARGE, Row, attempts, environment_of, p_value, walk_of

from stcc.runtime.exact.abstraction import Abstraction
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.bank import Bank, BankStore
from stcc.runtime.exact.enumeration import excluded_valid_mass, normalized, proposal_law, total_variation, valid_law
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk, MarkovWalk, Walk
from stcc.runtime.exact.local_masking import LocalMasking
from stcc.runtime.exact.matcher import SchemaMatcher
from stcc.runtime.exact.policies import CountingPolicy
from stcc.runtime.exact.proposal import BankProposal
from stcc.runtime.exact.sqlite_validator import BALANCES, SqliteAccount
from stcc.runtime.exact.stateful import StatefulCars, every_certificate

INSTRUMENTED = 300
BANKS = (0, 1, 5, 60, 300)
RARE = (0.0, 0.0, -4.0, 0.0, 3.4)


def frozen_banks(seed: int, tilt: tuple[float, ...] = ()) -> Row:
    """Refund: the law of the kernel at banks of several ages, against the enumerated conditional."""
    environment = environment_of("refund")
    valid = valid_law(environment, walk_of(environment, seed, tilt))
    target, worst = normalized(valid), 0.0
    for count in BANKS:
        sampler = StatefulCars(environment, walk_of(environment, seed, tilt))
        attempts(sampler, count, seed)
        worst = max(worst, total_variation(normalized(proposal_law(sampler.proposal)), target))
    return {"p_valid": fsum(valid.values()), "banks": len(BANKS), "tv_most": worst}


class WatchedStore(BankStore):
    """A store that notes whether anything is committed while an attempt runs, and what was proposed in all.

    Attributes:
        inside: commits tried inside an attempt, and attempts after which the version was another one.
        seen: every pair proposed, uncompressed.
    """

    def __init__(self, actions: int) -> None:
        super().__init__(actions)
        self.inside, self.seen = 0, set[Any]()

    @contextmanager
    def attempt(self) -> Iterator[Bank]:
        with super().attempt() as bank:
            yield bank
            self.inside += self.current is not bank

    def propose(self, pairs: Any) -> None:
        pairs = list(pairs)
        self.seen.update(pairs)
        super().propose(pairs)

    def commit(self) -> Bank:
        self.inside += self._running > 0
        return super().commit()


def instrumented(name: str, seed: int) -> Row:
    """300 attempts in one domain; a Markov model where histories are too many to hold."""
    environment = environment_of(name)
    walk: Walk = walk_of(environment, seed)
    if name in LARGE:
        walk = MarkovWalk(CountingPolicy(environment.actions, environment.graph.horizon, seed), environment.actions, Accounting())
    policy = CountingPolicy(environment.actions, environment.graph.horizon, seed) if name in LARGE else None
    law = normalized(valid_law(environment, walk if policy is None else HistoryWalk(policy, environment.actions, Accounting())))
    sampler = StatefulCars(environment, walk, Abstraction.named(environment, "observed_state"))
    store = sampler.store = WatchedStore(environment.actions)
    rng, versions, falls, excluded, mass = np.random.default_rng(seed), 0, 0, 0.0, float("inf")
    for _ in range(INSTRUMENTED):
        before = store.current
        sampler.attempt(rng)
        if store.current is not before or not versions:
            versions += 1
            now = fsum(sampler.proposal.world_weights("reweighted"))
            falls += now > mass + 1e-15  # acceptance is P(C) over this mass
            mass = now
            excluded = max(excluded, excluded_valid_mass(law, store.current, sampler.abstraction))
    return {"domain": name, "attempts": INSTRUMENTED, "versions": versions, "writes_inside": store.inside, "acceptance_falls": falls,
            "raw": len(store.seen), "compressed": len(store.current.pairs), **bit_equal(environment, walk, sampler.abstraction, store),
            "excluded_valid_mass": excluded}


def bit_equal(environment: Environment, walk: Walk, abstraction: Abstraction, store: WatchedStore) -> Row:
    """Residuals compared, state by state, under everything proposed and under its compression; how many differ in any bit."""
    raw = Bank(0, frozenset(store.seen))
    before, after = (BankProposal(environment, walk, abstraction, SchemaMatcher(bank))
                     for bank in (raw, raw.compressed(environment.actions)))
    seen: set[Any] = set()
    stack = [(before.start(world), after.start(world)) for world in range(len(environment.starts))]
    compared = differing = 0
    while stack:
        left, right = stack.pop()
        if (left, right) in seen:
            continue
        seen.add((left, right))
        compared += 1
        differing += before.mass(left) != after.mass(right)
        if environment.running[left[1]] and before.mass(left) > 0.0:
            for (_, mine), (_, theirs) in zip(before.kernel(left), after.kernel(right), strict=True):
                differing += [share for share, _ in mine if share] != [share for share, _ in theirs if share]
                stack += [(one[2], other[2]) for (share, one), (again, other) in zip(mine, theirs, strict=False) if share and again]
    return {"residuals": compared, "differing": differing}


def unsound(seed: int) -> list[Row]:
    """Refund: what an abstraction that the author proposes removes, and how far the law is then."""
    environment = environment_of("refund")
    walk = walk_of(environment, seed)
    target, rows = normalized(valid_law(environment, walk)), []
    for verdict in environment.graph.abstractions:
        abstraction = Abstraction.named(environment, verdict.name, True)
        pairs = sorted(every_certificate(abstraction))
        removed = excluded_valid_mass(target, Bank(0, frozenset(pairs)), abstraction)
        worst, partial = 0.0, 0
        for pair in pairs:  # one certificate at a time: the distance is the valid mass that it removes
            bank = Bank(0, frozenset({pair}))
            lost = excluded_valid_mass(target, bank, abstraction)
            if 0 < lost < 1:
                partial += 1
                law = normalized(proposal_law(BankProposal(environment, walk, abstraction, SchemaMatcher(bank))))
                worst = max(worst, abs(total_variation(law, target) - lost))
        rows.append({"abstraction": verdict.name, "sound": verdict.sound, "certificates": len(pairs), "removed_by_all": removed,
                     "certificates_that_remove_some": partial, "tv_minus_removed_most": worst})
    return rows


def two_worlds(samples: int, seeds: int) -> list[Row]:
    """The world drawn from its prior and reweighted: p-values of the multinomial test, alpha 0.001."""
    environment = environment_of("two_worlds")
    rows = []
    for draw in ("prior", "reweighted"):
        values = []
        for seed in range(seeds):
            target = normalized(valid_law(environment, walk_of(environment, 1)))
            sampler = StatefulCars(environment, walk_of(environment, 1), world_draw=draw)
            drawn = sampler.draw(samples, np.random.default_rng(seed))
            values.append(p_value([(one.world, one.history) for one in drawn], target))
        rows.append({"world drawn": draw, "samples": samples, "seeds": seeds, "p_least": min(values), "p_most": max(values)})
    return rows


def database(seed: int, count: int) -> Row:
    """The transaction policy against SQLite: what is on disk before and after each trajectory, of a sampler that learns and of the bare
    model, which most often fails."""
    environment = environment_of("sql_txn")
    with tempfile.TemporaryDirectory() as folder:
        account = SqliteAccount(environment.graph, Path(folder) / "account.db")
        found = {"accepted": 0, "committed": 0, "rejected": 0, "untouched": 0}

        def judge(world: int, history: Any) -> bool:
            before = BALANCES[environment.graph.worlds[world]]
            account.deposit(before)
            valid, after = account.run(history), account.balance()
            found["accepted"] += valid
            found["committed"] += valid and after < before
            found["rejected"] += not valid
            found["untouched"] += not valid and after == before
            return valid

        sampler = StatefulCars(environment, walk_of(environment, seed), validator=judge)
        drawn = sampler.draw(count, np.random.default_rng(seed))
        attempts(LocalMasking(environment, walk_of(environment, seed), "none", judge), count, seed)
        account.close()
    law = normalized(valid_law(environment, walk_of(environment, seed)))
    return {**found, "p": p_value([(one.world, one.history) for one in drawn], law)}


__all__ = ["DOMAINS", "database", "frozen_banks", "instrumented", "two_worlds", "unsound"]
