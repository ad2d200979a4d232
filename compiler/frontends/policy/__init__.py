"""Policies: finite workflows with state, observations and a horizon, as ``.policy.yaml`` files.

    document.py      YAML -> plain data
    reading.py       data -> model.py: every key known, every expression (expressions.py: CEL) typed
    exploration.py   model -> reachable configurations and positions
    reduction.py     -> the coarsest sound partition (Proposition 3) and the reduced environment
    abstraction.py   proposed abstractions: sound, or two histories that prove they are not
    emission.py      -> the graph that artifacts hold, and the grammar of valid histories
"""

from __future__ import annotations

from stcc.compiler.errors import UnsatisfiableError
from stcc.compiler.frontends.policy.document import parse_document
from stcc.compiler.frontends.policy.emission import history_grammar, policy_graph
from stcc.compiler.frontends.policy.exploration import explore
from stcc.compiler.frontends.policy.reading import read_model
from stcc.compiler.options import Deadline, Options
from stcc.formats.policy import PolicyGraph

__all__ = ["compile_graph", "history_grammar", "parse_document"]


def compile_graph(document: object, options: Options, deadline: Deadline) -> tuple[str, PolicyGraph]:
    """The policy's name and graph, from the data of its document.

    Raises:
        SourceError, UnsupportedError: the document is at fault, with its path.
        UnsatisfiableError: no history is valid.
        BudgetError: more than ``options.max_states`` configurations or positions, or the time is over.
    """
    model = read_model(document)
    graph = policy_graph(explore(model, options.max_states, deadline), deadline)
    if graph is None:
        raise UnsatisfiableError("no history is valid in any world", pointer="#/accept", keyword=model.accept.text,
                                 hint=f"no sequence of up to {model.horizon} actions meets it; raise the horizon or loosen a condition")
    return model.name, graph
