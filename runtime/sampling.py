"""Random valid outputs of a machine, by walking its bytes; no vocabulary needed.

In: a ``Machine`` or a ``Grammar``, a NumPy generator, a budget in bytes. Out: bytes that the machine accepts. The walk keeps an ending
in reach: a byte is taken only if what it leads to can still be finished within the bytes left, so recursion winds down as the budget is
used and the walk always ends.

Where items of an array must differ (``unique_items``), bytes that would make two equal are drawn again, and an item that the bytes left
cannot end is ended in the fewest bytes that do: then an output may be a little longer than asked for. Cost: some microseconds for
each candidate byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE
from stcc.runtime.byte_needs import ByteNeeds
from stcc.runtime.errors import ConstraintError
from stcc.runtime.stack import Configuration, Level, Stacks
from stcc.runtime.unique_endings import Endings
from stcc.runtime.unique_items import IDLE, Progress, Reader

if TYPE_CHECKING:
    from stcc.formats.machine import Machine
    from stcc.runtime.grammar import Grammar

END_CHANCE = 0.5
"""How often a walk stops where the output may end but could go on."""
PLAIN_CHANCE = 0.9
"""How often a byte is drawn from letters, digits and the space, where the state admits some of them on the way it took."""
_PLAIN = np.zeros(256, np.bool_)
_PLAIN[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ")] = True


class Walker:
    """Random walks over one machine; the byte needs are computed once."""

    def __init__(self, machine: Machine) -> None:
        self._stacks = Stacks(machine)
        self._needs = ByteNeeds(self._stacks)
        self._reader = Reader(self._stacks)
        self._endings = Endings(self._reader)

    def output(self, rng: np.random.Generator, max_bytes: int = 400) -> bytes:
        """One random valid output, of at most ``max_bytes`` bytes where some output is that short, else one of the shortest.

        Raises:
            ConstraintError: the machine accepts nothing; compiled ones always accept something.
        """
        stacks, (state, level) = self._stacks, self._stacks.start()
        shortest = self._needs.need(state, level)
        if shortest >= UNREACHABLE:
            raise ConstraintError("no output is valid: the machine accepts nothing", "compile the source again")
        left = max(max_bytes, shortest)
        text, progress = bytearray(), IDLE
        while state >= 0:
            may_end = stacks.may_end(state, level)
            if may_end and (left == 0 or rng.random() < END_CHANCE):
                break
            taken = self._draw(rng, state, level, progress, left - 1) or self._endings.shortest(state, level, progress)
            if not taken:
                break
            (state, level), progress = self._after(state, level, progress, taken)
            text += taken
            left = max(left - len(taken), self._needs.need(state, level))
        return bytes(text)

    def _after(self, state: int, level: Level, progress: Progress, taken: bytes) -> tuple[Configuration, Progress]:
        """Where bytes that may follow lead."""
        after, found = self._stacks.read(state, level, taken), self._reader.read(state, level, progress, taken)
        assert after is not None and found is not None
        return after, found

    def _draw(self, rng: np.random.Generator, state: int, level: Level, progress: Progress, left: int) -> bytes:
        """One byte that may follow such that ``left`` more bytes finish; none if there is none."""
        choices = self._choices(state, level, left)
        while choices:
            weights = np.array([_weight(bytes_) for _, bytes_ in choices])
            place = int(rng.choice(len(choices), p=weights / weights.sum()))
            after, bytes_ = choices[place]
            plain = bytes_[_PLAIN[bytes_]]
            byte = int(rng.choice(plain if len(plain) and rng.random() < PLAIN_CHANCE else bytes_))
            found = self._reader.read(state, level, progress, bytes([byte]))
            if found is not None and self._endings.can_end(*after, found):
                return bytes([byte])
            choices[place] = after, bytes_[bytes_ != byte]
            choices = [choice for choice in choices if len(choice[1])]
        return b""

    def _choices(self, state: int, level: Level, left: int) -> list[tuple[tuple[int, Level], npt.NDArray[np.uint8]]]:
        """Where the next byte may lead such that ``left`` more bytes finish, and the bytes that lead there."""
        groups: dict[tuple[int, Level], list[int]] = {}
        for byte in self._stacks.live_bytes(state, level).tolist():
            after = self._stacks.step(state, level, byte)
            if after is not None:
                groups.setdefault(after, []).append(byte)
        return [(after, np.array(members, np.uint8)) for after, members in groups.items() if self._needs.need(*after) <= left]


def _weight(bytes_: npt.NDArray[np.uint8]) -> float:
    """How likely a way is, given the bytes that lead there: text is mostly plain, escapes and other scripts turn up now and then."""
    if _PLAIN[bytes_].any():
        return 4.0
    return 0.1 if bytes_[0] >= 0x80 or bytes_[0] == ord("\\") else 1.0


def random_output(grammar: Grammar | Machine, rng: np.random.Generator, max_bytes: int = 400) -> bytes:
    """One random valid output of a grammar or a machine.

    For many outputs make a ``Walker`` once.

    Args:
        grammar: what to sample from.
        rng: the source of randomness; the same generator state gives the same output.
        max_bytes: most bytes; exceeded only where every valid output is longer, and then as little as possible.
    """
    machine: Machine = getattr(grammar, "machine", grammar)  # type: ignore[arg-type]
    return Walker(machine).output(rng, max_bytes)
