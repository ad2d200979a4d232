"""Encodings of bytes as text (RFC 4648): the DFA of well-formed texts, and what a text's characters mean bit by bit.

Texts are canonical: padded, without line breaks, the bits left over at the end zero, as section 3.5 asks of encoders.

A *context* is what has been read of the next byte of the content: ``n`` bits, fewer than 8, of value ``v``. Contexts are numbered by the
order in which the encoding comes to their ``n``, then by ``v``; context 0 is "nothing". Those in which a byte has just been completed are
the *boundary* contexts: whoever reads the content stands between two bytes there, though some bits of the next may be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from stcc.compiler.dfa import Dfa
from stcc.compiler.minimize import minimize_dfa

Int32 = npt.NDArray[np.int32]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Encoding:
    """One encoding.

    Attributes:
        name: as ``contentEncoding`` has it.
        alphabet: its characters; character ``i`` stands for the bits of ``i``.
        group: a text's length is a multiple of this.
    """

    name: str
    alphabet: str
    group: int

    @property
    def bits(self) -> int:
        """Bits a character carries."""
        return len(self.alphabet).bit_length() - 1

    @cached_property
    def byte_class(self) -> npt.NDArray[np.uint8]:
        """uint8 ``[256]``: the number of each character; one class more for all other bytes."""
        byte_class = np.full(256, len(self.alphabet), np.uint8)
        byte_class[list(self.alphabet.encode())] = np.arange(len(self.alphabet))
        return byte_class

    @cached_property
    def known(self) -> tuple[tuple[int, bool], ...]:
        """The numbers of known bits that occur, with whether a byte has just been completed there; nothing is first."""
        found = [(0, True)]
        while True:
            after = found[-1][0] + self.bits
            if after % 8 == 0:
                return tuple(found)
            found.append((after % 8, after >= 8))

    @cached_property
    def contexts(self) -> tuple[tuple[int, int], ...]:
        """Every context as (bits known, their value)."""
        return tuple((bits, value) for bits, _ in self.known for value in range(1 << bits))

    @cached_property
    def boundary(self) -> tuple[int, ...]:
        """The numbers of the boundary contexts, ascending."""
        at_boundary = {bits for bits, boundary in self.known if boundary}
        return tuple(number for number, (bits, _) in enumerate(self.contexts) if bits in at_boundary)

    @cached_property
    def steps(self) -> tuple[Int32, Int32]:
        """int32 ``[contexts, characters]`` twice: the byte that a character completes, or -1; the context after it."""
        numbers = {context: number for number, context in enumerate(self.contexts)}
        byte = np.full((len(self.contexts), len(self.alphabet)), -1, np.int32)
        after = np.empty_like(byte)
        for number, (bits, value) in enumerate(self.contexts):
            for character in range(len(self.alphabet)):
                known, read = bits + self.bits, value << self.bits | character
                if known >= 8:
                    known -= 8
                    byte[number, character] = read >> known
                    read &= (1 << known) - 1
                after[number, character] = numbers[known, read]
        return byte, after

    def span(self, context: int) -> tuple[int, int]:
        """The least and the greatest next byte of the content in ``context``."""
        bits, value = self.contexts[context]
        return value << 8 - bits, (value + 1 << 8 - bits) - 1

    def padding(self, context: int) -> bytes | None:
        """What ends a text in boundary context ``context``; None where it cannot end: bits that are left over have to be zero."""
        left, value = self.contexts[context]
        length = next((length for length in range(self.group) if length * self.bits % 8 == left < self.bits), None)
        return None if value or length is None else b"=" * (-length % self.group)


ENCODINGS = {
    encoding.name: encoding for encoding in (
        Encoding("base16", "0123456789ABCDEF", 2),
        Encoding("base32", _LETTERS + "234567", 8),
        Encoding("base64", _LETTERS + _LETTERS.lower() + "0123456789+/", 4),
    )
}
JSON_ENCODINGS = ("", "base64")
"""Encodings in which a JSON text can be read: where a character has 4 or 5 bits, ``[`` and ``]`` begin alike, so that none would decide."""


@cache
def encoded_texts(name: str) -> Dfa:
    """The minimal DFA of all texts in encoding ``name``, over their ASCII bytes; label 0.

    >>> [encoded_texts("base64").match(text) for text in (b"", b"eyJ9", b"ezp9Cg==", b"ezp9Ch==", b"ezp9Cg", b"{}")]
    [0, 0, 0, -1, -1, -1]
    """
    encoding = ENCODINGS[name]
    _, after = encoding.steps
    states, pads = len(encoding.contexts), encoding.group
    byte_class = encoding.byte_class.copy()
    byte_class[ord("=")] = len(encoding.alphabet) + 1
    table = np.full((states + pads, len(encoding.alphabet) + 2), -1, np.int32)
    table[:states, :-2] = after
    for context in encoding.boundary:
        padding = encoding.padding(context)
        if padding:
            table[context, -1] = states + len(padding) - 1
    table[states + 1:, -1] = np.arange(states, states + pads - 1)  # state ``states + n`` still has n to read
    accept = np.full(states + pads, -1, np.int32)
    accept[[0, states]] = 0
    return minimize_dfa(Dfa(byte_class, table, accept))
