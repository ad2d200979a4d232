"""What the device holds: the machines and bindings of one or more grammars over one vocabulary, as flat arrays.

In: pairs of a ``Machine`` and its ``Binding``, and the ``Vocabulary`` that all are bound to. Out: ``DeviceTables``: NumPy arrays in which
the grammars stand one after the other, with states, call sites, records and enter edges numbered over all of them. A *state vector*
therefore says by itself which grammar its row decodes, and rows of different grammars are masked in one call:

    int32 [66]:   q   sp   stack[0] .. stack[63]      q a state of the combined numbering, sp call sites on the stack, innermost last

``q`` may also be ``ENDED`` (-1: the text ended by itself), ``TERMINATED`` (-2: a stop token was accepted) or ``FREE`` (-3: the row is not
constrained). A stack holds ``CAPACITY`` call sites; a token that would leave more on it is masked. That is the one place where a device
mask is narrower than the host's.

Afterwards every index that the arrays hold is in range, given a machine and a binding that ``formats`` has verified. What a state vector
holds is trusted by nobody: masks check it, and allow nothing for a vector that is out of range.

Two things are composed beforehand. An action's *landing* at a call site is what its value that leaves the rule becomes once the site is
popped: the suffix function of an EXPOSED record applied to the return state, so that a pop costs one look-up. And ``overlay`` bounds
what the bytes of one token can push before they pop it again, which is the private memory of a thread of the walk kernel.

Cost: O(table + entries + tokens x grammars + leaving records x call sites).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stcc.formats import VocabularyMismatch
from stcc.formats.binding import EXPOSED, MOVE
from stcc.formats.machine import end_states
from stcc.formats.row_patterns import RowPatterns, row_patterns
from stcc.runtime.errors import ConstraintError
from stcc.runtime.stack import ENDED, TERMINATED, Stacks

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.formats.binding import Binding
    from stcc.formats.machine import Machine

Int32 = npt.NDArray[np.int32]
Array = npt.NDArray[Any]
Part = tuple["Machine", "Binding"]

FREE = -3
"""State of a row that no grammar constrains: every token is allowed, and it stays free."""
DEAD_VALUE = -4
"""A value that leads nowhere."""
CAPACITY = 64
"""Call sites that a state vector holds."""
WIDTH = 2 + CAPACITY
MOST_CELLS = 1 << 28
"""Most elements of any one array."""

__all__ = ["CAPACITY", "DEAD_VALUE", "ENDED", "FREE", "TERMINATED", "WIDTH", "DeviceLimitError", "DeviceTables", "build_tables"]


class DeviceLimitError(ConstraintError):
    """Grammars or configurations that the device's arrays have no room for."""


@dataclass(frozen=True, eq=False)
class DeviceTables:
    """See the module's text. All arrays have at least one element, since a device takes no empty ones.

    Attributes:
        vocabulary_size: token ids, padding included.
        grammars: number of grammars.
        actions: the most actions that one of them has.
        longest_row: the most entries of one row of actions.
        rounds: the most call sites that one token pops, plus one for the end of the text on an empty stack.
        overlay: the most call sites that the bytes of one token push.
        starts: int32 ``[grammars]``, state before the first byte; ``ENDED`` for a grammar of the empty text.
        state_bases: int32 ``[grammars]``, number of each grammar's state 0.
        site_bases: int32 ``[grammars]``, number of each grammar's call site 0.
        arrays: by name, what the kernels read (``KERNEL_ARRAYS`` of ``stcc.runtime.device.kernels`` lists what each reads):

            ``sizes`` int32 ``[5]``: tokens, states, call sites, exits, landings.
            ``table`` int16 or int32, the rows of all states; cells are numbered within the grammar, as in ``formats.machine``.
            ``byte_class`` uint8 ``[grammars * 256]``.
            ``state_grammar``, ``state_row`` ``[states]``: the grammar, and where the row begins in ``table``.
            ``eager_exit``, ``lazy_exit`` ``[states]``: exit taken on arrival, and where the row refuses a byte; -1 for none.
            ``accepting`` uint8 ``[states]``.
            ``grammar_states``, ``grammar_base``, ``grammar_edges`` ``[grammars]``: number of states; numbers of state 0 and enter edge 0.
            ``edge_target``, ``edge_push_offsets``, ``edge_pushes``: as in the machine.
            ``returns`` ``[sites * exits]``.
            ``token_offsets`` ``[tokens + 1]``, ``token_bytes`` uint8, ``stops`` uint8 ``[tokens]``.
            ``token_action`` int16 or int32 ``[grammars * tokens]``: action of a token, numbered within the grammar.
            ``state_pattern`` ``[states]``; ``pattern_offsets``, ``pattern_actions``, ``pattern_base``, ``pattern_follows``: rows of
            actions, as in ``formats.row_patterns``; a value from ``states`` on is a record.
            ``record_kind`` uint8, ``record_head`` ``[records]``; ``record_push_offsets``, ``record_pushes``.
            ``record_leave`` ``[records]``: the landing of a leaving record at site ``s`` is ``landings[record_leave + s]``.
            ``landings``: values, or ``DEAD_VALUE``.
    """

    vocabulary_size: int
    grammars: int
    actions: int
    longest_row: int
    rounds: int
    overlay: int
    starts: Int32
    state_bases: Int32
    site_bases: Int32
    arrays: dict[str, Array]

    @property
    def states(self) -> int:
        """Number of states over all grammars."""
        return int(self.arrays["sizes"][1])

    @property
    def wide(self) -> bool:
        """Whether ``table`` and ``token_action`` take 32 bits."""
        return self.arrays["table"].dtype == np.int32

    def initial(self, rows: Sequence[int | None]) -> Int32:
        """The state vectors of outputs that begin, one of each grammar named; None for a free row. int32 ``[rows, 66]``."""
        return np.stack([self.vector(FREE) if number is None else self.vector(int(self.starts[number])) for number in rows])

    def vector(self, state: int, stack: Sequence[int] = ()) -> Int32:
        """The state vector of a state and call sites of the combined numbering. int32 ``[66]``.

        Raises:
            DeviceLimitError: the stack is deeper than ``CAPACITY``.
        """
        if len(stack) > CAPACITY:
            raise DeviceLimitError(f"{len(stack)} open call sites do not fit a state vector, which holds {CAPACITY}",
                                   "decode outputs nested so deep with a matcher on the host")
        found = np.zeros(WIDTH, np.int32)
        found[:2] = state, len(stack)
        found[2:2 + len(stack)] = stack
        return found

    def configuration(self, grammar: int, state: int, stack: Sequence[int]) -> Int32:
        """The state vector of a matcher's ``state`` and ``stack``, which are numbered within ``grammar``. int32 ``[66]``.

        Raises:
            DeviceLimitError: the stack is deeper than ``CAPACITY``.
        """
        base = int(self.site_bases[grammar])
        return self.vector(state if state < 0 else state + int(self.state_bases[grammar]), [site + base for site in stack])


def build_tables(parts: Sequence[Part], vocabulary: Vocabulary) -> DeviceTables:
    """The tables of some grammars over ``vocabulary``.

    Raises:
        VocabularyMismatch: a binding is of another vocabulary.
        DeviceLimitError: there is no grammar, one has arrays whose items must differ, or the arrays would have more than ``MOST_CELLS``
            elements.
    """
    if not parts:
        raise DeviceLimitError("there is no grammar to put on the device", "give at least one")
    if any(len(machine.unique) for machine, _ in parts):
        raise DeviceLimitError("a grammar has arrays whose items must differ (uniqueItems), which masks on the device cannot keep apart",
                               "decode it with masks made on the host: a matcher, or a loop that takes one")
    for _, binding in parts:
        if binding.fingerprint != vocabulary.fingerprint:
            raise VocabularyMismatch("<device tables>", ((binding.fingerprint, ""),), (vocabulary.fingerprint, vocabulary.name))
    exits = max(1, *(machine.returns.shape[1] for machine, _ in parts))
    cells = max(sum(machine.table.size for machine, _ in parts), len(parts) * vocabulary.size,
                sum(len(binding.record_kind) * machine.sites for machine, binding in parts))
    if cells > MOST_CELLS:
        raise DeviceLimitError(f"the device tables would have arrays of {cells} elements", "put fewer grammars in one table")
    bases = _Bases(parts)
    narrow = all(max(machine.states + len(machine.edge_target), binding.actions) < 1 << 15 for machine, binding in parts)
    arrays = {**_machine_arrays(parts, bases, exits), **_row_arrays(parts, bases), **_record_arrays(parts, bases),
              **_vocabulary_arrays(parts, vocabulary)}
    for name in ("table", "token_action"):
        arrays[name] = arrays[name].astype(np.int16 if narrow else np.int32)
    landings = arrays["landings"]
    arrays["sizes"] = np.array([vocabulary.size, bases.states[-1], bases.sites[-1], exits, len(landings)], np.int32)
    starts = [Stacks(machine).start()[0] for machine, _ in parts]
    return DeviceTables(
        vocabulary.size, len(parts), max(binding.actions for _, binding in parts),
        int(np.diff(arrays["pattern_offsets"]).max(initial=0)), _rounds(parts, bases, landings), _overlay(parts, vocabulary),
        np.array([start if start < 0 else start + base for start, base in zip(starts, bases.states, strict=False)], np.int32),
        np.array(bases.states[:-1], np.int32), np.array(bases.sites[:-1], np.int32),
        {name: array if len(array) else np.zeros(1, array.dtype) for name, array in arrays.items()},
    )


class _Bases:
    """Where each grammar's numbers begin, and after the last one how many there are."""

    def __init__(self, parts: Sequence[Part]) -> None:
        machines, bindings = zip(*parts, strict=True)
        self.states = _running(machine.states for machine in machines)
        self.cells = _running(machine.table.size for machine in machines)
        self.sites = _running(machine.sites for machine in machines)
        self.edges = _running(len(machine.edge_target) for machine in machines)
        self.records = _running(len(binding.record_kind) for binding in bindings)

    def value(self, number: int, values: Int32, states: int) -> Int32:
        """Values of grammar ``number``, which has ``states`` states, in the combined numbering."""
        records = self.states[-1] + self.records[number] - states
        return np.where(values < 0, DEAD_VALUE, values + np.where(values < states, self.states[number], records)).astype(np.int32)


def _running(counts: Any) -> list[int]:
    return [0, *np.cumsum(list(counts)).tolist()]


def _joined(arrays: Sequence[Array], dtype: Any = np.int32) -> Array:
    return np.concatenate([np.asarray(array).reshape(-1) for array in arrays]).astype(dtype)


def _joined_offsets(offsets: Sequence[Array]) -> Int32:
    """Offsets of spans that stand one after the other."""
    return _joined([np.zeros(1, np.int32), np.cumsum(np.concatenate([np.diff(part) for part in offsets]))])


def _machine_arrays(parts: Sequence[Part], bases: _Bases, exits: int) -> dict[str, Array]:
    machines = [machine for machine, _ in parts]
    ends = [end_states(machine) for machine in machines]
    returns = []
    for machine, base in zip(machines, bases.states, strict=False):
        wide = np.full((machine.sites, exits), -1, np.int32)
        wide[:, :machine.returns.shape[1]] = machine.returns
        returns.append(np.where(wide >= 0, wide + base, -1))
    numbered = list(zip(machines, bases.states, bases.cells, bases.sites, strict=False))
    return {
        "table": _joined([machine.table for machine in machines]),
        "byte_class": _joined([machine.byte_class for machine in machines], np.uint8),
        "state_grammar": np.repeat(np.arange(len(machines), dtype=np.int32), np.diff(bases.states)),
        "state_row": _joined([cell + machine.classes * np.arange(machine.states) for machine, _, cell, _ in numbered]),
        "eager_exit": _joined([np.where(end, machine.exits, -1) for machine, end in zip(machines, ends, strict=True)]),
        "lazy_exit": _joined([np.where(end, -1, machine.exits) for machine, end in zip(machines, ends, strict=True)]),
        "accepting": _joined([machine.accepting for machine in machines], np.uint8),
        "grammar_states": np.array([machine.states for machine in machines], np.int32),
        "grammar_base": np.array(bases.states[:-1], np.int32),
        "grammar_edges": np.array(bases.edges[:-1], np.int32),
        "edge_target": _joined([machine.edge_target + base for machine, base, _, _ in numbered]),
        "edge_push_offsets": _joined_offsets([machine.edge_push_offsets for machine in machines]),
        "edge_pushes": _joined([machine.edge_pushes + site for machine, _, _, site in numbered]),
        "returns": _joined(returns),
    }


def _row_arrays(parts: Sequence[Part], bases: _Bases) -> dict[str, Array]:
    rows: list[RowPatterns] = [row_patterns(binding) for _, binding in parts]
    pattern_bases = _running(len(row.offsets) - 1 for row in rows)
    numbered = list(zip(parts, rows, range(len(parts)), strict=True))
    return {
        "state_pattern": _joined([row.pattern.astype(np.int32) + base for row, base in zip(rows, pattern_bases, strict=False)]),
        "pattern_offsets": _joined_offsets([row.offsets for row in rows]),
        "pattern_actions": _joined([row.actions for row in rows]),
        # where the value follows its state it is one, and both move by the same base
        "pattern_base": _joined([np.where(row.follows != 0, row.base, bases.value(number, row.base, machine.states))
                                 for (machine, _), row, number in numbered]),
        "pattern_follows": _joined([row.follows for row in rows]),
    }


def _record_arrays(parts: Sequence[Part], bases: _Bases) -> dict[str, Array]:
    heads, leaves, landings, used = [], [], [], 0
    for number, (machine, binding) in enumerate(parts):
        kind, sites = binding.record_kind, machine.sites
        heads.append(np.where(kind == MOVE, binding.record_head + bases.states[number], binding.record_head))
        leaving = np.flatnonzero(kind != MOVE)
        leave = np.full(len(kind), -1, np.int64)
        leave[leaving] = used + sites * np.arange(len(leaving)) - bases.sites[number]
        leaves.append(leave)
        landings.append(bases.value(number, _landings(machine, binding, leaving), machine.states))
        used += sites * len(leaving)
    pairs = list(zip((binding for _, binding in parts), bases.sites, strict=False))
    return {
        "record_kind": _joined([binding.record_kind for binding, _ in pairs], np.uint8),
        "record_head": _joined(heads), "record_leave": _joined(leaves), "landings": _joined(landings),
        "record_push_offsets": _joined_offsets([binding.record_push_offsets for binding, _ in pairs]),
        "record_pushes": _joined([binding.record_pushes + site for binding, site in pairs]),
    }


def _landings(machine: Machine, binding: Binding, leaving: npt.NDArray[np.intp]) -> Int32:
    """int32 ``[leaving, sites]``: the value that each leaving record becomes when each call site is popped; -1 where that is dead."""
    if not machine.sites:
        return np.zeros((len(leaving), 0), np.int32)
    landed: Int32 = machine.returns[:, binding.record_head[leaving]].T.copy()
    functions = np.arange(len(binding.suffix_offsets) - 1, dtype=np.int64)
    # functions one after the other and states rising within each: the keys rise
    keys = functions.repeat(np.diff(binding.suffix_offsets)) * machine.states + binding.suffix_states
    exposed = np.flatnonzero(binding.record_kind[leaving] == EXPOSED)
    if not len(exposed):
        return landed
    if not len(keys):
        landed[exposed] = -1
        return landed
    asked = binding.record_function[leaving[exposed]].astype(np.int64)[:, None] * machine.states + landed[exposed]
    places = np.minimum(keys.searchsorted(asked), len(keys) - 1)
    landed[exposed] = np.where((keys[places] == asked) & (landed[exposed] >= 0), binding.suffix_values[places], -1)
    return landed


def _rounds(parts: Sequence[Part], bases: _Bases, landings: Int32) -> int:
    """The longest chain of leaving records, each the landing of the one before; at most as long as a stack is deep, and one more."""
    depth = np.zeros(bases.states[-1] + bases.records[-1], np.int32)
    at, used, most = bases.states[-1], 0, 0
    blocks = []
    for machine, binding in parts:
        leaving = at + np.flatnonzero(binding.record_kind != MOVE)
        depth[leaving] = most = 1
        if machine.sites and len(leaving):
            blocks.append((leaving, np.maximum(landings[used:used + len(leaving) * machine.sites], 0).reshape(len(leaving), -1)))
        used += len(leaving) * machine.sites
        at += len(binding.record_kind)
    for _ in range(CAPACITY):
        for leaving, values in blocks:
            depth[leaving] = depth[values].max(axis=1) + 1
        deepest = int(depth.max(initial=0))
        if deepest == most:
            break
        most = deepest
    return min(most, CAPACITY + 1)


def _vocabulary_arrays(parts: Sequence[Part], vocabulary: Vocabulary) -> dict[str, Array]:
    actions = np.zeros((len(parts), vocabulary.size), np.int32)
    for row, (_, binding) in zip(actions, parts, strict=True):
        if len(binding.run_starts):
            row[vocabulary.byte_order] = binding.run_action.repeat(np.diff(binding.run_starts, append=len(vocabulary.byte_order)))
    stops = np.zeros(vocabulary.size, np.uint8)
    stops[list(vocabulary.stop_token_ids)] = 1
    return {"token_offsets": np.asarray(vocabulary.token_offsets, np.int32), "token_bytes": np.asarray(vocabulary.token_bytes),
            "token_action": actions.reshape(-1), "stops": stops}


def _overlay(parts: Sequence[Part], vocabulary: Vocabulary) -> int:
    """The most call sites that the bytes of one token push, whatever they pop in between."""
    most = 0
    for machine, _ in parts:
        if not machine.sites:
            continue
        pushes = np.zeros(machine.states + len(machine.edge_target), np.int64)
        pushes[machine.states:] = np.diff(machine.edge_push_offsets)
        weight = pushes[np.maximum(machine.table, 0)] * (machine.table >= 0)
        total = np.concatenate(([0], np.cumsum(weight.max(axis=0)[machine.byte_class[vocabulary.token_bytes]])))
        most = max(most, int((total[vocabulary.token_offsets[1:]] - total[vocabulary.token_offsets[:-1]]).max(initial=0)))
    return most
