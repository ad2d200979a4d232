"""Reduced policy -> the graph that artifacts hold, and the grammar of its valid histories.

The grammar reads histories as text, one word a step: ``AUTH PROBE=confirmed READ REFUND STOP``, an observation after ``=`` where there
is one. It goes the way of every grammar, so that a policy is checked, sampled and bound to vocabularies as any other artifact is.
Cost: linear.
"""

from __future__ import annotations

import numpy as np

from stcc.compiler.frontends.policy.abstraction import judge
from stcc.compiler.frontends.policy.exploration import Exploration
from stcc.compiler.frontends.policy.reduction import Classes, coarsest_partition, position_order, position_steps, reduced_environment
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.options import Deadline
from stcc.formats.policy import AbstractionVerdict, Int32, PolicyGraph, Positions, dead_pairs


def policy_graph(found: Exploration, deadline: Deadline) -> PolicyGraph | None:
    """The graph of an exploration; None if no history is valid."""
    model = found.model
    classes = coarsest_partition(found)
    if not classes.alive:
        return None
    environment = reduced_environment(found)
    deadline.check_now("#/actions")
    judged = [judge(found, classes, abstraction, deadline) for abstraction in model.abstractions]
    actions = tuple(action.name for action in model.actions)
    return PolicyGraph(
        actions=actions, observations=model.observations, worlds=tuple(world.name for world in model.worlds),
        world_weights=np.array([float(world.weight) for world in model.worlds]), horizon=model.horizon, starts=environment.starts,
        ending=environment.ending, outcomes=environment.steps, outcome_weights=environment.weights, classes=classes.steps,
        class_accepting=classes.accepting, dead=dead_pairs(classes.steps, classes.accepting, len(actions)),
        explored=(len(found.configurations), len(found.positions)), positions=_positions(found, classes, judged) if judged else None,
        abstractions=tuple(verdict for _, verdict in judged),
    )


def _positions(found: Exploration, classes: Classes, judged: list[tuple[Int32, AbstractionVerdict]]) -> Positions:
    order = position_order(found)
    ended = np.array([found.ended(position) for position in order], np.bool_)
    return Positions(position_steps(found, order), classes.of[order], ended, np.stack([keys[order] for keys, _ in judged]))


def history_grammar(graph: PolicyGraph) -> Grammar:
    """One rule: the text of every valid history."""
    builder = RuleBuilder("#")
    width = len(graph.actions)
    nodes = [0] + [builder.node() for _ in graph.class_accepting[1:]]
    for number, accepting in enumerate(graph.class_accepting.tolist()):
        if accepting:
            builder.exit(nodes[number], 0)
        for action in range(width):
            for seen, target in graph.classes.of(number, action, width):
                text = graph.spell(((action, seen),))
                builder.literal(nodes[number], (text if number == 0 else f" {text}").encode(), nodes[target])
    return Grammar((builder.build(),))
