"""Bracketed parts of recursive rules, each made a rule of its own: what will be called.

In: bodies of rules that are recursive and not linear. Out: the same bodies with a reference in place of each part ``open ... close`` that
holds the recursion, and the parts as rules. What is called begins and ends with a text of its own then, which is what decides calls and
returns by one byte; the rules around the parts are recursive no more, or linear, and become automata. Equal parts are one rule.

Options that begin alike are factored first (``"[" "]" | "[" items "]"``), those of a rule that an option consists of included, so that
one part is found where two would contend for one byte. Cost: linear, but for the options compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from stcc.compiler.frontends.context_free.syntax import (
    Alternatives,
    Expression,
    Reference,
    Series,
    alternatives,
    is_character,
    is_nullable,
    items_of,
    options_of,
    rebuilt,
    references,
    series,
    spelled,
)

MOST_OPTIONS = 256
"""Options of one choice that are compared with each other."""


class Brackets:
    """The parts found so far.

    Args:
        bodies: rules that are recursive together.
        nullable: the rules, of all, that derive the empty text.
    """

    def __init__(self, bodies: dict[str, Expression], nullable: frozenset[str]) -> None:
        self.bodies, self.nullable = bodies, nullable
        self.parts: dict[Expression, str] = {}

    def extracted(self, rule: str) -> Expression:
        """The body of ``rule`` with references to parts in it."""
        return self._extract(self.bodies[rule], rule)

    def _recursive(self, expression: Expression) -> bool:
        return any(reference.name in self.bodies for reference in references(expression))

    def _extract(self, expression: Expression, rule: str) -> Expression:
        if isinstance(expression, Reference) or not self._recursive(expression):
            return expression
        if isinstance(expression, Alternatives):
            expression = self._factored_options(expression, rule)
        if isinstance(expression, Series):
            return self._cut(expression, rule)
        return rebuilt(expression, lambda each: self._extract(each, rule))

    # --- factoring ---

    def _factored_options(self, expression: Alternatives, rule: str) -> Expression:
        """The choice factored; options that are a mere name are looked into where parts of two rules would open with one character."""
        looked = self._looked_into(expression, rule)
        openers: dict[Expression, set[str]] = {}
        for option, origin in looked:
            items = items_of(option)
            if items and is_character(items[0]) and any(first == 0 for first, _ in self._cuts(items)):
                openers.setdefault(items[0], set()).add(origin)
        contended = any(len(origins) > 1 for origins in openers.values())
        return self._factored([option for option, _ in looked] if contended else expression.options)

    def _looked_into(self, expression: Alternatives, rule: str) -> list[tuple[Expression, str]]:
        """The options, those of rules that stand alone in place of their names, and the rule of each; none if they are too many."""
        found: list[tuple[Expression, str]] = []
        seen, queue = {rule}, [(option, rule) for option in reversed(expression.options)]
        while queue:
            option, origin = queue.pop()
            if isinstance(option, Reference) and option.name in self.bodies and option.name not in seen:
                seen.add(option.name)
                queue += [(each, option.name) for each in reversed(options_of(self.bodies[option.name]))]
            else:
                found.append((option, origin))
            if len(found) + len(queue) > MOST_OPTIONS:
                return []
        return found

    def _factored(self, options: Sequence[Expression]) -> Expression:
        """One option for all that begin with the same item, where one of them is recursive; likewise at their ends."""
        if len(options) > MOST_OPTIONS:
            return alternatives(options)
        groups: dict[Expression, list[Expression]] = {}
        for option in options:
            items = items_of(option)
            groups.setdefault(items[0] if items else option, []).append(option)
        found = []
        for first, group in groups.items():
            if len(group) < 2 or not any(self._recursive(option) for option in group):
                found += group
            else:
                rests = [series(items_of(option)[1:]) for option in group]
                found.append(series([first, self._ending_alike(rests)]))
        return alternatives(found)

    def _ending_alike(self, options: list[Expression]) -> Expression:
        """The choice with the item that all options end with, if they do, behind it."""
        lasts = {items_of(option)[-1] if items_of(option) else None for option in options}
        last = next(iter(lasts))
        if len(lasts) > 1 or last is None:
            return self._factored(options)
        return series([self._ending_alike([series(items_of(option)[:-1]) for option in options]), last])

    # --- cutting ---

    def _cut(self, expression: Series, rule: str) -> Expression:
        """The series with its bracketed parts replaced."""
        items = expression.items
        found: list[Expression] = []
        position = 0
        for first, last in self._cuts(items):
            found += [self._extract(item, rule) for item in items[position:first]]
            part = series(items[first:last + 1])
            name = f"{rule}: {spelled(items[first])} {spelled(series(items[first + 1:last]))} {spelled(items[last])}"
            taken = set(self.parts.values())
            number = next((n for n in range(1, len(taken) + 2) if (name if n == 1 else f"{name} #{n}") not in taken), 1)
            found.append(Reference(self.parts.setdefault(part, name if number == 1 else f"{name} #{number}")))
            position = last + 1
        return series([*found, *(self._extract(item, rule) for item in items[position:])])

    def _cuts(self, items: tuple[Expression, ...]) -> list[tuple[int, int]]:
        """First and last item of each bracketed part: the fewest items around recursive ones that begin and end firmly."""
        recursive = [self._recursive(item) for item in items]
        firm = [not inner and not is_nullable(item, self.nullable) for item, inner in zip(items, recursive, strict=True)]
        gaps = _gaps(recursive, firm)
        cuts: list[tuple[int, int]] = []
        group, consumed = 0, -1
        while group + 1 < len(gaps):
            before = [place for place in gaps[group] if place > consumed]
            last = group if before else len(gaps)
            while last + 2 < len(gaps) and len(gaps[last + 1]) < 2 and (last + 2 < len(gaps) - 1 or gaps[-1]):
                last += 1  # one firm item between two recursive ones cannot both close and open
            if before and gaps[last + 1]:
                end = _closing(items, gaps[last + 1], keep_last=last + 2 < len(gaps))
                cuts.append((before[-1], end))
                consumed, group = end, last + 1
            else:
                group += 1
        return cuts


def _gaps(recursive: list[bool], firm: list[bool]) -> list[list[int]]:
    """The firm items before, between and after the groups of recursive items; items between which nothing is firm are one group."""
    gaps: list[list[int]] = [[]]
    open_group = False
    for place, inner in enumerate(recursive):
        if inner and not open_group:
            gaps.append([])
            open_group = True
        elif firm[place]:
            gaps[-1].append(place)
            open_group = False
    return gaps


def _closing(items: tuple[Expression, ...], gap: list[int], keep_last: bool) -> int:
    """Where a part ends: at the first firm item, and while characters follow each other; the last of ``gap`` is left if it has to open."""
    end = gap[0]
    allowed = gap[:-1] if keep_last and len(gap) > 1 else gap
    while is_character(items[end]) and end + 1 in allowed and is_character(items[end + 1]):
        end += 1
    return end
