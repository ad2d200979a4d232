"""Byte needs: the fewest bytes that leave a state's rule, or finish the output where the rule is the root (Proposition 2).

In: a machine. Out: int32 per state, and ``verify_trim``, which holds a trimmed machine to its promise. Method: Dijkstra in unit buckets
over (node, exit) pairs, where an enter edge adds one node per pushed site, whose cost to leave by an exit is the least sum of leaving
the callee and going on from the return state (Knuth 1977: a least fixpoint of superior functions, each pair settled once).
Cost: near-linear in distinct edges times the exits a state can reach.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import distinct_edges, group, reach
from stcc.formats.binding import UNREACHABLE
from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]


def byte_need(machine: Machine) -> Int32:
    """int32 ``[states]``: the fewest bytes to leave the state's rule by any exit, or to an accepting end; ``UNREACHABLE`` if none do."""
    need = np.full(machine.states, UNREACHABLE, np.int32)
    settled = _Needs(machine).settle()
    for state in range(machine.states):
        if settled[state]:
            need[state] = min(settled[state].values())
    return need


def verify_trim(machine: Machine) -> list[str]:
    """Every broken invariant, as one sentence each: reachable states have a finite need, and exits that callees may take have a return."""
    needs = _Needs(machine)
    settled = needs.settle()
    found = np.flatnonzero(_reachable(machine)).tolist()
    broken = [f"state {state} leads on" for state in found if not settled[state]]
    if not settled[machine.start].keys() & {0, needs.accept}:
        broken.append("the start leads to an accepting end")
    for site, inner in needs.frames:
        lost = [exit_ for exit_ in settled[inner] if exit_ != needs.accept and machine.returns[site, exit_] < 0]
        broken += [f"site {site} returns from exit {exit_}" for exit_ in lost]
    return broken


class _Needs:
    """Nodes are states, then *frames*: (site, inner node), a call that is open and what it is waiting for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.accept = int(machine.returns.shape[1]) if machine.sites else int(machine.exits.max(initial=-1)) + 1
        self.frames: list[tuple[int, int]] = []
        numbers: dict[tuple[int, int], int] = {}
        entry = np.arange(machine.states + len(machine.edge_target))
        self.outer: dict[int, list[int]] = {}
        for edge, target in enumerate(machine.edge_target.tolist()):
            node = target
            for site in reversed(machine.pushes(edge)):
                number = numbers.setdefault((site, node), len(self.frames))
                if number == len(self.frames):
                    self.frames.append((site, node))
                    self.outer.setdefault(node, []).append(machine.states + number)
                node = machine.states + number
            entry[machine.states + edge] = node
        sources, cells = distinct_edges(machine.table)
        offsets, before = group(entry[cells].astype(np.int64), sources, machine.states + len(self.frames))
        self.offsets: list[int] = offsets.tolist()
        self.before: list[int] = before.tolist()
        self.returns: list[list[int]] = machine.returns.tolist()

    def settle(self) -> list[dict[int, int]]:
        """For each node the least bytes to each exit it can reach; ``self.accept`` stands for ending on an empty stack."""
        settled: list[dict[int, int]] = [{} for _ in range(len(self.offsets) - 1)]
        waiting: dict[int, list[tuple[int, int]]] = {}  # return state -> frames that have come back to it, and their cost so far
        buckets: dict[int, list[tuple[int, int]]] = defaultdict(list)
        exits = self.machine.exits.tolist()
        buckets[0] = [(state, exit_) for state, exit_ in enumerate(exits) if exit_ >= 0]
        buckets[0] += [(state, self.accept) for state in np.flatnonzero(self.machine.accepting).tolist()]
        cost = 0
        while buckets:
            for node, exit_ in buckets.get(cost, ()):  # grows while it is read
                if exit_ in settled[node]:
                    continue
                settled[node][exit_] = cost
                for state in self.before[self.offsets[node]:self.offsets[node + 1]]:
                    if exit_ not in settled[state]:
                        buckets[cost + 1].append((state, exit_))
                for frame, spent in waiting.get(node, ()):
                    buckets[spent + cost].append((frame, exit_))
                if exit_ != self.accept:
                    for frame in self.outer.get(node, ()):
                        landed = self.returns[self.frames[frame - self.machine.states][0]][exit_]
                        if landed >= 0:
                            waiting.setdefault(landed, []).append((frame, cost))
                            for further, more in settled[landed].items():
                                buckets[cost + more].append((frame, further))
            buckets.pop(cost, None)
            cost += 1
        return settled


def _reachable(machine: Machine) -> npt.NDArray[np.bool_]:
    """bool ``[states]``: reached from the start; a call reaches its target and every return of its sites."""
    sources, cells = distinct_edges(machine.table)
    nodes = machine.states + len(machine.edge_target)
    pairs = [(machine.states + edge, target) for edge, target in enumerate(machine.edge_target.tolist())]
    for edge in range(len(machine.edge_target)):
        pairs += [(machine.states + edge, node) for site in machine.pushes(edge) for node in machine.returns[site].tolist() if node >= 0]
    extra = np.array(pairs, np.int64).reshape(-1, 2)
    offsets, targets = group(np.append(sources, extra[:, 0]), np.append(cells, extra[:, 1]), nodes)
    return reach(offsets, targets, [machine.start])[:machine.states]
