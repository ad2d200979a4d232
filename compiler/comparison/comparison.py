"""Two machines compared: the relation of their languages, with a shortest text of each alone.

In: two machines. Out: a ``Comparison``. The product decides (exact); where stacks do not keep step, or the product is too large, a bounded
search says what it found, and the answer says that it is not the whole truth. A text that is given is always right.

>>> from stcc.compiler import compile_regex
>>> old, new = compile_regex("ab?").machine, compile_regex("ab*").machine
>>> found = compare_machines(old, new)
>>> found.relation, found.only_old, found.only_new, found.exact
('wider', None, b'abb', True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from stcc.compiler.comparison.configurations import search
from stcc.compiler.comparison.distinct_items import in_language, text_with_equal_items
from stcc.compiler.comparison.product import NEW, OLD, OPENING, Product, StacksDiffer
from stcc.formats.machine import Machine

MOST_NODES = 2_000_000
"""Most nodes of the product that are searched."""
MOST_CONFIGURATIONS = 20_000
"""Most pairs of configurations that are searched where the product cannot be."""
_MOST_PLACES = 4
_RELATIONS = {(False, False): "equal", (False, True): "wider", (True, False): "narrower", (True, True): "incomparable"}


@dataclass(frozen=True)
class Comparison:
    """How the language ``new`` relates to ``old``.

    Attributes:
        relation: ``equal``, ``wider`` (new accepts all that old does, and more), ``narrower`` or ``incomparable``.
        only_old: a text that old accepts and new does not, a shortest one where the product was searched whole; None if there is none.
        only_new: likewise.
        exact: whether the relation is certain. If not, a text that is None may exist all the same.
        reason: why it is not, empty where it is.
    """

    relation: str
    only_old: bytes | None
    only_new: bytes | None
    exact: bool
    reason: str = ""

    def satisfies(self, required: str) -> bool:
        """Whether the relation is certain and what ``required`` asks for; ``wider`` and ``narrower`` are satisfied by ``equal``."""
        return self.exact and self.relation in (required, "equal")


def compare_machines(
    old: Machine, new: Machine, *, most_nodes: int = MOST_NODES, most_configurations: int = MOST_CONFIGURATIONS,
    check: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare two sound, trimmed machines; ``check`` is called now and then and may raise, to keep to a time limit."""
    if _same(old, new):
        return Comparison("equal", None, None, True)
    product = Product(old, new, most_nodes, check)
    try:
        product.search()
    except StacksDiffer:
        found = search(old, new, most_configurations, check)
        reason = "" if found.complete else "the stacks of the two machines do not keep step, and a bounded search decided nothing more"
        marked = bool(old.unique.size or new.unique.size)
        return _judged(old, new, (found.only_old, found.only_new), (found.complete and not marked,) * 2, reason)
    texts = [product.witness(OLD), product.witness(NEW)]
    sure = [product.complete and not product.marked_alone[other] for other in (NEW, OLD)]  # equal items may be what tells them apart
    for side, other in ((OLD, NEW), (NEW, OLD)):
        if texts[side] is None and product.marked_alone[other]:
            texts[side] = _equal_items(product, (old, new), side, other)
    reason = "" if product.complete else "the product has too many states"
    return _judged(old, new, (texts[OLD], texts[NEW]), (sure[OLD], sure[NEW]), reason)


def _same(old: Machine, new: Machine) -> bool:
    """Whether two machines are the same arrays; minimal machines without a stack are iff their languages are equal."""
    return all(np.array_equal(getattr(old, field.name), getattr(new, field.name)) for field in fields(Machine))


def _equal_items(product: Product, machines: tuple[Machine, Machine], side: int, other: int) -> bytes | None:
    for number, pair in product.marked_alone[other][:_MOST_PLACES]:
        before = product.text_to(number, pair) + bytes([OPENING])
        found = text_with_equal_items(machines[side], machines[other], before)
        if found is not None:
            return found
    return None


def _judged(
    old: Machine, new: Machine, texts: tuple[bytes | None, bytes | None], sure: tuple[bool, bool], reason: str,
) -> Comparison:
    """The comparison that texts and certainties make: ``sure`` says of each side that a text that was not found is not there.

    A text whose own marked arrays have equal items proves nothing, and neither does its absence.
    """
    valid = [text if text is not None and in_language(machine, text) else None for text, machine in zip(texts, (old, new), strict=True)]
    decided = [found is not None or (text is None and certain) for found, text, certain in zip(valid, texts, sure, strict=True)]
    relation = _RELATIONS[valid[OLD] is not None, valid[NEW] is not None]
    if all(decided):
        return Comparison(relation, valid[OLD], valid[NEW], True)
    return Comparison(relation, valid[OLD], valid[NEW], False,
                      reason or "items that must differ (uniqueItems) are asked for differently, which machines do not decide")
