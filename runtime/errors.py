"""What the runtime refuses, and why: every error says what was given, what is possible and what to do next.

They subclass ``ValueError``, as the errors of the other rooms do. A broken file gives ``stcc.formats.FormatError``, a vocabulary that an
artifact is not bound to gives ``stcc.formats.VocabularyMismatch``.
"""

from __future__ import annotations


class ConstraintError(ValueError):
    """A call that the runtime cannot answer as asked. Base of the errors below.

    Attributes:
        message: what is wrong, one sentence.
        hint: what to do next, one sentence; empty where the message says it all.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(f"{message} ({hint})" if hint else message)

    def to_dict(self) -> dict[str, str]:
        """The error as plain data, for ``--json``."""
        return {"error": type(self).__name__, "message": self.message, "hint": self.hint}


class TokenOutOfRange(ConstraintError):  # noqa: N818 - named for what happened, as VocabularyMismatch is
    """A token id outside ``[0, size)``.

    Attributes:
        token_id: the id given.
        size: ids of the vocabulary are ``0 .. size - 1``.
    """

    def __init__(self, token_id: int, size: int) -> None:
        self.token_id, self.size = token_id, size
        super().__init__(f"token id {token_id} is not in the vocabulary: ids run from 0 to {size - 1}",
                         "is the model's vocabulary the one the artifact is bound to?")


class BudgetTooSmall(ConstraintError):  # noqa: N818
    """No valid output fits in the token budget (Theorem 21: fewer tokens than ``need`` never reach a valid ending).

    Attributes:
        max_tokens: the budget given.
        need: fewest tokens of a valid output.
    """

    def __init__(self, max_tokens: int, need: int) -> None:
        self.max_tokens, self.need = max_tokens, need
        super().__init__(f"no valid output fits in {max_tokens} tokens: the shortest needs {need}", f"raise max_tokens to at least {need}")


class BudgetUnavailable(ConstraintError):  # noqa: N818
    """A token budget for a grammar whose budgets cannot be kept.

    Here, because the binding has no needs: they were too large to store (``stcc.compiler.binding.need``).
    """

    def __init__(self, message: str = "a token budget cannot be kept: the binding has no needs, which were too large to store",
                 hint: str = "leave max_tokens out, or split the schema and lower its largest maxLength or maxItems") -> None:
        super().__init__(message, hint)


class BitmaskError(ConstraintError):
    """A bitmask or logits array whose type or shape does not fit."""


class VocabularyRequired(ConstraintError):  # noqa: N818
    """A question about tokens asked of a grammar that was loaded without a vocabulary."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name or 'the grammar'} was loaded without a vocabulary, so it knows bytes only",
                         "give one: load(source, vocabulary=Vocabulary.load('model.stv'))")


class RollbackError(ConstraintError):
    """A rollback by more steps than were accepted.

    Attributes:
        steps: the steps asked for.
        accepted: steps there are.
    """

    def __init__(self, steps: int, accepted: int) -> None:
        self.steps, self.accepted = steps, accepted
        super().__init__(f"cannot roll back {steps} steps: {accepted} were accepted")
