"""A machine read as what its texts are made of: the product of the machine and a reader that knows which field every byte belongs to.

In: a machine and a reader (``JsonReader``, or ``parts.PartReader``). Out: a ``Reading``: contexts, the first of which is the output. A
*context* is a called rule from one of its states to its exits, read in one mode; its nodes are (state, mode, open containers), its edges
groups of bytes that do the same. A call is one edge to each place where it may come back, with the contexts passed on the way. Contexts are
made once for a (state, mode, innermost container), so that recursion ends; what else calls them is in ``aliases``. Those that are entered
inside a string are made once for all strings: their own path is that of the first.

Every accepting run of the machine is a path through the contexts, and every path spells texts of the machine: the numbers of ``lengths``
are those of its outputs. Cost: nodes times byte classes; refused past ``MOST_NODES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from stcc.compiler.explaining.json_modes import (
    ESCAPE,
    HERE,
    STRING,
    VALUE,
    Container,
    Containers,
    Part,
    Step,
    UnreadableError,
    byte_kind,
    step,
    value_ended,
)
from stcc.formats.machine import Machine, end_states

MOST_NODES = 60_000
"""Most nodes of a reading."""
MOST_OPEN = 256
"""Most containers that a rule may hold open: schemas nest less deeply, and what does not is no schema's machine."""
Path = tuple[Part, ...]


class Node(NamedTuple):
    """A machine state, or ``-1 - exit`` once the rule has ended, and where the reader is."""

    state: int
    mode: str
    containers: Containers


class Reader(Protocol):
    """Says to which field a byte belongs."""

    def kind(self, byte: int) -> str:
        """Bytes of one kind are read alike."""

    def start(self) -> tuple[str, Containers]:
        """Where reading begins."""

    def step(self, node: Node, kind: str, landing: int) -> Step:
        """Read a byte of ``kind``, after which the machine is in ``landing`` (-1 where a rule is called)."""

    def ending(self, node: Node) -> Containers:
        """To whom the choice to end at ``node`` belongs."""

    def returned(self, call: Edge, node: Node, path: Path, outermost: bool) -> tuple[Node, bool]:
        """A call comes back to ``node``, at ``path``: where the reader is, and whether the value of ``call`` has ended with it."""


class JsonReader:
    """The whole text is one JSON value, with white space around it perhaps."""

    def kind(self, byte: int) -> str:
        """Its kind in JSON."""
        return byte_kind(byte)

    def start(self) -> tuple[str, Containers]:
        """Before the value."""
        return VALUE, ()

    def step(self, node: Node, kind: str, landing: int) -> Step:
        """See ``json_modes.step``."""
        return step(node.mode, node.containers, kind, landing)

    def ending(self, node: Node) -> Containers:
        """The value that is being read."""
        return node.containers

    def returned(self, call: Edge, node: Node, path: Path, outermost: bool) -> tuple[Node, bool]:
        """The value has ended if it is no longer being read, be it a container or a string that a rule spells."""
        return node, path[:len(call.owner)] != call.owner


@dataclass(eq=False, slots=True)
class Edge:
    """Bytes that do the same at a node, or the calls that begin with them.

    Attributes:
        source: number of a node.
        target: likewise.
        count: how many bytes; 1 for the end of a rule or of the output, which reads none.
        length: 1, or 0 for an end.
        owner: path of the value that the bytes belong to.
        chooser: path of the value that the choice belongs to.
        begins: whether they are the first of ``owner``.
        ends: whether they, or the calls, are the last.
        choice: whether anything else might have followed at the node.
        kinds: numbers of (byte class, kind) pairs.
        closed: path of the number or word behind which they stand, if they do.
        calls: the contexts passed, innermost first, and the node of each at which it ended.
    """

    source: int
    target: int
    count: int
    length: int
    owner: Path
    chooser: Path
    begins: bool
    ends: bool
    choice: bool
    kinds: list[int]
    closed: Path | None = None
    calls: tuple[tuple[Context, int], ...] = ()


@dataclass(eq=False)
class Context:
    """A rule from one of its states to its exits.

    Attributes:
        number: its place in the reading.
        path: of the values around it.
        entered: the context, node and kind of byte that first led here, and the calls that had come back by then.
        nodes: the first is where it begins.
        edges: all of them.
        within: whether it is entered inside a string, which is then what ``path`` leads to.
        aliases: paths at which others call it.
    """

    number: int
    path: Path
    entered: Entered | None
    within: bool = False
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    aliases: dict[Path, None] = field(default_factory=dict)
    numbers: dict[Node, int] = field(default_factory=dict)
    listeners: list[Callable[[int], None]] = field(default_factory=list)

    @property
    def ends(self) -> list[int]:
        """Numbers of the nodes at which it has ended."""
        return [number for number, node in enumerate(self.nodes) if node.state < 0]


@dataclass(eq=False)
class Reading:
    """See the module's text.

    Attributes:
        machine: what was read.
        contexts: the first is the output.
        pairs: (byte class, kind, bytes) of each number in ``Edge.kinds``.
    """

    machine: Machine
    contexts: list[Context]
    pairs: list[tuple[int, str, bytes]]


def read_machine(machine: Machine, reader: Reader | None = None, most: int = MOST_NODES) -> Reading:
    """The reading of ``machine``, as JSON unless told otherwise.

    Raises:
        UnreadableError: its rules do not follow the nesting of JSON, or it has more than ``most`` nodes.
    """
    return _Explorer(machine, reader or JsonReader(), most).run()


Entered = tuple[Context, int, int, tuple[tuple[Context, int], ...]]
"""See ``Context.entered``."""


class _Explorer:
    def __init__(self, machine: Machine, reader: Reader, most: int) -> None:
        self.machine, self.reader, self.most = machine, reader, most
        self.ends = end_states(machine).tolist()
        self.exits: list[int] = machine.exits.tolist()
        self.accepting: list[bool] = machine.accepting.tolist()
        self.pairs = _pairs(machine, reader)
        self.kinds = [kind for _, kind, _ in self.pairs]
        self.table: list[list[int]] = machine.table[:, [column for column, _, _ in self.pairs]].tolist()
        self.sizes = [len(bytes_) for _, _, bytes_ in self.pairs]
        self.live = ((machine.table >= 0) @ np.bincount(machine.byte_class, minlength=machine.classes)).tolist()
        self.contexts: list[Context] = []
        self.known: dict[Node, Context] = {}
        self.waiting: list[tuple[Context, int]] = []
        self.count = 0
        self.targets: list[int] = machine.edge_target.tolist()
        self.returns: list[list[int]] = machine.returns.tolist()
        self.pushes: dict[int, tuple[int, ...]] = {}
        self.steps: dict[Step, Step] = {}
        self.paths: dict[tuple[int, Containers], Path] = {}

    def run(self) -> Reading:
        mode, containers = self.reader.start()
        root = self.context((), None)
        self.node(root, Node(self.machine.start, mode, containers))
        while self.waiting:
            self.expand(*self.waiting.pop())
        return Reading(self.machine, self.contexts, self.pairs)

    def context(self, path: Path, entered: Entered | None, within: bool = False) -> Context:
        context = Context(len(self.contexts), path, entered, within)
        self.contexts.append(context)
        return context

    def node(self, context: Context, node: Node) -> int:
        number = context.numbers.get(node)
        if number is None:
            number = context.numbers[node] = len(context.nodes)
            context.nodes.append(node)
            self.count += 1
            if len(node.containers) > MOST_OPEN:
                raise UnreadableError(f"it opens more than {MOST_OPEN} containers inside each other without a call")
            if self.count > self.most:
                raise UnreadableError(f"it has more than {self.most:,} places to read")
            if node.state >= 0:
                self.waiting.append((context, number))
            else:
                for listener in list(context.listeners):
                    listener(number)
        return number

    def expand(self, context: Context, number: int) -> None:
        state, mode, containers = node = context.nodes[number]
        ending = (self.accepting[state] and context.number == 0) or self.exits[state] >= 0
        choice = self.live[state] + ending > 1
        states = len(self.table)
        alike: dict[tuple[int, str], list[int]] = {}
        for pair, cell in enumerate(self.table[state]):
            if cell >= 0:
                alike.setdefault((cell, self.kinds[pair]), []).append(pair)
        groups: dict[tuple[int, int], tuple[int, Step, list[int]]] = {}
        for (cell, kind), pairs in alike.items():
            read = self.reader.step(node, kind, cell if cell < states else -1)
            read = self.steps.setdefault(read, read)
            groups.setdefault((cell, id(read)), (cell, read, []))[2].extend(pairs)
        for cell, read, pairs in groups.values():
            closed = None if read.closed is None else self.path(context, read.closed)
            edge = Edge(number, -1, sum([self.sizes[pair] for pair in pairs]), 1, self.path(context, read.owner),
                        self.path(context, read.chooser), read.begins, read.ends, choice, pairs, closed)
            if cell >= states:
                self.call(context, edge, read, cell - states)
                continue
            edge.target = self.node(context, Node(-1 - self.exits[cell] if self.ends[cell] else cell, read.mode, read.containers))
            context.edges.append(edge)
        if ending:
            exit_ = max(self.exits[state], 0)
            path = self.path(context, self.reader.ending(node))
            target = self.node(context, Node(-1 - exit_, mode, containers))
            context.edges.append(Edge(number, target, 1, 0, path, path, False, False, choice, []))

    def call(self, context: Context, edge: Edge, read: Step, number: int) -> None:
        """Follow an enter edge: the innermost call first, then what each of the others does on its return."""
        sites = self.pushes.get(number)
        if sites is None:
            sites = self.pushes[number] = self.machine.pushes(number)
        self.follow(context, edge, read.mode, read.containers, self.targets[number], sites, ())

    def follow(self, context: Context, edge: Edge, mode: str, containers: Containers, state: int, sites: tuple[int, ...],
               passed: tuple[tuple[Context, int], ...]) -> None:
        """Read the rule entered at ``state``; its ends continue at the returns of the last of ``sites``."""
        base, inside = containers[:-1], containers[-1:]
        if self.ends[state]:  # the byte is the whole of the callee
            return self.landed(context, edge, containers, Node(-1 - self.exits[state], mode, inside), sites, passed)
        within = mode in (STRING, ESCAPE) and bool(inside)
        path = self.path(context, containers if within else base)
        start = Node(state, mode, (Container(inside[0].kind, HERE),) if within else inside)
        callee = self.known.get(start)
        if callee is None:
            callee = self.known[start] = self.context(path, (context, edge.source, edge.kinds[0], passed), within)
            self.node(callee, start)
        elif callee.path != path:
            callee.aliases[path] = None
        known = callee

        def ended(number: int) -> None:
            self.landed(context, edge, containers, known.nodes[number], sites, (*passed, (known, number)))

        callee.listeners.append(ended)
        for number in callee.ends:
            ended(number)
        return None

    def landed(self, context: Context, edge: Edge, before: Containers, end: Node, sites: tuple[int, ...],
               passed: tuple[tuple[Context, int], ...]) -> None:
        """A rule that was called with ``before`` open has ended at ``end``: pop its call site and go on in its caller."""
        state = self.returns[sites[-1]][-1 - end.state]
        if state < 0:
            return
        base, left = before[:-1], end.containers
        if left and left[0].inner == HERE:
            left = (before[-1], *left[1:])
        containers = (*base, *left) if left or not base else value_ended(base)
        if len(sites) > 1:
            self.follow(context, edge, end.mode, containers, state, sites[:-1], passed)
            return
        back = Node(state, end.mode, containers)
        node, closed = self.reader.returned(edge, back, self.path(context, containers), context.number == 0)
        context.edges.append(Edge(edge.source, self.node(context, node), edge.count, edge.length, edge.owner, edge.chooser, edge.begins,
                                  closed, edge.choice, edge.kinds, edge.closed, passed))

    def path(self, context: Context, containers: Containers) -> Path:
        """``path_of``, each path once."""
        found = self.paths.get((context.number, containers))
        if found is None:
            found = self.paths[context.number, containers] = path_of(context, containers)
        return found


def path_of(context: Context, containers: Containers) -> Path:
    """The path of the value that ``containers`` of a context are open around."""
    inner = [container.inner for container in containers if container.inner is not None]
    if not context.within:
        return (*context.path, *inner)
    return (*context.path, *inner[1:]) if inner[:1] == [HERE] else (*context.path[:-1], *inner)


def _pairs(machine: Machine, reader: Reader) -> list[tuple[int, str, bytes]]:
    found: dict[tuple[int, str], bytearray] = {}
    for byte, column in enumerate(machine.byte_class.tolist()):
        found.setdefault((column, reader.kind(byte)), bytearray()).append(byte)
    return [(column, kind, bytes(bytes_)) for (column, kind), bytes_ in found.items()]

