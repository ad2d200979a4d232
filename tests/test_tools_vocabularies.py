"""Tags as single tokens: added tokens that carry text, special tokens that a format's artifact spells, and masks on real vocabularies."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from tool_cases import PARSERS, TOOLS, problems

from stcc.compiler import bind, compile_regex, compile_tools, vocabulary_from_tokenizer
from stcc.compiler.stepping import initial, run
from stcc.formats import Artifact, Vocabulary
from stcc.runtime import Grammar, load

TOKENIZERS = Path(__file__).parents[1].parent / "shared" / "tokenizers"
OUTPUTS = 5
TAGS = ("<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>", "<|start|>", "<|return|>")


def small(special: tuple[str, ...] = TAGS) -> Vocabulary:
    """Single bytes, a few words, the tags as special tokens, one stop token."""
    words = [bytes([byte]) for byte in range(256)] + [b"commentary", b" to=functions.", b"json", b"final", b"analysis", b"<|", b"|>"]
    tokens = [*words, *(b"" for _ in special), b""]
    return Vocabulary.from_tokens(tokens, [len(tokens) - 1], special={text: len(words) + place for place, text in enumerate(special)},
                                  name="small")


@functools.cache
def real(name: str) -> Vocabulary:
    folder = TOKENIZERS / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"the tokenizer of {name} is not at {folder}")
    return vocabulary_from_tokenizer(str(folder))


# ---- spelling special tokens


def test_spelling_changes_only_the_tokens_asked_for() -> None:
    plain = small()
    spelled = plain.spelling(["<|call|>", "<|end|>", "nothing"])
    assert spelled.token(plain.special["<|call|>"]) == b"<|call|>" and spelled.token(plain.special["<|start|>"]) == b""
    assert spelled.size == plain.size and spelled.stop_token_ids == plain.stop_token_ids and spelled.special == plain.special
    assert spelled.fingerprint != plain.fingerprint
    changed = {token for token in range(plain.size) if plain.token(token) != spelled.token(token)}
    assert changed == {plain.special["<|call|>"], plain.special["<|end|>"]}
    assert Vocabulary.from_bytes(spelled.to_bytes()).fingerprint == spelled.fingerprint


def test_spelling_is_done_once_and_only_where_there_is_something_to_spell() -> None:
    plain = small()
    assert plain.spelling(["<|call|>"]) is plain.spelling(["<|call|>"])
    assert plain.spelling(["nothing"]) is plain and plain.spelling([]) is plain
    spelled = plain.spelling(["<|call|>"])
    assert spelled.spelling(["<|call|>"]) is spelled
    stop = Vocabulary.from_tokens([b"a", b""], [1], special={"<|call|>": 1})
    assert stop.spelling(["<|call|>"]) is stop, "a stop token ends the output; it spells nothing"


def harmony_grammar(vocabulary: Vocabulary) -> Grammar:
    return load(compile_tools(TOOLS[:3], format="harmony", reasoning=True, vocabularies=[vocabulary]), vocabulary=vocabulary)


def test_special_tokens_of_a_format_are_used_as_single_tokens() -> None:
    vocabulary = small()
    matcher = harmony_grammar(vocabulary).matcher()
    special = vocabulary.special

    def words(text: bytes) -> None:
        assert all(matcher.accept_token(byte) for byte in text)

    assert matcher.accept_token(special["<|channel|>"])
    assert not matcher.fork().accept_token(special["<|message|>"])
    words(b"analysis")
    assert matcher.accept_token(special["<|message|>"])
    words(b"hm < |")
    assert not matcher.fork().accept_token(special["<|call|>"]), "no tag but its end stands in free text"
    assert [matcher.accept_token(special[tag]) for tag in ("<|end|>", "<|start|>")] == [True, True]
    words(b"assistant")
    assert matcher.accept_token(special["<|channel|>"])
    words(b"commentary to=functions.get_weather ")
    assert matcher.accept_token(special["<|constrain|>"])
    words(b"json")
    assert matcher.accept_token(special["<|message|>"])
    words(b'{"city": "Lyon')
    assert not matcher.fork().accept_token(special["<|end|>"]), "no tag stands in a value"
    words(b'"}')
    assert matcher.accept_token(special["<|call|>"]) and matcher.is_accepting()


def test_text_form_and_token_form_reach_the_same_place() -> None:
    vocabulary = small()
    grammar = harmony_grammar(vocabulary)
    token, text = grammar.matcher(), grammar.matcher()
    assert token.accept_token(vocabulary.special["<|channel|>"])
    assert all(text.accept_token(byte) for byte in b"<|channel|>")
    assert token.allowed_tokens().tolist() == text.allowed_tokens().tolist()


def test_a_call_tag_that_stops_the_output_need_not_be_spelled() -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b"", b""]
    vocabulary = Vocabulary.from_tokens(tokens, [256, 257], special={"<|call|>": 256, "<|channel|>": 257})
    grammar = load(compile_tools(TOOLS[:3], format="harmony", tool_choice="required", vocabularies=[vocabulary]), vocabulary=vocabulary)
    matcher = grammar.matcher()
    assert all(matcher.accept_token(byte) for byte in b'<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}')
    assert matcher.is_accepting() and matcher.accept_token(256) and matcher.is_terminated()


def test_a_bound_file_is_loaded_with_the_vocabulary_as_it_is(tmp_path: Path) -> None:
    vocabulary = small()
    compile_tools(TOOLS[:3], format="harmony", vocabularies=[vocabulary]).save(tmp_path / "t.stc")
    artifact = Artifact.load(tmp_path / "t.stc")
    assert load(artifact, vocabulary=vocabulary).matcher().accept_token(vocabulary.special["<|channel|>"])
    portable = artifact.without_bindings()
    assert load(portable, vocabulary=vocabulary).matcher().accept_token(vocabulary.special["<|channel|>"])
    assert bind(portable, vocabulary).fingerprints == artifact.fingerprints


def test_other_artifacts_read_the_plain_vocabulary() -> None:
    vocabulary = small()
    artifact = compile_regex(r"<\|call\|>", vocabularies=[vocabulary])
    assert artifact.fingerprints == (vocabulary.fingerprint,)
    assert not load(artifact, vocabulary=vocabulary).matcher().accept_token(vocabulary.special["<|call|>"])


# ---- real vocabularies


@functools.cache
def grammar(name: str, format: str) -> Grammar:
    vocabulary = real(name)
    return load(compile_tools(TOOLS, format=format, tool_choice="required", vocabularies=[vocabulary]), vocabulary=vocabulary, warm=False)


@pytest.mark.parametrize(("name", "format"), [("qwen3", "qwen3"), ("qwen3", "qwen3_coder"), ("gptoss", "harmony"), ("llama3", "llama3"),
                                              ("gemma3", "gemma")])
def test_random_tokens_make_calls_that_parse_and_validate(name: str, format: str) -> None:
    loaded, vocabulary, rng = grammar(name, format), real(name), np.random.default_rng(8)
    spelled = loaded.vocabulary
    assert spelled is not None
    finished = 0
    for _ in range(OUTPUTS):
        matcher, text = loaded.matcher(max_tokens=90), b""
        while not (matcher.is_accepting() and rng.random() < 0.5):
            allowed = matcher.allowed_tokens()
            allowed = allowed[~np.isin(allowed, vocabulary.stop_token_ids)]
            if not len(allowed):
                break
            token = int(rng.choice(allowed))
            assert matcher.accept_token(token)
            text += spelled.token(token)
        parsed = PARSERS[format](text.decode())
        assert parsed.calls and not any(map(problems, parsed.calls)), text
        finished += 1
    assert finished == OUTPUTS


@pytest.mark.parametrize(("name", "format", "begins"), [("qwen3", "qwen3", "<tool_call>"), ("gptoss", "harmony", "<|channel|>")])
def test_masks_are_those_of_reading_bytes(name: str, format: str, begins: str) -> None:
    loaded, rng = grammar(name, format), np.random.default_rng(9)
    vocabulary, machine = loaded.vocabulary, loaded.machine
    assert vocabulary is not None
    texts = {token: text for token in range(vocabulary.size) if (text := vocabulary.token(token))}
    tags = [token for token, text in texts.items() if text in (begins.encode(), b"</tool_call>", b"<|call|>", b"<|message|>")]
    assert tags
    matcher, configuration = loaded.matcher(), initial(machine)
    for _ in range(14):
        allowed = set(matcher.allowed_tokens().tolist()) - set(vocabulary.stop_token_ids)
        looked_at = {*rng.choice(list(texts), 1500).tolist(), *list(allowed)[:300], *tags}
        assert {token for token in looked_at if run(machine, texts[token], configuration) is not None} == looked_at & allowed
        if not allowed:
            break
        token = int(rng.choice(sorted(allowed)))
        assert matcher.accept_token(token)
        reached = run(machine, texts[token], configuration)
        assert reached is not None
        configuration = reached


@pytest.mark.parametrize(("name", "format", "begins"), [("qwen3", "qwen3", "<tool_call>"), ("gptoss", "harmony", "<|channel|>")])
def test_forced_text_uses_the_tag_token(name: str, format: str, begins: str) -> None:
    vocabulary = real(name)
    artifact = compile_tools(TOOLS[:2], format=format, tool_choice="required", parallel_tool_calls=False, vocabularies=[vocabulary])
    loaded = load(artifact, vocabulary=vocabulary)
    assert loaded.vocabulary is not None
    assert loaded.vocabulary.token(loaded.matcher().forced_tokens()[0]) == begins.encode()
