"""Boolean formulas, hash-consed: what is still owed at a place in the output.

A formula is an integer into one ``Formulas`` store: ``FALSE``, ``TRUE``, an atom, a negated atom, a conjunction or a
disjunction (negation normal form). An *operator* is an atom with arguments: it means something that depends on the
truth of other formulas (``unevaluated.py``). Equal formulas have equal numbers, so that equal residuals are one
state. Conjunctions and disjunctions are flat, sorted, free of duplicates and of complementary pairs, and absorb (``a
| a & b = a``). No pass here is exponential in the size of the shared graph, except where ``outcomes`` has that many
different outcomes to report.

>>> f = Formulas()
>>> a, b = f.atom("a"), f.atom("b")
>>> f.conjunction([a, f.negation(a)]) == FALSE, f.disjunction([a, f.conjunction([a, b])]) == a
(True, True)
>>> f.show(f.negation(f.conjunction([a, f.negation(b)])))
"('b' | ~'a')"
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set

FALSE, TRUE = 0, 1
_ATOM, _NOT, _AND, _OR, _OPERATOR = "atom", "not", "and", "or", "operator"
MOST_ASSIGNMENTS = 1 << 19
"""Parts of formulas whose form under an assignment is kept at a time: some 60 MiB."""

Rebuild = Callable[[object, tuple[int, ...], tuple[int, ...]], int]
"""What becomes of an operator: (payload, its arguments, its arguments after the substitution) -> formula."""


class Formulas:
    """A store of formulas; one per compile."""

    def __init__(self) -> None:
        self._nodes: list[tuple[str, object]] = [("false", None), ("true", None)]
        self._index: dict[tuple[str, object], int] = {}
        self._negations: dict[int, int] = {FALSE: TRUE, TRUE: FALSE}
        self._combined: dict[tuple[str, frozenset[int]], int] = {}
        self._atoms: dict[int, frozenset[int]] = {FALSE: frozenset(), TRUE: frozenset()}
        self._operators: dict[int, frozenset[int]] = {FALSE: frozenset(), TRUE: frozenset()}
        self._signed: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._assigned: dict[tuple[int, int], dict[int, int]] = {}
        self._assignments = 0

    def _intern(self, kind: str, payload: object) -> int:
        key = (kind, payload)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self._nodes)
            self._nodes.append(key)
        return number

    def atom(self, payload: Hashable) -> int:
        """The formula that is this atom."""
        return self._intern(_ATOM, payload)

    def payload(self, atom: int) -> object:
        """What was given to ``atom``."""
        return self._nodes[atom][1]

    def operator(self, payload: Hashable, arguments: tuple[int, ...]) -> int:
        """The operator ``payload`` over ``arguments``."""
        return self._intern(_OPERATOR, (payload, arguments))

    def operators(self, formula: int) -> frozenset[int]:
        """The operators that occur in ``formula``, also inside arguments."""
        known = self._operators.get(formula)
        if known is None:
            kind, payload = self._nodes[formula]
            own = frozenset((formula,)) if kind == _OPERATOR else frozenset()
            known = self._operators[formula] = own.union(*(self.operators(part) for part in self._parts(kind, payload)))
        return known

    def operator_payload(self, operator: int) -> object:
        """What was given to ``operator``."""
        return self._nodes[operator][1][0]  # type: ignore[index]

    @staticmethod
    def _parts(kind: str, payload: object) -> tuple[int, ...]:
        if kind in (_AND, _OR):
            return payload  # type: ignore[return-value]
        if kind == _OPERATOR:
            return payload[1]  # type: ignore[index,no-any-return]
        return (payload,) if kind == _NOT else ()  # type: ignore[return-value]

    def negation(self, formula: int) -> int:
        """``not formula``, in negation normal form."""
        known = self._negations.get(formula)
        if known is not None:
            return known
        kind, payload = self._nodes[formula]
        if kind in (_ATOM, _OPERATOR):
            result = self._intern(_NOT, formula)
        elif kind == _NOT:
            result = payload  # type: ignore[assignment]
        else:
            parts = [self.negation(part) for part in payload]  # type: ignore[attr-defined]
            result = self.disjunction(parts) if kind == _AND else self.conjunction(parts)
        self._negations[formula] = result
        self._negations[result] = formula
        return result

    def conjunction(self, parts: Iterable[int]) -> int:
        """All of ``parts``."""
        return self._combine(parts, _AND, _OR, TRUE, FALSE)

    def disjunction(self, parts: Iterable[int]) -> int:
        """Any of ``parts``."""
        return self._combine(parts, _OR, _AND, FALSE, TRUE)

    def _combine(self, parts: Iterable[int], kind: str, dual: str, neutral: int, absorbing: int) -> int:
        members: set[int] = set()
        for part in parts:
            if part == absorbing:
                return absorbing
            if part == neutral:
                continue
            part_kind, payload = self._nodes[part]
            members.update(payload if part_kind == kind else (part,))  # type: ignore[arg-type]
        if len(members) < 2:
            return members.pop() if members else neutral
        key = (kind, frozenset(members))
        known = self._combined.get(key)
        if known is None:
            known = self._combined[key] = self._absorbed(members, kind, dual, absorbing)
        return known

    def _absorbed(self, members: set[int], kind: str, dual: str, absorbing: int) -> int:
        """The combination of two or more flat ``members``: complementary pairs decide it, and members that others imply go."""
        if not members.isdisjoint(map(self._negations.get, members)):
            return absorbing
        kept = {m for m in members if self._nodes[m][0] != dual or members.isdisjoint(self._nodes[m][1])}  # type: ignore[arg-type]
        return kept.pop() if len(kept) == 1 else self._intern(kind, tuple(sorted(kept)))

    def exactly_one(self, parts: Sequence[int]) -> int:
        """One of ``parts`` and no other; by halves, so that thousands of parts nest a dozen levels deep."""
        return self._none_and_one(parts)[1]

    def _none_and_one(self, parts: Sequence[int]) -> tuple[int, int]:
        if len(parts) < 2:
            return (self.negation(parts[0]), parts[0]) if parts else (TRUE, FALSE)
        left_none, left_one = self._none_and_one(parts[: len(parts) // 2])
        right_none, right_one = self._none_and_one(parts[len(parts) // 2 :])
        one = self.disjunction([self.conjunction([left_one, right_none]), self.conjunction([left_none, right_one])])
        return self.conjunction([left_none, right_none]), one

    def atoms(self, formula: int) -> frozenset[int]:
        """The atoms that occur in ``formula``."""
        known = self._atoms.get(formula)
        if known is None:
            kind, payload = self._nodes[formula]
            own = frozenset((formula,)) if kind == _ATOM else frozenset()
            known = self._atoms[formula] = own.union(*(self.atoms(part) for part in self._parts(kind, payload)))
        return known

    def signed(self, formula: int) -> tuple[frozenset[int], frozenset[int]]:
        """The atoms that occur plain and those that occur negated in ``formula``; arguments of operators count as both."""
        known = self._signed.get(formula)
        if known is None:
            kind, payload = self._nodes[formula]
            none, all_ = frozenset[int](), self.atoms(formula)
            if kind in (_ATOM, _NOT, _OPERATOR):
                known = (none if kind == _NOT else all_, none if kind == _ATOM else all_)
            else:
                parts = [self.signed(part) for part in self._parts(kind, payload)]
                known = none.union(*(plain for plain, _ in parts)), none.union(*(negated for _, negated in parts))
            self._signed[formula] = known
        return known

    def substitute(
        self, formula: int, replace: Callable[[int], int], memo: dict[int, int] | None = None, rebuild: Rebuild | None = None
    ) -> int:
        """``formula`` with every atom replaced by ``replace(atom)`` and every operator by ``rebuild`` (by default itself
        over its new arguments).

        Pass one ``memo`` for calls that share ``replace`` and ``rebuild``.
        """
        memo = {} if memo is None else memo
        known = memo.get(formula)
        if known is not None:
            return known
        for atom in self.atoms(formula):
            if atom not in memo:
                memo[atom] = replace(atom)
        changed = {atom for atom in self.atoms(formula) if memo[atom] != atom}
        return self._substituted(formula, changed, memo, rebuild)

    def evaluate(self, formula: int, replace: Callable[[int], int]) -> int:
        """As ``substitute``, but ``replace`` is asked only for atoms that the result may depend on, in order, and operators stay.

        For a ``replace`` that is costly, or may raise where it need not be asked.
        """
        memo: dict[int, int] = {}

        def value(part: int) -> int:
            known = memo.get(part)
            if known is None:
                kind, payload = self._nodes[part]
                if kind == _ATOM:
                    known = replace(part)
                elif kind == _NOT:
                    known = self.negation(value(payload))  # type: ignore[arg-type]
                elif kind in (_AND, _OR):
                    parts = map(value, payload)  # type: ignore[call-overload]
                    known = self.conjunction(parts) if kind == _AND else self.disjunction(parts)
                else:
                    known = part
                memo[part] = known
            return known

        return value(formula)

    def _substituted(self, formula: int, changed: Set[int], memo: dict[int, int], rebuild: Rebuild | None) -> int:
        """``formula`` with the atoms in ``changed`` replaced as ``memo`` says; only what holds them, or an operator, is looked at."""
        known = memo.get(formula)
        if known is not None:
            return known
        kind, payload = self._nodes[formula]
        if self.atoms(formula).isdisjoint(changed) and (rebuild is None or not self.operators(formula)):
            result = formula
        elif kind == _NOT:
            result = self.negation(self._substituted(payload, changed, memo, rebuild))  # type: ignore[arg-type]
        elif kind in (_AND, _OR):
            atoms = self._atoms  # known of the parts, since they are of the whole; most parts stay, and need no call
            parts = (
                part if rebuild is None and atoms[part].isdisjoint(changed) else self._substituted(part, changed, memo, rebuild)
                for part in payload  # type: ignore[attr-defined]
            )
            result = self.conjunction(parts) if kind == _AND else self.disjunction(parts)
        else:
            meaning, arguments = self.operator_payload(formula), self._parts(kind, payload)
            altered = tuple(self._substituted(part, changed, memo, rebuild) for part in arguments)
            result = self._intern(kind, (meaning, altered)) if rebuild is None else rebuild(meaning, arguments, altered)
        memo[formula] = result
        return result

    def assign(self, formula: int, atom: int, value: int) -> int:
        """``formula`` with one atom replaced by the formula ``value``. What parts become is kept: they come again in other formulas."""
        if atom not in self.atoms(formula):
            return formula
        if self._assignments > MOST_ASSIGNMENTS:
            self._assigned.clear()
            self._assignments = 0
        memo = self._assigned.setdefault((atom, value), {atom: value})
        before = len(memo)
        result = self._substituted(formula, {atom}, memo, None)
        self._assignments += len(memo) - before
        return result

    def decide(self, formula: int, values: dict[int, int], memo: dict[int, int]) -> int:
        """``formula`` with the atoms that ``values`` has replaced; pass one ``memo``, first a copy of ``values``, for equal values."""
        changed = self.atoms(formula).intersection(values)
        return self._substituted(formula, changed, memo, None) if changed else formula

    def conjuncts(self, formula: int) -> tuple[int, ...]:
        """The parts of a conjunction; ``(formula,)`` for anything else."""
        kind, payload = self._nodes[formula]
        return payload if kind == _AND else (formula,)  # type: ignore[return-value]

    def if_then_else(self, condition: int, then: int, otherwise: int) -> int:
        """``condition ? then : otherwise``."""
        if then == otherwise:
            return then
        return self.disjunction([self.conjunction([condition, then]), self.conjunction([self.negation(condition), otherwise])])

    def outcomes(
        self,
        formulas: tuple[int, ...],
        decides: Callable[[int], bool],
        memo: dict[tuple[int, ...], dict[tuple[int, ...], int]],
    ) -> dict[tuple[int, ...], int]:
        """Shannon expansion: what ``formulas`` can become once every atom for which ``decides(atom)`` holds is known.

        Returns residual tuple -> the condition over the deciding atoms under which it arises. Conditions exclude each other; a tuple that
        is all FALSE is
        left out. Linear in the number of distinct intermediate tuples (a shared decision diagram), which ``memo`` holds.
        """
        if not any(formulas):
            return {}
        known = memo.get(formulas)
        if known is None:
            known = self._factored(formulas[0], decides, memo) if len(formulas) == 1 else None
            known = memo[formulas] = known if known is not None else self._expanded(formulas, decides, memo)
        return known

    def _expanded(
        self,
        formulas: tuple[int, ...],
        decides: Callable[[int], bool],
        memo: dict[tuple[int, ...], dict[tuple[int, ...], int]],
    ) -> dict[tuple[int, ...], int]:
        deciding = next(filter(decides, sorted(frozenset().union(*map(self.atoms, formulas)))), None)
        if deciding is None:
            return {formulas: TRUE}
        high = self.outcomes(tuple(self.assign(f, deciding, TRUE) for f in formulas), decides, memo)
        low = self.outcomes(tuple(self.assign(f, deciding, FALSE) for f in formulas), decides, memo)
        if not low:
            return {residual: self.conjunction([deciding, condition]) for residual, condition in high.items()}
        return {
            residual: self.if_then_else(deciding, high.get(residual, FALSE), low.get(residual, FALSE))
            for residual in (*high, *(r for r in low if r not in high))
        }

    def _factored(
        self,
        formula: int,
        decides: Callable[[int], bool],
        memo: dict[tuple[int, ...], dict[tuple[int, ...], int]],
    ) -> dict[tuple[int, ...], int] | None:
        """``outcomes`` of a conjunction by its parts: those without deciding atoms stay, those with nothing else are the condition."""
        kind, payload = self._nodes[formula]
        if kind != _AND:
            return None
        staying: list[int] = []
        conditions: list[int] = []
        mixed: list[int] = []
        for part in payload:  # type: ignore[attr-defined]
            deciding = [decides(atom) for atom in self.atoms(part)]
            if not any(deciding):
                staying.append(part)
            else:
                (conditions if all(deciding) and not self.operators(part) else mixed).append(part)
        if not staying and not conditions:
            return None
        rest = self.outcomes((self.conjunction(mixed),), decides, memo) if mixed else {(TRUE,): TRUE}
        result: dict[tuple[int, ...], int] = {}
        for (residual,), condition in rest.items():
            whole = self.conjunction([*conditions, condition])
            key = (self.conjunction([*staying, residual]),)
            if whole != FALSE and key != (FALSE,):
                result[key] = self.disjunction([result.get(key, FALSE), whole])
        return result

    def show(self, formula: int) -> str:
        """The formula as text, for ``--emit`` and tests."""
        kind, payload = self._nodes[formula]
        if kind == _ATOM:
            return repr(payload)
        if kind == _NOT:
            return "~" + self.show(payload)  # type: ignore[arg-type]
        if kind == _OPERATOR:
            return f"{self.operator_payload(formula)!r}[{', '.join(self.show(part) for part in self._parts(kind, payload))}]"
        if kind in (_AND, _OR):
            return "(" + (" & " if kind == _AND else " | ").join(self.show(part) for part in payload) + ")"  # type: ignore[attr-defined]
        return kind
