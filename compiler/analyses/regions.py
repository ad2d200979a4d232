"""Regions with few texts, certified: what lies between two cut states where nothing repeats and nothing is called.

In: a machine. Out: for each gap between consecutive cut states a certificate, or why there is none. A certificate says how many texts the
gap has (r), its cyclomatic number c, and a bound on what it costs: a decoder that feeds forced text in the same pass samples at most
``passes <= c <= r - 1`` tokens in it, however long the texts are (Corollary 1). Keys, enumerations, Booleans and closing brackets are such
regions; free text is not. That a gap has few texts is decided by the capped traversal (Theorem 8), which ends within its bound of steps on
every gap, those with cycles or exponentially many texts included.

Cost: at most ``most`` times the states of the gap, each with its bytes.

>>> from stcc.compiler import compile_regex
>>> [(region.texts, region.passes) for region in certified_regions(compile_regex("name:(?:Ann|Anton|Bob)!").machine)]
[(3, 2)]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stcc.compiler.analyses.capped_traversal import decide_root_budget
from stcc.compiler.analyses.cut_states import gaps
from stcc.compiler.analyses.few_paths import TwoTerminal, blocks, kernel, two_terminal
from stcc.compiler.analyses.graphs import Digraph
from stcc.compiler.analyses.walk_budgets import RootBudget
from stcc.formats.machine import Machine, end_states

MOST_TEXTS = 256
"""Most texts that a gap may have for a certificate."""


@dataclass(frozen=True)
class Region:
    """One gap between cut states.

    Attributes:
        start: the cut state before it.
        stop: the one after it; ``machine.states`` stands for the end of the output.
        certified: whether it has few texts and all below hold.
        reason: why not; empty if it is.
        texts: r, the number of texts; 0 where it is not certified, as are the others.
        cyclomatic: c.
        passes: the most states on one way through it at which more than one byte may follow: sampled tokens, at most.
        kernel: (vertices, edges) of its branch kernel.
        blocks: how many independent choices it falls into (Theorem 12), those with one text not counted.
    """

    start: int
    stop: int
    certified: bool
    reason: str = ""
    texts: int = 0
    cyclomatic: int = 0
    passes: int = 0
    kernel: tuple[int, int] = (0, 0)
    blocks: int = 0


def certified_regions(machine: Machine, most: int = MOST_TEXTS) -> list[Region]:
    """The gaps of ``machine`` (``cut_states.gaps``), in order; those with at most ``most`` texts are certified."""
    return [certify_region(machine, start, stop, most) for start, stop in gaps(machine)]


def certify_region(machine: Machine, start: int, stop: int, most: int = MOST_TEXTS) -> Region:
    """The region between two cut states of ``machine``."""
    graph, vertices, reason = _byte_graph(machine, start, stop, most)
    if graph is None:
        return Region(start, stop, False, reason)
    source, target = vertices.index(start), vertices.index(stop)
    verdict = decide_root_budget(RootBudget(graph, source, (most,) * graph.vertices, (target,)))
    part = two_terminal(graph, source, target) if verdict.accepted else None
    if part is None:
        return Region(start, stop, False, verdict.reason)
    return _certificate(start, stop, part)


def _certificate(start: int, stop: int, part: TwoTerminal) -> Region:
    small = kernel(part)
    choices = sum(block.paths > 1 for block in blocks(part))
    shape = (len(small.order), len(small.graph.edges))
    return Region(start, stop, True, "", part.paths, part.cyclomatic, part.most_branches, shape, choices)


def _byte_graph(machine: Machine, start: int, stop: int, most: int) -> tuple[Digraph | None, list[int], str]:
    """The states from ``start`` up to ``stop``, with one edge for each byte; None, and why, where a call or too many bytes are in it."""
    sizes = np.bincount(machine.byte_class, minlength=machine.classes).tolist()
    ends = machine.accepting | (end_states(machine) & (machine.exits == 0))
    places = {start: 0}
    edges: list[tuple[int, int]] = []
    for state in (waiting := [start]):  # grows while it is read
        if state in (stop, machine.states):
            continue
        targets = [(cell, sizes[column]) for column, cell in enumerate(machine.table[state].tolist()) if cell >= 0]
        if any(cell >= machine.states for cell, _ in targets):
            return None, [], "a value in it is called"
        for target, count in [*targets, *([(machine.states, 1)] if ends[state] else [])]:
            if count > most:
                return None, [], f"at state {state} more than {most} bytes may follow"
            if target not in places:
                places[target] = len(places)
                waiting.append(target)
            edges += [(places[state], places[target])] * count
    if stop not in places:
        return None, [], "the two states are not joined"
    return Digraph(len(places), tuple(edges)), list(places), ""
