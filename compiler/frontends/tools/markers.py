"""Text that contains none of some markers: the exact "not containing" construction.

In: marker texts. Out: the minimal DFA of the UTF-8 strings that contain none of them. A state is how much of a marker the text's end
spells, the longest such prefix (Aho and Corasick, Efficient string matching, 1975); completing a marker is dead, so every string the
DFA reads may end where it stands. Where each marker starts with a character that occurs in none of them again, the states are the
trie nodes of Proposition 3 of the few-path paper; markers that overlap themselves or each other are exact too. Cost: linear in the
markers' length times their distinct characters.

>>> free = not_containing(("</b>",))
>>> [free.match(text) for text in (b"a < b", b"</b", b"<</b", b"x</b>")]
[0, 0, 0, -1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.utf8 import Partition, encode_least


def not_containing(markers: Iterable[str]) -> Dfa:
    """The strings in which no marker occurs, as UTF-8; label 0.

    Raises:
        ValueError: a marker is empty, which every string contains, or holds a lone surrogate.
    """
    return _not_containing(tuple(sorted(set(markers))))


@lru_cache(maxsize=256)
def _not_containing(markers: tuple[str, ...]) -> Dfa:
    if not markers:
        return algebra.utf8_strings()
    for marker in markers:
        if not marker or any(0xD800 <= ord(character) < 0xE000 for character in marker):
            raise ValueError(f"{marker!r} cannot be kept out of a text")
    alphabet = sorted({ord(character) for marker in markers for character in marker})
    column = {point: place for place, point in enumerate(alphabet)}
    rows, complete = _automaton([[column[ord(character)] for character in marker] for marker in markers], len(alphabet) + 1)
    table = np.array(rows, np.int32)
    dead = np.flatnonzero(complete)
    table[np.isin(table, dead)] = -1
    points = sorted({0, *alphabet, *(point + 1 for point in alphabet)})
    partition = Partition(tuple(points), tuple(column.get(point, len(alphabet)) for point in points))
    accept = np.where(complete, -1, 0).astype(np.int32)
    return encode_least(table, accept, partition)


def _automaton(words: Sequence[Sequence[int]], classes: int) -> tuple[list[list[int]], list[bool]]:
    """Rows over symbols, and which states have a word as a suffix; the last class is that of symbols in no word."""
    children: list[dict[int, int]] = [{}]
    complete = [False]
    for word in words:
        node = 0
        for symbol in word:
            if symbol not in children[node]:
                children[node][symbol] = len(children)
                children.append({})
                complete.append(False)
            node = children[node][symbol]
        complete[node] = True
    rows: list[list[int]] = [[] for _ in children]
    queue = [(0, 0)]  # a node, and the node of its longest proper suffix; breadth first, so that suffixes are done
    for node, suffix in queue:
        complete[node] = complete[node] or complete[suffix]
        rows[node] = list(rows[suffix]) if node else [0] * classes
        for symbol, child in children[node].items():
            queue.append((child, rows[suffix][symbol] if node else 0))
            rows[node][symbol] = child
    return rows, complete


def endings_cut(markers: Iterable[str]) -> tuple[str, ...]:
    """The markers without their last character: what a value must not hold, so that it can swallow no broken end marker."""
    return tuple(dict.fromkeys(marker[:-1] for marker in markers))
