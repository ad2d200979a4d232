"""Lazy determinisation of a program: subset construction with lookarounds, exact wherever they stand.

A *thread* is a node and its *obligations*: states of lookahead automata that the rest of the text must satisfy (or, negated, must
not). A state is the set of threads after closing over skips; all its threads have read the same text, so tests of the previous
character are settled when the state is made, and trackers run along in the state. An obligation that is fulfilled whatever follows is
dropped, one that cannot be fulfilled drops its thread; a thread that asks for less than another at the same node absorbs it. The
obligations of one pattern are finitely many, so every pattern ends in finitely many states: this is the alternating automaton of
Chandra, Kozen and Stockmeyer (1981), made deterministic on demand.

Cost: the sum over states of their threads' classes, bounded by ``Work``.
"""

from __future__ import annotations

from dataclasses import dataclass

from stcc.compiler.frontends.regex.graph import Ahead, Condition, Graph, Previous, Program, Tracked
from stcc.compiler.frontends.regex.syntax import over_budget
from stcc.compiler.options import Deadline

DEAD = -1
Obligations = tuple[tuple[int, bool, int], ...]  # (lookahead, negated, its state), rising


@dataclass
class Work:
    """What determinisation may still spend: ``threads`` moved, over all automata of a pattern; ``offset`` is blamed."""

    threads: int
    max_states: int
    deadline: Deadline | None
    offset: int

    def spend(self, threads: int) -> None:
        """Account for one state of that many threads."""
        self.threads -= threads
        if self.threads < 0:
            raise self.exceeded()
        if self.deadline is not None:
            self.deadline.check(f"offset {self.offset}")

    def exceeded(self) -> Exception:
        """The error to raise."""
        return over_budget(f"the pattern needs more than {self.max_states} states, or too much work to find out", self.offset,
                           "repetition", "use smaller counts, anchor the pattern, or raise max_states (--max-states)")


class Automata:
    """The automata of one program: ``main``, and those of its lookaheads and trackers."""

    def __init__(self, program: Program, set_classes: list[list[int]], classes: int, work: Work) -> None:
        self.classes, self.work = classes, work
        tests = [(test.number, set(set_classes[test.set_]), test.at_start) for test in program.previous.values()]
        # One bit per test of the previous character: after a character of each class, and at the start of the text.
        self.after = [sum(1 << number for number, members, _ in tests if class_ in members) for class_ in range(classes)]
        self.at_start = sum(1 << number for number, _, start in tests if start)
        self.lookaheads = [Automaton(self, graph, set_classes) for graph in program.lookaheads]
        self.trackers: list[Automaton] = []
        self.tracker_starts: tuple[int, ...] = ()
        for graph in program.trackers:
            tracker = Automaton(self, graph, set_classes)
            self.trackers.append(tracker)
            self.tracker_starts += (tracker.enter(self.at_start, self.tracker_starts),)
        self.main = Automaton(self, program.main, set_classes)
        self.start = self.main.enter(self.at_start, self.tracker_starts)


class Automaton:
    """One graph, determinised on demand; states are numbered in order of discovery, -1 is dead.

    ``accepts[s]``: the text may end in ``s``. ``universal[s]``: whatever follows is accepted.
    """

    def __init__(self, automata: Automata, graph: Graph, set_classes: list[list[int]]) -> None:
        self.automata, self.graph = automata, graph
        self.reads = [None if read is None else (set_classes[read[0]], read[1]) for read in graph.reads]
        self.accepts: list[bool] = []
        self.universal: list[bool] = []
        self._rows: list[list[int] | None] = []
        self._contents: list[tuple[tuple[int, ...], tuple[int, ...]]] = []  # trackers, threads
        self._numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._closed: dict[tuple[tuple[int, ...], int, tuple[int, ...]], int] = {}
        # Threads: the first are the bare nodes, the others are interned as they occur.
        self._node: list[int] = list(range(len(graph.reads)))
        self._obligations: list[Obligations] = [()] * len(graph.reads)
        self._threads: dict[tuple[int, Obligations], int] = {}

    def enter(self, previous: int, trackers: tuple[int, ...]) -> int:
        """The state at the graph's start, where the tests of the previous character hold as in ``previous``."""
        return self._state((self.graph.start,), previous, trackers)

    def row(self, state: int) -> list[int]:
        """The successor of ``state`` for each character class."""
        known = self._rows[state]
        if known is not None:
            return known
        trackers, threads = self._contents[state]
        automata = self.automata
        automata.work.spend(len(threads) + 1)
        kernels: list[list[int]] = [[] for _ in range(automata.classes)]
        for thread in threads:
            read = self.reads[self._node[thread]]
            if read is None:
                continue
            classes, target = read
            obligations = self._obligations[thread]
            for class_ in classes:
                if not obligations:
                    kernels[class_].append(target)
                else:
                    moved = self._moved(target, obligations, class_)
                    if moved >= 0:
                        kernels[class_].append(moved)
        row = []
        for class_, kernel in enumerate(kernels):
            if not kernel:
                row.append(DEAD)
                continue
            after = tuple(tracker.row(at)[class_] for tracker, at in zip(automata.trackers, trackers, strict=False)) if trackers else ()
            row.append(self._state(tuple(sorted(set(kernel))), automata.after[class_], after))
        self._rows[state] = row
        return row

    def _state(self, kernel: tuple[int, ...], previous: int, trackers: tuple[int, ...]) -> int:
        """The state of the threads ``kernel``, closed over skips."""
        key = (kernel, previous, trackers)
        number = self._closed.get(key)
        if number is None:
            threads = self._closure(kernel, previous, trackers)
            number = self._numbered(trackers, threads) if threads else DEAD
            self._closed[key] = number
        return number

    def _numbered(self, trackers: tuple[int, ...], threads: tuple[int, ...]) -> int:
        final, loops = self.graph.final, self.graph.loops
        if loops and final in threads:
            trackers, threads = (), (final,)
        number = self._numbers.setdefault((trackers, threads), len(self._contents))
        if number == len(self._contents):
            if number >= self.automata.work.max_states:
                raise self.automata.work.exceeded()
            self._contents.append((trackers, threads))
            self._rows.append(None)
            self.universal.append(loops and threads == (final,))
            self.accepts.append(any(self._node[thread] == final and self._kept(thread) for thread in threads))
        return number

    def _kept(self, thread: int) -> bool:
        """Whether the obligations hold if the text ends here."""
        return all(self.automata.lookaheads[look].accepts[state] != negated for look, negated, state in self._obligations[thread])

    def _thread(self, node: int, obligations: Obligations) -> int:
        if not obligations:
            return node
        number = self._threads.setdefault((node, obligations), len(self._node))
        if number == len(self._node):
            self._node.append(node)
            self._obligations.append(obligations)
        return number

    def _moved(self, node: int, obligations: Obligations, class_: int) -> int:
        """The thread at ``node`` after its obligations read a character, or -1 if they failed."""
        kept: Obligations | None = ()
        for look, negated, state in obligations:
            following = self.automata.lookaheads[look].row(state)[class_]
            kept = self._with(kept, look, negated, following)
            if kept is None:
                return DEAD
        return self._thread(node, tuple(sorted(set(kept or ()))))

    def _with(self, obligations: Obligations | None, look: int, negated: bool, state: int) -> Obligations | None:
        """``obligations`` and one more, dropped if it is settled; ``None`` if it has failed."""
        if state == DEAD:
            return obligations if negated else None
        if self.automata.lookaheads[look].universal[state]:
            return None if negated else obligations
        return (*(obligations or ()), (look, negated, state))

    def _closure(self, kernel: tuple[int, ...], previous: int, trackers: tuple[int, ...]) -> tuple[int, ...]:
        """The threads that read or accept, reached from ``kernel`` by skips whose conditions hold; none asks for more than another."""
        graph, work = self.graph, self.automata.work
        seen = set(kernel)
        queue = list(kernel)  # breadth first, so that threads with few obligations come early and absorb the others
        asked: dict[int, list[Obligations]] = {}
        found = []
        for thread in queue:
            node, obligations = self._node[thread], self._obligations[thread]
            if self.reads[node] is not None or node == graph.final:
                found.append(thread)
            reached = [(target, obligations) for target in graph.skips[node]]
            test = graph.tests[node]
            if test is not None:
                passed = self._passed(obligations, test[0], previous, trackers)
                if passed is not None:
                    reached.append((test[1], passed))
            for target, obligations in reached:
                if obligations and (target in seen or _absorbed(obligations, asked.setdefault(target, []), work)):
                    continue
                following = self._thread(target, obligations)
                if following not in seen:
                    seen.add(following)
                    queue.append(following)
        return tuple(sorted(self._weakest(found)))

    def _passed(self, obligations: Obligations, condition: Condition, previous: int, trackers: tuple[int, ...]) -> Obligations | None:
        """``obligations`` beyond a conditional skip; ``None`` if it is closed."""
        if isinstance(condition, Previous):
            return obligations if previous >> condition.number & 1 else None
        if isinstance(condition, Tracked):
            state = trackers[condition.number]
            holds = state != DEAD and self.automata.trackers[condition.number].accepts[state]
            return obligations if holds != condition.negated else None
        assert isinstance(condition, Ahead)
        entered = self.automata.lookaheads[condition.number].enter(previous, trackers)
        passed = self._with(obligations, condition.number, condition.negated, entered)
        return None if passed is None else tuple(sorted(set(passed)))

    def _weakest(self, threads: list[int]) -> list[int]:
        """The threads without those that ask for more than another one at the same node."""
        if not any([self._obligations[thread] for thread in threads]):
            return threads
        asked: dict[int, list[Obligations]] = {}
        kept = []
        for thread in sorted(threads, key=lambda thread: (len(self._obligations[thread]), thread)):
            if not _absorbed(self._obligations[thread], asked.setdefault(self._node[thread], []), self.automata.work):
                kept.append(thread)
        return kept


def _absorbed(obligations: Obligations, asked: list[Obligations], work: Work) -> bool:
    """Whether one of ``asked`` asks for no more than ``obligations``, which otherwise join them."""
    wanted = set(obligations)
    work.spend(1 + len(asked) // 4)
    if any(wanted.issuperset(other) for other in asked):
        return True
    asked.append(obligations)
    return False
