"""Model -> reachable configurations and positions, layer by layer.

A *configuration* is what the world is like after some actions, hidden variables included. A *position* is what a history tells: the set
of configurations that it may have led to. In: a ``PolicyModel``. Out: an ``Exploration``, both graphs with every step, numbered so that
steps lead to higher numbers; for every position one shortest history.

What holds afterwards, or is refused here with the path and a history that shows it: in every configuration an action has an outcome,
effects stay in range, expressions have values; and what the agent can see is a function of its history, that is, all configurations of a
position agree on visible variables and on whether the history has ended.

Cost: configurations x actions evaluations of expressions; bounded by ``max_states`` and the deadline, and the error names the variable
that took the most values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from stcc.compiler.errors import BudgetError, CompileError, SourceError
from stcc.compiler.frontends.policy.expressions import Expression, Undefined, Value, Variable
from stcc.compiler.frontends.policy.model import Action, Outcome, PolicyModel
from stcc.compiler.options import Deadline
from stcc.formats.policy import ACCEPTED, REJECTED, RUNNING

CERTAIN = Fraction(1)
STEPS_PER_STATE = 40
"""Outcomes, and configurations of positions, that there may be for each of ``max_states``: bounds memory where single states are large."""
Values = tuple[Value, ...]
Configuration = tuple[Values, bool, int, int]
"""Values, whether it failed, remaining actions, and its ending; no values once it has ended."""
Arrival = tuple[int, int, Fraction]
"""Observation, configuration, weight."""


@dataclass(frozen=True, eq=False)
class Exploration:
    """Everything that is reachable.

    Attributes:
        model: what was explored.
        configurations: by number.
        arrivals: per configuration and action, what may happen; empty once it has ended.
        starts: the first configuration of each world.
        positions: per position, its configurations, rising.
        moves: per position and action, observation -> position, by rising observation.
        origin: per position, the position before it, the action and the observation; (-1, -1, -1) for the first.
    """

    model: PolicyModel
    configurations: list[Configuration]
    arrivals: list[tuple[tuple[Arrival, ...], ...]]
    starts: tuple[int, ...]
    positions: list[tuple[int, ...]]
    moves: list[tuple[dict[int, int], ...]]
    origin: list[tuple[int, int, int]]

    def history(self, position: int) -> tuple[tuple[int, int], ...]:
        """A shortest history that leads to ``position``."""
        steps = []
        while position > 0:
            position, action, seen = self.origin[position]
            steps.append((action, seen))
        return tuple(reversed(steps))

    def ended(self, position: int) -> bool:
        """Whether histories at ``position`` have ended; all its configurations agree."""
        return self.configurations[self.positions[position][0]][3] != RUNNING

    def environment_of(self, configuration: Configuration) -> Values:
        """The tuple that expressions read."""
        values, failed, remaining, _ = configuration
        return (*values, failed, remaining)

    def spell(self, history: tuple[tuple[int, int], ...]) -> str:
        """A history for people; see ``PolicyGraph.spell``."""
        model = self.model
        words = [model.actions[action].name + (f"={model.observations[seen]}" if seen else "") for action, seen in history]
        return " ".join(words) or "the empty history"


def explore(model: PolicyModel, max_states: int, deadline: Deadline) -> Exploration:
    """See the module's text. SourceError for what it refuses, BudgetError past a limit."""
    return _Explorer(model, max_states, deadline).run()


class _Fault(Exception):  # noqa: N818 - becomes a SourceError once the history is known
    """What is wrong with a step, without the history that led there."""

    def __init__(self, pointer: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.pointer, self.message, self.hint = pointer, message, hint


class _Explorer:
    """An exploration under way."""

    def __init__(self, model: PolicyModel, max_states: int, deadline: Deadline) -> None:
        self.model, self.max_states, self.deadline = model, max_states, deadline
        self.visible = [place for place, variable in enumerate(model.variables) if not variable.hidden]
        self.numbers: dict[Configuration, int] = {}
        self.found: Exploration = Exploration(model, [], [], (), [], [], [])
        self.place: dict[tuple[int, ...], int] = {}
        self.steps = 0

    def run(self) -> Exploration:
        """Positions in order of discovery; configurations are met through them."""
        found = self.found
        starts = tuple(self.number(self.start(number)) for number in range(len(self.model.worlds)))
        self.locate(tuple(sorted(set(starts))), (-1, -1, -1))
        position = 0
        while position < len(found.positions):
            self.deadline.check("#/actions")
            try:
                found.moves.append(self.expand(position))
            except _Fault as fault:
                told = f"{fault.message}, after {found.spell(found.history(position))}"
                raise SourceError(told, pointer=fault.pointer, hint=fault.hint) from None
            position += 1
        return Exploration(self.model, found.configurations, found.arrivals, starts, found.positions, found.moves, found.origin)

    def start(self, world: int) -> Configuration:
        """The first configuration of a world."""
        values = [variable.initial for variable in self.model.variables]
        for place, value in self.model.worlds[world].values:
            values[place] = value
        return tuple(values), False, self.model.horizon, RUNNING

    def number(self, configuration: Configuration) -> int:
        """Its number; steps out of it are found when it is new."""
        known = self.numbers.get(configuration)
        if known is None:
            self.room(len(self.numbers))
            known = self.numbers[configuration] = len(self.found.configurations)
            self.found.configurations.append(configuration)
            self.found.arrivals.append(())
        return known

    def charge(self, steps: int, pointer: str) -> None:
        """Count outcomes or members of positions; BudgetError once there are ``STEPS_PER_STATE`` for each of ``max_states``."""
        self.deadline.check(pointer)
        self.steps += steps
        if self.steps > STEPS_PER_STATE * self.max_states:
            raise BudgetError(f"more than {STEPS_PER_STATE * self.max_states:,} steps between states", pointer=pointer,
                              hint="use fewer actions, outcomes or worlds, or raise max_states (--max-states)")

    def room(self, count: int) -> None:
        """Raise BudgetError once there are ``max_states``."""
        if count < self.max_states:
            return
        raise self.exploded()

    def exploded(self) -> CompileError:
        """Which variable took the most values."""
        variables = self.model.variables
        taken = [len({configuration[0][place] for configuration in self.numbers if configuration[0]}) for place in range(len(variables))]
        reached = self.model.horizon - min((configuration[2] for configuration in self.numbers), default=0)
        if not taken:
            return BudgetError(f"more than {self.max_states:,} positions after {reached} of {self.model.horizon} actions",
                               pointer="#/horizon", hint="lower the horizon, or raise max_states (--max-states)")
        worst = max(range(len(variables)), key=taken.__getitem__)
        section = "hidden" if variables[worst].hidden else "state"
        return BudgetError(
            f"more than {self.max_states:,} states after {reached} of {self.model.horizon} actions; {variables[worst].name} took "
            f"{taken[worst]:,} values", pointer=f"#/{section}/{variables[worst].name}", keyword=variables[worst].name,
            hint="narrow its range, lower the horizon, or raise max_states (--max-states)")

    def locate(self, configurations: tuple[int, ...], origin: tuple[int, int, int]) -> int:
        """The number of a position."""
        known = self.place.get(configurations)
        if known is None:
            self.room(len(self.place))
            self.charge(len(configurations), "#/worlds")
            known = self.place[configurations] = len(self.found.positions)
            self.found.positions.append(configurations)
            self.found.origin.append(origin)
        return known

    def expand(self, position: int) -> tuple[dict[int, int], ...]:
        """The steps out of a position."""
        found = self.found
        members = found.positions[position]
        if found.ended(position):
            return tuple({} for _ in self.model.actions)
        for member in members:
            if not found.arrivals[member]:
                found.arrivals[member] = self.arrivals(found.configurations[member])
        moves = []
        for action in range(len(self.model.actions)):
            groups: dict[int, set[int]] = {}
            self.deadline.check(self.model.actions[action].pointer)
            for member in members:
                for seen, target, _ in found.arrivals[member][action]:
                    groups.setdefault(seen, set()).add(target)
            moves.append({seen: self.arrive(position, action, seen, groups[seen]) for seen in sorted(groups)})
        return tuple(moves)

    def arrive(self, position: int, action: int, seen: int, targets: set[int]) -> int:
        """The position that a step leads to; refuses what the agent could tell apart without having observed it."""
        configurations = self.found.configurations
        first = configurations[min(targets)]
        for target in targets:
            other = configurations[target]
            same_end = (other[3] == RUNNING) == (first[3] == RUNNING)
            differing = [place for place in self.visible if same_end and other[0][place:place + 1] != first[0][place:place + 1]]
            if differing or not same_end:
                what = self.model.variables[differing[0]].name if differing else "whether the history ends"
                raise _Fault(self.model.actions[action].pointer, f"outcomes that look the same differ in {what}",
                             "give outcomes that differ visibly different observations (observe)")
        return self.locate(tuple(sorted(targets)), (position, action, seen))

    def arrivals(self, configuration: Configuration) -> tuple[tuple[Arrival, ...], ...]:
        """What every action may do in a configuration; equal results are added up."""
        steps = []
        for action in self.model.actions:
            merged: dict[tuple[int, int], Fraction] = {}
            for seen, target, weight in self.results(action, configuration):
                key = seen, self.number(target)
                merged[key] = merged[key] + weight if key in merged else weight
            self.charge(len(merged), action.pointer)
            steps.append(tuple((seen, target, weight) for (seen, target), weight in sorted(merged.items())))
        return tuple(steps)

    def results(self, action: Action, configuration: Configuration) -> Iterator[tuple[int, Configuration, Fraction]]:
        """Observation, configuration and weight of each possible outcome."""
        values, failed, _, _ = configuration
        environment = self.found.environment_of(configuration)
        if action.requires is not None and not _value(action.requires, environment, f"{action.pointer}/requires"):
            yield 0, self.settled(values, failed or action.otherwise == "fail", configuration, action.ends), CERTAIN
            return
        possible = [outcome for outcome in action.outcomes
                    if outcome.when is None or _value(outcome.when, environment, f"{outcome.pointer}/when")]
        shares = _shares(action, possible)
        for outcome, share in zip(possible, shares, strict=True):
            after = self.effected(outcome, values, environment)
            yield outcome.observation, self.settled(after, failed or outcome.fails, configuration, action.ends or outcome.ends), share

    def effected(self, outcome: Outcome, values: Values, environment: Values) -> Values:
        """The values after an outcome's effects."""
        after = list(values)
        for effect in outcome.effects:
            value = _value(effect.value, environment, effect.pointer)
            variable = self.model.variables[effect.place]
            if value not in variable.values:
                raise _Fault(effect.pointer, f"{variable.name} would become {value!r}, which is not {_span(variable)}",
                             "widen its range, or guard the effect with a condition")
            after[effect.place] = value
        return tuple(after)

    def settled(self, values: Values, failed: bool, before: Configuration, ends: bool) -> Configuration:
        """The configuration after an action, with its ending."""
        remaining = before[2] - 1
        environment = (*values, failed, remaining)
        done = ends or (self.model.done is not None and bool(_value(self.model.done, environment, "#/done")))
        if not done and remaining > 0:
            return values, failed, remaining, RUNNING
        judged = done or self.model.judged
        valid = judged and not failed and bool(_value(self.model.accept, environment, "#/accept"))
        return (), False, 0, ACCEPTED if valid else REJECTED  # nothing else matters once it has ended


def _value(expression: Expression, environment: Values, pointer: str) -> Value:
    try:
        return expression.run(environment)
    except Undefined as error:
        raise _Fault(pointer, f"{expression.text} has no value: {error}", "guard it with a condition") from None


def _shares(action: Action, possible: list[Outcome]) -> list[Fraction]:
    """The probabilities of the possible outcomes."""
    if not possible:
        raise _Fault(action.pointer, "no outcome is possible", "add an outcome without when, or widen a condition")
    if len(possible) == 1:
        return [CERTAIN]
    for outcome in possible:
        if outcome.weight is None:
            raise _Fault(outcome.pointer, "it is possible beside another outcome, and has no weight",
                         "give each a weight, or make their conditions exclude each other")
    weights = [outcome.weight or Fraction(0) for outcome in possible]
    total = sum(weights, Fraction(0))
    return [weight / total for weight in weights]


def _span(variable: Variable) -> str:
    if isinstance(variable.values, range):
        return f"in {variable.values.start}..{variable.values.stop - 1}"
    return "one of " + ", ".join(str(value) for value in variable.values)
