"""The artifact: a compiled machine, what is known of its source, and what it does with the tokens of the vocabularies it is bound to.

In go a machine, its metadata and any number of bindings (``Artifact.create``); out comes a ``.stc`` file, the same bytes wherever it is
made. ``Artifact.load`` reads one: the container and the header are checked at once; the machine and each family of a binding's arrays are
decoded and verified when first used, so that opening a file costs what is used of it.

>>> import numpy as np
>>> dead = np.full((1, 1), -1, np.int32)
>>> none = np.zeros(0, np.int32)
>>> machine = Machine(byte_class=np.zeros(256, np.uint8), table=dead, exits=np.zeros(1, np.int16), accepting=np.ones(1, np.bool_),
...                   edge_target=none, edge_push_offsets=np.zeros(1, np.int32), edge_pushes=none, returns=none.reshape(0, 1), start=0)
>>> artifact = Artifact.from_bytes(Artifact.create("regex", machine, {"name": "empty"}).to_bytes())
>>> artifact.kind, artifact.metadata.name, artifact.portable, artifact.machine.states
('regex', 'empty', True, 1)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stcc.formats import binding_sections, machine_sections
from stcc.formats.binding import Binding
from stcc.formats.binding_checks import verify_binding
from stcc.formats.container import Buffer, Container, SectionData, memory_limit, open_read, pack, write_atomic
from stcc.formats.errors import ContentError, HeaderError, LimitError, MagicError, VocabularyMismatch
from stcc.formats.fingerprint import is_fingerprint
from stcc.formats.machine import Machine, verify_machine
from stcc.formats.sections import SectionReader
from stcc.formats.vocabulary import Vocabulary

if TYPE_CHECKING:
    from stcc.formats.policy import PolicyGraph

CONTENT = "stc"
NOTES = "notes"
MAX_NOTES = 1 << 20
TAGS = "tags"
"""The option that lists, one a line, special tokens that the machine reads as text; see ``Artifact.spelled``."""
_POLICY = "policy."
"""What the names of a policy's sections begin with; their module is imported for artifacts that have some."""
_BOUND_KEYS = {"actions", "fingerprint", "name", "size"}
_META_KEYS = {"bindings", "compiler", "kind", "name", "options", "source_sha256", "start"}
Note = Mapping[str, str]


@dataclass(frozen=True)
class Metadata:
    """What an artifact tells of its source.

    Attributes:
        name: what people call it.
        source_sha256: SHA-256 of the source text, hex; empty if it had none.
        options: the options that shaped the language (``Options.recorded()``).
        compiler: version of the compiler.
        warnings: maps with ``pointer``, ``keyword`` and ``message``.
        unenforced: likewise, for what the user chose to leave unenforced.
    """

    name: str = ""
    source_sha256: str = ""
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    compiler: str = ""
    warnings: tuple[Note, ...] = ()
    unenforced: tuple[Note, ...] = ()


@dataclass(frozen=True)
class BoundVocabulary:
    """A vocabulary that an artifact is bound to: its fingerprint, what people call it, its size, and the number of actions."""

    fingerprint: str
    name: str
    size: int
    actions: int


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled source. Make one with ``create``, ``load`` or ``from_bytes``.

    Attributes:
        kind: ``json_schema``, ``regex``, ``tools`` or ``policy``.
        metadata: see ``Metadata``.
        vocabularies: what it is bound to, by rising fingerprint.
        file: where it was read, for messages.
    """

    kind: str
    metadata: Metadata
    vocabularies: tuple[BoundVocabulary, ...]
    file: str
    _machine: Machine | SectionReader = field(repr=False)
    _start: int = field(repr=False)
    _bindings: dict[str, Binding] = field(repr=False)
    _policy: PolicyGraph | SectionReader | None = field(default=None, repr=False)

    @staticmethod
    def create(kind: str, machine: Machine, metadata: Metadata | Mapping[str, Any] | None = None, bindings: Iterable[Binding] = (),
               vocabulary_names: Mapping[str, str] | None = None, policy: PolicyGraph | None = None) -> Artifact:
        """An artifact of ``machine``, bound by ``bindings``.

        Args:
            kind: the kind of source.
            machine: sound (``verify_machine``).
            metadata: a ``Metadata``, or its fields by name.
            bindings: of ``machine``, at most one a vocabulary.
            vocabulary_names: fingerprint -> what people call the vocabulary.
            policy: the workflow, if that is what was compiled; ``machine`` then reads its valid histories.

        Raises:
            ContentError: the machine, a binding or the policy breaks an invariant.
            TypeError: ``metadata`` has a field that ``Metadata`` has not.
        """
        known = metadata if isinstance(metadata, Metadata) else Metadata(**(metadata or {}))
        known = replace(known, warnings=tuple(known.warnings), unenforced=tuple(known.unenforced))
        broken = verify_machine(machine)
        if broken:
            raise ContentError("<new>", "machine", f"it does not hold that {broken[0]}")
        if policy is not None:
            _refuse_unsound(policy)
        artifact = Artifact(kind, known, (), "<new>", machine, machine.start, {}, policy)
        for binding in bindings:
            artifact = artifact.with_binding(binding, (vocabulary_names or {}).get(binding.fingerprint, ""))
        return artifact

    @cached_property
    def machine(self) -> Machine:
        """The machine, verified; that of a file decodes and verifies its table when the table is first used.

        Raises:
            FormatError: its sections are missing or damaged, or an index in them is out of range.
        """
        if isinstance(self._machine, Machine):
            return self._machine
        return machine_sections.read_machine(self._machine, self._start)

    @cached_property
    def policy(self) -> PolicyGraph | None:
        """The workflow of a ``policy`` artifact, verified; None in the others.

        Raises:
            FormatError: its sections are missing or damaged, or what they say is not sound.
        """
        if not isinstance(self._policy, SectionReader):
            return self._policy
        from stcc.formats.policy_sections import read_policy

        return read_policy(self._policy)

    @property
    def portable(self) -> bool:
        """Whether it is bound to no vocabulary."""
        return not self.vocabularies

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of the vocabularies it is bound to, rising."""
        return tuple(bound.fingerprint for bound in self.vocabularies)

    def binding(self, fingerprint: str) -> Binding:
        """The binding for the vocabulary with ``fingerprint``; its arrays are decoded and verified on first use.

        Raises:
            KeyError: the artifact is not bound to it.
            FormatError: the machine is damaged; on use of an array, that the binding is.
        """
        found = self._bindings.get(fingerprint)
        if found is None:
            number = self.fingerprints.index(fingerprint) if fingerprint in self.fingerprints else -1
            if number < 0 or not isinstance(self._machine, SectionReader):
                raise KeyError(fingerprint)
            bound = self.vocabularies[number]
            reader = SectionReader(self._machine.box, binding_sections.prefix(number))
            found = binding_sections.StoredBinding(reader, self.machine, fingerprint, bound.size, bound.actions)
            self._bindings[fingerprint] = found
        return found

    def binding_for(self, vocabulary: Vocabulary) -> Binding:
        """The binding for ``vocabulary``, with its runs inside the vocabulary's byte order.

        Raises:
            VocabularyMismatch: the artifact is bound to others, or to none.
            FormatError: the binding is damaged.
        """
        if vocabulary.fingerprint not in self.fingerprints:
            bound = tuple((other.fingerprint, other.name) for other in self.vocabularies)
            raise VocabularyMismatch(self.file, bound, (vocabulary.fingerprint, vocabulary.name))
        binding = self.binding(vocabulary.fingerprint)
        spelled = len(vocabulary.byte_order)
        runs = len(binding.run_starts)
        if binding.vocabulary_size != vocabulary.size or (runs > 0) != (spelled > 0) or (runs and int(binding.run_starts[-1]) >= spelled):
            raise ContentError(self.file, "binding", "its runs do not cover the vocabulary's byte order")
        return binding

    def spelled(self, vocabulary: Vocabulary) -> Vocabulary:
        """``vocabulary`` as this artifact reads it: with the special tokens that are its tags spelled by their text.

        Usually the same object. Bindings are made for, and named by the fingerprint of, what this returns.
        """
        tags = self.metadata.options.get(TAGS)
        return vocabulary.spelling(tags.split("\n")) if isinstance(tags, str) and tags else vocabulary

    def with_binding(self, binding: Binding, vocabulary_name: str = "") -> Artifact:
        """The same artifact, also bound by ``binding``; one for the same vocabulary is replaced.

        Raises:
            ContentError: the binding breaks an invariant.
        """
        broken = verify_binding(binding, self.machine)
        if not is_fingerprint(binding.fingerprint):
            broken.append("the fingerprint is a SHA-256 in hex")
        if broken:
            raise ContentError(self.file, "binding", f"it does not hold that {broken[0]}")
        others = {bound.fingerprint: bound for bound in self.vocabularies}
        others[binding.fingerprint] = BoundVocabulary(binding.fingerprint, vocabulary_name, binding.vocabulary_size, binding.actions)
        bindings = {fingerprint: self.binding(fingerprint) for fingerprint in self.fingerprints} | {binding.fingerprint: binding}
        return replace(self, vocabularies=tuple(others[key] for key in sorted(others)), _machine=self.machine, _bindings=bindings)

    def without_bindings(self) -> Artifact:
        """The portable artifact."""
        return replace(self, vocabularies=(), _machine=self.machine, _bindings={})

    def to_bytes(self) -> bytes:
        """The ``.stc`` file; equal artifacts give equal bytes.

        Raises:
            FormatError: it would pass a limit of the format.
        """
        known = self.metadata
        meta = {
            "bindings": [{"actions": bound.actions, "fingerprint": bound.fingerprint, "name": bound.name, "size": bound.size}
                         for bound in self.vocabularies],
            "compiler": known.compiler, "kind": self.kind, "name": known.name, "options": dict(sorted(known.options.items())),
            "source_sha256": known.source_sha256, "start": self.machine.start,
        }
        sections = machine_sections.machine_sections(self.machine)
        if known.warnings or known.unenforced:
            sections.append(_notes_section(known))
        if self.policy is not None:
            from stcc.formats.policy_sections import policy_sections

            sections += policy_sections(self.policy)
        largest = 0
        for number, fingerprint in enumerate(self.fingerprints):
            binding = self.binding(fingerprint)
            sections += binding_sections.binding_sections(binding, number)
            largest = max(largest, binding_sections.decoded_size(binding))
        data = pack(CONTENT, meta, sections)
        limit = memory_limit(len(data))
        if largest > limit:
            raise LimitError("<new>", "binding", f"it decodes to {largest:,} bytes; a file of {len(data):,} may take {limit:,}")
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.stc`` file in one step.

        Raises:
            FormatError: it would pass a limit of the format.
            OSError: the folder cannot be written.
        """
        write_atomic(path, self.to_bytes())

    @staticmethod
    def from_bytes(data: Buffer, name: str = "<bytes>") -> Artifact:
        """The artifact in ``data``, checked as by ``load``; ``name`` is used in messages."""
        return _from_container(Container.parse(data, name))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Artifact:
        """Read a ``.stc`` file. Layout, checksums and header are checked now, contents when first used.

        Raises:
            FormatError: the file breaks a promise of the format.
            OSError: it cannot be opened.
        """
        return _from_container(open_read(path))


def _refuse_unsound(policy: PolicyGraph) -> None:
    from stcc.formats.policy import verify_policy

    broken = verify_policy(policy)
    if broken:
        raise ContentError("<new>", "policy", f"it does not hold that {broken[0]}")


def _notes_section(known: Metadata) -> SectionData:
    notes = {"unenforced": [dict(note) for note in known.unenforced], "warnings": [dict(note) for note in known.warnings]}
    text = json.dumps(notes, sort_keys=True, separators=(",", ":")).encode()  # escapes keep lone surrogates
    if len(text) > MAX_NOTES:
        raise LimitError("<new>", f"section {NOTES}", f"{len(text):,} bytes of warnings are more than {MAX_NOTES:,}")
    return SectionData(NOTES, np.frombuffer(text, np.uint8))


def _from_container(box: Container) -> Artifact:
    meta = box.meta
    if box.content != CONTENT:
        raise MagicError(box.file, "header", f"the file holds {box.content!r:.40}, not an artifact")
    if meta.keys() != _META_KEYS or not isinstance(meta["bindings"], list) or type(meta["start"]) is not int:
        raise HeaderError(box.file, "header", f"meta has the keys {', '.join(sorted(_META_KEYS))}")
    options = meta["options"]
    if not isinstance(options, dict) or not all(type(value) in (str, int, bool) for value in options.values()):
        raise HeaderError(box.file, "header", "options are strings, numbers and Booleans")
    if not all(type(meta[key]) is str for key in ("compiler", "kind", "name", "source_sha256")):
        raise HeaderError(box.file, "header", "compiler, kind, name and source_sha256 are strings")
    bound = tuple(_bound_vocabulary(entry, box.file) for entry in meta["bindings"])
    if any(left.fingerprint >= right.fingerprint for left, right in zip(bound, bound[1:], strict=False)):
        raise HeaderError(box.file, "header", "bindings have rising fingerprints")
    known = [machine_sections.PREFIX + name for name in machine_sections.NAMES] + [NOTES]
    policy = None
    if any(name.startswith(_POLICY) for name in box.sections):
        from stcc.formats.policy_sections import NAMES

        known += [_POLICY + name for name in NAMES]
        policy = SectionReader(box, _POLICY) if _POLICY + "about" in box.sections else None
    known += [binding_sections.prefix(number) + name for number in range(len(bound)) for name in binding_sections.NAMES]
    box.refuse_unknown(known)
    warnings, unenforced = _read_notes(box)
    metadata = Metadata(meta["name"], meta["source_sha256"], options, meta["compiler"], warnings, unenforced)
    return Artifact(meta["kind"], metadata, bound, box.file, SectionReader(box, machine_sections.PREFIX), meta["start"], {}, policy)


def _bound_vocabulary(entry: object, file: str) -> BoundVocabulary:
    if not isinstance(entry, dict) or entry.keys() != _BOUND_KEYS:
        raise HeaderError(file, "header", f"a binding has the keys {', '.join(sorted(_BOUND_KEYS))}")
    sizes = (entry["size"], entry["actions"])
    counted = all(type(number) is int and 0 <= number < 1 << 31 for number in sizes)
    if not counted or not is_fingerprint(entry["fingerprint"]) or type(entry["name"]) is not str:
        raise HeaderError(file, "header", "a binding has a SHA-256, a name and two whole numbers")
    return BoundVocabulary(entry["fingerprint"], entry["name"], *sizes)


def _read_notes(box: Container) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
    """Warnings and unenforced keywords."""
    if NOTES not in box.sections:
        return (), ()
    if box.sections[NOTES].raw_size > MAX_NOTES:
        raise LimitError(box.file, f"section {NOTES}", f"it is larger than {MAX_NOTES:,} bytes")
    try:
        notes = json.loads(box.array(NOTES, "u8").tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise ContentError(box.file, f"section {NOTES}", "it is not JSON") from error
    if not isinstance(notes, dict) or notes.keys() != {"unenforced", "warnings"} or not all(map(_is_note_list, notes.values())):
        raise ContentError(box.file, f"section {NOTES}", "it holds lists of warnings and unenforced keywords")
    return tuple(notes["warnings"]), tuple(notes["unenforced"])


def _is_note_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(note, dict) and all(type(text) is str for text in note.values()) for note in value)
