"""How a history is written for a model: token sequences of the opening, of each action's label and of each observation.

A model reads

    opening   label of the first action   note of what was observed   label of the second action   ...

and an action is scored as its *whole label, its end included*. The end (a line break by default) is part of what is scored: the
probability of ``READ`` is that of writing ``READ`` and then ending the line, so that ``READ`` is not favoured over ``READ_ALL`` for being a
beginning of it. Every label has one token sequence, the tokenizer's own for label and end together. Checked here: no label's sequence is a
beginning of another's. Writing one label and writing another are then disjoint events, and their probabilities are the model's own.

Pieces are tokenised one by one, so that the tokens of a history are a beginning of the tokens of every longer one, and what a model has
read of the shorter one need not be read again.

>>> from types import SimpleNamespace
>>> graph = SimpleNamespace(actions=("READ", "STOP"), observations=("", "empty"))
>>> written = Transcript.of(graph, lambda text: list(text.encode()), [0])
>>> bytes(written.context(((0, 1), (0, 0))))
b'\\x00READ\\n> empty\\nREAD\\n'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.histories import History

END = "\n"
NOTE = "> {}\n"
Encode = Callable[[str], Sequence[int]]


class LabelError(ConstraintError):
    """Labels that cannot be told apart, or that a tokenizer makes nothing of."""


@dataclass(frozen=True)
class Transcript:
    """See the module's text.

    Attributes:
        opening: the prompt's tokens, at least one.
        labels: per action, its tokens, end included.
        notes: per observation, its tokens; none for the empty one.
    """

    opening: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]
    notes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """LabelError unless the labels are told apart; see the module's text."""
        if not self.opening or not all(self.labels):
            raise LabelError("the opening and every label take a token at least", "give a prompt, and labels that the tokenizer spells")
        order = sorted(range(len(self.labels)), key=self.labels.__getitem__)
        for one, other in zip(order, order[1:], strict=False):  # beginnings come right before what they begin
            if self.labels[other][:len(self.labels[one])] == self.labels[one]:
                raise LabelError(f"the tokens of label {one} begin those of label {other}, so that their chances overlap",
                                 "give other labels, or an end that no label holds")

    @staticmethod
    def of(graph: Any, encode: Encode, opening: Sequence[int], *, labels: Mapping[str, str] | None = None, end: str = END,
           note: str = NOTE) -> Transcript:
        """The transcript of a policy.

        Args:
            graph: a ``PolicyGraph``: names of actions and observations.
            encode: text to tokens, nothing added before or after.
            opening: the prompt's tokens.
            labels: how actions are written, by name; by default as they are called.
            end: ends a label; no label holds it.
            note: how what was observed is written; ``{}`` is its name.

        Raises:
            LabelError: a label for an action that there is not, an empty end or one that a label holds, or labels not told apart.
        """
        unknown = sorted((labels or {}).keys() - set(graph.actions))
        if unknown:
            raise LabelError(f"there is no action {unknown[0]}", f"known are {', '.join(graph.actions)}")
        written = [(labels or {}).get(name, name) for name in graph.actions]
        if not end or any(end in label for label in written):
            raise LabelError(f"the end {end!r} is empty, or a label holds it", "take another end")
        return Transcript(tuple(map(int, opening)), tuple(tuple(map(int, encode(label + end))) for label in written),
                          tuple(tuple(map(int, encode(note.format(name)))) if name else () for name in graph.observations))

    def context(self, history: History) -> list[int]:
        """The tokens that a model reads before the next action of ``history``."""
        tokens = list(self.opening)
        for action, seen in history:
            tokens += self.labels[action]
            tokens += self.notes[seen]
        return tokens
