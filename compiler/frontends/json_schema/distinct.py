"""``uniqueItems`` over items of any number: what the automaton leaves to whoever decodes, and when it may.

That two items are equal is not regular. Where all of an array's conditions ask for it (``claims``), the array's rule drops the condition
and *marks* the array (``formats.machine``): the host keeps the items read and refuses what would complete an equal one. Where the
condition is one alternative among others, or negated, the marks could not say when to enforce it, so it is refused.

The mark carries a promise: whatever items stand in the array, it can be finished with others. ``endings`` verifies it on the graph
of residual conditions: from every state in which the array may not end, some item that leads nearer to an end has more possible values
(``Counts``, a lower bound) than items can stand before it. Cost: the graph of the rule, only for arrays that may not end everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from stcc.compiler.adjacency import components, distinct_edges
from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import UnsupportedError
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE

if TYPE_CHECKING:
    from stcc.compiler.frontends.json_schema.construction import Construction

State = tuple[int, ...]
ANYWHERE, SEVERAL, UNENFORCED = range(3)
MANY = 1 << 30
"""A count that no array reaches."""
_DEEPEST = 4
"""Nesting up to which values are counted; deeper ones count as none."""
_CONDITIONAL = "that all items differ is asked for in some alternatives and not in others"
_CONDITIONAL_HINT = "ask for it in all alternatives that are arrays or in none, and not under not"
_ENDLESS = "an array may come to need more different items than are evidently possible"
_ENDLESS_HINT = "widen the items, lower minItems, or drop uniqueItems"


def claims(construction: Construction, conditions: State, name: str) -> tuple[State, bool]:
    """``conditions`` without ``atoms.Distinct``, and whether the array, the one called ``name``, is to be marked.

    Raises UnsupportedError where only some of the conditions, or of the alternatives in one, ask for different items (unless left
    unenforced).
    """
    formulas = construction.formulas
    atom = formulas.atom(atoms.Distinct())
    if all(atom not in formulas.atoms(condition) for condition in conditions):
        return conditions, False
    held = tuple(formulas.assign(condition, atom, TRUE) for condition in conditions)
    broken = tuple(formulas.assign(condition, atom, FALSE) for condition in conditions)
    if not any(broken):
        return held, True
    _leave(construction, name, _CONDITIONAL, _CONDITIONAL_HINT)
    return tuple(formulas.disjunction(pair) for pair in zip(held, broken, strict=True)), False


def _leave(construction: Construction, name: str, message: str, hint: str) -> None:
    """Refuse, or record what the user chose to leave unenforced."""
    expander = construction.expander
    if expander.options.unenforced == "error":
        raise UnsupportedError(message, pointer=name, keyword="uniqueItems", hint=f"{hint}, or pass unenforced='warn'")
    entry = {"pointer": name, "keyword": "uniqueItems", "message": message}
    if entry not in expander.unenforced:
        expander.unenforced.append(entry)


def endings(
    construction: Construction, start: State, name: str, derived: Callable[[State], State], may_end: Callable[[State], bool]
) -> int:
    """How the array called ``name`` can be finished with different items from every state: ``ANYWHERE`` (after any item), with
    ``SEVERAL`` more items, or not, so that it is left ``UNENFORCED``.

    Raises UnsupportedError unless the user chose that. ``derived`` gives a state's conditions after one more item, over ``Sat`` of that
    item; ``may_end`` whether it may end there.
    """
    formulas = construction.formulas
    order, places = [start], {start: 0}
    steps: list[list[tuple[int, int]]] = []
    for state in order:  # grows while it is walked
        steps.append([])
        mixed = derived(state)
        for after, condition in formulas.outcomes(mixed, construction.is_sat, construction.shannon).items() if any(mixed) else ():
            if after not in places:
                places[after] = len(order)
                order.append(after)
            steps[-1].append((places[after], condition))
    ends = [may_end(state) for state in order]
    if all(ends[1:]):  # one item is never equal to another
        return ANYWHERE
    before = _most_items([[after for after, _ in row] for row in steps])
    counts = Counts(construction)
    finished = set(np.flatnonzero(ends).tolist())
    found = True
    while found:
        found = False
        for place in range(len(order) - 1, -1, -1):
            if place not in finished and any(after in finished and counts.of(c) > before[place] for after, c in steps[place]):
                finished.add(place)
                found = True
    if len(finished) < len(order):
        _leave(construction, name, _ENDLESS, _ENDLESS_HINT)
        return UNENFORCED
    return SEVERAL


def _most_items(successors: list[list[int]]) -> list[int]:
    """The most items read on a way from place 0 to each place; MANY behind a cycle."""
    most = [0] * len(successors)
    for part in reversed(components(successors)):
        if len(part) > 1 or part[0] in successors[part[0]]:
            for member in part:
                most[member] = MANY - 1
        for member in part:
            for after in successors[member]:
                most[after] = max(most[after], min(most[member] + 1, MANY - 1))
    return most


class Counts:
    """Lower bounds of how many values satisfy a condition over ``Sat``; ``MANY`` for infinitely many."""

    def __init__(self, construction: Construction) -> None:
        self._construction, self._formulas = construction, construction.formulas
        self._known: dict[tuple[int, int], int] = {}

    def of(self, condition: int, depth: int = 0) -> int:
        """At least so many values satisfy ``condition``."""
        if condition in (FALSE, TRUE) or depth > _DEEPEST:
            return MANY if condition == TRUE else 0
        known = self._known.get((condition, depth))
        if known is None:
            restricted = ((type_, self._construction.expander.restrict(condition, type_)) for type_ in atoms.TYPES)
            known = min(MANY, sum(self._typed(type_, formula, depth) for type_, formula in restricted if formula != FALSE))
            self._known[(condition, depth)] = known
        return known

    def _typed(self, type_: str, formula: int, depth: int) -> int:
        if type_ == "string":
            scalars = self._construction.scalars
            return MANY if scalars.content((formula,)) else word_count(scalars.raw((formula,)))
        if type_ in ("null", "boolean"):
            return 1 if type_ == "null" or formula != TRUE else 2
        if formula == TRUE:
            return MANY
        payloads = [self._formulas.payload(part) for part in self._formulas.conjuncts(formula)]
        if type_ == "number":
            return _numbers(payloads)
        return self._arrays(payloads, depth) if type_ == "array" else self._objects(payloads, depth)

    def _arrays(self, payloads: list[object], depth: int) -> int:
        """Longer and longer arrays, where the items have no end."""
        items = [payload for payload in payloads if isinstance(payload, atoms.Items)]
        others = [payload for payload in payloads if not isinstance(payload, (atoms.Items, atoms.CountAtLeast, atoms.Distinct))]
        if others or len(items) > 1:
            return 0
        distinct = any(isinstance(payload, atoms.Distinct) for payload in payloads)
        for payload in items:
            if any(not self.of(formula, depth + 1) for formula in payload.prefix):
                return 0
            rest = self.of(payload.rest, depth + 1)
            return rest if distinct else MANY if rest else 0
        return MANY

    def _objects(self, payloads: list[object], depth: int) -> int:
        """Objects that differ in one property, where nothing ties properties together."""
        members = [payload for payload in payloads if isinstance(payload, atoms.Members)]
        if any(not isinstance(payload, (atoms.Members, atoms.Has)) for payload in payloads) or any(each.patterns for each in members):
            return 0
        if all(each.extra == TRUE for each in members):
            return MANY
        wanted: dict[str, list[int]] = {payload.key: [] for payload in payloads if isinstance(payload, atoms.Has)}
        for key in dict.fromkeys(key for each in members for key, _ in each.properties):
            wanted[key] = [dict(each.properties).get(key, each.extra) for each in members]
        return max((self.of(self._formulas.conjunction(parts), depth + 1) for parts in wanted.values()), default=1)


def _numbers(payloads: list[object]) -> int:
    if len(payloads) == 1 and isinstance(payloads[0], (atoms.NumberIn, atoms.NumberEquals)):
        return len(payloads[0].values) if isinstance(payloads[0], atoms.NumberIn) else 1
    low = [payload for payload in payloads if isinstance(payload, atoms.NumberAtLeast)]
    high = [payload for payload in payloads if isinstance(payload, atoms.NumberAtMost)]
    steps = [payload for payload in payloads if isinstance(payload, (atoms.NumberIntegral, atoms.NumberMultiple))]
    if len(low) + len(high) + len(steps) < len(payloads):
        return 0
    if not low or not high:
        return MANY
    least, most = max(payload.bound for payload in low), min(payload.bound for payload in high)
    if not steps:
        return MANY if least < most else 0
    factors = [payload.factor for payload in steps if isinstance(payload, atoms.NumberMultiple)]
    if len(factors) > 1 or (factors and any(isinstance(payload, atoms.NumberIntegral) for payload in steps) and factors[0] % 1):
        return 0
    step = factors[0] if factors else 1
    return min(MANY, max(0, math.floor(most / step) - math.ceil(least / step) - 1))  # both ends left out, excluded or not


def word_count(dfa: Dfa) -> int:
    """How many words ``dfa`` accepts; ``MANY`` for infinitely many, or more. O(edges)."""
    sources, targets = distinct_edges(dfa.table)
    width = np.bincount(dfa.byte_class, minlength=dfa.table.shape[1])
    successors: list[list[int]] = [[] for _ in range(dfa.states)]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        successors[source].append(target)
    words = [int(label >= 0) for label in dfa.accept.tolist()]
    for part in components(successors):  # each before those that reach it
        loop = len(part) > 1 or part[0] in successors[part[0]]
        if loop and any(words[after] for member in part for after in (member, *successors[member])):
            for member in part:
                words[member] = MANY
        elif not loop:
            row = dfa.table[part[0]]
            ways = zip(row.tolist(), width.tolist(), strict=True)
            words[part[0]] = min(MANY, words[part[0]] + sum(count * words[cell] for cell, count in ways if cell >= 0))
    return words[dfa.start]
