"""Tokenizers that tests share: two trained here, and the real ones that may lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SHARED = Path(__file__).resolve().parents[2] / "shared" / "tokenizers"
REAL = ("qwen3", "llama3", "gemma3", "gptoss")
TEXTS = (
    '{"name":"Ada","tags":["a","b"],"n":-1.5e+10,"ok":true}', "hello world", "  two  spaces   three", "tabs\tand\nlines\r\n\r\nend",
    "naïve café — “quotes”", "日本語テキスト、中文和한국어", "emoji 🙂 👩‍👩‍👧‍👦 🇩🇪", "I'm you're they'LL", "1234567890 3.14159",
    "a\u0300\u0301 combining",
    "\\n\\\"escaped\\u00e9", "<html><b>x</b></html>", "camelCaseAndSNAKE_CASE", "\u200bzero\u00a0width",
    "مرحبا بالعالم", "x" * 50, "{[()]}" * 5,
    '{"a": {"b": [1, 2, {"c": null}]}}', "trailing space ", "\U0001f9ff\u2603", "ſpecial ﬁ ligature", "\x01\x02control\x7f",
)
CORPUS = [*TEXTS, *(f'{{"field_{i}":"value {i}","name":"N{i}","list":[{i},{i + 1}]}}' for i in range(200)), "the quick brown fox's " * 20]
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                              special_tokens=["<|endoftext|>", "<|im_end|>"], show_progress=False))
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


def sentence_piece_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer, trained.pre_tokenizer = tokenizer.normalizer, pre_tokenizers.Metaspace(prepend_scheme="never")
    trained.train_from_iterator([text for text in CORPUS if text.isascii()], trainers.BpeTrainer(
        vocab_size=500, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)], show_progress=False))
    model = json.loads(trained.to_str())["model"]
    document = json.loads(tokenizer.to_str())
    document["model"] |= {"vocab": model["vocab"], "merges": model["merges"]}
    document["added_tokens"] = [{"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                 "special": True} for number, text in enumerate(special)]
    return Tokenizer.from_str(json.dumps(document))


TRAINED = {"byte-level": byte_level_bpe(), "sentencepiece": sentence_piece_bpe()}
