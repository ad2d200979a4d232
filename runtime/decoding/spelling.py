"""Bytes as tokens without a tokenizer: the longest token that fits, by the byte order of the vocabulary.

In: a ``Vocabulary`` and bytes. Out: tokens that spell them. A tokenizer may cut the same bytes otherwise; what is spelled here is only ever
a proposal that a model then scores. Cost: some 17 comparisons for each length tried, nothing per token of the vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from stcc.formats import Vocabulary


def exact_token(vocabulary: Vocabulary, text: bytes) -> int | None:
    """The token that spells ``text``, the lowest id of several; None if there is none."""
    order = vocabulary.byte_order
    rank = bisect_left(range(len(order)), text, key=lambda place: vocabulary.token(int(order[place])))
    if rank == len(order):
        return None
    token = int(order[rank])
    return token if vocabulary.token(token) == text else None


def longest_token(vocabulary: Vocabulary, text: bytes, allowed: Callable[[int], bool] = lambda token: True) -> int | None:
    """The longest allowed token that ``text`` begins with; None if there is none."""
    for length in range(len(text), 0, -1):
        token = exact_token(vocabulary, text[:length])
        if token is not None and allowed(token):
            return token
    return None


def longest_tokens(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """``text`` as tokens, each the longest that fits; a byte that no token begins with ends the list."""
    tokens: list[int] = []
    token = longest_token(vocabulary, text)
    while token is not None:
        tokens.append(token)
        text = text[len(vocabulary.token(token)):]
        token = longest_token(vocabulary, text)
    return tokens
