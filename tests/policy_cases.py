"""Policies for tests: the samples, random ones, and a second implementation of what they mean, which knows nothing of the compiler.

``Simulator`` interprets a document directly: expressions through Python's own ``eval`` of a translated text, histories one by one, no memo,
no reduction. It is slow and plain on purpose.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from stcc.compiler import compile_policy
from stcc.formats import Artifact

POLICIES = Path(__file__).resolve().parents[1] / "samples" / "policies"
NAMES = sorted(path.name.removesuffix(".policy.yaml") for path in POLICIES.glob("*.policy.yaml"))
History = tuple[tuple[str, str], ...]


def text_of(name: str) -> str:
    return (POLICIES / f"{name}.policy.yaml").read_text(encoding="utf-8")


@functools.cache
def artifact_of(name: str) -> Artifact:
    return compile_policy(text_of(name), source=f"{name}.policy.yaml")


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(text_of(name), Loader=yaml.BaseLoader)  # every scalar a string
    return document


def python_of(expression: Any) -> str:
    text = str(expression)
    while (found := re.search(r"([^?()]+)\?([^?:()]+):([^?()]+)", text)) is not None:
        text = text[:found.start()] + f"(({found[2]}) if ({found[1]}) else ({found[3]}))" + text[found.end():]
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    return re.sub(r"\bfalse\b", "False", re.sub(r"\btrue\b", "True", text)).strip()


@functools.cache
def code_of(expression: str) -> Any:
    return compile(python_of(expression), "<policy>", "eval")


def value_of(expression: Any, state: dict[str, Any]) -> Any:
    return eval(code_of(str(expression).lower() if isinstance(expression, bool) else str(expression)), {}, state)


def scalar(value: Any) -> Any:
    words = {"true": True, "false": False}
    return words[value] if value in words else int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


def initial_of(declared: Any) -> Any:
    if not isinstance(declared, dict):
        return scalar(declared)
    if "values" in declared:
        return declared.get("initial", declared["values"][0])
    return scalar(declared.get("initial", declared.get("minimum", 0)))


class Simulator:
    """A document, run literally."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.actions = list(document["actions"])
        self.horizon = int(document["horizon"])
        worlds = document.get("worlds") or {"world": {}}
        weights = {name: Fraction((world or {}).get("weight", 1)) for name, world in worlds.items()}
        self.worlds = {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def start(self, world: str) -> dict[str, Any]:
        declared = {**(self.document.get("state") or {}), **(self.document.get("hidden") or {})}
        state = {name: initial_of(entry) for name, entry in declared.items()}
        given = ((self.document.get("worlds") or {}).get(world) or {}).get("set") or {}
        return {**state, **{name: scalar(value) for name, value in given.items()}, "failed": False, "remaining": self.horizon, "ended": ""}

    def outcomes(self, state: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any], Fraction]]:
        """Observation, state, probability."""
        action = self.document["actions"][name] or {}
        ends = scalar(action.get("ends", False)) is True
        if "requires" in action and not value_of(action["requires"], state):
            fails = action.get("otherwise", "fail") == "fail"
            yield "", self.settled({**state, "failed": state["failed"] or fails}, ends), Fraction(1)
            return
        listed = action.get("outcomes") or [{key: action[key] for key in ("effects", "observe") if key in action}]
        possible = [one for one in listed if "when" not in one or value_of(one["when"], state)]
        total = sum(Fraction(one.get("weight", 1)) for one in possible)
        for one in possible:
            after = {**state, **{key: value_of(value, state) for key, value in (one.get("effects") or {}).items()}}
            after["failed"] = state["failed"] or scalar(one.get("fails", False)) is True
            yield one.get("observe", ""), self.settled(after, ends or scalar(one.get("ends", False)) is True), Fraction(
                one.get("weight", 1)) / total

    def settled(self, state: dict[str, Any], ends: bool) -> dict[str, Any]:
        state["remaining"] -= 1
        done = ends or ("done" in self.document and value_of(self.document["done"], state))
        if done or state["remaining"] == 0:
            judged = done or self.document.get("at_horizon") == "accept"
            state["ended"] = "accepted" if judged and not state["failed"] and value_of(self.document["accept"], state) else "rejected"
        return state

    def complete(self, world: str) -> Iterator[tuple[History, Fraction, bool]]:
        """Every complete history with the product of its outcome probabilities, and whether it is valid; prefixes are not pruned."""
        stack: list[tuple[History, dict[str, Any], Fraction]] = [((), self.start(world), Fraction(1))]
        while stack:
            history, state, weight = stack.pop()
            if state["ended"]:
                yield history, weight, state["ended"] == "accepted"
                continue
            for name in self.actions:
                for seen, after, share in self.outcomes(state, name):
                    stack.append(((*history, (name, seen)), after, weight * share))


CONDITIONS = ["p", "!p", "q", "c == 0", "c < 2", "p && q", "p || c == 2", "!q || p", "c != 1"]


@st.composite
def documents(draw: st.DrawFn, horizon: int = 4) -> dict[str, Any]:
    """A small random policy: two flags, a counter, a hidden word with two or three worlds, some actions observe or are chancy."""
    actions: dict[str, Any] = {}
    for name in ("A", "B", "C")[:draw(st.integers(1, 3))]:
        action: dict[str, Any] = {}
        if draw(st.booleans()):
            action["requires"] = draw(st.sampled_from(CONDITIONS))
            action["otherwise"] = draw(st.sampled_from(["fail", "ignore"]))
        effects = draw(st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["true", "false", *CONDITIONS]), max_size=2))
        if draw(st.booleans()):
            effects["c"] = draw(st.sampled_from(["(c + 1) % 3", "0", "p ? 1 : c"]))
        kind = draw(st.sampled_from(["plain", "observing", "chancy", "secret"]))
        if kind == "plain":
            action["effects"] = effects
        elif kind == "observing":
            action["outcomes"] = [{"when": "w == 'u'", "observe": "u", "effects": effects},
                                  {"when": "w != 'u'", "observe": "other", "fails": draw(st.sampled_from(["true", "false"]))}]
        elif kind == "secret":  # what the world is changes, unseen
            action["outcomes"] = [{"weight": "1/2", "effects": {**effects, "w": "'u'"}},
                                  {"weight": "1/4", "effects": {**effects, "w": "'v'"}}, {"weight": "1/4", "effects": effects}]
        else:
            action["outcomes"] = [{"weight": "1/3", "observe": "hit", "effects": effects}, {"weight": "2/3", "observe": "miss"}]
        actions[name] = action
    actions["STOP"] = {"ends": "true"}
    worlds = {name: {"weight": draw(st.sampled_from(["1", "2", "1/3"])), "set": {"w": name}}
              for name in ("u", "v", "x")[:draw(st.integers(1, 3))]}
    accept = draw(st.sampled_from(CONDITIONS + ["w == 'u' && p", "(w == 'v') == q", "w != 'x'"]))
    return {"policy": "random", "horizon": str(horizon), "state": {"p": "false", "q": "true", "c": {"maximum": "2"}},
            "hidden": {"w": {"values": ["u", "v", "x"]}}, "worlds": worlds, "actions": actions, "accept": accept,
            "at_horizon": draw(st.sampled_from(["invalid", "accept"])),
            "abstractions": {"kept": ["p", "q", "c", "remaining"],
                             "partial": draw(st.lists(st.sampled_from(["p", "q", "c", "remaining"]), max_size=4))}}


def yaml_text(document: dict[str, Any]) -> str:
    """The document as YAML; its scalars are strings that stand for what they look like."""
    text: str = yaml.dump(document, default_flow_style=False, sort_keys=False)
    return re.sub(r"'(true|false|-?\d+)'$", r"\1", text, flags=re.MULTILINE)
