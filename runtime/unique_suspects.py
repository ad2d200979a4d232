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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stcc.runtime.json_values import spelled
from stcc.runtime.unique_costs import Costs
from stcc.runtime.unique_endings import ENOUGH, Endings
from stcc.runtime.unique_items import BARE, IDLE, STRING, WANTED, Progress, Reader, normal

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.masks import Masks
    from stcc.runtime.stack import Configuration, Level
    from stcc.runtime.token_sets import Row

Index = npt.NDArray[np.intp]
GoesOn = Callable[[int], bool]

MOST_LISTS = 1 << 12
MOST_SPELLED = 1 << 14
_OPENING = re.compile(rb"\[.*,", re.DOTALL)
_STRING_END = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(rb"\\u[0-9A-Fa-f]{0,3}$")
_CLOSERS = re.compile(rb'[\s\]}]*(?P<next>[,:]\s*(?P<open>"[^"\\]*)?)?')
"""What may follow a value without beginning and ending another: brackets, and at most the beginning of a string."""
_BEGINNING = re.compile(rb'[\s,:]*[\[{]?\s*(?P<open>"[^"\\]*)?')
_WHOLE = re.compile(rb'\s*"(?P<content>[^"\\]*)"(?P<rest>[^"]*"?[^"]*)')
_NUMBER = re.compile(rb"[-.0-9]+")


@dataclass
class Lists:
    """The tokens of a row that are not harmless, by when they are to be tried.

    Attributes:
        always: whatever has been read.
        rivals: where the item under way has rivals: they close brackets or end a number.
        contents: where this string is a target: they spell it whole.
        begins: where a budget is running out: harmless, since what they begin goes on in enough ways; each with the mode it ends in.
        spaces: where a budget is kept: they are white space.
        cost: what finishing after one of ``begins`` takes at most; -1 until asked for.
        most: the number of rivals that they are harmless up to.
    """

    most: int
    always: list[int] = field(default_factory=list)
    rivals: list[int] = field(default_factory=list)
    contents: dict[bytes, list[int]] = field(default_factory=dict)
    begins: list[tuple[int, int]] = field(default_factory=list)
    spaces: list[int] = field(default_factory=list)
    cost: int = -1


class Suspects:
    """See the module's text; one for each grammar."""

    def __init__(self, masks: Masks, vocabulary: Vocabulary, reader: Reader, endings: Endings, costs: Costs) -> None:
        self._masks, self._vocabulary, self._reader, self._endings, self._costs = masks, vocabulary, reader, endings, costs
        self._lists: dict[tuple[int, Level, int, int], Lists] = {}
        self._outside: dict[tuple[int, Level], tuple[int, ...]] = {}
        self._spelled: dict[tuple[int, Level, bytes], list[tuple[int, Configuration, int]]] = {}
        self._ranges: dict[tuple[bytes, bytes], npt.NDArray[np.int32]] = {}

    def refused(self, state: int, level: Level, progress: Progress, row: Row, left: int | None) -> list[int]:
        """The tokens of ``row`` after which an item would equal an earlier one, could only end so, or not within ``left`` tokens."""
        if state < 0:
            return []
        inside = progress.frame is not None
        chosen = self._suspect_inside(state, level, progress, left) if inside else self._suspect_outside(state, level, left)
        tried = (token for token in dict.fromkeys(chosen) if _holds(row, token))
        return [token for token in tried if not self._may_follow(state, level, progress, token, left)]

    def _may_follow(self, state: int, level: Level, progress: Progress, token: int, left: int | None) -> bool:
        """Whether ``token``, which the machine allows, may follow."""
        after = self._reader.read(state, level, progress, self._vocabulary.token(token))
        if after is None:
            return False
        if not after.within_item():
            return True
        target = self._masks.land(self._masks.value(state, token), level)
        if target is None or not self._endings.can_end(*target, after):
            return False
        return left is None or self._costs.fits(*target, after, left - 1)

    def _suspect_outside(self, state: int, level: Level, left: int | None) -> Sequence[int]:
        """The tokens that open an array and begin its second item; without a budget those that are refused, which are kept."""
        known = self._outside.get((state, level))
        if known is None or left is not None:
            opening = self._allowed(self._masks.row(state, level)[0], self._opening)
            if left is not None:
                return opening
            if len(self._outside) >= MOST_LISTS:
                self._outside.clear()
            known = tuple(token for token in opening if not self._may_follow(state, level, IDLE, token, None))
            self._outside[(state, level)] = known
        return known

    def _suspect_inside(self, state: int, level: Level, progress: Progress, left: int | None) -> list[int]:
        lists = self._listed(state, level, progress)
        chosen = list(lists.always)
        if left is not None and left <= self._most_cost(state, level, lists):
            chosen += [token for token, _ in lists.begins]
        rivals = sum(map(len, progress.rivals().values()))
        if not rivals:
            return chosen
        chosen += lists.rivals
        if left is not None:
            chosen += lists.spaces
        if progress.mode == STRING:
            return chosen + self._spelling(state, level, progress, rivals, left)
        if lists.contents:
            targets = (target for target in progress.targets() if isinstance(target, str))
            chosen += [token for target in targets for token in lists.contents.get(target.encode("utf-8", "surrogatepass"), ())]
        return chosen

    # what is the same whatever was read

    def _listed(self, state: int, level: Level, progress: Progress) -> Lists:
        most = _most_rivals(progress)
        key = (state, level, progress.mode, most.bit_length())
        known = self._lists.get(key)
        if known is None:
            if len(self._lists) >= MOST_LISTS:
                self._lists.clear()
            known = self._lists[key] = self._sort(state, level, progress, 1 << most.bit_length())
        return known

    def _most_cost(self, state: int, level: Level, lists: Lists) -> int:
        """What finishing after one of ``lists.begins`` takes at most."""
        if lists.cost < 0:
            after = {(self._masks.land(self._masks.value(state, token), level), mode) for token, mode in lists.begins}
            lists.cost = max((self._costs.spare(*end, mode, lists.most) for end, mode in after if end is not None), default=0)
        return lists.cost

    def _sort(self, state: int, level: Level, progress: Progress, most: int) -> Lists:
        lists, row = Lists(most), self._masks.row(state, level)[0]
        sort = {STRING: self._sort_string, BARE: self._sort_bare}.get(progress.mode, self._sort_other)
        for token in self._allowed(row, self._quoting if progress.mode == STRING else None):
            data = self._vocabulary.token(token)
            if data:
                sort(lists, token, data, progress, partial(self._goes_on, lists, state, level, token, most))
        return lists

    def _goes_on(self, lists: Lists, state: int, level: Level, token: int, most: int, mode: int) -> bool:
        """Whether the scalar that ``token`` begins, or asks for, goes on in more than ``most`` ways."""
        after = self._masks.land(self._masks.value(state, token), level)
        if after is None or self._endings.ways(*after, mode) <= most:
            lists.always.append(token)
            return False
        lists.begins.append((token, mode))
        return True

    def _sort_string(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        escaped = (len(progress.text) - len(progress.text.rstrip(b"\\"))) & 1
        end = _STRING_END.match(data, escaped)
        if end is not None:
            closers = _CLOSERS.fullmatch(data, end.end())
            if closers is None or b"\\u" in data:
                lists.always.append(token)
            elif closers["next"]:
                goes_on(_begun(closers))

    def _sort_bare(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        closers = _CLOSERS.fullmatch(data)
        if closers is not None:
            if not closers["next"] or goes_on(_begun(closers)):
                lists.rivals.append(token)
        elif b"e" in progress.text.lower() or not self._is_number(data):
            lists.always.append(token)
        else:
            goes_on(BARE)

    def _sort_other(self, lists: Lists, token: int, data: bytes, progress: Progress, goes_on: GoesOn) -> None:
        if data.isspace():
            lists.spaces.append(token)
            return
        if (beginning := _BEGINNING.fullmatch(data)) is not None:
            goes_on(_begun(beginning))
        elif (whole := _WHOLE.fullmatch(data)) is not None and (closers := _CLOSERS.fullmatch(whole["rest"])) is not None:
            if not closers["next"] or goes_on(_begun(closers)):
                lists.contents.setdefault(whole["content"], []).append(token)
        elif self._is_number(data.lstrip(b" \t\r\n,:")):
            goes_on(BARE)
        elif (closers := _CLOSERS.fullmatch(data)) is not None:
            if not closers["next"] or goes_on(_begun(closers)):
                lists.rivals.append(token)
        else:
            lists.always.append(token)

    @staticmethod
    def _is_number(data: bytes) -> bool:
        """Whether ``data`` lies inside a number, before any exponent."""
        return _NUMBER.fullmatch(data) is not None

    # strings under way

    def _spelling(self, state: int, level: Level, progress: Progress, rivals: int, left: int | None) -> list[int]:
        """The tokens that spell the rest of a target, or a beginning of it after which few strings are possible."""
        row = self._masks.row(state, level)[0]
        targets = sorted({spelled(target) for target in progress.targets()})
        chosen: list[int] = []
        if any(b"\\u" in target for target in targets):  # its digits may be of either case
            within = _ESCAPE.search(progress.text) is not None
            chosen += self._allowed(row, None) if within else self._allowed(row, self._quoting) + self._allowed(row, self._escaping)
        risky: dict[bytes, bool] = {}
        for target in targets:
            rest = target[len(progress.text):]
            chosen += self._allowed(row, self._between(rest + b'"', rest + b"#"))
            if left is None:
                self._mark_risky(state, level, progress.text, rest, targets, risky)
            else:
                risky |= {rest[:length]: True for length, after, _ in self._beginnings(state, level, rest)
                          if left <= self._costs.spare(*after, STRING, rivals)}
        for begun, is_risky in risky.items():
            if is_risky:
                chosen += self._between(begun, begun + b"\0").tolist()
        return chosen

    def _mark_risky(self, state: int, level: Level, text: bytes, rest: bytes, targets: list[bytes], risky: dict[bytes, bool]) -> None:
        """Put into ``risky`` the beginnings of ``rest``: whether it is not evident that after it another string than one of ``targets``,
        which are sorted, is possible.
        """
        beginnings = self._beginnings(state, level, rest)
        for place, (length, after, ways) in enumerate(beginnings):
            begun = rest[:length]
            if begun not in risky:
                begin = normal(text + begun)
                same = targets[bisect_left(targets, begin):bisect_left(targets, begin + b"\xff")]
                differs = True if ways > len(same) else self._endings.differs(*after, text + begun, set(same))
                risky[begun] = not differs
                if differs is False:  # nor does more of it
                    risky |= {rest[:longer]: True for longer, _, _ in beginnings[place:]}
                    return

    def _beginnings(self, state: int, level: Level, rest: bytes) -> list[tuple[int, Configuration, int]]:
        """Where beginnings of ``rest`` lead, up to the longest token: their length, the configuration, and its ways if it is another."""
        key = (state, level, rest)
        known = self._spelled.get(key)
        if known is None:
            if len(self._spelled) >= MOST_SPELLED:
                self._spelled.clear()
            known = self._spelled[key] = []
            for length in range(1, min(len(rest), self._longest) + 1):
                after = self._reader.stacks.step(state, level, rest[length - 1])
                if after is None:
                    break
                known.append((length, after, ENOUGH if after == (state, level) else self._endings.ways(*after, STRING)))
                state, level = after
        return known

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

    def _between(self, low: bytes, high: bytes) -> npt.NDArray[np.int32]:
        """The tokens whose bytes are at least ``low`` and below ``high``."""
        known = self._ranges.get((low, high))
        if known is None:
            if len(self._ranges) >= MOST_SPELLED:
                self._ranges.clear()
            order, token = self._vocabulary.byte_order, self._vocabulary.token
            first = bisect_left(order, low, key=token)
            known = self._ranges[(low, high)] = order[first:bisect_left(order, high, first, key=token)]
        return known

    def _allowed(self, row: Row, tokens: npt.NDArray[np.integer] | None) -> list[int]:
        """The tokens of ``row``, or those among ``tokens``."""
        if tokens is None:
            return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        return tokens[(row[tokens >> 5] >> (tokens & 31).astype(np.int32)) & 1 != 0].tolist()  # type: ignore[no-any-return]


def _begun(found: re.Match[bytes]) -> int:
    """The mode in which a beginning ends."""
    return STRING if found["open"] else WANTED


def _holds(row: Row, token: int) -> bool:
    return bool(row[token >> 5] >> (token & 31) & 1)


def _most_rivals(progress: Progress) -> int:
    """More rivals than any position that a token may lead to can have, but for items that the token itself completes."""
    frame, most = progress.frame, 0
    while frame is not None:
        most += 0 if frame.items is None else frame.items.count + 1
        frame = frame.outer
    return most
