"""llguidance as a ``Constraint``, so that it decodes in the same loop as our matchers and can be compared with them.

In: a tokenizer's ``tokenizer.json``, the model's vocabulary, and a JSON schema or a pattern. Out: a constraint that masks with llguidance
and, with ``fast_forward``, feeds what llguidance calls fast-forward tokens. llguidance is optional: ``pip install 'stcc[bench]'``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from stcc.formats import Vocabulary
from stcc.runtime.errors import ConstraintError

COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
"""The spelling of JSON that stcc's ``compact`` whitespace has."""


class LlguidanceMissing(ConstraintError):  # noqa: N818 - named for what happened, as DeviceUnavailable is
    """llguidance is not installed."""

    def __init__(self) -> None:
        super().__init__("llguidance, which is compared with, is not installed", "pip install 'stcc[bench]', or leave it out")


class LlguidanceError(ConstraintError):
    """llguidance cannot compile a source."""


class Llguidance:
    """llguidance for one tokenizer. Takes about a second to make."""

    def __init__(self, tokenizer_json: str, vocabulary: Vocabulary) -> None:
        """LlguidanceMissing if it is not installed."""
        try:
            import llguidance
        except ImportError:
            raise LlguidanceMissing from None
        self._module, self.vocabulary = llguidance, vocabulary
        self.tokenizer = llguidance.LLTokenizer(tokenizer_json, n_vocab=vocabulary.size, eos_token=list(vocabulary.stop_token_ids))

    def matcher(self, source: dict[str, Any] | str, fast_forward: bool = False) -> LlguidanceMatcher:
        """A constraint at the start of an output of a JSON schema (compact JSON) or of a pattern.

        Raises:
            LlguidanceError: it does not compile.
        """
        if isinstance(source, str):
            grammar = self._module.LLMatcher.grammar_from_regex(source)
        else:
            grammar = json.dumps({"grammars": [{"json_schema": source | {"x-guidance": COMPACT}}]})
        found = self._module.LLMatcher(self.tokenizer, grammar)
        if found.is_error():
            raise LlguidanceError(f"llguidance does not compile the source: {found.get_error().splitlines()[0]}", "leave it out")
        return LlguidanceMatcher(found, self.vocabulary, fast_forward)


class LlguidanceMatcher:
    """One output under llguidance; a ``Constraint``."""

    def __init__(self, matcher: Any, vocabulary: Vocabulary, fast_forward: bool) -> None:
        self._matcher, self._fast_forward, self._stops = matcher, fast_forward, vocabulary.stop_token_ids
        self._ended = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        for stop in self._stops:
            self._ended[stop >> 5] |= np.uint32(1 << (stop & 31))

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """The mask of the next token; stop tokens alone once the output is over."""
        if self._matcher.is_stopped():
            bitmask[index] = self._ended.view(np.int32)
        else:
            bitmask[index] = np.frombuffer(self._matcher.compute_bitmask(), np.int32)[:bitmask.shape[1]]
        return True

    def accept_token(self, token_id: int) -> bool:
        """Go on by one token; stop tokens where the output may end."""
        if token_id in self._stops:
            return bool(self._matcher.is_accepting())
        return not self._matcher.is_stopped() and bool(self._matcher.consume_token(token_id))

    def forced_tokens(self) -> Sequence[int]:
        """llguidance's fast-forward tokens, if asked for."""
        if not self._fast_forward or self._matcher.is_stopped():
            return ()
        found: list[int] = self._matcher.compute_ff_tokens()
        return found

    def is_accepting(self) -> bool:
        """Whether the output so far is a whole one."""
        return bool(self._matcher.is_accepting())
