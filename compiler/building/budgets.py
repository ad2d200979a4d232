"""Budgets: what an artifact may cost before its build fails.

In: the facts of an artifact. Out: one sentence for each budget that it exceeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stcc.compiler.building.tables import Table


@dataclass(frozen=True)
class Budgets:
    """Limits; None means none.

    Attributes:
        max_bytes: most bytes of the ``.stc`` file.
        max_states: most states of the machine.
        min_forced_share: least share of states, 0 to 1, at which one byte only may follow.
        no_unenforced: whether every keyword has to be enforced.
    """

    max_bytes: int | None = None
    max_states: int | None = None
    min_forced_share: float | None = None
    no_unenforced: bool = False

    @staticmethod
    def read(table: Table, base: Budgets) -> Budgets:
        """The budgets of a table; what it leaves out is as in ``base``. SourceError for negative ones or a share past 1."""
        found = Budgets(table.get("max_bytes", int, base.max_bytes), table.get("max_states", int, base.max_states),
                        table.get("min_forced_share", float, base.min_forced_share), table.get("no_unenforced", bool, base.no_unenforced))
        table.finish()
        for key in ("max_bytes", "max_states", "min_forced_share"):
            value = getattr(found, key)
            if value is not None and not value >= 0:
                raise table.error(key, "it is not a number from 0", "leave it out for no limit")
        if found.min_forced_share is not None and found.min_forced_share > 1:
            raise table.error("min_forced_share", "it is a share, from 0 to 1", "write 0.4 for 40 %")
        return found

    def exceeded(self, facts: Mapping[str, Any]) -> list[str]:
        """What ``facts`` (``bytes``, ``states``, ``forced_share``, ``unenforced``) exceed, one sentence each."""
        broken = []
        if self.max_bytes is not None and facts["bytes"] > self.max_bytes:
            broken.append(f"{facts['bytes']:,} bytes are more than max_bytes = {self.max_bytes:,}")
        if self.max_states is not None and facts["states"] > self.max_states:
            broken.append(f"{facts['states']:,} states are more than max_states = {self.max_states:,}")
        if self.min_forced_share is not None and facts["forced_share"] < self.min_forced_share:
            broken.append(f"a forced share of {facts['forced_share']:.4f} is less than min_forced_share = {self.min_forced_share:g}")
        if self.no_unenforced and facts["unenforced"]:
            places = ", ".join(f"{note.get('pointer', '')} {note.get('keyword', '')}".strip() for note in facts["unenforced"][:3])
            broken.append(f"{len(facts['unenforced'])} keywords are not enforced ({places}) under no_unenforced = true")
        return broken
