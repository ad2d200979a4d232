"""All that is said of one grammar: its fields, the certified regions of its output, and cautions.

In: an artifact, and its source where it is at hand; or the path of either. Out: an ``Explanation``. A ``.stc`` holds no source, so that
places in it are paths of fields, not pointers into a schema, and overlaps of patterns are not looked for.

>>> from stcc.compiler import compile_json_schema
>>> schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
>>> [(field.name, field.lengths.passes, field.lengths.least[0]) for field in explain_artifact(compile_json_schema(schema)).fields]
[('', 1, 11), ('/ok', 1, 4)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from stcc.compiler.analyses.byte_need import verify_trim
from stcc.compiler.analyses.cut_states import cut_states, gaps
from stcc.compiler.analyses.forced import forced_chains
from stcc.compiler.analyses.regions import Region, certify_region
from stcc.compiler.comparison.json_path import path_at
from stcc.compiler.comparison.places import subschemas
from stcc.compiler.errors import BudgetError
from stcc.compiler.explaining.cautions import Caution, recorded_cautions, text_cautions, whitespace_cautions
from stcc.compiler.explaining.fields import Field, Fields, Label
from stcc.compiler.explaining.json_modes import UnreadableError
from stcc.compiler.explaining.lengths import Lengths, Measures
from stcc.compiler.explaining.parts import PartReader
from stcc.compiler.explaining.reading import Path, Reading, read_machine
from stcc.compiler.explaining.witnesses import Witnesses
from stcc.compiler.options import Options
from stcc.formats import Artifact
from stcc.formats.errors import ContentError
from stcc.formats.machine import Machine

MOST_PLACES = 250_000
"""Most nodes of a reading by parts."""


@dataclass(frozen=True)
class ExplainedField:
    """A field, with a shortest text that leads to it, the subschemas about it, and the number of its region."""

    field: Field
    prefix: bytes
    pointers: tuple[str, ...] = ()
    region: int | None = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """What is known of a grammar.

    Attributes:
        artifact: what was explained.
        whole: the numbers of the whole output.
        explained: its fields, in the order in which texts come to them; the first is the output.
        cuts: how many cut states the output has.
        regions: the gaps between them.
        cautions: see ``Caution``.
        reading: the machine as it was read, for drawings.
        label: the words of a path of ``reading``.
        unread: why the machine was read by parts although it is JSON, else empty.
        tools: for a set of tools whose source is at hand, the arguments of each, compiled alone.
    """

    artifact: Artifact
    whole: Lengths
    explained: tuple[ExplainedField, ...]
    cuts: int
    regions: tuple[Region, ...]
    cautions: tuple[Caution, ...]
    reading: Reading
    label: Callable[[Path], Label]
    unread: str = ""
    tools: Mapping[str, Explanation] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields alone."""
        return tuple(entry.field for entry in self.explained)


def explain_artifact(artifact: Artifact, schema: Any = None) -> Explanation:
    """Explain an artifact; ``schema`` is its document, if it has one and it is at hand.

    Raises:
        ContentError: the machine is not trim, as every compiled one is: some of it leads to no valid text.
        BudgetError: it has more places than can be read.
    """
    machine = artifact.machine
    broken = verify_trim(machine)
    if broken:
        raise ContentError(artifact.file, "machine", f"it does not hold that {broken[0]}")
    between, cuts = gaps(machine), cut_states(machine)
    reading, unread = _read(artifact.kind, machine, between)
    measures = Measures(reading)
    fields = Fields(reading, measures)
    witnesses = Witnesses(reading, measures)
    records = fields.records(set(cuts))
    regions = tuple(certify_region(machine, start, stop) for start, stop in between)
    begins = _region_of_state(machine, regions)
    explained = tuple(_explained(field, reading, witnesses, schema, regions, begins) for field in records)
    places = {entry.field.path: entry.pointers[0] if entry.pointers else entry.field.name or "#" for entry in explained}
    found = [*recorded_cautions(artifact.metadata), *whitespace_cautions(fields),
             *text_cautions(fields, records, lambda field: places[field.path])]
    if schema is not None:
        from stcc.compiler.explaining.overlaps import name_overlaps  # the front end's packages, which an install without them lacks

        found += name_overlaps(schema)
    once = {(caution.code, caution.place, caution.message.split(" comes before ")[0]): caution for caution in reversed(found)}
    return Explanation(artifact, records[0].lengths, explained, len(cuts), regions, tuple(reversed(once.values())), reading,
                       fields.label, unread)


def explain_file(path: File, options: Options | None = None) -> Explanation:
    """Explain a ``.stc``, or a source compiled with ``options``.

    Raises:
        FormatError: a broken ``.stc``.
        CompileError: a source that cannot be compiled, or whose kind is not known.
        OSError: the file cannot be read.
    """
    from stcc.compiler.comparison.sides import is_compiled

    if is_compiled(path):
        return explain_artifact(Artifact.load(path))
    from stcc.compiler.explaining.sources import explain_source

    return explain_source(path, options)


def _read(kind: str, machine: Machine, between: list[tuple[int, int]]) -> tuple[Reading, str]:
    """The machine as JSON if that is what it is, else by parts."""
    unread = ""
    if kind == "json_schema":
        try:
            return read_machine(machine), ""
        except UnreadableError as error:
            unread = str(error)
    try:
        return read_machine(machine, PartReader(machine, between), MOST_PLACES), unread
    except UnreadableError as error:
        raise BudgetError(f"the machine is too large to explain: {error}", hint="explain its parts, each compiled alone") from None


def _region_of_state(machine: Machine, regions: tuple[Region, ...]) -> dict[int, int]:
    """State -> number of the region that begins there, or before it with forced text only."""
    cells, _ = forced_chains(machine)
    found: dict[int, int] = {}
    for number, region in enumerate(regions):
        state = region.start
        while 0 <= state < machine.states and state != region.stop and state not in found:
            found[state] = number
            state = int(cells[state])
    return found


def _explained(field: Field, reading: Reading, witnesses: Witnesses, schema: Any, regions: tuple[Region, ...],
               begins: Mapping[int, int]) -> ExplainedField:
    number, node = field.entry
    context = reading.contexts[number]
    prefix = witnesses.to(context, node)
    pointers: tuple[str, ...] = ()
    if schema is not None:
        pointers = tuple(subschemas(schema, path_at(prefix, len(prefix)) if field.path else ()))
    region = begins.get(context.nodes[node].state) if number == 0 and field.path else None
    return ExplainedField(field, prefix, pointers, region)
