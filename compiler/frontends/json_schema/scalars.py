"""Scalars: the DFA of a string or a number under several exclusive conditions at once.

In: formulas over one scalar type's atoms. Out: one minimal DFA whose label tells which condition holds, by a
reachable product of the atoms' DFAs; texts for which none holds are not accepted. Strings are worked on raw and pass
through the JSON escape step last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, CompileError
from stcc.compiler.escape import json_escape
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.content import content_language
from stcc.compiler.frontends.json_schema.counting import Block, CountedString, Measured, plan
from stcc.compiler.frontends.json_schema.document import utf8
from stcc.compiler.frontends.json_schema.expansion import Expander
from stcc.compiler.frontends.json_schema.finite_numbers import finite_values, joined
from stcc.compiler.frontends.json_schema.folding import Folding
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.regex.language import compile_pattern
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.options import Deadline
from stcc.compiler.scalars import formats, numbers
from stcc.compiler.utf8 import character_view

_ESCAPES = 5
"""States that spelling escapes adds to a character, at least."""
AT_ONCE = 10_000
"""Products of more than two atoms that need more tuples than this are folded part by part instead (``folding.py``)."""


class ScalarLanguages:
    """DFAs of scalar conditions, memoised for one compile."""

    def __init__(self, expander: Expander, deadline: Deadline) -> None:
        self._expander, self._formulas, self._options, self._deadline = expander, expander.formulas, expander.options, deadline
        self._places = expander.pattern_places
        self._raw: dict[tuple[int, ...], Dfa] = {}
        self._spelled: dict[tuple[int, ...], Dfa] = {}
        self._numbers: dict[tuple[int, ...], Dfa] = {}
        self._patterns: dict[str, Dfa] = {}
        self._atoms: dict[tuple[int, bool], Dfa] = {}
        self._lengths: dict[tuple[int, ...], Measured | None] = {}
        self._counted: dict[tuple[int, ...], CountedString | None] = {}
        self._splits: dict[tuple[str, tuple[int, ...]], tuple[Dfa, list[tuple[int, ...]]]] = {}
        self._blocks: list[tuple[Block, int]] = []
        self._block_numbers: dict[tuple[Block, int], int] = {}

    def strings(self, conditions: tuple[int, ...]) -> Dfa:
        """JSON spelling after the opening quote, the closing one included; label j where condition j holds."""
        known = self._spelled.get(conditions)
        if known is None:
            known = self._spelled[conditions] = (
                _any_string() if conditions == (TRUE,) else json_escape(self.raw(conditions), closing_quote=True)
            )
        return known

    def content(self, conditions: tuple[int, ...]) -> atoms.StringContent | None:
        """What the strings of ``conditions`` hold, if that they hold JSON is all there is to them (``content.py``)."""
        payload = self._formulas.payload(conditions[0]) if len(conditions) == 1 and conditions[0] not in (FALSE, TRUE) else None
        return payload if isinstance(payload, atoms.StringContent) and payload.json else None

    def counted(self, conditions: tuple[int, ...]) -> CountedString | None:
        """The strings of ``conditions`` with their length counted in blocks (``counting.py``), label j where condition j holds.

        None where no length is asked for, or counting in line is as small.
        """
        if conditions not in self._counted:
            self._counted[conditions] = self._plan(conditions)
        return self._counted[conditions]

    def block(self, number: int) -> tuple[Block, int]:
        """A block of counted strings, and how many labels its closing quote may have."""
        return self._blocks[number]

    def block_number(self, block: Block, labels: int) -> int:
        """The number of a block; equal blocks share one."""
        number = self._block_numbers.setdefault((block, labels), len(self._blocks))
        if number == len(self._blocks):
            self._blocks.append((block, labels))
        return number

    def _plan(self, conditions: tuple[int, ...]) -> CountedString | None:
        language = self._measured(conditions)
        view = character_view(language.kinds) if language is not None else None
        if language is None or view is None:
            return None
        weight = -(-(language.kinds.states + _ESCAPES) // len(view.rows))
        return plan(language, view, len(conditions), weight, self._options.max_states)

    def _measured(self, conditions: tuple[int, ...]) -> Measured | None:
        """What ``conditions`` ask for apart from length, and what that means at each length; None where they ask for no length."""
        if conditions not in self._lengths:
            self._lengths[conditions] = self._taken_apart(conditions)
        return self._lengths[conditions]

    def _taken_apart(self, conditions: tuple[int, ...]) -> Measured | None:
        formulas = self._formulas
        used = sorted(set().union(*(formulas.atoms(condition) for condition in conditions)))
        lengths = {atom: payload for atom in used if isinstance(payload := formulas.payload(atom), atoms.StringLength)}
        edges = {length.low for length in lengths.values()} | {length.high + 1 for length in lengths.values() if length.high is not None}
        thresholds = tuple(sorted(edges - {0}))
        if not thresholds:
            return None
        segments = [{atom: TRUE if _admits(length, least) else FALSE for atom, length in lengths.items()} for least in (0, *thresholds)]
        others = [atom for atom in used if atom not in lengths]
        kinds: dict[tuple[int, ...], int] = {}

        def kind(vector: tuple[int, ...]) -> int:
            truths = {atom: (TRUE if found >= 0 else FALSE) for atom, found in zip(others, vector, strict=True)}
            meaning = tuple(self._first(conditions, {**truths, **segment}) for segment in segments)
            return -1 if max(meaning) < 0 else kinds.setdefault(meaning, len(kinds))

        def at_once(most: int) -> Dfa:
            kinds.clear()
            return self._filtered(others, kind, conditions, most=most)

        def folded() -> Dfa:
            parts = formulas.conjuncts(conditions[0])
            asked = [part for part in parts if formulas.atoms(part) <= lengths.keys()]
            rest = [part for part in parts if part not in asked]
            if len(conditions) > 1 or any(formulas.atoms(part) & lengths.keys() for part in rest):
                return at_once(self._options.max_states)
            kinds.clear()
            kinds[tuple(self._first((formulas.conjunction(asked),), segment) for segment in segments)] = 0
            return self._folding(algebra.utf8_strings()).dfa(formulas.conjunction(rest))

        dfa = self._at_once_or(folded, others, at_once)
        return Measured(dfa, thresholds, np.array(list(kinds), np.int32).reshape(-1, len(segments)).T)

    def raw(self, conditions: tuple[int, ...]) -> Dfa:
        """Raw UTF-8 content of strings; label j where condition j holds."""
        known = self._raw.get(conditions)
        if known is None:
            language = self._measured(conditions)
            known = self._raw[conditions] = (
                self._product(conditions, algebra.utf8_strings()) if language is None else self._counted_in_line(language)
            )
        return known

    def _counted_in_line(self, language: Measured) -> Dfa:
        meaning = language.meaning
        return algebra.product(
            [language.kinds, algebra.length_classes(language.thresholds)],
            lambda labels: int(meaning[labels[1], labels[0]]) if labels[0] >= 0 else -1,
            required=(0, 1),
            max_states=self._options.max_states,
            deadline=self._deadline,
        )

    def numbers(self, conditions: tuple[int, ...]) -> Dfa:
        """JSON numbers; label j where condition j holds.

        Exponents are spelled only where nothing but the sign is constrained: otherwise the language would not be regular.
        """
        known = self._numbers.get(conditions)
        if known is None:
            payloads = [self._formulas.payload(atom) for condition in conditions for atom in self._formulas.atoms(condition)]
            exponents = all(_looks_at_sign(payload) for payload in payloads)
            universe = numbers.all_numbers() if exponents else numbers.plain_numbers()
            several = sum(isinstance(payload, atoms.NumberMultiple) for payload in payloads) > 1
            known = self._listed(conditions) if several else None
            if known is None:
                joint = tuple(joined(self._formulas, condition) for condition in conditions) if several else conditions
                known = self._product(joint, universe, exponents)
            self._numbers[conditions] = known
        return known

    def _listed(self, conditions: tuple[int, ...]) -> Dfa | None:
        """The numbers of ``conditions`` that are few, labelled as by ``numbers``; None if they are not."""
        values = [finite_values(self._formulas, condition) for condition in conditions]
        parts = [numbers.one_of(listed, max_states=self._options.max_states) for listed in values if listed is not None]
        return self._labelled(parts) if len(parts) == len(conditions) else None

    def _labelled(self, dfas: list[Dfa]) -> Dfa:
        """The words of any of ``dfas``, which have none in common, labelled by which."""

        def first(found: tuple[int, ...]) -> int:
            return next((j for j, label in enumerate(found) if label >= 0), -1)

        return dfas[0] if len(dfas) == 1 else algebra.product(dfas, first, max_states=self._options.max_states, deadline=self._deadline)

    def classified(self, type_: str, subjects: tuple[int, ...], label: Callable[[tuple[int, ...]], int]) -> Dfa:
        """A string's (as ``strings``) or a number's DFA; ``label`` is given the truth (TRUE or FALSE) of each of ``subjects``."""
        formulas = self._formulas
        used = sorted(set().union(*(formulas.atoms(subject) for subject in subjects)))
        exponents = type_ == "number" and all(_looks_at_sign(formulas.payload(atom)) for atom in used)

        def combined(vector: tuple[int, ...]) -> int:
            truth = {atom: (TRUE if found >= 0 else FALSE) for atom, found in zip(used, vector, strict=True)}
            memo: dict[int, int] = {}
            return label(tuple(formulas.substitute(subject, truth.__getitem__, memo) for subject in subjects))

        dfa, vectors = self._split(type_, tuple(used), exponents)
        labels = np.array([*(combined(vector) for vector in vectors), -1], np.int32)
        dfa = minimize_dfa(Dfa(dfa.byte_class, dfa.table, labels[dfa.accept], dfa.start))
        return json_escape(dfa, closing_quote=True) if type_ == "string" else dfa

    def _split(self, type_: str, used: tuple[int, ...], exponents: bool) -> tuple[Dfa, list[tuple[int, ...]]]:
        """All strings or numbers, labelled by which of the atoms ``used`` hold: the DFA, and the vector that each label stands for."""
        known = self._splits.get((type_, used))
        if known is None:
            vectors: dict[tuple[int, ...], int] = {}
            all_of_type = {"string": algebra.utf8_strings, "number": numbers.all_numbers if exponents else numbers.plain_numbers}
            dfa = algebra.product(
                [self._atom(atom, exponents) for atom in used],
                lambda vector: vectors.setdefault(vector, len(vectors)),
                universe=all_of_type[type_](),
                max_states=self._options.max_states,
                deadline=self._deadline,
            )
            known = self._splits[(type_, used)] = (dfa, list(vectors))
        return known

    def holds(self, condition: int, text: str) -> bool:
        """Whether the string ``text`` satisfies a formula over string atoms."""
        raw = utf8(text, "propertyNames")
        result = self._formulas.substitute(condition, lambda atom: TRUE if self._atom(atom).match(raw) >= 0 else FALSE)
        return result == TRUE

    def pattern(self, pattern: str) -> Dfa:
        """The DFA of an ECMA-262 pattern in search mode; errors name the schema it stands in."""
        known = self._patterns.get(pattern)
        if known is None:
            known = self._patterns[pattern] = self._compiled(pattern)
        return known

    def _compiled(self, pattern: str) -> Dfa:
        try:
            return compile_pattern(pattern, dialect="ecma", mode="search", max_states=self._options.max_states, deadline=self._deadline)
        except CompileError as error:
            raise type(error)(
                f"{pattern!r} at {error.pointer}: {error.message}",
                pointer=self._places.get(pattern, "#"),
                keyword="pattern",
                hint=error.hint,
            ) from None

    def _product(self, conditions: tuple[int, ...], universe: Dfa, exponents: bool = False) -> Dfa:
        used = sorted(set().union(*(self._formulas.atoms(condition) for condition in conditions)))

        def label(vector: tuple[int, ...]) -> int:
            return self._first(conditions, {atom: (TRUE if found >= 0 else FALSE) for atom, found in zip(used, vector, strict=True)})

        def folded() -> Dfa:
            folding = self._folding(universe, exponents)
            return self._labelled([folding.dfa(condition) for condition in conditions])

        return self._at_once_or(folded, used, lambda most: self._filtered(used, label, conditions, universe, exponents, most))

    def _at_once_or(self, folded: Callable[[], Dfa], used: list[int], at_once: Callable[[int], Dfa]) -> Dfa:
        """The product of all atoms ``used`` where its tuples are few, or ``folded``."""
        most = self._options.max_states
        if len(used) <= 2 or most <= AT_ONCE:
            return at_once(most)
        try:
            return at_once(AT_ONCE)
        except BudgetError:
            self._deadline.check()
            return folded()

    def _folding(self, universe: Dfa, exponents: bool = False) -> Folding:
        return Folding(
            self._formulas,
            lambda atom: self._atom(atom, exponents),
            universe,
            max_states=self._options.max_states,
            deadline=self._deadline,
        )

    def _first(self, conditions: tuple[int, ...], truths: dict[int, int]) -> int:
        """The condition that holds where the atoms have these truths; -1 if none does."""
        memo: dict[int, int] = {}
        substitute = self._formulas.substitute
        return next((j for j, condition in enumerate(conditions) if substitute(condition, truths.__getitem__, memo) == TRUE), -1)

    def _filtered(
        self,
        used: list[int],
        label: Callable[[tuple[int, ...]], int],
        conditions: tuple[int, ...],
        universe: Dfa | None = None,
        exponents: bool = False,
        most: int | None = None,
    ) -> Dfa:
        """The words of ``universe`` (by default all strings), labelled by which of the atoms ``used`` accept them.

        A word that lacks an atom which every one of ``conditions`` has as a conjunct is refused.
        """
        universe = algebra.utf8_strings() if universe is None else universe
        if not used:
            return algebra.relabel(universe, {0: label(())})
        everywhere = set.intersection(*({*self._formulas.conjuncts(condition)} for condition in conditions))
        return algebra.product(
            [self._atom(atom, exponents) for atom in used],
            label,
            universe=universe,
            required=[index for index, atom in enumerate(used) if atom in everywhere],
            max_states=most or self._options.max_states,
            deadline=self._deadline,
        )

    def _atom(self, atom: int, exponents: bool = False) -> Dfa:
        known = self._atoms.get((atom, exponents))
        if known is None:
            payload = self._formulas.payload(atom)
            if isinstance(payload, atoms.StringPattern):
                known = self.pattern(payload.pattern)
            elif isinstance(payload, atoms.NumberIn):
                known = numbers.one_of(payload.values, max_states=self._options.max_states)
            elif isinstance(payload, atoms.StringIn):
                known = algebra.literals({utf8(value, "const"): 0 for value in payload.values}, self._options.max_states)
            elif isinstance(payload, atoms.StringContent):
                self._expander.leave_content(payload)
                known = content_language(payload)
            else:
                known = (_SIGNS if exponents else _ATOMS)[type(payload)](payload)
            self._atoms[(atom, exponents)] = known
        return known


def _admits(length: atoms.StringLength, count: int) -> bool:
    return length.low <= count and (length.high is None or count <= length.high)


def _looks_at_sign(payload: object) -> bool:
    if isinstance(payload, (atoms.NumberAtLeast, atoms.NumberAtMost)):
        return payload.bound == 0
    return isinstance(payload, atoms.NumberEquals) and payload.value == 0


@lru_cache(maxsize=1)
def _any_string() -> Dfa:
    return json_escape(algebra.utf8_strings(), closing_quote=True)


def _format(payload: atoms.StringFormat) -> Dfa:
    dfa = formats.string_format(payload.name)
    assert dfa is not None  # the expander only makes atoms of known formats
    return dfa


_ATOMS: dict[type, Callable[[Any], Dfa]] = {
    atoms.StringLength: lambda p: algebra.length_between(p.low, p.high),
    atoms.StringFormat: _format,
    atoms.NumberIntegral: lambda p: numbers.unpointed_integers() if p.spelled else numbers.integers(),
    atoms.NumberAtLeast: lambda p: numbers.at_least(p.bound, p.exclusive),
    atoms.NumberAtMost: lambda p: numbers.at_most(p.bound, p.exclusive),
    atoms.NumberMultiple: lambda p: numbers.multiple_of(p.factor),
    atoms.NumberEquals: lambda p: numbers.equal_to(p.value),
}
_SIGNS: dict[type, Callable[[Any], Dfa]] = {
    atoms.NumberAtLeast: lambda p: numbers.at_least(p.bound, p.exclusive, exponents=True),
    atoms.NumberAtMost: lambda p: numbers.at_most(p.bound, p.exclusive, exponents=True),
    atoms.NumberEquals: lambda p: numbers.equal_to(p.value, exponents=True),
}
