"""How numbers are made small before zlib sees them: narrow types, zigzag, differences, and rows that repeat.

Every coding here has an exact inverse, both are array operations, and what is stored is always unsigned (``u8``, ``u16`` or ``u32``).
Decoders take hostile arrays: they raise ``ValueError`` (the caller knows the section's name) instead of wrapping around.

>>> undelta(delta(np.array([7, 6, 6, 9], np.int32))).tolist()
[7, 6, 6, 9]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

INT32_LIMIT = 1 << 31
NO_STEP = np.zeros(1, np.intp)
BLOCK_CELLS = 1 << 15  # 128 KB of int32: stays in the second-level cache


def narrow(values: Array) -> Array:
    """The same numbers in the narrowest of uint8, uint16, uint32.

    Raises:
        ValueError: one is negative or takes more than 32 bits.
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low < 0 or high >= 1 << 32:
        raise ValueError(f"{low}..{high} does not fit 32 unsigned bits")
    return values.astype(np.uint8 if high < 1 << 8 else np.uint16 if high < 1 << 16 else np.uint32)


def zigzag(values: Array) -> Int64:
    """0, -1, 1, -2, ... -> 0, 1, 2, 3, ..."""
    wide = values.astype(np.int64)
    return (wide << 1) ^ (wide >> 63)


def unzigzag(codes: Array) -> Array:
    """Inverse of ``zigzag``; int32 for codes of up to 16 bits, else int64."""
    wide: Array = codes.astype(np.int32 if codes.dtype.itemsize <= 2 else np.int64)  # room for twice what the type can say
    sign = wide & 1
    wide >>= 1
    wide ^= np.negative(sign, out=sign)  # in place: hostile files are bounded by how many copies are alive
    return wide


def to_int32(values: Array) -> Int32:
    """``values`` as int32.

    Raises:
        ValueError: one does not fit.
    """
    safe = values.dtype.itemsize <= 2 or values.dtype == np.int32
    if not safe and values.size and not (int(values.min()) >= -INT32_LIMIT and int(values.max()) < INT32_LIMIT):
        raise ValueError("a number does not fit 32 bits")
    return values.astype(np.int32)


def delta(values: Array) -> Array:
    """Each number less the one before it (the first less 0), zigzag, narrow."""
    return narrow(zigzag(np.diff(values.astype(np.int64), prepend=0)))


def undelta(codes: Array) -> Int32:
    """Inverse of ``delta``.

    Raises:
        ValueError: a number does not fit int32.
    """
    wide = unzigzag(codes).astype(np.int64, copy=False)
    return to_int32(np.cumsum(wide, out=wide))


def offsets(lengths: Array) -> Int32:
    """int32 ``[n + 1]``: 0, then the sums of ``lengths``, none of which is negative.

    Raises:
        ValueError: the total does not fit int32.
    """
    if int(lengths.sum(dtype=np.int64)) >= INT32_LIMIT:  # before any sum is written, so that no wide copy is needed
        raise ValueError("counts add up to more than 31 bits")
    sums = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=sums[1:])
    return sums


def first_uses(keys: Iterable[Hashable]) -> tuple[Int64, Int64]:
    """Number equal keys alike, by first appearance.

    Returns:
        The number of each key, and the position of each number's first appearance.
    """
    numbers: dict[Hashable, int] = {}
    ids: list[int] = []
    first: list[int] = []
    for position, key in enumerate(keys):
        number = numbers.setdefault(key, len(numbers))
        if number == len(first):
            first.append(position)
        ids.append(number)
    return np.array(ids, np.int64), np.array(first, np.int64)


def spread(starts: Array, lengths: Array, bounds: Int32) -> npt.NDArray[np.intp]:
    """Where each element of the spans ``starts[i] .. starts[i] + lengths[i]``, one after the other, comes from.

    Args:
        starts: ``[spans]``.
        lengths: ``[spans]``.
        bounds: ``offsets(lengths)``.

    Returns:
        intp ``[total]`` positions.
    """
    spans = np.flatnonzero(lengths)
    first = starts[spans].astype(np.intp)
    steps = np.ones(int(bounds[-1]), np.intp)
    steps[bounds[spans]] = np.diff(first, prepend=0) - np.concatenate((NO_STEP, lengths[spans][:-1].astype(np.intp) - 1))
    return np.cumsum(steps, out=steps)  # within a span one further; at its start, from the end of the one before


# Targets. A number below ``states`` names a state and is stored relative to the state it is listed at, so that chains of states have equal
# rows; other numbers, and the dead value -1, are stored as they are:  0 dead;  2 e + 2: number states + e;  2 z + 1: state + unzigzag(z).


def relative(values: Array, at: Array, states: int) -> Int64:
    """Codes of ``values`` (-1, a state, or ``states`` and up) listed at the states ``at``."""
    wide = values.astype(np.int64)
    return np.where(wide < 0, 0, np.where(wide < states, 2 * zigzag(wide - at) + 1, 2 * (wide - states) + 2))


def relative_parts(codes: Array, states: int) -> tuple[Int32, Int32]:
    """What decodes ``relative``: the value is ``base + follows * state``.

    Returns:
        int32 ``base`` and int32 ``follows`` (0 or 1), in the shape of ``codes``.

    Raises:
        ValueError: a code is so large that the sum may not fit int32.
    """
    follows = codes & 1
    base = unzigzag(codes >> 1)
    if not follows.all():
        dead = codes == 0
        np.copyto(base, -1, where=dead)
        others = np.flatnonzero(follows == dead)  # both 0: neither a state nor dead
        base.reshape(-1)[others] = (codes.reshape(-1)[others].astype(base.dtype) >> 1) + (states - 1)
    if base.dtype != np.int32 and base.size and not (int(base.min()) >= -(INT32_LIMIT >> 1) and int(base.max()) < INT32_LIMIT >> 1):
        raise ValueError("a target is out of range")
    return base.astype(np.int32, copy=False), follows.astype(np.int32)


def relative_rows(base: Int32, follows: Int32, pattern: Array) -> Int32:
    """int32 ``[states, columns]``: row ``pattern[s]`` of ``base + follows * s`` for every state ``s``. Every pattern must be in range.

    Works in blocks, since the pages of a second large array cost more than the arithmetic.
    """
    states, columns = len(pattern), base.shape[1]
    step = max(1, BLOCK_CELLS // max(columns, 1))
    rows = np.empty((states, columns), np.int32)
    added = np.empty((min(step, states), columns), np.int32)
    numbers = np.arange(states, dtype=np.int32)[:, None]
    for low in range(0, states, step):
        block, part = rows[low:low + step], added[:len(rows[low:low + step])]
        np.take(base, pattern[low:low + step], axis=0, out=block, mode="clip")
        np.take(follows, pattern[low:low + step], axis=0, out=part, mode="clip")
        part *= numbers[low:low + step]
        block += part
    return rows
