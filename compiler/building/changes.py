"""What a rebuilt artifact accepts that the one before it did not: the line of a pull request that a reviewer reads first.

In: the bytes of both. Out: plain data with ``relation``, ``exact``, ``only_old`` and ``only_new``, as ``stcc diff --json`` says them; None
where the old file is no artifact. Cost: that of a comparison, bounded by ``MOST_NODES`` nodes of the product (some seconds).
"""

from __future__ import annotations

from typing import Any

from stcc.compiler.comparison.comparison import compare_machines
from stcc.formats import Artifact, FormatError

MOST_NODES = 200_000
_MOST_CONFIGURATIONS = 5_000


def language_change(old: bytes, new: bytes) -> dict[str, Any] | None:
    """How the language of the artifact ``new`` relates to that of ``old``."""
    try:
        before = Artifact.from_bytes(old).machine
        after = Artifact.from_bytes(new).machine
        found = compare_machines(before, after, most_nodes=MOST_NODES, most_configurations=_MOST_CONFIGURATIONS)
    except FormatError:
        return None
    return {"relation": found.relation, "exact": found.exact, "only_old": _text(found.only_old), "only_new": _text(found.only_new)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
