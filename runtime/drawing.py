"""The machine as a picture: an SVG whose nodes are the places where the output has a choice, for ``stcc inspect --graph``.

In: a ``Machine``. Out: SVG text, deterministic, self-contained. Chains of forced bytes are drawn as one edge that carries their text, so
that a schema's 115 states are some 50 nodes. A call is a dashed edge to the callee's first place, marked with its call sites;
dotted edges lead from the call's state to where it returns. Layers are breadth-first distances from the start, top to bottom, nodes in
a layer sorted by the mean place of their predecessors (the barycentre heuristic of Sugiyama, Tagawa and Toda, 1981). Cost: linear in the
table; refused past ``MOST_NODES``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from html import escape

import numpy as np

from stcc.formats.machine import Machine, end_states
from stcc.formats.summary import printable
from stcc.runtime.errors import ConstraintError
from stcc.runtime.expectations import byte_sets

MOST_NODES = 1500
LONGEST_LABEL = 28
_STEP_X, _STEP_Y, _RADIUS, _MARGIN = 170, 110, 15, 60
_STYLE = ("text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222}.n{fill:#fff;stroke:#222;stroke-width:1.2}.a{fill:#d9f2d9}"
          ".e{fill:none;stroke:#555}.c{stroke-dasharray:6 3;stroke:#1f5fbf}.r{stroke-dasharray:2 3;stroke:#b0640a}"
          ".l{text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px}.m{text-anchor:middle;dominant-baseline:central}")


@dataclass(frozen=True)
class Edge:
    """One arrow: its ends, what it reads, and its kind: ``e`` a move, ``c`` a call, ``r`` a return."""

    source: int
    target: int
    label: str
    kind: str = "e"


@dataclass
class Graph:
    """What is drawn: states that have a choice, by their number in the machine, and the arrows between them."""

    nodes: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


def draw_machine(machine: Machine) -> str:
    """The SVG of ``machine``.

    Raises:
        ConstraintError: it has more than ``MOST_NODES`` places to draw.
    """
    graph = reduced_graph(machine)
    places = _layout(graph)
    width = max(x for x, _ in places.values()) + _MARGIN
    height = max(y for _, y in places.values()) + _MARGIN
    ends = machine.accepting | (end_states(machine) & (machine.exits >= 0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
        f"<title>{machine.states} states, {len(graph.nodes)} drawn; start at {machine.start}</title><style>{_STYLE}</style>",
        '<marker id="h" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0L8 4L0 8z"/></marker>',
    ]
    parts += [_draw_edge(edge, places) for edge in graph.edges]
    parts += [_draw_node(node, places[node], bool(ends[node]), node == machine.start) for node in graph.nodes]
    return "\n".join([*parts, "</svg>", ""])


def reduced_graph(machine: Machine) -> Graph:
    """The places with a choice, an end or a call that the start leads to, and the arrows between them."""
    out = [_moves(machine, state) for state in range(machine.states)]
    landings = set(machine.returns[machine.returns >= 0].tolist())
    entered = np.bincount([target for moves in out for target, _, _ in moves], minlength=machine.states)

    def is_inner(state: int) -> bool:
        """Passed through, not chosen at: one way in, one byte on, no end."""
        moves = out[state]
        forced = len(moves) == 1 and len(moves[0][1]) == 1 and moves[0][2] == "e" and machine.exits[state] < 0
        return forced and not machine.accepting[state] and state != machine.start and state not in landings and int(entered[state]) == 1

    graph, seen, waiting = Graph(), {machine.start}, deque([machine.start])
    while waiting:
        state = waiting.popleft()
        graph.nodes.append(state)
        if len(graph.nodes) > MOST_NODES:
            raise ConstraintError(f"the machine has more than {MOST_NODES:,} places to draw", "draw a part of the schema")
        for target, read, kind in out[state]:
            text = bytes(read) if len(read) == 1 else b""
            label = ", ".join(byte_sets(read)) if len(read) > 1 else ""
            while is_inner(target):
                text += bytes(out[target][0][1])
                target = out[target][0][0]
            graph.edges.append(Edge(state, target, _label(label, text, machine, state, read, kind), kind))
            if target not in seen:
                seen.add(target)
                waiting.append(target)
        for target in _returns(machine, state, out[state]):
            graph.edges.append(Edge(state, target, "", "r"))
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return graph


def _moves(machine: Machine, state: int) -> list[tuple[int, list[int], str]]:
    """Where a state leads: target, the bytes that lead there, ``e`` or ``c``; by rising table cell."""
    row = machine.table[state][machine.byte_class]
    found = []
    for cell in np.unique(row[row >= 0]).tolist():
        called = cell >= machine.states
        target = int(machine.edge_target[cell - machine.states]) if called else cell
        found.append((target, np.flatnonzero(row == cell).tolist(), "c" if called else "e"))
    return found


def _returns(machine: Machine, state: int, moves: list[tuple[int, list[int], str]]) -> list[int]:
    """Where the calls made at a state come back to."""
    cells = np.unique(machine.table[state])
    sites = {site for cell in cells[cells >= machine.states].tolist() for site in machine.pushes(cell - machine.states)}
    return sorted({int(target) for site in sites for target in machine.returns[site] if target >= 0})


def _label(chosen: str, text: bytes, machine: Machine, state: int, read: list[int], kind: str) -> str:
    shown = " ".join(filter(None, (chosen, printable(text.decode("utf-8", "backslashreplace")))))
    shown = shown if len(shown) <= LONGEST_LABEL else shown[:LONGEST_LABEL] + "…"
    if kind != "c":
        return shown
    edge = int(machine.table[state, machine.byte_class[read[0]]]) - machine.states
    return f"{shown} call {','.join(map(str, machine.pushes(edge)))}"


def _layout(graph: Graph) -> dict[int, tuple[float, float]]:
    """Centre of every node."""
    depth = {graph.nodes[0]: 0}
    order = deque([graph.nodes[0]])
    following: dict[int, list[int]] = {}
    above: dict[int, list[int]] = {}
    for edge in graph.edges:
        following.setdefault(edge.source, []).append(edge.target)
        above.setdefault(edge.target, []).append(edge.source)
    layers: list[list[int]] = []
    while order:
        node = order.popleft()
        if depth[node] == len(layers):
            layers.append([])
        layers[depth[node]].append(node)
        for target in following.get(node, ()):
            if target not in depth:
                depth[target] = depth[node] + 1
                order.append(target)
    widest = max(map(len, layers))
    places: dict[int, tuple[float, float]] = {}
    for row, layer in enumerate(layers):
        def centre(node: int) -> float:
            known = [places[source][0] for source in above.get(node, ()) if source in places]
            return sum(known) / len(known) if known else 0.0

        shift = _MARGIN * 2 + (widest - len(layer)) * _STEP_X / 2
        for column, node in enumerate(sorted(layer, key=centre)):
            places[node] = shift + column * _STEP_X, _MARGIN + row * _STEP_Y
    return places


def _draw_edge(edge: Edge, places: dict[int, tuple[float, float]]) -> str:
    (x, y), (u, v) = places[edge.source], places[edge.target]
    if edge.source == edge.target:
        path = f"M{x + 10:.0f} {y - 11:.0f}c40 -30 40 52 2 23"
        middle = (x + 45, y - 14)
    else:
        bend = 0.0 if v > y else (_STEP_X / 2 if v < y else 0.0)
        length = max(1.0, ((u - x) ** 2 + (v - y) ** 2) ** 0.5)
        a, b = (u - x) / length * _RADIUS, (v - y) / length * _RADIUS
        sag = 34 if v == y else 0
        middle = ((x + u) / 2 + bend, (y + v) / 2 - sag)
        path = f"M{x + a:.0f} {y + b:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {u - a:.0f} {v - b:.0f}"
        middle = ((x + u) / 2 + bend / 2, (y + v) / 2 - sag / 2)
    text = f'<text class="l" x="{middle[0]:.0f}" y="{middle[1]:.0f}">{escape(edge.label)}</text>' if edge.label else ""
    return f'<path class="e {edge.kind}" d="{path}" marker-end="url(#h)"/>{text}'


def _draw_node(node: int, place: tuple[float, float], ends: bool, start: bool) -> str:
    x, y = place
    ring = f'<circle class="n" cx="{x:.0f}" cy="{y:.0f}" r="{_RADIUS + 3}"/>' if start else ""
    return (f'{ring}<circle class="n{" a" if ends else ""}" cx="{x:.0f}" cy="{y:.0f}" r="{_RADIUS}"/>'
            f'<text class="m" x="{x:.0f}" y="{y:.0f}">{node}</text>')
