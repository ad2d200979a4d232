"""Is a proposed abstraction sound? And if not, which two histories prove it.

An abstraction gives every running history a key. It is *sound* if equal keys imply equal sets of valid continuations, so that a certificate
found at one history holds at all of its key: exactly if it refines the coarsest partition. It is a *bisimulation* if also equal keys
step to equal keys (Proposition 3), which is what can be checked step by step without knowing the future; sound does not imply it.

In: an exploration and its classes. Out: keys of positions and a verdict. The proof of an unsound one is two shortest histories with one
key, and a shortest continuation that completes the first and not the second. Cost: positions x actions, and for a proof pairs of classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from stcc.compiler.errors import SourceError
from stcc.compiler.frontends.policy.exploration import Exploration
from stcc.compiler.frontends.policy.expressions import Undefined, Value
from stcc.compiler.frontends.policy.model import Abstraction
from stcc.compiler.frontends.policy.reduction import Classes
from stcc.compiler.options import Deadline
from stcc.formats.policy import AbstractionVerdict, Int32, Step


def judge(found: Exploration, classes: Classes, abstraction: Abstraction, deadline: Deadline) -> tuple[Int32, AbstractionVerdict]:
    """Keys (int32 ``[positions]``, -1 where ended) and the verdict; SourceError if a key is not a function of the history."""
    keys = position_keys(found, abstraction, deadline)
    count = int(keys.max()) + 1
    pair = _conflict(keys, classes.of)
    bisimulation = pair is None and _steps_agree(found, keys, classes.of)
    proof: tuple[tuple[Step, ...], ...] = ()
    if pair is not None:
        first, second = pair
        word = distinguishing(classes, int(classes.of[first]), int(classes.of[second]), deadline)
        if not _completes(classes, int(classes.of[first]), word):
            first, second = second, first
        proof = found.history(first), found.history(second), word
    return keys, AbstractionVerdict(abstraction.name, pair is None, bisimulation, proof, count)


def position_keys(found: Exploration, abstraction: Abstraction, deadline: Deadline) -> Int32:
    """The key of every running position, numbered by first appearance."""
    numbers: dict[tuple[Value, ...], int] = {}
    keys = np.full(len(found.positions), -1, np.int32)
    for position, members in enumerate(found.positions):
        deadline.check(abstraction.pointer)
        if found.ended(position):
            continue
        values = {tuple(_evaluate(found, abstraction, member)) for member in members}
        if len(values) > 1:
            raise SourceError(f"the key is not a function of the history: {found.spell(found.history(position))} may have several",
                              pointer=abstraction.pointer, keyword=abstraction.name, hint="use what the agent has observed")
        key = values.pop()
        keys[position] = numbers.setdefault(key, len(numbers))
    return keys


def _evaluate(found: Exploration, abstraction: Abstraction, member: int) -> list[Value]:
    environment = found.environment_of(found.configurations[member])
    values = []
    for number, part in enumerate(abstraction.parts):
        try:
            values.append(part.run(environment))
        except Undefined as error:
            raise SourceError(f"{part.text} has no value: {error}", pointer=f"{abstraction.pointer}/{number}",
                              hint="guard it with a condition") from None
    return values


def _conflict(keys: Int32, of: Int32) -> tuple[int, int] | None:
    """Two positions with one key and different classes, the first such pair in order of discovery; None if there is none."""
    first: dict[int, int] = {}
    for position, key in enumerate(keys.tolist()):
        if key >= 0 and of[first.setdefault(key, position)] != of[position]:
            return first[key], position
    return None


def _steps_agree(found: Exploration, keys: Int32, of: Int32) -> bool:
    """Whether equal keys step to equal keys under every action and observation; ended positions count by their class."""
    wanted: dict[tuple[int, int, int], tuple[int, int]] = {}
    shown: dict[tuple[int, int], frozenset[int]] = {}
    for position, key in enumerate(keys.tolist()):
        if key < 0:
            continue
        for action, moves in enumerate(found.moves[position]):
            if shown.setdefault((key, action), frozenset(moves)) != frozenset(moves):
                return False
            for seen, target in moves.items():
                landed = (int(keys[target]), int(of[target]) if keys[target] < 0 else 0)
                if wanted.setdefault((key, action, seen), landed) != landed:
                    return False
    return True


def distinguishing(classes: Classes, left: int, right: int, deadline: Deadline) -> tuple[Step, ...]:
    """A shortest continuation that is valid from one class and not from the other; the classes differ, and -1 is the dead one."""
    width = (len(classes.steps.offsets) - 1) // len(classes.accepting)
    queue: deque[tuple[int, int, tuple[Step, ...]]] = deque([(left, right, ())])
    seen = {(left, right)}
    while queue:
        one, other, word = queue.popleft()
        deadline.check("#/abstractions")
        if _accepts(classes, one) != _accepts(classes, other):
            return word
        for action in range(width):
            here, there = dict(_edges(classes, one, action, width)), dict(_edges(classes, other, action, width))
            for observation in sorted(here.keys() | there.keys()):
                pair = here.get(observation, -1), there.get(observation, -1)
                if pair[0] != pair[1] and pair not in seen:
                    seen.add(pair)
                    queue.append((*pair, (*word, (action, observation))))
    raise ValueError("the classes have equal continuations")


def _edges(classes: Classes, number: int, action: int, width: int) -> Sequence[tuple[int, int]]:
    return list(classes.steps.of(number, action, width)) if number >= 0 else []


def _accepts(classes: Classes, number: int) -> bool:
    return number >= 0 and bool(classes.accepting[number])


def _completes(classes: Classes, number: int, word: tuple[Step, ...]) -> bool:
    """Whether ``word`` leads from a class to an accepting one."""
    width = (len(classes.steps.offsets) - 1) // len(classes.accepting)
    for action, observation in word:
        number = dict(_edges(classes, number, action, width)).get(observation, -1)
    return _accepts(classes, number)
