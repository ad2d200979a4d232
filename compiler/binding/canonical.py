"""Canonical splits: where a tokenizer cuts text into blocks, and how it encodes one block.

In: a vocabulary whose pack holds an encoder record. Out: a ``CanonicalEncoder`` with ``boundaries`` (the pre-tokenizer, π in the paper) and
``encode`` (the model on one block). Afterwards: the tokens of a text are the concatenation of its blocks' tokens. Cost: 10-40 ms to read
a record, once per vocabulary and process; then a few microseconds a block.

Blocks come from two sources, and both kinds of boundary may hold at once:

* The pre-tokenizer, run by the tokenizers library itself on an otherwise empty tokenizer.
* For models over characters (SentencePiece), which have no useful pre-tokenizer, the merges: where no merge joins a token ending in
  ``a`` to one starting with ``b``, no token ever spans ``ab``, so the model factors there, whatever stands around it. Gemma 3 knows
  33,760 such pairs; ``"n`` is not among them, ``":`` is.

Added tokens that spell text (``<think>``) are cut out first, leftmost and longest, and are blocks.

Text starts in the middle of a prompt: rules that put a space before a text (``Prepend``, ``add_prefix_space``) are switched off.
"""

from __future__ import annotations

import bisect
import itertools
import json
import zlib
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from stcc.compiler.binding.encoder_record import flat_steps, unpack_column
from stcc.formats.vocabulary import Vocabulary

Document = dict[str, Any]

# What may stand left of a text, for finding boundaries that do not depend on it: every class the pre-tokenizers tell apart, and runs whose
# length matters (digits are cut in threes, a space belongs to the word after it).
CONTEXTS = (
    "", "a", "A", "aB", "ab's", "'", "a'", "1", "11", "111", "a1", " ", "  ", "a ", "\t", "\n", "\r\n", "\n ", ".", ",", ":", '"',
    '","', "}", "\\", "/", "-", "_", " .", "<", "é", "中", "٣", "—", "\u00a0", "\u0301", "🙂",
)
MAX_ENCODERS = 4  # vocabularies whose encoders are kept


class CanonicalEncoder:
    """A tokenizer's blocks and their tokens. Pure after construction, but for memos."""

    def __init__(self, vocabulary: Vocabulary, record: Document) -> None:
        from tokenizers import Tokenizer

        document: Document = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": _mid_text(record["normalizer"]),
            "pre_tokenizer": _mid_text(record["pre_tokenizer"]), "post_processor": None, "decoder": None,
            "model": record["model"] or {"type": "BPE", "vocab": {}, "merges": []}}
        self._library = Tokenizer.from_str(json.dumps(document))
        self._normalizer, self._pre_tokenizer = self._library.normalizer, self._library.pre_tokenizer
        self._bytes = record["kind"] == "bytes"
        self._mark = self._space_mark(document)
        self._bigrams = None if self._bytes else _bigrams(record["bigrams"])
        self._loose = {text: number for number, text in record["loose"] if vocabulary.token(number)}
        self._loose_sorted = sorted(self._loose)
        self._alone: dict[str, bool] = {}
        self._loose_first = {text[0] for text in self._loose}
        self._loose_length = max(map(len, self._loose), default=0)
        self._model = _LibraryModel(self._library) if record["model"] else _MergeModel(vocabulary, record, self._mark)
        self._vocabulary = vocabulary
        self._late_apostrophe, self._late_capital = self._tentative_kinds()
        self._encoded: dict[tuple[bytes, bool], tuple[int, ...] | None] = {}

    def _space_mark(self, document: Document) -> str:
        """What the model reads for a space: U+2581 under SentencePiece."""
        for step in flat_steps(document["pre_tokenizer"]):
            if step.get("type") == "Metaspace":
                return str(step["replacement"])
        return str(self._normalizer.normalize_str(" ")) if self._normalizer is not None and not self._bytes else " "

    # -- blocks ----------------------------------------------------------------------------------------------------------

    def boundaries(self, text: str) -> tuple[int, ...] | None:
        """Offsets, in characters, rising, strictly inside ``text``, at which a block starts.

        None if the tokenizer rewrites the text before it cuts it (Unicode normalization), or drops parts of it. Boundaries at the end that
        more text could still remove are left out, where a tokenizer has such.
        """
        cuts = self._starts(text)
        while cuts and self._is_tentative(text, cuts[-1]):
            cuts.pop()
        return None if cuts is None else tuple(cuts)

    def _is_tentative(self, text: str, cut: int) -> bool:
        """Whether a block that ends at ``cut`` may yet swallow the one behind it: see ``_tentative_kinds``."""
        before, behind = text[cut - 1], text[cut]
        if self._late_apostrophe and behind == "'" and _is_wordlike(before):
            return True
        return self._late_capital and not before.isascii() and _is_wordlike(behind)

    def _tentative_kinds(self) -> tuple[bool, bool]:
        """Where the pre-tokenizer looks further ahead than one character: at apostrophes, at capitals behind caseless letters.

        o200k's does both: ``a'`` are two blocks, ``a's`` is one; ``A中B`` are two, ``A中Bm`` is one. Such a boundary counts once a
        firm one follows.
        """
        def vanishes(text: str, added: str, cut: int) -> bool:
            return cut in (self._starts(text) or ()) and cut not in (self._starts(text + added) or ())

        return vanishes("a'", "s", 1), vanishes("A中B", "m", 2)

    def _starts(self, text: str) -> list[int] | None:
        """Block starts strictly inside ``text`` as the tokenizer has them, rising."""
        cuts: list[int] = []
        place = 0
        for start, end in [*self._loose_spans(text), (len(text), len(text))]:
            inner = self._cuts(text[place:start]) if start > place else []
            if inner is None:
                return None
            cuts += [place, *(place + cut for cut in inner), start]
            place = end
        return [cut for cut in sorted(set(cuts)) if 0 < cut < len(text)]

    def open_suffixes(self, text: str) -> list[tuple[int, str]]:
        """Suffixes of ``text`` that an added token begins with: where each starts, and a character that would continue it."""
        if not self._loose_first.intersection(text[-self._loose_length:]):
            return []
        found = []
        for start in range(max(0, len(text) - self._loose_length + 1), len(text)):
            suffix = text[start:]
            place = bisect.bisect_right(self._loose_sorted, suffix)
            while place < len(self._loose_sorted) and self._loose_sorted[place].startswith(suffix):
                found.append((start, self._loose_sorted[place][len(suffix)]))
                place += 1
        return found

    def begins_alone(self, text: str) -> bool:
        """Whether ``text`` begins with an added token that is one whatever is written before it.

        Added tokens are looked for from left to right, so it is unless another one may begin before it and reach into it.
        """
        length = self._loose_at(text, 0) if text[:1] in self._loose_first else 0
        token = text[:length]
        if length and token not in self._alone:
            ends = (other[place:] for other in self._loose_sorted for place in range(1, len(other)))
            self._alone[token] = not any(token.startswith(end) or end.startswith(token) for end in ends)
        return length > 0 and self._alone[token]

    def _loose_spans(self, text: str) -> list[tuple[int, int]]:
        """Where added tokens stand in ``text``, leftmost and longest."""
        if self._loose_first.isdisjoint(text):
            return []
        spans, place = [], 0
        while place < len(text):
            length = self._loose_at(text, place) if text[place] in self._loose_first else 0
            if length:
                spans.append((place, place + length))
            place += length or 1
        return spans

    def _loose_at(self, text: str, place: int) -> int:
        longest = min(self._loose_length, len(text) - place)
        return next((length for length in range(longest, 0, -1) if text[place:place + length] in self._loose), 0)

    def _cuts(self, text: str) -> list[int] | None:
        """Block starts inside a text without added tokens."""
        marked = text if self._bytes else text.replace(" ", self._mark)
        if self._normalizer is not None:
            expected = marked if self._bytes or self._normalizer.normalize_str(" ") == self._mark else text
            if self._normalizer.normalize_str(text) != expected:
                return None
        cuts: list[int] = []
        if self._pre_tokenizer is not None:
            source = text if self._bytes else marked
            spans = [span for _, span in self._pre_tokenizer.pre_tokenize_str(source)]
            if not _tiles(spans, len(text)):
                return None
            cuts = [start for start, _ in spans[1:]]
        if self._bigrams is not None:
            cuts += [place for place in range(1, len(marked)) if marked[place - 1:place + 1] not in self._bigrams]
        return cuts

    # -- tokens ----------------------------------------------------------------------------------------------------------

    def tokens(self, text: str) -> tuple[int, ...] | None:
        """The tokenizer's tokens of a whole text; None if it would not spell it, or rewrites it."""
        cuts = self._starts(text)
        if cuts is None:
            return None
        found: list[int] = []
        for start, end in itertools.pairwise([0, *cuts, len(text)] if text else [0]):
            tokens = self.encode(text[start:end].encode())
            if tokens is None:
                return None
            found += tokens
        return tuple(found)

    def encode(self, piece: bytes) -> tuple[int, ...] | None:
        """The model's tokens for one block (any bytes); None unless they spell exactly ``piece``."""
        return self._encode(piece, True)

    def encode_rest(self, piece: bytes) -> tuple[int, ...] | None:
        """The tokens for what is left of a block behind a token, which may be all of it; None where that makes a difference.

        BPE never merges across a boundary between two of a block's tokens, so the rest of a canonical block, by itself, has the
        block's tokens. Only a model that looks whole blocks up first (``ignore_merges``) can tell the two apart.
        """
        tokens = self._encode(piece, True)
        return tokens if tokens == self._encode(piece, False) else None

    def length(self, tokens: tuple[int, ...]) -> int:
        """How many bytes tokens spell."""
        return sum(len(self._vocabulary.token(token)) for token in tokens)

    def firm_tokens(self, piece: bytes, live: bytes) -> tuple[int, ...]:
        """The leading tokens of ``piece`` that it keeps whatever its block goes on with, if that begins with one of the bytes ``live``.

        The piece must start at a boundary between two tokens of its block, and no block boundary may come to stand inside it.
        """
        return self._model.firm(piece, live)

    def _encode(self, piece: bytes, block: bool) -> tuple[int, ...] | None:
        key = (piece, block)
        if key not in self._encoded:
            text = piece.decode("utf-8", "replace")
            tokens = (self._loose[text],) if block and text in self._loose else self._model.encode(piece, block)
            spelled = tokens is not None and b"".join(map(self._vocabulary.token, tokens)) == piece
            self._encoded[key] = tokens if spelled else None
        return self._encoded[key]


def _is_wordlike(character: str) -> bool:
    """Letters, marks and what else words hold, generously."""
    return character.isalpha() or (not character.isascii() and not character.isspace())


def _tiles(spans: list[tuple[int, int]], length: int) -> bool:
    """Whether the spans cover a text of ``length`` without gap or overlap."""
    return [0, *(end for _, end in spans)] == [*(start for start, _ in spans), length]


def _mid_text(part: Document | None) -> Document | None:
    """A normalizer or pre-tokenizer as it acts in the middle of a text."""
    steps = []
    for step in flat_steps(part):
        if step["type"] == "ByteLevel":
            step = {**step, "add_prefix_space": False}
        elif step["type"] == "Metaspace":
            step = {**{key: value for key, value in step.items() if key != "add_prefix_space"}, "prepend_scheme": "never"}
        if step["type"] != "Prepend":
            steps.append(step)
    if len(steps) < 2:
        return steps[0] if steps else None
    assert part is not None
    key = next(key for key in ("normalizers", "pretokenizers") if key in part)
    return {"type": "Sequence", key: steps}


def _bigrams(columns: list[str]) -> frozenset[str]:
    first, second = (unpack_column(column) for column in columns)
    joined = np.stack([first, second], 1).astype("<u4").tobytes().decode("utf-32-le")
    return frozenset(joined[place:place + 2] for place in range(0, len(joined), 2))


class _LibraryModel:
    """A model that the record keeps whole (Unigram), run by the tokenizers library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def encode(self, piece: bytes, block: bool) -> tuple[int, ...] | None:
        """Tokens of a piece; Viterbi splits factor at token boundaries too, so a block and its rest are treated alike."""
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            return None
        source = text if self._library.normalizer is None else self._library.normalizer.normalize_str(text)
        spans = [(source, (0, 0))] if self._library.pre_tokenizer is None else self._library.pre_tokenizer.pre_tokenize_str(source)
        return tuple(token.id for part, _ in spans for token in self._library.model.tokenize(part))


    def firm(self, piece: bytes, live: bytes) -> tuple[int, ...]:
        """None: a token's probability decides over any distance."""
        return ()


class _MergeModel:
    """Byte-pair encoding from the record: repeatedly join the adjacent pair of least rank, the leftmost of equals."""

    def __init__(self, vocabulary: Vocabulary, record: Document, mark: str) -> None:
        left, right = (unpack_column(column) for column in record["merges"])
        keys = left << 24 | right
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._vocabulary, self._mark = vocabulary, mark
        self._bytes, self._whole = record["kind"] == "bytes", bool(record["ignore_merges"])
        self._alphabet: list[int] = record["alphabet"]
        self._outside = {*record["outside"], *(() if self._bytes else self._alphabet)}
        self._merges: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._ids: dict[bytes, int] = {}

    def encode(self, piece: bytes, block: bool) -> tuple[int, ...] | None:
        """Tokens of a piece; a whole block may be one token that no merges reach."""
        if self._whole and block:
            whole = self._find(piece)
            if whole >= 0:
                return (whole,)
        parts = [self._alphabet[byte] for byte in piece] if self._bytes else self._characters(piece)
        if min(parts, default=0) < 0:
            return None
        while True:
            best: tuple[int, int] | None = None
            place = 0
            for number, pair in enumerate(zip(parts, parts[1:], strict=False)):
                merge = self._merge(pair)
                if merge is not None and (best is None or merge[0] < best[0]):
                    best, place = merge, number
            if best is None:
                return tuple(parts)
            parts[place:place + 2] = [best[1]]

    def firm(self, piece: bytes, live: bytes) -> tuple[int, ...]:
        """The leading tokens of ``piece`` whose right boundaries no merge crosses, whatever follows that begins with a byte of ``live``.

        Suppose a token t is firm on its left. As long as nothing crosses its right boundary, its bytes are merged as if they stood alone.
        The first merge to cross it would join t's last part s so far with a part X behind it. If s is t itself, there must be no such
        merge. If not, the next merge of t alone has rank R(s) at most, the greatest rank up to the merge that uses s up; so it comes
        first if every merge of s with an X that can stand there has a greater rank.
        """
        tokens = self.encode(piece, False) if self._bytes else None
        if tokens is None or (self._whole and self._begins(piece, live)):
            return ()
        end = 0
        for number, token in enumerate(tokens):
            end += len(self._vocabulary.token(token))
            if any(self._crosses(part, rank, piece[end:], live) for part, rank in self._last_parts(token)):
                return tokens[:number]
        return tokens

    def _last_parts(self, token: int) -> list[tuple[int, int]]:
        """The last part of a token's bytes at every stage of their merging, with R of it; the token itself, with one above all ranks."""
        parts, greatest = [self._alphabet[byte] for byte in self._vocabulary.token(token)], -1
        stages = []
        while len(parts) > 1:
            pairs = [(merge[0], place, merge[1]) for place, pair in enumerate(itertools.pairwise(parts)) if (merge := self._merge(pair))]
            if not pairs:  # a token that merges do not reach
                return [(part, len(self._order)) for part in parts]
            rank, place, joined = min(pairs)
            greatest = max(greatest, rank)
            if place + 2 == len(parts):
                stages.append((parts[-1], greatest))
            parts[place:place + 2] = [joined]
        return [*stages, (parts[0], len(self._order))]

    def _crosses(self, part: int, rank: int, rest: bytes, live: bytes) -> bool:
        """Whether a merge of ``part`` with what may stand behind it, ``rest`` and then a byte of ``live``, has at most this rank."""
        low, high = np.searchsorted(self._keys, [part << 24, (part + 1) << 24])
        for place in range(int(low), int(high)):
            if int(self._order[place]) > rank:
                continue
            behind = self._vocabulary.token(int(self._keys[place]) & 0xFFFFFF)
            if rest.startswith(behind) or (behind.startswith(rest) and behind[len(rest)] in live):
                return True
        return False

    def _begins(self, piece: bytes, live: bytes) -> bool:
        """Whether some token is ``piece`` and a byte of ``live``, or goes on behind that."""
        order, token = self._vocabulary.byte_order, self._vocabulary.token
        for byte in live:
            longer = piece + bytes([byte])
            place = bisect.bisect_left(range(len(order)), longer, key=lambda rank: token(int(order[rank])))
            if place < len(order) and token(int(order[place])).startswith(longer):
                return True
        return False

    def _characters(self, piece: bytes) -> list[int]:
        """Tokens of single characters; those of the bytes where a character has none or is incomplete."""
        parts: list[int] = []
        for character in piece.decode("utf-8", "surrogateescape"):
            spelled = character.encode("utf-8", "surrogateescape")
            number = self._find(spelled) if character < "\ud800" or character > "\udfff" else -1
            parts += [number] if number >= 0 else [self._alphabet[byte] for byte in spelled]
        return parts

    def _merge(self, pair: tuple[int, int]) -> tuple[int, int] | None:
        """Rank and result of joining two tokens, None where no merge does."""
        if pair not in self._merges:
            key = pair[0] << 24 | pair[1]
            place = int(np.searchsorted(self._keys, key))
            found = place < len(self._keys) and int(self._keys[place]) == key
            joined = self._find(self._vocabulary.token(pair[0]) + self._vocabulary.token(pair[1])) if found else -1
            self._merges[pair] = (int(self._order[place]), joined) if joined >= 0 else None
        return self._merges[pair]

    def _find(self, spelled: bytes) -> int:
        """The model's token that spells these bytes, -1 if there is none; bytes of the byte fallback and added tokens do not count."""
        if spelled not in self._ids:
            order = self._vocabulary.byte_order
            place = bisect.bisect_left(range(len(order)), spelled, key=lambda rank: self._vocabulary.token(int(order[rank])))
            number = -1
            while number < 0 and place < len(order) and self._vocabulary.token(int(order[place])) == spelled:
                number = int(order[place]) if int(order[place]) not in self._outside else -1
                place += 1
            self._ids[spelled] = number
        return self._ids[spelled]


_encoders: dict[tuple[str, int], CanonicalEncoder] = {}
_checksums: WeakKeyDictionary[Vocabulary, int] = WeakKeyDictionary()  # of records, which take a millisecond to read


def canonical_encoder(vocabulary: Vocabulary) -> CanonicalEncoder | None:
    """The encoder of ``vocabulary``, kept per process; None if its pack holds no record of one (or one of a later format)."""
    data = vocabulary.tokenizer_json
    if data is None:
        return None
    checksum = _checksums.get(vocabulary)
    if checksum is None:
        checksum = _checksums[vocabulary] = zlib.crc32(data)
    key = (vocabulary.fingerprint, checksum)
    if key not in _encoders:
        record = json.loads(data)
        if not isinstance(record, dict) or record.get("record") != 1:
            return None
        while len(_encoders) >= MAX_ENCODERS:
            del _encoders[next(iter(_encoders))]
        _encoders[key] = CanonicalEncoder(vocabulary, record)
    return _encoders[key]
