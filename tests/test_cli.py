"""The command line: every command and flag, exit codes, reports, and that bad input ends in a message, never in a traceback."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from tokenizer_cases import byte_level_bpe

from stcc.compiler import compile_json_schema, compile_regex
from stcc.compiler.commands import compile as compile_module
from stcc.compiler.pipeline import STAGES
from stcc.formats import Artifact, Vocabulary
from stcc.runtime import cli
from stcc.runtime.cli import main

SAMPLES = Path(__file__).parent.parent / "samples"
PERSON = SAMPLES / "person.schema.json"
DATE = SAMPLES / "iso_date.regex"
REPORT = {"kind", "states", "classes", "actions", "bytes", "warnings", "unenforced", "vocabularies"}
BYTES = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b"", b'":"', b"19", b"-0"], [256], name="bytes")
ADA = '{"name":"Ada","age":36,"email":"ada@example.com","status":"approved","tags":[]}'
SOURCE = (  # a shell's background jobs have interrupts ignored, and so have their children
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from stcc.runtime.cli import main; "
    "sys.argv[0] = 'stcc'; main()"
)


def run(*arguments: object, **options: Any) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def reported(*arguments: object, code: int = 0, **options: Any) -> dict[str, Any]:
    result = run(*arguments, "--json", **options)
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SOURCE, *map(str, arguments)]
    return subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    BYTES.save(tmp_path / "bytes.stv")
    return tmp_path / "bytes.stv"


@pytest.fixture
def person(tmp_path: Path) -> Path:
    compile_json_schema(PERSON.read_text(), source="person.schema.json").save(tmp_path / "person.stc")
    return tmp_path / "person.stc"


# -- the group -------------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_without_importing_it() -> None:
    script = ("import sys\nfrom stcc.runtime.cli import main\n"
              "try: main(['--help'])\nexcept SystemExit: pass\n"
              "heavy = ('rich', 'stcc.compiler', 'referencing', 'tokenizers', 'transformers', 'mlx')\n"
              "print([name for name in heavy if name in sys.modules])")
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("[]")
    for name in ("compile", "vocab", "bind", "inspect", "check", "sample", "run"):
        assert re.search(rf"^  {name} +\w+", shown, re.M)


def test_the_runtime_needs_numpy_and_msgpack_only() -> None:
    script = ("import sys, stcc.runtime\n"
              "print(sorted({name.split('.')[0] for name in sys.modules if getattr(sys.modules[name], '__file__', None)"
              " and 'site-packages' in sys.modules[name].__file__} - {'numpy', 'msgpack'}))\n"
              "print([name for name in ('stcc.compiler', 'click', 'rich', 'mlx') if name in sys.modules])")
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    names = json.loads(shown.splitlines()[0].replace("'", '"'))
    assert [name for name in names if not name.startswith(("_", "stcc", "distutils"))] == [] and shown.splitlines()[1] == "[]"


def test_every_command_has_help_and_the_summary_that_the_group_shows() -> None:
    for name in cli._SUMMARIES:
        result = run(name, "--help")
        assert result.exit_code == 0
        assert "--json" in result.stdout or name == "completion", "a script is no report"
    assert run("--version").stdout.startswith("stcc, version ")


def test_wrong_usage_is_exit_code_2(tmp_path: Path, pack: Path) -> None:
    folder, missing = tmp_path, tmp_path / "missing.stc"
    cases: list[list[object]] = [
        ["nonsense"], ["check"], ["check", missing, "x"], ["inspect", folder], ["sample", DATE, "-n", "-1"], ["sample", DATE, "-n", 10**30],
        ["sample", DATE, "--seed", "-1"], ["sample", DATE, "--max-bytes", 0], ["compile", PERSON, "--emit", "nothing"],
        ["compile", PERSON, "--emit", "actions"], ["compile", PERSON, "--emit", "machine", "-o", folder / "x.stc"],
        ["compile", PERSON, "-o", PERSON], ["compile", DATE, "--vocab", pack, "-o", pack], ["bind", DATE, "--vocab", pack, "-o", pack],
        ["compile", DATE, "--whitespace", "spaced"], ["compile", DATE, "--closed"], ["compile", DATE, "--dialect", "outlines"],
        ["compile", PERSON, "--dialect", "ecma"], ["compile", PERSON, "--max-states", 0], ["compile", PERSON, "--schemas", "nofile"],
        ["vocab", "x", "-o", folder / "x.stv", "--size", 10**30], ["inspect", pack, "--graph", folder / "x.svg"],
        ["run", DATE, "--prompt", "x", "--max-tokens", 0],
    ]
    before = sorted(folder.iterdir()), pack.read_bytes(), PERSON.read_bytes()
    for case in cases:
        result = run(*case)
        assert result.exit_code == 2 and "Error" in result.stderr and not result.stdout, case
    assert before == (sorted(folder.iterdir()), pack.read_bytes(), PERSON.read_bytes())


# -- compile ---------------------------------------------------------------------------------------------------------------


def test_compile_writes_and_reports(tmp_path: Path, pack: Path) -> None:
    report = reported("compile", PERSON, "-o", tmp_path / "p.stc", "--vocab", pack)
    artifact = Artifact.load(tmp_path / "p.stc")
    assert report.keys() >= REPORT
    assert report["bytes"] == (tmp_path / "p.stc").stat().st_size and report["states"] == artifact.machine.states
    assert [(entry["fingerprint"], entry["name"]) for entry in report["vocabularies"]] == [(BYTES.fingerprint, "bytes")]
    assert report["actions"] == [artifact.vocabularies[0].actions]
    shown = run("compile", PERSON, "-o", tmp_path / "p.stc", "--vocab", pack)
    assert f"{report['bytes']:,} bytes" in shown.stdout and "bytes" in shown.stdout and not shown.stderr
    assert artifact.to_bytes() == (tmp_path / "p.stc").read_bytes()


def test_the_output_is_named_after_the_source(tmp_path: Path) -> None:
    for name, text, made in (("a.b.schema.json", "true", "a.b.stc"), ("c.json", "true", "c.stc"), ("d.e.regex", "x", "d.e.stc")):
        (tmp_path / name).write_text(text)
        assert run("compile", tmp_path / name).exit_code == 0
        assert (tmp_path / made).is_file()


def test_a_kind_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "pattern.txt").write_text("a+\r\n")
    assert run("compile", tmp_path / "pattern.txt").exit_code == 1
    assert reported("compile", tmp_path / "pattern.txt", "--kind", "regex")["kind"] == "regex"
    assert run("check", tmp_path / "pattern.stc", "aa").exit_code == 0
    assert run("check", tmp_path / "pattern.stc", "aa\n").exit_code == 1


def test_options_reach_the_compiler(tmp_path: Path) -> None:
    source, made = tmp_path / "s.json", tmp_path / "s.stc"
    source.write_text(json.dumps({"type": "object", "properties": {"a": {"const": 1}, "b": {"format": "date"}}, "required": ["a", "b"]}))

    def accepts(text: str, *flags: object) -> bool:
        assert run("compile", source, "-o", made, *flags).exit_code == 0
        return run("check", made, text).exit_code == 0

    plain = '{"a":1,"b":"2020-01-01"}'
    assert accepts(plain) and not accepts('{"a": 1, "b": "2020-01-01"}') and not accepts('{"a":1,"b":"x"}')
    assert accepts('{"a": 1, "b": "2020-01-01"}', "--whitespace", "spaced")
    assert accepts('{ "a" :1,"b":"2020-01-01"}', "--whitespace", "flexible")
    assert accepts('{"a":1,"b":"2020-01-01","c":0}') and not accepts('{"a":1,"b":"2020-01-01","c":0}', "--closed")
    assert not accepts('{"b":"2020-01-01","a":1}') and accepts('{"b":"2020-01-01","a":1}', "--property-order", "any")
    assert accepts('{"a":1,"b":"x"}', "--formats", "annotate")
    assert Artifact.load(made).metadata.options["formats"] == "annotate"


def test_dialects(tmp_path: Path) -> None:
    (tmp_path / "p.regex").write_text(r"\d")
    for dialect, matches in (("python", 0), ("ecma", 1)):
        assert run("compile", tmp_path / "p.regex", "--dialect", dialect).exit_code == 0
        assert run("check", tmp_path / "p.stc", "٣").exit_code == matches, "digits of other scripts are digits to Python only"
    (tmp_path / "s.schema.json").write_text('{"type":"boolean"}')
    assert run("compile", tmp_path / "s.schema.json", "--dialect", "outlines").exit_code == 0
    assert run("check", tmp_path / "s.stc", "true").exit_code == 0


def test_limits_are_errors_that_say_what_to_raise(tmp_path: Path) -> None:
    deep: Any = True
    for _ in range(40):
        deep = {"items": deep}
    (tmp_path / "deep.json").write_text(json.dumps(deep))
    assert reported("compile", tmp_path / "deep.json", "--max-depth", 5, code=1)["error"] == "BudgetError"
    report = reported("compile", PERSON, "-o", tmp_path / "p.stc", "--max-states", 5, code=1)
    assert report["error"] == "BudgetError" and "max_states" in report["hint"]
    (tmp_path / "slow.regex").write_text("(a|b)*a(a|b){14}")
    assert reported("compile", tmp_path / "slow.regex", "--time-limit", 1e-6, code=1)["error"] == "BudgetError"
    assert not list(tmp_path.glob("*.stc"))


def test_other_documents(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"$ref":"https://example.com/x?a=b"}')
    (tmp_path / "x.json").write_text('{"const":"far"}')
    assert run("compile", tmp_path / "s.json").exit_code == 1
    assert run("compile", tmp_path / "s.json", "--schemas", f"https://example.com/x?a=b={tmp_path / 'x.json'}").exit_code == 0
    assert run("check", tmp_path / "s.stc", '"far"').exit_code == 0


def test_what_is_not_enforced_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "s.json"
    source.write_text('{"not":{"uniqueItems":true},"items":{"type":"string","format":"made-up"}}')
    refused = reported("compile", source, code=1)
    assert refused["error"] == "UnsupportedError" and refused["keyword"] == "uniqueItems" and refused["pointer"].startswith("#")
    report = reported("compile", source, "--unenforced", "warn")
    assert [note["keyword"] for note in report["unenforced"]] == ["uniqueItems"]
    for command in (["compile", source, "--unenforced", "warn"], ["inspect", tmp_path / "s.stc"]):
        shown = run(*command).stdout
        assert re.search(r"NOT ENFORCED #.*uniqueItems", shown) and re.search(r"warning .*made-up", shown)
    assert reported("inspect", tmp_path / "s.stc")["unenforced"] == report["unenforced"]


@pytest.mark.parametrize("stage", STAGES)
def test_stages_are_printed_and_timed(stage: str, tmp_path: Path, pack: Path) -> None:
    (tmp_path / "d.regex").write_text("a[0-9]+")
    result = run("compile", tmp_path / "d.regex", "--emit", stage, "--vocab", pack, "--time-passes")
    assert result.exit_code == 0 and not (tmp_path / "d.stc").exists()
    assert result.stdout.splitlines()[0].startswith({"machine": "3 states", "actions": "vocabulary "}.get(stage, "rule 0"))
    assert re.search(rf"^{stage} +[\d.,]+ ms *$", result.stderr, re.M) and "total" in result.stderr
    report = reported("compile", tmp_path / "d.regex", "--emit", stage, "--vocab", pack, "--time-passes")
    assert report["stage"] == stage and report["text"] == result.stdout.rstrip("\n") and stage in report["seconds"]


def test_passes_are_timed_in_a_whole_compile(tmp_path: Path) -> None:
    report = reported("compile", DATE, "-o", tmp_path / "d.stc", "--time-passes")
    assert list(report["seconds"]) == ["grammar", "trimmed", "inlined", "machine", "file"]
    assert "seconds" not in reported("compile", DATE, "-o", tmp_path / "d.stc")
    assert "grammar" in run("compile", DATE, "-o", tmp_path / "d.stc", "--time-passes").stderr


# -- files under their names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()])
def test_a_compile_that_does_not_finish_leaves_the_old_file(fault: BaseException, person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, names = person.read_bytes(), sorted(person.parent.iterdir())

    def fail(*_: object, **__: object) -> None:
        raise fault

    for owner, name in ((os, "fsync"), (Artifact, "to_bytes"), (compile_module, "compile_source")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            result = run("compile", DATE, "-o", person)
        assert result.exit_code == (cli.INTERRUPTED if isinstance(fault, KeyboardInterrupt) else 1)
        assert person.read_bytes() == old and sorted(person.parent.iterdir()) == names
        if isinstance(fault, KeyboardInterrupt):
            assert not result.output
        else:
            assert result.stderr.startswith("error: ")


def test_a_source_at_fault_leaves_the_old_file(person: Path, tmp_path: Path) -> None:
    old = person.read_bytes()
    (tmp_path / "bad.regex").write_text("(")
    assert run("compile", tmp_path / "bad.regex", "-o", person).exit_code == 1
    assert person.read_bytes() == old


def test_a_missing_folder_is_said_before_the_work(tmp_path: Path, pack: Path, person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "compile_source", lambda *_: pytest.fail("compiled for nothing"))
    for command in (["compile", DATE], ["bind", person, "--vocab", pack], ["vocab", pack]):
        report = reported(*command, "-o", tmp_path / "no" / "x", code=1)
        assert report["error"] == "FileNotFoundError" and str(tmp_path / "no") in report["message"]


def test_links_are_written_through_and_devices_stay(tmp_path: Path) -> None:
    (tmp_path / "link.stc").symlink_to(tmp_path / "real.stc")
    assert run("compile", DATE, "-o", tmp_path / "link.stc").exit_code == 0
    assert (tmp_path / "link.stc").is_symlink() and Artifact.load(tmp_path / "real.stc").kind == "regex"
    assert reported("compile", DATE, "-o", "/dev/null")["bytes"] == (tmp_path / "real.stc").stat().st_size
    assert Path("/dev/null").is_char_device()


# -- vocab, bind -----------------------------------------------------------------------------------------------------------


def test_vocab_packs_a_tokenizer(tmp_path: Path) -> None:
    byte_level_bpe().save(str(tmp_path / "tokenizer.json"))
    report = reported("vocab", tmp_path, "-o", tmp_path / "t.stv", "--stop", "<|im_end|>", "--stop", 0, "--size", 700)
    vocabulary = Vocabulary.load(tmp_path / "t.stv")
    assert report["size"] == vocabulary.size == 700 and report["fingerprint"] == vocabulary.fingerprint
    assert report["stop_token_ids"] == list(vocabulary.stop_token_ids) == [0, 1] and report["bytes"] == (tmp_path / "t.stv").stat().st_size
    shown = run("vocab", tmp_path / "tokenizer.json", "-o", tmp_path / "u.stv")
    assert shown.exit_code == 0 and Vocabulary.load(tmp_path / "u.stv").fingerprint in shown.stdout
    bound = reported("compile", DATE, "-o", tmp_path / "d.stc", "--tokenizer", tmp_path / "tokenizer.json")
    assert [entry["fingerprint"] for entry in bound["vocabularies"]] == [Vocabulary.load(tmp_path / "u.stv").fingerprint]


def test_vocab_refuses_what_is_no_tokenizer(tmp_path: Path) -> None:
    texts = ["", "{", "[]", "{}", '{"model":{"vocab":{}}}', '{"model":{"vocab":{"a":"b"}}}', '{"model":{"vocab":{"a":-5}}}',
             '{"model":{"vocab":{"a":99999999999}},"added_tokens":[{"id":3,"content":"</s>","special":true}]}', '{"model":{"vocab":[1]}}']
    for text in texts:
        (tmp_path / "tokenizer.json").write_text(text)
        report = reported("vocab", tmp_path / "tokenizer.json", "-o", tmp_path / "x.stv", code=1)
        assert report["error"] in ("SourceError", "UnsupportedError") and report["hint"], text
    assert reported("vocab", tmp_path / "no such thing", "-o", tmp_path / "x.stv", code=1)["error"] == "SourceError"
    assert not (tmp_path / "x.stv").exists()


def test_bind_adds_vocabularies(person: Path, pack: Path, tmp_path: Path) -> None:
    other = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b""], [256], name="plain")
    other.save(tmp_path / "other.stv")
    report = reported("bind", person, "--vocab", pack, "--vocab", tmp_path / "other.stv", "-o", tmp_path / "b.stc")
    assert report.keys() >= REPORT and {entry["name"] for entry in report["vocabularies"]} == {"bytes", "plain"}
    assert set(Artifact.load(tmp_path / "b.stc").fingerprints) == {BYTES.fingerprint, other.fingerprint}
    assert run("bind", person, "--vocab", pack, "-o", person).exit_code == 0, "an artifact may be bound in place"
    assert "bound to" in run("bind", person, "--vocab", tmp_path / "other.stv", "-o", person).stdout
    assert person.read_bytes() == (tmp_path / "b.stc").read_bytes()
    assert reported("bind", person, "--vocab", person, "-o", tmp_path / "c.stc", code=1)["error"] == "MagicError"


# -- inspect ---------------------------------------------------------------------------------------------------------------


def test_inspect_reports_an_artifact(person: Path, pack: Path) -> None:
    portable = reported("inspect", person)
    assert portable.keys() >= REPORT and portable["need"] == [] and portable["vocabularies"] == []
    shortest = '{"name":"","age":0,"email":"","status":"pending","tags":[]}'
    assert portable["need_bytes"] == len(shortest) and run("check", person, shortest).exit_code == 0
    assert 0 < portable["forced_states"] < 1 and portable["bytes"] == person.stat().st_size
    assert "portable" in run("inspect", person).stdout
    run("bind", person, "--vocab", pack, "-o", person)
    bound = reported("inspect", person)
    assert bound["bytes"] == person.stat().st_size and 0 < bound["need"][0] < portable["need_bytes"]
    assert sum(entry["bytes"] for entry in bound["vocabularies"]) + bound["machine_bytes"] < bound["bytes"]
    shown = run("inspect", person).stdout
    assert f"{bound['need'][0]} tokens" in shown and f"{shortest and len(shortest)} bytes" in shown and "whitespace compact" in shown
    assert reported("inspect", PERSON)["states"] == portable["states"], "a source is compiled in memory"


def test_inspect_reports_a_vocabulary(pack: Path) -> None:
    report = reported("inspect", pack)
    assert report["kind"] == "vocabulary" and report["size"] == 260 and report["fingerprint"] == BYTES.fingerprint
    assert BYTES.fingerprint in run("inspect", pack).stdout


@pytest.mark.parametrize("name", ["person.schema.json", "tree.schema.json", "iso_date.regex"])
def test_the_graph_is_a_drawing_of_what_the_start_leads_to(name: str, tmp_path: Path) -> None:
    import xml.etree.ElementTree as Tree

    report = reported("inspect", SAMPLES / name, "--graph", tmp_path / "g.svg")
    root = Tree.parse(tmp_path / "g.svg").getroot()
    drawn = [element for element in root.iter("{http://www.w3.org/2000/svg}text") if element.get("class") == "m"]
    assert 1 < len(drawn) <= report["states"]
    calls = [element for element in root.iter("{http://www.w3.org/2000/svg}path") if (element.get("class") or "") == "e c"]
    assert (len(calls) > 0) == (report["sites"] > 0)
    again = (tmp_path / "g.svg").read_bytes()
    run("inspect", SAMPLES / name, "--graph", tmp_path / "g.svg")
    assert (tmp_path / "g.svg").read_bytes() == again


def test_names_from_files_cannot_drive_the_terminal(tmp_path: Path) -> None:
    hostile = compile_regex("a", source="\x1b]0;owned\x07[bold]x")
    hostile.save(tmp_path / "h.stc")
    shown = run("inspect", tmp_path / "h.stc").stdout
    assert "\x1b" not in shown and "\x07" not in shown and r"\x1b]0;owned\x07[bold]x" in shown


# -- check -----------------------------------------------------------------------------------------------------------------


def test_check_says_where_and_what(person: Path) -> None:
    assert run("check", person, ADA).stdout == "matches\n"
    assert reported("check", person, ADA) == {"matches": True, "offset": len(ADA), "expected": []}
    report = reported("check", person, '{"name":"Ada","age":"36"', code=1)
    assert (report["matches"], report["offset"], report["line"], report["column"], report["ended"]) == (False, 20, 1, 21, False)
    assert report["expected"] == ["`0` to `9`", "`-`"] or report["expected"] == ["`-`", "`0` to `9`"]
    shown = run("check", person, '{"name":"Ada","age":"36"')
    assert shown.exit_code == 1
    text, caret = shown.stdout.splitlines()[1:3]
    assert text[caret.index("^"):].startswith('"36"')


def test_forced_text_is_shown_whole(person: Path) -> None:
    assert reported("check", person, '{"n', code=1)["expected"] == ['`ame":"`']
    choices = reported("check", person, ADA.split("approved")[0], code=1)
    assert choices["ended"] and choices["expected"] == ['`approved","tags":[`', '`pending","tags":[`', '`rejected","tags":[`']
    assert "ends too early" in run("check", person, '{"n').stdout


def test_check_names_sets_of_bytes(tmp_path: Path) -> None:
    def expected(pattern: str, text: str) -> list[str]:
        (tmp_path / "p.regex").write_text(pattern)
        found = reported("check", tmp_path / "p.regex", text, code=1)["expected"]
        assert isinstance(found, list)
        return found

    assert expected("[a-cx0-9 ]", "é") == ["`0` to `9`", "`a` to `c`", "`x`", "a space"]
    assert expected("ab?", "ac") == ["`b`", "the end of the text"]
    assert expected("[a-c]", "abc") == ["the end of the text"]
    anything = expected(r'[^"]', '"')
    assert anything[0].startswith("any ASCII character except `\"`") and "any character beyond ASCII" in anything
    assert expected("[à-ï]", "x") == ["some characters beyond ASCII (first byte 0xc3)"]
    assert expected("[à-ï]", "ñ") == ["some other characters beyond ASCII (next byte 0xa0 to 0xaf)"]
    assert expected("ab[à-ï]x", "") == ["`ab`"], "a character that only begins is not forced text"
    assert expected("aé€🙂b", "") == ["`aé€🙂b`"]


def test_a_character_is_never_cut_in_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "p.regex").write_text("a[à-ï]x")
    report = reported("check", tmp_path / "p.regex", "añx", code=1)
    assert (report["offset"], report["column"]) == (2, 2)
    assert run("check", tmp_path / "p.regex", "añx").stdout.splitlines()[1:3] == ["  añx", "   ^"]


def test_lines_and_columns_are_those_of_an_editor(tmp_path: Path) -> None:
    (tmp_path / "p.regex").write_text("(é+\n)*x")
    report = reported("check", tmp_path / "p.regex", "éé\nééé?", code=1)
    assert (report["offset"], report["line"], report["column"]) == (11, 2, 4)
    shown = run("check", tmp_path / "p.regex", "éé\nééé?").stdout.splitlines()
    assert shown[1:3] == ["  ééé?", "     ^"]
    (tmp_path / "long.regex").write_text("a{9000}b")
    report = reported("check", tmp_path / "long.regex", "a" * 8999 + "b", code=1)
    assert report["offset"] == 8999
    assert all(len(line) < 100 for line in run("check", tmp_path / "long.regex", "a" * 8999 + "b").stdout.splitlines())


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize("dash", [[], ["-"]])
def test_check_reads_standard_input(person: Path, ending: str, dash: list[str]) -> None:
    assert run("check", person, *dash, input=ADA + ending).exit_code == 0
    assert run("check", person, *dash, input=ADA + ending + "\n\n").exit_code == 1


def test_a_final_line_break_that_belongs_to_the_text_is_kept(tmp_path: Path) -> None:
    compile_regex("a\n").save(tmp_path / "a.stc")
    assert run("check", tmp_path / "a.stc", input="a\n").exit_code == 0
    assert run("check", tmp_path / "a.stc", input="a").exit_code == 1


def test_check_takes_bytes_that_are_not_text(person: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(person), "--json"], input=b'{"name":"\xff\xfe"')
    assert json.loads(result.stdout)["offset"] == 9
    shown = CliRunner().invoke(main, ["check", str(person)], input=b'{"name":"\xff\xfe\x1b[31m"')
    assert r"\xff\xfe\x1b[31m" in shown.stdout and "\x1b" not in shown.stdout


# -- sample ----------------------------------------------------------------------------------------------------------------


def test_samples_are_valid_and_repeat(person: Path) -> None:
    report = reported("sample", person, "-n", 20, "--seed", 3, "--max-bytes", 120)
    assert len(report["outputs"]) == 20 and report["seed"] == 3
    validator = jsonschema.Draft202012Validator(json.loads(PERSON.read_text()))
    for output in report["outputs"]:
        validator.validate(json.loads(output))
        assert len(output.encode()) <= 120
    lines = run("sample", person, "-n", 20, "--seed", 3, "--max-bytes", 120).stdout
    assert lines == "".join(f"{output}\n" for output in report["outputs"])
    assert run("sample", person, "--seed", 4).stdout != run("sample", person, "--seed", 5).stdout
    assert run("sample", person).stdout.count("\n") == 5
    assert run("sample", person, "-n", 0).stdout == "" and reported("sample", person, "-n", 0)["outputs"] == []
    assert all(re.fullmatch(DATE.read_text().strip(), line) for line in run("sample", DATE, "-n", 9).stdout.splitlines())


# -- inputs at fault -------------------------------------------------------------------------------------------------------


def test_sources_at_fault(tmp_path: Path) -> None:
    cases: list[tuple[str, bytes, str]] = [
        ("empty.json", b"", "SourceError"), ("binary.json", bytes(range(256)), "SourceError"), ("list.json", b"[]", "SourceError"),
        ("deep.json", b"[" * 100_000, "BudgetError"), ("false.json", b"false", "UnsatisfiableError"),
        ("binary.regex", b"\xff", "SourceError"), ("open.regex", b"(", "SourceError"),
        ("a.tools.json", b"{}", "SourceError"), ("a.policy.yaml", b"", "SourceError"),
        ("noname", b"{}", "SourceError"), ("a.stc", b"", "TruncatedError"), ("b.stc", b"text", "MagicError"), ("c.stv", b"", "SourceError"),
    ]
    for name, data, error in cases:
        (tmp_path / name).write_bytes(data)
        for command in (["sample"], ["check", "x"], ["inspect"]) if not name.endswith(".stv") else (["sample"],):
            report = reported(command[0], tmp_path / name, *command[1:], code=1)
            assert report["error"] == error and report["message"] and report["hint"], (name, report)
            shown = run(command[0], tmp_path / name, *command[1:])
            assert not shown.stdout and shown.stderr.startswith("error: ") and "\nhint: " in shown.stderr and name in shown.stderr
            assert report["hint"] not in shown.stderr.split("\nhint: ")[0], "a hint is said once"


def test_a_name_that_tells_no_kind_is_refused_with_what_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("[]")
    refused = run("compile", tmp_path / "a.yaml")
    assert refused.exit_code == 1 and all(ending in refused.stderr for ending in (".schema.json", ".regex", ".tools.json", ".policy.yaml"))


def test_a_compiled_file_is_known_by_its_first_bytes(person: Path, pack: Path) -> None:
    renamed = person.rename(person.with_name("noname"))
    assert run("check", renamed, ADA).exit_code == 0
    assert reported("check", pack, ADA, code=1)["error"] == "MagicError"


def test_errors_name_the_place(tmp_path: Path) -> None:
    (tmp_path / "s.schema.json").write_text('{"properties":{"a":{"type":"strin"}}}')
    report = reported("compile", tmp_path / "s.schema.json", code=1)
    assert report["pointer"].startswith("#/properties/a") and report["source"] == str(tmp_path / "s.schema.json")
    assert f"error: {tmp_path / 's.schema.json'}#/properties/a" in run("compile", tmp_path / "s.schema.json").stderr


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_end_in_a_typed_error(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    bound = compile_json_schema(json.loads((SAMPLES / "tree.schema.json").read_text()), vocabularies=[BYTES])
    BYTES.save(tmp_path / "good.stv")
    for _ in range(12):
        for data, name in ((bound.to_bytes(), "x.stc"), (BYTES.to_bytes(), "x.stv")):
            damaged = bytearray(data)
            for _ in range(rng.choice((1, 3))):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            (tmp_path / name).write_bytes(damaged[:rng.choice((len(damaged), rng.randrange(len(damaged))))])
        stc, stv = tmp_path / "x.stc", tmp_path / "x.stv"
        for command in (["inspect", stc], ["check", stc, "{"], ["sample", stc], ["inspect", stv],
                        ["compile", DATE, "--vocab", stv, "-o", tmp_path / "o"],
                        ["bind", stc, "--vocab", tmp_path / "good.stv", "-o", tmp_path / "o"]):
            result = run(*command)
            assert result.exit_code in (0, 1) and "Traceback" not in result.output


def test_a_package_that_is_missing_is_named(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "referencing", None)
    for name in [name for name in sys.modules if name.startswith("stcc.compiler")]:
        monkeypatch.delitem(sys.modules, name)
    assert run("check", person, ADA).exit_code == 0, "an artifact needs no compiler"
    report = reported("inspect", PERSON, code=1)
    assert "referencing" in report["message"] and "stcc[compiler]" in report["hint"]
    assert run("compile", PERSON).exit_code == 2


def test_a_fault_of_stcc_keeps_its_traceback(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Artifact, "load", lambda _: 1 // 0)
    assert isinstance(CliRunner().invoke(main, ["check", str(person), "x"]).exception, ZeroDivisionError)
    monkeypatch.setattr(Artifact, "load", lambda _: int("x"))
    assert isinstance(CliRunner().invoke(main, ["check", str(person), "x"]).exception, ValueError)


# -- as a process ----------------------------------------------------------------------------------------------------------


def test_interrupted_is_130_and_quiet(tmp_path: Path) -> None:
    process = start("sample", DATE, "-n", 1_000_000)
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130 and said == b""


def test_a_reader_that_leaves_is_no_error() -> None:
    process = start("sample", DATE, "-n", 100_000)
    assert process.stdout is not None and process.stderr is not None and process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=20) == 0


def test_a_full_disk_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        process = start("sample", DATE, "-n", 3, stdout=full)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 1 and said == b"error: No space left on device\nhint: make room, or give a path elsewhere\n"


def terminal(*arguments: object, environment: dict[str, str], wait: float = 0.0) -> str:
    """What a command writes to a terminal; ``wait`` seconds of work are put before it."""
    master, slave = pty.openpty()
    source = f"import time, stcc.runtime.seam as s; f = s.compile_file; s.compile_file = lambda p: (time.sleep({wait}), f(p))[1]\n{SOURCE}"
    process = subprocess.Popen([sys.executable, "-c", source, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                               env={**os.environ, "TERM": "xterm", **environment})
    os.close(slave)
    shown, end = b"", time.monotonic() + 30
    while time.monotonic() < end:
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not piece:
            break
        shown += piece
    process.wait(timeout=20)
    os.close(master)
    return shown.decode()


def test_colours_on_a_terminal_unless_refused(person: Path) -> None:
    assert "\x1b[" in terminal("check", person, "x", environment={})
    assert "\x1b[" not in terminal("check", person, "x", environment={"NO_COLOR": "1"})
    assert "\x1b[3" not in terminal("inspect", person, environment={"NO_COLOR": "1"})


def test_work_that_takes_a_while_is_shown_on_a_terminal_only(person: Path) -> None:
    assert "opening person.stc" in terminal("check", person, ADA, environment={}, wait=1.6)
    assert "opening" not in terminal("check", person, ADA, environment={}, wait=0.0)


# -- the documentation -----------------------------------------------------------------------------------------------------


def examples() -> list[tuple[str, str]]:
    text = (SAMPLES.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", text)
    return [(command, shown) for command, shown in blocks if "llama3" not in command and "bound" not in command]


def test_the_documented_examples_say_what_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the numbers, which change with the compiler."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(SAMPLES)
    (tmp_path / "app.policy.yaml").write_text("[]")
    assert len(examples()) >= 6
    for command, shown in examples():
        result = run(*shlex.split(command)[1:])
        said = "\n".join(line.rstrip() for line in result.output.splitlines())
        assert re.sub(r"[\d,.]+", "0", said) == re.sub(r"[\d,.]+", "0", shown.rstrip("\n")), command


def test_every_flag_is_documented_in_its_help_and_the_document_names_no_other() -> None:
    text = (SAMPLES.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    flags = {flag for names in ([], *([name] for name in cli._SUMMARIES))
             for flag in re.findall(r"--[a-z][a-z-]*", run(*names, "--help").stdout)}
    assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", text)) <= flags
