"""Artifacts: round trips, a second reader written from SPEC.md, sizes, and every index checked before it is used."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_cases import random_binding, random_machine
from hypothesis import given, settings
from hypothesis import strategies as st
from specification_reader import read_binding, read_machine, read_notes

from stcc.formats import Artifact, FormatError, Metadata, Vocabulary, VocabularyMismatch, binding_sections, machine_sections
from stcc.formats.binding import EXPOSED, MOVE, POPPED, UNREACHABLE, Binding
from stcc.formats.binding_checks import verify_binding
from stcc.formats.container import Container, pack
from stcc.formats.errors import ContentError, HeaderError, LimitError, MagicError
from stcc.formats.machine import Machine, verify_machine

seeds = st.integers(0, 1 << 40)
NOTE = {"pointer": "#/a\ud800", "keyword": "format", "message": "ünknown format"}
FIELDS = [field.name for field in dataclasses.fields(Binding)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and np.array_equal(left, right)
    return bool(left == right)


def random_artifact(seed: int, bindings: int = 2) -> tuple[Artifact, Machine, dict[str, Binding]]:
    rng = np.random.default_rng(seed)
    machine = random_machine(rng)
    bound = [random_binding(rng, machine, fingerprint=f"{seed % 97 + number:02x}" * 32) for number in range(bindings)]
    metadata = Metadata("näme", "cd" * 32, {"whitespace": "compact", "b": True, "n": 3}, "1.2.3", (NOTE,) * int(rng.integers(0, 3)),
                        (NOTE,) * int(rng.integers(0, 2)))
    names = {binding.fingerprint: f"vocabulary {number}" for number, binding in enumerate(bound)}
    return Artifact.create("json_schema", machine, metadata, bound, names), machine, {binding.fingerprint: binding for binding in bound}


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_generated_cases_are_sound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    machine = random_machine(rng)
    assert not verify_machine(machine) and not verify_binding(random_binding(rng, machine), machine)


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_round_trip(seed: int) -> None:
    artifact, machine, bindings = random_artifact(seed)
    data = artifact.to_bytes()
    loaded = Artifact.from_bytes(data)
    assert loaded.metadata == artifact.metadata and loaded.kind == "json_schema" and loaded.vocabularies == artifact.vocabularies
    for field in dataclasses.fields(Machine):
        assert same(getattr(loaded.machine, field.name), getattr(machine, field.name)), field.name
    for fingerprint, binding in bindings.items():
        for name in FIELDS:
            assert same(getattr(loaded.binding(fingerprint), name), getattr(binding, name)), name
    assert loaded.to_bytes() == data == Artifact.from_bytes(data).to_bytes()


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_a_reader_written_from_the_specification_agrees(seed: int) -> None:
    artifact, machine, bindings = random_artifact(seed)
    data = artifact.to_bytes()
    for name, numbers in read_machine(data).items():
        assert np.ravel(getattr(machine, name)).tolist() == np.ravel(numbers).tolist(), name
    for position, fingerprint in enumerate(sorted(bindings)):
        for name, numbers in read_binding(data, position).items():
            expected = getattr(bindings[fingerprint], name)
            assert (np.ravel(expected).tolist() if isinstance(expected, np.ndarray) else expected) == numbers, name
    assert read_notes(data) == {"unenforced": list(artifact.metadata.unenforced), "warnings": list(artifact.metadata.warnings)}


def test_the_order_of_bindings_and_options_does_not_change_the_bytes() -> None:
    artifact, machine, bindings = random_artifact(3)
    backwards = Metadata(**{**vars(artifact.metadata), "options": dict(reversed(artifact.metadata.options.items()))})
    names = {bound.fingerprint: bound.name for bound in artifact.vocabularies}
    other = Artifact.create("json_schema", machine, backwards, reversed(bindings.values()), names)
    assert other.to_bytes() == artifact.to_bytes()


def test_binding_again_replaces_and_unbinding_is_portable(tmp_path: Path) -> None:
    artifact, machine, bindings = random_artifact(5)
    artifact.save(tmp_path / "a.stc")
    loaded = Artifact.load(tmp_path / "a.stc")
    again = loaded
    for fingerprint, binding in bindings.items():
        name = next(bound.name for bound in loaded.vocabularies if bound.fingerprint == fingerprint)
        again = again.with_binding(binding, name)
    assert again.to_bytes() == (tmp_path / "a.stc").read_bytes() and not again.portable
    portable = loaded.without_bindings()
    assert portable.portable and portable.fingerprints == () and Artifact.from_bytes(portable.to_bytes()).portable
    assert portable.to_bytes() == Artifact.create("json_schema", machine, artifact.metadata).to_bytes()
    with pytest.raises(KeyError):
        portable.binding(loaded.fingerprints[0])
    with pytest.raises(KeyError):
        loaded.binding("00" * 32)


def test_opening_decodes_nothing_and_using_decodes_one_family() -> None:
    artifact, _, _ = random_artifact(8, bindings=1)
    loaded = Artifact.from_bytes(artifact.to_bytes())
    binding = loaded.binding(loaded.fingerprints[0])
    assert not set(FIELDS[3:]) & set(vars(binding))
    assert binding.row_offsets is binding.row_offsets
    assert {"row_actions", "record_kind", "suffix_values"} <= set(vars(binding))
    assert not {"run_starts", "cover", "need_kinds"} & set(vars(binding))
    with pytest.raises(AttributeError):
        _ = binding.nothing  # type: ignore[attr-defined]
    plain = dataclasses.replace(artifact.binding(loaded.fingerprints[0]), actions=binding.actions)
    assert all(same(getattr(plain, name), getattr(binding, name)) for name in FIELDS)


def small_vocabulary_binding(vocabulary: Vocabulary, machine: Machine, **changes: Any) -> Binding:
    binding = random_binding(np.random.default_rng(0), machine, fingerprint=vocabulary.fingerprint)
    zero = np.zeros(machine.states + 1, np.int32)
    fitting = {"vocabulary_size": vocabulary.size, "actions": 9, "run_starts": np.array([0, 2], np.int32),
               "run_action": np.array([1, 0], np.int32), "plan_offsets": zero, "plan_tokens": zero[:0]}
    return dataclasses.replace(binding, **{**fitting, **changes})  # type: ignore[arg-type]


def test_a_vocabulary_gets_its_binding_or_an_error_that_names_both() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"b", b"c", b""], [3], name="first")
    other = Vocabulary.from_tokens([b"x"], [], name="second")
    machine = random_machine(np.random.default_rng(4))
    artifact = Artifact.create("regex", machine, {}, [small_vocabulary_binding(vocabulary, machine)], {vocabulary.fingerprint: "first"})
    loaded = Artifact.from_bytes(artifact.to_bytes(), "bound.stc")
    assert loaded.binding_for(vocabulary).vocabulary_size == 4
    with pytest.raises(VocabularyMismatch) as caught:
        loaded.binding_for(other)
    assert all(part in str(caught.value) for part in ("bound.stc", "first", vocabulary.fingerprint, "second", other.fingerprint))
    with pytest.raises(VocabularyMismatch, match="no vocabulary"):
        loaded.without_bindings().binding_for(vocabulary)
    none = np.zeros(0, np.int32)
    for change in ({"run_starts": np.array([0, 3], np.int32)}, {"vocabulary_size": 5}, {"run_starts": none, "run_action": none}):
        wrong = Artifact.create("regex", machine, {}, [small_vocabulary_binding(vocabulary, machine, **change)])
        with pytest.raises(ContentError, match="byte order"):
            Artifact.from_bytes(wrong.to_bytes()).binding_for(vocabulary)


def test_metadata_is_taken_by_name_and_checked() -> None:
    machine = random_machine(np.random.default_rng(0))
    assert Artifact.create("regex", machine, {"name": "x", "warnings": [NOTE]}).metadata == Metadata(name="x", warnings=(NOTE,))
    assert Artifact.create("regex", machine).metadata == Metadata()
    with pytest.raises(TypeError):
        Artifact.create("regex", machine, {"colour": "red"})
    with pytest.raises(LimitError):
        Artifact.create("regex", machine, {"warnings": [{"message": "x" * (1 << 20)}]}).to_bytes()


def test_headers_are_checked() -> None:
    artifact, _, _ = random_artifact(1)
    box = Container.parse(artifact.to_bytes())
    meta = dict(box.meta)
    entry = meta["bindings"][0]
    sections = machine_sections.machine_sections(artifact.machine)
    changes: list[dict[str, Any]] = [
        {"more": 1}, {"kind": 1}, {"name": None}, {"options": []}, {"options": {"a": [1]}}, {"start": "0"}, {"start": True},
        {"bindings": {}}, {"bindings": [1]}, {"bindings": [{**entry, "more": 1}]}, {"bindings": [{**entry, "size": -1}]},
        {"bindings": [{**entry, "actions": 1 << 31}]}, {"bindings": [{**entry, "fingerprint": "AB" * 32}]}, {"bindings": [entry, entry]},
        {"bindings": meta["bindings"][::-1]},
    ]
    for change in changes:
        with pytest.raises(HeaderError):
            Artifact.from_bytes(pack("stc", {**meta, **change}, sections))
    with pytest.raises(HeaderError):
        Artifact.from_bytes(pack("stc", {key: value for key, value in meta.items() if key != "kind"}, sections))
    with pytest.raises(MagicError):
        Artifact.from_bytes(Vocabulary.from_tokens([b"a"], []).to_bytes())
    for start in (-1, artifact.machine.states):
        broken = Artifact.from_bytes(pack("stc", {**meta, "start": start, "bindings": []}, sections))
        with pytest.raises(ContentError, match="start state"):
            _ = broken.machine


def stacked_machine() -> Machine:
    """Four states, one enter edge, one call site."""
    return Machine(
        byte_class=np.zeros(256, np.uint8), table=np.array([[1], [4], [3], [-1]], np.int32), exits=np.array([-1, -1, -1, 0], np.int16),
        accepting=np.array([0, 0, 0, 1], np.bool_), edge_target=np.array([2], np.int32), edge_push_offsets=np.array([0, 1], np.int32),
        edge_pushes=np.array([0], np.int32), returns=np.array([[1]], np.int32), start=0,
        unique=np.array([0, 2], np.int32), several=np.array([True, False]))


def stacked_binding() -> Binding:
    """A binding of ``stacked_machine`` that uses every array."""
    def ints(*numbers: int) -> np.ndarray:
        return np.array(numbers, np.int32)

    return Binding(
        fingerprint="ab" * 32, vocabulary_size=10, actions=3, run_starts=ints(0, 4), run_action=ints(1, 2), row_offsets=ints(0, 2, 3, 4, 4),
        row_actions=ints(1, 2, 1, 2), row_values=ints(1, 4, 5, 6), record_kind=np.array([MOVE, POPPED, EXPOSED], np.uint8),
        record_head=ints(2, 0, 0), record_function=ints(-1, -1, 0), record_push_offsets=ints(0, 1, 1, 1), record_pushes=ints(0),
        suffix_offsets=ints(0, 2), suffix_states=ints(0, 1), suffix_values=ints(5, 1), plan_offsets=ints(0, 2, 2, 3, 3),
        plan_tokens=ints(7, 9, 7), cover=np.zeros(4, np.uint8),
        need_finish=ints(3, 2, UNREACHABLE, 0), need_kinds=ints(1, 2), need_leave=ints(1, 2, 3, 4, 5, 6, 7, 8).reshape(4, 2))


def broken_numbers(value: Any) -> list[tuple[str, int, int]]:
    """(array, place, number): sound values of ``value`` with one number out of range."""
    if isinstance(value, Machine):
        return [("byte_class", 0, 1), ("table", 0, 5), ("table", 0, -2), ("exits", 3, 1), ("exits", 1, 0), ("edge_target", 0, 4),
                ("edge_target", 0, -1), ("edge_pushes", 0, 1), ("edge_pushes", 0, -1), ("returns", 0, 4), ("returns", 0, -2),
                ("returns", 0, 3), ("unique", 0, 4), ("unique", 1, 0), ("unique", 0, -1)]
    return [("run_starts", 0, 1), ("run_starts", 1, 0), ("run_starts", 1, 10), ("run_action", 1, 3), ("row_offsets", 1, 4),
            ("row_offsets", 4, 9), ("row_offsets", 0, 1), ("row_actions", 0, 2), ("row_actions", 3, 3), ("row_actions", 0, 0),
            ("row_values", 0, 7), ("row_values", 0, -1), ("record_kind", 0, 0), ("record_kind", 0, 4), ("record_head", 0, 4),
            ("record_head", 1, 1), ("record_function", 2, 1), ("record_function", 2, -1), ("record_function", 1, 0),
            ("record_push_offsets", 2, 0), ("record_pushes", 0, 1), ("suffix_offsets", 1, 3), ("suffix_states", 1, 4),
            ("suffix_states", 1, 0), ("suffix_values", 0, 7), ("plan_offsets", 2, 9), ("plan_tokens", 0, 10), ("need_finish", 0, -1),
            ("need_finish", 0, UNREACHABLE + 1), ("need_kinds", 0, 0), ("need_kinds", 0, 3), ("need_leave", 0, -1)]


NO_CODE = {("run_starts", 0, 1), ("table", 0, -2), ("need_finish", 0, -1), ("need_finish", 0, UNREACHABLE + 1), ("need_leave", 0, -1)}
"""Numbers that the codings have no way to say: they write what means dead, unreachable or the start."""


def with_number(value: Any, name: str, place: int, number: int) -> Any:
    array = getattr(value, name).copy()
    array.reshape(-1)[place] = number
    return dataclasses.replace(value, **{name: array})


@pytest.mark.parametrize(("name", "place", "number"), broken_numbers(stacked_binding()))
def test_every_index_of_a_binding_is_checked(name: str, place: int, number: int) -> None:
    machine, binding = stacked_machine(), stacked_binding()
    assert not verify_machine(machine) and not verify_binding(binding, machine)
    broken = with_number(binding, name, place, number)
    assert verify_binding(broken, machine)
    with pytest.raises(ContentError):
        Artifact.create("regex", machine, {}, [broken])


@pytest.mark.parametrize(("name", "place", "number"), broken_numbers(stacked_machine()))
def test_every_index_of_a_machine_is_checked(name: str, place: int, number: int) -> None:
    broken = with_number(stacked_machine(), name, place, number)
    assert verify_machine(broken)
    with pytest.raises(ContentError):
        Artifact.create("regex", broken)


@pytest.mark.parametrize(("name", "place", "number"),
                         [case for case in broken_numbers(stacked_binding()) + broken_numbers(stacked_machine()) if case not in NO_CODE])
def test_indices_out_of_range_are_refused_behind_right_checksums(name: str, place: int, number: int) -> None:
    """The same numbers, as far as the codings can write them, in a file whose container is sound."""
    machine, binding = stacked_machine(), stacked_binding()
    box = Container.parse(Artifact.create("regex", machine, {}, [binding]).to_bytes())
    if hasattr(machine, name):
        machine = with_number(machine, name, place, number)
    else:
        binding = with_number(binding, name, place, number)
    try:
        sections = machine_sections.machine_sections(machine) + binding_sections.binding_sections(binding, 0)
    except (ValueError, IndexError):
        return  # negative, or past an array: no file can say it
    artifact = Artifact.from_bytes(pack("stc", box.meta, sections))
    with pytest.raises(FormatError):
        use(artifact)


def use(artifact: Artifact) -> None:
    """Every number of an artifact."""
    _ = artifact.machine.table
    for fingerprint in artifact.fingerprints:
        for name in FIELDS:
            getattr(artifact.binding(fingerprint), name)


@settings(max_examples=150, deadline=None)
@given(seeds, st.data())
def test_any_number_anywhere_is_read_safely_or_refused(seed: int, data: st.DataObject) -> None:
    """Sections with one number replaced, behind right checksums: a FormatError, or a value that holds every invariant."""
    artifact, machine, bindings = random_artifact(seed, bindings=1)
    (binding,) = bindings.values()
    sections = machine_sections.machine_sections(machine) + binding_sections.binding_sections(binding, 0)
    index = data.draw(st.sampled_from([i for i, section in enumerate(sections) if section.array.size]))
    array = sections[index].array.copy()
    array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(st.integers(0, np.iinfo(array.dtype).max))
    sections[index] = dataclasses.replace(sections[index], array=array)
    meta = Container.parse(artifact.to_bytes()).meta
    changed = Artifact.from_bytes(pack("stc", meta, sections))
    try:
        use(changed)
    except FormatError:
        return
    assert not verify_machine(changed.machine) and not verify_binding(changed.binding(binding.fingerprint), changed.machine)


def chain(states: int) -> Machine:
    """A machine that spells one long text, as the keys of an object do."""
    table = np.full((states, 30), -1, np.int32)
    table[np.arange(states - 1), np.arange(states - 1) * 7 % 30] = np.arange(1, states)
    none = np.zeros(0, np.int32)
    last = np.arange(states) == states - 1
    return Machine((np.arange(256) % 30).astype(np.uint8), table, np.where(last, 0, -1).astype(np.int16), last, none, np.zeros(1, np.int32),
                   none, np.zeros((0, 1), np.int32), 0)


def test_chains_of_states_are_small_and_large_tables_keep_to_the_memory_limit() -> None:
    assert len(Artifact.create("regex", chain(2_000)).to_bytes()) < 2_000
    large = chain(60_000)
    data = Artifact.create("regex", large).to_bytes()
    assert np.array_equal(Artifact.from_bytes(data).machine.table, large.table) and len(data) < 70_000
