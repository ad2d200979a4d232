"""Writes form48 and form96: wide forms for measuring how cost grows with the number of fields.

The fields cycle through five kinds (string, integer, number, boolean, enum) and take their names from a fixed list of sections and
questions, so that the same files come out every time. Run it after a change: ``python samples/make_forms.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SECTIONS = (
    "applicant", "employer", "address", "household", "vehicle", "insurance", "medical", "travel", "education", "finance", "property", "tax",
)
QUESTIONS = {
    "name": {"type": "string"},
    "count": {"type": "integer"},
    "amount": {"type": "number"},
    "confirmed": {"type": "boolean"},
    "status": {"type": "string", "enum": ["new", "open", "waiting", "closed"]},
    "reference": {"type": "string"},
    "year": {"type": "integer"},
    "priority": {"type": "string", "enum": ["low", "normal", "high"]},
}


def form(fields: int) -> dict[str, Any]:
    """A closed object schema with ``fields`` required properties, at most 96."""
    names = [(section, question) for section in SECTIONS for question in QUESTIONS]
    properties = {f"{section}_{question}": QUESTIONS[question] for section, question in names[:fields]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Form with {len(properties)} fields", "type": "object",
        "properties": properties, "required": list(properties), "additionalProperties": False,
    }


def form_text(fields: int) -> str:
    """The file's text."""
    return json.dumps(form(fields), indent=2) + "\n"


if __name__ == "__main__":
    for count in (48, 96):
        (Path(__file__).parent / f"form{count}.schema.json").write_text(form_text(count), encoding="utf-8")
