"""The parts of a grammar that is not JSON: what lies between two cut states is one part, and one independent choice (Lemma 12).

In: a machine. Out: a reader for ``reading.read_machine`` that credits every byte to the number of cut states behind it. What a rule reads
that is called belongs to the part it is called in.
"""

from __future__ import annotations

from collections.abc import Sequence

from stcc.compiler.analyses.cut_states import root_graph
from stcc.compiler.explaining.json_modes import Container, Containers, Part, Step
from stcc.compiler.explaining.reading import Edge, Node, Path
from stcc.formats.machine import Machine

OUTSIDE, INSIDE = "outside", "inside"


class PartReader:
    """Reads a machine by its parts, which lie between pairs of cut states (``cut_states.gaps``); a single one is the output itself."""

    def __init__(self, machine: Machine, gaps: Sequence[tuple[int, int]]) -> None:
        found = gaps or [(machine.start, machine.states)]
        self._starts = {start for start, _ in found}
        self._part = _part_of_state(machine, found)
        self._here = [(Container("part", Part("part", number) if len(found) > 1 else None),) for number in range(len(found))]

    def kind(self, byte: int) -> str:
        """All bytes are alike."""
        return ""

    def start(self) -> tuple[str, Containers]:
        """At the first part."""
        return OUTSIDE, (Container("part"),)

    def step(self, node: Node, kind: str, landing: int) -> Step:
        """A byte belongs to the part of the state that reads it; inside a call, to that of the caller."""
        if node.mode == INSIDE:
            return Step(INSIDE, node.containers, node.containers, node.containers)
        part = self._part[node.state]
        here, begins = self._here[part], node.state in self._starts
        if landing < 0:
            return Step(INSIDE, here, here, here, begins)
        return Step(OUTSIDE, (Container("part"),), here, here, begins, self._part[landing] != part)

    def ending(self, node: Node) -> Containers:
        """The last part."""
        return node.containers if node.mode == INSIDE else self._here[self._part[node.state]]

    def returned(self, call: Edge, node: Node, path: Path, outermost: bool) -> tuple[Node, bool]:
        """Back in the output's own rule the state says which part it is."""
        if not outermost:
            return node, False
        return Node(node.state, OUTSIDE, (Container("part"),)), bool(call.owner) and self._part[node.state] != call.owner[-1].landing


def _part_of_state(machine: Machine, found: Sequence[tuple[int, int]]) -> list[int]:
    """For each state of the root rule the number of the part that begins there or lies around it; -1 for those of other rules."""
    graph = root_graph(machine)
    part = [-1] * graph.vertices
    for number, (start, stop) in enumerate(found):
        part[start] = number
        waiting = [start]
        for state in waiting:  # grows while it is read
            for target in graph.successors[state]:
                if target != stop and part[target] < 0:
                    part[target] = number
                    waiting.append(target)
    return part
