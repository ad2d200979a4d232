"""The key automaton of one object rule: declared names by trie, free names by class, at every position at once.

A place where a key may be read has a vector ``declared`` (for each declared name the node to continue at, -1 where it
may not come now) and a vector ``free`` (for each class of undeclared names likewise). A state is (trie state, the
part of ``declared`` for the names below it, ``free``): two places that agree below a trie state share it, so that the
automaton is linear in the total key length times the number of places that really differ there. A free name can't
spell a declared one: at a declared name's closing quote only ``declared`` counts.

All texts start after the opening quote and include the closing one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError
from stcc.compiler.escape import json_escape
from stcc.compiler.frontends.json_schema.document import utf8

_State = tuple[int, bytes, tuple[int, ...]]
_DIGEST = 16
"""Bytes that stand for the part of a vector, where it is longer: places times names would be quadratic memory."""


class KeyAutomaton:
    """Built place by place (``place``), then once (``build``)."""

    def __init__(self, names: Sequence[str], classes: Dfa | None, max_states: int, spell: Callable[[Dfa], Dfa] | None = None) -> None:
        """``names``: declared names; ``classes``: raw DFA that labels every admissible undeclared name with its class, None for none;
        ``spell``: from names to how they are spelled, up to and including what ends one; default: JSON, from after the opening quote.

        Raises BudgetError past ``max_states`` states, here and in ``place``.
        """
        spell = spell or _quoted
        self._max_states = max_states
        spelled = {utf8(name, "properties"): index for index, name in enumerate(names)}
        self._trie = spell(algebra.literals(spelled, max_states)) if names else _EMPTY
        self._free = spell(classes) if classes is not None else _EMPTY
        both, inverse = np.unique(self._trie.byte_class.astype(np.int32) << 8 | self._free.byte_class, return_inverse=True)
        self._byte_class = inverse.reshape(-1).astype(np.uint8)
        self._trie_rows = self._trie.table[:, both >> 8]
        self._free_rows = self._free.table[:, both & 255]
        self._free_state = _paired_states(self._trie_rows, self._free_rows, self._trie.start, self._free.start)
        self._numbers: dict[_State, int] = {}
        self._onward = [[(column, row[column]) for column in range(len(row)) if row[column] >= 0] for row in self._trie_rows.tolist()]
        self._below = _labels_below(self._onward, self._trie)
        self._accept: list[int] = self._trie.accept.tolist()
        self._pending: list[tuple[int, int, npt.NDArray[np.int32], bytes, tuple[int, ...]]] = []
        self._rows: list[npt.NDArray[np.int32]] = []
        self._labels: list[int] = []
        self._free_bases: dict[tuple[int, ...], int] = {}

    def place(self, declared: npt.NDArray[np.int32], free: tuple[int, ...]) -> int:
        """The state from which a key is read at this place (numbers of ``build``'s DFA), -1 if no key may be."""
        state = self._state(self._trie.start, declared, free if any(node >= 0 for node in free) else ())
        while self._pending:
            self._expand(*self._pending.pop())
        return state

    def _state(self, trie: int, declared: npt.NDArray[np.int32], free: tuple[int, ...], digest: bytes = b"") -> int:
        """``digest``: of the part of ``declared`` below ``trie``, where it is known; some node of it is there, or ``free`` is not empty."""
        if not digest:
            part = declared[self._below[trie]]
            if not free and (part < 0).all():
                return -1
            digest = _digest(part)
        key = (trie, digest, free)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._rows)
            if number >= self._max_states:
                raise BudgetError(
                    f"the property names need more than {self._max_states} states, places that differ times names",
                    keyword="properties",
                    hint="raise max_states (--max-states), or split the object",
                )
            self._rows.append(_NO_ROW)
            label = self._accept[trie]
            self._labels.append(int(declared[label]) if label >= 0 else -1)
            self._pending.append((number, trie, declared, digest, free))
        return number

    def _expand(self, number: int, trie: int, declared: npt.NDArray[np.int32], digest: bytes, free: tuple[int, ...]) -> None:
        below = self._free_state[trie] if free else -1
        if below >= 0:
            base = self._free_base(free)
            onward = self._free_rows[below]
            row = np.where(onward >= 0, onward + base, -1).astype(np.int32)
        else:
            row = np.full(self._trie_rows.shape[1], -1, np.int32)
        names = len(self._below[trie])
        for column, child in self._onward[trie]:  # most states have one child, with the same names below
            row[column] = self._state(child, declared, free, digest if len(self._below[child]) == names else b"")
        self._rows[number] = row

    def _free_base(self, free: tuple[int, ...]) -> int:
        """First state of the copy of the class DFA whose labels lead to ``free``."""
        base = self._free_bases.get(free)
        if base is None:
            base = self._free_bases[free] = len(self._rows)
            targets = np.array([*free, -1], np.int32)
            onward = self._free_rows
            self._rows.extend(np.where(onward >= 0, onward + base, -1).astype(np.int32))
            self._labels.extend(targets[self._free.accept].tolist())
        return base

    def build(self) -> tuple[Dfa, list[int]]:
        """The DFA and the node of each of its labels."""
        nodes = sorted({node for node in self._labels if node >= 0})
        index = {node: label for label, node in enumerate(nodes)}
        accept = np.array([index.get(node, -1) for node in self._labels], np.int32)
        return Dfa(self._byte_class, np.array(self._rows, np.int32).reshape(len(self._rows), self._trie_rows.shape[1]), accept), nodes


_NO_ROW = np.zeros(0, np.int32)
_EMPTY = Dfa(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.full(1, -1, np.int32))


def _quoted(names: Dfa) -> Dfa:
    return json_escape(names, closing_quote=True)


def _digest(part: npt.NDArray[np.int32]) -> bytes:
    raw = part.tobytes()
    return raw if len(raw) <= _DIGEST else hashlib.blake2b(raw, digest_size=_DIGEST).digest()


def _labels_below(onward: list[list[tuple[int, int]]], dfa: Dfa) -> list[npt.NDArray[np.int32]]:
    """For each state the labels it can still reach, rising. The DFA, whose steps ``onward`` lists as (column, target), is acyclic."""
    children = [dict.fromkeys(target for _, target in steps) for steps in onward]
    found: list[set[int] | None] = [None] * dfa.states
    order: list[int] = []
    stack = [dfa.start]
    seen = {dfa.start}
    while stack:  # preorder by last visit is not a topological order: postorder by two visits
        state = stack.pop()
        if state < 0:
            order.append(~state)
            continue
        stack.append(~state)
        for child in children[state]:
            if child not in seen:
                seen.add(child)
                stack.append(child)
    for state in order:
        labels = {int(dfa.accept[state])} - {-1}
        for child in children[state]:
            labels |= found[child] or set()
        found[state] = labels
    return [np.array(sorted(labels or ()), np.int32) for labels in found]


def _paired_states(trie: npt.NDArray[np.int32], free: npt.NDArray[np.int32], trie_start: int, free_start: int) -> list[int]:
    """For each trie state the class DFA's state after the same text, -1 where that is dead."""
    paired = [-1] * trie.shape[0]
    paired[trie_start] = free_start
    stack = [trie_start]
    seen = {trie_start}
    while stack:
        state = stack.pop()
        for column in np.flatnonzero(trie[state] >= 0).tolist():
            child = int(trie[state, column])
            if child not in seen:
                seen.add(child)
                stack.append(child)
                paired[child] = int(free[paired[state], column]) if paired[state] >= 0 else -1
    return paired
