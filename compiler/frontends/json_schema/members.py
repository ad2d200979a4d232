"""What a member of an object changes: names by class, and derivatives of conditions by a member whose name is of a class.

Each declared name is a class of its own; undeclared ones are classed by the patterns and name conditions that look at them. The derivative
of a condition is a formula over ``Sat`` of the member's value and object atoms again.
"""

from __future__ import annotations

from stcc.compiler import algebra
from stcc.compiler.dfa import Dfa
from stcc.compiler.frontends.json_schema import atoms
from stcc.compiler.frontends.json_schema.construction import Construction
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE
from stcc.compiler.frontends.json_schema.unevaluated import Unevaluated, covered_patterns, covers_member

NameClass = tuple[str | None, frozenset[str], frozenset[int]]
"""The declared name or None, the patterns it matches, the name conditions (formulas) it satisfies."""


class MemberClasses:
    """The classes of names that an object's ``conditions`` tell apart.

    Attributes:
        declared: the class of each name of ``order``.
        free: the classes of undeclared names.
        free_names: raw DFA labelling undeclared names with their class in ``free``; None where no undeclared name can be admitted.
    """

    def __init__(self, construction: Construction, conditions: tuple[int, ...], order: tuple[str, ...]) -> None:
        self.construction, self.formulas, self.conditions, self.order = construction, construction.formulas, conditions, order
        used = [self.formulas.payload(atom) for atom in sorted(set().union(*(self.formulas.atoms(c) for c in conditions)))]
        covered = [pattern for payload in construction.operators(conditions) for pattern in covered_patterns(payload.coverage)]
        self.patterns = sorted(
            {pattern for payload in used if isinstance(payload, atoms.Members) for pattern, _ in payload.patterns} | {*covered}
        )
        self.name_conditions = sorted({payload.formula for payload in used if isinstance(payload, atoms.Names)})
        self.properties = {payload: dict(payload.properties) for payload in used if isinstance(payload, atoms.Members)}
        self.declared = [self.class_of(key) for key in order]
        self.free: list[NameClass] = []
        self.free_names = self._free_names()

    def class_of(self, key: str) -> NameClass:
        """The class of a declared name."""
        raw = key.encode("utf-8", "surrogatepass")
        scalars = self.construction.scalars
        return (
            key,
            frozenset(p for p in self.patterns if scalars.pattern(p).match(raw) >= 0),
            frozenset(c for c in self.name_conditions if scalars.holds(self.string_condition(c), key)),
        )

    def string_condition(self, condition: int) -> int:
        """A condition on names as a formula over string atoms."""
        return self.construction.expander.restrict(condition, "string")

    def _free_names(self) -> Dfa | None:
        """A raw DFA labelling undeclared names with their class in ``free``; None where no undeclared name can be admitted."""
        if not self.patterns and not self.name_conditions:
            self.free.append((None, frozenset(), frozenset()))
            return algebra.utf8_strings() if any(self.derived(self.conditions, self.free[0])) else None
        scalars = self.construction.scalars
        dfas = [scalars.pattern(p) for p in self.patterns] + [scalars.raw((self.string_condition(c),)) for c in self.name_conditions]
        split = len(self.patterns)

        def label(vector: tuple[int, ...]) -> int:
            self.free.append(
                (
                    None,
                    frozenset(p for p, found in zip(self.patterns, vector[:split], strict=True) if found >= 0),
                    frozenset(c for c, found in zip(self.name_conditions, vector[split:], strict=True) if found >= 0),
                )
            )
            return len(self.free) - 1

        return algebra.product(
            dfas,
            label,
            universe=algebra.utf8_strings(),
            max_states=self.construction.expander.options.max_states,
            deadline=self.construction.deadline,
        )

    # ---- derivatives

    def class_of_number(self, number: int) -> NameClass:
        """Declared name ``number``, or undeclared class ``~number``."""
        return self.declared[number] if number >= 0 else self.free[~number]

    def derived(self, conditions: tuple[int, ...], name_class: NameClass) -> tuple[int, ...]:
        """The conditions after a member whose name is of ``name_class``, over ``Sat`` of its value and object atoms."""
        key, patterns, _ = name_class
        formulas = self.formulas

        def rebuild(payload: object, before: tuple[int, ...], after: tuple[int, ...]) -> int:
            assert isinstance(payload, Unevaluated)
            evaluated = covers_member(formulas, payload.coverage, after, key, patterns)
            return formulas.conjunction([formulas.operator(payload, after), formulas.disjunction([evaluated, payload.formula])])

        memo: dict[int, int] = {}
        return tuple(formulas.substitute(formula, lambda atom: self.derivative(atom, name_class), memo, rebuild) for formula in conditions)

    def derivative(self, atom: int, name_class: NameClass) -> int:
        """What becomes of one atom."""
        payload, formulas = self.formulas.payload(atom), self.formulas
        key, patterns, names = name_class
        if isinstance(payload, atoms.Has):
            return TRUE if payload.key == key else atom
        if isinstance(payload, atoms.CountAtLeast):
            return formulas.atom(atoms.CountAtLeast(payload.count - 1)) if payload.count > 1 else TRUE
        if isinstance(payload, atoms.Names):
            return atom if payload.formula in names else FALSE
        if isinstance(payload, atoms.Members):
            needed = [formula for pattern, formula in payload.patterns if pattern in patterns]
            declared = self.properties[payload].get(key) if key is not None else None
            if declared is not None:
                needed.append(declared)
            return formulas.conjunction([atom, *(needed if needed or declared is not None else (payload.extra,))])
        return atom

    def final(self, atom: int) -> int:
        """The value of ``atom`` when no member follows."""
        return TRUE if isinstance(self.formulas.payload(atom), (atoms.Members, atoms.Names)) else FALSE
