"""stcc explain and the drawings: reports, cautions with their places, pages and SVGs that stand alone, whatever a schema is called."""

from __future__ import annotations

import html.parser
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as Tree
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stcc.compiler import compile_json_schema, compile_regex
from stcc.compiler.explaining.explanation import explain_artifact, explain_file
from stcc.compiler.explaining.groups import field_groups, sketch
from stcc.formats import Vocabulary
from stcc.runtime import load
from stcc.runtime.cli import main
from stcc.runtime.commands.explain_tokens import FieldBlocks, need_after, shortest_output
from stcc.runtime.decoding.block_plan import plan_blocks
from stcc.runtime.drawing import FEW_NODES, draw_machine

SAMPLES = Path(__file__).parent.parent / "samples"
SOURCES = sorted([*SAMPLES.glob("*.schema.json"), *SAMPLES.glob("*.regex"), *SAMPLES.glob("*.tools.json"),
                  *SAMPLES.glob("policies/*.policy.yaml")])
BYTES = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b"", b'":"', b"19", b'{"'], [256], name="bytes")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&]]>\x1b[31m"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def reported(*arguments: object) -> dict[str, Any]:
    result = run("explain", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False, **more}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    BYTES.save(tmp_path / "bytes.stv")
    return tmp_path / "bytes.stv"


# -- reports ---------------------------------------------------------------------------------------------------------------


def test_a_source_and_its_artifact_say_the_same_but_for_places(tmp_path: Path, pack: Path) -> None:
    run("compile", SAMPLES / "person.schema.json", "-o", tmp_path / "p.stc")
    source, compiled = reported(SAMPLES / "person.schema.json", "--vocab", pack), reported(tmp_path / "p.stc", "--vocab", pack)
    assert source["fields"][4] == {
        "path": "/status", "types": ["string"], "states": 21, "passes": 1, "need_bytes": 9, "chosen_bytes": 1, "texts": 3,
        "forced_share": 0.8966, "forced_of": "all texts", "cut": True, "same_as": None, "schema": ["#/properties/status"], "region": 3,
        "certified": True, "before": '{"name":"","age":0,"email":"","status":', "block": 3, "need": source["fields"][4]["need"]}
    assert [{**row, "schema": []} for row in source["fields"]] == compiled["fields"]
    assert [each["pointer"] for each in source["warnings"]] == ["#/properties/name", "#/properties/email"]
    assert [each["pointer"] for each in compiled["warnings"]] == ["/name", "/email"]


def test_numbers_in_tokens_are_the_matchers(pack: Path) -> None:
    report = reported(SAMPLES / "person.schema.json", "--vocab", pack)
    grammar = load(explain_file(SAMPLES / "person.schema.json").artifact, BYTES)
    shortest = report["shortest"]
    assert report["need"] == grammar.need() == shortest["tokens"] == shortest["sampled"] + shortest["forced"]
    assert run("check", SAMPLES / "person.schema.json", shortest["text"]).exit_code == 0
    for row in report["fields"]:
        matcher = grammar.matcher()
        assert matcher.accept_bytes(row["before"].encode()) and matcher.need() == row["need"]
    assert [row["block"] for row in report["fields"]] == [0, 0, 1, 2, 3, 4, 4] and report["blocks"] == 5


@pytest.mark.parametrize("name", ["person", "classification", "tree", "directory", "product"])
def test_blocks_without_a_tokenizer_are_those_of_the_block_decoder(name: str) -> None:
    """With one token a byte the plan has a block for each key, which is what is said without one."""
    single = Vocabulary.from_tokens([bytes([code]) for code in range(256)] + [b""], [256], name="single")
    explanation = explain_file(SAMPLES / f"{name}.schema.json")
    portable, bound = FieldBlocks(load(explanation.artifact)), FieldBlocks(load(explanation.artifact, single))
    assert portable.count == bound.count == len(plan_blocks(load(explanation.artifact, single)).blocks)
    for entry in explanation.explained:
        assert portable.of(entry.prefix) == bound.of(entry.prefix), entry.field.name


def test_grammars_without_budgets_have_no_needs() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 2}
    grammar = load(compile_json_schema(schema), BYTES)
    assert shortest_output(grammar) is None and need_after(grammar, b"x") is None


def test_flags_are_for_sources(tmp_path: Path) -> None:
    compile_regex("a").save(tmp_path / "a.stc")
    assert run("explain", tmp_path / "a.stc", "--whitespace", "flexible").exit_code == 2
    assert reported(SAMPLES / "tree.schema.json", "--whitespace", "spaced")["options"]["whitespace"] == "spaced"


TOOLS = {"format": "qwen3", "tools": [
    {"type": "function", "function": {"name": "fly", "parameters": {
        "type": "object", "required": ["to", "why", "now"],
        "properties": {"to": {"type": "string", "pattern": "^[A-Z]{3}$"}, "why": {"type": "string"}, "now": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object"}}}]}


@pytest.mark.parametrize("arguments", [("explain", "--html"), ("inspect", "--graph")])
def test_what_is_written_replaces_nothing_that_is_read(tmp_path: Path, arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the work, as that a folder is not there."""
    def explain_file(*_: object) -> None:
        raise AssertionError("not reached")

    command, flag = arguments
    monkeypatch.setattr(f"stcc.runtime.commands.{command}.explain_file", explain_file)
    source = tmp_path / "a.schema.json"
    source.write_text('{"type": "boolean"}')
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link"):
        result = CliRunner().invoke(main, [command, str(source), flag, str(target)])
        assert result.exit_code == 2 and "is read by this command" in result.output.replace("\n", " ")
    result = CliRunner().invoke(main, [command, str(source), flag, str(tmp_path / "none" / "x")])
    assert result.exit_code == 1 and "none: No such file or directory" in result.output
    assert source.read_text() == '{"type": "boolean"}'


def test_tools_are_explained_one_by_one(tmp_path: Path) -> None:
    """As the set has them: no members but those that a tool names."""
    (tmp_path / "few.tools.json").write_text(json.dumps(TOOLS))
    report = reported(tmp_path / "few.tools.json")
    assert {name: [row["path"] for row in tool["fields"]] for name, tool in report["tools"].items()} == {
        "fly": ["", "/to", "/why", "/now"], "wait": [""]}
    origin = report["tools"]["fly"]["fields"][1]
    assert (origin["texts"], origin["passes"], origin["schema"]) == (26**3, 3, ["#/properties/to"])
    assert [row["path"] for row in report["fields"]] == [""]
    shown = run("explain", tmp_path / "few.tools.json").stdout
    assert "arguments of fly, compiled alone" in shown and "fly: #/properties/why" in shown


# -- cautions --------------------------------------------------------------------------------------------------------------


def cautions(schema: dict[str, Any], tmp_path: Path, *flags: str) -> list[dict[str, str]]:
    (tmp_path / "s.schema.json").write_text(json.dumps(schema))
    found = reported(tmp_path / "s.schema.json", *flags)["warnings"]
    assert isinstance(found, list)
    assert all(each["pointer"] and each["message"] and each["hint"] for each in found)
    return found


def codes(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(each["code"], each["pointer"]) for each in found]


def test_text_of_any_length_before_a_field(tmp_path: Path) -> None:
    text, flag = {"type": "string"}, {"type": "boolean"}
    assert codes(cautions(closed({"bio": text, "ok": flag}), tmp_path)) == [("unbounded-text", "#/properties/bio")]
    assert cautions(closed({"ok": flag, "bio": text}), tmp_path) == []
    assert cautions(closed({"bio": text | {"maxLength": 9}, "ok": flag}), tmp_path) == []
    inner = closed({"list": {"type": "array", "items": closed({"a~/b": {"type": "string"}, "n": {"type": "null"}})}})
    assert codes(cautions(inner, tmp_path)) == [("unbounded-text", "#/properties/list/items/properties/a~0~1b")]


def test_unbounded_whitespace(tmp_path: Path) -> None:
    schema = closed({"ok": {"type": "boolean"}})
    assert codes(cautions(schema, tmp_path, "--whitespace", "flexible")) == [("unbounded-whitespace", "#")]
    for kind in ("compact", "spaced"):
        assert cautions(schema, tmp_path, "--whitespace", kind) == []


def test_overlapping_names(tmp_path: Path) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"x_id": {"const": True}},
              "patternProperties": {"^x_": {"type": "boolean"}, "_id$": {"type": "boolean"}, "^q$": {"type": "null"}}}
    found = cautions(schema, tmp_path)
    assert {each["pointer"] for each in found} == {"#/patternProperties"} and len(found) == 3
    example = re.search("both match '(.*)':", found[0]["message"])
    assert example is not None and re.search("^x_", example[1]) and re.search("_id$", example[1])


def test_overlapping_alternatives(tmp_path: Path) -> None:
    (tmp_path / "p.regex").write_text("(?:ab?|abc|b+)(?:x|yz)")
    (tmp_path / "q.regex").write_text("(?:a|bc|bd)+")
    assert reported(tmp_path / "q.regex")["warnings"] == []
    (tmp_path / "p.regex").write_text("(?:ab?|abc?|[b]+)(?:xx|yz)")
    (found,) = (each for each in reported(tmp_path / "p.regex")["warnings"] if each["code"] == "overlapping-alternatives")
    assert found["message"] == "alternatives 1 and 2 of 3 both match 'ab'"


def test_what_the_compiler_recorded(tmp_path: Path) -> None:
    many = {"type": "object", "properties": {f"p{number}": {"type": "integer", "multipleOf": 97 + number} for number in range(9)}}
    recorded = codes(cautions(closed({"u": {"type": "string", "format": "nonsense"}}), tmp_path))
    assert recorded == [("compiler", "#/properties/u")]
    explanation = explain_artifact(compile_json_schema(many))
    assert not any(each.code == "declared-order" for each in explanation.cautions)


def test_a_kept_order_is_recognised() -> None:
    """The compiler's own words for it: see pipeline._kept_order."""
    from stcc.compiler.errors import BudgetError
    from stcc.compiler.explaining.cautions import recorded_cautions
    from stcc.compiler.pipeline import _kept_order
    from stcc.formats.artifact import Metadata

    note = _kept_order(BudgetError("too many states", pointer="#/properties/a", hint=""))
    (found,) = recorded_cautions(Metadata(warnings=(note,)))
    assert (found.code, found.place) == ("declared-order", "#/properties/a")
    (left,) = recorded_cautions(Metadata(unenforced=({"pointer": "#/x", "keyword": "uniqueItems", "message": "too many"},)))
    assert (left.code, left.place, left.keyword) == ("unenforced", "#/x", "uniqueItems")


# -- drawings --------------------------------------------------------------------------------------------------------------


explained = lru_cache(maxsize=None)(explain_file)
"""Drawings and reports start from the same explanations; that explaining is deterministic is tested across processes."""


def drawn(file: Path) -> str:
    explanation = explained(file)
    return draw_machine(explanation.artifact.machine, lambda: field_groups(explanation), lambda: sketch(explanation))


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_every_sample_has_a_readable_drawing(file: Path) -> None:
    """Well-formed, few nodes, no box on another, everything inside the picture, the same twice."""
    svg = drawn(file)
    root = Tree.fromstring(svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    boxes = [tuple(float(box.attrib[key]) for key in ("x", "y", "width", "height")) for box in root.iter(f"{SVG}rect")
             if box.get("class", "")[0] in "ngt" and box.get("rx") not in ("20", "6")]
    assert 1 < len(boxes) <= 420
    for x, y, w, h in boxes:
        assert left <= x and x + w <= left + width and top <= y and y + h <= top + height
    for place, (x, y, w, h) in enumerate(boxes):
        for u, v, s, t in boxes[place + 1:]:
            assert x + w <= u + 1 or u + s <= x + 1 or y + h <= v + 1 or v + t <= y + 1
    for path in root.iter(f"{SVG}path"):
        straight = path.get("class") != "h" and "c" not in path.attrib["d"]
        numbers = [float(part) for part in re.findall(r"-?\d+", path.attrib["d"])] if straight else []
        assert all(left <= x <= left + width for x in numbers[::2]) and all(top <= y <= top + height for y in numbers[1::2])
    assert svg == drawn(file)


def test_drawings_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    found = set()
    for seed in ("0", "1"):
        target = tmp_path / f"{seed}.svg"
        command = ["inspect", str(SAMPLES / "expression.schema.json"), "--graph", str(target)]
        subprocess.run([sys.executable, "-c", "from stcc.runtime.cli import main; main()", *command], check=True, capture_output=True,
                       env={**os.environ, "PYTHONHASHSEED": seed})
        found.add(target.read_bytes())
    assert len(found) == 1


def test_forced_text_and_loops_are_spelled() -> None:
    svg = drawn(SAMPLES / "person.schema.json")
    words = [element.text or "" for element in Tree.fromstring(svg).iter(f"{SVG}text")]
    assert '{"name":"' in words and '","age":' in words and "pending" in words
    assert any(word.startswith("↺ any ASCII character") for word in words)


def test_small_machines_are_drawn_by_states_and_large_ones_by_fields() -> None:
    small = compile_regex("(?:a|bc)d").machine
    svg = Tree.fromstring(draw_machine(small))
    assert len([text for text in svg.iter(f"{SVG}text") if text.get("class") == "m"]) <= small.states <= FEW_NODES
    words = [text.text or "" for text in Tree.fromstring(drawn(SAMPLES / "form96.schema.json")).iter(f"{SVG}text")]
    named = [row for row in words if row.startswith("/")]
    assert named == [field.name for field in explained(SAMPLES / "form96.schema.json").fields[1:]]


# -- pages -----------------------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Tags that a page has, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        loading = ("src", "href", "xlink:href", "srcset", "data", "action", "onload", "onclick")
        self.loads += [value or "" for name, value in attrs if name in loading]


def test_pages_stand_alone_and_escape_everything(tmp_path: Path, pack: Path) -> None:
    schema = closed({HOSTILE: {"type": "string"}, "b": {"enum": [HOSTILE, "x"]}})
    file = tmp_path / "<img src=x onerror=alert(1)>.schema.json"
    file.write_text(json.dumps(schema))
    result = run("explain", file, "--html", tmp_path / "page.html", "--vocab", pack)
    assert result.exit_code == 0 and "\x1b" not in result.stdout
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.loads == [] and not page.tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert "<script" not in text and "<img" not in text and "\x1b" not in text and "&lt;script&gt;alert(1)" in text
    assert "url(" not in text.replace("url(#h)", "") and "@import" not in text
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", text)
    assert "prefers-color-scheme:dark" in text and BYTES.fingerprint in text
    run("explain", file, "--html", tmp_path / "again.html", "--vocab", pack)
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_a_drawing_of_hostile_names_is_well_formed(tmp_path: Path) -> None:
    (tmp_path / "h.schema.json").write_text(json.dumps(closed({HOSTILE: {"enum": [HOSTILE, "x"]}})))
    assert run("inspect", tmp_path / "h.schema.json", "--graph", tmp_path / "h.svg").exit_code == 0
    root = Tree.parse(tmp_path / "h.svg").getroot()
    known = {f"{SVG}{name}" for name in ("svg", "title", "style", "marker", "path", "rect", "text")}
    assert {element.tag for element in root.iter()} <= known


@pytest.mark.parametrize("file", [SAMPLES / "tree.schema.json", SAMPLES / "ipv4.regex", SAMPLES / "policies" / "refund.policy.yaml"],
                         ids=lambda file: file.name)
def test_pages_have_every_field_and_their_drawing(file: Path, tmp_path: Path) -> None:
    report = reported(file, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<svg" in text and all((row["path"] or "(all)") in text for row in report["fields"])
    assert report["source_sha256"] in text


# -- the documentation -----------------------------------------------------------------------------------------------------


def test_the_documented_examples_say_what_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (SAMPLES.parent / "docs" / "explain.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(SAMPLES)
    for document in re.findall(r"```json\n((?:.*\n)*?)```", text):
        (tmp_path / json.loads(document)["$comment"]).write_text(json.dumps({**json.loads(document)}))
    blocks = re.findall(r"```console\n\$ stcc (.*)\n((?:.*\n)*?)```", text)
    assert len(blocks) == 2
    for command, shown in blocks:
        said = "\n".join(line.rstrip() for line in run(*command.split()).output.splitlines())
        assert re.sub("SHA-256 .*", "", said) == re.sub("SHA-256 .*", "", shown.rstrip("\n")), command


def test_every_key_and_code_is_documented(pack: Path) -> None:
    from stcc.runtime.commands.explain_page import _MEANINGS

    text = (SAMPLES.parent / "docs" / "explain.md").read_text(encoding="utf-8")
    report = reported(SAMPLES / "person.schema.json", "--vocab", pack)
    keys = {*report, *report["fields"][0], *report["regions"][0], *report["warnings"][0], *report["shortest"]}
    assert {key for key in keys if f"`{key}`" not in text} == set()
    assert {column for column in _MEANINGS if f"| {column} |" not in text} == {"field", "type"}
