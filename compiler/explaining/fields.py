"""The fields of a grammar, one record each: where it is, how large, what it costs.

In: a reading, and what its parts are called. Out: ``Field`` records in the order in which texts come to them. A field is a value: what its
JSON path leads to (items of an array are one field, and so are members that no name tells apart, both written ``*``), or a part between two
cut states where the grammar is not JSON. Values inside a value are fields of their own, and count in the numbers of those around them.
Cost: for each field, linear in its edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from stcc.compiler.explaining.lengths import ENDS, FOLLOWS, STAYS, STOPS, Lengths, Measures
from stcc.compiler.explaining.names import member_names
from stcc.compiler.explaining.reading import Context, Edge, Path, Reading

Label = tuple[str, ...]
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
_TEXT = ("string", "escape", "number", "word", "inside", "outside")
_ORDER = ("object", "array", "string", "number", "boolean", "null", "text")


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        path: its parts: names, ``*`` for an item or a free name, ``a|b`` where two names lead to the same; ``part 3`` outside JSON.
        kinds: JSON types that its value may have; ``text`` outside JSON.
        states: machine states at which a byte of its value is read, values inside it left out, called rules included.
        lengths: what its value costs, values inside it included.
        cut: whether it begins at a cut state: every output passes there exactly once, so that what follows does not depend on what is
            before (Lemma 12).
        same_as: the path of the field whose rule it calls, where that was met before; None otherwise.
        entry: (context, node) of the first place at which it begins, for a text that leads there.
        loose: whether a string in it that may have any length is its own text, not that of a value inside it.
    """

    path: Label
    kinds: tuple[str, ...]
    states: int
    lengths: Lengths
    cut: bool
    same_as: Label | None
    entry: tuple[int, int]
    loose: bool

    @property
    def name(self) -> str:
        """The path as text: a JSON pointer for JSON."""
        return pointer(self.path)


def pointer(path: Label) -> str:
    """Parts as a JSON pointer; the empty one is the whole."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


class Fields:
    """The fields of a reading, and how edges belong to them."""

    def __init__(self, reading: Reading, measures: Measures) -> None:
        self.reading, self.measures = reading, measures
        self._names = member_names(reading)
        self._labels: dict[Path, Label] = {}
        self.owned: dict[Label, list[tuple[Context, Edge]]] = {}
        others = _other_strings(reading)
        for context in reading.contexts:
            for edge in context.edges:
                self.owned.setdefault(self.label(edge.owner), []).append((context, edge))
            for label in dict.fromkeys(map(self.label, others[context.number])):
                if label != self.label(context.path):
                    self.owned.setdefault(label, []).extend((context, edge) for edge in context.edges if edge.owner == context.path)

    def label(self, path: Path) -> Label:
        """A path in words."""
        found = self._labels.get(path)
        if found is None:
            found = self._labels[path] = tuple(_word(path[:length], self._names) for length in range(1, len(path) + 1))
        return found

    def records(self, cuts: Set[int]) -> list[Field]:
        """All fields, in the order in which a text first comes to them; ``cuts`` are the machine's cut states."""
        begins: dict[Label, list[tuple[Context, Edge]]] = {(): []}
        for context in self.reading.contexts:
            for edge in context.edges:
                if edge.begins and edge.owner:
                    begins.setdefault(self.label(edge.owner), []).append((context, edge))
        inside = self._by_context(begins)
        found = {label: self._record(label, entries, inside.get(label, {}), cuts) for label, entries in begins.items()}
        return _without_copies(self._in_order(found), {label: self._closing(label) for label in found})

    def _in_order(self, found: dict[Label, Field]) -> list[Field]:
        """A value before the values inside it, these as texts come to them."""
        below: dict[Label, list[Field]] = {}
        for label, field in found.items():
            if label:
                around = next(label[:length] for length in range(len(label) - 1, -1, -1) if label[:length] in found)
                below.setdefault(around, []).append(field)
        order: list[Field] = []
        stack = [found[()]]
        while stack:
            field = stack.pop()
            order.append(field)
            stack += sorted(below.get(field.path, ()), key=self._place, reverse=True)
        return order

    def _place(self, field: Field) -> tuple[int, int, Label]:
        context, node = field.entry
        return context, self.measures.least_to(self.reading.contexts[context], node)[0], field.path

    def _closing(self, label: Label) -> frozenset[int]:
        """The states that read a container's own bytes behind its first."""
        return frozenset(context.nodes[edge.source].state for context, edge in self.owned.get(label, ())
                         if not edge.begins and edge.length and context.nodes[edge.source].mode not in _TEXT)

    def _by_context(self, begins: Mapping[Label, object]) -> dict[Label, dict[int, list[Edge]]]:
        """For each field, by context, the edges of its value and of the values inside it."""
        found: dict[Label, dict[int, list[Edge]]] = {}
        for context in self.reading.contexts:
            lists: dict[tuple[Path, Path, Path | None], list[list[Edge]]] = {}  # few paths, many edges
            for edge in context.edges:
                paths = edge.owner, edge.chooser, edge.closed
                if paths not in lists:
                    longer = max((self.label(path or ()) for path in paths), key=len)
                    around = [longer[:length] for length in range(len(longer) + 1) if longer[:length] in begins]
                    lists[paths] = [found.setdefault(label, {}).setdefault(context.number, []) for label in around]
                for edges in lists[paths]:
                    edges.append(edge)
        return found

    def _record(self, label: Label, entries: list[tuple[Context, Edge]], edges: dict[int, list[Edge]], cuts: Set[int]) -> Field:
        depth = len(label)
        inside: dict[Path, int] = {}  # 2: it leads to the field itself, 1: to what is inside it, 0: elsewhere

        def belongs(path: Path) -> int:
            found = inside.get(path)
            if found is None:
                other = self.label(path)
                found = inside[path] = (other[:depth] == label) + (other == label)
            return found

        def leaves(edge: Edge) -> int:
            owner = belongs(edge.owner)
            if not owner:
                return STOPS if belongs(edge.chooser) else FOLLOWS
            return ENDS if depth and edge.ends and owner == 2 else STAYS

        places: dict[int, set[int]] = {} if label else {0: {0}}
        for context, edge in entries:
            places.setdefault(context.number, set()).add(edge.source)
        measured = [self.measures.region(self.reading.contexts[number], edges.get(number, []), sources, leaves)
                    for number, sources in places.items()]
        entry = min(((number, self.measures.least_to(self.reading.contexts[number], node)[0], node)
                     for number, sources in places.items() for node in sources), default=(0, 0, 0))
        root = self.reading.contexts[0]
        cut = any(root.nodes[node].state in cuts for node in places.get(0, ()))
        return Field(label, self._kinds(label, entries), len(self._states(label)), _worst(measured), cut, self._same_as(label, entries),
                     (entry[0], entry[2]), self._is_loose(label))

    def _states(self, label: Label) -> set[int]:
        return {context.nodes[edge.source].state for context, edge in self.owned.get(label, ()) if edge.length}

    def _kinds(self, label: Label, entries: list[tuple[Context, Edge]]) -> tuple[str, ...]:
        pairs = self.reading.pairs
        edges = [edge for _, edge in entries] if label else [edge for _, edge in self.owned.get(label, ()) if edge.begins]
        found = {_KINDS.get(chr(byte), "number") if pairs[pair][1] else "text" for edge in edges for pair in edge.kinds
                 for byte in pairs[pair][2]}
        return tuple(sorted(found, key=_ORDER.index))

    def _same_as(self, label: Label, entries: list[tuple[Context, Edge]]) -> Label | None:
        """The path of a callee that was met under another."""
        for _, edge in entries:
            for callee, _ in edge.calls:
                other = self.label(callee.path)
                if other != label and callee.nodes[0].containers and callee.nodes[0].containers[-1].inner is None:
                    return other
        return None

    def _is_loose(self, label: Label) -> bool:
        """Whether one of its own choices leads back to where it was: text of any length."""
        own: dict[int, list[Edge]] = {}
        for context, edge in self.owned.get(label, ()):
            if context.nodes[edge.source].mode in _TEXT:
                own.setdefault(context.number, []).append(edge)
        return any(map(_cyclic, own.values()))


def _other_strings(reading: Reading) -> list[dict[Path, None]]:
    """For each context that is entered inside strings, the paths of those but for the first; what it calls is inside them, too."""
    found: list[dict[Path, None]] = [dict(context.aliases) if context.within else {} for context in reading.contexts]
    inner: list[dict[int, None]] = [{callee.number: None for edge in context.edges for callee, _ in edge.calls if callee.within}
                                    for context in reading.contexts]
    waiting = [number for number, paths in enumerate(found) if paths]
    for number in waiting:  # grows while it is read
        for callee in inner[number] if reading.contexts[number].within else ():
            if found[number].keys() - found[callee].keys():
                found[callee].update(found[number])
                waiting.append(callee)
    return found


def _without_copies(fields: list[Field], closing: Mapping[Label, frozenset[int]]) -> list[Field]:
    """The fields; a container of the same states as an earlier one is the same as that, and what is inside it is told there."""
    first: dict[frozenset[int], Label] = {}
    found: list[Field] = []
    dropped: set[Label] = set()
    for field in fields:
        if any(field.path[:length] in dropped for length in range(len(field.path))):
            continue
        same = field.same_as
        if same is None and {"object", "array"} & set(field.kinds) and len(closing[field.path]) > 1:
            same = first.setdefault(closing[field.path], field.path)
        if same is not None and same != field.path:
            dropped.add(field.path)
            field = replace(field, same_as=same)
        found.append(field)
    return found


def _cyclic(edges: list[Edge]) -> bool:
    following: dict[int, set[int]] = {}
    waiting: dict[int, int] = {}
    for edge in edges:
        if edge.target not in following.setdefault(edge.source, set()):
            following[edge.source].add(edge.target)
            waiting[edge.target] = waiting.get(edge.target, 0) + 1
    free = [node for node in following if not waiting.get(node)]
    removed = 0
    for node in free:  # grows while it is read
        for target in following.get(node, ()):
            removed += 1
            waiting[target] -= 1
            if not waiting[target]:
                free.append(target)
    return removed < sum(map(len, following.values()))


def _worst(measured: list[Lengths]) -> Lengths:
    """Of a value at several places: most passes, least bytes, most texts."""
    passes = [found.passes for found in measured]
    counted = [found.texts for found in measured]
    return Lengths(None if None in passes else max([most for most in passes if most is not None], default=0),
                   min(found.least for found in measured),
                   None if None in counted else max([texts for texts in counted if texts is not None], default=None))


def _word(path: Path, names: Mapping[Path, tuple[str, ...]]) -> str:
    """The last part of a path in words."""
    part = path[-1]
    if part.kind == "part":
        return f"part {part.landing + 1}"
    return "|".join(names.get(path, ())) or "*" if part.kind == "member" else "*"
