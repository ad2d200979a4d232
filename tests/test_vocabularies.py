"""Vocabularies against the tokenizers themselves: what the tokens of a text spell, sizes, stop tokens, sources and errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import REAL, SHARED, TEXTS, TRAINED
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from stcc.compiler.binding.encoder_record import byte_alphabet, encoder_record, pack_column, unpack_column
from stcc.compiler.errors import SourceError, UnsupportedError
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Vocabulary


def spelled(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(vocabulary.token(number) for number in ids)


def written(tokenizer: Tokenizer, text: str) -> str:
    """What the tokenizer makes of ``text`` before it splits it."""
    return tokenizer.normalizer.normalize_str(text).replace("▁", " ") if tokenizer.normalizer else text


@pytest.mark.parametrize("kind", TRAINED)
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30)))
def test_tokens_of_a_text_spell_it(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    vocabulary = vocabulary_from_tokenizer(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert spelled(vocabulary, ids) == written(tokenizer, text).encode()
    assert tokenizer.decode(ids).encode() == spelled(vocabulary, ids).removeprefix(b" " if kind == "sentencepiece" else b"")


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest) -> tuple[str, Tokenizer, Vocabulary]:
    folder = SHARED / request.param
    if not folder.is_dir():
        pytest.skip("the real tokenizers are not beside the repository")
    return request.param, Tokenizer.from_file(str(folder / "tokenizer.json")), vocabulary_from_tokenizer(folder)


def test_real_tokens_spell_their_texts(real: tuple[str, Tokenizer, Vocabulary]) -> None:
    _, tokenizer, vocabulary = real
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert spelled(vocabulary, ids) == written(tokenizer, text).encode()
        assert tokenizer.decode(ids).encode() == spelled(vocabulary, ids)


def test_real_vocabularies_decode_token_by_token(real: tuple[str, Tokenizer, Vocabulary]) -> None:
    _, tokenizer, vocabulary = real
    numbers = np.random.default_rng(1).choice(vocabulary.size, 3000, replace=False).tolist()
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for number in numbers:
        text = tokenizer.decode([number], skip_special_tokens=False)
        if number in special or number in vocabulary.stop_token_ids:
            assert vocabulary.token(number) == b""
        elif "\ufffd" not in text:
            assert vocabulary.token(number) == text.encode()


def test_real_stop_tokens(real: tuple[str, Tokenizer, Vocabulary]) -> None:
    name, tokenizer, vocabulary = real
    expected = {"qwen3": ["<|im_end|>"], "llama3": ["<|end_of_text|>", "<|eot_id|>"], "gemma3": ["<end_of_turn>"], "gptoss": ["<|return|>"]}
    assert [tokenizer.id_to_token(number) for number in vocabulary.stop_token_ids] == expected[name]


def test_every_single_byte_is_a_token(real: tuple[str, Tokenizer, Vocabulary]) -> None:
    _, _, vocabulary = real
    lengths = np.diff(vocabulary.token_offsets)
    assert len(set(vocabulary.token_bytes[vocabulary.token_offsets[:-1][lengths == 1]].tolist())) >= 243  # bytes that UTF-8 uses


def write_folder(folder: Path, **files: object) -> Path:
    (folder / "tokenizer.json").write_text(TRAINED["byte-level"].to_str())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_folder_declares_stop_tokens_and_width(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, config={"text_config": {"vocab_size": 700}, "eos_token_id": 5}, generation_config={"eos_token_id": [0]},
                          tokenizer_config={"eos_token": {"content": "<|endoftext|>"}, "chat_template": "{{ m }}<|im_end|>"})
    vocabulary = vocabulary_from_tokenizer(folder)
    assert vocabulary.stop_token_ids == (0, 1)
    assert vocabulary.size == 700
    assert vocabulary.token(699) == vocabulary.token(0) == b""
    assert vocabulary_from_tokenizer(folder / "tokenizer.json").fingerprint == vocabulary.fingerprint
    assert vocabulary.special == {"<|endoftext|>": 0, "<|im_end|>": 1}


def test_stop_tokens_and_size_given() -> None:
    tokenizer = TRAINED["byte-level"]
    vocabulary = vocabulary_from_tokenizer(tokenizer, stop_tokens=["<think>", 1], size=1000)
    assert vocabulary.stop_token_ids == (1, tokenizer.token_to_id("<think>"))
    assert vocabulary.token(tokenizer.token_to_id("<think>")) == b""
    assert vocabulary.size == 1000
    assert vocabulary_from_tokenizer(tokenizer, stop_tokens=[]).stop_token_ids == ()


def test_added_tokens_that_are_not_special_spell_their_text() -> None:
    tokenizer = TRAINED["byte-level"]
    assert vocabulary_from_tokenizer(tokenizer).token(tokenizer.token_to_id("<think>")) == b"<think>"


def test_transformers_and_wrapped_tokenizers() -> None:
    transformers = pytest.importorskip("transformers")
    loaded = transformers.PreTrainedTokenizerFast(tokenizer_object=TRAINED["byte-level"], eos_token="<|im_end|>")
    vocabulary = vocabulary_from_tokenizer(loaded)
    assert vocabulary.stop_token_ids == (1,)

    class Wrapper:  # mlx-lm's TokenizerWrapper: forwards what it does not have, and keeps a set of stop ids
        eos_token_ids = frozenset({0, 1})

        def __getattr__(self, name: str) -> object:
            return getattr(loaded, name)

    wrapped = vocabulary_from_tokenizer(Wrapper())
    assert wrapped.stop_token_ids == (0, 1)
    assert np.array_equal(wrapped.token_bytes, vocabulary_from_tokenizer(TRAINED["byte-level"], stop_tokens=[0, 1]).token_bytes)


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def test_sources_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    for source in (tmp_path / "broken.json", tmp_path / "other.json", tmp_path, tmp_path / "absent.json", "no such/file/name", object()):
        with pytest.raises(SourceError) as caught:
            vocabulary_from_tokenizer(source)
        assert caught.value.hint
    with pytest.raises(UnsupportedError, match="different bytes"):
        vocabulary_from_tokenizer(word_piece(), stop_tokens=[])
    with pytest.raises(SourceError, match="not in the vocabulary"):
        vocabulary_from_tokenizer(TRAINED["byte-level"], stop_tokens=["<nope>"])
    with pytest.raises(SourceError, match="cuts off"):
        vocabulary_from_tokenizer(TRAINED["byte-level"], size=100)
    with pytest.raises(SourceError, match="no stop token"):
        vocabulary_from_tokenizer(_without_stops())


def _without_stops() -> Tokenizer:
    document = json.loads(TRAINED["byte-level"].to_str())
    document["added_tokens"] = []
    document["model"]["vocab"] = {text.replace("<|endoftext|>", "<|x|>"): number for text, number in document["model"]["vocab"].items()}
    return Tokenizer.from_str(json.dumps(document))


def test_a_hub_name_is_looked_up_in_the_cache_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def snapshot_download(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append((name, local_files_only))
        if local_files_only:
            raise OSError("not in the cache")
        return str(write_folder(tmp_path))

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    vocabulary = vocabulary_from_tokenizer("some-org/some-model")
    assert asked == [("some-org/some-model", True), ("some-org/some-model", False)]
    assert vocabulary.name == "some-org/some-model"


def test_the_byte_alphabet_is_the_library_s() -> None:
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    for character, byte in byte_alphabet().items():
        if byte < 0x80:
            assert decoders.ByteLevel().decode([character]) == chr(byte)
    assert sorted(byte_alphabet().values()) == list(range(256))


@given(st.lists(st.integers(0, (1 << 24) - 1), max_size=50))
def test_columns_round_trip(values: list[int]) -> None:
    assert unpack_column(pack_column(np.array(values, np.int64))).tolist() == values


def test_models_whose_splits_are_not_kept_have_no_record() -> None:
    document = json.loads(TRAINED["byte-level"].to_str())
    assert encoder_record(document, [])
    document["model"]["dropout"] = 0.1
    assert encoder_record(document, []) is None
