"""Masks on the device: state vectors that never leave it, and three sources of masks that agree bit for bit.

``tables`` lays grammars out as flat arrays. ``operations`` makes masks with plain MLX operations, on any backend, and takes the steps.
``kernels`` makes the same masks with a Metal kernel, from the bytes of the tokens (``walk``) or from their actions (``action``).
Importing this package imports no MLX; ``operations`` does.
"""

from stcc.runtime.device.tables import CAPACITY, FREE, DeviceLimitError, DeviceTables, build_tables

__all__ = ["CAPACITY", "FREE", "DeviceLimitError", "DeviceTables", "build_tables"]
