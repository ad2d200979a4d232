"""The matcher: one output being decoded, token by token.

In: a ``Grammar``. A matcher holds a configuration (machine state and persistent stack), the tokens left of its budget, and the history
that ``rollback`` undoes. Everything computed is kept in the grammar's shared tables, so a matcher is cheap: make one per request,
``fork`` one per branch (the history is copied, the stack is shared).

Cost: ``accept_token`` and ``fill_next_token_bitmask`` are a few dictionary look-ups once a (state, token) or a (state, stack) was seen
by any matcher of the grammar, plus the copy of the row; the first time a search, or some 10-40 us for a row.

A matcher belongs to one thread at a time; different matchers of one grammar may run in different threads.

>>> import numpy as np
>>> from stcc.runtime import load                                                    # doctest: +SKIP
>>> matcher = load("person.stc", vocabulary=vocabulary).matcher(max_tokens=100)      # doctest: +SKIP
>>> matcher.fill_next_token_bitmask(bitmask); matcher.accept_token(token)            # doctest: +SKIP
"""

from __future__ import annotations

from operator import index as integer
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stcc.formats.binding import UNREACHABLE
from stcc.runtime.errors import BitmaskError, BudgetTooSmall, ConstraintError, RollbackError, TokenOutOfRange, VocabularyRequired
from stcc.runtime.masks import Entry
from stcc.runtime.stack import MOST_FORCED, TERMINATED, Configuration
from stcc.runtime.transitions import STOP

if TYPE_CHECKING:
    from stcc.runtime.grammar import Grammar

_INT32 = np.dtype(np.int32)


class Matcher:
    """See the module's text. Made by ``Grammar.matcher``."""

    __slots__ = ("_canonical", "_history", "_left", "_level", "_max_tokens", "_rows", "_size", "_state", "_states", "_values", "_words",
                 "grammar")

    def __init__(self, grammar: Grammar, max_tokens: int | None = None, canonical: bool = False) -> None:
        self.grammar = grammar
        self._canonical = canonical
        self._states = grammar.machine.states
        self._rows: dict[int, Entry] = {}
        self._values: dict[int, int] = {}
        self._size = self._words = 0
        if grammar.vocabulary is not None:
            masks = grammar.masks
            self._rows, self._values = masks.rows, masks.transitions.values
            self._size, self._words = masks.sets.size, masks.sets.words
        self._max_tokens = max_tokens
        self._left = max_tokens
        # state, level and budget of every step, flat: a tuple a step would be work for the garbage collector
        self._history: list[Any] = []
        self._state, self._level = grammar.start
        if max_tokens is not None:
            need = self.need()
            if need > max_tokens:
                raise BudgetTooSmall(max_tokens, need)
            self._left = self._max_tokens = min(max_tokens, UNREACHABLE - 1)

    # where it stands

    @property
    def state(self) -> int:
        """Machine state; -1 once the text ended by itself, -2 after a stop token."""
        return self._state

    @property
    def stack(self) -> tuple[int, ...]:
        """Call sites on the stack, innermost last."""
        return self._level.sites()

    @property
    def tokens_left(self) -> int | None:
        """What is left of the budget; None without one."""
        return self._left

    @property
    def steps(self) -> int:
        """Number of accepted steps, that is, how many ``rollback`` can undo."""
        return len(self._history) // 3

    def is_accepting(self) -> bool:
        """Whether the output so far is a complete valid one; exactly then stop tokens are allowed (until one is accepted)."""
        state = self._state
        return state < 0 or (self._level.site < 0 and self.grammar.stacks.ends[state] != 0)

    def is_terminated(self) -> bool:
        """Whether a stop token was accepted: no token is allowed any more."""
        return self._state == TERMINATED

    def need(self) -> int:
        """Fewest tokens that finish a valid output from here, stop token not counted; 0 where the output may end.

        Raises:
            VocabularyRequired: the grammar has no vocabulary.
        """
        return self.grammar.needs.need(self._state, self._level)

    def is_narrowed(self) -> bool:
        """Whether the budget takes tokens away here: some token is allowed after which no valid ending fits what is left of it."""
        if self._left is None or self._state < 0:
            return False
        return self.grammar.needs.live_costs(self._state, self._level)[1] > self._left

    # moving

    def accept_token(self, token_id: int) -> bool:
        """Accept one token. Returns False, and changes nothing, if it is not allowed here (or no longer fits the budget).

        Stop tokens are allowed where ``is_accepting`` holds, and cost nothing of the budget. The boundary cover of ``canonical`` is a
        restriction of masks only.

        Raises:
            TokenOutOfRange: there is no such token.
            VocabularyRequired: the grammar has no vocabulary.
        """
        token, state, level, left = integer(token_id), self._state, self._level, self._left
        if not 0 <= token < self._size:
            raise self._no_such_token(token)
        value = self._values.get(state * self._size + token)
        if value is None:
            value = self.grammar.masks.value(state, token)
        if 0 <= value < self._states:
            target, above = value, level
        elif value >= 0:
            landing = self.grammar.masks.land(value, level)
            if landing is None:
                return False
            target, above = landing
        elif value == STOP and state != TERMINATED and self.is_accepting():
            self._history += (state, level, left)
            self._state = TERMINATED
            return True
        else:
            return False
        if left is not None:
            if self.grammar.needs.need(target, above) >= left:
                return False
            self._left = left - 1
        self._history += (state, level, left)
        self._state, self._level = target, above
        return True

    def accept_bytes(self, text: bytes) -> bool:
        """Accept raw bytes, as one step. Returns False, and changes nothing, if some byte is not allowed.

        Bytes cost nothing of a budget, but are refused if no valid ending fits what is left of it. ConstraintError for other types.
        """
        if not isinstance(text, (bytes, bytearray, memoryview)):
            raise ConstraintError(f"accept_bytes takes bytes, not {type(text).__name__}", "encode the text as UTF-8")
        if self._state == TERMINATED:
            return False
        after = self.grammar.stacks.read(self._state, self._level, text)
        if after is None or (self._left is not None and self.grammar.needs.need(*after) > self._left):
            return False
        self._history += (self._state, self._level, self._left)
        self._state, self._level = after
        return True

    def rollback(self, steps: int = 1) -> None:
        """Undo the last ``steps`` accepted tokens (stop tokens included) and ``accept_bytes`` calls.

        Raises:
            RollbackError: fewer were accepted, or ``steps`` is negative.
        """
        if not 0 <= steps <= self.steps:
            raise RollbackError(steps, self.steps)
        if steps:
            start = len(self._history) - 3 * steps
            self._state, self._level, self._left = self._history[start:start + 3]
            del self._history[start:]

    def hasten(self) -> None:
        """Leave no more of the budget than the shortest ending needs, so that the output ends as soon as it validly can.

        ``rollback`` and ``reset`` bring the budget back. VocabularyRequired without a vocabulary.
        """
        need = self.need()
        if need < UNREACHABLE:
            self._left = need

    def reset(self) -> None:
        """Go back to the start, with the whole budget."""
        self._history.clear()
        self._left = self._max_tokens
        self._state, self._level = self.grammar.start

    def fork(self) -> Matcher:
        """An independent matcher in the same configuration, with the same history and budget left."""
        twin = object.__new__(type(self))
        for name in Matcher.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._history = self._history.copy()
        return twin

    # what may follow

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Write the mask of the next token to row ``index``. Returns False if it masks nothing.

        Args:
            bitmask: int32 ``[batch, words]`` (or one row), ``words >= ceil(size / 32)``: bit ``t % 32`` of word ``t // 32`` is token ``t``,
                words beyond the vocabulary are cleared. A NumPy array, or one whose ``.numpy()`` shares its memory (torch on a CPU).
            index: the row.

        Raises:
            BitmaskError: the array has another type, is too narrow, or has no such row.
            VocabularyRequired: the grammar has no vocabulary.
        """
        level = self._level
        entry = None
        if self._left is None and not self._canonical:
            entry = self._rows.get(level.keys.get(self._state, UNREACHABLE))
        if entry is None:
            entry = self._entry()
        try:
            if bitmask.shape[1] == self._words and bitmask.dtype is _INT32:  # identity: NumPy has one object a type
                bitmask[index] = entry[0]
                return entry[1]
        except (AttributeError, IndexError, ValueError):  # ``_fill_other`` says what is wrong with it
            pass
        self._fill_other(bitmask, index, entry[0])
        return entry[1]

    def allowed_tokens(self) -> npt.NDArray[np.int64]:
        """The ids of the tokens that the mask allows, rising. int64 ``[allowed]``."""
        row = self._entry()[0]
        return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))

    def forced_tokens(self) -> list[int]:
        """The canonical tokens that must follow, ready to be accepted one after the other; empty where the model has a choice.

        They are the plans of the states passed through (Theorem 20), as far as the machine accepts them. Under a budget the list stops
        before a token after which no valid ending would fit.

        Raises:
            VocabularyRequired: the grammar has no vocabulary.
        """
        grammar, state, level, left = self.grammar, self._state, self._level, self._left
        binding, masks = grammar.binding, grammar.masks
        tokens: list[int] = []
        while state >= 0 and len(tokens) < MOST_FORCED:
            plan = binding.plan_tokens[binding.plan_offsets[state]:binding.plan_offsets[state + 1]].tolist()
            if not plan:
                break
            for token in plan:
                after = masks.land(masks.value(state, token), level)
                if after is None or (left is not None and grammar.needs.need(*after) > left - len(tokens) - 1):
                    return tokens
                tokens.append(token)
                state, level = after
                if state < 0:
                    break
        return tokens

    def forced_bytes(self) -> bytes:
        """The bytes that must follow, up to the first choice or possible end; works without a vocabulary."""
        return self.grammar.stacks.forced_bytes(self._state, self._level)

    def allowed_bytes(self) -> bytes:
        """The bytes that may follow, rising; works without a vocabulary."""
        return self.grammar.stacks.live_bytes(self._state, self._level).tobytes()

    def configuration(self) -> Configuration:
        """The state and the innermost stack level."""
        return self._state, self._level

    def move_to(self, configuration: Configuration) -> None:
        """Stand at ``configuration`` of the same grammar, as if the output began there: no history, the whole budget."""
        self._history.clear()
        self._left = self._max_tokens
        self._state, self._level = configuration

    # inside

    def _no_such_token(self, token: int) -> ConstraintError:
        if self.grammar.vocabulary is None:
            return VocabularyRequired(self.grammar.name)
        return TokenOutOfRange(token, self._size)

    def _entry(self) -> Entry:
        masks = self.grammar.masks
        if self._left is None and not self._canonical:
            return masks.row(self._state, self._level)
        entry = masks.row(self._state, self._level) if self._left is None else self._within_budget(self._left)
        return self._covering(entry) if self._canonical and self._state >= 0 else entry

    def _within_budget(self, left: int) -> Entry:
        """The row of the tokens after which a valid ending still fits; the plain one where all of them do."""
        masks, state, level = self.grammar.masks, self._state, self._level
        if state < 0:
            return masks.row(state, level)
        costs, most = self.grammar.needs.live_costs(state, level)
        if most <= left:
            return masks.row(state, level)
        actions = masks.live(state)[0][costs <= left]
        return masks.joined(actions, masks.stacks.may_end(state, level)), True

    def _covering(self, entry: Entry) -> Entry:
        """The row without the tokens shorter than the state's boundary cover, unless that would leave no token."""
        masks = self.grammar.masks
        cover = int(masks.binding.cover[self._state])
        if cover <= 1:
            return entry
        row = entry[0] & masks.sets.at_least(cover)
        if not row.any():
            return entry
        if self.is_accepting():
            row |= masks.sets.stops
        return row, True

    def _fill_other(self, bitmask: Any, index: int, row: npt.NDArray[np.int32]) -> None:
        array = bitmask if isinstance(bitmask, np.ndarray) else getattr(bitmask, "numpy", lambda: None)()
        if not isinstance(array, np.ndarray) or array.dtype != _INT32 or array.ndim not in (1, 2):
            given = f"{type(bitmask).__name__} {getattr(bitmask, 'dtype', '')} {getattr(bitmask, 'shape', '')}".rstrip()
            raise BitmaskError(f"the bitmask must be an int32 array [batch, {self._words}], see allocate_token_bitmask; this is a {given}")
        if not array.flags.writeable:
            raise BitmaskError("the bitmask is read-only; pass one that may be written")
        rows = array.reshape(1, -1) if array.ndim == 1 else array
        if rows.shape[1] < self._words:
            raise BitmaskError(f"the bitmask has {rows.shape[1]} words a row; {self._size} tokens need {self._words}")
        if not -len(rows) <= index < len(rows):
            raise BitmaskError(f"the bitmask has {len(rows)} rows; there is no row {index}")
        rows[index, : self._words] = row
        rows[index, self._words:] = 0
