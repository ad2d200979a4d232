"""Pairs of schemas whose relation is known by how they were made, and instances of them.

A schema is generated from alternatives that cannot overlap, so that a change which admits more at one place admits more as a whole.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Schema = dict[str, Any]
WORDS = ("red", "green", "blue", "one", "two", "north", "south")


class SchemaPair(NamedTuple):
    """Two schemas, what NEW is to OLD, and how NEW was made."""

    old: Schema
    new: Schema
    relation: str
    change: str


def generated(chance: random.Random, recursive: bool) -> Schema:
    """A closed object with one value of each kind that changes are about, and others."""
    fields = [_string, _integer, _choice, _array, _object]
    chance.shuffle(fields)
    properties = {f"{name}_{place}": make(chance, 2) for place, (name, make) in enumerate(zip("abcde", fields, strict=True))}
    properties["flag"] = {"type": "boolean"}
    if recursive:
        properties["next"] = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
        properties["kids"] = {"type": "array", "items": {"$ref": "#"}, "maxItems": chance.randint(1, 3)}
    required = [name for name in properties if name == "flag" or (name not in ("next", "kids") and chance.random() < 0.6)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _string(chance: random.Random, depth: int) -> Schema:
    low = chance.randint(1, 3)
    return {"type": "string", "minLength": low, "maxLength": low + chance.randint(1, 4)}


def _integer(chance: random.Random, depth: int) -> Schema:
    low = chance.randint(-20, 20)
    return {"type": "integer", "minimum": low, "maximum": low + chance.randint(2, 300)}


def _choice(chance: random.Random, depth: int) -> Schema:
    return {"enum": chance.sample(WORDS, chance.randint(2, 4))}


def _array(chance: random.Random, depth: int) -> Schema:
    low = chance.randint(0, 1)
    return {"type": "array", "items": _any(chance, depth - 1), "minItems": low, "maxItems": low + chance.randint(1, 3)}


def _object(chance: random.Random, depth: int) -> Schema:
    names = chance.sample(WORDS, chance.randint(1, 3))
    return {"type": "object", "properties": {name: _any(chance, depth - 1) for name in names}, "required": names[:1],
            "additionalProperties": False}


def _any(chance: random.Random, depth: int) -> Schema:
    makers = (_string, _integer, _choice) if depth <= 0 else (_string, _integer, _choice, _array, _object)
    return chance.choice(makers)(chance, depth)


def _places(schema: Schema, wanted: Callable[[Schema], bool]) -> list[Schema]:
    """The subschemas, by reference, for which ``wanted`` holds."""
    found, stack = [], [schema]
    while stack:
        current = stack.pop()
        if wanted(current):
            found.append(current)
        stack += [*current.get("properties", {}).values(), *current.get("anyOf", ())]
        if isinstance(current.get("items"), dict):
            stack.append(current["items"])
    return found


def _optional(schema: Schema, chance: random.Random) -> None:
    place = chance.choice(_places(schema, lambda part: bool(part.get("required"))))
    place["required"].remove(chance.choice(place["required"]))


def _enum_value(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "enum" in part))["enum"].append("a value of its own")


def _maximum(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "maximum" in part))["maximum"] += chance.choice((1, 7, 1000))


def _minimum(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "minimum" in part))["minimum"] -= chance.choice((1, 7, 1000))


def _longer(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "maxLength" in part))["maxLength"] += chance.randint(1, 5)


def _shorter(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: part.get("minLength", 0) > 0))["minLength"] -= 1


def _more_items(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "maxItems" in part))["maxItems"] += 1


def _open(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: part.get("additionalProperties") is False))["additionalProperties"] = {"type": "null"}


def _property(schema: Schema, chance: random.Random) -> None:
    chance.choice(_places(schema, lambda part: "properties" in part))["properties"]["extra"] = {"const": 1}


def _nullable(schema: Schema, chance: random.Random) -> None:
    place = chance.choice(_places(schema, lambda part: part.get("type") in ("string", "integer", "boolean", "array")))
    place["type"] = [place["type"], "null"]


def _recursion(schema: Schema, chance: random.Random) -> None:
    if "next" in schema["properties"]:
        schema["properties"]["next"]["anyOf"].append({"type": "array", "items": {"$ref": "#"}, "maxItems": 2})
    else:
        schema["properties"]["next"] = {"$ref": "#"}


WIDENING = (_optional, _enum_value, _maximum, _minimum, _longer, _shorter, _more_items, _open, _property, _nullable, _recursion)


def _reordered(schema: Schema, chance: random.Random) -> None:
    for place in _places(schema, lambda part: "enum" in part):
        chance.shuffle(place["enum"])
    for place in _places(schema, lambda part: "required" in part):
        chance.shuffle(place["required"])
    for place in _places(schema, lambda part: "anyOf" in part):
        chance.shuffle(place["anyOf"])


def _respelled(schema: Schema, chance: random.Random) -> None:
    for place in _places(schema, lambda part: "maximum" in part):
        place["exclusiveMaximum"] = place.pop("maximum") + 1
    for place in _places(schema, lambda part: "enum" in part):
        place["oneOf"] = [{"const": value} for value in place.pop("enum")]


def _referenced(schema: Schema, chance: random.Random) -> None:
    schema["$defs"] = {name: part for name, part in schema["properties"].items() if "$ref" not in str(part)}
    for name in schema["$defs"]:
        schema["properties"][name] = {"$ref": f"#/$defs/{name}"}


def _unrolled(schema: Schema, chance: random.Random) -> None:
    """One level of the recursion written out."""
    if "next" in schema["properties"]:
        inner = copy.deepcopy(schema)
        schema["properties"]["next"] = {"anyOf": [inner, {"type": "null"}]}
        schema["$comment"] = "the references of the copy lead to the root, which is the same language"


SAME = (_reordered, _respelled, _referenced, _unrolled)


def pairs(seed: int) -> Iterator[SchemaPair]:
    """Pairs without end; the recursive ones are every other."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        base = generated(chance, number % 2 == 0)
        change = copy.deepcopy(base)
        kind = chance.random()
        if kind < 0.2:
            same = chance.choice(SAME)
            same(change, chance)
            yield SchemaPair(base, change, "equal", same.__name__)
            continue
        widen = chance.choice(WIDENING)
        widen(change, chance)
        if kind < 0.5:
            yield SchemaPair(base, change, "wider", widen.__name__)
        elif kind < 0.8:
            yield SchemaPair(change, base, "narrower", widen.__name__)
        else:
            kept = change["properties"]["flag"] == base["properties"]["flag"]
            change["properties"]["flag"] = {"const": True}
            yield SchemaPair(base, change, "incomparable" if kept else "narrower", widen.__name__)


def instance(schema: Any, root: Any, chance: random.Random, depth: int = 4) -> Any:
    """A random value near ``schema``, mostly valid, members in declared order."""
    if chance.random() < 0.03:
        return chance.choice([None, True, False, 0, 1, "", "red", [], {}])
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return instance(root if name == "#" else root["$defs"][name], root, chance, depth - 1)
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if depth > 0 or part == {"type": "null"}]
        return instance(chance.choice(parts), root, chance, depth)
    for keyword in ("enum", "oneOf"):
        if keyword in schema:
            chosen = chance.choice(schema[keyword])
            return chosen["const"] if keyword == "oneOf" else chosen
    if "const" in schema:
        return schema["const"]
    kind = schema["type"] if isinstance(schema["type"], str) else chance.choice(schema["type"])
    return VALUES[kind](schema, root, chance, depth)


def an_object(schema: Any, root: Any, chance: random.Random, depth: int) -> Any:
    found = {name: instance(part, root, chance, depth - 1) for name, part in schema["properties"].items()
             if name in schema["required"] or (depth > 0 and chance.random() < 0.4)}
    if schema["additionalProperties"] is not False and chance.random() < 0.3:
        found["other"] = None
    return found


VALUES = {
    "object": an_object,
    "array": lambda schema, root, chance, depth: [
        instance(schema["items"], root, chance, depth - 1) for _ in range(chance.randint(schema.get("minItems", 0), schema["maxItems"]))],
    "string": lambda schema, root, chance, depth: "xyzzyxyzzyxyzzyxyz"[:chance.randint(schema["minLength"], schema["maxLength"])],
    "integer": lambda schema, root, chance, depth: chance.choice([schema["minimum"], schema.get("maximum", schema["minimum"])]),
    "boolean": lambda schema, root, chance, depth: chance.random() < 0.5,
    "null": lambda schema, root, chance, depth: None,
}


def shortest(fsm: Any) -> int | None:
    """Length of a shortest word of an interegular automaton, by breadth-first search over its map."""
    seen, layer, length = {fsm.initial}, [fsm.initial], 0
    while layer:
        if any(state in fsm.finals for state in layer):
            return length
        layer = list(dict.fromkeys(to for state in layer for to in fsm.map.get(state, {}).values() if to not in seen))
        seen.update(layer)
        length += 1
    return None
