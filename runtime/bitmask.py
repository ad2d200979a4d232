"""Token bitmasks: allocating them and applying them to logits, on NumPy, MLX and torch arrays.

In: logits ``[vocab]`` or ``[batch, vocab]`` and an int32 bitmask ``[words]`` or ``[batch, words]``, bit ``t % 32`` of word ``t // 32``
for token ``t`` (xgrammar's layout). Out: the logits with ``-inf`` at every masked token, and at every position beyond the mask's last
bit: model heads are often padded past the vocabulary. NumPy and torch logits are changed in place; MLX arrays are values, the result is
a new (lazy) one.

MLX and torch are imported only if the logits are theirs. One pass over the logits.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stcc.runtime.errors import BitmaskError
from stcc.runtime.token_sets import word_count

Logits = TypeVar("Logits")


def allocate_token_bitmask(batch: int, vocab_size: int) -> npt.NDArray[np.int32]:
    """A bitmask of ``batch`` rows that allow every token. int32 ``[batch, ceil(vocab_size / 32)]``."""
    return np.full((batch, word_count(vocab_size)), -1, np.int32)


def apply_token_bitmask(logits: Logits, bitmask: Any) -> Logits:
    """Mask ``logits`` by ``bitmask``.

    Args:
        logits: floating, ``[vocab]`` or ``[batch, vocab]``; a NumPy, MLX or torch array.
        bitmask: int32 or uint32, ``[words]`` or ``[batch, words]``; a NumPy array, or an array of the logits' own kind. One row serves
            every row of the logits.

    Returns:
        ``logits`` itself (NumPy, torch), or the masked array (MLX).

    Raises:
        BitmaskError: the types or shapes do not fit.
    """
    kind = type(logits).__module__.partition(".")[0]
    if kind == "mlx":
        return cast(Logits, _apply_mlx(logits, bitmask))
    if kind == "torch":
        return cast(Logits, _apply_torch(logits, bitmask))
    if not isinstance(logits, np.ndarray):
        raise BitmaskError(f"logits are a {type(logits).__name__}; give a NumPy, MLX or torch array")
    _apply_numpy(logits, bitmask)
    return logits


def _check_shapes(logits: tuple[int, ...], bitmask: tuple[int, ...]) -> None:
    if len(logits) not in (1, 2) or len(bitmask) not in (1, 2):
        raise BitmaskError(f"logits of shape {logits} and a bitmask of shape {bitmask}: one row or [batch, row] each")
    rows = bitmask[0] if len(bitmask) == 2 else 1
    if rows != 1 and (len(logits) == 1 or rows != logits[0]):
        raise BitmaskError(f"a bitmask of {rows} rows does not fit logits of shape {logits}")


def _apply_numpy(logits: npt.NDArray[Any], bitmask: Any) -> None:
    words = np.asarray(bitmask)
    if not np.issubdtype(logits.dtype, np.floating):
        raise BitmaskError(f"logits are {logits.dtype}; a mask needs floating logits to set to -inf")
    if words.dtype not in (np.int32, np.uint32):
        raise BitmaskError(f"the bitmask is {words.dtype}; int32 or uint32 is expected")
    _check_shapes(logits.shape, words.shape)
    if logits.ndim == 1:
        words = words.reshape(-1)
    bits = np.unpackbits(np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8), axis=-1, bitorder="little")
    width = min(logits.shape[-1], bits.shape[-1])
    np.copyto(logits[..., :width], -np.inf, where=bits[..., :width] == 0)
    logits[..., width:] = -np.inf


def _apply_mlx(logits: Any, bitmask: Any) -> Any:
    import mlx.core as mx

    if not mx.issubdtype(logits.dtype, mx.floating):
        raise BitmaskError(f"logits are {logits.dtype}; a mask needs floating logits to set to -inf")
    words = bitmask if isinstance(bitmask, mx.array) else mx.array(np.asarray(bitmask))
    if words.dtype not in (mx.int32, mx.uint32):
        raise BitmaskError(f"the bitmask is {words.dtype}; int32 or uint32 is expected")
    _check_shapes(tuple(logits.shape), tuple(words.shape))
    if logits.ndim == 1:
        words = words.reshape(-1)
    words = words.view(mx.uint32)
    bits = (words[..., None] >> mx.arange(32, dtype=mx.uint32)) & 1
    bits = bits.reshape(*words.shape[:-1], words.shape[-1] * 32)
    vocab = logits.shape[-1]
    if bits.shape[-1] < vocab:
        bits = mx.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, vocab - bits.shape[-1])])
    return mx.where(bits[..., :vocab] != 0, logits, mx.array(-float("inf"), logits.dtype))


def _apply_torch(logits: Any, bitmask: Any) -> Any:
    import torch

    if not logits.is_floating_point():
        raise BitmaskError(f"logits are {logits.dtype}; a mask needs floating logits to set to -inf")
    if isinstance(bitmask, np.ndarray) and bitmask.dtype == np.uint32:
        bitmask = bitmask.view(np.int32)
    words = bitmask if isinstance(bitmask, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(bitmask))
    if words.dtype != torch.int32:
        raise BitmaskError(f"the bitmask is {words.dtype}; int32 is expected")
    _check_shapes(tuple(logits.shape), tuple(words.shape))
    words = words.to(logits.device)
    if logits.ndim == 1:
        words = words.reshape(-1)
    bits = (words.unsqueeze(-1) >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
    bits = bits.flatten(-2)
    width = min(logits.shape[-1], bits.shape[-1])
    logits[..., :width].masked_fill_(bits[..., :width] == 0, -float("inf"))
    logits[..., width:] = -float("inf")
    return logits
