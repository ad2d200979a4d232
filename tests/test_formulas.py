"""The formula store against truth tables: substitution, evaluation and Shannon expansion keep the meaning."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.frontends.json_schema import formula as formula_module
from stcc.compiler.frontends.json_schema.formula import FALSE, TRUE, Formulas

NAMES = "abcd"
trees = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or", "one"]), st.lists(inner, min_size=1, max_size=3)) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=10,
)


def build(store: Formulas, tree: object) -> int:
    if isinstance(tree, str):
        return store.atom(tree)
    kind, parts = tree  # type: ignore[misc]
    if kind == "not":
        return store.negation(build(store, parts))
    return {"and": store.conjunction, "or": store.disjunction, "one": store.exactly_one}[kind]([build(store, part) for part in parts])


def truth(tree: object, world: dict[str, bool]) -> bool:
    if isinstance(tree, str):
        return world[tree]
    kind, parts = tree  # type: ignore[misc]
    if kind == "not":
        return not truth(parts, world)
    values = [truth(part, world) for part in parts]
    return {"and": all(values), "or": any(values), "one": sum(values) == 1}[kind]


WORLDS = [dict(zip(NAMES, values, strict=True)) for values in itertools.product([False, True], repeat=len(NAMES))]


@settings(max_examples=150, deadline=None)
@given(trees, trees)
def test_meaning_is_kept(one: object, other: object) -> None:
    store = Formulas()
    formula, value = build(store, one), build(store, other)
    replaced = store.substitute(formula, lambda atom: value if store.payload(atom) == "a" else atom)
    outcomes = store.outcomes((formula, value), lambda atom: store.payload(atom) in ("a", "b"), {})
    for world in WORLDS:

        def constant(atom: int, world: dict[str, bool] = world) -> int:
            return TRUE if world[str(store.payload(atom))] else FALSE

        expected = truth(one, world)
        assert store.substitute(formula, constant) == store.evaluate(formula, constant) == expected
        assert store.evaluate(replaced, constant) == truth(one, {**world, "a": truth(other, world)})
        holding = [residual for residual, condition in outcomes.items() if store.evaluate(condition, constant) == TRUE]
        assert len(holding) <= 1
        found = [store.evaluate(part, constant) == TRUE for part in holding[0]] if holding else [False, False]
        assert found == [expected, truth(other, world)]


@pytest.mark.parametrize("most", [0, 1 << 19])
@settings(max_examples=100, deadline=None)
@given(st.lists(trees, min_size=2, max_size=6), trees)
def test_assignments_are_substitutions(most: int, several: list[object], other: object) -> None:
    """Whatever was assigned before, and however little of it is kept."""
    store = Formulas()
    value, atoms = build(store, other), [store.atom(name) for name in NAMES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formula_module, "MOST_ASSIGNMENTS", most)
        for formula in [build(store, tree) for tree in several] * 2:
            for atom in atoms:
                for new in (TRUE, FALSE, value):
                    expected = store.substitute(formula, lambda a, atom=atom, new=new: new if a == atom else a)
                    assert store.assign(formula, atom, new) == expected
                    values = {atom: new, atoms[0]: FALSE}
                    assert store.decide(formula, values, values.copy()) == store.substitute(formula, lambda a, v=values: v.get(a, a))


def test_evaluation_asks_no_more_than_it_needs() -> None:
    store = Formulas()
    first, second = store.atom("first"), store.atom("second")
    asked: list[int] = []

    def refused(atom: int) -> int:
        asked.append(atom)
        return FALSE

    assert store.evaluate(store.conjunction([second, first]), refused) == FALSE and asked == [first]
