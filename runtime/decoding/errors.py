"""What a decode loop refuses before it starts, or cannot go on with."""

from __future__ import annotations

from stcc.runtime.errors import ConstraintError


class DecodeError(ConstraintError):
    """A generation that cannot start or go on as asked. Base of the errors below."""


class EmptyPromptError(DecodeError):
    """There is no token to condition the first one on."""

    def __init__(self) -> None:
        super().__init__("the prompt has no tokens, so the model has nothing to continue", "give at least the begin-of-text token")


class NarrowHeadError(DecodeError):
    """The model scores fewer tokens than the vocabulary has.

    Attributes:
        head: width of the model's logits.
        size: tokens of the vocabulary.
    """

    def __init__(self, head: int, size: int) -> None:
        self.head, self.size = head, size
        super().__init__(f"the model scores {head} tokens and the vocabulary has {size}: they are of different models",
                         "prepare the vocabulary from this model's folder: stcc vocab FOLDER -o model.stv")


class ContextExceeded(DecodeError):  # noqa: N818 - named for what happened, as BudgetTooSmall is
    """The prompt leaves no room in the model's context for a valid output.

    Attributes:
        prompt_tokens: tokens of the prompt.
        context_length: most tokens of prompt and output together.
        need: fewest tokens of a valid output.
    """

    def __init__(self, prompt_tokens: int, context_length: int, need: int) -> None:
        self.prompt_tokens, self.context_length, self.need = prompt_tokens, context_length, need
        super().__init__(f"the prompt has {prompt_tokens} of the {context_length} tokens that the model takes; an output needs {need}",
                         f"shorten the prompt to at most {max(context_length - need, 0)} tokens")
