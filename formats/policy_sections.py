"""PolicyGraph <-> sections ``policy.*`` (SPEC.md lists them).

In: a ``PolicyGraph``; out: its sections. In: a container; out: a graph that ``verify_policy`` accepts, so that every index in it may be
used unchecked, whoever wrote the file. Cost: linear in the size of the sections.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from stcc.formats.coding import Array, Int32, delta, narrow, offsets, to_int32, undelta
from stcc.formats.container import SectionData
from stcc.formats.errors import ContentError, LimitError, ShapeError
from stcc.formats.policy import MAX_NAMES, AbstractionVerdict, Float64, PolicyGraph, Positions, Step, Steps, verify_policy
from stcc.formats.sections import SectionReader

PREFIX = "policy."
MAX_ABOUT = 1 << 20
NAMES = ("about", "world_weights", "starts", "ending", "outcome_counts", "outcome_observations", "outcome_targets", "outcome_weights",
         "class_accepting", "class_counts", "class_observations", "class_targets", "dead", "position_class", "position_ended",
         "position_counts", "position_observations", "position_targets", "keys")
_ABOUT = {"abstractions", "actions", "explored", "horizon", "observations", "worlds"}
_VERDICT = {"bisimulation", "keys", "name", "proof", "sound"}


def policy_sections(graph: PolicyGraph) -> list[SectionData]:
    """The sections of ``graph``, in a fixed order.

    Raises:
        LimitError: its names take more than ``MAX_ABOUT`` bytes.
    """
    about = json.dumps({
        "abstractions": [{"bisimulation": verdict.bisimulation, "keys": verdict.keys, "name": verdict.name,
                          "proof": [[list(step) for step in word] for word in verdict.proof], "sound": verdict.sound}
                         for verdict in graph.abstractions],
        "actions": graph.actions, "explored": graph.explored, "horizon": graph.horizon, "observations": graph.observations,
        "worlds": graph.worlds,
    }, sort_keys=True, separators=(",", ":")).encode()
    if len(about) > MAX_ABOUT:
        raise LimitError("<new>", f"section {PREFIX}about", f"{len(about):,} bytes of names are more than {MAX_ABOUT:,}",
                         "use fewer or shorter names")
    arrays: dict[str, Array] = {
        "about": np.frombuffer(about, np.uint8), "world_weights": _numbers(graph.world_weights), "starts": narrow(graph.starts),
        "ending": graph.ending, **_steps("outcome", graph.outcomes), "outcome_weights": _numbers(graph.outcome_weights),
        "class_accepting": graph.class_accepting.astype(np.uint8), **_steps("class", graph.classes), "dead": narrow(graph.dead),
    }
    if graph.positions is not None:
        positions = graph.positions
        arrays |= {"position_class": narrow(positions.class_of.astype(np.int64) + 1),
                   "position_ended": positions.ended.astype(np.uint8), **_steps("position", positions.steps),
                   "keys": narrow(positions.keys.astype(np.int64) + 1)}
    return [SectionData(PREFIX + name, arrays[name], required=False) for name in NAMES if name in arrays]


def _steps(name: str, steps: Steps) -> dict[str, Array]:
    return {f"{name}_counts": narrow(np.diff(steps.offsets)), f"{name}_observations": narrow(steps.observation),
            f"{name}_targets": delta(steps.target)}


def _numbers(values: Float64) -> Array:
    """float64 numbers as rows of eight bytes, little-endian."""
    return np.frombuffer(np.ascontiguousarray(values, "<f8").tobytes(), np.uint8).reshape(-1, 8)


def read_policy(reader: SectionReader) -> PolicyGraph:
    """The graph in the sections of ``reader``, verified.

    Raises:
        FormatError: a section is missing or damaged, or what it says is not sound.
    """
    about = _read_about(reader)
    with reader.checked():
        graph = PolicyGraph(
            actions=about["actions"], observations=about["observations"], worlds=about["worlds"],
            world_weights=_read_numbers(reader, "world_weights"), horizon=about["horizon"], starts=to_int32(reader.take("starts")),
            ending=reader.take("ending", dtype="u8"), outcomes=_read_steps(reader, "outcome"),
            outcome_weights=_read_numbers(reader, "outcome_weights"), classes=_read_steps(reader, "class"),
            class_accepting=reader.take("class_accepting", dtype="u8") > 0, dead=_read_pairs(reader),
            explored=about["explored"], positions=_read_positions(reader), abstractions=about["abstractions"],
        )
        broken = verify_policy(graph)
    if broken:
        raise ContentError(reader.file, "policy", f"it does not hold that {broken[0]}")
    return graph


def _read_pairs(reader: SectionReader) -> Int32:
    pairs = to_int32(reader.take("dead", dimensions=2))
    if pairs.shape[1] != 2:
        raise ShapeError(reader.file, f"section {PREFIX}dead", "it holds pairs")
    return pairs


def _read_numbers(reader: SectionReader, name: str) -> Float64:
    rows = reader.take(name, dtype="u8", dimensions=2)
    if rows.shape[1] != 8:
        raise ShapeError(reader.file, f"section {PREFIX}{name}", "its numbers take eight bytes each")
    values: Float64 = np.frombuffer(rows.tobytes(), "<f8").astype(np.float64)
    return values


def _read_steps(reader: SectionReader, name: str) -> Steps:
    return Steps(offsets(reader.take(f"{name}_counts")), to_int32(reader.take(f"{name}_observations")),
                 undelta(reader.take(f"{name}_targets")))


def _read_positions(reader: SectionReader) -> Positions | None:
    if PREFIX + "position_class" not in reader.box.sections:
        return None
    return Positions(_read_steps(reader, "position"), to_int32(reader.take("position_class").astype(np.int64) - 1),
                     reader.take("position_ended", dtype="u8") > 0, to_int32(reader.take("keys", dimensions=2).astype(np.int64) - 1))


def _read_about(reader: SectionReader) -> dict[str, Any]:
    """Names and verdicts, each of the type that it should have; what they say is verified with the graph."""
    place = f"section {PREFIX}about"
    if reader.shape("about")[0] > MAX_ABOUT:
        raise LimitError(reader.file, place, f"it is larger than {MAX_ABOUT:,} bytes")
    try:
        about = json.loads(reader.take("about", dtype="u8").tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise ContentError(reader.file, place, "it is not JSON") from error
    sound = isinstance(about, dict) and about.keys() == _ABOUT and type(about["horizon"]) is int and _is_pair(about["explored"])
    if not sound or not all(_is_names(about[key]) for key in ("actions", "observations", "worlds")):
        raise ContentError(reader.file, place, "it holds names, a horizon and two counts")
    if not isinstance(about["abstractions"], list) or not all(map(_is_verdict, about["abstractions"])):
        raise ContentError(reader.file, place, "it holds verdicts on abstractions")
    verdicts = tuple(AbstractionVerdict(entry["name"], entry["sound"], entry["bisimulation"], tuple(map(_word, entry["proof"])),
                                        entry["keys"]) for entry in about["abstractions"])
    return {**{key: tuple(about[key]) for key in ("actions", "explored", "observations", "worlds")}, "horizon": about["horizon"],
            "abstractions": verdicts}


def _is_names(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_NAMES and all(type(name) is str for name in value)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(number) is int and number < 1 << 53 for number in value)


def _is_verdict(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != _VERDICT or type(value["name"]) is not str:
        return False
    flags = type(value["sound"]) is bool and type(value["bisimulation"]) is bool and type(value["keys"]) is int
    proof = value["proof"]
    return flags and isinstance(proof, list) and all(isinstance(word, list) and all(map(_is_pair, word)) for word in proof)


def _word(steps: list[list[int]]) -> tuple[Step, ...]:
    return tuple((action, seen) for action, seen in steps)
