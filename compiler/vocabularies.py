"""Vocabularies from tokenizers: the exact bytes of every token, and which tokens stop the output.

In: a ``tokenizer.json`` or its folder, a hub name, or a loaded tokenizer. Out: a ``stcc.formats.Vocabulary``. Afterwards: decoding the
tokens of a text anywhere but at its very start gives the concatenation of their bytes; special tokens, stop tokens and padding carry none.
Cost: parsing the JSON dominates (0.1-1 s for 11-33 MB); no tokenizer is built, all byte recovery is array work or one pass over strings.

What a token spells is what the tokenizer's *decoder* makes of it, of which three families exist:

    byte level      each character stands for one byte (GPT-2's table); what lies outside the table stands for itself
    SentencePiece   ``Replace``/``Metaspace`` turn the mark U+2581 into a space; ``<0xNN>`` is a byte where ``ByteFallback`` is on
    anything else   refused: a WordPiece token, say, spells different bytes in different places

A leading-space rule (``Strip`` after ``Fuse``, ``Prepend``) touches the start of a text only and is left out: constrained output continues
a prompt. Non-special added tokens carry their text.

Stop tokens: ``eos_token_id`` of generation_config.json, else of config.json; the tokenizer's own ``eos_token``; and the end-of-turn
marks that the chat template writes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.encoder_record import byte_alphabet, encoder_record, flat_steps, is_byte_level
from stcc.compiler.errors import CompileError, SourceError, UnsupportedError
from stcc.formats.vocabulary import Vocabulary

Document = dict[str, Any]

MOST_TOKENS = 1 << 24
"""Most token ids taken, padding included: many times any model's."""
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|endofturn|>", "<turn|>")
_TEXT_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")  # only where nothing else is declared
_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?\Z")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def vocabulary_from_tokenizer(source: Any, *, size: int | None = None, stop_tokens: Iterable[int | str] | None = None) -> Vocabulary:
    """The vocabulary of ``source``.

    Args:
        source: path of a tokenizer.json or of its folder, a hub name (the Hugging Face cache, then the network), a
            ``tokenizers.Tokenizer``, a fast transformers tokenizer, or mlx-lm's TokenizerWrapper.
        size: width of the model's logits; default the larger of the tokenizer's and config.json's ``vocab_size``.
        stop_tokens: ids or texts, in place of those the configuration declares.

    Raises:
        SourceError: no tokenizer there, a broken one, an unknown stop token, or a size that cuts off tokens with text.
        UnsupportedError: tokens whose bytes depend on where they stand.
    """
    tokenizer = _read(source)
    try:
        return _vocabulary(tokenizer, size, stop_tokens)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        if isinstance(error, CompileError):
            raise
        raise SourceError(f"not a tokenizer that the tokenizers library would read: {type(error).__name__}: {error}",
                          source=tokenizer.name or "<tokenizer>", hint="check that the download is complete") from error


def _vocabulary(tokenizer: _Tokenizer, size: int | None, stop_tokens: Iterable[int | str] | None) -> Vocabulary:
    texts, spelled = _token_texts(tokenizer)
    tokens = _token_bytes(tokenizer, texts, spelled)
    stops = _stop_ids(tokenizer, texts, stop_tokens)
    width = _width(tokenizer, tokens, size)
    stops = [token for token in stops if token < width]
    for token in stops:
        tokens[token] = b""
    record = encoder_record(tokenizer.document, [(token, texts[token]) for token in _loose_ids(tokenizer) if token not in stops])
    return Vocabulary.from_tokens(tokens[:width], stops, size=width, tokenizer_json=record, name=tokenizer.name,
                                  special=_special(tokenizer, width))


# -- reading ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Tokenizer:
    """What a source says: tokenizer.json, and what stands beside it. ``stops`` are ids a loaded tokenizer names itself."""

    document: Document
    config: Document = field(default_factory=dict)
    generation: Document = field(default_factory=dict)
    model: Document = field(default_factory=dict)
    chat_template: str = ""
    stops: tuple[int, ...] = ()
    name: str = ""

    @property
    def added(self) -> list[Document]:
        """Added tokens of tokenizer.json, then those only tokenizer_config.json knows."""
        listed = list(self.document.get("added_tokens") or [])
        known = {int(entry["id"]) for entry in listed}
        further = self.config.get("added_tokens_decoder") or {}
        return listed + [{"id": int(token), **entry} for token, entry in further.items() if int(token) not in known]


def _read(source: Any) -> _Tokenizer:
    if not isinstance(source, str | os.PathLike):
        return _read_object(source)
    path = Path(source)
    if path.is_dir():
        return _read_folder(path, path.resolve().name)
    if path.is_file():
        beside = path.name == "tokenizer.json"
        tokenizer = _read_folder(path.parent, path.resolve().parent.name) if beside else _Tokenizer(_read_json(path), name=path.stem)
        return _checked(tokenizer, str(path))
    if isinstance(source, str) and _HUB_NAME.match(source):
        return _read_folder(_hub_folder(source), source)
    raise SourceError("no such file or folder", source=str(source),
                      hint="give a tokenizer.json, its folder, or a hub name such as org/model")


def _read_folder(folder: Path, name: str) -> _Tokenizer:
    file = folder / _FILES[0]
    if not file.is_file():
        raise SourceError("the folder holds no tokenizer.json", source=str(folder),
                          hint="load it with transformers and save_pretrained() a fast tokenizer, or pass the loaded tokenizer")
    document, config, generation, model = (_read_json(folder / part) if (folder / part).is_file() else {} for part in _FILES[:4])
    template = folder / _FILES[4]
    chat = template.read_text("utf-8") if template.is_file() else _template_text(config.get("chat_template"))
    return _checked(_Tokenizer(document, config, generation, model, chat, name=name), str(file))


def _read_json(path: Path) -> Document:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"not readable as JSON: {error}", source=str(path), hint="check that the download is complete") from error
    if not isinstance(document, dict):
        raise SourceError("not a JSON object", source=str(path), hint="give a tokenizer.json as the tokenizers library writes it")
    return document


def _checked(tokenizer: _Tokenizer, source: str) -> _Tokenizer:
    model = tokenizer.document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise SourceError("not a tokenizer.json: it has no model with a vocab", source=source,
                          hint="give a tokenizer.json as the tokenizers library writes it")
    return tokenizer


def _hub_folder(name: str) -> Path:
    """Folder of the hub model's tokenizer files, from the Hugging Face cache or, failing that, the network."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise SourceError("no such file, and hub names need huggingface_hub", source=name, hint="pip install 'stcc[compiler]'") from error
    problem: Exception | None = None
    for local in (True, False):
        try:
            folder = Path(snapshot_download(name, allow_patterns=list(_FILES), local_files_only=local))
        except Exception as error:  # the hub client raises many kinds, none of them ours
            problem = error
            continue
        if (folder / _FILES[0]).is_file():
            return folder
    reason = f": {problem}" if problem else " (it holds no tokenizer.json)"
    raise SourceError(f"neither a file nor a tokenizer on the hub{reason}", source=name, hint="check the name, the network, or pass a path")


def _read_object(source: Any) -> _Tokenizer:
    """A loaded tokenizer: mlx-lm's wrapper forwards to transformers', whose backend is ``tokenizers.Tokenizer``."""
    backend = getattr(source, "backend_tokenizer", source)
    if not hasattr(backend, "to_str"):
        raise SourceError(f"a {type(source).__name__} is not a tokenizer that can be read", source="<tokenizer>",
                          hint="pass a path, a tokenizers.Tokenizer, or a fast transformers tokenizer")
    tokenizer = _checked(_Tokenizer(json.loads(backend.to_str())), "<tokenizer>")
    tokenizer.name = str(getattr(source, "name_or_path", "") or "").rstrip("/").rsplit("/", 1)[-1]
    if backend is not source:
        tokenizer.stops = (*_ids(getattr(source, "eos_token_ids", None)), *_ids(getattr(source, "eos_token_id", None)))
        tokenizer.chat_template = _template_text(getattr(source, "chat_template", None))
    return tokenizer


def _template_text(template: Any) -> str:
    if isinstance(template, dict):
        template = list(template.values())
    if isinstance(template, list):
        return "\n".join(str(part.get("template", "") if isinstance(part, dict) else part) for part in template)
    return template if isinstance(template, str) else ""


# -- bytes -----------------------------------------------------------------------------------------------------------------


def _token_texts(tokenizer: _Tokenizer) -> tuple[list[str], npt.NDArray[np.bool_]]:
    """Each id's text, and whether it carries bytes: holes, special tokens and the unknown token do not."""
    model = tokenizer.document["model"]
    vocab = model["vocab"]
    pairs = vocab.items() if isinstance(vocab, dict) else ((entry[0], number) for number, entry in enumerate(vocab))
    named = {int(number): str(text) for text, number in pairs}
    added = tokenizer.added
    named.update((int(entry["id"]), str(entry["content"])) for entry in added)
    count = max(named, default=-1) + 1
    if count > MOST_TOKENS or min(named, default=0) < 0:
        raise SourceError(f"token ids run from {min(named)} to {count - 1}", source=tokenizer.name or "<tokenizer>",
                          hint=f"ids are 0 to {MOST_TOKENS - 1} at most; check that the download is complete")
    texts = [named.get(number, "") for number in range(count)]
    spelled = np.fromiter(map(bool, texts), bool, len(texts))
    spelled[[int(entry["id"]) for entry in added if entry.get("special")]] = False
    unknown = model.get("unk_token") if isinstance(vocab, dict) else None
    unknown_id = vocab.get(unknown) if unknown is not None else model.get("unk_id")
    if unknown_id is not None:
        spelled[int(unknown_id)] = False
    return texts, spelled


def _special(tokenizer: _Tokenizer, width: int) -> dict[str, int]:
    return {str(entry["content"]): int(entry["id"]) for entry in tokenizer.added if entry.get("special") and int(entry["id"]) < width}


def _loose_ids(tokenizer: _Tokenizer) -> list[int]:
    """Ids of added tokens that the encoder cuts out of plain text and that carry bytes."""
    return [int(entry["id"]) for entry in tokenizer.added if not entry.get("special") and entry["content"]]


def _token_bytes(tokenizer: _Tokenizer, texts: list[str], spelled: npt.NDArray[np.bool_]) -> list[bytes]:
    """Bytes of every id, ``b""`` where ``spelled`` is False."""
    document = tokenizer.document
    steps = flat_steps(document.get("decoder"))
    if is_byte_level(document):
        tokens = _byte_level(texts)
        model_ids = set(document["model"]["vocab"].values()) if isinstance(document["model"]["vocab"], dict) else set()
        for number in _loose_ids(tokenizer):
            if number not in model_ids:
                tokens[number] = texts[number].encode()
    else:
        tokens = _sentence_piece(texts, steps)
    for number in np.flatnonzero(~spelled).tolist():
        tokens[number] = b""
    return tokens


def _byte_level(texts: list[str]) -> list[bytes]:
    """Bytes under the byte-level alphabet; a text with a character outside it stands for itself, as in the decoder."""
    table = np.full(0x150, -1, np.int16)
    for character, byte in byte_alphabet().items():
        table[ord(character)] = byte
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    mapped = np.where(codes < len(table), table[np.minimum(codes, len(table) - 1)], -1)
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    data = mapped.astype(np.uint8).tobytes()
    tokens = [data[low:high] for low, high in itertools.pairwise([0, *ends.tolist()])]
    for number in np.unique(np.searchsorted(ends, np.flatnonzero(mapped < 0), side="right")).tolist():
        tokens[number] = texts[number].encode()
    return tokens


def _sentence_piece(texts: list[str], steps: list[Document]) -> list[bytes]:
    """Bytes under a SentencePiece-like decoder, as in the middle of a text."""
    replaced: list[tuple[str, str]] = []
    fallback = fused = False
    for step in steps:
        kind = step.get("type")
        if kind == "Replace" and "String" in step.get("pattern", {}):
            replaced.append((step["pattern"]["String"], step["content"]))
        elif kind == "Metaspace":
            replaced.append((step["replacement"], " "))
        elif kind in ("ByteFallback", "Fuse"):
            fallback, fused = fallback or kind == "ByteFallback", fused or kind == "Fuse"
        elif kind != "Strip" or not fused:
            raise UnsupportedError("tokens of this decoder spell different bytes in different places", source="<tokenizer>",
                                   keyword=str(kind), hint="use a byte-level or SentencePiece tokenizer")
    if not steps:
        raise UnsupportedError("the tokenizer has no decoder, so what its tokens spell is not defined", source="<tokenizer>",
                               keyword="decoder", hint="use a byte-level or SentencePiece tokenizer")
    byte_tokens = {number: _BYTE_TOKEN.match(text) for number, text in enumerate(texts) if fallback and text.startswith("<0x")}
    for pattern, content in replaced:
        texts = [text.replace(pattern, content) for text in texts]
    tokens = [text.encode() for text in texts]
    for number, match in byte_tokens.items():
        if match:
            tokens[number] = bytes([int(match[1], 16)])
    return tokens


# -- stop tokens and width -------------------------------------------------------------------------------------------------


def _ids(value: Any) -> list[int]:
    """An ``eos_token_id`` as configurations write it: absent, one id, or several."""
    if value is None:
        return []
    values = [value] if isinstance(value, int) else sorted(value) if isinstance(value, set | frozenset) else list(value)
    return [number for number in values if isinstance(number, int) and number >= 0]


def _stop_ids(tokenizer: _Tokenizer, texts: list[str], given: Iterable[int | str] | None) -> list[int]:
    """Rising ids; the caller's if given, else the declared ones."""
    numbers = {text: number for number, text in enumerate(texts)}
    if given is not None:
        return sorted({_stop_id(stop, numbers, len(texts)) for stop in given})
    stops = set(tokenizer.stops)
    stops.update(_ids(tokenizer.generation.get("eos_token_id")) or _ids(tokenizer.model.get("eos_token_id"))
                 or _ids((tokenizer.model.get("text_config") or {}).get("eos_token_id")))
    named = tokenizer.config.get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    marks = [named, *(mark for mark in _TURN_ENDS if mark in tokenizer.chat_template)]
    stops.update(numbers[mark] for mark in marks if mark in numbers)
    stops = {number for number in stops if number < len(texts)}
    stops = stops or {numbers[mark] for mark in _TEXT_ENDS if mark in numbers}
    if not stops:
        raise SourceError("no stop token is declared", source=tokenizer.name or "<tokenizer>",
                          hint="name it: stop_tokens=['</s>'], or --stop '</s>'")
    return sorted(stops)


def _stop_id(stop: int | str, numbers: dict[str, int], count: int) -> int:
    number = stop if isinstance(stop, int) else numbers.get(stop, -1)
    if not 0 <= number < count:
        raise SourceError(f"stop token {stop!r} is not in the vocabulary", source="<tokenizer>",
                          hint="give an id or the token's exact text")
    return number


def _width(tokenizer: _Tokenizer, tokens: list[bytes], size: int | None) -> int:
    if size is None:
        declared = tokenizer.model.get("vocab_size") or (tokenizer.model.get("text_config") or {}).get("vocab_size") or 0
        if not 0 <= int(declared) <= MOST_TOKENS:
            raise SourceError(f"config.json declares a vocab_size of {declared}", source=tokenizer.name or "<tokenizer>",
                              hint=f"0 to {MOST_TOKENS} are taken; give the width of the model's logits as size")
        return max(len(tokens), int(declared))
    if any(tokens[max(size, 0):]):
        raise SourceError(f"size {size} cuts off tokens that carry text; the tokenizer has {len(tokens)}",
                          source=tokenizer.name or "<tokenizer>", hint="pass the width of the model's logits")
    return size
