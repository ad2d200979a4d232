"""``mx.fast.metal_kernel`` on a CPU: the same call, with the body compiled by g++ under the address and undefined-behaviour sanitizers.

As MLX does, the signature is made from the names and types of the arrays and the template constants; the body is included as it is. The
threads of the grid run one after the other, which is a legal schedule of a kernel without barriers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

FOLDER = Path(__file__).resolve().parent
COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",  # so that a body may lack a check
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TYPES = {"int16": "int16_t", "int32": "int32_t", "uint8": "uint8_t", "uint32": "uint32_t", "bool": "bool"}
MOST_THREADS_OF_A_GROUP = 1024

BUILT = tempfile.TemporaryDirectory(prefix="metal_shim_")


class SanitizerError(Exception):
    """A kernel that reads or writes out of bounds, or does what C++ leaves undefined."""


def program(source: str, signature: Sequence[tuple[str, str]], outputs: int, template: Sequence[tuple[str, int]]) -> Path:
    """The executable that runs ``source`` over buffers with the names and C++ types of ``signature``; compiled once."""
    inputs = len(signature) - outputs
    parameters = ", ".join(f"{'const ' if place < inputs else ''}device {kind}* {name}" for place, (name, kind) in enumerate(signature))
    arguments = ", ".join(f"static_cast<{kind}*>(buffers[{place}].data)" for place, (_, kind) in enumerate(signature))
    constants = "".join(f"constexpr int {name} = {value};\n" for name, value in template)
    text = f"""#include "metal_shim.h"
{constants}
static void body({parameters}, const uint3 thread_position_in_grid) {{
{source}
}}
int main(int, char** names) {{
    FILE* input = fopen(names[1], "rb");
    uint grid[3];
    read_exactly(grid, sizeof grid, input);
    Buffer buffers[{len(signature)}];
    for (Buffer& buffer : buffers) buffer = read_buffer(input);
    fclose(input);
    for (uint z = 0; z < grid[2]; ++z)
        for (uint y = 0; y < grid[1]; ++y)
            for (uint x = 0; x < grid[0]; ++x) body({arguments}, uint3{{x, y, z}});
    FILE* output = fopen(names[2], "wb");
    for (int place = {inputs}; place < {len(signature)}; ++place) write_buffer(buffers[place], output);
    fclose(output);
    for (Buffer& buffer : buffers) free(buffer.data);
}}
"""
    path = Path(BUILT.name) / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not path.exists():
        path.with_suffix(".cpp").write_text(text, encoding="utf-8")
        subprocess.run([str(COMPILER), *FLAGS, f"-I{FOLDER}", str(path.with_suffix(".cpp")), "-o", str(path)], check=True)
    return path


def metal_kernel(name: str, input_names: Sequence[str], output_names: Sequence[str], source: str) -> Callable[..., list[Any]]:
    """A stand-in for ``mx.fast.metal_kernel`` that computes at once."""

    def run(*, inputs: Sequence[Any], template: Sequence[tuple[str, int]], grid: Sequence[int], threadgroup: Sequence[int],
            output_shapes: Sequence[Sequence[int]], output_dtypes: Sequence[Any]) -> list[Any]:
        assert all(kind == mx.bool_ for kind in output_dtypes), "Booleans only, as bytes that can be seen to be unwritten"
        assert len(inputs) == len(input_names) and len(output_shapes) == len(output_dtypes) == len(output_names), name
        assert 0 < np.prod(threadgroup) <= MOST_THREADS_OF_A_GROUP and len(grid) == len(threadgroup) == 3, name
        arrays = [np.array(array) for array in inputs]
        assert all(array.size for array in arrays), "Metal takes no empty buffers"
        # unwritten bytes are 2, which is no Boolean: a thread that writes nothing is seen
        arrays += [np.full(shape, 2, np.uint8) for shape in output_shapes]
        kinds = [str(array.dtype) for array in arrays[:len(inputs)]] + ["uint8" for _ in output_dtypes]
        signature = [(label, TYPES[kind]) for label, kind in zip([*input_names, *output_names], kinds, strict=True)]
        executable = program(source, signature, len(output_names), template)
        written = execute(executable, arrays, grid)
        assert all((array < 2).all() for array in written), "a thread wrote nothing"
        return [mx.array(array.astype(np.bool_)) for array in split(written[0], output_shapes)]

    return run


def split(flat: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    bounds = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, bounds), shapes, strict=True)]


def execute(executable: Path, arrays: Sequence[np.ndarray], grid: Sequence[int]) -> list[np.ndarray]:
    """What the program leaves in the output buffers, uint8 in one piece.

    Raises:
        SanitizerError: a sanitizer stopped it.
    """
    with tempfile.TemporaryDirectory(dir=BUILT.name) as folder:
        given, made = Path(folder) / "in", Path(folder) / "out"
        with given.open("wb") as file:
            file.write(struct.pack("<3I", *grid))
            for array in arrays:
                file.write(struct.pack("<Q", array.nbytes) + np.ascontiguousarray(array).tobytes())
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=0"}
        found = subprocess.run([str(executable), str(given), str(made)], capture_output=True, text=True, env=environment, timeout=60)
        if found.returncode:
            raise SanitizerError(found.stderr[:2000])
        return [np.fromfile(made, np.uint8)]
