"""A policy's scores as a file: full history -> probabilities, replayed without the model that made them.

A JSON object of ``format``, ``version``, ``sha256`` and ``body``; the digest is over the body's canonical text (keys sorted, no spaces,
numbers as Python writes them). Numbers are written with as many digits as tell a float64 apart, so that a replayed vector is the scored one
bit for bit. The body names the actions and observations, what scored them (``about``), and lists ``[history, probabilities]`` pairs by
length and then number; a history is a list of ``[action, observation]`` numbers.

Loading takes nothing on trust: size, digest, names against the policy's, every number's range, sums, repetitions. Cost: linear in the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from stcc.formats.container import write_atomic
from stcc.formats.policy import PolicyGraph
from stcc.runtime.errors import ConstraintError
from stcc.runtime.exact.histories import History, PolicyError, Vector, checked_vector
from stcc.runtime.exact.policies import TablePolicy

FORMAT, VERSION = "stcc-scores", 1
MOST_FILE_BYTES = 1 << 28


class ScoreTableError(ConstraintError):
    """A file that is no table of this policy's scores."""


def save_scores(path: str | os.PathLike[str], graph: PolicyGraph, table: Mapping[History, Vector], about: Mapping[str, str]) -> str:
    """Write a table. Returns the digest.

    Args:
        path: the file; replaced in one step.
        graph: the policy.
        table: full history -> float64 ``[actions]``.
        about: what made it: model, temperature, prompt.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [[[list(map(int, step)) for step in history], np.asarray(table[history], np.float64).tolist()]
            for history in sorted(table, key=lambda history: (len(history), history))]
    body = {"about": dict(about), "actions": list(graph.actions), "observations": list(graph.observations), "scores": rows}
    digest = _digest(body)
    text = json.dumps({"format": FORMAT, "version": VERSION, "sha256": digest, "body": body}, separators=(",", ":"), allow_nan=False)
    write_atomic(path, text.encode("utf-8"))
    return digest


def load_scores(path: str | os.PathLike[str], graph: PolicyGraph) -> TablePolicy:
    """The policy that a table replays; its ``about`` and ``digest`` say what it is.

    Raises:
        ScoreTableError: not a table, a damaged one, or one of another policy.
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    content = _content(name)
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ScoreTableError(f"{name} is not a table of scores", f"it begins with format {FORMAT!r} and version {VERSION}")
    body = content.get("body")
    if not isinstance(body, dict) or content.get("sha256") != _digest(body):
        raise ScoreTableError(f"{name} is damaged: its sha256 is not that of its body", "score it again")
    for key in ("actions", "observations"):
        if body.get(key) != list(getattr(graph, key)):
            raise ScoreTableError(f"{name} is of another policy: its {key} are not this one's", "score this policy")
    about = body.get("about")
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise ScoreTableError(f"{name}: about is a map of texts")
    rows = body.get("scores")
    if not isinstance(rows, list):
        raise ScoreTableError(f"{name}: scores are a list")
    table: dict[History, Vector] = {}
    for number, row in enumerate(rows):
        history, vector = _row(name, number, row, graph)
        if history in table:
            raise ScoreTableError(f"{name}: scores[{number}] repeats a history")
        table[history] = vector
    return TablePolicy(table, about, str(content["sha256"]))


def _content(name: str) -> Any:
    if os.path.getsize(name) > MOST_FILE_BYTES:
        raise ScoreTableError(f"{name} is larger than {MOST_FILE_BYTES:,} bytes")
    with open(name, "rb") as file:
        data = file.read(MOST_FILE_BYTES + 1)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ScoreTableError(f"{name} is not JSON: {error}") from None


def _digest(body: Any) -> str:
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):  # numbers that JSON has not: not written by ``save_scores``
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _row(name: str, number: int, row: Any, graph: PolicyGraph) -> tuple[History, Vector]:
    place = f"{name}: scores[{number}]"
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], list) or not isinstance(row[1], list):
        raise ScoreTableError(f"{place} is not a pair of history and probabilities")
    steps, values = row
    if len(steps) > graph.horizon or not all(_is_step(step, graph) for step in steps):
        raise ScoreTableError(f"{place} is not a history of this policy")
    if not all(type(value) in (int, float) for value in values):
        raise ScoreTableError(f"{place} holds something that is not a number")
    try:
        vector = np.array(checked_vector(values, len(graph.actions)), np.float64)
    except (PolicyError, OverflowError) as error:
        raise ScoreTableError(f"{place}: {error}") from None
    vector.flags.writeable = False
    return tuple((step[0], step[1]) for step in steps), vector


def _is_step(step: Any, graph: PolicyGraph) -> bool:
    return (isinstance(step, list) and len(step) == 2 and all(type(part) is int for part in step)
            and 0 <= step[0] < len(graph.actions) and 0 <= step[1] < len(graph.observations))
