"""Compile options: one frozen value that every stage receives, and the clock that enforces its limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stcc.compiler.errors import BudgetError, SourceError

_CHOICES = {
    "whitespace": ("compact", "spaced", "flexible"),
    "additional_properties": ("schema", "closed"),
    "property_order": ("auto", "declared", "relaxed", "any"),
    "formats": ("enforce", "annotate"),
    "content": ("draft", "enforce", "annotate"),
    "unenforced": ("error", "warn"),
    "dialect": ("", "python", "ecma", "outlines"),
}


@dataclass(frozen=True)
class Options:
    """How a source is compiled.

    Attributes:
        whitespace: ``compact`` (none), ``spaced`` (``", "`` and ``": "``) or ``flexible`` (any JSON whitespace).
        additional_properties: ``schema`` (left out means what the specification says) or ``closed`` (left out means false).
        property_order: ``declared``, ``any``, ``relaxed`` (every order that costs little), or ``auto``: relaxed where whitespace is
            flexible, else declared.
        formats: ``enforce`` or ``annotate``.
        content: whether ``contentEncoding`` and ``contentMediaType`` constrain strings: ``annotate`` (never), ``enforce`` (in every draft
            that has them; combinations that cannot be enforced are refused), or ``draft``: in draft 7, which lets them, where that can be.
            Encodings and media types that are not known are annotations, with a warning.
        unenforced: ``error``, or ``warn`` to record keywords that are left unenforced in the artifact.
        dialect: empty for the kind's own; ``outlines`` takes outlines-core's regex for a schema; ``python``/``ecma`` for patterns.
        max_states: most machine states, over all rules.
        time_limit: seconds a compile may take.
        max_depth: deepest nesting of the source.
        schemas: other documents by URI, for remote ``$ref``.
    """

    whitespace: str = "compact"
    additional_properties: str = "schema"
    property_order: str = "auto"
    formats: str = "enforce"
    content: str = "draft"
    unenforced: str = "error"
    dialect: str = ""
    max_states: int = 200_000
    time_limit: float = 25.0
    max_depth: int = 128
    schemas: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SourceError(
                    f"option {name}={getattr(self, name)!r} is not one of {', '.join(map(repr, allowed))}", source="<options>"
                )
        for name in ("max_states", "time_limit", "max_depth"):
            if not getattr(self, name) > 0:
                raise SourceError(f"option {name} must be positive", source="<options>")

    @property
    def order(self) -> str:
        """``property_order`` with ``auto`` decided."""
        if self.property_order != "auto":
            return self.property_order
        return "relaxed" if self.whitespace == "flexible" else "declared"

    def recorded(self) -> dict[str, Any]:
        """The options that shape the language, as plain data for the artifact's header (no limits, no documents)."""
        return {**{name: getattr(self, name) for name in _CHOICES}, "property_order": self.order}


class Deadline:
    """The compile's clock: ``check`` is cheap enough to call once per state built, ``check_now`` for steps that take long by themselves."""

    __slots__ = ("_end", "_limit", "_ticks")

    def __init__(self, limit: float) -> None:
        self._limit, self._end, self._ticks = limit, time.monotonic() + limit, 0

    def check(self, pointer: str = "") -> None:
        """Raise BudgetError once the time limit has passed, naming ``pointer``."""
        if self.due():
            self.check_now(pointer)

    def due(self) -> bool:
        """Whether ``check_now`` would raise, as far as ``check`` looks: for callers whose pointer takes time to find."""
        self._ticks += 1
        return self._ticks & 63 == 0 and self.passed

    @property
    def passed(self) -> bool:
        """Whether the time limit has passed."""
        return time.monotonic() > self._end

    def check_now(self, pointer: str = "") -> None:
        """The same, whatever was checked before."""
        if self.passed:
            raise BudgetError(
                f"compiling took more than {self._limit:g} s", pointer=pointer,
                hint="raise time_limit (--time-limit), or simplify the source here"
            )
