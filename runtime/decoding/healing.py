"""Boundaries that a tokenizer would merge across, opened again.

In: the tokenizer's ``encode`` and the vocabulary. A prompt that ends in ``{"`` and a grammar that goes on with ``name`` meet in the middle
of what the tokenizer spells as one token, and so do a sampled ``"`` and the ``,"age":`` that it forces: the model sees a split that it was
not trained on. Healing spells the token before the boundary and the forced text after it as the tokenizer would, before either is fed, so
that no cache is taken back; the token before the boundary is given up for one that spans it.

``respelled`` depends on the machine and the tokenizer alone, never on the model: healing is one more segmentation policy, and Theorem 19
holds for it. It changes nothing unless the tokenizer's own split crosses the boundary, spells exactly the same bytes, takes no more
tokens (so that a token budget still holds), and stays the same whatever allowed byte comes next (the one-byte test of Theorem 20).

Where a grammar forces nothing after the prompt, its last token is opened again by a mask: ``extensions`` are the tokens that begin with its
bytes and go on with what the grammar allows, and the model chooses among them and the token itself.

Cost: an encoding of a few bytes per allowed next byte for each (token, forced text) met, remembered; ``extensions`` two binary searches and
a few bytes through the machine per token in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from stcc.formats import Vocabulary

if TYPE_CHECKING:
    from stcc.runtime.matcher import Matcher

Encode = Callable[[str], Sequence[int]]
"""Text to token ids, with no special tokens added."""
MOST_REMEMBERED = 4096
_LATIN, _CJK, _HANGUL, _DEVANAGARI, _EMOJI = b"\xa9", b"\x9d\xa0", b"\x95\x9c", b"\xa4\x85", b"\x9f\x98\x80"


class Healing:
    """Spells boundaries as the tokenizer would; see the module's text. Shared by the outputs of a model."""

    def __init__(self, encode: Encode, vocabulary: Vocabulary) -> None:
        """``encode`` must be the encoder of the tokenizer that ``vocabulary`` was prepared from; what it spells otherwise is not used."""
        self._encode, self._vocabulary = encode, vocabulary
        self.respelled = lru_cache(MOST_REMEMBERED)(self._respelled)

    def _respelled(self, token: int, forced: tuple[int, ...], live: bytes) -> tuple[int, ...] | None:
        """The tokenizer's own spelling of ``token`` and the forced tokens after it, if it merges across the boundary between them.

        Args:
            token: the token before the boundary.
            forced: the tokens after it.
            live: the bytes that may follow them.
        """
        before = self._vocabulary.token(token)
        text = before + b"".join(map(self._vocabulary.token, forced))
        tokens = self._spelling(text)
        if not before or tokens is None or not len(tokens) <= len(forced) + 1:
            return None
        ends, spelled = set(), 0
        for piece in tokens:
            spelled += len(self._vocabulary.token(piece))
            ends.add(spelled)
        if len(before) in ends:
            return None
        for byte in live:
            longer = self._spelling(text + character(byte))
            if longer is None or longer[:len(tokens)] != tokens:
                return None
        return tokens

    def extensions(self, token: int, matcher: Matcher) -> dict[int, bytes]:
        """The tokens that begin with the bytes of ``token`` and go on with what ``matcher`` allows: token -> the bytes that go on."""
        text, vocabulary = self._vocabulary.token(token), self._vocabulary
        found: dict[int, bytes] = {}
        if not text:
            return found
        order = matcher.grammar.masks.sets.byte_order
        place = bisect_left(order, text, key=vocabulary.token)
        while place < len(order):
            candidate = int(order[place])
            spelled = vocabulary.token(candidate)
            if not spelled.startswith(text):
                break
            more = spelled[len(text):]
            read, fits = _allowed_bytes(matcher, more)
            if more and fits:
                found[candidate] = more
            if read == len(more):
                place += 1
            else:  # no token that begins likewise can be allowed
                place = bisect_left(order, _past(spelled[:len(text) + read + 1]), place, key=vocabulary.token)
        return found

    def _spelling(self, text: bytes) -> tuple[int, ...] | None:
        """The tokenizer's tokens for ``text``; None if it is not UTF-8 or they do not spell it."""
        try:
            tokens = tuple(int(token) for token in self._encode(text.decode("utf-8")))
        except UnicodeDecodeError:
            return None
        size = self._vocabulary.size
        if not tokens or not all(0 <= token < size for token in tokens) or b"".join(map(self._vocabulary.token, tokens)) != text:
            return None
        return tokens


def _allowed_bytes(matcher: Matcher, text: bytes) -> tuple[int, bool]:
    """How many bytes of ``text`` the grammar allows in a row, and whether it allows all and a valid ending then fits the budget."""
    grammar, (state, level) = matcher.grammar, matcher.configuration()
    for count, byte in enumerate(text):
        following = grammar.stacks.step(state, level, byte)
        if following is None:
            return count, False
        state, level = following
    left = matcher.tokens_left
    return len(text), left is None or grammar.needs.need(state, level) <= left


def _past(prefix: bytes) -> bytes:
    """The least bytes above all that begin with ``prefix``; the prefix holds no trailing 255, which UTF-8 never has."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix[-1] < 255 else prefix + b"\xff" * 256


def character(byte: int) -> bytes:
    """A character's UTF-8 whose first byte is ``byte``; the byte itself where no character begins with it."""
    if byte < 0x80:
        return bytes([byte])
    if 0xC2 <= byte <= 0xDF:
        return bytes([byte]) + _LATIN
    if 0xE0 <= byte <= 0xEF:
        return bytes([byte]) + {0xE0: _DEVANAGARI, 0xED: _HANGUL}.get(byte, _CJK)
    if 0xF0 <= byte <= 0xF4:
        return bytes([byte]) + (_EMOJI if byte == 0xF0 else b"\x80\x80\x80")
    return bytes([byte])
