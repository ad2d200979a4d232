"""Document -> model: every key known, every expression typed, nothing ignored.

In: the data of a ``.policy.yaml`` (``document.py``). Out: a ``PolicyModel`` whose expressions are compiled and whose parts fit: what the
agent sees (visible variables, ``done``, ``requires``) is computed from what it sees. Errors carry the path of the value at fault,
``#/actions/REFUND/requires``. Cost: linear in the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError
from stcc.compiler.frontends.policy.expressions import Expression, Value, Variable, compile_expression
from stcc.compiler.frontends.policy.model import Abstraction, Action, Effect, Outcome, PolicyModel, World
from stcc.formats.policy import MAX_HORIZON, MAX_NAMES, NAME

MAX_RANGE = 1 << 16
MAX_ABSTRACTIONS = 64
_SHARE = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30}|/0*[1-9][0-9]{0,29})?")
_ROOT = ("abstractions", "accept", "actions", "at_horizon", "description", "done", "hidden", "horizon", "policy", "state", "worlds")
_OUTCOME = ("effects", "ends", "fails", "observe", "weight", "when")
_ACTION = ("description", "effects", "ends", "observe", "otherwise", "outcomes", "requires")
_VARIABLE = ("initial", "maximum", "minimum", "values")
_RESERVED = frozenset({"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
                       "loop", "package", "namespace", "return", "var", "void", "while"})


def read_model(document: Any) -> PolicyModel:
    """The model of a document.

    Raises:
        SourceError: a key is missing, unknown or of the wrong type, or an expression is wrong.
        UnsupportedError: an expression beyond the subset of CEL.
        BudgetError: too many names, or too large a range or horizon.
    """
    return _Reader(_map(document, "#", "a policy")).model()


def _fault(pointer: str, message: str, hint: str, keyword: str = "") -> SourceError:
    return SourceError(message, pointer=pointer, keyword=keyword, hint=hint)


def _map(value: Any, pointer: str, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _fault(pointer, f"{what} is a map", "write it as key: value lines")
    return value


def _optional(entry: Mapping[str, Any], key: str, pointer: str) -> Mapping[str, Any]:
    """The map under ``key``; an empty one where it is left out or left empty."""
    return {} if entry.get(key) is None else _map(entry[key], f"{pointer}/{key}", key)


def _known(entry: Mapping[str, Any], allowed: tuple[str, ...], pointer: str) -> None:
    for key in entry:
        if key not in allowed:
            raise _fault(f"{pointer}/{key}", "the key is not known", f"known are {', '.join(allowed)}", key)


def _name(text: str, pointer: str) -> str:
    if not NAME.fullmatch(text):
        raise _fault(pointer, "names are letters, digits and _ . : -, at most 64, and begin with a letter or _", "rename it", text[:80])
    return text


def _named(value: Any, pointer: str, what: str) -> Mapping[str, Any]:
    entries = _map(value, pointer, what)
    if len(entries) > MAX_NAMES:
        raise BudgetError(f"more than {MAX_NAMES:,} entries", pointer=pointer, hint="split the policy")
    for key in entries:
        _name(key, f"{pointer}/{key}")
    return entries


def _flag(entry: Mapping[str, Any], key: str, pointer: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise _fault(f"{pointer}/{key}", "it is true or false", "write true or false")
    return value


def _word(entry: Mapping[str, Any], key: str, choices: tuple[str, ...], pointer: str) -> str:
    value = entry.get(key, choices[0])
    if value not in choices:
        raise _fault(f"{pointer}/{key}", f"it is one of {', '.join(choices)}", f"write {choices[0]}, or leave it out")
    return str(value)


def _weight(value: Any, pointer: str) -> Fraction:
    """A positive share: a number, or a fraction such as ``1/3``."""
    written = isinstance(value, str) and _SHARE.fullmatch(value) is not None  # bounded digits, and no exponent: "1e999999999" is a bomb
    share = Fraction(value) if written or (isinstance(value, (int, Fraction)) and not isinstance(value, bool)) else Fraction(0)
    if not Fraction(1, 10**18) <= share <= 10**18:
        raise _fault(pointer, "a weight is a positive number between 1e-18 and 1e18", "write 0.25 or 1/4; leave impossible ones out")
    return share


class _Reader:
    """One document being read."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        _known(root, _ROOT, "#")
        for key in ("actions", "accept", "horizon"):
            if key not in root:
                raise _fault("#", f"the policy has no {key}", f"add {key}", key)
        self.horizon = self.read_horizon()
        self.variables = self.read_variables("state", False) + self.read_variables("hidden", True)
        self.scope = {variable.name: (place, variable) for place, variable in enumerate(self.variables)}
        for variable in (Variable("failed", "bool", (False, True), False, hidden=True),
                         Variable("remaining", "int", range(self.horizon + 1), self.horizon, hidden=False)):
            if variable.name in self.scope:
                raise _fault(f"#/state/{variable.name}", "the name is taken by the compiler", "rename the variable", variable.name)
            self.scope[variable.name] = len(self.scope), variable
        self.observations = [""]

    def read_horizon(self) -> int:
        horizon = self.root["horizon"]
        if type(horizon) is not int or horizon < 1:
            raise _fault("#/horizon", "the horizon is a whole number of actions, at least 1", "write a number such as 6")
        if horizon > MAX_HORIZON:
            raise BudgetError(f"a horizon of more than {MAX_HORIZON}", pointer="#/horizon", hint="lower it")
        return horizon

    def read_variables(self, section: str, hidden: bool) -> tuple[Variable, ...]:
        """``state`` or ``hidden``: name -> initial value, or a map with ``values`` or ``minimum`` and ``maximum``."""
        entries = _named(_optional(self.root, section, "#"), f"#/{section}", section)
        return tuple(self.read_variable(name, entry, f"#/{section}/{name}", hidden) for name, entry in entries.items())

    def read_variable(self, name: str, entry: Any, pointer: str, hidden: bool) -> Variable:
        if not name.isidentifier() or name in _RESERVED:
            raise _fault(pointer, "a variable is named by a CEL identifier", "use letters, digits and _", name)
        if hidden and name in _optional(self.root, "state", "#"):
            raise _fault(pointer, "the name is used in state too", "rename one of them", name)
        if isinstance(entry, bool):
            return Variable(name, "bool", (False, True), entry, hidden)
        if not isinstance(entry, dict):
            raise _fault(pointer, "a variable is true or false, or a map with values, or with minimum and maximum", "give its range")
        _known(entry, _VARIABLE, pointer)
        if "values" in entry:
            return self.read_enumeration(name, entry, pointer, hidden)
        low, high = entry.get("minimum", 0), entry.get("maximum")
        if type(low) is not int or type(high) is not int or low > high:
            raise _fault(pointer, "minimum and maximum are whole numbers, in order", "give maximum: 3, say")
        if high - low >= MAX_RANGE or max(abs(low), abs(high)) >= 1 << 53:
            raise BudgetError(f"a range of more than {MAX_RANGE:,} values", pointer=pointer, hint="narrow it")
        initial = entry.get("initial", low)
        if type(initial) is not int or not low <= initial <= high:
            raise _fault(f"{pointer}/initial", f"the initial value is within {low}..{high}", "change it")
        return Variable(name, "int", range(low, high + 1), initial, hidden)

    def read_enumeration(self, name: str, entry: Mapping[str, Any], pointer: str, hidden: bool) -> Variable:
        values = entry["values"]
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            raise _fault(f"{pointer}/values", "values are a list of strings", "quote numbers; for ranges give minimum and maximum")
        if len(set(values)) != len(values) or len(entry) > 1 + ("initial" in entry):
            raise _fault(pointer, "values are named once, and stand without minimum or maximum", "remove the others")
        initial = entry.get("initial", values[0])
        if initial not in values:
            raise _fault(f"{pointer}/initial", f"the initial value is one of {', '.join(values)}", "change it")
        return Variable(name, "string", tuple(values), initial, hidden)

    def model(self) -> PolicyModel:
        root = self.root
        entries = _named(root["actions"], "#/actions", "actions")
        if not entries:
            raise _fault("#/actions", "there is no action", "add one")
        actions = tuple(self.read_action(name, entry, f"#/actions/{name}") for name, entry in entries.items())
        name = root.get("policy", "policy")
        if not isinstance(name, str):
            raise _fault("#/policy", "the name is a string", "quote it")
        return PolicyModel(
            name, self.horizon, self.variables, self.read_worlds(), actions, tuple(self.observations),
            self.expression(root["accept"], "#/accept", "bool"),
            self.expression(root["done"], "#/done", "bool", visible=True) if "done" in root else None,
            _word(root, "at_horizon", ("invalid", "accept"), "#") == "accept", self.read_abstractions(),
        )

    def expression(self, value: Any, pointer: str, wanted: str = "", visible: bool = False) -> Expression:
        """A CEL expression; YAML's Booleans and whole numbers stand for themselves. ``visible``: it may read nothing hidden."""
        text = str(value).lower() if isinstance(value, bool) else str(value) if type(value) is int else value
        if not isinstance(text, str):
            raise _fault(pointer, "it is a CEL expression", 'write a string such as "reads < 3"')
        compiled = compile_expression(text, self.scope, wanted, pointer)
        unseen = sorted(name for name in compiled.reads if visible and self.scope[name][1].hidden)
        if unseen:
            raise _fault(pointer, f"it reads {unseen[0]}, which the agent cannot see", "let an outcome observe it, and read what was seen",
                         text)
        return compiled

    def read_worlds(self) -> tuple[World, ...]:
        entries = self.root.get("worlds")
        if entries is None:
            return (World("world", Fraction(1), ()),)
        worlds = []
        for name, given in _named(entries, "#/worlds", "worlds").items():
            pointer = f"#/worlds/{name}"
            entry = _map(given, pointer, "a world")
            _known(entry, ("description", "set", "weight"), pointer)
            values = tuple(self.read_initial(key, value, f"{pointer}/set/{key}")
                           for key, value in _optional(entry, "set", pointer).items())
            worlds.append(World(name, _weight(entry.get("weight", 1), f"{pointer}/weight"), values))
        if not worlds:
            raise _fault("#/worlds", "there is no world", "add one, or leave worlds out")
        total = sum((world.weight for world in worlds), Fraction(0))
        return tuple(World(world.name, world.weight / total, world.values) for world in worlds)

    def read_initial(self, name: str, value: Any, pointer: str) -> tuple[int, Value]:
        place, variable = self.scope.get(name, (-1, None))
        if variable is None or not variable.hidden or name == "failed":
            raise _fault(pointer, "a world sets hidden variables", "declare it under hidden", name)
        if type(value) is not type(variable.initial) or value not in variable.values:
            raise _fault(pointer, f"{value!r} is not a value of {name}", "see its declaration")
        return place, value

    def read_action(self, name: str, given: Any, pointer: str) -> Action:
        entry = _map(given if given is not None else {}, pointer, "an action")
        _known(entry, _ACTION, pointer)
        if "outcomes" in entry:
            listed = entry["outcomes"]
            if not isinstance(listed, list) or not listed or {"effects", "observe"} & entry.keys():
                raise _fault(f"{pointer}/outcomes", "outcomes are a list, in place of effects and observe", "move them into the outcomes")
            outcomes = tuple(self.read_outcome(one, f"{pointer}/outcomes/{number}") for number, one in enumerate(listed))
        else:
            outcomes = (self.read_outcome({key: entry[key] for key in ("effects", "observe") if key in entry}, pointer),)
        requires = self.expression(entry["requires"], f"{pointer}/requires", "bool", visible=True) if "requires" in entry else None
        if requires is None and "otherwise" in entry:
            raise _fault(f"{pointer}/otherwise", "there is nothing that it is the other case of", "add requires")
        otherwise = _word(entry, "otherwise", ("fail", "ignore"), pointer)
        return Action(name, requires, otherwise, outcomes, _flag(entry, "ends", pointer), pointer)

    def read_outcome(self, given: Any, pointer: str) -> Outcome:
        entry = _map(given, pointer, "an outcome")
        _known(entry, _OUTCOME, pointer)
        when = self.expression(entry["when"], f"{pointer}/when", "bool") if "when" in entry else None
        weight = _weight(entry["weight"], f"{pointer}/weight") if "weight" in entry else None
        effects = tuple(self.read_effect(key, value, f"{pointer}/effects/{key}")
                        for key, value in _optional(entry, "effects", pointer).items())
        return Outcome(when, weight, self.observation(entry.get("observe"), f"{pointer}/observe"), effects, _flag(entry, "fails", pointer),
                       _flag(entry, "ends", pointer), pointer)

    def read_effect(self, name: str, value: Any, pointer: str) -> Effect:
        place, variable = self.scope.get(name, (-1, None))
        if variable is None or place >= len(self.variables):
            raise _fault(pointer, "effects set declared variables", "declare it under state or hidden", name)
        return Effect(place, self.expression(value, pointer, variable.type, visible=not variable.hidden), pointer)

    def observation(self, value: Any, pointer: str) -> int:
        """The number of an observation."""
        if value is None:
            return 0
        if not isinstance(value, str):
            raise _fault(pointer, "an observation is a word", "quote it")
        if _name(value, pointer) not in self.observations:
            if len(self.observations) > MAX_NAMES:
                raise BudgetError(f"more than {MAX_NAMES:,} observations", pointer=pointer, hint="split the policy")
            self.observations.append(value)
        return self.observations.index(value)

    def read_abstractions(self) -> tuple[Abstraction, ...]:
        found = []
        entries = _named(_optional(self.root, "abstractions", "#"), "#/abstractions", "abstractions")
        if len(entries) > MAX_ABSTRACTIONS:
            raise BudgetError(f"more than {MAX_ABSTRACTIONS} abstractions", pointer="#/abstractions", hint="check some at a time")
        for name, parts in entries.items():
            pointer = f"#/abstractions/{name}"
            if not isinstance(parts, list):
                raise _fault(pointer, "an abstraction is a list of expressions", "list what is kept of the state")
            compiled = tuple(self.expression(part, f"{pointer}/{number}") for number, part in enumerate(parts))
            found.append(Abstraction(name, compiled, pointer))
        return tuple(found)
