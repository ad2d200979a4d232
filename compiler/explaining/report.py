"""An explanation as plain data, for ``--json``, tables and pages. docs/explain.md lists the keys."""

from __future__ import annotations

from typing import Any

from stcc.compiler.analyses.regions import Region
from stcc.compiler.explaining.cautions import Caution
from stcc.compiler.explaining.explanation import ExplainedField, Explanation
from stcc.compiler.explaining.fields import pointer
from stcc.compiler.explaining.lengths import Lengths

_SHOWN = 120
"""Bytes of the text before a field that are kept, from its end."""


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """See docs/explain.md; numbers that have no bound are None."""
    artifact = explanation.artifact
    known, machine = artifact.metadata, artifact.machine
    inside: dict[int, list[str]] = {}
    for entry in explanation.explained:
        if entry.region is not None:
            inside.setdefault(entry.region, []).append(entry.field.name)
    return {
        "kind": artifact.kind, "name": known.name, "source_sha256": known.source_sha256, "compiler": known.compiler,
        "options": dict(known.options), "vocabularies": [bound.fingerprint for bound in artifact.vocabularies], "states": machine.states,
        "classes": machine.classes, "sites": machine.sites, "cuts": explanation.cuts, **_lengths(explanation.whole),
        "fields": [_field(entry, explanation.regions) for entry in explanation.explained],
        "regions": [_region(number, region, inside.get(number, [])) for number, region in enumerate(explanation.regions)],
        "warnings": [caution_data(caution) for caution in explanation.cautions], "unread": explanation.unread,
        "tools": {name: explanation_data(tool) for name, tool in (explanation.tools or {}).items()},
    }


def caution_data(caution: Caution) -> dict[str, str]:
    """A caution as plain data."""
    return {"code": caution.code, "pointer": caution.place, "keyword": caution.keyword, "message": caution.message, "hint": caution.hint}


def _lengths(lengths: Lengths) -> dict[str, Any]:
    share = lengths.forced_share
    return {"passes": lengths.passes, "need_bytes": lengths.least[0], "chosen_bytes": lengths.least[1],
            "texts": None if lengths.texts is None else lengths.texts.number,
            "forced_share": None if share is None else round(share, 4),
            "forced_of": "a shortest text" if lengths.texts is None else "all texts"}


def _field(entry: ExplainedField, regions: tuple[Region, ...]) -> dict[str, Any]:
    field = entry.field
    return {
        "path": field.name, "types": list(field.kinds), "states": field.states, **_lengths(field.lengths), "cut": field.cut,
        "same_as": None if field.same_as is None else pointer(field.same_as),
        "schema": list(entry.pointers), "region": entry.region,
        "certified": entry.region is not None and regions[entry.region].certified,
        "before": entry.prefix[-_SHOWN:].decode("utf-8", "backslashreplace"),
    }


def _region(number: int, region: Region, fields: list[str]) -> dict[str, Any]:
    return {"number": number, "fields": fields, "certified": region.certified, "reason": region.reason, "texts": region.texts,
            "cyclomatic": region.cyclomatic, "passes": region.passes, "kernel": list(region.kernel), "blocks": region.blocks}
