"""Plans: the canonical tokens of every state's forced text (Theorem 20), and the boundary cover.

In: a machine and a vocabulary whose pack holds an encoder record. Out: ``Plans``, per state the tokens that may be written
without asking the model, and the fewest bytes the next sampled token must span. Afterwards: the tokens spell a prefix of the state's
forced chain, and are what the tokenizer makes of that text whatever was written before and whatever follows. Cost: some 20 us a forced
state plus the encoder's load, which is skipped when nothing is forced.

A state is *forced* if one byte is live, and its rule cannot end there. Its *chain* w follows forced states, into callees and back out of
them while the chain itself opened them; a rule that the chain did not open ends it.

    ... "age"  :  4 2  ,  " n a m e " : "            s = u w: u is what every path to the state wrote last (here ,)
                       |  ^forced chain w ^          blocks of s:  [,"] [name] [":"]
                       u                             tokens from , on:  " name   ("":" is held back: a string may begin with -)

*Left.* A block boundary counts only if it is one after every left context (``canonical.CONTEXTS``) in front of u. Behind the first such
boundary the blocks no longer depend on what stands left. The piece from the state to its first boundary is encoded by itself: either it
is a block, or the token written before has already cut the block there. An added token at the state is one whatever stands left, unless
another may begin there and reach into it.

*Right.* The last block is held back unless s does not end in whitespace and the pre-tokenizer puts a boundary behind s for every
character that may follow (every live ASCII byte, one character per class for other lead bytes; behind a rule's end those live after any
of its returns), and no added token may begin inside s and go on behind it. If what is held back is one token of l > 1 bytes, the next
sampled token must span l bytes (``cover``); the held token itself does, so no mask becomes empty. Where the block goes on, the
tokenizer may have cut it earlier (``":"]`` is ``":`` and ``"]`` to Qwen3): the cover rules that split out, as the paper's does.

*Inside the last block.* Of a block of JSON punctuation that is held back, the leading tokens are still committed whose boundaries no merge
can cross, whatever the block goes on with (``CanonicalEncoder.firm_tokens``): ``":[`` is ``":`` and then ``[``, ``["`` or ``[]`` to a
tokenizer without a token ``:[``. The paper holds back whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.canonical import CONTEXTS, MAX_ENCODERS, CanonicalEncoder, canonical_encoder
from stcc.compiler.options import Deadline
from stcc.formats.machine import Machine, end_states
from stcc.formats.vocabulary import Vocabulary

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Live = npt.NDArray[np.bool_]
Encode = Callable[[bytes], tuple[int, ...] | None]
Planned = tuple[int, tuple[int, ...], int]  # state, tokens, cover

MAX_LEFT = 16  # bytes of u: longer than any block that JSON punctuation starts
MAX_CHAIN = 256  # bytes of a chain split at once; a longer one is split in parts
MAX_OVERLAP = 64  # bytes by which the parts of a longer one overlap
MAX_TOKENS = 16  # tokens stored per state; the runtime joins plans, so a longer one goes on at the state where it ends
_MOST_KEPT = 1 << 16  # entries of a splitter's memos, some 100 bytes each
_TRIES = 4  # boundaries tried as the first that holds after every left context

_STRUCTURE = frozenset('{}[]":,')  # held-back blocks of these alone are looked into: nothing behind them cuts them anew

# One character of every class that pre-tokenizers tell apart, for lead bytes from 0xC2 up: letters (lower, upper, title, other), digit,
# punctuation, spaces, mark, symbol, and the long s, which contractions match.
_BEYOND_ASCII = "éÅǅ中٣—€\u00a0\u3000\u2028\u0301🙂ſ"


@dataclass(frozen=True, eq=False)
class Plans:
    """Per state, what may be written unasked.

    Attributes:
        plan_offsets: int32 ``[states + 1]`` into ``plan_tokens``.
        plan_tokens: int32, canonical tokens of each state's forced chain.
        cover: uint8 ``[states]``, fewest bytes of the next sampled token; 0 where any may follow.
    """

    plan_offsets: Int32
    plan_tokens: Int32
    cover: npt.NDArray[np.uint8]

    def tokens(self, state: int) -> tuple[int, ...]:
        """The plan of one state."""
        return tuple(self.plan_tokens[self.plan_offsets[state]:self.plan_offsets[state + 1]].tolist())


def plan_states(machine: Machine, vocabulary: Vocabulary, deadline: Deadline | None = None) -> Plans:
    """Plans and covers of every state; all empty if the vocabulary's pack holds no encoder record.

    Raises:
        BudgetError: ``deadline`` passed.
    """
    moves = _moves(machine)
    encoder = canonical_encoder(vocabulary) if bool(moves.forced.any()) else None
    plans: dict[int, tuple[int, ...]] = {}
    cover = np.zeros(machine.states, np.uint8)
    if encoder is not None:
        splitter = _splitter(encoder)
        if splitter.is_full():
            _splitter.cache_clear()  # who is using it keeps it
        for chain in _chains(machine, moves):
            if deadline is not None:
                deadline.check()
            for state, tokens, span in splitter.split(chain):
                cover[state] = span
                if tokens:
                    plans[state] = tokens
    offsets = np.zeros(machine.states + 1, np.int32)
    offsets[[state + 1 for state in plans]] = [len(tokens) for tokens in plans.values()]
    flat = [token for state in sorted(plans) for token in plans[state]]
    return Plans(np.cumsum(offsets, dtype=np.int32), np.array(flat, np.int32), cover)


# -- chains ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Moves:
    """What the chains need to know of the machine: per state, whether it is forced and how, and what led to it.

    ``inner`` states are entered from one forced state by a plain move and in no other way; ``left[q, i]`` is the byte every path to q wrote
    i bytes ago, -1 where that is not one byte.
    """

    forced: Live
    cell: Int64
    byte: Int64
    inner: Live
    fresh: bool  # nothing leads to the start, so the text begins there
    left: npt.NDArray[np.int16]
    ends: Live
    after_exit: dict[int, Live]


@dataclass(frozen=True, eq=False)
class _Chain:
    """Forced text behind ``left``, for the states at ``places`` (offsets into ``text``, rising).

    ``anchored``: ``left`` starts at a block boundary. ``live``: bytes that may follow; None if the chain was cut off at MAX_CHAIN.
    """

    left: bytes
    text: bytes
    places: list[tuple[int, int]]
    anchored: bool
    live: Live | None


def _moves(machine: Machine) -> _Moves:
    states = machine.states
    sizes = np.bincount(machine.byte_class, minlength=machine.classes)
    only_byte = np.full(machine.classes, -1, np.int64)
    only_byte[machine.byte_class] = np.arange(256)
    only_byte[sizes != 1] = -1
    alive = machine.table >= 0
    forced = (alive @ sizes == 1) & (machine.exits < 0) & ~machine.accepting
    column = np.argmax(alive & (sizes > 0), axis=1)
    cell = np.where(forced, machine.table[np.arange(states), column], -1).astype(np.int64)
    byte = np.where(forced, only_byte[column], -1)

    source, klass = np.nonzero(alive & (sizes > 0))
    target = machine.table[source, klass].astype(np.int64)
    enters = target >= states
    target[enters] = machine.edge_target[target[enters] - states]
    landing = np.zeros(states, np.bool_)
    landing[machine.returns[machine.returns >= 0]] = True
    closed = landing.copy()
    closed[machine.start] = True
    before = np.full(states, -1, np.int64)
    before[target] = source
    plain = np.zeros(states, np.bool_)
    plain[target[~enters]] = True
    degree = np.bincount(target, minlength=states)
    inner = forced & (degree == 1) & plain & ~closed & (before >= 0) & forced[before]
    exits = range(machine.returns.shape[1]) if machine.sites else range(0)
    after_exit = {exit_: _live(machine, machine.returns[:, exit_]) for exit_ in exits}
    left = _left_bytes(states, source, target, only_byte[klass], closed)
    fresh = not degree[machine.start] and not bool(landing[machine.start])
    return _Moves(forced, cell, byte, inner, fresh, left, end_states(machine), after_exit)


def _live(machine: Machine, states: Iterable[int]) -> Live:
    """bool ``[256]``: bytes live at any of ``states``; -1 counts for none."""
    rows = np.fromiter((state for state in states if state >= 0), np.int64)
    classes: Live = np.asarray((machine.table[rows] >= 0).any(axis=0), np.bool_)
    return classes[machine.byte_class]


def _left_bytes(states: int, source: Int64, target: Int64, byte: Int64, closed: Live) -> npt.NDArray[np.int16]:
    """int16 ``[states, MAX_LEFT]``, see ``_Moves``. Column i is what all predecessors share in column i - 1; one pass over the moves each.

    States in ``closed`` (the start, returns) are entered otherwise too, so nothing is known of them.
    """
    left = np.full((states, MAX_LEFT), -1, np.int16)
    values = byte
    known = ~closed
    for column in range(MAX_LEFT):
        low, high = np.full(states, 256), np.full(states, -1)
        np.minimum.at(low, target, values)
        np.maximum.at(high, target, values)
        known &= (low == high) & (low >= 0)
        left[known, column] = low[known]
        kept = known[target]
        source, target = source[kept], target[kept]
        if not source.size:
            break
        values = left[source, column].astype(np.int64)
    return left


def _chains(machine: Machine, moves: _Moves) -> Iterator[_Chain]:
    """Chains that together give every forced state a place. A long one comes in parts that overlap; the later part knows more."""
    for head in np.flatnonzero(moves.forced & ~moves.inner).tolist():
        anchored = moves.fresh and head == machine.start
        left = b"" if anchored else _known_left(moves, head)
        while head >= 0:
            chain = _follow(machine, moves, head, left, anchored=anchored)
            yield chain
            head, place = (-1, 0) if chain.live is not None else chain.places[max(0, len(chain.places) - MAX_OVERLAP)]
            if place == 0:
                break
            left, anchored = _whole_characters(chain.text[max(0, place - MAX_OVERLAP):place]), False


def _follow(machine: Machine, moves: _Moves, head: int, left: bytes, *, anchored: bool) -> _Chain:
    """The chain from ``head``, at most MAX_CHAIN bytes of it."""
    text, places, state, inside = bytearray(), [(head, 0)], head, True
    stack: list[int] = []
    while moves.forced[state] and len(text) < MAX_CHAIN:
        cell = int(moves.cell[state])
        text.append(int(moves.byte[state]))
        if cell >= machine.states:
            stack += machine.pushes(cell - machine.states)
            state = int(machine.edge_target[cell - machine.states])
        else:
            state = cell
        while stack and moves.ends[state]:
            state = int(machine.returns[stack.pop(), machine.exits[state]])
        inside = inside and bool(moves.inner[state])
        if inside:
            places.append((state, len(text)))
    live = None if moves.forced[state] else _following(machine, moves, state, stack)
    return _Chain(left, bytes(text), places, anchored, live)


def _known_left(moves: _Moves, state: int) -> bytes:
    """u of the state, without a character's tail that it may start with."""
    row = moves.left[state]
    count = int(np.argmax(row < 0)) if bool((row < 0).any()) else len(row)
    return _whole_characters(bytes(row[:count][::-1].astype(np.uint8)))


def _whole_characters(left: bytes) -> bytes:
    """``left`` without the character's tail that it may start with."""
    return left.lstrip(bytes(range(0x80, 0xC0)))


def _following(machine: Machine, moves: _Moves, state: int, stack: list[int]) -> Live:
    """Bytes that may come after a chain that ended at ``state`` with ``stack`` open."""
    live = _live(machine, [state])
    exit_ = int(machine.exits[state])
    if exit_ >= 0 and stack:
        live = live | _live(machine, [int(machine.returns[stack[-1], exit_])])
    elif exit_ >= 0 and exit_ in moves.after_exit:
        live = live | moves.after_exit[exit_]
    return live


# -- splitting -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blocks:
    """Block boundaries of a text that hold after every left context: ``cuts``, from ``sure`` on no other boundary is possible."""

    cuts: tuple[int, ...]
    sure: int


class _Splitter:
    """Splits chains with one encoder. Memos are shared by the machines of a process: ``false`` and what may follow it is in most of them.

    What is kept depends on its key and the encoder alone, so threads may share a splitter.
    """

    def __init__(self, encoder: CanonicalEncoder) -> None:
        self._encoder = encoder
        self._agreed: dict[str, int | None] = {}
        self._found: dict[tuple[str, bool], _Blocks | None] = {}
        self._stable: dict[tuple[str, bytes, bool], bool] = {}
        self._cut_before: dict[tuple[str, str], bool] = {}
        self._whole: dict[tuple[str, bytes], bool] = {}
        self._firm: dict[tuple[bytes, bytes], tuple[int, ...]] = {}

    def is_full(self) -> bool:
        """Whether the memos are so large that it is time to start again."""
        memos: tuple[Sized, ...] = (self._agreed, self._found, self._stable, self._cut_before, self._whole, self._firm)
        return max(map(len, memos)) > _MOST_KEPT

    def split(self, chain: _Chain) -> Iterator[Planned]:
        """``(state, tokens, cover)`` of each of the chain's states that has either."""
        whole = chain.left + chain.text
        text, base = _decoded(whole, len(chain.left))
        if not text:
            return
        blocks = self._blocks(text, anchored=chain.anchored)
        if blocks is None:
            return
        stop = self._committed(text, blocks, chain, complete=base + len(text.encode()) == len(whole))
        offsets = _byte_offsets(text)
        cuts = [base + offsets[cut] for cut in blocks.cuts]
        whole = whole[:base + offsets[-1]]
        firm = self._stays_whole(text, blocks, chain) if len(whole) == base + offsets[-1] else None
        starts = {*cuts, *((0,) if chain.anchored else (base,) if self._encoder.begins_alone(text) else ())}
        yield from self._places(chain, whole, starts, base + offsets[blocks.sure], base + offsets[stop], firm, held=not text[-1].isspace())

    def _places(self, chain: _Chain, whole: bytes, starts: set[int], sure: int, stop: int, firm: bytes | None, *,
                held: bool) -> Iterator[Planned]:
        """Plans at the chain's places: the rest of a block, then whole blocks up to ``stop``. All offsets are into ``whole``.

        ``starts``: where blocks start; ``firm``: the bytes that may follow, if what lies behind ``stop`` is to be looked into; ``held``: it
        is one block, if anything.
        """
        end = len(whole)
        limits = sorted(start for start in starts if start <= stop)
        if stop == end:
            limits.append(end)
        for state, place in chain.places:
            here = len(chain.left) + place
            if here < sure or here >= end:
                continue
            first = self._encoder.encode if here in starts else self._encoder.encode_rest
            tokens = self._tokens(whole, here, [limit for limit in limits if limit > here], first)
            if firm is not None and stop < end:
                tokens = self._with_firm(tokens, whole, here, max(here, stop), firm)
            span = 0
            if held and not tokens and here >= stop and chain.live is not None and 1 < end - here < 256:
                span = end - here if len(first(whole[here:]) or ()) == 1 else 0
            if tokens or span:
                yield state, tokens, span

    def _tokens(self, whole: bytes, start: int, limits: list[int], encode: Encode) -> tuple[int, ...]:
        """Tokens of the pieces that end at ``limits``, the first by ``encode``; stops before one that has none, and after MAX_TOKENS."""
        tokens: list[int] = []
        for limit in limits:
            piece = encode(whole[start:limit])
            if piece is None or len(tokens) >= MAX_TOKENS:
                break
            tokens += piece
            start, encode = limit, self._encoder.encode
        return tuple(tokens)

    def _with_firm(self, tokens: tuple[int, ...], whole: bytes, here: int, start: int, live: bytes) -> tuple[int, ...]:
        """``tokens``, which spell ``whole`` from ``here`` up to ``start`` if they spell all of it, and the firm ones behind them."""
        room = MAX_TOKENS - len(tokens)
        if room <= 0 or self._encoder.length(tokens) != start - here:
            return tokens
        key = (whole[start:], live)
        if key not in self._firm:
            self._firm[key] = self._encoder.firm_tokens(*key)
        return tokens + self._firm[key][:room]

    def _stays_whole(self, text: str, blocks: _Blocks, chain: _Chain) -> bytes | None:
        """The bytes that may follow, if no character that they begin cuts the last block of ``text`` anew; None where one might."""
        last = blocks.cuts[-1] if blocks.cuts else 0
        tail, free = text[last:], not blocks.cuts and not chain.anchored
        if chain.live is None or free or not _STRUCTURE.issuperset(tail) or self._encoder.open_suffixes(text):
            return None
        live = bytes(np.flatnonzero(chain.live).tolist())
        key = (tail, live)
        if key not in self._whole:
            inner = [self._encoder.boundaries(tail + character) for character in _characters(chain.live)]
            self._whole[key] = all(cuts is not None and not any(cut < len(tail) for cut in cuts) for cuts in inner)
        return live if self._whole[key] else None

    def _blocks(self, text: str, *, anchored: bool) -> _Blocks | None:
        """The boundaries of ``text`` that every left context leaves in place."""
        key = (text, anchored)
        if key not in self._found:
            self._found[key] = self._find_blocks(text, anchored=anchored)
        return self._found[key]

    def _find_blocks(self, text: str, *, anchored: bool) -> _Blocks | None:
        found = self._encoder.boundaries(text)
        if found is None:
            return None
        cuts = tuple(cut for cut in found if cut <= len(text.rstrip()))  # what cuts a trailing run of spaces depends on what follows it
        if anchored:
            return _Blocks(cuts, 0)
        for number, cut in enumerate(cuts[:_TRIES]):
            sure = self._agreement(_with_lookahead(text, cut), cut)
            if sure is not None:
                return _Blocks(cuts[number:], sure)
        inside = [self._inner_cuts(context, text) for context in CONTEXTS]
        if any(places is None for places in inside):
            return None
        return _Blocks((), max(max(places or (), default=0) for places in inside))

    def _agreement(self, text: str, cut: int) -> int | None:
        """None unless every left context has a boundary at ``cut``; else the last place before it where any has one."""
        if text not in self._agreed:
            inside = [self._inner_cuts(context, text) for context in CONTEXTS]
            agreed = all(found is not None and cut in found for found in inside)
            before = [place for found in inside for place in found or () if place < cut]
            self._agreed[text] = max(before, default=0) if agreed else None
        return self._agreed[text]

    def _inner_cuts(self, context: str, text: str) -> list[int] | None:
        """Boundaries inside ``text`` when ``context`` stands in front of it."""
        cuts = self._encoder.boundaries(context + text)
        return None if cuts is None else [cut - len(context) for cut in cuts if cut > len(context)]

    def _committed(self, text: str, blocks: _Blocks, chain: _Chain, *, complete: bool) -> int:
        """Up to where the blocks of ``text`` may be committed."""
        last = blocks.cuts[-1] if blocks.cuts else 0
        if chain.live is None or not complete:
            return last
        allowed = chain.live
        opened = [start for start, following in self._encoder.open_suffixes(text) if allowed[following.encode()[0]]]
        if opened:
            return max((cut for cut in (0, *blocks.cuts) if cut <= min(opened)), default=0)
        free = not blocks.cuts and not chain.anchored  # the last block may reach into what stands left
        key = (text[last:], allowed.tobytes(), free)
        if key not in self._stable:
            self._stable[key] = self._is_stable(text[last:], allowed, CONTEXTS if free else ("",))
        return len(text) if self._stable[key] else last

    def _is_stable(self, tail: str, allowed: Live, contexts: tuple[str, ...]) -> bool:
        """The stable-tail test of Theorem 20(ii) on the last block."""
        if tail[-1].isspace():
            return False
        return all(self._cuts_between(context + tail, character) for context in contexts for character in _characters(allowed))

    def _cuts_between(self, tail: str, character: str) -> bool:
        key = (tail, character)
        if key not in self._cut_before:
            cuts = self._encoder.boundaries(tail + character)
            self._cut_before[key] = cuts is not None and len(tail) in cuts
        return self._cut_before[key]


@lru_cache(maxsize=MAX_ENCODERS)
def _splitter(encoder: CanonicalEncoder) -> _Splitter:
    """The splitter of ``encoder``, one for as long as both are kept."""
    return _Splitter(encoder)


def _characters(live: Live) -> list[str]:
    """Characters that stand for the live bytes: every ASCII one, and one of each class beyond where any other byte is live."""
    return [chr(byte) for byte in np.flatnonzero(live[:128]).tolist()] + list(_BEYOND_ASCII if live[128:].any() else "")


def _decoded(data: bytes, left: int) -> tuple[str, int]:
    """The longest valid text in ``data``, from its start or from the first character after ``left``; and the offset where it starts."""
    base = 0 if data[0] & 0xC0 != 0x80 else left
    while base < len(data) and data[base] & 0xC0 == 0x80:
        base += 1
    try:
        return data[base:].decode(), base
    except UnicodeDecodeError as error:
        return data[base:base + error.start].decode(), base


def _byte_offsets(text: str) -> list[int]:
    """Byte offset of every character, and of the end."""
    if text.isascii():
        return list(range(len(text) + 1))
    return [0, *np.cumsum([len(character.encode()) for character in text]).tolist()]


def _with_lookahead(text: str, cut: int) -> str:
    """``text`` up to a character behind ``cut`` that is no space: what decides whether ``cut`` is a boundary (Assumption 1)."""
    end = cut + 1
    while end < len(text) and text[end - 1].isspace():
        end += 1
    return text[:end]
