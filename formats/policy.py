"""The policy: a finite workflow as its compiler found it, which samplers run and validators judge by.

Three deterministic or stochastic graphs over the same actions, all acyclic (every step leads to a higher number):

    environment    *configurations*: what the world is like, hidden parts included. An action in a running configuration has weighted
                   outcomes, each with what it shows and the configuration it leads to. Merged where no experiment tells two apart.
    classes        the coarsest sound partition of histories (Proposition 3): two histories are in one class exactly if the same
                   continuations complete both. Steps that leave no valid completion are not there; class 0 is the empty history's.
    positions      the histories themselves, merged only where everything the compiler tracked is equal. Stored only if the source
                   proposes abstractions, each of which gives a key to every running position.

A *dead continuation* of a class is an action after which no completion is valid, whatever is observed. In the coarsest partition the
minimal antichain of them has one action each: a longer one passes a class at which its next action is dead, or an observation that is.

Invariants (``verify_policy``): every index is in range, steps lead to higher numbers, no way is longer than the horizon, running
configurations have outcomes for every action whose weights sum to 1, ended ones have none; ``dead`` lists exactly the pairs without a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

RUNNING, REJECTED, ACCEPTED = 0, 1, 2
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
"""What actions, observations, worlds and abstractions may be called."""
MAX_NAMES = 4096
MAX_HORIZON = 512
WEIGHT_SLACK = 1e-9
Step = tuple[int, int]
"""An action and what was observed after it, as numbers."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Edges of a graph, grouped by node and action: those of node ``n`` and action ``a`` are ``offsets[n * A + a]`` up to the next.

    Attributes:
        offsets: int32 ``[nodes * A + 1]``.
        observation: int32 ``[edges]``.
        target: int32 ``[edges]``.
    """

    offsets: Int32
    observation: Int32
    target: Int32

    def of(self, node: int, action: int, actions: int) -> Iterator[tuple[int, int]]:
        """The (observation, target) pairs of ``node`` under ``action``."""
        low, high = self.offsets[node * actions + action], self.offsets[node * actions + action + 1]
        return zip(self.observation[low:high].tolist(), self.target[low:high].tolist(), strict=True)


@dataclass(frozen=True)
class AbstractionVerdict:
    """What the compiler found about a proposed abstraction.

    Attributes:
        name: its name.
        sound: equal keys imply equal continuations: a certificate for one history holds for all of its key.
        bisimulation: the local condition of Proposition 3 holds too: equal keys step to equal keys.
        proof: empty if sound; else two histories with one key, and a continuation that completes the first and not the second.
        keys: number of keys.
    """

    name: str
    sound: bool
    bisimulation: bool
    proof: tuple[tuple[Step, ...], ...]
    keys: int


@dataclass(frozen=True, eq=False)
class Positions:
    """Histories as the compiler explored them, and the keys that abstractions give them.

    Attributes:
        steps: position 0 is the empty history.
        class_of: int32 ``[positions]``, -1 where no completion is valid.
        ended: bool ``[positions]``.
        keys: int32 ``[abstractions, positions]``, -1 at ended positions.
    """

    steps: Steps
    class_of: Int32
    ended: npt.NDArray[np.bool_]
    keys: Int32


@dataclass(frozen=True, eq=False)
class PolicyGraph:
    """See the module's text.

    Attributes:
        actions: names.
        observations: names; number 0 is the empty one, nothing observed.
        worlds: names.
        world_weights: float64 ``[worlds]``, positive, sum 1.
        horizon: most actions of a history.
        starts: int32 ``[worlds]``, first configuration in each.
        ending: uint8 ``[configurations]``: RUNNING, REJECTED or ACCEPTED.
        outcomes: steps of configurations.
        outcome_weights: float64 ``[edges of outcomes]``.
        classes: steps of classes; observations rise within a class and action.
        class_accepting: bool ``[classes]``; an accepting class has no steps, any other has some.
        dead: int32 ``[n, 2]``, rising (class, action): the minimal antichain of dead continuations.
        explored: number of configurations and of positions before reduction.
        positions: None unless there are abstractions.
        abstractions: verdicts, in the order of ``positions.keys``.
    """

    actions: tuple[str, ...]
    observations: tuple[str, ...]
    worlds: tuple[str, ...]
    world_weights: Float64
    horizon: int
    starts: Int32
    ending: npt.NDArray[np.uint8]
    outcomes: Steps
    outcome_weights: Float64
    classes: Steps
    class_accepting: npt.NDArray[np.bool_]
    dead: Int32
    explored: tuple[int, int]
    positions: Positions | None = None
    abstractions: tuple[AbstractionVerdict, ...] = field(default=())

    def spell(self, history: tuple[Step, ...]) -> str:
        """A history as the artifact's machine reads it: ``AUTH PROBE=confirmed STOP``."""
        return " ".join(self.actions[action] + (f"={self.observations[seen]}" if seen else "") for action, seen in history)


@dataclass(frozen=True)
class WorldCounts:
    """What one world holds: its complete histories, the valid ones, and the histories that are still running."""

    world: str
    traces: int
    valid: int
    prefixes: int


def world_counts(graph: PolicyGraph) -> list[WorldCounts]:
    """Histories of each world, counted over the environment; exact at any size. O(edges) additions."""
    width = len(graph.actions)
    traces, valid, prefixes = ([0] * len(graph.ending) for _ in range(3))
    ending = graph.ending.tolist()
    offsets, targets = graph.outcomes.offsets[::width].tolist(), graph.outcomes.target.tolist()
    for node in range(len(ending) - 1, -1, -1):
        if ending[node] != RUNNING:
            traces[node], valid[node] = 1, int(ending[node] == ACCEPTED)
            continue
        below = targets[offsets[node]:offsets[node + 1]]
        traces[node], valid[node] = sum(traces[target] for target in below), sum(valid[target] for target in below)
        prefixes[node] = 1 + sum(prefixes[target] for target in below)
    return [WorldCounts(world, traces[start], valid[start], prefixes[start])
            for world, start in zip(graph.worlds, graph.starts.tolist(), strict=True)]


def dead_pairs(classes: Steps, accepting: npt.NDArray[np.bool_], actions: int) -> Int32:
    """int32 ``[n, 2]``: every (class, action) of a class that does not accept, without a step."""
    silent = np.diff(classes.offsets).reshape(-1, actions) == 0
    return np.argwhere(silent & ~accepting[:, None]).astype(np.int32)


def verify_policy(graph: PolicyGraph) -> list[str]:
    """Every broken invariant that was met, as one sentence each; empty when the graph is sound. O(size)."""
    return _verify_names(graph) or _verify_environment(graph) or _verify_classes(graph) or _verify_positions(graph)


def _verify_names(graph: PolicyGraph) -> list[str]:
    groups = (graph.actions, graph.observations[1:], graph.worlds, tuple(verdict.name for verdict in graph.abstractions))
    checks = [
        (all(NAME.fullmatch(name) for names in groups for name in names), "names are words"),
        (all(len(set(names)) == len(names) <= MAX_NAMES for names in groups), "names are not used twice"),
        (bool(graph.actions and graph.worlds), "there is an action and a world"),
        (graph.observations[:1] == ("",), "the first observation is the empty one"),
        (0 < graph.horizon <= MAX_HORIZON, f"the horizon is between 1 and {MAX_HORIZON}"),
        (all(number >= 0 for number in graph.explored), "counts are not negative"),
    ]
    return [text for holds, text in checks if not holds]


def _verify_steps(steps: Steps, nodes: int, graph: PolicyGraph) -> list[str]:
    """Offsets rise from 0 to the number of edges, indices are in range, and targets are higher than where they are listed."""
    width = len(graph.actions)
    edges = len(steps.target)
    offsets = steps.offsets
    if offsets.shape != (nodes * width + 1,) or offsets[0] != 0 or offsets[-1] != edges or bool((np.diff(offsets) < 0).any()):
        return ["offsets rise from 0 to the number of steps"]
    if steps.observation.shape != (edges,) or not _within(steps.observation, 0, len(graph.observations)):
        return ["observations are in range"]
    sources = np.repeat(np.arange(nodes), np.diff(offsets[::width]))
    if not _within(steps.target, 0, nodes) or bool((steps.target <= sources).any()):
        return ["steps lead to higher numbers"]
    return []


def _within(values: npt.NDArray[Any], low: int, high: int) -> bool:
    return values.size == 0 or (int(values.min()) >= low and int(values.max()) < high)


def _verify_environment(graph: PolicyGraph) -> list[str]:
    count = len(graph.ending)
    if not _within(graph.ending, 0, 3) or graph.starts.shape != (len(graph.worlds),) or not _within(graph.starts, 0, count):
        return ["endings and first configurations are in range"]
    broken = _verify_steps(graph.outcomes, count, graph)
    if broken:
        return broken
    weights, edges = graph.outcome_weights, len(graph.outcomes.target)
    if weights.shape != (edges,) or not np.isfinite(weights).all() or bool((weights <= 0).any()):
        return ["outcome weights are positive numbers"]
    starts = graph.world_weights
    if starts.shape != graph.starts.shape or not np.isfinite(starts).all() or bool((starts <= 0).any()) or not _is_one(starts.sum()):
        return ["world weights are positive and sum to 1"]
    sizes = np.diff(graph.outcomes.offsets).reshape(count, len(graph.actions))
    running = graph.ending == RUNNING
    if not ((sizes > 0) == running[:, None]).all():
        return ["exactly the running configurations have outcomes, for every action"]
    totals = np.add.reduceat(weights, graph.outcomes.offsets[:-1][sizes.reshape(-1) > 0]) if edges else np.ones(1)
    if not all(map(_is_one, totals.tolist())):
        return ["the weights of an action's outcomes sum to 1"]
    if _longest(graph.outcomes, count, len(graph.actions)) > graph.horizon:
        return ["no way is longer than the horizon"]
    return []


def _is_one(total: float) -> bool:
    return abs(total - 1.0) <= WEIGHT_SLACK


def _longest(steps: Steps, nodes: int, width: int) -> int:
    """Length of the longest way."""
    height = [0] * nodes
    offsets, targets = steps.offsets[::width].tolist(), steps.target.tolist()
    for node in range(nodes - 1, -1, -1):
        below = targets[offsets[node]:offsets[node + 1]]
        if below:
            height[node] = 1 + max(map(height.__getitem__, below))
    return max(height, default=0)


def _verify_classes(graph: PolicyGraph) -> list[str]:
    count, width = len(graph.class_accepting), len(graph.actions)
    if count == 0:
        return ["there is a class"]
    broken = _verify_steps(graph.classes, count, graph)
    if broken:
        return broken
    some = np.diff(graph.classes.offsets[::width]) > 0
    if bool((some == graph.class_accepting).any()):
        return ["exactly the classes that accept have no steps"]
    if not _deterministic(graph.classes):
        return ["observations rise within a class and action"]
    if not np.array_equal(graph.dead, dead_pairs(graph.classes, graph.class_accepting, width)):
        return ["dead continuations are the pairs without a step"]
    return []


def _deterministic(steps: Steps) -> bool:
    sizes = np.diff(steps.offsets)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    same = groups[1:] == groups[:-1]
    return bool((np.diff(steps.observation)[same] > 0).all())


def _verify_positions(graph: PolicyGraph) -> list[str]:
    positions = graph.positions
    if positions is None:
        return [] if not graph.abstractions else ["abstractions come with positions"]
    count = len(positions.class_of)
    if count == 0 or positions.ended.shape != (count,) or positions.keys.shape != (len(graph.abstractions), count):
        return ["positions have a class, an ending and keys each"]
    broken = _verify_steps(positions.steps, count, graph)
    if broken:
        return broken
    if not _within(positions.class_of, -1, len(graph.class_accepting)) or int(positions.class_of[0]) != 0:
        return ["classes of positions are in range, and that of the first is 0"]
    if not _deterministic(positions.steps):
        return ["observations rise within a position and action"]
    for verdict, keys in zip(graph.abstractions, positions.keys, strict=True):
        if not _within(keys, -1, verdict.keys) or not ((keys < 0) == positions.ended).all():
            return ["exactly the running positions have keys"]
        if len(verdict.proof) != (0 if verdict.sound else 3):
            return ["an unsound abstraction comes with its proof"]
        if not all(0 <= action < len(graph.actions) and 0 <= seen < len(graph.observations)
                   for word in verdict.proof for action, seen in word):
            return ["proofs name actions and observations"]
    return []
