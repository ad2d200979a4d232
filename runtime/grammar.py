"""A loaded grammar: an artifact, the vocabulary it is used with, and the tables that all its matchers share.

In: an ``Artifact`` and, for tokens, a ``Vocabulary`` that it is bound to. Out: matchers. Nothing is decoded before it is needed: opening
a grammar costs little, the first mask reads the sections of the binding.

Shared tables are only ever filled with values that depend on their key alone, and dictionaries are safe under the interpreter lock,
so that the matchers of one grammar may run in different threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stcc.runtime.bitmask import allocate_token_bitmask
from stcc.runtime.budget import Needs
from stcc.runtime.errors import BudgetUnavailable, VocabularyRequired
from stcc.runtime.masks import Masks
from stcc.runtime.matcher import Matcher
from stcc.runtime.stack import Configuration, Stacks
from stcc.runtime.token_sets import token_sets

if TYPE_CHECKING:
    from stcc.formats import Artifact, Vocabulary
    from stcc.formats.binding import Binding
    from stcc.formats.machine import Machine
    from stcc.runtime.unique_matcher import UniqueRules

OPENING_TOKENS = 64
"""Tokens that may open an output whose transitions are made beforehand; JSON objects have some twenty."""


class Grammar:
    """See the module's text. Made by ``load``.

    Attributes:
        machine: the machine.
        vocabulary: the vocabulary, None if only bytes are asked about.
        name: what errors call it.
        artifact: where it comes from; None for a bare machine.
    """

    def __init__(self, machine: Machine, binding: Binding | None = None, vocabulary: Vocabulary | None = None, *, name: str = "",
                 artifact: Artifact | None = None) -> None:
        self.machine, self.vocabulary, self.name, self.artifact = machine, vocabulary, name, artifact
        self._binding = binding
        self.stacks = Stacks(machine)
        self.start: Configuration = self.stacks.start()

    @property
    def binding(self) -> Binding:
        """The binding to ``vocabulary``.

        Raises:
            VocabularyRequired: the grammar was loaded without one.
        """
        if self._binding is None:
            raise VocabularyRequired(self.name)
        return self._binding

    @cached_property
    def masks(self) -> Masks:
        """Mask rows and token transitions. VocabularyRequired without a vocabulary."""
        if self.vocabulary is None:
            raise VocabularyRequired(self.name)
        return Masks(self.binding, self.stacks, token_sets(self.vocabulary))

    @cached_property
    def unique(self) -> UniqueRules:
        """What arrays whose items must differ need beside the machine."""
        from stcc.runtime.unique_matcher import UniqueRules

        return UniqueRules(self)

    @cached_property
    def needs(self) -> Needs:
        """Costs of finishing. VocabularyRequired without a vocabulary; BudgetUnavailable where the binding has none."""
        if self.masks.binding.has_no_needs:
            raise BudgetUnavailable
        return Needs(self.machine, self.masks)

    def warm(self) -> None:
        """Do beforehand what decoding would do step by step: mask rows, up to the budgets of ``stcc.runtime.masks``, and the first step.

        Some milliseconds. ``load`` calls it for bindings made in this process. VocabularyRequired without a vocabulary.
        """
        masks = self.masks
        masks.warm()
        matcher = self.matcher()
        opening = matcher.allowed_tokens()[:OPENING_TOKENS].tolist()
        bitmask = allocate_token_bitmask(1, masks.sets.size)
        for token in opening:
            matcher.fill_next_token_bitmask(bitmask)
            matcher.accept_token(token)
            matcher.reset()

    def matcher(self, max_tokens: int | None = None, *, canonical: bool = False) -> Matcher:
        """A matcher at the start of an output.

        Args:
            max_tokens: a budget; masks then keep a valid ending in reach (Theorem 21). Stop tokens are not counted.
            canonical: masks also leave out tokens that end inside what the tokenizer would spell as one (the boundary cover).

        Raises:
            BudgetTooSmall: no valid output fits in ``max_tokens``.
            BudgetUnavailable: the grammar cannot keep a budget.
            VocabularyRequired: a budget or ``canonical`` was asked for, and the grammar has no vocabulary.
        """
        if not len(self.machine.unique):
            return Matcher(self, max_tokens, canonical)
        from stcc.runtime.unique_matcher import UniqueMatcher  # few grammars have such arrays: importing it takes 3 ms

        return UniqueMatcher(self, max_tokens, canonical)

    def need(self) -> int:
        """Fewest tokens of a valid output, stop token not counted. VocabularyRequired without a vocabulary; BudgetUnavailable where
        the binding has no needs.
        """
        return self.needs.need(*self.start)
