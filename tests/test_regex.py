"""Patterns against independent judges: Python's ``re``, ``interegular``, and tables written by hand for ECMA-262."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
import unicodedata
import warnings

import interegular
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stcc.compiler.algebra import equivalent, utf8_strings
from stcc.compiler.errors import BudgetError, CompileError, SourceError, UnsupportedError
from stcc.compiler.frontends.regex import characters, properties
from stcc.compiler.frontends.regex.language import codepoints, compile_pattern
from stcc.compiler.minimize import minimize_dfa
from stcc.compiler.options import Deadline

ALPHABET = "abB-_\n 1é٣😀"
ATOMS = ["a", "b", "-", ".", r"\d", r"\w", r"\s", r"\W", r"\D", "[ab]", "[^a]", "[a-é]", r"[\w-]", r"[^\s1]", "é", "😀", "\n",
         r"\x61", r"\u00e9"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "{1,2}?"]
TEXTS = ["".join(letters) for length in range(3) for letters in itertools.product(ALPHABET, repeat=length)]

plain_atoms = st.sampled_from(ATOMS)


def extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: f"(?:{a}|{b})", inner, inner),
        st.builds(lambda a, q: f"(?:{a}){q}", inner, st.sampled_from(QUANTIFIERS)),
        st.builds(lambda a: f"({a})", inner),
    )


def with_looks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        extended(inner),
        st.builds(lambda kind, a: f"(?{kind}{a})", st.sampled_from(["=", "!"]), inner),
        st.builds(lambda kind, a, b: f"(?{kind}{a}{b})", st.sampled_from(["<=", "<!"]), plain_atoms, st.sampled_from(["", "a", "[b1]"])),
        st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z"]),
    )


plain_patterns = st.recursive(plain_atoms, extended, max_leaves=8)
looking_patterns = st.recursive(plain_atoms, with_looks, max_leaves=8)
longer_texts = st.lists(st.text(ALPHABET, max_size=9), max_size=12)


def agrees_with_re(pattern: str, texts: list[str], mode: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judge = getattr(re.compile(pattern), mode)
    except re.error:
        with pytest.raises(SourceError):
            compile_pattern(pattern, dialect="python", mode=mode)
        return
    try:
        dfa = compile_pattern(pattern, dialect="python", mode=mode)
    except UnsupportedError as error:
        assume("lookbehind" not in error.message)
        raise
    for text in texts:
        assert (dfa.match(text.encode()) == 0) == (judge(text) is not None), (pattern, text, mode)


@given(st.sampled_from(["", "(?i)", "(?s)", "(?a)"]), plain_patterns, longer_texts, st.sampled_from(["search", "fullmatch"]))
@settings(max_examples=120, deadline=None)
def test_plain_patterns_match_what_re_matches(flags: str, pattern: str, texts: list[str], mode: str) -> None:
    agrees_with_re(flags + pattern, TEXTS + texts, mode)


@given(st.sampled_from(["", "(?m)", "(?i)"]), looking_patterns, longer_texts, st.sampled_from(["search", "fullmatch"]))
@settings(max_examples=200, deadline=None)
def test_lookarounds_anchors_and_boundaries_match_what_re_matches(flags: str, pattern: str, texts: list[str], mode: str) -> None:
    agrees_with_re(flags + pattern, TEXTS + texts, mode)


@pytest.mark.parametrize("pattern", [
    r"(?:(?!ab).)*", r"((?=a|b)\w)+$", r"(?:a(?!b)|ba?)*", r"(?<=^|-)a", r"(?<!a)b", r"(?:(?<=ab)b|a|b)*1",
    r"^(?=.*a)(?=.*b)(?!.*1).{2,4}$", r"a$\n", r"\ba\b|-\B", "(?x) a b # comment\n [ ]", r"(?s:.)(?-i:a)(?i:b)",
    r"[]a]|[^]a]b", r"a(?#comment)*",
    r"\N{LATIN SMALL LETTER E WITH ACUTE}", r"\101|\0", r"a{,2}b{",
    r"(?=(?=a).b)ab", r"(?!(?!a))", r"(?P<name>a)b", r"(?:)", r"a||b", r"()*a", r"(?:^a|b$)+", r"(?m)^a$", r"(?:a|^)*b",
    r"(?<=(?<!b)a)b",
])
@pytest.mark.parametrize("mode", ["search", "fullmatch"])
def test_chosen_patterns_match_what_re_matches(pattern: str, mode: str) -> None:
    texts = ["".join(letters) for length in range(5) for letters in itertools.product("ab1-\n", repeat=length)]
    agrees_with_re(pattern, [*texts, "éa", "aé", "A", "aB", "]", "a b", "aaab{", "\x00"], mode)


@given(plain_patterns)
@settings(max_examples=60, deadline=None)
def test_whole_language_is_that_of_interegular(pattern: str) -> None:
    """Both automata walked together over every character they could tell apart, so all lengths are covered."""
    assume(not re.search(r"\\[wWsSdDu]|\{,|\*\?|\}\?", pattern))  # ASCII classes and fewer spellings there
    fsm = interegular.parse_pattern(pattern).to_fsm()
    letters = sorted({*ALPHABET, *(symbol for symbol in fsm.alphabet if isinstance(symbol, str)), "z", "\x7f", "\u0800", "\uffff"})
    dfa = compile_pattern(pattern, dialect="python", mode="fullmatch")
    seen, stack = {(fsm.initial, dfa.start)}, [(fsm.initial, dfa.start)]
    while stack:
        theirs, ours = stack.pop()
        assert (theirs in fsm.finals) == (ours >= 0 and dfa.accept[ours] >= 0), pattern
        for letter in letters:
            pair = (fsm.map.get(theirs, {}).get(fsm.alphabet[letter]), dfa.run(letter.encode(), ours) if ours >= 0 else -1)
            if pair not in seen:
                seen.add(pair)
                stack.append(pair)


ECMA = [  # pattern, matches, does not match
    (r"^\d$", "1 9", "٣ a"),
    (r"^\w$", "a _ 0", "é ſ"),
    (r"^[^\W]$", "a", "é"),
    ("^\\s$", ["\u00a0", "\ufeff", "\u2028", "\u3000", "\v"], ["\u200b", "\u0085", "\x1c"]),
    ("^.$", ["a", "😀", "\x85"], ["\n", "\r", "\u2028", "\u2029", ""]),
    ("^[^]$", ["\n", "😀"], ["", "ab"]),
    ("^a[]b$", [], ["ab", "a]b"]),
    (r"^\u00e9\x41\u{1F600}$", ["éA😀"], ["éA"]),
    (r"^\uD83D\uDE00$", ["😀"], ["a"]),
    (r"^[\uD83D\uDE00-\uD83D\uDE02]$", ["😀", "😁"], ["😃"]),
    (r"^[\uD800-\uDFFF]$", [], ["😀", "a"]),
    (r"^\cJ\cj$", ["\n\n"], ["JJ"]),
    (r"^\0$", ["\0"], ["0"]),
    (r"^\p{L}+$", "aé Ж", "1 -"),
    (r"^\p{Lu}\P{Lu}$", "Aa É1", "AA aa"),
    (r"^\p{Letter}\p{gc=Nd}\p{General_Category=Decimal_Number}$", "a1٣", "11a"),
    (r"^\p{digit}+$", "42 ৪২", "-%#"),
    (r"^[\p{Zs}x]$", ["\u00a0", "x"], ["\n"]),
    (r"^[^\p{L}]$", "1", "a é"),
    (r"^\p{ASCII}\p{Any}$", ["aé"], ["éa"]),
    (r"^\p{Uppercase}\p{Lowercase}$", "Aa", "aA"),
    (r"^\-\_\@\/$", ["-_@/"], ["\\-_@/"]),
    ("^a{$|^{a}$|^]$", ["a{", "{a}", "]"], ["a"]),
    ("^a{,2}$", ["a{,2}"], ["aa", ""]),
    (r"^[\w-.]$", "a - .", ", /"),
    (r"^[\b]$", ["\b"], ["b"]),
    (r"^\1$", ["\x01"], ["1"]),
    ("a$", ["a", "ba"], ["a\n"]),
    ("^(?=.*[0-9])(?!.*--)[a-z0-9-]+$", "a1 1-2", "a 1--2"),
    ("^(?:(?!--)[a-z-])*$", ["a-b", ""], ["a--b", "--"]),
    ("^((?!foo).)*$", ["fo", "barfo", ""], ["foo", "xfoox"]),
    ("(?<=a)b(?<!ab)|(?<![a-z])c", ["c", "-c"], ["ab", "b", "ac"]),
    ("^(?<year>a)b$", ["ab"], ["a"]),
    ("(?i)^straße$", ["STRAßE", "straẞe"], ["strasse"]),
    ("^(?i:k)x$", ["kx", "Kx", "\u212ax"], ["kX"]),
    (r"\bfoo\b", ["a foo", "foo.", "éfoo"], ["food", "_foo"]),
    ("^(?=a)*b$", ["b"], ["ab"]),
    ("", ["", "x"], []),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), ECMA, ids=[case[0] or "empty" for case in ECMA])
def test_ecma_constructs(pattern: str, good: str | list[str], bad: str | list[str]) -> None:
    dfa = compile_pattern(pattern)
    for texts, label in ((good, 0), (bad, -1)):
        for text in texts.split() if isinstance(texts, str) else texts:
            assert dfa.match(text.encode()) == label, text


@pytest.mark.parametrize(("pattern", "dialect", "error", "offset", "keyword"), [
    (r"a\1(b)", "ecma", UnsupportedError, 1, r"\1"),
    (r"(?<n>a)\k<n>", "ecma", UnsupportedError, 7, r"\k"),
    (r"(a)\1", "python", UnsupportedError, 3, r"\1"),
    (r"(?P<n>a)(?P=n)", "python", UnsupportedError, 8, "(?P="),
    (r"(a)?(?(1)b|c)", "python", UnsupportedError, 4, "(?("),
    (r"\p{Script=Greek}", "ecma", UnsupportedError, 0, r"\p{Script=Greek}"),
    (r"x(?<=a(?=b))", "ecma", UnsupportedError, 6, "(?<"),
    ("a(b", "ecma", SourceError, 1, "("),
    ("ab)", "ecma", SourceError, 2, ")"),
    ("a**", "ecma", SourceError, 2, "*"),
    ("a++", "ecma", SourceError, 2, "+"),
    ("*a", "ecma", SourceError, 0, "*"),
    ("a|{2}", "ecma", SourceError, 2, "{"),
    ("^*", "ecma", SourceError, 1, "*"),
    ("a{3,2}", "ecma", SourceError, 1, "{"),
    ("[b-a]", "ecma", SourceError, 2, "-"),
    ("x[ab", "ecma", SourceError, 1, "["),
    ("a\\", "ecma", SourceError, 1, "\\"),
    (r"a\Z", "ecma", SourceError, 1, r"\Z"),
    (r"\u{110000}", "ecma", SourceError, 0, r"\u{"),
    ("(?x)a", "ecma", SourceError, 0, "(?x"),
    ("(?>a)", "ecma", UnsupportedError, 0, "(?>"),
    ("(?<=a*)b", "python", SourceError, 0, "("),
    ("(" * 300 + ")" * 300, "ecma", BudgetError, 101, "("),
    ("(?:(?:(?:a{0,200}){0,200}){0,200})", "ecma", BudgetError, None, "{"),
    ("a{9999999999}", "ecma", BudgetError, 1, "{9999999999}"),
])
def test_errors_name_the_place_and_the_construct(
    pattern: str, dialect: str, error: type[CompileError], offset: int | None, keyword: str,
) -> None:
    with pytest.raises(error) as caught:
        compile_pattern(pattern, dialect=dialect)
    assert caught.value.keyword == keyword and caught.value.hint
    assert re.fullmatch(r"offset \d+", caught.value.pointer)
    assert offset is None or caught.value.pointer == f"offset {offset}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="possessive quantifiers and atomic groups came with Python 3.11")
@pytest.mark.parametrize("pattern", ["a*+b", "(?>a|ab)c"])
def test_backtracking_controls_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        compile_pattern(pattern, dialect="python")


def test_exponential_patterns_stop_soon_and_name_the_repetition() -> None:
    before = time.process_time()
    with pytest.raises(BudgetError) as caught:
        compile_pattern("(a|b)*a(a|b){20}", max_states=20_000)
    assert caught.value.pointer == "offset 7"
    assert time.process_time() - before < 2


def test_lookaheads_in_a_loop_absorb_each_other() -> None:
    """Sixteen of them have 65,536 combinations, but the loop may always skip them all."""
    dfa = compile_pattern("^(?:" + "|".join(f"(?=.*{letter})" for letter in "abcdefghijklmnop") + ")*x", max_states=1000)
    assert equivalent(dfa, compile_pattern("^x"))


def test_the_deadline_is_kept() -> None:
    with pytest.raises(BudgetError, match="time_limit"):
        compile_pattern("(a|b)*a(a|b){20}", deadline=Deadline(0.05))


@given(looking_patterns)
@settings(max_examples=60, deadline=None)
def test_results_are_minimal_and_spell_valid_utf8(pattern: str) -> None:
    try:
        dfa = compile_pattern(pattern)
    except (UnsupportedError, SourceError):
        return
    least = minimize_dfa(dfa)
    assert dfa.states == least.states
    strings, reached = utf8_strings(), {(dfa.start, 0)}
    stack = list(reached)
    while stack:
        ours, valid = stack.pop()
        assert dfa.accept[ours] < 0 or strings.accept[valid] >= 0
        for value in range(256):
            following = dfa.run(bytes([value]), ours)
            if following >= 0:
                pair = (following, strings.run(bytes([value]), valid))
                assert pair[1] >= 0, "a byte that no UTF-8 string continues with"
                if pair not in reached:
                    reached.add(pair)
                    stack.append(pair)


@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x3000)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_code_point_ranges_are_split_exactly(spans: list[tuple[int, int]]) -> None:
    ranges = tuple((low, min(low + length, 0x10FFFF)) for low, length in spans)
    dfa = codepoints(ranges)
    edges = {point + step for pair in ranges for point in pair for step in (-1, 0, 1)}
    edges |= {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000}
    for point in edges:
        if 0 <= point <= 0x10FFFF and not 0xD800 <= point < 0xE000:
            inside = any(low <= point <= high for low, high in ranges)
            assert (dfa.match(chr(point).encode()) == 0) == inside, hex(point)


def test_character_classes_are_those_of_the_interpreter() -> None:
    every = [chr(point) for point in range(0x110000)]  # the tables scan part of this; the rest must hold nothing
    everything = "".join(every)
    for found, pattern in ((characters.unicode_word(), r"\w"), (characters.unicode_digits(), r"\d"), (characters.unicode_space(), r"\s")):
        assert found == characters.from_code_points(map(ord, re.findall(pattern, everything)))
    points: dict[str, list[int]] = {}
    for character in every:
        points.setdefault(unicodedata.category(character), []).append(ord(character))
    for name, rising in points.items():
        assert properties.property_set(name, 0) == characters.from_code_points(rising), name


def test_letter_case_is_ignored_as_re_ignores_it() -> None:
    cased = [c for c in characters.scanned() if c.lower() != c or c.upper() != c]
    text = "".join(cased)
    for letter in [*cased[::37], *"ksiIſKİıßẞΐΐµμ"]:
        folded = characters.fold(((ord(letter), ord(letter)),), dialect="python", ascii_only=False)
        theirs = {ord(found) for found in re.findall(re.escape(letter), text, re.IGNORECASE)}
        assert {point for low, high in folded for point in range(low, high + 1)} == theirs | {ord(letter)}, letter


def test_numbering_does_not_depend_on_the_hash_seed() -> None:
    program = ("import hashlib; from stcc.compiler.frontends.regex.language import compile_pattern as c\n"
               "d = c(r'^(?=.*[a-z])(?!.*--)(\\w|-|é){1,9}(foo|bar|\\bbaz)$')\n"
               "print(hashlib.sha256(d.table.tobytes() + d.byte_class.tobytes() + d.accept.tobytes()).hexdigest())")
    digests = {
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_spellings_of_one_language_give_one_automaton() -> None:
    for left, right in (("^(a|b)$", "^[ab]$"), (r"^[0-9]{2}$", r"^\d\d$"), ("^a+$", "^aa*$"), ("x(?=y)", "xy"), ("^(?!)$", "^[]$")):
        assert equivalent(compile_pattern(left), compile_pattern(right)), (left, right)
    assert np.array_equal(compile_pattern("^(ab|ac)$").table, compile_pattern("^a[bc]$").table)
