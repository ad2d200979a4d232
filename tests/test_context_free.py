"""Context-free grammars: random ones against a naive recogniser and lark's Earley parser, kinds of recursion, conflicts, and refusals."""

from __future__ import annotations

import time
from typing import Any

import lark as lark_package
import numpy as np
import pytest
from grammar_cases import accepted, derives, gbnf_text, grammars, lark_text, texts
from hypothesis import assume, given, settings
from runtime_cases import Oracle

from stcc.compiler import BudgetError, Options, SourceError, UnsatisfiableError, UnsupportedError, compile_gbnf, compile_lark
from stcc.compiler.stepping import initial, may_end, run
from stcc.formats import Vocabulary
from stcc.runtime import load

ALPHABET = "ab()"


def takes(artifact: Any, text: str) -> bool:
    reached = run(artifact.machine, text.encode(), initial(artifact.machine))
    return reached is not None and may_end(artifact.machine, reached)


def verdicts(grammar: str, *given_texts: str) -> list[bool]:
    artifact = compile_gbnf(grammar)
    return [takes(artifact, text) for text in given_texts]


# --- against oracles ----------------------------------------------------------------------------------------------------------------

@settings(max_examples=100, deadline=None)
@given(grammar=grammars(ALPHABET))
def test_random_grammars_that_compile_accept_what_they_derive(grammar: list[Any]) -> None:
    expected = {text for text in texts(ALPHABET, 4) if derives(grammar, text)}
    try:
        artifact = compile_gbnf(gbnf_text(grammar))
    except UnsatisfiableError:
        assert not expected
        return
    except UnsupportedError:
        assume(False)
    assert accepted(artifact.machine, ALPHABET, 4) == expected


@settings(max_examples=60, deadline=None)
@given(grammar=grammars("ab"))
def test_random_grammars_with_ignored_blanks_agree_with_larks_earley_parser(grammar: list[Any]) -> None:
    text = lark_text(grammar, "%ignore /[ ]/\n")
    try:
        parser = lark_package.Lark(text, start="root", parser="earley", lexer="dynamic_complete")
        artifact = compile_lark(text, "root")
    except (lark_package.exceptions.GrammarError, UnsupportedError, UnsatisfiableError):
        assume(False)
    found = accepted(artifact.machine, "ab( )", 3)
    for word in texts("ab( )", 3):
        try:
            parser.parse(word)
        except lark_package.exceptions.LarkError:
            assert word not in found, word
        else:
            assert word in found, word


# --- kinds of recursion -------------------------------------------------------------------------------------------------------------

KINDS = {
    "right linear": 'root ::= "a" root | "b" one | ""\none ::= "(" root | "a"',
    "left linear": 'root ::= root "a" | one "b" | "a"\none ::= root "("',
    "left recursive, ambiguous": 'root ::= root "b" root | "(" root ")" | "a"',
    "two levels of left recursion": 'root ::= root "b" one | one\none ::= one "a" two | two\ntwo ::= "(" root ")" | "a"',
    "prefix notation": 'root ::= "b" root root | "a"',
    "around a middle": 'root ::= "a" root "b" | "("',
    "brackets after others": 'root ::= one one | "b" root\none ::= "(" one* ")"',
    "two rules that begin alike": 'root ::= one | two | "a"\none ::= "(" root ")"\ntwo ::= "(" root ("b" root)+ ")"',
    "options that begin and end alike": 'root ::= "(" ")" | "(" root ")" | "(" root root ")"',
    "optional recursion": 'root ::= "(" root? ")" root?',
    "a loop in itself": 'root ::= "a" ("b" root)*',
    "brackets of different kinds": 'root ::= ("a" root "b" | "(" root ")")*',
    "what follows a bracket, twice": 'root ::= one "a"\none ::= "(" one ")" "a"? | "b"',
    "loops side by side": 'root ::= "a"* ("(" root ")" | "b")* "a"* "b"* "a"',
    "blanks after blanks": 'root ::= ("a" root? | two) one one\none ::= "b" one | ""\ntwo ::= "(" one root ")" one',
    "blanks that may be left out": 'root ::= "a" one ("b" root)? one\none ::= ")"*',
    "nullable around": 'root ::= one "(" root ")" one | "b"\none ::= "a"*',
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_recursion_is_exact(kind: str) -> None:
    artifact = compile_gbnf(KINDS[kind])
    assert accepted(artifact.machine, ALPHABET, 7) == _by_earley(KINDS[kind], 7)


def _by_earley(grammar: str, longest: int) -> set[str]:
    """The texts of a grammar by lark's parser; those of GBNF's notation used above are Lark's but for ``::=``."""
    parser = lark_package.Lark(grammar.replace("::=", ":").replace('""', ""), start="root", parser="earley", lexer="dynamic_complete")

    def is_derived(text: str) -> bool:
        try:
            parser.parse(text)
        except lark_package.exceptions.LarkError:
            return False
        return True

    artifact = compile_gbnf(grammar)
    near = accepted(artifact.machine, ALPHABET, longest)
    mutated = {text[:i] + c + text[i + cut:] for text in sorted(near)[:60] for i in range(len(text) + 1) for c in ("", *ALPHABET)
               for cut in (0, 1)}
    tried = set(texts(ALPHABET, 4)) | near | {text for text in mutated if len(text) <= longest}
    return {text for text in tried if is_derived(text)}


def precedence(levels: int, operators: str) -> str:
    rules = [f'l{n} ::= l{n} "{operators[n % len(operators)]}" gap l{n + 1} | "-" gap l{n + 1} | l{n + 1}\n' for n in range(levels)]
    atom = f'l{levels} ::= [a-z]+ gap | "(" gap root ")" gap | "[" gap root ("," gap root)* "]" gap\n'
    return "".join(['root ::= l0\ngap ::= " "*\n', *rules, atom])


def test_levels_of_precedence_do_not_double() -> None:
    """Each level names the next one three times: written out blindly, twelve of them are half a million copies."""
    artifact = compile_gbnf(precedence(12, "+*/%&|"), options=Options(time_limit=20))
    assert takes(artifact, "a + b*- (c / [d,e & f] )|g")
    assert not takes(artifact, "a + b*- (c / [d,e & f] |g")
    assert artifact.machine.states < 2_000


def test_nesting_is_unbounded_and_the_machine_is_small() -> None:
    artifact = compile_gbnf('root ::= "(" root ")" | "[" root "]" | "x"')
    deep = "([" * 500
    assert takes(artifact, deep + "x" + "])" * 500)
    assert not takes(artifact, deep + "x" + "])" * 499 + ")]")
    assert artifact.machine.states < 10


# --- conflicts ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("grammar, said", [
    ('root ::= "a" root "a" | "b"* "c" | "a"', "after 'a': on 'a' this rule both"),  # where is the middle?
    ('root ::= "x" (one | two)\none ::= "(" one "a" | "a"\ntwo ::= "(" two "b" | "b"', "after 'x': on '(' this rule both calls"),
    ('root ::= one one\none ::= "a" one "b" | "a"?', "on 'a'"),
])
def test_a_conflict_is_shown_with_the_shortest_text_that_leads_to_it(grammar: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_gbnf(grammar)
    assert said in str(caught.value)
    assert caught.value.pointer and caught.value.hint


def test_the_text_before_a_conflict_is_a_shortest_one() -> None:
    """Both readings of ``(`` are open after ``xy(``, and nowhere earlier."""
    grammar = 'root ::= ("xy" | "zzz") "(" (one | two) ")"\none ::= "[" one "]" | "1"\ntwo ::= "[" two "]" two | "2"'
    with pytest.raises(UnsupportedError, match=r"after 'xy\(': on '\[' this rule both calls .*two.* and calls .*one"):
        compile_gbnf(grammar)


# --- rules ---------------------------------------------------------------------------------------------------------------------------

def test_undefined_names_are_refused_with_place_and_suggestion() -> None:
    with pytest.raises(SourceError, match=r"line 1 column 12: numbr: rule root uses numbr.*did you mean number"):
        compile_gbnf('root ::= ( numbr )\nnumber ::= [0-9]')
    with pytest.raises(SourceError, match="there is no rule root"):
        compile_gbnf('start ::= "a"')


def test_rules_of_no_use_are_warned_of() -> None:
    artifact = compile_gbnf('root ::= "a" | loop\nloop ::= "b" loop\nspare ::= "c"\n')
    assert [(note["keyword"], note["pointer"]) for note in artifact.metadata.warnings] == [
        ("spare", "line 3 column 1"), ("loop", "line 2 column 1")]
    assert takes(artifact, "a") and not takes(artifact, "b")


@pytest.mark.parametrize("grammar", ['root ::= "a" root', 'root ::= root', 'root ::= one\none ::= "(" one ")" | two\ntwo ::= one "b"'])
def test_a_grammar_that_derives_nothing_is_unsatisfiable(grammar: str) -> None:
    with pytest.raises(UnsatisfiableError, match="root"):
        compile_gbnf(grammar)


@pytest.mark.parametrize("grammar", [
    'root ::= "a"{1000000}', 'root ::= (one one){1000}\none ::= ("a" | "bc"){1000}',
    "".join(f'r{n} ::= r{n + 1} r{n + 1}\n' for n in range(60)) + 'r60 ::= "a" | "(" r0 ")"\nroot ::= r0',
    'root ::= ("a" | "b")* "a" ("a" | "b"){40}',
    "root ::= " + "(" * 400 + '"a"' + ")" * 400,
    "".join(f'r{n} ::= "(" root ")" r{n + 1}\n' for n in range(2000)) + 'r2000 ::= "a"\nroot ::= r0 | "x"',
])
def test_what_is_too_large_stops_in_time(grammar: str) -> None:
    started = time.monotonic()
    with pytest.raises((BudgetError, SourceError)):
        compile_gbnf(grammar, options=Options(max_states=20_000, time_limit=5))
    assert time.monotonic() - started < 15


def test_shared_rules_are_compiled_once() -> None:
    """Fifty uses of one large regular rule: its automaton is made once, so that this takes well under a second."""
    number = "number ::= [0-9]{1,40} (\".\" [0-9]{1,40})?\n"
    grammar = "root ::= " + ' ","  '.join(["number"] * 50) + "\n" + number
    artifact = compile_gbnf(grammar)
    assert takes(artifact, ",".join(["12.5"] * 50)) and not takes(artifact, ",".join(["12.5"] * 49))


# --- with vocabularies --------------------------------------------------------------------------------------------------------------

BOUND = ["around a middle", "two rules that begin alike", "left recursive, ambiguous", "what follows a bracket, twice", "prefix notation"]


@pytest.mark.parametrize("kind", BOUND)
def test_masks_agree_with_stepping_every_token(kind: str) -> None:
    """Rules that end where more could be read are left late: masks have to see through the returns."""
    rng = np.random.default_rng(len(kind))
    tokens = [bytes(rng.choice(list(b"ab()"), size)) for size in (1, 2, 3, 4, 5) for _ in range(12)]
    spelled = sorted({*tokens, b"a", b"b", b"(", b")"})
    vocabulary = Vocabulary.from_tokens([*spelled, b""], [len(spelled)], name="brackets")
    artifact = compile_gbnf(KINDS[kind], vocabularies=[vocabulary])
    oracle = Oracle(artifact.machine, vocabulary)
    for _ in range(12):
        matcher, configuration = load(artifact, vocabulary=vocabulary).matcher(), oracle.start()
        for _ in range(12):
            allowed = oracle.allowed(configuration)
            assert matcher.allowed_tokens().tolist() == allowed
            steps = [token for token in allowed if token not in vocabulary.stop_token_ids]
            if not steps:
                break
            token = int(rng.choice(steps))
            assert matcher.accept_token(token)
            configuration = oracle.after(configuration)[token]
