"""The numbers of stcc explain against enumeration: every text of small grammars is written down, and everything is counted on them."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as Tree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from binding_cases import random_machines
from hypothesis import given, settings
from hypothesis import strategies as st

from stcc.compiler import Options, compile_json_schema, compile_regex
from stcc.compiler.analyses.byte_need import byte_need, verify_trim
from stcc.compiler.analyses.cut_states import cut_states
from stcc.compiler.explaining.explanation import Explanation, explain_artifact, explain_file
from stcc.compiler.explaining.groups import field_groups, sketch
from stcc.compiler.explaining.json_modes import UnreadableError
from stcc.compiler.explaining.reading import read_machine
from stcc.compiler.explaining.report import explanation_data
from stcc.compiler.machine import link
from stcc.compiler.pipeline import Trace
from stcc.compiler.stepping import run
from stcc.formats import Artifact, FormatError
from stcc.formats.machine import Machine, verify_machine
from stcc.runtime.drawing import draw_machine

SAMPLES = Path(__file__).parent.parent / "samples"
END = ""


@dataclass
class Written:
    """A finite language, written down: what may follow each prefix."""

    words: list[str]
    following: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for word in self.words:
            for place in range(len(word) + 1):
                self.following.setdefault(word[:place], set()).add(word[place:place + 1])

    def choices(self, word: str, start: int, stop: int) -> int:
        """At how many places from ``start``, before ``stop``, something else might have followed."""
        return sum(len(self.following[word[:place]]) > 1 for place in range(start, stop))

    def forced(self, word: str, start: int, stop: int) -> int:
        return stop - start - self.choices(word, start, stop)


def whole_numbers(language: Written) -> tuple[int, tuple[int, int], tuple[int, int, int]]:
    """Most passes, (bytes, chosen bytes) of a shortest word, and (words, bytes, forced bytes)."""
    words = language.words
    passes = max(language.choices(word, 0, len(word) + 1) for word in words)
    least = min((len(word), language.choices(word, 0, len(word))) for word in words)
    return passes, least, (len(words), sum(map(len, words)), sum(language.forced(word, 0, len(word)) for word in words))


Pattern = tuple[str, frozenset[str]]


def joined(one: Pattern, other: Pattern) -> Pattern:
    return one[0] + other[0], frozenset(left + right for left in one[1] for right in other[1])


PATTERNS = st.recursive(  # each with its words
    st.sampled_from(["a", "b", "ab", "ba", "abc", "c"]).map(lambda word: (word, frozenset([word]))),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: joined(*pair)),
        st.tuples(inner, inner).map(lambda pair: (f"(?:{pair[0][0]}|{pair[1][0]})", pair[0][1] | pair[1][1])),
        inner.map(lambda one: (f"(?:{one[0]})?", one[1] | {""})),
        inner.map(lambda one: (f"(?:{one[0]}){{1,2}}", one[1] | joined(one, one)[1]))),
    max_leaves=5)


@settings(max_examples=150, deadline=None)
@given(PATTERNS)
def test_a_regex_costs_what_its_words_do(pattern: Pattern) -> None:
    language = Written(sorted(pattern[1]))
    assert numbers(explain_artifact(compile_regex(pattern[0]))) == whole_numbers(language)


def numbers(explanation: Explanation) -> tuple[Any, ...]:
    return explanation.whole.passes, explanation.whole.least, tuple(explanation.whole.texts or ())


# -- JSON ------------------------------------------------------------------------------------------------------------------

SCALARS = st.sampled_from([{"type": "boolean"}, {"const": None}, {"enum": ["red", "reed", "blue"]},
                           {"enum": ["", "a b", True]}])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(parts: tuple[dict[str, Any], list[bool]]) -> dict[str, Any]:
        properties, flags = parts
        return {"type": "object", "properties": properties, "additionalProperties": False,
                "required": [name for name, flag in zip(properties, flags, strict=False) if flag]}

    flags = st.lists(st.booleans(), min_size=3, max_size=3)
    return st.tuples(st.dictionaries(st.sampled_from(["a", "ab", "b", 'q"']), inner, max_size=3), flags).map(build)


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(inner, st.integers(0, 1)).map(lambda pair: {"type": "array", "items": pair[0], "minItems": pair[1], "maxItems": 2})


SCHEMAS = st.recursive(SCALARS, lambda inner: objects(inner) | arrays(inner), max_leaves=4)
MOST_WORDS = 600


def written(schema: dict[str, Any]) -> list[str]:
    """All texts of a schema, in compact JSON, members as declared; too many raise OverflowError."""
    if "enum" in schema or "const" in schema:
        found = [json.dumps(value) for value in schema.get("enum", [schema.get("const")])]
    elif schema["type"] == "boolean":
        found = ["true", "false"]
    elif schema["type"] == "array":
        items = written(schema["items"])
        if len(items) ** 2 > MOST_WORDS:
            raise OverflowError
        found = ["[" + ",".join(chosen) + "]" for count in range(schema["minItems"], 3)
                 for chosen in itertools.product(items, repeat=count)]
    else:
        members = [""]
        for name, inner in schema["properties"].items():
            texts = [f"{json.dumps(name)}:{text}" for text in written(inner)]
            if len(members) * (len(texts) + 1) > 4 * MOST_WORDS:
                raise OverflowError
            absent = [] if name in schema["required"] else members
            members = [*absent, *(f"{before},{text}" if before else text for before in members for text in texts)]
        found = ["{" + text + "}" for text in members]
    if len(found) > MOST_WORDS:
        raise OverflowError
    return found


def spans(text: str) -> list[tuple[str, int, int]]:
    """The values of a JSON text: path with ``*`` for items, where it begins and ends."""
    found: list[tuple[str, int, int]] = []

    def value(path: str, place: int) -> int:
        start = place
        if text[place] in "{[":
            place += 1
            while text[place] not in "}]":
                inside = f"{path}/*"
                if text[start] == "{":
                    name, place = json.JSONDecoder().raw_decode(text, place)
                    inside, place = f"{path}/{name}", place + 1
                place = value(inside, place)
                place += text[place] == ","
            place += 1
        else:
            _, place = json.JSONDecoder().raw_decode(text, place)
        found.append((path, start, place))
        return place

    value("", 0)
    return found


def counted_fields(language: Written) -> dict[str, tuple[int, tuple[int, int], int]]:
    """Of each path: most choices in one value of it, a shortest value, and most values that may follow one prefix."""
    passes: dict[str, int] = {}
    least: dict[str, tuple[int, int]] = {}
    values: dict[str, dict[str, set[str]]] = {}
    for word in language.words:
        for path, start, stop in spans(word):
            passes[path] = max(passes.get(path, 0), language.choices(word, start, stop + (path == "")))
            size = (stop - start, language.choices(word, start, stop))
            least[path] = min(least.get(path, size), size)
            values.setdefault(path, {}).setdefault(word[:start], set()).add(word[start:stop])
    return {path: (passes[path], least[path], max(map(len, values[path].values()))) for path in passes}


@settings(max_examples=120, deadline=None)
@given(SCHEMAS, st.booleans())
def test_fields_cost_what_their_values_do(schema: dict[str, Any], called: bool) -> None:
    try:
        language = Written(written(schema))
    except OverflowError:
        return
    artifact = compiled(schema, called)
    explanation = explain_artifact(artifact, schema)
    assert explanation.unread == "" and numbers(explanation) == whole_numbers(language)
    counted = counted_fields(language)
    found = {entry.field.name: entry for entry in explanation.explained}
    copies = [entry.field for entry in explanation.explained if entry.field.same_as is not None]
    inside = [name for name in counted if any(name.startswith(copy.name + "/") for copy in copies)]
    assert found.keys() == counted.keys() - set(inside)
    for name, entry in found.items():
        lengths = entry.field.lengths
        assert lengths.texts is not None
        assert (lengths.passes, lengths.least, lengths.texts.number) == counted[name], name
        assert any(word.startswith(entry.prefix.decode()) for word in language.words)


def compiled(schema: Any, called: bool) -> Artifact:
    """Its artifact; with every object and array a rule that is called, if ``called``."""
    trace = Trace()
    artifact = compile_json_schema(schema, trace=trace)
    return Artifact.create("json_schema", link(trace.values["trimmed"]), artifact.metadata) if called else artifact


LINK = {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}
RECURSIVE = {"$defs": {"n": {"type": "object", "properties": {"v": {"type": "boolean"}, "next": LINK}, "required": ["v", "next"],
                             "additionalProperties": False}}, "$ref": "#/$defs/n"}


STRINGS = {"date-time": ({"type": "string", "format": "date-time"}, len('"0000-01-01T00:00:00Z"')),
           "long": ({"type": "string", "minLength": 300, "maxLength": 5000}, 302),
           "pattern": ({"type": "string", "pattern": "^a{400}$"}, 402)}


@pytest.mark.parametrize("kind", STRINGS)
def test_strings_that_are_rules_are_fields_like_others(kind: str) -> None:
    """Several places with one long string: it is called, or counted in blocks on the stack, and read across contexts."""
    schema, shortest = STRINGS[kind]
    names = [f"n{number}" for number in range(6)]
    artifact = compile_json_schema({"type": "object", "properties": dict.fromkeys(names, schema), "required": names,
                                    "additionalProperties": False})
    explanation = explain_artifact(artifact)
    assert [field.name for field in explanation.fields] == ["", *(f"/{name}" for name in names)]
    assert {field.lengths.least[0] for field in explanation.fields[1:]} == {shortest}
    assert explanation.whole.least[0] == 6 * (shortest + len('"n0":,')) + 1
    if kind == "long":
        assert artifact.machine.sites > 0 and explanation.fields[1].lengths.passes is not None
        assert 5000 <= explanation.fields[1].lengths.passes <= 5000 * 6 + 1, "a character is at most six bytes"


def test_recursion_has_no_bound_and_what_is_inside_it_has() -> None:
    explanation = explain_artifact(compile_json_schema(RECURSIVE), RECURSIVE)
    found = {each.name: each for each in explanation.fields}
    assert explanation.whole.passes is None and explanation.whole.least == (len('{"v":true,"next":null}'), 2)
    assert found["/v"].lengths.passes == 1 and found["/next"].lengths.passes is None and found["/next"].same_as is not None


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("*.*") if path.name.endswith((".schema.json", ".regex"))))
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_samples_agree_with_other_analyses(name: str, whitespace: str) -> None:
    """Least bytes are those of the byte needs, prefixes are read by the machine, cut fields begin at cut states."""
    if name.startswith("form") and whitespace == "flexible":
        pytest.skip("tens of seconds, and nothing that the others do not show")
    explanation = explain_file(SAMPLES / name, Options(whitespace=whitespace))
    machine = explanation.artifact.machine
    assert explanation.unread == "" and explanation.whole.least[0] == byte_need(machine)[machine.start]
    cuts = set(cut_states(machine))
    for entry in explanation.explained:
        assert entry.field.lengths.least[0] < 1 << 40
        there = run(machine, entry.prefix)
        assert there is not None, entry.prefix
        if not there.stack:
            assert not entry.field.cut or there.state in cuts or len(entry.field.path) == 0
    for region in explanation.regions:
        assert region.passes <= max(region.texts - 1, 0)


def test_numbers_have_no_longest_spelling_but_their_end_is_their_own_choice() -> None:
    """1, 1.0 and 1.00 are one number. After a digit there is a choice, which belongs to the number, whatever it falls on."""
    schema = {"type": "object", "properties": {"n": {"const": 1}, "m": {"const": True}}, "required": ["n", "m"],
              "additionalProperties": False}
    explanation = explain_artifact(compile_json_schema(schema))
    found = {each.name: each for each in explanation.fields}
    assert found["/n"].lengths.passes is None and found["/n"].lengths.least == (1, 0) and found["/n"].loose
    assert found["/m"].lengths.passes == 0 and found["/m"].lengths.forced_share == 1.0
    assert explanation.whole.least == (len('{"n":1,"m":true}'), 1), "the comma is chosen"


def test_too_many_places_are_refused_and_read_by_parts() -> None:
    machine = compile_json_schema({"type": "array", "items": {"type": "string"}}).machine
    with pytest.raises(UnreadableError, match="more than 5 places"):
        read_machine(machine, most=5)


def test_members_that_no_name_tells_apart() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "boolean"}}
    assert [each.name for each in explain_artifact(compile_json_schema(schema)).fields] == ["", "/*"]
    merged = {"type": "object", "properties": {"x": {"const": 1}, "y": {"const": 1}}, "additionalProperties": False, "minProperties": 1,
              "maxProperties": 1}
    assert [each.name for each in explain_artifact(compile_json_schema(merged)).fields] == ["", "/x|y"]


@settings(max_examples=250, deadline=None)
@given(random_machines(), st.sampled_from(["json_schema", "regex"]))
def test_machines_from_anywhere_are_explained_or_refused(machine: Machine, kind: str) -> None:
    """Whatever a file holds: numbers and a drawing, or a typed error; nothing else, and soon."""
    try:
        explanation = explain_artifact(Artifact.create(kind, machine))
    except FormatError:
        assert verify_machine(machine) or verify_trim(machine)
        return
    explanation_data(explanation)
    Tree.fromstring(draw_machine(machine, lambda: field_groups(explanation), lambda: sketch(explanation)))


def test_a_machine_that_opens_brackets_for_ever_is_read_by_parts() -> None:
    """No schema's machine does; read as JSON it would have a node for each depth."""
    explanation = explain_artifact(Artifact.create("json_schema", compile_regex(r"\[*\]").machine))
    assert "more than 256 containers" in explanation.unread and explanation.whole.least == (1, 1)
