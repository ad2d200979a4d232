"""The encoder record: all that a vocabulary pack keeps of a tokenizer.json, enough to split any text as the tokenizer does.

In: the document, when a pack is made. Out: JSON bytes, a quarter to a tenth of the document, that read back in 10-30 ms
where building the tokenizer itself takes 0.4-1.3 s. The tokens' bytes are in the pack already; of the rest an encoder needs the
normalizer, the pre-tokenizer, the added tokens, and of a BPE model the merges, kept as pairs of ids in the order of their rank. Other
models are kept whole.

Integer columns are stored by byte planes (all low bytes, then all second bytes, ...), base64: the high planes are nearly constant, so
that the pack's deflate removes them.

    {"record": 1, "normalizer": ..., "pre_tokenizer": ..., "loose": [[id, text], ...], "outside": [id, ...], "kind": "bytes" | "characters",
     "merges": [left, right], "alphabet": ids of the 256 bytes, "ignore_merges": bool, "bigrams": [first, second], "model": null | {...}}
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Document = dict[str, Any]
Int64 = npt.NDArray[np.int64]

RECORD = 1
_PLANES = 3  # bytes of an id or a code point


def byte_alphabet() -> dict[str, int]:
    """GPT-2's byte-level alphabet: character -> byte, 256 entries (printable Latin-1 stands for itself, the rest from U+0100 up)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def pack_column(values: npt.NDArray[Any]) -> str:
    """Integers below 2**24 as base64 of their byte planes."""
    planes = np.ascontiguousarray(values, "<u4").view(np.uint8).reshape(-1, 4)[:, :_PLANES]
    return base64.b64encode(np.ascontiguousarray(planes.T).tobytes()).decode()


def unpack_column(text: str) -> Int64:
    """int64, what ``pack_column`` packed."""
    planes = np.frombuffer(base64.b64decode(text), np.uint8).reshape(_PLANES, -1).astype(np.int64)
    column: Int64 = planes[0] | planes[1] << 8 | planes[2] << 16
    return column


def encoder_record(document: Document, loose: Iterable[tuple[int, str]]) -> bytes | None:
    """The record of ``document``; None where its model cuts text in a way that is not kept (random merges, marked subwords).

    Args:
        document: a tokenizer.json.
        loose: ids and texts of the added tokens that are cut out of plain text and spell it.
    """
    model = document["model"]
    if model.get("dropout") or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    vocab = model["vocab"] if isinstance(model["vocab"], dict) else {entry[0]: number for number, entry in enumerate(model["vocab"])}
    known = set(vocab.values())
    loose = sorted(loose)
    record: Document = {
        "record": RECORD, "normalizer": document.get("normalizer"), "pre_tokenizer": document.get("pre_tokenizer"),
        "loose": [list(entry) for entry in loose], "outside": [number for number, _ in loose if number not in known],
        "ignore_merges": bool(model.get("ignore_merges")), "model": None,
    }
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        if model.get("type") != "Unigram":
            return None
        record |= {"kind": "characters", "model": model, "bigrams": _piece_bigrams(list(vocab))}
    else:
        record |= _bpe(vocab, model, byte_level=is_byte_level(document))
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def is_byte_level(document: Document) -> bool:
    """Whether a tokenizer.json maps bytes to characters before its model: its pre-tokenizer or its decoder says so."""
    return any(step.get("type") == "ByteLevel" for part in ("pre_tokenizer", "decoder") for step in flat_steps(document.get(part)))


def flat_steps(part: Document | None) -> list[Document]:
    """The steps of a normalizer, pre-tokenizer or decoder, sequences flattened."""
    if part is None:
        return []
    if part.get("type") != "Sequence":
        return [part]
    inner = part.get("normalizers") or part.get("pretokenizers") or part.get("decoders") or ()
    return [step for entry in inner for step in flat_steps(entry)]


def _bpe(vocab: dict[str, int], model: Document, *, byte_level: bool) -> Document:
    merges = model["merges"]
    flat = " ".join(merges).split(" ") if merges and isinstance(merges[0], str) else list(itertools.chain.from_iterable(merges))
    ids = np.fromiter(map(vocab.__getitem__, flat), np.int64, len(flat)).reshape(-1, 2)
    if byte_level:
        symbols = {byte: vocab.get(character, -1) for character, byte in byte_alphabet().items()}
        bigrams = []
    else:
        symbols = {byte: vocab.get(f"<0x{byte:02X}>", -1) if model.get("byte_fallback") else -1 for byte in range(256)}
        bigrams = _pack_bigrams([text[-1] for text in flat[::2]], [text[0] for text in flat[1::2]])
    return {"kind": "bytes" if byte_level else "characters", "merges": [pack_column(ids[:, 0]), pack_column(ids[:, 1])],
            "alphabet": [symbols[byte] for byte in range(256)], "bigrams": bigrams}


def _piece_bigrams(pieces: Sequence[str]) -> list[str]:
    """Adjacent characters inside any piece."""
    pairs = {pair for piece in pieces for pair in itertools.pairwise(piece)}
    return _pack_bigrams([first for first, _ in pairs], [second for _, second in pairs])


def _pack_bigrams(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Distinct pairs, rising, as two columns of code points."""
    codes = [np.frombuffer("".join(side).encode("utf-32-le"), np.uint32).astype(np.int64) for side in (first, second)]
    keys = np.unique(codes[0] << 24 | codes[1])
    return [pack_column(keys >> 24), pack_column(keys & 0xFFFFFF)]
