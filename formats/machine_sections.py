"""Machine <-> sections: rows that are equal up to the state they stand at are stored once.

In: a ``Machine``; out: its sections ``machine.*`` (SPEC.md lists them). In: a container; out: a machine that ``verify_machine`` accepts,
so that every index in it may be used unchecked; the table, which masks do not need, is decoded and verified when first used.

A table cell is coded by ``stcc.formats.coding.relative``. A state's row of codes is its *pattern*: 2,104 states of a 96-field object
have some 80 patterns, so the table is a byte a state and a small matrix.

Cost: decoding the table is two gathers of ``states x classes`` numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stcc.formats.coding import Array, delta, first_uses, narrow, offsets, relative, relative_parts, relative_rows, undelta
from stcc.formats.container import SectionData
from stcc.formats.errors import ContentError
from stcc.formats.machine import Machine, verify_control, verify_table
from stcc.formats.sections import PLAIN_PATTERN_STATES, SectionReader

PREFIX = "machine."
MAX_NUMBER = (1 << 31) - 1
NAMES = ("byte_class", "row_pattern", "patterns", "exits", "accepting", "edge_target", "edge_pushes", "edge_push_counts", "returns",
         "unique", "several")


def machine_sections(machine: Machine) -> list[SectionData]:
    """The sections of ``machine``, in a fixed order. The start state goes to the header."""
    codes = narrow(relative(machine.table, np.arange(machine.states)[:, None], machine.states))
    pattern, first = first_uses(row.tobytes() for row in codes)
    arrays = {
        "byte_class": machine.byte_class,
        "row_pattern": narrow(pattern),
        "patterns": codes[first],
        "exits": narrow(machine.exits.astype(np.int64) + 1),
        "accepting": machine.accepting.astype(np.uint8),
        "edge_target": delta(machine.edge_target),
        "edge_push_counts": narrow(np.diff(machine.edge_push_offsets)),
        "edge_pushes": delta(machine.edge_pushes),
        "returns": narrow(machine.returns.astype(np.int64) + 1),
        "unique": delta(machine.unique),
        "several": machine.several.astype(np.uint8),
    }
    return [SectionData(PREFIX + name, array, compress=name != "row_pattern" or machine.states < PLAIN_PATTERN_STATES)
            for name, array in arrays.items() if array.size or array.ndim == 2]


class StoredMachine(Machine):
    """A ``Machine`` in a file, verified but for its table, which is decoded and verified when first used: masks do not read it.

    Using the table raises FormatError if its sections are damaged, or a cell is out of range.
    """

    reader: SectionReader

    def __init__(self, reader: SectionReader, states: int, classes: int, **arrays: Any) -> None:
        self.__dict__.update(arrays, reader=reader, _states=states, _classes=classes)

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.__dict__["_states"])

    @property
    def classes(self) -> int:
        """Number of byte classes."""
        return int(self.__dict__["_classes"])

    def __getattr__(self, name: str) -> Any:
        if name != "table":
            raise AttributeError(name)
        with self.reader.checked():
            table = _read_table(self.reader)
        checked: StoredMachine = object.__new__(StoredMachine)  # so that no other thread sees the table before it is verified
        checked.__dict__.update(self.__dict__, table=table)
        _refuse(self.reader, verify_table(checked))
        self.__dict__["table"] = table
        return table


def read_machine(reader: SectionReader, start: int) -> Machine:
    """The machine in the sections of ``reader``, verified; its table when first used.

    Raises:
        FormatError: a section is missing or damaged, or an index in it is out of range.
    """
    (states,), (_, classes) = reader.shape("row_pattern"), reader.shape("patterns", 2)
    reader.reserve(states * classes * 4, "row_pattern")
    with reader.checked():
        machine = StoredMachine(
            reader, states, classes,
            byte_class=reader.take("byte_class", dtype="u8"),
            exits=_signed(reader.take("exits"), 1 << 15).astype(np.int16),
            accepting=_signed(reader.take("accepting", dtype="u8"), 1) >= 0,
            edge_target=undelta(reader.take("edge_target", optional=True)),
            edge_push_offsets=offsets(reader.take("edge_push_counts", optional=True)),
            edge_pushes=undelta(reader.take("edge_pushes", optional=True)),
            returns=_signed(reader.take("returns", dimensions=2), MAX_NUMBER).astype(np.int32),
            start=start,
            unique=undelta(reader.take("unique", optional=True)),
            several=_signed(reader.take("several", dtype="u8", optional=True), 1) >= 0,
        )
        broken = verify_control(machine)
    _refuse(reader, broken)
    return machine


def _refuse(reader: SectionReader, broken: list[str]) -> None:
    if broken:
        raise ContentError(reader.file, "machine", f"it does not hold that {broken[0]}")


def _signed(codes: Array, limit: int) -> Array:
    """Numbers from -1 up to ``limit - 1``, which are stored one higher."""
    if codes.size and int(codes.max()) > limit:
        raise ValueError(f"a number is not below {limit}")
    return codes.astype(np.int64 if codes.dtype.itemsize > 2 else np.int32) - 1


def _read_table(reader: SectionReader) -> Array:
    pattern, codes = reader.take("row_pattern"), reader.take("patterns", dimensions=2)
    if pattern.size and int(pattern.max()) >= len(codes):
        raise ValueError("a row names a pattern that is not there")
    return relative_rows(*relative_parts(codes, len(pattern)), pattern)
