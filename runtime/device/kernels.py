"""The two kernels that make masks, and what each of them reads.

In: ``DeviceTables`` and state vectors int32 ``[rows, 66]``. Out: masks bool ``[rows, tokens]``, the same as those of
``stcc.runtime.device.operations``. Their bodies are ``runtime/kernels/*.metal``, without a signature: Metal gets one from
``mx.fast.metal_kernel``, and a C++ compiler can be given one made from ``KERNEL_ARRAYS`` in the same way, so that the same text runs on
any machine, thread by thread, under sanitizers.

``walk`` reads every token's bytes through the machine (Theorem 18, with the stack) and needs no binding: a thread costs the bytes of its
token. ``action`` reads a binding: a thread costs one binary search in a row of actions, and a look-up for each call site the token pops.

The walk kernel holds what a token pushes in private memory, ``overlay`` call sites of it; tokens that open nothing never touch it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

from stcc.runtime.device.tables import DeviceLimitError, DeviceTables
from stcc.runtime.errors import ConstraintError

KernelName = Literal["walk", "action"]

KERNEL_ARRAYS: dict[KernelName, tuple[str, ...]] = {
    "walk": ("sizes", "table", "byte_class", "state_grammar", "state_row", "eager_exit", "lazy_exit", "accepting", "grammar_states",
             "grammar_base", "grammar_edges", "edge_target", "edge_push_offsets", "edge_pushes", "returns", "token_offsets", "token_bytes",
             "stops"),
    "action": ("sizes", "state_grammar", "accepting", "stops", "token_action", "state_pattern", "pattern_offsets", "pattern_actions",
               "pattern_base", "pattern_follows", "record_kind", "record_head", "record_leave", "record_push_offsets", "landings"),
}
"""The tables that each kernel reads, in the order of its signature; ``state`` comes before them and the output ``mask`` after."""
MOST_OVERLAY = 1024
"""Call sites of private memory that a thread may have: 4 KiB."""
THREADS = 256
"""Threads of a group; they share nothing, so any number is right."""


class DeviceUnavailable(ConstraintError):  # noqa: N818 - named for what happened, as VocabularyMismatch is
    """There is no Metal device to run a kernel on."""


def kernel_body(name: KernelName) -> str:
    """The text of a kernel's body."""
    return (files("stcc.runtime") / "kernels" / f"{name}.metal").read_text(encoding="utf-8")


def overlay_size(tables: DeviceTables) -> int:
    """The constant ``OVERLAY`` of the walk kernel: a power of two, so that few variants are compiled.

    Raises:
        DeviceLimitError: some token pushes more than ``MOST_OVERLAY`` call sites.
    """
    size = max(8, 1 << max(tables.overlay - 1, 0).bit_length())
    if size > MOST_OVERLAY:
        raise DeviceLimitError(f"a token of the vocabulary may open {tables.overlay} calls at once; the walk kernel holds {MOST_OVERLAY}",
                               "use the action kernel or plain operations")
    return size


class KernelMasks:
    """Masks of ``tables`` by one of the kernels; ``advance`` is that of ``OperationMasks``.

    Attributes:
        tables: what is on the device.
        name: the kernel.
    """

    def __init__(self, tables: DeviceTables, name: KernelName) -> None:
        """Put the tables on the device; the kernel is compiled when it first runs.

        Raises:
            DeviceUnavailable: there is no Metal device.
            DeviceLimitError: a token pushes more than the walk kernel holds.
        """
        import mlx.core as mx

        if not mx.metal.is_available():
            raise DeviceUnavailable(f"the {name} kernel runs on Metal only, and there is no Metal device",
                                    "use OperationMasks, which runs on any backend")
        self.tables, self.name = tables, name
        self._template = [("OVERLAY", overlay_size(tables))] if name == "walk" else []
        self._inputs = [mx.array(tables.arrays[array]) for array in KERNEL_ARRAYS[name]]
        self._kernel: Any = mx.fast.metal_kernel(
            name=f"stcc_{name}", input_names=["state", *KERNEL_ARRAYS[name]], output_names=["mask"], source=kernel_body(name))

    def mask(self, state: Any) -> Any:
        """The tokens that may follow. bool ``[rows, tokens]``, or ``[tokens]`` for a single state vector.

        Args:
            state: int32 ``[rows, 66]`` or ``[66]``.
        """
        import mlx.core as mx

        if state.ndim == 1:
            return self.mask(state[None])[0]
        shape = (state.shape[0], self.tables.vocabulary_size)
        return self._kernel(
            inputs=[state.astype(mx.int32), *self._inputs], template=self._template, grid=(shape[1], shape[0], 1),
            threadgroup=(min(THREADS, shape[1]), 1, 1), output_shapes=[shape], output_dtypes=[mx.bool_])[0]
