"""Cut states: states that every accepting run visits exactly once, in one order (Lemma 12).

In: a machine. Out: its root rule as a graph, and the cut states. Between two consecutive ones lies one field, or a key, or a literal: the
language is a product of one language for each gap, and a text is an independent choice in each. A call is one step from the state that
makes it to the states at which it may continue, so that the cut states are those of the root rule. The start is one.

Cost: linear in distinct edges.

>>> from stcc.compiler import compile_regex
>>> machine = compile_regex("(?:ab|cd)x[0-9]*y").machine
>>> len(cut_states(machine))                     # before a or c, before x, and the end; the digits may repeat
3
"""

from __future__ import annotations

import numpy as np

from stcc.compiler.adjacency import distinct_edges
from stcc.compiler.analyses.forced import forced_chains
from stcc.compiler.analyses.graphs import Digraph, components, reachable
from stcc.formats.machine import Machine, end_states


def root_graph(machine: Machine) -> Digraph:
    """The root rule: one vertex a state, and ``machine.states`` for the end of the output; one edge for each two that a step joins."""
    sources, cells = distinct_edges(machine.table)
    edges = set()
    for source, cell in zip(sources.tolist(), cells.tolist(), strict=True):
        edges |= {(source, target) for target in _landings(machine, cell)}
    ends = machine.accepting | (end_states(machine) & (machine.exits == 0))
    edges |= {(state, machine.states) for state in np.flatnonzero(ends).tolist()}
    return Digraph(machine.states + 1, tuple(sorted(edges)))


def _landings(machine: Machine, cell: int) -> list[int]:
    """Where a cell's step continues in the same rule: its state, or the returns of the outermost site that it pushes."""
    if cell < machine.states:
        return [cell]
    site = machine.pushes(cell - machine.states)[0]
    return [state for state in machine.returns[site].tolist() if state >= 0]


def cut_states(machine: Machine) -> list[int]:
    """The states that every accepting run visits exactly once, in the order of the visits; the last is ``machine.states`` (the output's
    end) unless runs end in one state only.
    """
    graph = root_graph(machine)
    end = machine.states
    ahead, behind = reachable(graph, [machine.start]), reachable(graph.reversed(), [end])
    kept = [one and other for one, other in zip(ahead, behind, strict=True)]
    if not kept[machine.start]:
        return []
    trimmed = Digraph(graph.vertices, tuple(edge for edge in graph.edges if kept[edge[0]] and kept[edge[1]]))
    component = components(trimmed)
    looping = {component[source] for source, target in trimmed.edges if component[source] == component[target]}
    order = sorted((vertex for vertex in range(graph.vertices) if kept[vertex]), key=lambda vertex: -component[vertex])
    found, furthest = [], component[machine.start]
    for vertex in order:  # edges lead to lower components: one that no edge jumps over is crossed by every run
        if component[vertex] <= furthest and component[vertex] not in looping:
            found.append(vertex)
        furthest = min([furthest, *(component[target] for target in trimmed.successors[vertex])])
    alone = [source for source, target in trimmed.edges if target == end]
    return found[:-1] if alone == found[-2:-1] else found


def gaps(machine: Machine) -> list[tuple[int, int]]:
    """Pairs of cut states between which the texts of a machine fall into independent parts: each some forced bytes and one choice.

    Consecutive cut states that one forced byte joins are not parted; what is forced after the last choice belongs to it.
    """
    cuts = cut_states(machine)
    if len(cuts) < 2:
        return []
    cells, _ = forced_chains(machine)
    stops = [stop for start, stop in zip(cuts, cuts[1:], strict=False) if cells[start] != stop]
    stops = [*stops[:-1], cuts[-1]]
    return list(zip([cuts[0], *stops], stops, strict=False))
