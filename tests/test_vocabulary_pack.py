"""Vocabulary packs against Python's own sort, a dictionary trie, and hashlib."""

from __future__ import annotations

import hashlib
import pickle
import struct
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.formats import FormatError, Vocabulary, VocabularyMismatch
from stcc.formats.container import Container, SectionData, pack
from stcc.formats.errors import ContentError, HeaderError, MagicError, SectionError, ShapeError
from stcc.formats.vocabulary import verify_vocabulary

ARRAYS = ("token_offsets", "token_bytes", "byte_order", "trie_parent", "trie_byte", "trie_levels", "token_node")
few_letters = st.text("ab\0\xff", max_size=6).map(lambda text: text.encode("latin1"))
token_lists = st.lists(st.binary(max_size=5) | few_letters, min_size=1, max_size=40)


def spelled_by_node(vocabulary: Vocabulary) -> list[bytes]:
    texts = [b""]
    for node in range(1, vocabulary.nodes):
        texts.append(texts[vocabulary.trie_parent[node]] + bytes([vocabulary.trie_byte[node]]))
    return texts


@settings(max_examples=150, deadline=None)
@given(token_lists, st.data())
def test_trie_order_and_levels_match_a_naive_construction(tokens: list[bytes], data: st.DataObject) -> None:
    stops = data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=3))
    vocabulary = Vocabulary.from_tokens(tokens, stops, size=len(tokens) + data.draw(st.integers(0, 3)))
    texts = [b"" if token in stops else text for token, text in enumerate(tokens)]
    order = sorted((token for token, text in enumerate(texts) if text), key=lambda token: (texts[token], token))
    prefixes = {text[:length] for text in texts for length in range(len(text) + 1)} | {b""}
    by_level = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
    assert vocabulary.byte_order.tolist() == order
    assert spelled_by_node(vocabulary) == by_level
    assert np.diff(vocabulary.trie_levels).tolist() == [sum(len(p) == d for p in prefixes) for d in range(max(map(len, prefixes)) + 1)]
    assert [by_level[node] for node in vocabulary.token_node] == [texts[token] for token in order]
    assert [vocabulary.token(token) for token in range(len(tokens))] == texts
    assert all(vocabulary.rank[token] == place for place, token in enumerate(order)) and (vocabulary.rank >= 0).sum() == len(order)
    assert not verify_vocabulary(vocabulary)


@settings(max_examples=40, deadline=None)
@given(token_lists)
def test_bytes_round_trip(tokens: list[bytes]) -> None:
    vocabulary = Vocabulary.from_tokens(tokens, [0], name="né", special={"</s>": 0}, tokenizer_json=b'{"a": 1}' * 50)
    data = vocabulary.to_bytes()
    again = Vocabulary.from_bytes(data)
    assert again.to_bytes() == data
    assert all(np.array_equal(getattr(again, name), getattr(vocabulary, name)) for name in ARRAYS)
    assert (again.name, again.special, again.stop_token_ids, again.size) == ("né", {"</s>": 0}, (0,), len(tokens))
    assert again.tokenizer_json == b'{"a": 1}' * 50


def test_fingerprint_is_the_one_that_the_specification_states() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"", b"\0b"], [1], size=4)
    text = b"stcc vocabulary 1\n" + struct.pack("<5i", 0, 1, 1, 3, 3) + b"a\0b" + struct.pack("<i", 1)
    assert vocabulary.fingerprint == hashlib.sha256(text).hexdigest()


def test_fingerprint_depends_on_what_decides_a_mask_and_on_nothing_else() -> None:
    base = Vocabulary.from_tokens([b"a", b"b", b""], [2])
    assert Vocabulary.from_tokens([b"a", b"b", b"stop"], [2], name="x", tokenizer_json=b"{}").fingerprint == base.fingerprint
    others = [([b"a", b"c", b""], [2], 3), ([b"a", b"b", b""], [2], 4), ([b"a", b"b", b""], [1], 3), ([b"ab", b"", b""], [2], 3),
              ([b"a", b"b", b""], [], 3)]
    prints = {Vocabulary.from_tokens(tokens, stops, size=size).fingerprint for tokens, stops, size in others}
    assert len(prints) == len(others) and base.fingerprint not in prints


def test_files_are_mapped_and_arrays_read_only(tmp_path) -> None:  # type: ignore[no-untyped-def]
    vocabulary = Vocabulary.from_tokens([b"ab", b"a", b""], [2])
    vocabulary.save(tmp_path / "v.stv")
    loaded = Vocabulary.load(tmp_path / "v.stv")
    assert loaded.fingerprint == vocabulary.fingerprint and loaded.tokenizer_json is None
    for name in ARRAYS:
        assert not getattr(loaded, name).flags.writeable and not getattr(vocabulary, name).flags.writeable
    with pytest.raises(MagicError, match="header"):
        Vocabulary.from_bytes(pack("stc", {}, []))


@pytest.mark.parametrize(("arguments", "message"), [
    (([b"a", b"b"], [], 1), "below the number"), (([b"a"], [1], None), "not all in"), (([b"a"], [-1], None), "not all in"),
])
def test_wrong_arguments(arguments, message) -> None:  # type: ignore[no-untyped-def]
    tokens, stops, size = arguments
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_tokens(tokens, stops, size=size)


def test_token_ids_out_of_range() -> None:
    vocabulary = Vocabulary.from_tokens([b"a"], [])
    for token in (-1, 1):
        with pytest.raises(IndexError):
            vocabulary.token(token)


def broken_packs() -> list[tuple[str, dict[str, object]]]:
    """A name, and arrays of a pack that is sound but for one thing."""
    good = Vocabulary.from_tokens([b"b", b"ab", b"a", b"", b"abc"], [3])

    def changed(name: str, place: int, value: int) -> dict[str, object]:
        array = getattr(good, name).copy()
        array[place] = value
        return {name: array}

    return [
        ("falling offsets", changed("token_offsets", 1, 5)), ("offsets past the bytes", changed("token_offsets", 5, 99)),
        ("negative offset", changed("token_offsets", 0, -1)), ("order out of range", changed("byte_order", 0, 5)),
        ("negative order", changed("byte_order", 0, -1)), ("order twice", changed("byte_order", 0, 0)),
        ("order of an unspelled token", changed("byte_order", 0, 3)), ("parent on its own level", changed("trie_parent", 4, 4)),
        ("parent out of range", changed("trie_parent", 3, 77)), ("negative parent", changed("trie_parent", 1, -1)),
        ("own parent missing", changed("trie_parent", 0, 1)), ("children twice", changed("trie_byte", 2, ord("a"))),
        ("levels past the nodes", changed("trie_levels", -1, 50)), ("falling levels", changed("trie_levels", 2, 1)),
        ("node out of range", changed("token_node", 0, 9)), ("node of another depth", changed("token_node", 0, 3)),
        ("node with another byte", changed("token_node", 0, 2)), ("other bytes", changed("token_bytes", 0, ord("c"))),
        ("short node list", {"token_node": good.token_node[:-1]}), ("short order", {"byte_order": good.byte_order[:-1]}),
        ("no levels", {"trie_levels": good.trie_levels[:1]}), ("stop that is spelled", {"stop_token_ids": (0,)}),
        ("another fingerprint", {"fingerprint": "0" * 64}), ("size too large", {"size": 6}),
    ]


@pytest.mark.parametrize(("what", "change"), broken_packs(), ids=[what for what, _ in broken_packs()])
def test_contents_out_of_range_are_refused_behind_right_checksums(what: str, change: dict[str, object]) -> None:
    good = Vocabulary.from_tokens([b"b", b"ab", b"a", b"", b"abc"], [3])
    data = replace(good, **change).to_bytes()  # type: ignore[arg-type]
    Container.parse(data)  # the container is sound
    with pytest.raises(ContentError):
        Vocabulary.from_bytes(data)


def test_headers_and_sections_are_checked() -> None:
    good = Vocabulary.from_tokens([b"b", b"a"], [])
    box = Container.parse(good.to_bytes())
    sections = [SectionData(name, getattr(good, name), compress=False) for name in ARRAYS]
    meta = dict(box.meta)
    changes = [{"more": 1}, {"size": True}, {"size": -1}, {"fingerprint": "x"}, {"stop_token_ids": [9]}, {"special": {"a": 5}},
               {"stop_token_ids": [1, 0]}, {"special": [1]}, {"name": b"x"}]
    for change in changes:
        with pytest.raises(HeaderError):
            Vocabulary.from_bytes(pack("stv", {**meta, **change}, sections))
    with pytest.raises(SectionError, match="token_bytes"):
        Vocabulary.from_bytes(pack("stv", meta, [section for section in sections if section.name != "token_bytes"]))
    with pytest.raises(SectionError, match="mystery"):
        Vocabulary.from_bytes(pack("stv", meta, [*sections, SectionData("mystery", good.token_bytes)]))
    assert Vocabulary.from_bytes(pack("stv", meta, [*sections, SectionData("mystery", good.token_bytes, required=False)])).size == 2
    with pytest.raises(ShapeError):
        Vocabulary.from_bytes(pack("stv", meta, [SectionData("token_bytes", good.token_offsets), *sections[:1], *sections[2:]]))


def test_mismatch_names_both_sides_and_survives_pickling() -> None:
    error = VocabularyMismatch("a.stc", (("1" * 64, "llama"),), ("2" * 64, "qwen"))
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, FormatError)
        assert all(part in str(one) for part in ("a.stc", "llama", "1" * 64, "qwen", "2" * 64))


def test_two_hundred_thousand_tokens_build_and_load_fast(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 117, 1_400_000, dtype=np.uint8).tobytes()
    bounds = np.concatenate(([0], np.cumsum(rng.integers(1, 12, 200_000)))).tolist()
    tokens = [letters[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]
    started = time.perf_counter()
    vocabulary = Vocabulary.from_tokens(tokens, [])
    assert time.perf_counter() - started < 3.0  # some 0.2 s on a quiet machine
    vocabulary.save(tmp_path / "v.stv")
    times = []
    for _ in range(9):
        started = time.perf_counter()
        Vocabulary.load(tmp_path / "v.stv")
        times.append(time.perf_counter() - started)
    assert min(times) < 0.06  # some 8 ms on a quiet machine
