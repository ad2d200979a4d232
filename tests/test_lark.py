"""Lark's notation: what is read against lark itself, what is refused by name, and the ways in. Random grammars: test_context_free.py."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import lark as lark_package
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import BudgetError, SourceError, UnsupportedError, compile_lark
from stcc.compiler.frontends.lark import parse_lark
from stcc.compiler.frontends.lark.common import COMMON
from stcc.compiler.stepping import initial, may_end, run
from stcc.runtime.cli import main
from stcc.runtime.seam import compile_file

SAMPLE = Path(__file__).parent.parent / "samples" / "arithmetic.lark"


def takes(artifact: Any, text: str) -> bool:
    reached = run(artifact.machine, text.encode(), initial(artifact.machine))
    return reached is not None and may_end(artifact.machine, reached)


def verdicts(grammar: str, *texts: str) -> list[bool]:
    artifact = compile_lark(grammar)
    return [takes(artifact, text) for text in texts]


def parsed(parser: lark_package.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark_package.exceptions.LarkError:
        return False
    return True


GRAMMARS = {
    "strings": 'start: "select"i WORD ("a".."c")~2\nWORD: /[x-z]+/\n%ignore " "',
    "flags": 'start: /a.b/ | /A+/i | /x y  z/x | /p.q/s',
    "terminals of terminals": 'start: (NAME "=" VALUE ";")*\nNAME: LETTER (LETTER | DIGIT)*\nVALUE: DIGIT+ | "\\"" LETTER* "\\""\n'
                              'LETTER: "x".."z"\nDIGIT: "0".."1"',
    "shapes": '?start: pair -> top\n!pair: "(" [item] ")" pair?\n_x: "x"\nitem: _x | pair _x',
    "several ignored": 'start: "a" ("," "a")*\n%ignore " "\n%ignore /#[^\\n]*\\n/',
    "counts": 'start: "a"~3 "b"~1..2 "c"? "d"+ "e"*',
    "empty options": 'start: "(" (start | ) ")" |',
    "comments": '// one\nstart: "a" // two\n  | "b" # three\n',
}
PIECES = ["select", "SELECT", " ", "x", "xy", "z", "a", "b", "c", "ab", "A", "a\nb", "p\nq", "a-b", "xyz", "=", "1", "01", ";", '"', "(",
          ")", ",", "# x\n", "d", "e", "aaab", "d"]


@pytest.mark.parametrize("name", sorted(GRAMMARS))
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_what_is_read_agrees_with_lark(name: str, data: st.DataObject) -> None:
    parser = PARSERS.setdefault(name, lark_package.Lark(GRAMMARS[name], parser="earley", lexer="dynamic_complete"))
    artifact = ARTIFACTS.setdefault(name, compile_lark(GRAMMARS[name]))
    text = "".join(data.draw(st.lists(st.sampled_from(PIECES), max_size=8)))
    assert takes(artifact, text) == parsed(parser, text)


PARSERS: dict[str, Any] = {}
ARTIFACTS: dict[str, Any] = {}
WORDS = ["0", "7", "12", "+3", "-1.5", ".5", "5.", "1e3", "1.5E-7", "e3", "aF", "é", "a", "Z", "Word", "a_1", "_x", "9a", " ", "\t \n",
         "\r\n\n", "\r", "\n", '"a\\"b"', '"ab', '""', '"\\\\"', "#x", "// y", "-- z", "/* a * / */", "/**/", "/* */ */", "#\n", "\f", ""]


@pytest.mark.parametrize("name", sorted(COMMON))
def test_common_terminals_are_what_lark_has(name: str) -> None:
    parser = lark_package.Lark(f"start: {name}\n%import common.{name}", parser="lalr", lexer="basic")
    artifact = compile_lark(f"start: {name}\n%import common.{name}")
    for word in WORDS:
        assert takes(artifact, word) == parsed(parser, word), word


def test_json_as_users_write_it() -> None:
    grammar = r'''
start: value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS
'''
    texts = ['{"a": [1, 2.5, {"b": null}]}', ' [ ] ', '{"a" 1}', "[1,]", '"a\\"b"', '"a"b"']
    assert verdicts(grammar, *texts) == [True, True, False, False, True, False]


# --- refusals -----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("grammar, kind, said", [
    ('start.2: "a"', UnsupportedError, "line 1 column 1: start: priorities"), ('start: A\nA.3: "a"', UnsupportedError, "priorities"),
    ("start: A\n%declare A", UnsupportedError, "line 2 .*%declare"), ('start: x{"a"}\nx{y}: y', UnsupportedError, "templates"),
    ("start: A\n%import common.PYTHON", UnsupportedError, "common.PYTHON is not known.*CNAME"),
    ("start: A\n%import .other.A", UnsupportedError, "not known"), ("start: a\n%import python (a)", UnsupportedError, "not known"),
    ('%override start: "a"', UnsupportedError, "%override"), ("start: /a(?=b)/", UnsupportedError, "line 1 column 8.*past the terminal"),
    ("start: /^a/", UnsupportedError, "past the terminal"), (r"start: /a\b/", UnsupportedError, "past the terminal"),
    ("start: /a/l", UnsupportedError, "locale"), (r"start: /(a)\1/", UnsupportedError, "line 1 column 8"),
    ("start: /a(/", SourceError, "line 1 column 8"),
    ('start: "a" (', SourceError, "not expected"), ('start "a"', SourceError, "line 1"), ('start: "a"\nstart: "b"', SourceError, "twice"),
    ("start: A\nA: b\nb: \"b\"", SourceError, "terminal A uses the rule b"), ('start: A\nA: "a" B\nB: A', SourceError, "uses itself"),
    ("start: thing\nthin: \"a\"", SourceError, "thing, which is not defined.*did you mean thin"),
    ('begin: "a"', SourceError, "no rule start"), ('start: "b".."a"', SourceError, "not a range"),
    ('start: "ab".."c"', SourceError, "not a range"), ('start: "a"~3..2', SourceError, "out of order"),
    (r'start: "\d"', SourceError, "not an escape"), ("start: " + "(" * 200 + '"a"' + ")" * 200, BudgetError, "nest deeper"),
    ('start: "a" start "a" | "a"', UnsupportedError, "after 'a': on 'a'"), ("start: A " * 40_000, BudgetError, "longer"),
])
def test_what_is_refused_says_where_and_what_to_do(grammar: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        compile_lark(grammar)
    assert caught.value.hint  # type: ignore[attr-defined]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='st:"ab|()[]?*+~1.A/\n_{}%>-', max_size=24).map(lambda text: f"start: {text}"))
def test_no_text_is_a_fault(text: str) -> None:
    with contextlib.suppress(SourceError, UnsupportedError, BudgetError):
        parse_lark(text)


def test_what_is_not_used_is_warned_of_unless_it_was_imported() -> None:
    artifact = compile_lark('start: "a"\nspare: "b"\n%import common (INT, WS)')
    assert [note["keyword"] for note in artifact.metadata.warnings] == ["spare"]


def test_another_start() -> None:
    artifact = compile_lark('start: "a"\nother: "b" start', "other")
    assert takes(artifact, "ba") and not takes(artifact, "a")


# --- ways in ------------------------------------------------------------------------------------------------------------------------

def test_the_sample_compiles() -> None:
    artifact = compile_file(SAMPLE)
    texts = ["3.14 * r^2 + s ^ 2", "f(x, g()) - -1", "(1)", "1 +", "f(,)", "2 x"]
    assert [takes(artifact, text) for text in texts] == [True, True, True, False, False, False]


def test_commands_take_lark(tmp_path: Path) -> None:
    def command(*arguments: object) -> Any:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    report = json.loads(command("compile", SAMPLE, "-o", tmp_path / "a.stc", "--json").output)
    assert report["kind"] == "lark" and report["unenforced"] == []
    assert command("check", tmp_path / "a.stc", "1 + 2").exit_code == 0
    assert command("compile", SAMPLE, "--dialect", "ecma").exit_code == 2
