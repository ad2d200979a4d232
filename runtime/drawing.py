"""The machine as a picture, for ``stcc inspect --graph`` and the pages of ``stcc explain``: an SVG that stands alone.

In: a machine, and what may be put together in it. Out: SVG text, the same on every run. A machine is drawn state by state if it has few
nodes (``FEW_NODES``), else with a box for each field, else as a row of parts or its rules and their calls: there is a readable drawing
of every machine. Layers run from top to bottom (Sugiyama, Tagawa and Toda, 1981, by grandalf); texts lie in boxes of their own between
the states, so that none covers another. Colours follow the reader's scheme, light or dark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from stcc.formats.machine import Machine
from stcc.formats.summary import printable
from stcc.runtime.drawing_graph import Graph, Lines, Node, TooManyNodes, box_graph, machine_graph

FEW_NODES = 90
"""Up to so many nodes, texts among them, a machine is drawn state by state."""
MOST_NODES = 420
"""Up to so many, with a box for each field."""
_LETTER, _LINE, _PAD, _GAP_X, _GAP_Y, _MARGIN = 6.7, 15, 8, 22, 26, 24
_STYLE = (":root{color-scheme:light dark}svg{--ink:#1c2024;--paper:#fff;--soft:#eef2f6;--end:#d9f2d9;--call:#1f5fbf;--back:#a3590a}"
          "@media(prefers-color-scheme:dark){svg{--ink:#e6e8ea;--paper:#15181b;--soft:#262c32;--end:#1f4a2a;--call:#7db2ff;--back:#f0b060}}"
          ".bg{fill:var(--paper)}text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:var(--ink);text-anchor:middle;"
          "dominant-baseline:central}.n{fill:var(--paper);stroke:var(--ink);stroke-width:1.2}.a{fill:var(--end)}.t{fill:var(--soft)}"
          ".g{fill:var(--soft);stroke:var(--ink)}.e{fill:none;stroke:var(--ink);opacity:.75}.c{stroke-dasharray:6 3;stroke:var(--call)}"
          ".r{stroke-dasharray:2 3;stroke:var(--back)}.h{fill:var(--ink)}.l{font-style:italic}")
Sketch = Callable[[], tuple[list[Lines], list[tuple[int, int, str]]]]


def draw_machine(machine: Machine, groups: Callable[[], Mapping[int, Lines]] | None = None, sketch: Sketch | None = None) -> str:
    """The SVG of ``machine``.

    Args:
        machine: what is drawn.
        groups: gives state -> lines for states that may be one box; asked for if the machine is not small.
        sketch: gives boxes and arrows, asked for if that does not do.
    """
    graph = _fitting(machine, groups, sketch)
    places, routes = _layout(graph)
    turns = [(x, y, 0.0, 0.0) for route in routes.values() for x, y in route]
    left, right = min(x - w / 2 for x, _, w, _ in places + turns), max(x + w / 2 for x, _, w, _ in places + turns)
    top, bottom = min(y - h / 2 for _, y, _, h in places + turns), max(y + h / 2 for _, y, _, h in places + turns)
    width, height = right - left + 2 * _MARGIN, bottom - top + 2 * _MARGIN
    shown = sum(node.shape == "state" for node in graph.nodes)
    title = f"{machine.states:,} states, {shown:,} drawn as such"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left - _MARGIN:.0f} {top - _MARGIN:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        '<marker id="h" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="h" d="M0 0L8 4L0 8z"/></marker>',
        f'<rect class="bg" x="{left - _MARGIN:.0f}" y="{top - _MARGIN:.0f}" width="{width:.0f}" height="{height:.0f}"/>',
    ]
    parts += [_draw_arrow(graph, arrow, places, routes.get((arrow[0], arrow[1]), ())) for arrow in graph.arrows
              if arrow[2]]
    parts += [_draw_node(node, place, number == 0) for number, (node, place) in enumerate(zip(graph.nodes, places, strict=True))]
    return "\n".join([*parts, "</svg>", ""])


def _fitting(machine: Machine, groups: Callable[[], Mapping[int, Lines]] | None, sketch: Sketch | None) -> Graph:
    """The most detailed graph that is readable."""
    try:
        return machine_graph(machine, {}, FEW_NODES if groups is not None else MOST_NODES)
    except TooManyNodes:
        pass
    boxes = groups() if groups is not None else {}
    try:
        return machine_graph(machine, boxes, MOST_NODES)
    except TooManyNodes:
        pass
    if sketch is None:
        return box_graph([("a machine", f"{machine.states:,} states", f"{machine.sites:,} call sites")], [])
    return box_graph(*sketch())


Place = tuple[float, float, float, float]
"""Centre, width and height."""


def _size(node: Node) -> tuple[float, float]:
    longest = max(len(printable(line)) for line in (*node.lines, *node.loops))
    lines = len(node.lines) + (len(node.loops) if node.loops else 0)
    if node.shape == "state" and not node.loops:
        return 34.0, 34.0
    return longest * _LETTER + 2 * _PAD + (18 if node.loops else 0), lines * _LINE + 2 * (4 if node.shape == "text" else _PAD)


class _View:
    """What the layout wants to know of a node or an arrow, and where it writes its answer."""

    def __init__(self, width: float = 0.0, height: float = 0.0) -> None:
        self.w, self.h, self.xy = width, height, (0.0, 0.0)
        self.points: list[tuple[float, float]] = []

    def setpath(self, points: Any) -> None:
        """The way of an arrow."""
        self.points = [(float(x), float(y)) for x, y in points]


def _layout(graph: Graph) -> tuple[list[Place], dict[tuple[int, int], list[tuple[float, float]]]]:
    """Where every node lies, and by which points each arrow goes."""
    from grandalf import graphs as library
    from grandalf.layouts import SugiyamaLayout

    vertices = []
    for number, node in enumerate(graph.nodes):
        vertex = library.Vertex(number)
        vertex.view = _View(*_size(node))
        vertices.append(vertex)
    edges = []
    for source, target in dict.fromkeys((source, target) for source, target, _ in graph.arrows if source != target):
        edge = library.Edge(vertices[source], vertices[target])
        edge.view = _View()
        edges.append(edge)
    # a connected graph as such: the library's Graph, which finds components, orders their edges by address
    layout = SugiyamaLayout(library.graph_core(vertices, edges))
    layout.xspace, layout.yspace = _GAP_X, _GAP_Y
    layout.init_all(roots=[vertices[0]])
    layout.draw(4)
    layout.draw_edges()
    places = [(vertex.view.xy[0], vertex.view.xy[1], vertex.view.w, vertex.view.h) for vertex in vertices]
    return places, {(edge.v[0].data, edge.v[1].data): edge.view.points for edge in edges}


def _border(place: Place, towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box to a point leaves it."""
    x, y, width, height = place
    dx, dy = towards[0] - x, towards[1] - y
    share = min([(width / 2) / abs(dx) if dx else 1e9, (height / 2) / abs(dy) if dy else 1e9, 1.0])
    return x + dx * share, y + dy * share


def _draw_arrow(graph: Graph, arrow: tuple[int, int, str], places: list[Place], route: Any) -> str:
    source, target, kind = arrow
    head = "" if graph.nodes[target].shape == "text" else ' marker-end="url(#h)"'
    inner = list(route)[1:-1]
    if source == target:
        x, y, width, _ = places[source]
        return f'<path class="e {kind}" d="M{x + width / 2:.0f} {y - 5:.0f}c26 -16 26 26 0 10"{head}/>'
    first = _border(places[source], inner[0] if inner else places[target][:2])
    last = _border(places[target], inner[-1] if inner else places[source][:2])
    points = "L".join(f"{x:.0f} {y:.0f}" for x, y in (first, *inner, last))
    return f'<path class="e {kind}" d="M{points}"{head}/>'


def _draw_node(node: Node, place: Place, start: bool) -> str:
    x, y, width, height = place
    lines = [*((line, node.shape) for line in node.lines), *((f"↺ {line}", "loop") for line in node.loops)]
    shape = {"state": f"n{' a' if node.ends else ''}", "group": f"g{' a' if node.ends else ''}", "text": "t"}[node.shape]
    radius = {"state": 17, "group": 3, "text": 7}[node.shape]
    ring = (f'<rect class="n" x="{x - width / 2 - 3:.1f}" y="{y - height / 2 - 3:.1f}" width="{width + 6:.1f}" height="{height + 6:.1f}" '
            f'rx="{radius + 3}"/>') if start else ""
    drawn = [f'{ring}<rect class="{shape}" x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
             f'rx="{radius}"/>']
    first = y - (len(lines) - 1) * _LINE / 2
    drawn += [f'<text class="{ {"state": "m", "loop": "l"}.get(kind, "w") }" x="{x:.1f}" y="{first + number * _LINE:.1f}">'
              f"{escape(printable(line))}</text>" for number, (line, kind) in enumerate(lines)]
    return "".join(drawn)
