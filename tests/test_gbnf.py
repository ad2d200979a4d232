"""GBNF: the notation, grammars that llama.cpp's users write (these are our own), JSON against the JSON machine, and the ways in."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import BudgetError, Options, SourceError, UnsupportedError, compile_gbnf, compile_json_schema
from stcc.compiler.frontends.gbnf import parse_gbnf
from stcc.compiler.stepping import initial, may_end, run
from stcc.runtime import load
from stcc.runtime.cli import main
from stcc.runtime.seam import compile_file

SAMPLE = Path(__file__).parent.parent / "samples" / "commands.gbnf"


def takes(artifact: Any, text: str | bytes) -> bool:
    data = text.encode() if isinstance(text, str) else text
    reached = run(artifact.machine, data, initial(artifact.machine))
    return reached is not None and may_end(artifact.machine, reached)


def verdicts(grammar: str, *texts: str | bytes) -> list[bool]:
    artifact = compile_gbnf(grammar)
    return [takes(artifact, text) for text in texts]


# --- the notation -------------------------------------------------------------------------------------------------------------------

def test_characters_and_escapes() -> None:
    assert verdicts(r'root ::= "\x41\u00e9\U0001F600\n\t\r\\\"\[\]"', 'Aé😀\n\t\r\\"[]', "A") == [True, False]
    assert verdicts(r'root ::= [a-c\x00-\x1f\]\\^-]', "b", "\x05", "]", "\\", "^", "-", "d", "") == [True] * 6 + [False] * 2
    assert verdicts(r'root ::= [^a\n]', "b", "é", "😀", "\x00", "a", "\n", b"\xff", b"\xc3") == [True] * 4 + [False] * 4
    assert verdicts("root ::= .", "a", "\n", "😀", "ab", b"\xed\xa0\x80") == [True, True, True, False, False]
    assert verdicts("root ::= [é-ü]+", "éêü", "ý") == [True, False]


@settings(max_examples=60, deadline=None)
@given(ranges=st.lists(st.tuples(*[st.characters(codec="utf-8")] * 2).map(sorted), min_size=1, max_size=3), negated=st.booleans(),
       character=st.characters(codec="utf-8"))
def test_classes_over_code_points(ranges: list[list[str]], negated: bool, character: str) -> None:
    spelled = "".join(f"\\U{ord(low):08X}-\\U{ord(high):08X}" for low, high in ranges)
    artifact = compile_gbnf(f"root ::= [{'^' * negated}{spelled}]")
    for each in (character, *(edge for pair in ranges for edge in pair)):
        assert takes(artifact, each) == (any(low <= each <= high for low, high in ranges) != negated)


def test_repetition() -> None:
    assert verdicts('root ::= "a"{2}', "a", "aa", "aaa") == [False, True, False]
    assert verdicts('root ::= "a"{2,}', "a", "aa", "aaaaa") == [False, True, True]
    assert verdicts('root ::= "a"{1,2} "b"{0,1}', "", "a", "aab", "aaab", "abb") == [False, True, True, False, False]
    assert verdicts('root ::= ("ab")* "c"+ "d"?', "c", "ababccd", "abd", "aabc") == [True, True, False, False]
    assert verdicts('root ::= "ab"* ', "", "abab", "abb") == [True, True, False]


def test_lines_and_comments() -> None:
    text = '# first\n\nroot ::= # here\n  ( "a" # in brackets lines may end\n  | b-2 ) "c" |\n  "d"\n\r\nb-2 ::= "b"# last'
    assert verdicts(text, "ac", "bc", "d", "c") == [True, True, True, False]
    assert verdicts('root ::= | "b"\nspare ::=', "", "b", "a") == [True, True, False]


@pytest.mark.parametrize("text, said", [
    ("", "no rules"), ("root = 1", "line 1 column 6: ::= is missing"), ('root ::= "a', "not closed on its line"),
    ("root ::= [a", "not closed"), ("root ::= [z-a]", "out of order"), ('root ::= ("a"', "a bracket is not closed"),
    ("root ::= )", "not expected"), ('root ::= "a"{2', "a count is"), ('root ::= "a"{3,2}', "out of order"),
    ('root ::= "\\q"', "not an escape"), ('root ::= "\\x4"', "2 hexadecimal"),
    ('root ::= "\\ud800"', "UTF-8 can spell"), ('root ::= "\\U00110000"', "UTF-8 can spell"), ('root ::= "a" ::=', "begins nothing"),
    ('root ::= "a"\nroot ::= "b"', "line 2 column 1: .*twice|twice"), ("root ::= *", "begins nothing"), ("root ::= []", "empty"),
    ("root ::= [a-", "not closed"), ("root ::= \"\\", "not an escape"), ("::=", "a name is missing"),
])
def test_broken_text_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        compile_gbnf(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='rot:=" ab|()[]^-*+?{},1\\x\n#.<', max_size=30).map(lambda text: f"root ::= {text}"))
def test_no_text_is_a_fault(text: str) -> None:
    with contextlib.suppress(SourceError, UnsupportedError, BudgetError):
        parse_gbnf(text)


def test_what_is_not_read_is_named() -> None:
    with pytest.raises(UnsupportedError, match="tokens are not referred to.*quotes"):
        compile_gbnf("root ::= <think> .*")
    with pytest.raises(BudgetError, match="longer than"):
        compile_gbnf("root ::= " + '"a" ' * 300_000)
    with pytest.raises(SourceError, match="UTF-8"):
        compile_gbnf(b"root ::= \xff")
    with pytest.raises(SourceError, match="dialect"):
        compile_gbnf('root ::= "a"', options=Options(dialect="ecma"))


# --- grammars of the kinds that people write -----------------------------------------------------------------------------------------

JSON = r'''
root    ::= value
value   ::= object | array | string | number | "true" | "false" | "null"
object  ::= "{" gap "}" | "{" gap member ("," gap member)* "}"
member  ::= string gap ":" gap value gap
array   ::= "[" gap "]" | "[" gap value gap ("," gap value gap)* "]"
string  ::= "\"" ([^"\\\x00-\x1F] | "\\" ["\\/bfnrt] | "\\u" [0-9a-fA-F]{4})* "\""
number  ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
gap     ::= [ \t\n\r]*
'''
# no exponent of three digits: the JSON machine admits none that a double cannot hold
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from([0.5, -1.25]) | st.text("ab1 ", max_size=3),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
                      max_leaves=6)
JSON_ARTIFACT = compile_gbnf(JSON)
MACHINE = compile_json_schema(True, options=Options(whitespace="flexible"))


@settings(max_examples=150, deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 0, 1]), edits=st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 1), st.sampled_from(["", *'{}[]":,0-.e1 \nta'])), max_size=2))
def test_json_written_in_gbnf_and_the_json_machine_take_the_same_texts(
        value: Any, indent: int | None, edits: list[tuple[int, int, str]]) -> None:
    text = json.dumps(value, indent=indent)
    for place, cut, put in edits:
        text = text[:place] + put + text[place + cut:]
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
        valid = text == text.strip()  # the JSON machine has no blanks around the whole
    except (ValueError, ZeroDivisionError):
        valid = False
    assert takes(JSON_ARTIFACT, text) == valid
    assert takes(MACHINE, text) == valid


def test_arithmetic_with_left_recursion() -> None:
    grammar = 'root ::= sum "\\n"\nsum ::= sum [+-] term | term\nterm ::= term [*/] atom | atom\natom ::= [0-9]+ | "-" atom | "(" sum ")"'
    assert verdicts(grammar, "1+2*(3-4)\n", "--1\n", "((1))\n", "1+\n", "(1\n", "1)\n") == [True, True, True, False, False, False]


def test_a_list() -> None:
    grammar = 'root ::= item{2,4}\nitem ::= "- " [^\\r\\n]+ "\\n"'
    assert verdicts(grammar, "- a\n- b\n", "- a\n", "- a\n" * 5, "- \n- b\n") == [True, False, False, False]


def test_chess_moves() -> None:
    grammar = r'''
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")*
move ::= (piece | pawn | "O-O" "-O"?) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? square
pawn ::= ([a-h] "x")? square ("=" [NBQR])?
square ::= [a-h] [1-8]
'''
    game = "1. e4 e5\n2. Nf3 Nc6\n3. O-O exd8=Q#\n"
    assert verdicts(grammar, game, game[:-1], game.replace("e4", "e9"), "1. Rae1 O-O-O\n") == [True, False, False, True]


# --- ways in ------------------------------------------------------------------------------------------------------------------------

PROGRAM = 'repeat 2 {\nmove north 3\nrepeat 10 {\nturn left 90°\n}\n}\nsay "hello"\n'


def test_the_sample_compiles_and_samples_are_taken() -> None:
    artifact = compile_file(SAMPLE)
    assert takes(artifact, PROGRAM) and not takes(artifact, PROGRAM.replace("}\n}", "}"))
    assert artifact.kind == "gbnf" and artifact.metadata.name == "commands.gbnf" and not artifact.metadata.warnings
    matcher = load(artifact).matcher()
    assert matcher.accept_bytes(PROGRAM.encode()) and matcher.is_accepting()


def command(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_commands_take_gbnf(tmp_path: Path) -> None:
    target = tmp_path / "c.stc"
    assert json.loads(command("compile", SAMPLE, "-o", target, "--json").output)["kind"] == "gbnf"
    assert json.loads(command("check", SAMPLE, "move north 3\n", "--json").output)["matches"] is True
    assert command("check", target, "move up 3\n").exit_code == 1
    assert command("compile", SAMPLE, "--closed", "-o", target).exit_code == 2
    drawn = json.loads(command("sample", SAMPLE, "-n", 3, "--seed", 1, "--json").output)
    assert len(drawn["outputs"]) == 3 and all(takes(compile_file(SAMPLE), text) for text in drawn["outputs"])
    (tmp_path / "stc.toml").write_text(f'[[targets]]\nsource = "{SAMPLE}"\noutput = "robot.stc"\n', encoding="utf-8")
    assert json.loads(command("build", tmp_path / "stc.toml", "--json", "--jobs", 1).output)["built"] == ["robot.stc"]
    broken = tmp_path / "x.gbnf"
    broken.write_text('root ::= "a" root "a" | "a"\n', encoding="utf-8")
    result = command("compile", broken)
    assert result.exit_code == 1 and "after 'a'" in result.output
