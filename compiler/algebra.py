"""The algebra of DFAs: Boolean operations through one product, concatenation, and the elementary languages.

In and out: ``Dfa`` values over bytes. Every result is minimal and trim unless stated; a state or time limit stops with BudgetError.
The product walks the reachable tuples of states on the common classes of bytes, or of characters where all components are text
(``utf8.TextDfa``), which has some eight times fewer states. A component may be dead (-1), which is what complements need; a
complement is always relative to a *universe*, for strings ``utf8_strings()``. Cost: reachable tuples times common classes, then one
minimisation (Rabin and Scott 1959).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.compiler.determinize import determinize_dfa
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.nfa import Nfa
from stcc.compiler.options import Deadline
from stcc.compiler.utf8 import CharacterView, Partition, character_view, common_partition, encode_least, encode_utf8
from stcc.formats.distinct import distinct

Int32 = npt.NDArray[np.int32]

MAX_STATES = 200_000
# Bytes in the order in which an example should prefer them: what reads best first.
_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ _-"
_READABLE = bytes(dict.fromkeys(_LETTERS + bytes(range(33, 127)) + bytes(range(256))))


def product(dfas: Sequence[Dfa], label: Callable[[tuple[int, ...]], int], *, universe: Dfa | None = None,
            required: Sequence[int] = (), max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """All of ``dfas`` at once: a word gets the label that ``label`` gives to its labels in each of them.

    Args:
        dfas: the components; at least one unless there is a universe.
        label: called once per distinct vector of labels (-1: that component refuses the word); -1 refuses the word.
        universe: words outside of it are refused, and ``label`` never sees them.
        required: components without which no word is accepted; only makes the product smaller.
        max_states: most tuples of states reached.
        deadline: the compile's clock.

    >>> ab, bc = literals({b"a": 0, b"b": 0}), literals({b"b": 0, b"c": 0})
    >>> both = product([ab, bc], lambda labels: 0 if min(labels) >= 0 else 1)
    >>> [both.match(word) for word in (b"a", b"b", b"c", b"")]
    [1, 0, 1, 1]
    """
    parts = [*dfas, universe] if universe is not None else list(dfas)
    needed = [*required, *([len(dfas)] if universe is not None else [])]
    labels: dict[tuple[int, ...], int] = {}

    def label_of(vector: tuple[int, ...]) -> int:
        if universe is not None and vector[-1] < 0:
            return -1
        seen = vector[:len(dfas)]
        if seen not in labels:
            labels[seen] = label(seen)
        return labels[seen]

    views = [view for view in map(character_view, parts) if view is not None]
    # Words that every component refuses need not be text; all others are.
    if len(views) == len(parts) and (needed or label_of((-1,) * len(parts)) < 0):
        partition, tables = common_partition(views)
        table, accept = _reachable(views, tables, needed, label_of, max_states, deadline)
        return encode_least(table, accept, partition, max_states=max_states)
    byte_class, tables = common_classes(parts)
    table, accept = _reachable(parts, tables, needed, label_of, max_states, deadline)
    return minimize_dfa(Dfa(byte_class, table, accept, 0))


def _reachable(parts: Sequence[Dfa | CharacterView], tables: Sequence[Int32], needed: Sequence[int],
               label_of: Callable[[tuple[int, ...]], int], max_states: int, deadline: Deadline | None) -> tuple[Int32, Int32]:
    """Table and labels of the reachable tuples of states, in order of discovery from the start."""
    successors = [[*table.tolist(), [-1] * table.shape[1]] for table in tables]  # state -1 is the last row
    accepts = [[*part.accept.tolist(), -1] for part in parts]
    start = tuple(part.start for part in parts)
    numbers: dict[tuple[int, ...], int] = {start: 0}
    order = [start]
    cells: list[int] = []  # rows end to end
    accept: list[int] = []
    for states in order:  # grows while it is walked
        accept.append(label_of(tuple([labels[state] for labels, state in zip(accepts, states)])))  # noqa: B905 (hot, equal lengths)
        for target in zip(*[rows[state] for rows, state in zip(successors, states)]):  # noqa: B905
            number = numbers.get(target)
            if number is None:
                number = -1 if any([target[part] < 0 for part in needed]) else len(order)
                numbers[target] = number
                if number >= 0:
                    order.append(target)
            cells.append(number)
        if deadline is not None:
            deadline.check()
        if len(order) > max_states:
            raise BudgetError(f"the product needs more than {max_states} states",
                              hint="raise max_states (--max-states), or simplify the source")
    return np.array(cells, np.int32).reshape(len(order), -1), np.array(accept, np.int32)


def common_classes(dfas: Sequence[Dfa]) -> tuple[npt.NDArray[np.uint8], list[Int32]]:
    """The coarsest byte classes that refine those of all ``dfas``, uint8 ``[256]``, and each one's table over them."""
    signatures = list(zip(*(dfa.byte_class.tolist() for dfa in dfas), strict=True))
    numbers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures))}
    byte_class = np.array([numbers[signature] for signature in signatures], np.uint8)
    columns = np.array(list(numbers), np.intp)
    return byte_class, [dfa.table[:, columns[:, place]] for place, dfa in enumerate(dfas)]


def intersect(*dfas: Dfa, max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """Words that every one of ``dfas`` accepts; label 0."""
    return product(dfas, lambda labels: 0 if min(labels) >= 0 else -1, required=range(len(dfas)), max_states=max_states, deadline=deadline)


def union(*dfas: Dfa, max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """Words that any of ``dfas`` accepts; label 0."""
    return product(dfas, lambda labels: 0 if max(labels) >= 0 else -1, max_states=max_states, deadline=deadline)


def difference(left: Dfa, right: Dfa, *, max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """Words of ``left``, with its labels, that ``right`` refuses."""
    return product((left, right), lambda labels: labels[0] if labels[1] < 0 else -1, required=(0,), max_states=max_states,
                   deadline=deadline)


def complement(dfa: Dfa, universe: Dfa, *, max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """Words of ``universe`` that ``dfa`` refuses; label 0."""
    return product((dfa,), lambda labels: 0 if labels[0] < 0 else -1, universe=universe, max_states=max_states, deadline=deadline)


def concatenate(*dfas: Dfa, max_states: int = MAX_STATES, deadline: Deadline | None = None) -> Dfa:
    """A word of each, one after the other; labels of the last one (the smallest where a word splits in several ways)."""
    byte_class, tables = common_classes(dfas)
    bases = np.cumsum([0, *(dfa.states for dfa in dfas)])
    table = np.concatenate([np.where(part >= 0, part + base, -1) for part, base in zip(tables, bases, strict=False)]).astype(np.int32)
    accept = np.full(int(bases[-1]), -1, np.int32)
    accept[bases[-2]:] = dfas[-1].accept
    joins = np.zeros(int(bases[-1]), bool)
    for place, dfa in enumerate(dfas[:-1]):
        joins[bases[place]:bases[place + 1]] = dfa.accept >= 0
    entries = np.array([base + dfa.start for base, dfa in zip(bases[1:].tolist(), dfas[1:], strict=False)], np.int32)
    owner = np.searchsorted(bases, np.flatnonzero(joins), side="right") - 1
    offsets = np.concatenate([[0], np.cumsum(joins)]).astype(np.int32)
    nfa = Nfa(byte_class, table, offsets, entries[owner], accept, (dfas[0].start,))
    return minimize_dfa(determinize_dfa(nfa, max_states=max_states, deadline=deadline), deadline)


def literal(word: bytes) -> Dfa:
    """Exactly ``word``; label 0."""
    return literals({word: 0})


def literals(words: Mapping[bytes, int], max_states: int = MAX_STATES) -> Dfa:
    """Exactly the keys of ``words``, each with its label (>= 0). Linear in their length, in the memory of ``max_states`` states at most.

    Raises BudgetError where the minimal automaton has more states than that.
    """
    text = _code_points(words)
    nodes, labels = _least_acyclic(sorted((text or words).items()), max_states)
    used = sorted({symbol for node in nodes for symbol in node})
    classes = len(used) + 1  # the last class is that of symbols in no word
    column = {symbol: place for place, symbol in enumerate(used)}
    table = np.full((len(nodes), classes), -1, np.int32)
    for source, node in enumerate(nodes):
        for symbol, target in node.items():
            table[source, column[symbol]] = target
    accept = np.array(labels, np.int32)
    if text is None:
        byte_class = np.array([column.get(byte, len(used)) for byte in range(256)], np.uint16)
        return minimize_dfa(Dfa(byte_class.astype(np.uint8), table, accept, 0))
    points = sorted({0, *used, *(point + 1 for point in used)})
    partition = Partition(tuple(points), tuple(column.get(point, len(used)) for point in points))
    return encode_least(table, accept, partition)


def _code_points(words: Mapping[bytes, int]) -> dict[tuple[int, ...], int] | None:
    """The words as code points, if they are text and not all ASCII, so that products with other text stay on characters."""
    if all(word.isascii() for word in words):
        return None
    try:
        return {tuple(map(ord, word.decode())): label for word, label in words.items()}
    except UnicodeDecodeError:
        return None


def _least_acyclic(words: Sequence[tuple[Sequence[int], int]], max_states: int) -> tuple[list[dict[int, int]], list[int]]:
    """Successors and label of each state of the minimal automaton of ``words``, which come sorted; the start is state 0.

    Daciuk, Mihov, Watson and Watson, Incremental construction of minimal acyclic finite-state automata (2000): what lies behind the
    common prefix of a word and the next is final, and is merged with what is equal to it at once.
    """
    known: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    nodes: list[dict[int, int]] = [{}]
    labels = [-1]
    path: list[tuple[int, dict[int, int], int]] = []  # of the last word, past the start: symbol, successors, label
    previous: Sequence[int] = ()

    def settle(depth: int) -> None:
        while len(path) > depth:
            symbol, successors, label = path.pop()
            key = (label, tuple(successors.items()))
            number = known.get(key)
            if number is None:
                number = known[key] = len(nodes)
                nodes.append(successors)
                labels.append(label)
            (path[-1][1] if path else nodes[0])[symbol] = number

    for word, label in words:
        shared = _common_prefix(previous, word)
        settle(shared)
        if len(nodes) + len(word) > max_states:
            raise BudgetError(f"the constants and names here need more than {max_states} states",
                              hint="raise max_states (--max-states), or list fewer or shorter ones")
        path.extend((symbol, {}, -1) for symbol in word[shared:])
        if path:
            path[-1] = (*path[-1][:2], label)
        else:
            labels[0] = label
        previous = word
    settle(0)
    return nodes, labels


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next((place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other)))


def relabel(dfa: Dfa, labels: Mapping[int, int]) -> Dfa:
    """The DFA with label ``l`` replaced by ``labels[l]``; words whose label maps to -1, or is not there, are refused."""
    present = distinct(dfa.accept[dfa.accept >= 0]).tolist()
    mapped = np.full(max(present, default=0) + 2, -1, np.int32)  # the last entry is that of no label
    for label in present:
        mapped[label] = labels.get(label, -1)
    renamed = replace(dfa, accept=mapped[dfa.accept])
    kept = mapped[present]
    return renamed if len(set(kept.tolist()) - {-1}) == len(present) else minimize_dfa(renamed)


def shortest(dfa: Dfa, label: int | None = None) -> bytes | None:
    """One of the shortest words (of label ``label``, if given), readable bytes preferred; ``None`` if there is none."""
    spelling = {int(dfa.byte_class[value]): value for value in reversed(_READABLE)}
    classes = sorted(spelling, key=lambda class_: _READABLE.index(spelling[class_]))
    came: dict[int, tuple[int, int]] = {dfa.start: (-1, 0)}
    queue = deque([dfa.start])
    while queue:
        state = queue.popleft()
        found = int(dfa.accept[state])
        if found >= 0 and label in (None, found):
            word = bytearray()
            while came[state][0] >= 0:
                word.append(came[state][1])
                state = came[state][0]
            return bytes(reversed(word))
        row = dfa.table[state].tolist()
        for class_ in classes:
            if row[class_] >= 0 and row[class_] not in came:
                came[row[class_]] = (state, spelling[class_])
                queue.append(row[class_])
    return None


def is_empty(dfa: Dfa) -> bool:
    """Whether no word is accepted."""
    return shortest(dfa) is None


def equivalent(left: Dfa, right: Dfa) -> bool:
    """Whether both give every word the same label."""
    one, other = minimize_dfa(left), minimize_dfa(right)
    return one.start == other.start and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("byte_class", "table", "accept"))


@lru_cache(maxsize=1)
def utf8_strings() -> Dfa:
    """Every valid UTF-8 string (Unicode scalar values, no surrogates); label 0."""
    return length_between(0, None)


@lru_cache(maxsize=256)
def length_between(low: int, high: int | None, max_states: int = MAX_STATES) -> Dfa:
    """UTF-8 strings of ``low`` to ``high`` code points (``None``: no upper bound); label 0. Some ten states a code point.

    >>> [length_between(1, 2).match(text.encode()) for text in ("", "ä", "ää", "äää")]
    [-1, 0, 0, -1]
    """
    if high is not None and high < max(low, 0):
        return literals({})
    last = low if high is None else high
    counts = np.arange(last + 1 if last <= max_states else 0, dtype=np.int32)
    return _counter(last, np.where(counts >= low, 0, -1), high is None, max_states)


@lru_cache(maxsize=256)
def length_classes(thresholds: tuple[int, ...], max_states: int = MAX_STATES) -> Dfa:
    """Every UTF-8 string, labelled by how many of the rising ``thresholds`` its length in code points reaches.

    >>> [length_classes((1, 3)).match(text) for text in (b"", b"a", b"aa", b"aaa")]
    [0, 1, 1, 2]
    """
    last = thresholds[-1]
    counts = np.arange(last + 1 if last <= max_states else 0)
    return _counter(last, np.searchsorted(thresholds, counts, side="right"), True, max_states)


def _counter(last: int, accept: npt.NDArray[np.integer[Any]], endless: bool, max_states: int) -> Dfa:
    """Counts code points to ``last``, and stays there if ``endless``; ``accept`` labels each count."""
    if last > max_states:
        raise BudgetError(f"counting to {last} characters needs more than {max_states} states",
                          hint="raise max_states (--max-states), or lower the bound")
    following = np.append(np.arange(1, last + 1), last if endless else -1).astype(np.int32)
    return encode_utf8(following.reshape(-1, 1), accept.astype(np.int32), 0, Partition((0,), (0,)), max_states=max_states)
