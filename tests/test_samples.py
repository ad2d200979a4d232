"""Every sample is a sound schema or pattern with a prompt, and the generated forms come out the same again."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stcc.runtime.grammar import Grammar
from stcc.runtime.load import load
from stcc.runtime.seam import compile_file

SAMPLES = Path(__file__).parent.parent / "samples"
SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in SAMPLES.glob("*.schema.json"))
GRAMMARS = sorted(path.stem for ending in ("gbnf", "lark") for path in SAMPLES.glob(f"*.{ending}"))
REGEXES = sorted(path.stem for path in SAMPLES.glob("*.regex"))

CARD = ("first_name", "last_name", "company", "job_title", "email", "phone", "city", "country", "website")
VARIABLE = {"kind": "variable", "name": "x"}
INSTANCES: dict[str, tuple[Any, Any]] = {  # one that fits, one that does not
    "person": ({"name": "Ada", "age": 36, "email": "a@b.c", "status": "approved", "tags": []},
               {"name": "Ada", "age": "36", "email": "a@b.c", "status": "approved", "tags": []}),
    "tool_call": ({"function": "get_weather", "location": "Lisbon", "unit": "celsius", "include_forecast": True, "days": 5},
                  {"function": "get_weather", "location": "Lisbon", "unit": "kelvin", "include_forecast": True, "days": 5}),
    "product": ({"name": "Desk", "price": 1.5, "currency": "EUR", "in_stock": True, "categories": ["a"],
                 "dimensions": {"width": 1, "height": 2, "depth": 3}},
                {"name": "Desk", "price": 1.5, "currency": "EUR", "in_stock": True, "categories": ["a"], "dimensions": {"width": 1}}),
    "event": ({"title": "T", "date": "2026-11-12", "location": {"venue": "V", "city": "C", "country": "D"},
               "attendees": [{"name": "N", "role": "speaker"}]},
              {"title": "T", "date": "2026-11-12", "location": {"venue": "V", "city": "C", "country": "D"},
               "attendees": [{"name": "N", "role": "guest"}]}),
    "classification": ({"sentiment": "neutral", "confidence": 0.5, "topics": ["price"], "urgent": False, "summary": ""},
                       {"sentiment": "neutral", "confidence": 1.5, "topics": ["price"], "urgent": False, "summary": ""}),
    "contact_card": (dict.fromkeys(CARD, "x"),
                     {"first_name": "x"}),
    "tree": ({"name": "Sun", "children": [{"name": "Earth", "children": []}]}, {"name": "Sun", "children": [{"name": "Earth"}]}),
    "thread": ({"author": "a", "text": "t", "upvotes": 1, "replies": [{"author": "b", "text": "", "upvotes": 0, "replies": []}]},
               {"author": "a", "text": "t", "upvotes": 1, "replies": [{"author": "b"}]}),
    "directory": ({"name": "p", "files": [{"name": "f", "bytes": 0}], "folders": [{"name": "q", "files": [], "folders": []}]},
                  {"name": "p", "files": [{"name": "f", "bytes": -1}], "folders": []}),
    "expression": ({"kind": "operation", "operator": "*", "left": {"kind": "literal", "value": 3}, "right": VARIABLE},
                   {"kind": "operation", "operator": "*", "left": {"kind": "literal", "name": "x"}, "right": VARIABLE}),
}
TEXTS = {
    "iso_date": (["1969-07-20", "2000-12-31"], ["1969-13-20", "1969-7-20", "1969-07-32", ""]),
    "semver": (["2.14.3", "1.0.0-rc.1+build.5"], ["2.14", "02.1.1", "v1.0.0"]),
    "ipv4": (["192.168.1.254", "0.0.0.0"], ["256.1.1.1", "1.1.1", "01.1.1.1"]),
    "phone": (["+33 4 72 00 11 22", "+1 555 0100"], ["33 4 72", "+0 12 34", "+33 47200112233 1"]),
}


def schema(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.schema.json").read_text(encoding="utf-8"))


def objects(value: Any) -> list[dict[str, Any]]:
    """Every object schema in ``value``."""
    branches = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [value] if isinstance(value, dict) and value.get("type") == "object" else []
    return found + [nested for branch in branches for nested in objects(branch)]


def test_the_samples_are_all_there() -> None:
    assert set(SCHEMAS) == set(INSTANCES) | {"form48", "form96"}
    assert set(REGEXES) == set(TEXTS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_valid_closed_and_requires_everything(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    found = objects(schema(name))
    assert found
    for part in found:
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])


@pytest.mark.parametrize("name", sorted(INSTANCES))
def test_schema_means_what_its_name_says(name: str) -> None:
    validator = jsonschema.Draft202012Validator(schema(name))
    fits, other = INSTANCES[name]
    assert validator.is_valid(fits)
    assert not validator.is_valid(other)


@pytest.mark.parametrize("name", REGEXES)
def test_pattern_means_what_its_name_says(name: str) -> None:
    pattern = re.compile((SAMPLES / f"{name}.regex").read_text(encoding="utf-8").removesuffix("\n"))
    matching, others = TEXTS[name]
    assert all(pattern.fullmatch(text) for text in matching)
    assert not any(pattern.fullmatch(text) for text in others)


@pytest.mark.parametrize("name", SCHEMAS + REGEXES + GRAMMARS)
def test_sample_has_a_prompt(name: str) -> None:
    text = (SAMPLES / f"{name}.prompt.txt").read_text(encoding="utf-8")
    assert len(text.split()) >= 10
    assert text.endswith("\n")


@pytest.mark.parametrize("fields", [48, 96])
def test_forms_regenerate_identically(fields: int) -> None:
    spec = importlib.util.spec_from_file_location("make_forms", SAMPLES / "make_forms.py")
    assert spec is not None and spec.loader is not None
    make_forms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_forms)
    assert make_forms.form_text(fields) == (SAMPLES / f"form{fields}.schema.json").read_text(encoding="utf-8")
    properties = schema(f"form{fields}")["properties"]
    assert len(properties) == fields
    kinds = {"enum" if "enum" in field else field["type"] for field in properties.values()}
    assert kinds == {"string", "integer", "number", "boolean", "enum"}


def accepts(path: Path, text: bytes) -> bool:
    matcher = compiled(path).matcher()
    return matcher.accept_bytes(text) and matcher.is_accepting()


@functools.cache
def compiled(path: Path) -> Grammar:
    return load(compile_file(path))


@pytest.mark.parametrize("name", sorted(INSTANCES))
def test_compiled_schema_agrees(name: str) -> None:
    fits, other = (json.dumps(value, separators=(",", ":")).encode() for value in INSTANCES[name])
    path = SAMPLES / f"{name}.schema.json"
    assert accepts(path, fits)
    assert not accepts(path, other)
    assert not accepts(path, fits[:-1])


@pytest.mark.parametrize("name", REGEXES)
def test_compiled_pattern_agrees(name: str) -> None:
    path = SAMPLES / f"{name}.regex"
    matching, others = TEXTS[name]
    assert all(accepts(path, text.encode()) for text in matching)
    assert not any(accepts(path, text.encode()) for text in others)


@pytest.mark.parametrize("fields", [48, 96])
def test_compiled_form_takes_a_filled_form_only(fields: int) -> None:
    empty = {"string": "", "integer": 0, "number": 0.5, "boolean": False}
    properties = schema(f"form{fields}")["properties"]
    values = {name: field["enum"][0] if "enum" in field else empty[field["type"]] for name, field in properties.items()}
    path = SAMPLES / f"form{fields}.schema.json"
    assert accepts(path, json.dumps(values, separators=(",", ":")).encode())
    values.popitem()
    assert not accepts(path, json.dumps(values, separators=(",", ":")).encode())
