"""What an object's members may come in: which declared names keep the order of appearance, and which may not come twice.

In: the conditions an object rule starts with, the declared names, the order asked for. Out: an ``Arrangement``:

- ``declared``: all names are ordered, undeclared ones come after them. One state a position, and most text is forced.
- ``any``: every order, no declared name twice: all names are barred once seen. One state a set of names.
- ``relaxed``: every order that costs little. What an object still owes does not depend on the order of its members, so names need no
  tracking at all as long as a repeated one does no harm. Readers keep the last of several equal names; every value is checked, so
  whatever asks *all* members to satisfy something holds of the last ones too, and whatever asks for names is about the set of them. Harm
  comes where a member is needed that *fails* a schema (an earlier one would do, and a later one of that name overrule it), and where
  members are counted. The names concerned are barred once seen. If the names that states tell apart (required or barred) are more than
  ``TRACKED``, those keep the order of appearance among themselves.

>>> from stcc.compiler.frontends.json_schema.formula import Formulas
>>> f = Formulas()
>>> arrangement(f, (f.atom(atoms.Has("b")),), ("a", "b"), "relaxed")
Arrangement(ordered=(), unordered=(0, 1), barred=frozenset(), loose=(True, True), undeclared_last=False)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.formula import TRUE, Formulas

ANY_ORDER_STATES = 4096
"""Most states of one object whose names may come in any order: all sets of 12 names."""
TRACKED = 5
"""Most names that states may tell apart in relaxed order."""
RELAXED_PLACES, RELAXED_NODES, RELAXED_EXPANSIONS = 300, 4000, 1000
"""Most states of one object times its names, nodes of its rule, and expansions of formulas, in relaxed order; past them the object is
arranged as ``declared``."""


@dataclass(frozen=True)
class Arrangement:
    """Declared names are given by index.

    Attributes:
        ordered: come in this order, each at most once.
        unordered: all others.
        barred: of those, the ones that may not come twice.
        loose: for each name whether it is unordered.
        undeclared_last: undeclared names come after all ordered ones, else anywhere.
    """

    ordered: tuple[int, ...]
    unordered: tuple[int, ...]
    barred: frozenset[int]
    loose: tuple[bool, ...]
    undeclared_last: bool

    def bars(self, index: int) -> int:
        """The bit to set once name ``index`` is read; 0 if it may come again."""
        return 1 << index if index in self.barred else 0


def arrangement(formulas: Formulas, conditions: tuple[int, ...], order: tuple[str, ...], kind: str) -> Arrangement:
    """See the module's text. ``kind``: ``declared``, ``any`` or ``relaxed``."""
    everything = range(len(order))
    if kind == "declared":
        return _arranged(len(order), everything, frozenset(), undeclared_last=True)
    if kind == "any":
        return _arranged(len(order), (), frozenset(everything))
    index = {key: number for number, key in enumerate(order)}
    harmed = frozenset(everything) if _counts(formulas, conditions) else frozenset(index[key] for key in _failing(formulas, conditions))
    owed = {payload.key for payload in _payloads(formulas, conditions) if isinstance(payload, atoms.Has)}
    tracked = harmed | {index[key] for key in owed}
    if len(tracked) > TRACKED:
        return arrangement(formulas, conditions, order, "declared")
    return _arranged(len(order), (), harmed)


def _arranged(count: int, ordered: Iterable[int], barred: frozenset[int], undeclared_last: bool = False) -> Arrangement:
    kept = set(ordered)
    loose = tuple(index not in kept for index in range(count))
    return Arrangement(tuple(ordered), tuple(index for index in range(count) if loose[index]), barred, loose, undeclared_last)


def _payloads(formulas: Formulas, conditions: tuple[int, ...]) -> list[object]:
    return [formulas.payload(atom) for atom in sorted(frozenset().union(*map(formulas.atoms, conditions)))]


def _counts(formulas: Formulas, conditions: tuple[int, ...]) -> bool:
    """Whether two different members may be asked for, or truth depends on which members were evaluated."""
    plain = frozenset().union(*(formulas.signed(condition)[0] for condition in conditions))
    return any(map(formulas.operators, conditions)) or any(_several(formulas.payload(atom)) for atom in plain)


def _several(payload: object) -> bool:
    return isinstance(payload, atoms.CountAtLeast) and payload.count > 1


def _failing(formulas: Formulas, conditions: tuple[int, ...]) -> set[str]:
    """Names of which a value may be asked to fail its schema."""
    negated = frozenset().union(*(formulas.signed(condition)[1] for condition in conditions))
    failing = [payload for atom in negated if isinstance(payload := formulas.payload(atom), atoms.Members)]
    return {key for payload in failing for key, formula in payload.properties if formula != TRUE}
