"""Texts that lead somewhere: a shortest one to any node of a reading.

In: a reading and its measures. Out: bytes that the machine reads from its start to the node. Of several bytes that do the same, a letter or
a digit is taken where there is one. Cost: linear in the edges of the contexts on the way; kept.
"""

from __future__ import annotations

import heapq

from stcc.compiler.explaining.lengths import Least, Measures
from stcc.compiler.explaining.reading import Context, Edge, Reading


class Witnesses:
    """Shortest texts of one reading."""

    def __init__(self, reading: Reading, measures: Measures) -> None:
        self.reading, self._measures = reading, measures
        self._bytes = [_plain(bytes_) for _, _, bytes_ in reading.pairs]
        self._ways: dict[int, dict[int, Edge | None]] = {}
        self._inside: dict[tuple[int, int], bytes] = {}

    def to(self, context: Context, node: int) -> bytes:
        """A text from the start of the output to ``node``."""
        before = b""
        if context.entered is not None:
            caller, source, pair, passed = context.entered
            before = self.to(caller, source) + self._bytes[pair] + b"".join(self.inside(callee, end) for callee, end in passed)
        return before + self._from_start(context, node)

    def inside(self, context: Context, end: int) -> bytes:
        """A shortest text of a context, from its start to where it has ended at ``end``."""
        key = (context.number, end)
        if key not in self._inside:
            self._inside[key] = self._from_start(context, end)
        return self._inside[key]

    def _from_start(self, context: Context, node: int) -> bytes:
        if context.number not in self._ways:
            self._ways[context.number] = self._search(context)
        into, parts = self._ways[context.number], []
        while (edge := into[node]) is not None:
            parts.append((self._bytes[edge.kinds[0]] if edge.length else b"")
                         + b"".join(self.inside(callee, end) for callee, end in edge.calls))
            node = edge.source
        return b"".join(reversed(parts))

    def _search(self, context: Context) -> dict[int, Edge | None]:
        """For each node the last edge of a shortest way to it."""
        out: dict[int, list[Edge]] = {}
        for edge in context.edges:
            out.setdefault(edge.source, []).append(edge)
        into: dict[int, Edge | None] = {}
        heap: list[tuple[Least, int, int]] = [((0, 0), 0, 0)]
        pushed: list[Edge | None] = [None]
        while heap:
            cost, place, node = heapq.heappop(heap)
            if node in into:
                continue
            into[node] = pushed[place]
            for edge in out.get(node, ()):
                if edge.target in into:
                    continue
                step = self._measures.edge_least(edge)
                if step[0] < 1 << 59:
                    heapq.heappush(heap, ((cost[0] + step[0], cost[1] + step[1]), len(pushed), edge.target))
                    pushed.append(edge)
        return into


def _plain(bytes_: bytes) -> bytes:
    return min(bytes_, key=lambda byte: (not chr(byte).isalnum() or byte > 0x7F, byte)).to_bytes(1, "big")
