r"""The vocabulary pack: what stcc needs to know of one tokenizer, made once and shared by all grammars.

In goes each token's bytes (``Vocabulary.from_tokens``); out comes a trie stored level by level, the byte order of the tokens, and a
fingerprint. ``save`` writes a ``.stv`` whose arrays are stored plain, so that ``load`` maps the file, checks it and is done.

A token that carries no bytes (special, padding, stop) is never *spelled*: it is in no trie node and in no byte order.

    tokens 0 "b"  1 "ab"  2 "a"  3 ""            level 0: node 0 (root)
    byte_order  [2, 1, 0]                        level 1: node 1 "a", node 2 "b"
    token_node  [1, 3, 2]                        level 2: node 3 "ab"
    trie_parent [0, 0, 0, 1]   trie_byte [0, "a", "b", "b"]   trie_levels [0, 1, 3, 4]

Cost: building takes 0.2 s for 200,000 tokens; loading and checking a few milliseconds.

>>> v = Vocabulary.from_tokens([b"b", b"ab", b"a", b""], stop_token_ids=[3])
>>> v.byte_order.tolist(), v.trie_levels.tolist(), v.rank.tolist(), v.token(1)
([2, 1, 0], [0, 1, 3, 4], [2, 1, 0, -1], b'ab')
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from stcc.formats.container import Buffer, Container, SectionData, open_mapped, pack, write_atomic
from stcc.formats.errors import ContentError, HeaderError, MagicError, ShapeError
from stcc.formats.fingerprint import is_fingerprint, vocabulary_fingerprint

Int32 = npt.NDArray[np.int32]
Uint8 = npt.NDArray[np.uint8]

CONTENT = "stv"
_ARRAYS = {"token_offsets": "i32", "token_bytes": "u8", "byte_order": "i32", "trie_parent": "i32", "trie_byte": "u8", "trie_levels": "i32",
           "token_node": "i32"}
_TOKENIZER = "tokenizer_json"


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """One tokenizer's tokens. Arrays are read-only.

    Attributes:
        size: number of token ids, padding included.
        fingerprint: see ``stcc.formats.fingerprint``.
        stop_token_ids: rising; none of them is spelled.
        token_offsets: int32 ``[size + 1]`` into ``token_bytes``, by id.
        token_bytes: uint8, the tokens' bytes in id order.
        byte_order: int32 ``[spelled]``, ids of the spelled tokens sorted by their bytes, ties by id.
        trie_parent: int32 ``[nodes]``; the root, node 0, is its own parent.
        trie_byte: uint8 ``[nodes]``, the byte that leads to the node; 0 for the root.
        trie_levels: int32 ``[depth + 2]``, offset of each level's nodes; a level's nodes are in byte order.
        token_node: int32 ``[spelled]``, node of each spelled token, in byte order.
        name: what people call the tokenizer.
        special: special tokens' text -> id.
    """

    size: int
    fingerprint: str
    stop_token_ids: tuple[int, ...]
    token_offsets: Int32
    token_bytes: Uint8
    byte_order: Int32
    trie_parent: Int32
    trie_byte: Uint8
    trie_levels: Int32
    token_node: Int32
    name: str = ""
    special: Mapping[str, int] = field(default_factory=dict)
    _tokenizer: bytes | Container | None = field(default=None, repr=False)

    @staticmethod
    def from_tokens(tokens: Sequence[bytes], stop_token_ids: Iterable[int], *, size: int | None = None, tokenizer_json: bytes | None = None,
                    name: str = "", special: Mapping[str, int] | None = None) -> Vocabulary:
        """The vocabulary whose token ``i`` spells ``tokens[i]``.

        Args:
            tokens: bytes by id; empty for a token that spells nothing.
            stop_token_ids: ids that end the output; whatever bytes they have are dropped.
            size: number of ids, if more than ``tokens``; the rest is padding.
            tokenizer_json: the tokenizer's own file, kept for canonical splits at bind time.
            name: what people call it.
            special: special tokens' text -> id.

        Raises:
            ValueError: ``size`` is below the number of tokens, or a stop id is out of range.
        """
        total = len(tokens) if size is None else size
        stops = tuple(sorted(set(map(int, stop_token_ids))))
        if total < len(tokens):
            raise ValueError(f"size {total} is below the number of tokens, {len(tokens)}")
        if stops and not (stops[0] >= 0 and stops[-1] < total):
            raise ValueError(f"stop token ids {stops} are not all in 0..{total - 1}")
        spelled = list(tokens)
        for stop in stops:
            if stop < len(spelled):
                spelled[stop] = b""
        offsets = np.zeros(total + 1, np.int32)
        np.cumsum(np.fromiter(map(len, spelled), np.int32, len(spelled)), out=offsets[1:len(spelled) + 1])
        offsets[len(spelled) + 1:] = offsets[len(spelled)]
        data = np.frombuffer(b"".join(spelled), np.uint8)
        arrays = (offsets, data, *_build_trie(offsets, data))
        for array in arrays:
            array.flags.writeable = False
        return Vocabulary(total, vocabulary_fingerprint(offsets, data, stops), stops, *arrays, name=name, special=dict(special or {}),
                          _tokenizer=tokenizer_json)

    def token(self, token_id: int) -> bytes:
        """The bytes of token ``token_id``; empty if it spells none.

        Raises:
            IndexError: there is no such id.
        """
        if not 0 <= token_id < self.size:
            raise IndexError(f"token id {token_id} is not in 0..{self.size - 1}")
        return self.token_bytes[self.token_offsets[token_id]:self.token_offsets[token_id + 1]].tobytes()

    @cached_property
    def rank(self) -> Int32:
        """int32 ``[size]``: position of each id in ``byte_order``, -1 for a token that spells nothing."""
        rank = np.full(self.size, -1, np.int32)
        rank[self.byte_order] = np.arange(len(self.byte_order), dtype=np.int32)
        return rank

    @property
    def nodes(self) -> int:
        """Number of trie nodes, the root included."""
        return len(self.trie_parent)

    @cached_property
    def tokenizer_json(self) -> bytes | None:
        """The tokenizer's own file, inflated when first asked for; None if the pack has none.

        Raises:
            CodecError: the section is damaged.
        """
        if isinstance(self._tokenizer, Container):
            return bytes(self._tokenizer.raw(_TOKENIZER))
        return self._tokenizer

    def spelling(self, texts: Iterable[str]) -> Vocabulary:
        """The same tokens, with the special ones among ``texts`` spelled by their text; this object where there are none to spell.

        Stop tokens stay as they are. Equal calls give the same object; the first costs a new trie, some 0.2 s for 200,000 tokens.
        """
        silent = {text: token for text in texts if (token := self.special.get(text, -1)) >= 0 and token not in self.stop_token_ids
                  and self.token_offsets[token] == self.token_offsets[token + 1]}
        if not silent:
            return self
        known = _SPELLINGS.setdefault(self, {})
        key = tuple(sorted(silent))
        if key not in known:
            known[key] = _spelled(self, silent)
        return known[key]

    def to_bytes(self) -> bytes:
        """The ``.stv`` file; equal vocabularies give equal bytes."""
        meta = {"fingerprint": self.fingerprint, "name": self.name, "size": self.size, "special": dict(sorted(self.special.items())),
                "stop_token_ids": list(self.stop_token_ids)}
        sections = [SectionData(name, getattr(self, name), compress=False) for name in _ARRAYS]
        if self.tokenizer_json is not None:
            sections.append(SectionData(_TOKENIZER, np.frombuffer(self.tokenizer_json, np.uint8), required=False))
        return pack(CONTENT, meta, sections)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.stv`` file in one step.

        Raises:
            OSError: the folder cannot be written.
        """
        write_atomic(path, self.to_bytes())

    @staticmethod
    def from_bytes(data: Buffer, name: str = "<bytes>") -> Vocabulary:
        """The vocabulary in ``data``, checked as by ``load``; ``name`` is used in messages."""
        return _from_container(Container.parse(data, name))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Vocabulary:
        """Map a ``.stv`` file. Every index that a kernel may use is checked, and the fingerprint against the tokens.

        Raises:
            FormatError: the file breaks a promise of the format.
            OSError: it cannot be opened.
        """
        return _from_container(open_mapped(path))


_SPELLINGS: WeakKeyDictionary[Vocabulary, dict[tuple[str, ...], Vocabulary]] = WeakKeyDictionary()


def _spelled(vocabulary: Vocabulary, silent: Mapping[str, int]) -> Vocabulary:
    """``vocabulary`` with the tokens ``silent`` spelled by their text."""
    ends = vocabulary.token_offsets.tolist()
    data = vocabulary.token_bytes.tobytes()
    tokens = [data[low:high] for low, high in zip(ends, ends[1:], strict=False)]
    for text, token in silent.items():
        tokens[token] = text.encode("utf-8", "surrogatepass")
    return Vocabulary.from_tokens(tokens, vocabulary.stop_token_ids, name=vocabulary.name, special=vocabulary.special,
                                  tokenizer_json=_with_loose(vocabulary.tokenizer_json, silent))


def _with_loose(record: bytes | None, silent: Mapping[str, int]) -> bytes | None:
    """The encoder's record with ``silent`` among the tokens that are cut out of text first; None where it cannot be read."""
    try:
        document = json.loads(record) if record is not None else None
        if not isinstance(document, dict) or not {"loose", "outside"} <= document.keys():
            return None
        document["loose"] = sorted([*document["loose"], *([token, text] for text, token in silent.items())])
        document["outside"] = sorted({*document["outside"], *silent.values()})
    except (ValueError, TypeError):
        return None
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def _build_trie(offsets: Int32, data: Uint8) -> tuple[Int32, Int32, Uint8, Int32, Int32]:
    """``byte_order, trie_parent, trie_byte, trie_levels, token_node`` of the tokens. O(total bytes), level by level."""
    lengths = np.diff(offsets)
    alive = np.flatnonzero(lengths)
    node_of = np.zeros(len(lengths), np.int64)
    parents, labels, levels, depth = [np.zeros(1, np.int64)], [np.zeros(1, np.uint8)], [0, 1], 0
    while alive.size:
        keys = node_of[alive] * 256 + data[offsets[alive] + depth]
        order = np.argsort(keys, kind="stable")
        alive, keys = alive[order], keys[order]
        first = np.concatenate(([True], keys[1:] != keys[:-1]))
        node_of[alive] = levels[-1] + np.cumsum(first) - 1
        parents.append(keys[first] >> 8)
        labels.append((keys[first] & 255).astype(np.uint8))
        levels.append(levels[-1] + int(first.sum()))
        depth += 1
        alive = alive[lengths[alive] > depth]
    parent = np.concatenate(parents).astype(np.int32)
    order = _preorder(parent, levels)
    spelled = np.flatnonzero(lengths)
    byte_order = spelled[np.argsort(order[node_of[spelled]], kind="stable")].astype(np.int32)
    return byte_order, parent, np.concatenate(labels), np.array(levels, np.int32), node_of[byte_order].astype(np.int32)


def _preorder(parent: Int32, levels: Sequence[int]) -> npt.NDArray[np.int64]:
    """Preorder number of each node: rises with the byte string that the node spells."""
    sizes = np.ones(len(parent), np.int64)
    spans = list(zip(levels[:-2], levels[1:-1], levels[2:], strict=True))  # every level but the root's, and where the one above starts
    for above, low, high in reversed(spans):
        sizes[above:low] += np.bincount(parent[low:high] - above, weights=sizes[low:high], minlength=low - above).astype(np.int64)
    order = np.zeros(len(parent), np.int64)
    for _, low, high in spans:
        before = np.cumsum(sizes[low:high]) - sizes[low:high]  # sizes of the nodes before, on this level
        ahead = parent[low:high]
        oldest = np.searchsorted(ahead, ahead)  # first sibling; parents rise along a level
        order[low:high] = order[ahead] + 1 + before - before[oldest]
    return order


def _from_container(box: Container) -> Vocabulary:
    if box.content != CONTENT:
        raise MagicError(box.file, "header", f"the file holds {box.content!r:.40}, not a vocabulary pack")
    box.refuse_unknown([*_ARRAYS, _TOKENIZER])
    meta = _checked_meta(box)
    arrays = {name: box.array(name, dtype) for name, dtype in _ARRAYS.items()}
    tokenizer = box if _TOKENIZER in box.sections else None
    vocabulary = Vocabulary(meta["size"], meta["fingerprint"], tuple(meta["stop_token_ids"]), **arrays, name=meta["name"],
                            special=meta["special"], _tokenizer=tokenizer)
    broken = verify_vocabulary(vocabulary)
    if broken:
        raise ContentError(box.file, "vocabulary", broken[0])
    return vocabulary


def _checked_meta(box: Container) -> Mapping[str, Any]:
    meta = box.meta
    if meta.keys() != {"fingerprint", "name", "size", "special", "stop_token_ids"}:
        raise HeaderError(box.file, "header", "meta has the keys fingerprint, name, size, special and stop_token_ids")
    size, stops, special = meta["size"], meta["stop_token_ids"], meta["special"]
    if not is_fingerprint(meta["fingerprint"]) or type(meta["name"]) is not str or type(size) is not int or not 0 <= size < 1 << 31:
        raise HeaderError(box.file, "header", "fingerprint is a SHA-256, name a string and size a whole number")
    if not isinstance(stops, list) or not isinstance(special, dict):
        raise HeaderError(box.file, "header", "stop_token_ids is a list and special a map")
    if not all(type(token) is int and 0 <= token < size for token in [*stops, *special.values()]):
        raise HeaderError(box.file, "header", "stop and special token ids are in range")
    if sorted(set(stops)) != stops:
        raise HeaderError(box.file, "header", "stop token ids rise")
    if _TOKENIZER in box.sections and (box.sections[_TOKENIZER].dtype != "u8" or len(box.sections[_TOKENIZER].shape) != 1):
        raise ShapeError(box.file, f"section {_TOKENIZER}", "it holds bytes")
    return meta


def verify_vocabulary(vocabulary: Vocabulary) -> list[str]:
    """The first broken invariants, as one sentence each; empty when every index is in range and the fingerprint is right.

    Later checks index with what earlier ones passed, so each group runs only if the one before it holds. Whether the trie spells the tokens
    is checked in length and last byte.
    """
    for group in (_verify_tokens, _verify_order, _verify_trie, _verify_nodes, _verify_fingerprint):
        broken = [text for holds, text in group(vocabulary) if not holds]
        if broken:
            return broken
    return []


Checks = list[tuple[bool, str]]


def _verify_tokens(v: Vocabulary) -> Checks:
    offsets = v.token_offsets
    shaped = len(offsets) == v.size + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == len(v.token_bytes)
    return [(shaped and bool((offsets[1:] >= offsets[:-1]).all()), "token offsets rise from 0 to the number of bytes"),
            (shaped and all(offsets[stop] == offsets[stop + 1] for stop in v.stop_token_ids), "stop tokens spell nothing")]


def _verify_order(v: Vocabulary) -> Checks:
    order = v.byte_order
    spelled = v.token_offsets[1:] > v.token_offsets[:-1]
    if len(order) != np.count_nonzero(spelled) or not _within(order, v.size):
        return [(False, "the byte order lists ids, as many as are spelled")]
    seen = np.zeros(v.size, np.bool_)
    seen[order] = True
    return [(bool((seen == spelled).all()), "the byte order lists every spelled token once")]


def _verify_trie(v: Vocabulary) -> Checks:
    levels, parent, labels = v.trie_levels, v.trie_parent, v.trie_byte
    shaped = (len(levels) >= 2 and int(levels[0]) == 0 and int(levels[1]) == 1 and bool((levels[1:] > levels[:-1]).all())
              and int(levels[-1]) == len(parent) == len(labels) and int(parent[0]) == int(labels[0]) == 0)
    if not shaped:
        return [(False, "trie levels rise from the root to the number of nodes")]
    if len(parent) == 1:
        return []
    keys = parent[1:].astype(np.int64) * 256 + labels[1:]  # parents lie on the level above, and rise, so keys rise over all nodes
    first, last = levels[1:-1], levels[2:] - 1
    above = bool((parent[first] >= levels[:-2]).all() and (parent[last] < levels[1:-1]).all())
    return [(above and bool((keys[1:] > keys[:-1]).all()), "each trie level is in byte order under the level above")]


def _verify_nodes(v: Vocabulary) -> Checks:
    nodes, order = v.token_node, v.byte_order
    if len(nodes) != len(order) or not _within(nodes, len(v.trie_parent)):
        return [(False, "token nodes are trie nodes, one a spelled token")]
    depth = np.repeat(np.arange(len(v.trie_levels) - 1, dtype=np.int32), np.diff(v.trie_levels))
    ends = v.token_offsets[1:][order]
    return [(bool((depth[nodes] == ends - v.token_offsets[order]).all()), "a token's node is as deep as the token is long"),
            (bool((v.trie_byte[nodes] == v.token_bytes[ends - 1]).all()), "a token's node has its last byte")]


def _verify_fingerprint(v: Vocabulary) -> Checks:
    found = vocabulary_fingerprint(v.token_offsets, v.token_bytes, v.stop_token_ids)
    return [(found == v.fingerprint, "the fingerprint is that of the tokens")]


def _within(values: Int32, limit: int) -> bool:
    return values.size == 0 or (int(values.min()) >= 0 and int(values.max()) < limit)
