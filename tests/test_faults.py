"""Faults that were found and fixed, one test each, named for what was wrong."""

from __future__ import annotations

from typing import Any

from stcc.compiler import Options, compile_json_schema, stepping


def accepts(schema: Any, text: str | bytes, **options: Any) -> bool:
    machine = compile_json_schema(schema, options=Options(**options)).machine
    return stepping.accepts(machine, text.encode() if isinstance(text, str) else text)


def test_draft_4_integers_have_no_fraction() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": -3}
    assert accepts(schema, "2") and accepts(schema, "-3")
    assert not accepts(schema, "2.0") and not accepts(schema, "2.")
    assert accepts({"type": "integer", "minimum": -3}, "2.0")


def test_exponents_stay_within_a_double() -> None:
    assert accepts({"type": "number"}, "1.5e199") and accepts({"minimum": 0}, "1E-999")
    for text in ("1e400", "1e+200", "2E0999", "-3e1000"):
        assert not accepts({"type": "number"}, text) and not accepts({"maximum": 0}, text)
