"""Applying bitmasks to logits against a loop over tokens, on NumPy, MLX and torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.runtime import BitmaskError, allocate_token_bitmask, apply_token_bitmask


def masked(logits: np.ndarray, bitmask: np.ndarray) -> np.ndarray:
    """The definition: one token after the other."""
    result = np.atleast_2d(logits).copy()
    words = np.atleast_2d(bitmask)
    for row in range(result.shape[0]):
        own = words[row if len(words) > 1 else 0].tolist()
        for token in range(result.shape[1]):
            if token // 32 >= len(own) or not own[token // 32] >> (token % 32) & 1:
                result[row, token] = -np.inf
    return result.reshape(logits.shape)


def to_mlx(array: np.ndarray) -> object:
    return pytest.importorskip("mlx.core").array(array)


def to_torch(array: np.ndarray) -> object:
    return pytest.importorskip("torch").from_numpy(array.copy())


KINDS = {"numpy": lambda array: array.copy(), "mlx": to_mlx, "torch": to_torch}


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, vocab, words = draw(st.integers(0, 3)), draw(st.integers(1, 130)), draw(st.integers(1, 5))
    logits = rng.normal(size=(batch, vocab) if batch else (vocab,)).astype(draw(st.sampled_from((np.float32, np.float16))))
    rows = draw(st.sampled_from(((), (1,), (batch,)) if batch else ((), (1,))))
    return logits, rng.integers(-2**31, 2**31, (*rows, words)).astype(np.int32)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(cases())
def test_equals_the_definition(kind: str, case: tuple[np.ndarray, np.ndarray]) -> None:
    logits, bitmask = case
    given_ = KINDS[kind](logits)
    for mask in (bitmask, KINDS[kind](bitmask)):
        result = apply_token_bitmask(KINDS[kind](logits), mask)
        assert type(result) is type(given_) and result.dtype == given_.dtype
        assert np.array_equal(np.asarray(result), masked(logits, bitmask))


def test_numpy_logits_change_in_place_and_come_back() -> None:
    logits = np.ones((2, 40), np.float32)
    bitmask = allocate_token_bitmask(2, 40)
    bitmask[1] = 0
    assert apply_token_bitmask(logits, bitmask) is logits
    assert (logits[0] == 1).all() and (logits[1] == -np.inf).all()


def test_views_and_unsigned_masks() -> None:
    whole = np.zeros((2, 80), np.float64)
    apply_token_bitmask(whole[:, ::2], np.full((1, 2), 0x55555555, np.uint32))
    expected = np.zeros((2, 80))
    expected[:, 2::4] = -np.inf
    assert np.array_equal(whole, expected)


def test_mlx_half_precision() -> None:
    mx = pytest.importorskip("mlx.core")
    logits = mx.ones((1, 70), mx.bfloat16)
    result = apply_token_bitmask(logits, np.array([[0, -1]], np.int32))
    assert result.dtype == mx.bfloat16
    assert np.isneginf(np.asarray(result.astype(mx.float32)))[0].tolist() == [not 32 <= token < 64 for token in range(70)]


@pytest.mark.parametrize("vocab, words", [(1, 1), (32, 1), (33, 2), (128_256, 4008)])
def test_allocated_masks_allow_everything(vocab: int, words: int) -> None:
    bitmask = allocate_token_bitmask(3, vocab)
    assert bitmask.shape == (3, words) and bitmask.dtype == np.int32
    assert np.isfinite(apply_token_bitmask(np.zeros((3, vocab), np.float32), bitmask)).all()


@pytest.mark.parametrize("logits, bitmask", [
    (np.zeros((2, 8), np.float32), np.zeros((3, 1), np.int32)),
    (np.zeros(8, np.float32), np.zeros((2, 1), np.int32)),
    (np.zeros((1, 2, 8), np.float32), np.zeros((2, 1), np.int32)),
    (np.zeros((2, 8), np.float32), np.zeros((2, 1), np.int64)),
    (np.zeros((2, 8), np.int32), np.zeros((2, 1), np.int32)),
    ([0.0] * 8, np.zeros((1, 1), np.int32)),
])
@pytest.mark.parametrize("kind", ["numpy", "mlx", "torch"])
def test_what_does_not_fit_is_refused(kind: str, logits: object, bitmask: np.ndarray) -> None:
    held = KINDS[kind](logits) if isinstance(logits, np.ndarray) else logits
    with pytest.raises(BitmaskError):
        apply_token_bitmask(held, bitmask)
