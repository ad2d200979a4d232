"""Token actions: what every token of a vocabulary does to the machine from every state at once, exactly, at any stack depth.

In: a machine and a vocabulary trie. Out: the action of each token and each state's live actions, as the arrays of
``stcc.formats.binding.Binding``. After it: applying a token by its action equals stepping its bytes, for every state and every stack.

A token matters only through the function it induces on states, and few functions exist (some hundreds for 150,000 tokens). A trie
node's function is its parent's, then one byte class; so the walk goes level by level and is one look-up a node in the memo
``(function, class) -> function``; only unknown pairs are worked out, by ``stcc.compiler.binding.values``:

      trie            function                      with "  closing a string that ends its object at }
      +-- "           q7 -> q9
      |   +-- }       q7 -> popped(0)               the rule is closed
      |       +-- ]   q7 -> exposed(0, f)           f = {q3: q4}: on return state q3 the rest, ], leads to q4

Cost: O(trie nodes) gathers of 4 bytes + O(live entries of the distinct pairs). Nothing is kept per token but its action, run-length
coded in the byte order of the vocabulary, where neighbours share prefixes.

Measured on Llama-3's vocabulary (128,000 tokens, 274,521 nodes), one slow core: 95 states 6 ms, 2,032 states 12 ms, any JSON 9 ms,
twelve strings of 100 characters (9,700 states, 721,000 entries) 70 ms. 17,000 states of open objects whose free keys must not spell a
declared one have 13 million entries, of which 1.2 million are listed (``defaults``): 0.5 s. What costs more is calls: 1,900 call sites and
the tokens that open them make 121,000 records, 2 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stcc.compiler.binding.interning import DEAD, MAX_ENTRIES, Records
from stcc.compiler.binding.values import DEAD_VALUE, Algebra
from stcc.compiler.options import Deadline
from stcc.formats.coding import offsets, spread
from stcc.formats.distinct import distinct, first_uses_of
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import RowPatterns
from stcc.formats.vocabulary import Vocabulary

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


_LONG_PARTS = 100  # entries a function above which transposing function by function beats sorting


@dataclass(frozen=True, eq=False)
class TokenActions:
    """The action sections of a ``Binding``; the arrays are documented there, ``rows`` at ``RowPatterns``: one pattern a state.

    Actions are numbered by first appearance in byte order (0 is dead), records and suffix functions by first use from the expanded rows.
    """

    actions: int
    run_starts: Int32
    run_action: Int32
    rows: RowPatterns
    record_kind: npt.NDArray[np.uint8]
    record_head: Int32
    record_function: Int32
    record_push_offsets: Int32
    record_pushes: Int32
    suffix_offsets: Int32
    suffix_states: Int32
    suffix_values: Int32


def token_actions(machine: Machine, vocabulary: Vocabulary, deadline: Deadline | None = None, *,
                  max_entries: int = MAX_ENTRIES) -> TokenActions:
    """The actions of all tokens of ``vocabulary`` on ``machine``.

    Raises BudgetError when the functions have more than ``max_entries`` live entries in all, or past the deadline.
    """
    algebra = Algebra(machine, deadline, max_entries)
    functions = _walk(algebra, vocabulary)[vocabulary.token_node]
    changes = np.concatenate((np.ones(min(1, len(functions)), np.bool_), functions[1:] != functions[:-1]))
    run_starts = np.flatnonzero(changes).astype(np.int32)
    owned, run_action = _by_first_appearance(functions[run_starts])
    algebra.finish(owned)
    _look(deadline)
    rows = _rows(algebra, owned)
    _look(deadline)
    return _with_records(algebra, len(owned), run_starts, run_action, rows)


def _look(deadline: Deadline | None) -> None:
    if deadline is not None:
        deadline.check_now()


def _walk(algebra: Algebra, vocabulary: Vocabulary) -> Int32:
    """int32 ``[nodes]``: the function of every trie node."""
    parents, levels = vocabulary.trie_parent, vocabulary.trie_levels.tolist()
    classes = algebra.machine.byte_class.astype(np.int32)[vocabulary.trie_byte]
    width = algebra.machine.classes
    functions = np.empty(len(parents), np.int32)
    functions[0] = algebra.identity
    for low, high in zip(levels[1:], levels[2:], strict=False):
        pairs = functions[parents[low:high]]
        pairs *= width
        pairs += classes[low:high]
        found = algebra.following.ravel().take(pairs)
        unknown = found < 0
        if unknown.any():
            algebra.resolve(distinct(pairs[unknown]).astype(np.int64))
            found = algebra.following.ravel().take(pairs)
        functions[low:high] = found
    return functions


def _by_first_appearance(functions: Int32) -> tuple[list[int], Int32]:
    """The functions that runs of tokens own, dead first, then in order of first appearance; each run's index among them."""
    found, first, inverse = np.unique(functions, return_index=True, return_inverse=True)
    first[found == DEAD] = -1
    order = np.argsort(first, kind="stable")
    owned = found[order].tolist()
    missing = 0 if owned and owned[0] == DEAD else 1
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(missing, missing + len(order), dtype=np.int32)
    return [DEAD] * missing + owned, number[inverse]


def _rows(algebra: Algebra, owned: list[int]) -> RowPatterns:
    """The owned functions, transposed: per state its actions, rising, and their values, as far as they are not its default's."""
    states = algebra.machine.states
    bounds, actions, values = _transposed(algebra, owned)
    default = algebra.default if algebra.has_defaults else None
    return RowPatterns(np.arange(states, dtype=np.int32), bounds, actions, values, np.zeros(len(values), np.int32), default)


def _transposed(algebra: Algebra, owned: list[int]) -> tuple[Int32, Int32, Int32]:
    """Offsets by state, actions, values."""
    parts = [algebra.functions.rows[function] for function in owned]
    total = sum(map(len, parts))
    if total < _LONG_PARTS * len(parts):
        entries = np.concatenate(parts)
        actions = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        order = np.argsort(entries[:, 0], kind="stable")
        return offsets(np.bincount(entries[:, 0], minlength=algebra.machine.states)), actions[order], entries[order, 1]
    counts = np.zeros(algebra.machine.states, np.int64)
    for part in parts:  # a state once each
        counts[part[:, 0]] += 1
    bounds = offsets(counts)
    row_actions, row_values, free = np.empty(total, np.int32), np.empty(total, np.int32), bounds[:-1].copy()
    for action, part in enumerate(parts):  # long parts: each goes to the next free places of its states, linear in all
        places = free[part[:, 0]]
        row_actions[places] = action
        row_values[places] = part[:, 1]
        free[part[:, 0]] = places + 1
    return bounds, row_actions, row_values


def _with_records(algebra: Algebra, actions: int, run_starts: Int32, run_action: Int32, rows: RowPatterns) -> TokenActions:
    """Number the records and suffix functions that the rows reach, by first use, and write them as arrays."""
    states, records = algebra.machine.states, algebra.records
    heads, stacks, functions = records.columns()
    renumber = np.full(states + len(records) + 1, DEAD_VALUE, np.int32)  # the last one is dead
    renumber[:states] = np.arange(states)
    used: list[Int32] = []
    numbered = 0

    def number(values: Int32) -> None:
        nonlocal numbered
        fresh = first_uses_of(values[renumber[values] < 0])
        renumber[fresh] = np.arange(states + numbered, states + numbered + len(fresh))
        used.append(fresh - states)
        numbered += len(fresh)

    number(_records_in_order(rows, states, actions))
    new_function = np.full(len(algebra.functions) + 1, -1, np.int32)  # the last one is none
    suffixes: list[Int32] = []
    for part in used:  # which grows
        for function in functions[part[functions[part] >= 0]].tolist():
            if new_function[function] < 0:
                new_function[function] = len(suffixes)
                suffixes.append(algebra.functions.rows[function])
                values = suffixes[-1][:, 1]
                number(values[values >= states])
    order = np.concatenate(used)
    push_offsets, pushes = _pushes(records, stacks[order])
    suffix = np.concatenate([np.zeros((0, 2), np.int32), *suffixes])
    return TokenActions(
        actions, run_starts, run_action, replace(rows, base=renumber[rows.base]),
        np.array(records.kind, np.uint8)[order], heads[order], new_function[functions[order]],
        push_offsets, pushes,
        offsets(np.array([len(part) for part in suffixes], np.int64)), np.ascontiguousarray(suffix[:, 0]), renumber[suffix[:, 1]],
    )


def _pushes(records: Records, stacks: Int32) -> tuple[Int32, Int32]:
    """The sites of the stacks, one after the other: where each stack's begin, and the sites."""
    depths = np.array([len(stack) for stack in records.stacks], np.int32)
    sites = np.array([site for stack in records.stacks for site in stack], np.int32)
    bounds = offsets(depths[stacks])
    return bounds, sites[spread(offsets(depths)[stacks], depths[stacks], bounds)]


def _records_in_order(rows: RowPatterns, states: int, actions: int) -> Int32:
    """The record values in the order in which the expanded rows first have them; a value may come again."""
    places = np.flatnonzero(rows.base >= states)
    values = rows.base[places]
    if rows.default is None:
        return values
    keys = _entry_keys(rows, actions)
    state, action = np.divmod(keys[places], actions)
    inherited, first = _first_heirs(rows.default, keys, state, action, actions)
    order = np.argsort(np.concatenate((keys[places], first)), kind="stable")
    return np.concatenate((values, values[inherited]))[order]


def _entry_keys(rows: RowPatterns, actions: int) -> Int64:
    """int64 ``[entries]``: ``state * actions + action`` of each entry, rising."""
    state = np.repeat(np.arange(len(rows.pattern), dtype=np.int64), np.diff(rows.offsets))
    state *= actions
    state += rows.actions
    return state


def _first_heirs(default: Int32, keys: Int64, state: Int64, action: Int64, actions: int) -> tuple[Int64, Int64]:
    """Which of the entries ``(state, action)`` another state has by default, and the key of the entry at the first such state."""
    heirs = np.flatnonzero(default != np.arange(len(default)))
    heirs = heirs[np.argsort(default[heirs], kind="stable")]
    next_heir = default[heirs].searchsorted(state)
    last_heir = default[heirs].searchsorted(state, side="right")
    found = np.full(len(state), -1, np.int64)
    waiting = np.flatnonzero(next_heir < last_heir)
    while len(waiting):  # a turn for each heir in a row that has an entry of its own
        wanted = heirs[next_heir[waiting]] * actions + action[waiting]
        places = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
        free = keys[places] != wanted
        found[waiting[free]] = wanted[free]
        waiting = waiting[~free]
        next_heir[waiting] += 1
        waiting = waiting[next_heir[waiting] < last_heir[waiting]]
    inherited = np.flatnonzero(found >= 0)
    return inherited, found[inherited]
