"""Scalar conditions folded bottom-up: the DFA of a formula from those of its parts, minimal at every step.

In: a formula over one scalar type's atoms, and the DFA of each atom. Out: the minimal DFA of the words of a universe that satisfy it,
label 0. The product of all atoms at once (``algebra.product``) is faster where its tuples are few, which is nearly always; here a dozen
patterns under alternatives and negations stay small because what a part of the formula rules out is gone before the next is looked at. The
smallest parts of a conjunction or disjunction are combined first, so the cost is that of pairwise products of minimal automata.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas
from stcc.compiler.options import Deadline


class Folding:
    """Folds formulas of one type; parts that formulas share are folded once."""

    def __init__(
        self, formulas: Formulas, atom: Callable[[int], Dfa], universe: Dfa, *, max_states: int, deadline: Deadline | None = None
    ) -> None:
        self._formulas, self._atom, self._universe = formulas, atom, universe
        self._intersect = partial(algebra.intersect, max_states=max_states, deadline=deadline)
        self._union = partial(algebra.union, max_states=max_states, deadline=deadline)
        self._difference = partial(algebra.difference, max_states=max_states, deadline=deadline)
        self._known: dict[int, Dfa] = {FALSE: algebra.literals({}), TRUE: universe}

    def dfa(self, formula: int) -> Dfa:
        """The words of the universe that satisfy ``formula``. Raises BudgetError where a product needs more than ``max_states`` states."""
        known = self._known.get(formula)
        if known is None:
            known = self._known[formula] = self._folded(formula)
        return known

    def _folded(self, formula: int) -> Dfa:
        formulas = self._formulas
        if formula in formulas.atoms(formula):
            return self._intersect(self._atom(formula), self._universe)
        parts = formulas.conjuncts(formula)
        if len(parts) > 1:
            return self._all(parts)
        opposite = formulas.negation(formula)
        denied = formulas.conjuncts(opposite)
        if len(denied) > 1:
            return self._smallest_first([self.dfa(formulas.negation(part)) for part in denied], self._union)
        return self._difference(self._universe, self._atom(opposite))

    def _all(self, parts: Sequence[int]) -> Dfa:
        """A conjunction: the negated atoms are taken away last, so that they need no complement of their own."""
        formulas = self._formulas
        denied = [part for part in parts if formulas.negation(part) in formulas.atoms(part)]
        kept = [self.dfa(part) for part in parts if part not in denied]
        left = self._smallest_first(kept, self._intersect) if kept else self._universe
        for part in denied:
            left = self._difference(left, self._atom(formulas.negation(part)))
        return left

    @staticmethod
    def _smallest_first(dfas: Sequence[Dfa], combine: Callable[[Dfa, Dfa], Dfa]) -> Dfa:
        heap = [(dfa.states, place, dfa) for place, dfa in enumerate(dfas)]
        heapq.heapify(heap)
        place = len(heap)
        while len(heap) > 1:
            both = combine(heapq.heappop(heap)[2], heapq.heappop(heap)[2])
            heapq.heappush(heap, (both.states, place, both))
            place += 1
        return heap[0][2]
