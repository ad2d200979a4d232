"""Number languages against decimal arithmetic on the texts themselves."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler.dfa import Dfa
from stcc.compiler.errors import BudgetError, SourceError, UnsupportedError
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.scalars import numbers

PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
JSON = re.compile(PLAIN.pattern + r"([eE][+-]?[0-9]+)?")

decimals = st.builds(lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-10**6, 10**6), st.integers(0, 5))


@lru_cache(maxsize=1)
def short_texts() -> list[str]:
    """Every text of up to five characters over an alphabet with a small, a middle and the largest digit."""
    return ["".join(letters) for length in range(6) for letters in itertools.product("-015.9", repeat=length)]


def accepted(dfa: Dfa, texts: list[str]) -> set[str]:
    return {text for text in texts if dfa.match(text.encode()) == 0}


def exponent_of(text: str) -> int:
    return int(text.lower().partition("e")[2] or 0)


def plain_values(texts: list[str], holds: Callable[[Fraction], bool]) -> set[str]:
    return {text for text in texts if PLAIN.fullmatch(text) and holds(Fraction(text))}


def spellings(value: Decimal) -> list[str]:
    """Plain texts at and around ``value``: itself, with zeros, its neighbours in the last place, cut short, negated."""
    plain = f"{value:f}"
    texts = {plain}
    for step in (Decimal(1), Decimal("0.1"), Decimal("0.00001"), Decimal(10)):
        texts |= {f"{value + step:f}", f"{value - step:f}"}
    texts |= {text + ("0" if "." in text else ".0") for text in texts} | {text + "00" for text in texts if "." in text}
    return sorted(texts | {"-" + text for text in texts if not text.startswith("-")} | {plain[:-1], plain + "1"})


BOUNDS = [Fraction(text) for text in ("0", "1", "-1", "5", "10", "-5.1", "0.5", "1/3", "-1/7", "95", "1.015", "-100")]
DIVISORS = ["1", "1.0", "2", "5", "7", "10", "15", "100", "0.5", "0.01", "0.1", "2.5", "0.25", "1.5", "2.125", "13.5", "0.3", "0.00001"]


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_agree_with_arithmetic_on_every_short_text(bound: Fraction) -> None:
    texts = short_texts()
    assert accepted(numbers.at_least(bound), texts) == plain_values(texts, lambda value: value >= bound)
    assert accepted(numbers.at_least(bound, True), texts) == plain_values(texts, lambda value: value > bound)
    assert accepted(numbers.at_most(bound), texts) == plain_values(texts, lambda value: value <= bound)
    assert accepted(numbers.at_most(bound, True), texts) == plain_values(texts, lambda value: value < bound)
    assert accepted(numbers.equal_to(bound), texts) == plain_values(texts, lambda value: value == bound)


@pytest.mark.parametrize("divisor", DIVISORS)
def test_multiples_agree_with_arithmetic_on_every_short_text(divisor: str) -> None:
    texts, unit = short_texts(), Fraction(divisor)
    assert accepted(numbers.multiple_of(Decimal(divisor)), texts) == plain_values(texts, lambda value: (value / unit).denominator == 1)


def test_universes_are_the_grammar_of_rfc_8259() -> None:
    texts = ["".join(letters) for length in range(6) for letters in itertools.product("-09.eE+", repeat=length)]
    texts += [f"1{mark}{sign}{exponent}" for mark in "eE" for sign in ("", "+", "-") for exponent in range(320)]
    assert accepted(numbers.all_numbers(), texts) == {text for text in texts if JSON.fullmatch(text) and exponent_of(text) <= 199}
    assert accepted(numbers.plain_numbers(), texts) == {text for text in texts if PLAIN.fullmatch(text)}
    assert accepted(numbers.integers(), short_texts()) == plain_values(short_texts(), lambda value: value.denominator == 1)


@pytest.mark.parametrize("exclusive", [False, True])
def test_comparison_with_zero_is_exact_with_exponents(exclusive: bool) -> None:
    texts = ["".join(letters) for length in range(6) for letters in itertools.product("-05.e", repeat=length)]
    texts += ["-0.0e+9", "0.0005E-99", "-7e3"]
    valued = {text: Decimal(text) for text in texts if JSON.fullmatch(text) and exponent_of(text) <= 199}
    low, high = numbers.at_least(0, exclusive, exponents=True), numbers.at_most(0, exclusive, exponents=True)
    assert accepted(low, texts) == {text for text, value in valued.items() if value > 0 or (value == 0 and not exclusive)}
    assert accepted(high, texts) == {text for text, value in valued.items() if value < 0 or (value == 0 and not exclusive)}
    assert accepted(numbers.equal_to(0, exponents=True), texts) == {text for text, value in valued.items() if value == 0}


@settings(max_examples=60, deadline=None)
@given(decimals, decimals)
def test_bounds_around_any_decimal(bound: Decimal, other: Decimal) -> None:
    texts = spellings(bound) + spellings(other)
    assert accepted(numbers.at_least(bound), texts) == plain_values(texts, lambda value: value >= bound)
    assert accepted(numbers.at_most(bound, True), texts) == plain_values(texts, lambda value: value < bound)
    assert accepted(numbers.between(bound, other, exclusive_low=True), texts) == plain_values(texts, lambda value: bound < value <= other)
    assert accepted(numbers.equal_to(bound), texts) == plain_values(texts, lambda value: value == bound)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(0, 4), st.integers(-10**9, 10**9), st.integers(0, 6))
def test_multiples_of_any_decimal(digits: int, scale: int, factor: int, zeros: int) -> None:
    divisor = Decimal(digits).scaleb(-scale)
    dfa = numbers.multiple_of(divisor)
    texts = [f"{divisor * factor:f}", *spellings(divisor * factor)]
    texts.append(texts[0] + ("" if "." in texts[0] else ".") + "0" * (zeros + 1))
    assert accepted(dfa, texts) == plain_values(texts, lambda value: (value / Fraction(divisor)).denominator == 1)
    assert texts[0] in accepted(dfa, texts)


@settings(max_examples=60, deadline=None)
@given(st.lists(decimals, max_size=6))
def test_numbers_among_any_decimals(values: list[Decimal]) -> None:
    texts = [text for value in [*values, Decimal("1e3")] for text in spellings(value)]
    assert accepted(numbers.one_of(values), texts) == plain_values(texts, lambda number: number in set(map(Fraction, values)))


@pytest.mark.parametrize(("divisor", "states"), [("1000000", 12), ("0.01", 7), ("65536", 3000), ("256", 80), ("1e-400", 410), ("1e60", 70)])
def test_factors_of_ten_cost_digits_not_residues(divisor: str, states: int) -> None:
    assert numbers.multiple_of(Decimal(divisor)).states <= states


@pytest.mark.parametrize(("dfa", "states"), [(numbers.integers(), 6), (numbers.all_numbers(), 14), (numbers.between(2, 1), 1)])
def test_automata_have_no_state_to_spare(dfa: Dfa, states: int) -> None:
    assert dfa.states == states == minimize_dfa(dfa).states


def test_bounds_of_any_size_are_decided_or_refused() -> None:
    assert numbers.at_most(Decimal("1.7976931348623157e308")).match(b"9" * 308) == 0
    assert numbers.at_most(Decimal("1e400")).match(b"1" + b"0" * 400) == 0
    assert numbers.at_most(Decimal("1e400"), True).match(b"1" + b"0" * 400) == -1
    assert numbers.at_least(Decimal("1e-400")).match(b"0." + b"0" * 399 + b"1") == 0
    assert numbers.at_least(Decimal("0e99999999")).match(b"0") == 0
    assert numbers.at_least(0.1).match(b"0.1") == 0  # a float is the decimal that spells it
    for bound in (Decimal("1e402"), Decimal("1e999999999"), Decimal("1e-402"), Decimal("1e-999999999"), 10**5000, -(10**5000)):
        with pytest.raises(BudgetError) as error:
            numbers.at_least(bound)
        assert error.value.keyword == "minimum"


def test_what_cannot_be_compiled_names_its_keyword() -> None:
    for divisor in (1_000_003, Decimal("1e400"), 2**40):
        with pytest.raises(BudgetError) as error:
            numbers.multiple_of(divisor)
        assert error.value.keyword == "multipleOf"
    for wrong in (0, -1, Fraction(1, 3), Decimal("NaN"), float("inf")):
        with pytest.raises(SourceError):
            numbers.multiple_of(wrong)
    with pytest.raises(UnsupportedError) as unsupported:
        numbers.at_least(1, exponents=True)
    assert unsupported.value.keyword == "minimum"
