"""One step ahead of the host: when a step may be enqueued before the token it follows is known, and its mask, made on the device.

In: a ``Grammar`` and the configuration in which the token in flight is being chosen. Out: whether the next step is *quiet*, that is,
whatever token is chosen no forced text follows it and the output does not end by itself; and the logits that the grammar allows after it,
by ``stcc.runtime.device``, which reads no value back.

A device mask knows no budget and holds ``CAPACITY`` call sites, so it may differ from the host's where a budget narrows or the stack is
nearly full. ``exact_at`` says where it does not. The pass itself is right in either case, since its input is the chosen token; where the
mask is not, the loop chooses again from the same logits with the host's mask.

Cost: the tables of a grammar once (5-50 ms, kept as long as the grammar), and one look at the landings of a state's actions the first time
it is asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stcc.runtime.device.tables import CAPACITY, Part, build_tables
from stcc.runtime.errors import VocabularyRequired

if TYPE_CHECKING:
    from stcc.formats import Vocabulary
    from stcc.runtime.device.constraint import DeviceConstraint
    from stcc.runtime.grammar import Grammar
    from stcc.runtime.matcher import Matcher
    from stcc.runtime.stack import Level

MOST_REMEMBERED = 1 << 16
"""Configurations whose answer to ``is_quiet`` is kept."""


class Lookahead:
    """See the module's text. Made by ``lookahead``, shared by the outputs of a grammar."""

    def __init__(self, grammar: Grammar) -> None:
        """VocabularyRequired without a vocabulary; DeviceLimitError for a grammar that the device has no room for."""
        if grammar.vocabulary is None:
            raise VocabularyRequired(grammar.name)
        self._vocabulary: Vocabulary = grammar.vocabulary
        self._parts: list[Part] = [(grammar.machine, grammar.binding)]
        self._binding, self._masks = grammar.binding, grammar.masks
        self._tables = build_tables(self._parts, self._vocabulary)
        self._constraints: dict[bool, DeviceConstraint] = {}
        self._deepest = CAPACITY - self._tables.overlay
        self._quiet: dict[tuple[int, Level], bool] = {}

    def exact_at(self, level: Level) -> bool:
        """Whether device masks on this stack are the host's without a budget: there is room for whatever a token pushes."""
        return level.depth <= self._deepest

    def is_quiet(self, state: int, level: Level, canonical: bool) -> bool:
        """Whether no token that is allowed here, stop tokens left out, is followed by forced text or by nothing."""
        key = (state, level)
        quiet = self._quiet.get(key)
        if quiet is None:
            if len(self._quiet) >= MOST_REMEMBERED:
                self._quiet.clear()
            quiet = self._quiet[key] = self._look(state, level, canonical)
        return quiet

    def limit(self, matcher: Matcher, token: Any, logits: Any, canonical: bool) -> tuple[Any, Any]:
        """The logits ``[1, head]`` of the step after ``token`` with ``-inf`` where the grammar does not allow a token, and whether they
        may be trusted, bool ``[]``; lazily.

        Args:
            matcher: in the configuration before ``token``.
            token: int ``[1]``, on the device.
            logits: floating ``[1, head]``.
            canonical: whether the boundary cover applies.
        """
        import mlx.core as mx

        from stcc.runtime.device.constraint import SOUND

        constraint = self._constraint(canonical)
        before = mx.array(self._tables.configuration(0, matcher.state, matcher.stack))[None]
        step, limited = constraint.limit(constraint.after(constraint.at(before), token), logits)
        return limited, step.fault[0, 0] == SOUND

    def _constraint(self, canonical: bool) -> DeviceConstraint:
        from stcc.runtime.device.constraint import DeviceConstraint, canonical_plans

        if canonical not in self._constraints:
            plans = canonical_plans(self._parts, self._vocabulary) if canonical else None
            self._constraints[canonical] = DeviceConstraint(self._tables, plans)
        return self._constraints[canonical]

    def _look(self, state: int, level: Level, canonical: bool) -> bool:
        offsets, masks = self._binding.plan_offsets, self._masks
        actions, values = masks.live(state)
        if len(actions) == 0:
            return False
        for value in dict.fromkeys(values.tolist()):
            landing = masks.land(value, level)
            if landing is None:
                continue
            after = landing[0]
            if after < 0 or (canonical and offsets[after + 1] > offsets[after]):
                return False
        return True


_KEPT: WeakKeyDictionary[Grammar, Lookahead] = WeakKeyDictionary()


def lookahead(grammar: Grammar) -> Lookahead:
    """The lookahead of ``grammar``, made on first use."""
    found = _KEPT.get(grammar)
    if found is None:
        found = _KEPT[grammar] = Lookahead(grammar)
    return found
