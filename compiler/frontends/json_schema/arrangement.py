"""What an object's members may come in: which declared names keep the order of appearance, and which may not come twice.

In: the conditions an object rule starts with, the declared names, the order asked for. Out: an ``Arrangement``:

- ``declared``: all names are ordered, undeclared ones come after them. One state a position, and most text is forced.
- ``any``: every order, no declared name twice: all names are barred once seen. One state a set of names.
- ``relaxed``: every order that costs little. What an object still owes does not depend on the order of its members, so names need no
  tracking at all as long as a repeated one does no harm. Readers keep the last of several equal names; every value is checked, so
  whatever asks *all* members to satisfy something holds of the last ones too, and whatever asks for names is about the set of them. Harm
  comes where a member has *failed* a schema that had to be failed (a later one of that name overrules it): from then on the name is barred
  (``objects.py`` sees it happen). Where members are counted, every name is barred once seen.

>>> from stcc.compiler.frontends.json_schema.formula import Formulas
>>> f = Formulas()
>>> arrangement(f, (f.atom(atoms.Has("b")),), ("a", "b"), "relaxed")
Arrangement(ordered=(), unordered=(0, 1), barred=frozenset(), loose=(True, True), undeclared_last=False)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import TooManyStatesError
from stcc.compiler.frontends.json_schema.formula import Formulas

ANY_ORDER_STATES = 4096
"""Most states of one object whose names may come in any order: all sets of 12 names."""
MOST_COUNTED_NAMES = 5
"""Most names of an object whose members are counted, in relaxed order."""
MOST_CERTAIN = 8
"""Most names that a member of is owed whatever the alternatives, in relaxed order: each set of them is a state."""
RELAXED_PLACES, RELAXED_NODES, RELAXED_EXPANSIONS = 1000, 24_000, 1500
"""Most states of one object times its names, nodes of its rule, and expansions of formulas, in relaxed order; past them the object is
arranged as ``declared``."""
FREE_STATES, SETTLED_STATES = (32, 1), 256
"""States of one object that may be free in partly relaxed order: where alternatives are left (the numbers are tried in turn), and where
none are."""
MOST_UNDECIDED = 4
"""Most subschemas that an object or array behind a free state may be asked to tell apart."""
RELAXED_ALLOWANCE = 20_000
"""Nodes that all attempts at relaxed order may make in one grammar; from then on an object may have ``FRUGAL_NODES``."""
FRUGAL_NODES = 2000


@dataclass(frozen=True)
class Arrangement:
    """Declared names are given by index.

    Attributes:
        ordered: come in this order, each at most once.
        unordered: all others.
        barred: of those, the ones that may not come twice, whatever they do.
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
    """See the module's text. ``kind``: ``declared``, ``any``, ``relaxed``, or ``partly`` (relaxed, then declared: ``objects.py``).

    Raises TooManyStatesError where states would evidently be too many, or where ``partly`` would have to count members.
    """
    everything = range(len(order))
    certain = len(_certain(formulas, conditions))
    if kind == "partly" and (certain > MOST_CERTAIN or _counts(formulas, conditions)):
        raise TooManyStatesError
    if kind in ("declared", "partly"):
        return _arranged(len(order), everything, frozenset(), undeclared_last=True)
    if kind == "any":
        return _arranged(len(order), (), frozenset(everything))
    counted = _counts(formulas, conditions)
    if (counted and len(order) > MOST_COUNTED_NAMES) or certain > MOST_CERTAIN:
        raise TooManyStatesError
    return _arranged(len(order), (), frozenset(everything) if counted else frozenset())


def _arranged(count: int, ordered: Iterable[int], barred: frozenset[int], undeclared_last: bool = False) -> Arrangement:
    kept = set(ordered)
    loose = tuple(index not in kept for index in range(count))
    return Arrangement(tuple(ordered), tuple(index for index in range(count) if loose[index]), barred, loose, undeclared_last)


def _certain(formulas: Formulas, conditions: tuple[int, ...]) -> set[str]:
    """Names that every condition asks for in itself."""
    owed = [{payload.key for part in formulas.conjuncts(condition) if isinstance(payload := formulas.payload(part), atoms.Has)}
            for condition in conditions]
    return set.intersection(*owed)


def _counts(formulas: Formulas, conditions: tuple[int, ...]) -> bool:
    """Whether two different members may be asked for, or truth depends on which members were evaluated."""
    plain = frozenset().union(*(formulas.signed(condition)[0] for condition in conditions))
    return any(map(formulas.operators, conditions)) or any(_several(formulas.payload(atom)) for atom in plain)


def _several(payload: object) -> bool:
    return isinstance(payload, atoms.CountAtLeast) and payload.count > 1
