"""The JSON escape step: from the raw content of strings to what stands between their quotes in JSON text.

In: a DFA over raw UTF-8 strings. Out: one over their spellings. Exactly what must be escaped is, and nothing else: ``"`` and
``\\`` by a backslash; the controls U+0000 to U+001F by the short escapes ``\\b \\t \\n \\f \\r`` where there is one, and by ``\\u00XX``
with hex digits of either case; every other character stands for itself (no ``\\/``, no other ``\\u``). Labels are kept.

States inside an escape are shared wherever their continuations agree, found by comparing rows from the last hex digit backwards;
so a language that never tells controls apart gains five states or so. O(states) array work. The result is trim if the input is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.minimize import merge_columns

Int32 = npt.NDArray[np.int32]

_QUOTE, _BACKSLASH = 0x22, 0x5C
_SHORT = {ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("f"): 12, ord("r"): 13}
_HEX = [(ord(digit), int(digit, 16)) for digit in "0123456789abcdefABCDEF"]
_ESCAPED = (*range(0x20), _QUOTE, _BACKSLASH)


def json_escape(dfa: Dfa, *, closing_quote: bool) -> Dfa:
    """The JSON spellings of the strings of ``dfa``.

    Args:
        dfa: raw content, UTF-8.
        closing_quote: append the closing ``"``, so that accepting states have nothing behind them.

    >>> from stcc.compiler.algebra import literal
    >>> spelled = json_escape(literal(b'a"\\n'), closing_quote=True)
    >>> [spelled.match(text) for text in (b'a\\\\"\\\\n"', b'a\\\\"\\\\u000A"', b'a\\\\"\\\\n', b'a"\\\\n"')]
    [0, 0, -1, -1]
    """
    states = _EscapeStates(dfa)
    accept = np.full(states.total, -1, np.int32)
    accept[:dfa.states] = dfa.accept
    table = np.concatenate([states.raw(), *states.inner])
    if closing_quote:
        table, accept = _closed(table, accept, int(states.byte_class[_QUOTE]))
    table, byte_class = merge_columns(table, states.byte_class)
    return Dfa(byte_class, table, accept, dfa.start)


def _split_classes(byte_class: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """The byte classes, split so that bytes which escapes tell apart differ, and one byte of each."""
    roles = {**{byte: value for byte, value in _HEX if value > 1}, **{byte: 0x100 + byte for byte in b'01btnfru"\\'}}
    escaped = set(_ESCAPED)
    keys: dict[tuple[int, int], int] = {}
    numbers, first = [], []
    for byte, old in enumerate(byte_class.tolist()):
        # b and f are hex digits too, so each of them needs a class of its own; other digits share one with their upper case.
        key = (-1 if byte in escaped else old, roles.get(byte, -1))
        if key not in keys:
            keys[key] = len(keys)
            first.append(byte)
        numbers.append(keys[key])
    return np.array(numbers, np.uint8), first


class _EscapeStates:
    """Rows of the states inside escapes, built from the last byte of an escape to the first, over split byte classes."""

    def __init__(self, dfa: Dfa) -> None:
        self.dfa, self.total = dfa, dfa.states
        self.inner: list[Int32] = []
        self.byte_class, self.bytes = _split_classes(dfa.byte_class)
        after = dfa.table[:, dfa.byte_class[list(_ESCAPED)]]  # int32 [states, 34]: state after each character that must be escaped
        values = [value for _, value in _HEX]
        last = self.share(np.concatenate([after[:, :16][:, values], after[:, 16:32][:, values]]), [byte for byte, _ in _HEX])
        third = self.share(np.stack([last[:dfa.states], last[dfa.states:]], axis=1), [ord("0"), ord("1")])
        second = self.share(third[:, None], [ord("0")])
        first = self.share(second[:, None], [ord("0")])
        named = [after[:, [point]] for point in _SHORT.values()]
        self.backslash = self.share(np.concatenate([first[:, None], after[:, 32:34], *named], axis=1),
                                    [ord("u"), _QUOTE, _BACKSLASH, *_SHORT])

    def share(self, cells: Int32, bytes_: list[int]) -> Int32:
        """For each row, the state that goes to ``cells[row, i]`` on ``bytes_[i]``; equal rows share it, dead ones have none."""
        live = (cells >= 0).any(axis=1)
        distinct, inverse = _distinct_rows(cells[live])
        rows = np.full((len(distinct), len(self.bytes)), -1, np.int32)
        rows[:, self.byte_class[bytes_]] = distinct
        states = np.full(len(cells), -1, np.int32)
        states[live] = self.total + inverse
        self.total += len(rows)
        self.inner.append(rows)
        return states

    def raw(self) -> Int32:
        """Rows of the DFA's own states: characters that stand for themselves, and the backslash."""
        rows = self.dfa.table[:, self.dfa.byte_class[self.bytes]]
        rows[:, np.isin(self.bytes, _ESCAPED)] = -1
        rows[:, self.byte_class[_BACKSLASH]] = self.backslash
        return rows


def _distinct_rows(cells: Int32) -> tuple[Int32, npt.NDArray[np.intp]]:
    """Distinct rows, and for each row which one it is; rows are compared as bytes, which sorts faster than column by column."""
    cells = np.ascontiguousarray(cells, np.int32)
    keys = cells.view(np.dtype((np.void, 4 * cells.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return cells[first], inverse.reshape(-1)


def _closed(table: Int32, accept: Int32, quote: int) -> tuple[Int32, Int32]:
    """One end state per label, reached by the closing quote, whose class is ``quote``."""
    accepting = np.flatnonzero(accept >= 0)
    labels, which = np.unique(accept[accepting], return_inverse=True)
    table = np.concatenate([table, np.full((len(labels), table.shape[1]), -1, np.int32)])
    table[accepting, quote] = len(accept) + which.reshape(-1)
    return table, np.concatenate([np.full(len(accept), -1, np.int32), labels.astype(np.int32)])
