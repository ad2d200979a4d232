"""OpenAPI documents: what is compiled agrees with openapi-schema-validator (3.0, both directions) and jsonschema (3.1), and the ways in."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator

from stcc.compiler import BudgetError, Options, SourceError, UnsatisfiableError, UnsupportedError, compile_openapi, list_operations
from stcc.compiler.frontends.openapi import operation_schema
from stcc.compiler.frontends.openapi.reading import parse_yaml
from stcc.runtime import load
from stcc.runtime.cli import main

PETS = Path(__file__).parent.parent / "samples" / "pets.openapi.yaml"
ANY_ORDER = Options(property_order="any", formats="annotate")


def api(schema: Any, components: dict[str, Any] | None = None, version: str = "3.0.3") -> dict[str, Any]:
    """A document whose operation ``op`` sends and answers with ``schema``."""
    content = {"content": {"application/json": {"schema": schema}}}
    return {"openapi": version, "paths": {"/op": {"post": {"operationId": "op", "requestBody": content, "responses": {"200": content}}}},
            "components": {"schemas": components or {}}}


def takes(grammar: Any, value: Any) -> bool:
    matcher = grammar.matcher()
    return bool(matcher.accept_bytes(json.dumps(value, separators=(",", ":")).encode()) and matcher.is_accepting())


def compiled(document: Any, part: str = "request", **arguments: Any) -> Any:
    return load(compile_openapi(document, "op", part, **{"options": ANY_ORDER, **arguments}))


# --- against another implementation -------------------------------------------------------------------------------------------------

COMPONENTS = {
    "Node": {"type": "object", "required": ["id", "next"], "properties": {
        "id": {"type": "integer", "readOnly": True}, "next": {"nullable": True, "type": "object", "properties": {
            "a": {"$ref": "#/components/schemas/Node"}}, "additionalProperties": False},
        "b": {"$ref": "#/components/schemas/Secret"}}, "additionalProperties": False},
    "Secret": {"type": "string", "writeOnly": True, "enum": ["a", "b"]},
    "Small": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": False, "nullable": True},
}
BOUNDS = st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional={
    "minimum": st.integers(-2, 2), "maximum": st.integers(0, 4), "exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans(),
    "nullable": st.booleans()})
LEAVES = BOUNDS | st.sampled_from([
    {"type": "string"}, {"type": "string", "nullable": True, "enum": ["a", None]}, {"type": "boolean", "nullable": True}, {},
    # not Secret: OpenAPI has writeOnly of properties only, the other validator of any schema
    {"$ref": "#/components/schemas/Node"}, {"$ref": "#/components/schemas/Small"},
])
NAMES = st.sampled_from(["id", "a", "b", "next"])


def _object(properties: dict[str, Any], required: list[str], flags: dict[str, str], closed: bool) -> dict[str, Any]:
    marked = {name: {**each, flags[name]: True} if flags.get(name) and "$ref" not in each else each for name, each in properties.items()}
    return {"type": "object", "properties": marked, **({"required": required} if required else {}), "additionalProperties": not closed}


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.lists(NAMES, max_size=2, unique=True),
                        st.dictionaries(NAMES, st.sampled_from(["readOnly", "writeOnly"]), max_size=2), st.booleans())
    arrays = st.builds(lambda item, most: {"type": "array", "items": item, "maxItems": most}, inner, st.integers(0, 2))
    choices = st.builds(lambda key, options: {key: options}, st.sampled_from(["anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=2))
    return objects | arrays | choices


SCHEMAS = st.recursive(LEAVES, _deeper, max_leaves=4)
# no 1.0: the other validator, of 3.0, takes no float for an integer
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-3, 5) | st.sampled_from(["a", "b", "c", 0.5]),
                      lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5)


@settings(max_examples=60, deadline=None)
@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=8, max_size=8))
def test_random_schemas_of_30_agree_with_another_validator_in_both_directions(schema: Any, values: list[Any]) -> None:
    document = api(schema, COMPONENTS)
    for part, kind in (("request", OAS30WriteValidator), ("response", OAS30ReadValidator)):
        whole = {**schema, "components": {"schemas": COMPONENTS}} if "$ref" not in schema else {
            "allOf": [schema], "components": {"schemas": COMPONENTS}}
        validator = kind(whole)
        try:
            grammar = compiled(document, part)
        except UnsatisfiableError:
            assert not any(validator.is_valid(value) for value in values)
            continue
        for value in values:
            assert takes(grammar, value) == validator.is_valid(value), (part, value)


@settings(max_examples=40, deadline=None)
@given(schema=st.recursive(
    st.sampled_from([{"type": ["integer", "null"]}, {"const": "a"}, {"exclusiveMinimum": 1, "type": "number"}, True, False,
                     {"$ref": "#/components/schemas/List"}, {"$ref": "#/components/schemas/List/$defs/tag"}]),
    lambda inner: st.builds(lambda a, b: {"type": "object", "properties": {"a": a, "b": b}, "unevaluatedProperties": False}, inner, inner)
    | st.builds(lambda a, b: {"if": a, "then": b, "else": {"type": "string"}}, inner, inner)
    | st.builds(lambda a, b: {"type": "array", "prefixItems": [a], "items": b}, inner, inner), max_leaves=4),
    values=st.lists(VALUES, min_size=8, max_size=8))
def test_random_schemas_of_31_are_json_schema(schema: Any, values: list[Any]) -> None:
    components = {"List": {"type": "array", "items": {"$ref": "#/components/schemas/List"}, "$defs": {"tag": {"enum": ["a", 0]}}}}
    document = api(schema, components, "3.1.0")
    validator = jsonschema.Draft202012Validator({"allOf": [schema], "components": document["components"]})
    try:
        grammar = compiled(document)
    except UnsatisfiableError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        assert takes(grammar, value) == validator.is_valid(value), value


# --- decisions, one by one ----------------------------------------------------------------------------------------------------------

def verdicts(schema: Any, values: list[Any], part: str = "request", **components: Any) -> list[bool]:
    grammar = compiled(api(schema, components), part, options=Options(property_order="any"))
    return [takes(grammar, value) for value in values]


def test_what_openapi_calls_a_format() -> None:
    assert verdicts({"type": "integer", "format": "int32"}, [2**31 - 1, 2**31, -2**31, -2**31 - 1]) == [True, False, True, False]
    assert verdicts({"type": "integer", "format": "int64", "minimum": 0}, [2**63 - 1, 2**63, -1]) == [True, False, False]
    assert verdicts({"type": "string", "format": "byte", "pattern": "^.{4}$"}, ["YWI=", "YW=I", "YWJj", "YWJjZA=="]) == [
        True, False, True, False]
    assert verdicts({"type": "number", "format": "double"}, [0.5]) == [True]
    assert compiled(api({"type": "integer", "format": "int32"}), options=Options(formats="annotate")).matcher().accept_bytes(b"2147483648")


OWNER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "readOnly": True}}}


def test_a_hidden_property_is_not_required_wherever_it_is_asked_for() -> None:
    inherited = {"allOf": [{"$ref": "#/components/schemas/Owner"}, {"type": "object", "required": ["id", "name"]}]}
    assert verdicts(inherited, [{"name": 1}, {"name": 1, "id": 1}, {}], Owner=OWNER) == [True, False, False]
    assert verdicts(inherited, [{"name": 1}, {"name": 1, "id": 1}], "response", Owner=OWNER) == [False, True]
    base = {"type": "object", "required": ["id"]}  # the base requires what a member hides, and is also used where nobody does
    hiding = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"id": {"readOnly": True}}}]}
    both = {"type": "object", "properties": {"one": hiding, "two": {"$ref": "#/components/schemas/Base"}}}
    assert verdicts(both, [{"one": {}}, {"one": {"id": 1}}, {"two": {}}, {"two": {"id": 1}}], Base=base) == [True, False, False, True]


BRANCHES = {name: {"type": "object", "required": ["t"], "properties": {"t": {"type": "string"}}} for name in ("Cat", "Dog")}


def test_a_discriminator_ties_branches_to_names() -> None:
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in BRANCHES]
    plain = {"oneOf": refs, "discriminator": {"propertyName": "t"}}
    assert verdicts(plain, [{"t": "Cat"}, {"t": "Dog"}, {"t": "cat"}], **BRANCHES) == [True, True, False]
    mapped = {"oneOf": refs, "discriminator": {"propertyName": "t", "mapping": {"c": "#/components/schemas/Cat", "d": "Dog"}}}
    assert verdicts(mapped, [{"t": "c"}, {"t": "d"}, {"t": "Cat"}], **BRANCHES) == [True, True, False]
    fixed = {name: {**each, "properties": {"t": {"enum": [name.lower()]}}} for name, each in BRANCHES.items()}
    assert verdicts(plain, [{"t": "cat"}, {"t": "Cat"}], **fixed) == [True, False]


def warned(schema: Any) -> list[str]:
    return [note["keyword"] for note in compile_openapi(api(schema, BRANCHES), "op").metadata.warnings]


def test_what_changes_nothing_is_said() -> None:
    assert warned({"nullable": True, "anyOf": [{"type": "string"}]}) == ["nullable"]
    assert warned({"type": "string", "nullable": True, "enum": ["a"]}) == ["nullable"]
    assert warned({"$ref": "#/components/schemas/Cat", "maxProperties": 1}) == ["maxProperties"]
    assert warned({"type": "object", "discriminator": {"propertyName": "t"}}) == ["discriminator"]
    assert warned({"type": "string", "x-mine": 1, "xml": {}, "example": "a", "externalDocs": {}}) == []


def test_names_in_properties_are_not_keywords() -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {
        name: {"type": "boolean"} for name in ("nullable", "example", "readOnly", "x-a", "$ref", "required")}}
    assert verdicts(schema, [{name: True} for name in schema["properties"]] + [{"nullable": 1}]) == [True] * 6 + [False]


def test_references_between_path_items_and_odd_names() -> None:
    components = {"a/b~c%d #é": {"type": "integer"}}
    inside = "#/paths/~1x~1{y}/get/responses/200/content/application~1json/schema/items"
    schema = {"anyOf": [{"$ref": "#/components/schemas/a~1b~0c%25d%20%23é"}, {"$ref": inside}]}
    document = api(schema, components)
    document["paths"]["/x/{y}"] = {"get": {"responses": {"200": {"content": {"application/json": {"schema": {
        "type": "array", "items": {"enum": ["in"]}}}}}}}}
    grammar = compiled(document)
    assert [takes(grammar, value) for value in (1, "in", "out", [])] == [True, True, False, False]


def test_shared_components_are_not_copied() -> None:
    """Each of 40 levels refers to the next twice: written out there would be 2 ** 40."""
    levels = {f"L{n}": {"type": "object", "properties": {k: {"$ref": f"#/components/schemas/L{n + 1}"} for k in ("a", "b")}}
              for n in range(40)}
    document = api({"$ref": "#/components/schemas/L0"}, {**levels, "L40": {"type": "integer"}})
    schema, _ = operation_schema(document, "op")
    assert len(json.dumps(schema)) < 10_000
    assert takes(compiled(document, options=Options()), {"a": {"b": {"a": {}}}})


# --- what is refused ----------------------------------------------------------------------------------------------------------------

def refused(kind: type[Exception], said: str, document: Any, operation: str = "op", part: str = "request", **arguments: Any) -> None:
    with pytest.raises(kind, match=said):
        compile_openapi(document, operation, part, **arguments)


def test_errors_name_the_place_and_the_way_out() -> None:
    text = PETS.read_text(encoding="utf-8")
    refused(UnsupportedError, r"petPhoto is image/png, not JSON .leave", text, "petPhoto", "response")
    refused(SourceError, "did you mean petPhoto", text, "petPhotos")
    refused(SourceError, "createPet has no response 404 .it has request, response 201", text, "createPet", "response", status="404")
    refused(SourceError, "listPets has no request body .it has response 200, response default, parameters", text, "listPets")
    refused(SourceError, "no part", text, "createPet", "body")
    refused(SourceError, "a status says nothing", text, "createPet", "request", status="200")
    refused(SourceError, "not offered as application/xml", text, "createPet", "request", media_type="application/xml")
    refused(UnsupportedError, "Swagger 2.0.*convert", {"swagger": "2.0"})
    refused(UnsupportedError, "OpenAPI 4.0.0", {"openapi": "4.0.0"})
    refused(SourceError, "no openapi version", {})
    refused(SourceError, "leads nowhere", api({"$ref": "#/components/schemas/Missing"}))
    refused(SourceError, "not in this document.*bundle", api({"$ref": "other.yaml#/Pet"}))
    refused(SourceError, "a schema is a map", api({"type": "array", "items": 3}))
    refused(SourceError, "dialect", api({}), options=Options(dialect="outlines"))
    circle = {"openapi": "3.0.0", "paths": {"/": {"get": {"operationId": "op", "requestBody": {"$ref": "#/x"}}}}, "x": {"$ref": "#/x"}}
    refused(SourceError, "circle", circle)
    doubled = api({})
    doubled["paths"]["/other"] = doubled["paths"]["/op"]
    refused(SourceError, "two operations are called op", doubled)


def test_a_pointer_in_an_error_is_the_documents_own() -> None:
    with pytest.raises(SourceError) as caught:
        compile_openapi(api({"$ref": "#/components/schemas/A"}, {"A": {"properties": {"b": {"pattern": "("}}}}), "op")
    assert caught.value.pointer == "#/components/schemas/A/properties/b"


def test_parameters_are_an_object() -> None:
    grammar = load(compile_openapi(PETS.read_bytes(), "listPets", "parameters"))
    assert [takes(grammar, value) for value in ({"limit": 100, "kind": "cat"}, {"kind": "dog"}, {"limit": 3}, {"kind": "cat", "x": 1})] == [
        True, True, False, False]


@pytest.mark.parametrize("types, chosen", [
    (["text/plain", "application/problem+json"], "application/problem+json"), (["*/*", "application/json"], "application/json"),
    (["application/vnd.a+json", "Application/JSON; charset=utf-8"], "Application/JSON; charset=utf-8"), (["*/*"], "*/*"),
])
def test_the_plainest_json_type_is_taken(types: list[str], chosen: str) -> None:
    content = {name: {"schema": {"const": name}} for name in types}
    document = {"openapi": "3.1.0", "paths": {"/": {"get": {"operationId": "op", "responses": {"2XX": {"content": content}}}}}}
    grammar = compiled(document, "response")
    assert [name for name in types if takes(grammar, name)] == [chosen]


# --- reading ------------------------------------------------------------------------------------------------------------------------

@settings(max_examples=60, deadline=None)
@given(value=st.recursive(st.none() | st.booleans() | st.integers(-10**20, 10**20) | st.text(max_size=6),
                          lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
                          max_leaves=8))
def test_yaml_written_by_another_library_is_read_back(value: Any) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads YAML documents")
    text = yaml.safe_dump(value, allow_unicode=True, default_style='"' if isinstance(value, str) else None)
    assume("!!" not in text)
    assert parse_yaml(text, 50) == yaml.safe_load(text)


@pytest.mark.parametrize("text, said", [
    ("a: 1\na: 2", "line 2, column 1: the key 'a' is used twice"), ("a: !!python/object x", "tags"), ("a: &a [*a]", "names nothing"),
    ("--- 1\n--- 2", "second document"), ("? [a]\n: 1", "not a word"), ("a: &b {}\nc: {<<: *b}", "merge"), ("a: [", "not YAML"),
    ("a: *b", "names nothing|undefined alias"), ("[" * 60, "nests deeper"), ("- 1", "a map"), ("{", "broken JSON"),
])
def test_broken_text_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        list_operations(text, 16)


def test_an_alias_bomb_is_refused_before_it_is_spelled_out() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(BudgetError, match="spells out"):
        list_operations("\n".join(lines))


def test_json_and_yaml_give_one_machine() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads YAML documents")
    text = json.dumps(yaml.safe_load(PETS.read_text(encoding="utf-8")))
    one, other = compile_openapi(PETS.read_bytes(), "createPet"), compile_openapi(text, "createPet")
    assert (one.machine.states, one.machine.classes) == (other.machine.states, other.machine.classes)


# --- commands -----------------------------------------------------------------------------------------------------------------------

def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_compile_takes_an_operation(tmp_path: Path) -> None:
    copy = tmp_path / PETS.name
    copy.write_bytes(PETS.read_bytes())
    result = run("compile", copy, "--operation", "createPet", "--part", "response", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["kind"] == "openapi"
    grammar = load(tmp_path / "pets.createPet.response.stc")
    assert takes(grammar, {"id": 1, "name": "Rex", "kind": "dog", "parents": []})
    assert not takes(grammar, {"name": "Rex", "kind": "dog", "parents": []})
    listed = json.loads(run("compile", copy, "--list-operations", "--json").output)["operations"]
    assert [each["name"] for each in listed] == ["listPets", "createPet", "petPhoto"]
    assert "createPet: POST /pets: request, response 201" in run("compile", copy, "--list-operations").output
    assert run("compile", copy, "--operation", "POST /pets", "-o", tmp_path / "x.stc").exit_code == 0


@pytest.mark.parametrize("arguments, code, said", [
    ([PETS], 2, "--list-operations"), ([PETS, "--operation", "petPhoto", "--part", "response"], 1, "petPhoto"),
    ([PETS.parent / "iso_date.regex", "--operation", "x"], 2, "means nothing"),
    ([PETS, "--operation", "createPet", "--dialect", "ecma"], 2, "not a dialect of openapi"),
])
def test_wrong_use_of_compile(arguments: list[Any], code: int, said: str) -> None:
    result = run("compile", *arguments)
    assert result.exit_code == code and said in result.output


MANIFEST = """
output = "out"
[[targets]]
source = "pets.openapi.yaml"
exclude_operations = ["*Photo"]
parts = ["request", "response", "parameters"]
"""


def test_build_makes_a_folder_of_artifacts(tmp_path: Path) -> None:
    (tmp_path / "pets.openapi.yaml").write_bytes(PETS.read_bytes())
    (tmp_path / "stc.toml").write_text(MANIFEST, encoding="utf-8")
    command = functools.partial(run, "build", tmp_path / "stc.toml", "--jobs", 1, "--json")
    names = [f"out/pets/{name}.stc" for name in (
        "createPet.request", "createPet.response.201", "listPets.parameters", "listPets.response.200", "listPets.response.default")]
    assert sorted(json.loads(command().output)["built"]) == names
    report = json.loads(command().output)
    assert (sorted(report["fresh"]), report["compiled"]) == (names, 0)
    (tmp_path / "stc.toml").write_text(MANIFEST.replace('["*Photo"]', '["nothing"]'), encoding="utf-8")
    assert "no operation is called nothing" in command().output
    (tmp_path / "stc.toml").write_text(MANIFEST.replace('"parameters"', '"body"'), encoding="utf-8")
    assert "no part of an operation" in command().output
