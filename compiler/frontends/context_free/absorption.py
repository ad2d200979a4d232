"""What may be repeated at will is asked for once: blanks after something that ends with blanks already.

In: checked bodies. Out: equivalent ones without an item ``N`` of a series where what stands before it ends with ``N`` in every way, for an
``N`` that is a repetition of anything, so that ``N N = N``. Grammars written by hand have blanks at the end of every rule and after it;
``factor: "-" factor blanks | number blanks`` is linear without them, and two places contend for no blank.

Why it is sound: say that E *absorbs* N if ``E N = E``. N itself does; a series does if its last item does, a choice if every option does, a
rule if its body does, given that the rules in it do (by induction over derivations, so that the greatest fixpoint is right). An item that
may be left out is passed if what it reads when it is there absorbs N, and what stands before it does. Cost: rules times different N.
"""

from __future__ import annotations

from collections.abc import Mapping

from stcc.compiler.frontends.context_free.syntax import (
    EMPTY,
    Alternatives,
    Expression,
    Reference,
    Repeat,
    Series,
    alternatives,
    children,
    items_of,
    options_of,
    rebuilt,
    references,
    series,
)
from stcc.compiler.options import Deadline

MOST_BLANKS = 16
"""Different repetitions that are looked at: grammars have one or two."""


def without_repeated_blanks(bodies: Mapping[str, Expression], deadline: Deadline) -> dict[str, Expression]:
    """The bodies without what is absorbed."""
    found = dict(bodies)
    for name in [name for name in bodies if _is_repetition(name, bodies[name])][:MOST_BLANKS]:
        blank = _Blank(Reference(name), found, deadline)
        found = {each: blank.absorbed(body) for each, body in found.items()}
    return found


def _is_repetition(name: str, body: Expression) -> bool:
    """Whether a rule is any number of something: written so, or as ``n: | x n``."""
    if isinstance(body, Repeat):
        return (body.low, body.high) == (0, None)
    options = [option for option in options_of(body) if option != EMPTY]
    return len(options) < len(options_of(body)) and all(items_of(option)[-1] == Reference(name) and not any(
        each.name == name for item in items_of(option)[:-1] for each in references(item)) for option in options)


class _Blank:
    """One repetition, and which rules absorb it."""

    def __init__(self, blank: Reference, bodies: Mapping[str, Expression], deadline: Deadline) -> None:
        self.blank = blank
        self.absorbing = set(bodies)
        while True:
            deadline.check_now(blank.name)
            wrong = {name for name in self.absorbing if name != blank.name and not self.absorbs(bodies[name])}
            if not wrong:
                break
            self.absorbing -= wrong

    def absorbs(self, expression: Expression) -> bool:
        """Whether the blank after ``expression`` adds nothing."""
        if isinstance(expression, Reference):
            return expression.name in self.absorbing
        if isinstance(expression, Series):
            return self._ending(expression.items)
        if isinstance(expression, Alternatives):
            return all(self.absorbs(option) for option in expression.options)
        return isinstance(expression, Repeat) and expression.low > 0 and self.absorbs(expression.body)

    def _ending(self, items: tuple[Expression, ...]) -> bool:
        for item in reversed(items):
            if self.absorbs(item):
                return True
            if not (isinstance(item, Repeat) and item.low == 0 and self.absorbs(item.body)):
                return False
        return False

    def absorbed(self, expression: Expression) -> Expression:
        """``expression`` without blanks that add nothing."""
        expression = rebuilt(expression, self.absorbed)
        if not isinstance(expression, Series):
            return expression
        kept: list[Expression] = []
        for item in expression.items:
            if item != self.blank:
                kept.append(item)
            elif not self._ending(tuple(kept)):
                kept[-1:] = self._followed(kept[-1]) if kept else [item]
        return series(kept)

    def _followed(self, before: Expression) -> list[Expression]:
        """``before`` and the blank, which is put behind those options only that do not absorb it."""
        left_out = isinstance(before, Repeat) and (before.low, before.high) == (0, 1)
        options = (*children(before), EMPTY) if left_out else options_of(before)
        if not any(self.absorbs(option) for option in options):
            return [before, self.blank]
        return [alternatives([option if self.absorbs(option) else self.absorbed(series([option, self.blank])) for option in options])]
