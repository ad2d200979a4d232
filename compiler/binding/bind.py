"""Binding: a machine and a vocabulary become the sections that a runtime decodes from.

In: a machine (or the artifact that holds it) and a vocabulary pack. Out: a ``Binding`` (or the artifact with it). After it: the
token actions are exact at any stack depth (``actions``), the plans are the canonical tokens of forced text (``plans``), the needs are
least token counts (``need``). Cost: some 10-100 ms, most of it the walk over the vocabulary trie and, where text is forced, the tokenizer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stcc.compiler.binding.actions import token_actions
from stcc.compiler.binding.need import token_needs
from stcc.compiler.binding.plans import plan_states
from stcc.compiler.options import Deadline, Options
from stcc.formats.binding import Binding
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import made_binding
from stcc.formats.vocabulary import Vocabulary

if TYPE_CHECKING:
    from stcc.formats.artifact import Artifact


def bind(artifact: Artifact, vocabulary: Vocabulary, *, deadline: Deadline | None = None) -> Artifact:
    """The artifact with a binding to ``vocabulary`` as it reads it, in place of one with the same fingerprint.

    ``deadline``: the clock of the compile that this is part of. Raises BudgetError as ``bind_machine``.
    """
    spelled = artifact.spelled(vocabulary)
    binding = bind_machine(artifact.machine, spelled, deadline=deadline)
    bound = artifact.with_binding(binding, spelled.name)
    return _noted(bound, spelled.name) if binding.has_no_needs else bound


def _noted(artifact: Artifact, vocabulary: str) -> Artifact:
    """The artifact with a warning that token budgets cannot be kept."""
    message = f"no token budgets with {vocabulary or 'this vocabulary'}: the fewest tokens that finish are too many numbers to store"
    warning = {"pointer": "#", "keyword": "", "message": message}
    known = artifact.metadata.warnings
    return artifact if warning in known else replace(artifact, metadata=replace(artifact.metadata, warnings=(*known, warning)))


def bind_machine(machine: Machine, vocabulary: Vocabulary, *, time_limit: float = Options.time_limit,
                 deadline: Deadline | None = None) -> Binding:
    """Everything a runtime needs of ``machine`` on ``vocabulary``.

    Raises BudgetError past the deadline (``time_limit`` seconds from now if there is none), or where the actions outgrow their
    entries budget; needs that outgrow theirs are left out.
    """
    deadline = deadline or Deadline(time_limit)
    actions = token_actions(machine, vocabulary, deadline)
    needs = token_needs(machine, actions, deadline)
    plans = plan_states(machine, vocabulary, deadline)
    return made_binding(vocabulary_size=vocabulary.size, fingerprint=vocabulary.fingerprint, **vars(actions), **vars(needs), **vars(plans))
