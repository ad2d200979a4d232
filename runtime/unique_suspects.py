"""Which tokens might complete an item that equals an earlier one, so that only those are tried.

In: a configuration, the ``Progress`` there, and the mask row that the machine allows. Out: the tokens of the row that must not follow.
A token is tried by reading its bytes (``unique_items``) and asking whether what it begins can end (``unique_endings``). Most need not be:

- a token that ends inside a string or number that evidently goes on in enough ways is harmless, and so is one that only asks for such a
  string (a comma); which ones are depends on the configuration only, and is kept (``Lists``);
- a token that closes the string under way is harmless unless this makes it a *target*: what it would have to be for an item to equal an
  earlier one. Tokens that spell the rest of a target lie side by side in the vocabulary's byte order.

Cost: inside a string without rivals, a few look-ups and the tokens that begin further items; else some 5 us for each token tried. Lists
take a millisecond or two, once for each configuration.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.runtime.json_values import spelled
from stcc.runtime.unique_endings import Endings
from stcc.runtime.unique_items import BARE, IDLE, STRING, WANTED, Progress, Reader

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.masks import Masks
    from stcc.runtime.stack import Level
    from stcc.runtime.token_sets import Row

Index = npt.NDArray[np.intp]
GoesOn = Callable[[int], bool]

MOST_LISTS = 1 << 12
_OPENING = re.compile(rb"\[.*,", re.DOTALL)
_STRING_END = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_CLOSERS = re.compile(rb'[\s\]}]*(?P<next>[,:]\s*(?P<open>"[^"\\]*)?)?')
"""What may follow a value without beginning and ending another: brackets, and at most the beginning of a string."""
_BEGINNING = re.compile(rb'[\s,:]*(?P<open>"[^"\\]*)?')
_WHOLE = re.compile(rb'\s*"(?P<content>[^"\\]*)"(?P<rest>[^"]*"?[^"]*)')
_NUMBER = re.compile(rb"[\s,:]*[-+.0-9A-Za-z]+")


@dataclass
class Lists:
    """The tokens of a row that are not harmless, by when they are to be tried.

    Attributes:
        always: whatever has been read.
        rivals: where the item under way has rivals: they close brackets or end a number.
        contents: where this string is a target: they spell it whole.
    """

    always: list[int] = field(default_factory=list)
    rivals: list[int] = field(default_factory=list)
    contents: dict[bytes, list[int]] = field(default_factory=dict)


class Suspects:
    """See the module's text; one for each grammar."""

    def __init__(self, masks: Masks, vocabulary: Vocabulary, reader: Reader, endings: Endings) -> None:
        self._masks, self._vocabulary, self._reader, self._endings = masks, vocabulary, reader, endings
        self._lists: dict[tuple[int, Level, int, int], Lists] = {}
        self._outside: dict[tuple[int, Level], tuple[int, ...]] = {}

    def refused(self, state: int, level: Level, progress: Progress, row: Row) -> list[int]:
        """The tokens of ``row`` after which an item would equal an earlier one, or could only end so."""
        if state < 0:
            return []
        if progress.frame is None:
            return list(self._refused_outside(state, level, row))
        lists = self._listed(state, level, progress, row)
        chosen = list(lists.always)
        rivals = sum(map(len, progress.rivals().values()))
        if rivals:
            chosen += lists.rivals
            if progress.mode == STRING:
                chosen += self._spelling(state, level, progress, row, rivals)
            elif lists.contents:
                targets = (target for target in progress.targets() if isinstance(target, str))
                chosen += [token for target in targets for token in lists.contents.get(target.encode("utf-8", "surrogatepass"), ())]
        return [token for token in dict.fromkeys(chosen) if not self.may_follow(state, level, progress, token)]

    def may_follow(self, state: int, level: Level, progress: Progress, token: int) -> bool:
        """Whether ``token``, which the machine allows, may follow."""
        after = self._reader.read(state, level, progress, self._vocabulary.token(token))
        if after is None:
            return False
        if not after.within_item():
            return True
        target = self._masks.land(self._masks.value(state, token), level)
        return target is not None and self._endings.can_end(*target, after)

    # outside, and what is the same whatever was read

    def _refused_outside(self, state: int, level: Level, row: Row) -> tuple[int, ...]:
        known = self._outside.get((state, level))
        if known is None:
            if len(self._outside) >= MOST_LISTS:
                self._outside.clear()
            known = tuple(token for token in self._allowed(row, self._opening) if not self.may_follow(state, level, IDLE, token))
            self._outside[(state, level)] = known
        return known

    def _listed(self, state: int, level: Level, progress: Progress, row: Row) -> Lists:
        most = _most_rivals(progress)
        key = (state, level, progress.mode, most.bit_length())
        known = self._lists.get(key)
        if known is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists.clear()
            known = self._lists[key] = self._sort(state, level, progress, row, 1 << most.bit_length())
        return known

    def _sort(self, state: int, level: Level, progress: Progress, row: Row, most: int) -> Lists:
        lists = Lists()
        for token in self._allowed(row, self._quoting if progress.mode == STRING else None):
            data = self._vocabulary.token(token)
            if data:
                sort = self._sort_string if progress.mode == STRING else self._sort_bare if progress.mode == BARE else self._sort_other
                sort(lists, token, data, progress, partial(self._goes_on, state, level, token, most))
        return lists

    def _goes_on(self, state: int, level: Level, token: int, most: int, mode: int) -> bool:
        """Whether the scalar that ``token`` begins, or asks for, goes on in more than ``most`` ways."""
        after = self._masks.land(self._masks.value(state, token), level)
        return after is not None and self._endings.ways(*after, mode) > most

    def _sort_string(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        escaped = (len(progress.text) - len(progress.text.rstrip(b"\\"))) & 1
        end = _STRING_END.match(data, escaped)
        if end is None:
            return
        closers = _CLOSERS.fullmatch(data, end.end())
        if closers is None or b"\\u" in data or (closers["next"] and not goes_on(STRING if closers["open"] else WANTED)):
            lists.always.append(token)

    def _sort_bare(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        if _NUMBER.fullmatch(data) and data[0] not in b" \t\r\n,:":
            if b"e" in data.lower() or b"e" in progress.text.lower() or not goes_on(BARE):
                lists.always.append(token)
            return
        closers = _CLOSERS.fullmatch(data)
        harmless = closers is not None and (not closers["next"] or goes_on(STRING if closers["open"] else WANTED))
        (lists.rivals if harmless else lists.always).append(token)

    def _sort_other(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        if data.isspace():
            return
        beginning, whole = _BEGINNING.fullmatch(data), _WHOLE.fullmatch(data)
        if beginning is not None:
            if not goes_on(STRING if beginning["open"] else WANTED):
                lists.always.append(token)
        elif whole is not None and (closers := _CLOSERS.fullmatch(whole["rest"])) is not None:
            if closers["next"] and not goes_on(STRING if closers["open"] else WANTED):
                lists.always.append(token)
            else:
                lists.contents.setdefault(whole["content"], []).append(token)
        elif _NUMBER.fullmatch(data):
            if b"e" in data.lower() or not goes_on(BARE):
                lists.always.append(token)
        elif (closers := _CLOSERS.fullmatch(data)) is not None and (not closers["next"] or goes_on(STRING if closers["open"] else WANTED)):
            lists.rivals.append(token)
        else:
            lists.always.append(token)

    # strings under way

    def _spelling(self, state: int, level: Level, progress: Progress, row: Row, rivals: int) -> list[int]:
        """The tokens that spell the rest of a target, or a beginning of it after which few strings are possible."""
        chosen: list[int] = []
        for target in progress.targets():
            text = spelled(target)
            if b"\\u" in text:  # spelled in several ways
                return self._allowed(row, self._quoting) + self._allowed(row, self._escaping)
            rest = text[len(progress.text):]
            chosen += self._between(rest + b'"', rest + b"#")
            chosen += self._beginnings(state, level, rest, rivals)
        return [token for token in chosen if _holds(row, token)]

    def _beginnings(self, state: int, level: Level, rest: bytes, rivals: int) -> list[int]:
        """The tokens that spell a beginning of ``rest`` after which few strings are possible."""
        chosen: list[int] = []
        for length in range(1, min(len(rest), self._longest) + 1):
            after = self._reader.stacks.step(state, level, rest[length - 1])
            if after is None:
                break
            if after != (state, level) and self._endings.ways(*after, STRING) <= rivals:
                chosen += self._between(rest[:length], rest[:length] + b"\0")
            state, level = after
        return chosen

    # the vocabulary

    @cached_property
    def _quoting(self) -> Index:
        """The tokens with a quotation mark."""
        return self._with_byte(0x22)

    @cached_property
    def _escaping(self) -> Index:
        """The tokens with a backslash."""
        return self._with_byte(0x5C)

    @cached_property
    def _opening(self) -> Index:
        """The tokens that may open an array and begin its second item."""
        token = self._vocabulary.token
        return np.array([each for each in self._with_byte(0x5B).tolist() if _OPENING.search(token(each))], np.intp)

    @cached_property
    def _longest(self) -> int:
        return int(np.diff(self._vocabulary.token_offsets).max(initial=0))

    def _with_byte(self, byte: int) -> Index:
        places = np.flatnonzero(self._vocabulary.token_bytes == byte)
        return np.unique(self._vocabulary.token_offsets.searchsorted(places, "right") - 1).astype(np.intp)

    def _between(self, low: bytes, high: bytes) -> list[int]:
        """The tokens whose bytes are at least ``low`` and below ``high``."""
        order = self._vocabulary.byte_order
        first = bisect_left(order, low, key=self._vocabulary.token)
        return order[first:bisect_left(order, high, first, key=self._vocabulary.token)].tolist()  # type: ignore[no-any-return]

    def _allowed(self, row: Row, tokens: Index | None) -> list[int]:
        """The tokens of ``row``, or those among ``tokens``."""
        if tokens is None:
            return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        return tokens[(row[tokens >> 5] >> (tokens & 31).astype(np.int32)) & 1 != 0].tolist()  # type: ignore[no-any-return]


def _holds(row: Row, token: int) -> bool:
    return bool(row[token >> 5] >> (token & 31) & 1)


def _most_rivals(progress: Progress) -> int:
    """More rivals than any position that a token may lead to can have, but for items that the token itself completes."""
    frame, most = progress.frame, 0
    while frame is not None:
        most += 0 if frame.items is None else frame.items.count + 1
        frame = frame.outer
    return most
