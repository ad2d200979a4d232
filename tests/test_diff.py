"""Comparing languages: against interegular, a breadth-first search, jsonschema, random instances, and how pairs were made."""

from __future__ import annotations

import copy
import itertools
import json
import random
from typing import Any

import interegular
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_pairs import SchemaPair, instance, pairs, shortest

from stcc.compiler import Options, compile_json_schema, compile_regex
from stcc.compiler.comparison.comparison import Comparison, compare_machines
from stcc.compiler.comparison.configurations import search
from stcc.compiler.comparison.distinct_items import in_language
from stcc.compiler.comparison.json_path import path_at, pointer_text
from stcc.compiler.comparison.places import locate, refused_at, subschemas
from stcc.compiler.comparison.product import Product, StacksDiffer
from stcc.compiler.errors import UnsupportedError
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.machine import link
from stcc.compiler.stepping import accepts
from stcc.compiler.trim import trim
from stcc.formats.machine import Machine


def node(kids: Any) -> Any:
    return {"type": "object", "properties": {"v": {"type": "integer"}, "kids": kids}, "required": ["v", "kids"],
            "additionalProperties": False}


TREE = {"$defs": {"node": node({"type": "array", "items": {"$ref": "#/$defs/node"}})}, "$ref": "#/$defs/node"}


def machine_of(schema: Any, **options: Any) -> Machine:
    return compile_json_schema(schema, options=Options(**options)).machine


def compared(old: Any, new: Any) -> Comparison:
    return compare_machines(machine_of(old), machine_of(new))


# -- regular languages --------------------------------------------------------------------------------------------------------

ATOMS = st.sampled_from(["a", "b", "c", "[ab]", "[^a]", "ab", "(?:a|bc)"])


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(ATOMS)
    kind = draw(st.sampled_from(["atom", "then", "or", "repeat"]))
    if kind == "atom":
        return draw(ATOMS)
    first = draw(patterns(depth - 1))
    if kind == "repeat":
        return f"(?:{first}){draw(st.sampled_from(['*', '?', '+', '{2}', '{1,3}']))}"
    return f"(?:{first}{'|' if kind == 'or' else ''}{draw(patterns(depth - 1))})"


@settings(max_examples=60, deadline=None)
@given(patterns(), patterns(), st.sampled_from(["{new}", "(?:{old})|(?:{new})", "(?:{old})*", "(?:{new})(?:{old})"]))
def test_patterns_as_interegular_says(old: str, other: str, made: str) -> None:
    new = made.format(old=old, new=other)
    found = compare_machines(compile_regex(old).machine, compile_regex(new).machine)
    left, right = (interegular.parse_pattern(pattern).to_fsm() for pattern in (old, new))
    only = [shortest(left.difference(right)), shortest(right.difference(left))]
    assert found.exact
    assert found.relation == {(False, False): "equal", (False, True): "wider", (True, False): "narrower",
                              (True, True): "incomparable"}[only[0] is not None, only[1] is not None]
    for text, length, takes, refuses in ((found.only_old, only[0], left, right), (found.only_new, only[1], right, left)):
        assert (text is None) == (length is None)
        if text is not None:
            assert len(text.decode()) == length and takes.accepts(text.decode()) and not refuses.accepts(text.decode())


def test_characters_of_several_bytes() -> None:
    found = compare_machines(compile_regex("[a-é]").machine, compile_regex("[a-ê]").machine)
    assert (found.relation, found.only_new) == ("wider", "ê".encode())


# -- schemas ------------------------------------------------------------------------------------------------------------------


def valid(schema: Any, text: bytes) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))


def check_pair(pair: SchemaPair) -> None:
    found = compared(pair.old, pair.new)
    assert (found.relation, found.exact) == (pair.relation, True), pair
    for text, takes, refuses in ((found.only_old, pair.old, pair.new), (found.only_new, pair.new, pair.old)):
        if text is not None:
            assert valid(takes, text) and not valid(refuses, text), pair


@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_what_they_were_made(seed: int) -> None:
    for pair in itertools.islice(pairs(seed), 18):
        check_pair(pair)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_random_instances_never_contradict_the_relation(seed: int, chance: random.Random) -> None:
    pair = next(itertools.islice(pairs(seed), seed % 2, None))
    machines = (machine_of(pair.old), machine_of(pair.new))
    relation = compare_machines(*machines).relation
    for schema in (pair.old, pair.new):
        for _ in range(10):
            text = json.dumps(instance(schema, schema, chance), separators=(",", ":")).encode()
            taken = [accepts(machine, text) for machine in machines]
            assert taken == [valid(pair.old, text), valid(pair.new, text)]
            if relation in ("equal", "wider"):
                assert taken[1] >= taken[0]
            if relation in ("equal", "narrower"):
                assert taken[0] >= taken[1]


SMALL = st.recursive(
    st.sampled_from([{"type": "null"}, {"const": 1}, {"enum": [1, 2]}, {"enum": ["a", "b"]}, {"type": "boolean"}, {"$ref": "#/$defs/r"}]),
    lambda inner: st.one_of(
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 2)),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda value, needed: {"type": "object", "properties": {"k": value}, "required": ["k"] * needed,
                                         "additionalProperties": False}, inner, st.booleans()),
    ), max_leaves=5)


def small_schema(body: Any, rule: Any) -> Any:
    return {"$defs": {"r": {"anyOf": [{"type": "array", "items": rule, "maxItems": 2}, {"const": 7}]}}, **body}


@settings(max_examples=60, deadline=None)
@given(SMALL, SMALL, SMALL, SMALL)
def test_the_product_against_a_search_of_configurations(one: Any, one_rule: Any, other: Any, other_rule: Any) -> None:
    old, new = machine_of(small_schema(one, one_rule)), machine_of(small_schema(other, other_rule))
    found = compare_machines(old, new)
    plain = search(old, new, 1500)
    assert found.exact
    for text, expected in ((found.only_old, plain.only_old), (found.only_new, plain.only_new)):
        if expected is not None:
            assert text is not None and len(text) == len(expected)
        elif plain.complete:
            assert text is None
    if found.only_old is not None:
        assert accepts(old, found.only_old) and not accepts(new, found.only_old)
    if found.only_new is not None:
        assert accepts(new, found.only_new) and not accepts(old, found.only_new)


def test_calls_against_inlined_copies() -> None:
    """A language with a finite depth, once with calls and once with every level written out: the product has to see they are one."""
    node = {"type": "object", "properties": {"a": {"enum": ["x" * 40, "y" * 40]}, "b": {"type": "string", "maxLength": 30}},
            "required": ["a", "b"], "additionalProperties": False}
    shared = {"$defs": {"node": node}, "type": "array", "prefixItems": [{"$ref": "#/$defs/node"}] * 4, "items": {"$ref": "#/$defs/node"}}
    other = copy.deepcopy(node)
    other["properties"]["a"]["enum"].append("z")
    spread = {"type": "array", "prefixItems": [node, node, node, other], "items": node}
    found = compared(shared, spread)
    assert found.relation == "wider" and found.exact and found.only_new is not None
    items = json.loads(found.only_new)
    assert len(items) == 4 and items[3]["a"] == "z" and valid(spread, found.only_new) and not valid(shared, found.only_new)


def test_strings_that_fields_share() -> None:
    """Long strings become calls that return lazily, at other places in the two machines: the last field is alone in one of them."""
    names = [f"field_{number}" for number in range(8)]
    old = {"type": "object", "properties": {name: {"type": "string", "maxLength": 60} for name in names}, "required": names,
           "additionalProperties": False}
    new = copy.deepcopy(old)
    new["properties"][names[-1]]["maxLength"] = 61
    assert machine_of(old).sites and machine_of(new).sites
    found = compared(old, new)
    assert (found.relation, found.exact) == ("wider", True) and found.only_new is not None
    assert [len(value) for value in json.loads(found.only_new).values()] == [0] * 7 + [61]
    assert compared(new, old).relation == "narrower" and compared(old, copy.deepcopy(old)).relation == "equal"


def test_recursion_cut_off() -> None:
    cut = copy.deepcopy(TREE)
    cut["$defs"]["node"]["properties"]["kids"]["items"] = node({"type": "array", "maxItems": 0})
    found = compared(TREE, cut)
    assert (found.relation, found.only_old, found.exact) == ("narrower", b'{"v":0,"kids":[{"v":0,"kids":[{"v":0,"kids":[]}]}]}', True)
    assert compared(cut, TREE).relation == "wider" and compared(TREE, copy.deepcopy(TREE)).relation == "equal"


def test_deep_witnesses_do_not_recurse() -> None:
    old, new = ({"type": "array", "items": {"const": 0}, "minItems": least} for least in (1500, 1501))
    found = compared(old, new)
    assert (found.relation, found.only_old) == ("narrower", b"[" + b",".join([b"0"] * 1500) + b"]")


# -- items that must differ ---------------------------------------------------------------------------------------------------


def test_unique_items() -> None:
    plain = {"type": "array", "items": {"enum": [1, 2, "a"]}}
    free = {"type": "array", "items": {"type": "integer"}}
    assert compared(free, {**free, "uniqueItems": True}) == Comparison("narrower", b"[0,0]", None, True)
    assert compared({**free, "uniqueItems": True}, free) == Comparison("wider", None, b"[0,0]", True)
    assert compared(plain, {**plain, "uniqueItems": True}).relation == "narrower"
    unique = {**free, "uniqueItems": True}
    assert compared(unique, {**unique, "minItems": 1}) == Comparison("narrower", b"[]", None, True)
    both = compared({**free, "uniqueItems": True, "maxItems": 3}, {**free, "minItems": 1})
    assert (both.relation, both.only_old, both.exact) == ("incomparable", b"[]", True)
    nested = {"type": "object", "properties": {"a": {"type": "string"}, "b": free}, "required": ["a", "b"], "additionalProperties": False}
    unique = copy.deepcopy(nested)
    unique["properties"]["b"]["uniqueItems"] = True
    found = compared(unique, nested)
    assert (found.relation, found.only_new, found.exact) == ("wider", b'{"a":"","b":[0,0]}', True)
    assert not valid(unique, found.only_new or b"") and valid(nested, found.only_new or b"")


@pytest.mark.parametrize(("text", "holds"), [
    ("[1,1.0]", False), ("[1,true]", True), ('["a","\\u0061"]', False), ('[{"a":1,"b":2},{"b":2,"a":1}]', False), ("[[1],[1,1]]", True),
    ("[0,false,null]", True), ("[]", True), ("[1,", False),
])
def test_equality_of_items(text: str, holds: bool) -> None:
    assert in_language(machine_of({"type": "array", "uniqueItems": True}), text.encode()) is holds


def test_what_is_not_known_is_said_and_never_satisfies() -> None:
    cut = compare_machines(compile_regex("(?:a{40}b?){60}").machine, compile_regex("(?:a{40}b?){60}c").machine, most_nodes=1000)
    assert not cut.exact and cut.reason and not any(cut.satisfies(required) for required in ("equal", "wider", "narrower"))


def test_a_machine_is_equal_to_itself_without_a_search() -> None:
    machine = machine_of(TREE)
    assert compare_machines(machine, machine, most_nodes=0) == Comparison("equal", None, None, True)


def test_a_time_limit_stops_the_search() -> None:
    def late() -> None:
        raise TimeoutError

    old, new = compile_regex("[a-c]{2000}").machine, compile_regex("[a-c]{2001}").machine
    with pytest.raises(TimeoutError):
        compare_machines(old, new, check=late)


def called(before: bytes, inside: bytes, after: bytes, again: bool = False) -> Machine:
    """``before``, a called rule, and ``after``; the rule reads ``inside``, or any number of its last byte if ``again``: a lazy return."""
    outer, inner = RuleBuilder("#"), RuleBuilder("#/inner")
    begun, returned, end = outer.node(), outer.node(), outer.node()
    outer.literal(0, before, begun)
    outer.call(begun, 1, [returned])
    outer.literal(returned, after, end)
    outer.exit(end, 0)
    some = inner.node()
    inner.literal(0, inside, some)
    if again:
        inner.byte(some, inside[-1], inside[-1], some)
    inner.exit(some, 0)
    machine = link(trim(Grammar((outer.build(), inner.build()))))
    assert machine.sites
    return machine


def test_lazy_returns_against_the_language_written_out() -> None:
    lazy = called(b"x", b"a", b"y", again=True)
    for product in (Product(lazy, compile_regex("xa+y").machine, 1000), Product(lazy, called(b"xa", b"a", b"y", again=True), 1000)):
        product.search()
        assert product.complete and product.witness(1) is None
    assert compare_machines(lazy, compile_regex("xa+y").machine) == Comparison("equal", None, None, True)
    assert compare_machines(lazy, compile_regex("xa*y").machine) == Comparison("wider", None, b"xy", True)
    assert compare_machines(lazy, called(b"x", b"aa", b"y", again=True)) == Comparison("narrower", b"xay", None, True)
    assert compare_machines(lazy, called(b"x", b"a", b"z", again=True)) == Comparison("incomparable", b"xay", b"xaz", True)
    assert compare_machines(lazy, called(b"x", b"a", b"y")) == Comparison("narrower", b"xaay", None, True)  # one returns before the other
    assert compare_machines(called(b"x", b"aaa", b"y"), lazy) == Comparison("wider", None, b"xay", True)


def written_out(before: bytes, inside: bytes, after: bytes, again: bool) -> str:
    return (before + inside).decode() + (chr(inside[-1]) + "*" if again else "") + after.decode()


WORDS = st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba"]), min_size=1, max_size=3).map(b"".join)


@settings(max_examples=60, deadline=None)
@given(st.tuples(WORDS, WORDS, WORDS, st.booleans()), st.tuples(WORDS, WORDS, WORDS, st.booleans()))
def test_calls_begun_and_left_anywhere(one: tuple[bytes, bytes, bytes, bool], other: tuple[bytes, bytes, bytes, bool]) -> None:
    """Calls that begin and end at different bytes, whether or not the product can follow them, against regular expressions."""
    try:
        old, new = called(*one), called(*other)
    except UnsupportedError:
        return  # whether to return is not decided by one byte
    found = compare_machines(old, new)
    expected = compare_machines(*(compile_regex(written_out(*parts)).machine for parts in (one, other)))
    assert found.exact
    assert (found.relation, found.only_old and len(found.only_old), found.only_new and len(found.only_new)) == (
        expected.relation, expected.only_old and len(expected.only_old), expected.only_new and len(expected.only_new))


def test_stacks_that_are_not_nested() -> None:
    old, new = called(b"xa", b"bc", b"dy"), called(b"xab", b"cd", b"y")
    with pytest.raises(StacksDiffer):
        Product(old, new, 1000).search()
    assert compare_machines(old, new) == Comparison("equal", None, None, True)  # the search of configurations ran dry
    cut = compare_machines(old, new, most_configurations=2)
    assert not cut.exact and "do not keep step" in cut.reason


# -- places -------------------------------------------------------------------------------------------------------------------


def test_paths_in_texts() -> None:
    text = b'{"a/b":{"b":[1,{"c":"x,}"}]},"d":12}'
    found = {offset: pointer_text(path_at(text, offset)) for offset in (0, 3, 7, 14, 16, 22, 28, 35, 36)}
    assert found == {0: "", 3: "", 7: "/a~1b", 14: "/a~1b/b/0", 16: "/a~1b/b/1", 22: "/a~1b/b/1/c", 28: "/a~1b", 35: "/d", 36: ""}


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.none() | st.integers(-9, 99) | st.text('a"\\,{[:', max_size=3),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('b"\\~/', max_size=2), inner, max_size=3),
                    max_leaves=8))
def test_every_scalar_is_found_at_its_bytes(value: Any) -> None:
    """Every place of a scalar, by walking the value while it is written."""
    places: list[tuple[int, tuple[str | int, ...]]] = []

    def write(part: Any, path: tuple[str | int, ...], before: str) -> str:
        if isinstance(part, dict):
            text = before + "{"
            for number, (name, inner) in enumerate(part.items()):
                text = write(inner, (*path, name), text + ("," if number else "") + json.dumps(name) + ":")
            return text + "}"
        if isinstance(part, list):
            text = before + "["
            for number, inner in enumerate(part):
                text = write(inner, (*path, number), text + ("," if number else ""))
            return text + "]"
        text = before + json.dumps(part)
        places.extend((len(before.encode()) + at, path) for at in (1, len(text.encode()) - len(before.encode())))
        return text

    text = write(value, (), "").encode()
    for offset, path in places:
        assert path_at(text, offset) == path


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
                                           "age": {"type": "integer", "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False, "$defs": {"tag": {"enum": ["a", "b"]}}}


@pytest.mark.parametrize(("edit", "instance", "pointer", "keyword"), [
    (lambda new: new["properties"]["age"].update(maximum=130), "/age", "#/properties/age", "maximum"),
    (lambda new: new["required"].remove("age"), "", "#", "required"),
    (lambda new: new["$defs"]["tag"]["enum"].append("c"), "/tags/0", "#/$defs/tag", "enum"),
    (lambda new: new["properties"].update(more={"type": "null"}), "", "#", "properties"),
    (lambda new: new.update(additionalProperties=True), "", "#", "additionalProperties"),
    (lambda new: new["properties"]["name"].update(type=["string", "null"]), "/name", "#/properties/name", "type"),
])
def test_the_place_of_a_difference(edit: Any, instance: str, pointer: str, keyword: str) -> None:
    new = copy.deepcopy(PERSON)
    edit(new)
    old_machine = machine_of(PERSON)
    found = compare_machines(old_machine, machine_of(new))
    assert found.relation == "wider" and found.only_new is not None
    place = locate(found.only_new, old_machine, PERSON, new)
    assert place.instance == instance and pointer in place.old and pointer in place.new
    assert [(change.pointer, change.keyword) for change in place.changes] == [(pointer, keyword)]
    assert place.offset == refused_at(old_machine, found.only_new)
    assert locate(found.only_new, old_machine).offset == place.offset


def test_subschemas_about_a_value() -> None:
    schema = {"allOf": [{"properties": {"a": {"$ref": "#/$defs/x"}}}], "patternProperties": {"^b": True},
              "additionalProperties": {"type": "null"},
              "$defs": {"x": {"prefixItems": [{"const": 1}], "items": {"const": 2}, "$ref": "#/$defs/x"}}}
    assert list(subschemas(schema, ("a",))) == ["#/additionalProperties", "#/allOf/0/properties/a", "#/$defs/x"]
    assert list(subschemas(schema, ("a", 0))) == ["#/$defs/x/prefixItems/0"] and list(subschemas(schema, ("a", 5))) == ["#/$defs/x/items"]
    assert list(subschemas(schema, ("z",))) == ["#/additionalProperties"] and subschemas(True, ("a",)) == {}
