"""A logits processor for mlx-lm's own loops that keeps its state on the device.

In: ``DeviceTables``, the number of a grammar in them, and at every step the tokens so far and the logits of the next one, as
``mlx_lm.generate`` passes them to the entries of ``logits_processors``. Out: the logits with ``-inf`` where the grammar allows no token.
One processor decodes one output; ``stream_generate`` and ``generate_step`` take it in a list, ``BatchGenerator.insert`` one list a prompt,
so that every row has a grammar of its own and joins and leaves when it likes.

Nothing in a call reads a device value. The state vector is advanced lazily by the token that was sampled last, how far the output has come
is told by the *length* of the tokens, and what goes wrong is kept on the device: it leaves only stop tokens, so that the loop ends by
itself, and ``outcome`` says why afterwards. With ``plans`` a step where the grammar forces text allows its canonical token alone, and
the boundary cover narrows the others: the tokens are then those of ``stcc.runtime.decode.generate(forcing="step")`` (Theorem 19).

    tokens  prompt          prompt t1           prompt t1 t2        length alone says which step this is
    state   initial    ->   advance(., t1)  ->  advance(., t2)      the last ``REWIND`` are kept: speculative decoding takes tokens back

Cost: one mask and one advance of ``stcc.runtime.device`` a token, and some ten operations on ``[1, head]``.

>>> tables = build_tables([(grammar.machine, grammar.binding)], vocabulary)                                       # doctest: +SKIP
>>> processor = GrammarProcessor(tables)                                                                          # doctest: +SKIP
>>> for response in stream_generate(model, tokenizer, prompt, logits_processors=[processor]): ...                 # doctest: +SKIP
>>> processor.outcome().reason                                                                                    # doctest: +SKIP
'stop'
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from stcc.runtime.decoding.errors import DecodeError, NarrowHeadError
from stcc.runtime.device.constraint import DEAD_END, NESTING, NOT_FINITE, SOUND, CanonicalPlans, canonical_plans, device_constraint
from stcc.runtime.device.tables import ENDED, TERMINATED, DeviceTables

Reason = Literal["open", "complete", "stop", "not_finite", "dead_end", "nesting"]
"""``open``: the text could go on, the loop's token limit ended it. ``complete``: only a stop token may follow. ``stop``: one did.
``not_finite``: the logits held NaN, or no finite one where a token is allowed. ``dead_end``: no token of the vocabulary may follow.
``nesting``: likewise, with so many of the 64 call sites of a state vector in use that a token may not have fitted."""

REWIND = 256
"""Steps back that the tokens may be cut: more than speculative decoding drafts at once; 0.3 KB each."""
_FAULTS: dict[int, Reason] = {NOT_FINITE: "not_finite", DEAD_END: "dead_end", NESTING: "nesting"}

__all__ = ["CanonicalPlans", "GrammarProcessor", "Outcome", "ProcessorError", "Reason", "canonical_plans"]


class ProcessorError(DecodeError):
    """A processor used in a way that it cannot follow."""


@dataclass(frozen=True)
class Outcome:
    """How an output stands.

    Attributes:
        reason: see ``Reason``.
        valid: whether the text so far, stop tokens left out, is a whole output of the grammar.
    """

    reason: Reason
    valid: bool


class GrammarProcessor:
    """Constrains one output of mlx-lm; see the module's text.

    The model's stop tokens (``tokenizer.eos_token_ids``, ``BatchGenerator(stop_tokens=..)``) must hold the vocabulary's, or the loop goes
    on after the end, with stop tokens only. A head wider than the vocabulary is padding and never chosen.

    The context may be cut by up to ``REWIND`` tokens and go on with others, as mlx-lm's speculative decoding does; what is left must be the
    context seen before.
    """

    def __init__(self, tables: DeviceTables, grammar: int = 0, prompt_length: int | None = None,
                 plans: CanonicalPlans | None = None) -> None:
        """Put the tables on the device, unless another processor of the same tables did.

        Args:
            tables: of one or more grammars, made by ``build_tables``.
            grammar: the number of this output's grammar in them.
            prompt_length: tokens that are not the grammar's; None for all that the first call shows. Fewer continue an output.
            plans: enforce canonical tokens; made by ``canonical_plans`` of the same grammars and kept with the tables.

        Raises:
            ProcessorError: there is no such grammar, the plans are of other grammars, the length is negative, or the vocabulary has no
                stop token to end an output with.
        """
        if not 0 <= grammar < tables.grammars:
            raise ProcessorError(f"there is no grammar {grammar}: the tables hold {tables.grammars}", "number them from 0")
        if prompt_length is not None and prompt_length < 0:
            raise ProcessorError(f"a prompt of {prompt_length} tokens is not possible", "leave it out, or count the prompt's tokens")
        if plans is not None and (len(plans.cover), len(plans.lengths)) != (tables.states, tables.vocabulary_size):
            raise ProcessorError("the plans are of other grammars than the tables", "make both from the same list of grammars")
        if not tables.arrays["stops"].any():
            raise ProcessorError("the vocabulary has no stop token, so the loop could never end", "prepare it with stop tokens")
        self._constraint = device_constraint(tables, plans)
        self._prompt_length = prompt_length
        self._length = 0  # of the context that the newest step belongs to
        self._start = self._constraint.start(grammar)
        self._steps = deque([self._start], REWIND)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The logits that the grammar allows, floating ``[1, head]``, of the same type; lazily.

        Args:
            tokens: integers ``[length]``, the prompt and the output so far.
            logits: floating ``[1, head]``, of the next token.

        Raises:
            NarrowHeadError: the model scores fewer tokens than the vocabulary has.
            ProcessorError: the logits are not of one row, or the context was cut by more than ``REWIND`` or into the prompt.
        """
        size = self._constraint.tables.vocabulary_size
        if logits.ndim != 2 or logits.shape[0] != 1:
            raise ProcessorError(f"logits of shape {tuple(logits.shape)} are not of one output", "give every row a processor of its own")
        if logits.shape[-1] < size:
            raise NarrowHeadError(logits.shape[-1], size)
        self._go_to(tokens)
        self._steps[-1], limited = self._constraint.limit(self._steps[-1], logits)
        found: mx.array = limited
        return found

    def outcome(self) -> Outcome:
        """How the output stands after the tokens of the last call. Waits for the device: ask once the loop has ended."""
        step, arrays = self._steps[-1], self._constraint.tables.arrays
        mx.eval(step)
        q, used, fault = int(step.state[0, 0].item()), int(step.state[0, 1].item()), int(step.fault.item())
        valid = q in (ENDED, TERMINATED) or (used == 0 and bool(arrays["accepting"][q]))
        if fault != SOUND:
            return Outcome(_FAULTS[fault], valid)
        if q == TERMINATED:
            return Outcome("stop", valid)
        row = arrays["pattern_offsets"][arrays["state_pattern"][max(q, 0)]:][:2]
        return Outcome("complete" if q == ENDED or (valid and row[0] == row[1]) else "open", valid)

    def _go_to(self, tokens: mx.array) -> None:
        """Make the newest step that of ``tokens``; the last token is always read again, the others only where they are new."""
        length = int(tokens.shape[0])
        if self._prompt_length is None:
            self._prompt_length = length
        if length < self._prompt_length:
            raise ProcessorError(f"the context has {length} tokens and its prompt had {self._prompt_length}",
                                 "make a processor for each output")
        if length == self._prompt_length:
            self._steps = deque([self._start], REWIND)
            self._length = length
        self._length = max(self._length, self._prompt_length)
        self._forget(self._length - length + (length > self._prompt_length))
        while self._length < length:
            self._steps.append(self._constraint.after(self._steps[-1], tokens[self._length:self._length + 1]))
            self._length += 1

    def _forget(self, steps: int) -> None:
        """Drop the newest steps; none for a number below 1."""
        if steps >= len(self._steps):
            raise ProcessorError(f"the context was cut by {steps - 1} tokens; at most {len(self._steps) - 2} can be taken back",
                                 "make a processor for each output")
        for _ in range(steps):
            self._steps.pop()
            self._length -= 1
