"""A plain interpreter of machines, byte by byte: the oracle that every faster form is tested against.

In: a ``Machine``, a configuration, a byte. Out: the next configuration or None. Written straight from the text of
``stcc.formats.machine``, simple and slow: one step costs its pops.
"""

from __future__ import annotations

from typing import NamedTuple

from stcc.formats.machine import Machine

TERMINATED = -1


class Configuration(NamedTuple):
    """A machine state and the open call sites, innermost last; state ``TERMINATED`` once the text has ended."""

    state: int
    stack: tuple[int, ...] = ()


def initial(machine: Machine) -> Configuration:
    """Where reading begins."""
    return Configuration(machine.start)


def step(machine: Machine, configuration: tuple[int, tuple[int, ...]], byte: int) -> Configuration | None:
    """The configuration after one byte; None where the machine refuses it."""
    state, stack = configuration
    if state == TERMINATED:
        return None
    column = int(machine.byte_class[byte])
    cell = int(machine.table[state, column])
    if cell < 0 and stack and machine.exits[state] >= 0:  # a lazy return: pop first, then read
        state, stack = int(machine.returns[stack[-1], machine.exits[state]]), stack[:-1]
        if state < 0:
            return None
        cell = int(machine.table[state, column])
    if cell < 0:
        return None
    if cell < machine.states:
        return _settle(machine, cell, stack)
    edge = cell - machine.states
    return _settle(machine, int(machine.edge_target[edge]), stack + machine.pushes(edge))


def _settle(machine: Machine, state: int, stack: tuple[int, ...]) -> Configuration | None:
    """Return eagerly where ``state`` is an end state; one pop is enough because return states never end their rule."""
    exit_ = int(machine.exits[state])
    if exit_ < 0 or bool((machine.table[state] >= 0).any()):
        return Configuration(state, stack)
    if not stack:
        return Configuration(TERMINATED) if exit_ == 0 else None
    state = int(machine.returns[stack[-1], exit_])
    return Configuration(state, stack[:-1]) if state >= 0 else None


def run(machine: Machine, text: bytes, configuration: tuple[int, tuple[int, ...]] | None = None) -> Configuration | None:
    """The configuration after ``text``, from the start unless told otherwise; None once a byte is refused."""
    current = initial(machine) if configuration is None else Configuration(*configuration)
    for byte in text:
        following = step(machine, current, byte)
        if following is None:
            return None
        current = following
    return current


def may_end(machine: Machine, configuration: tuple[int, tuple[int, ...]]) -> bool:
    """Whether the output may end in ``configuration``."""
    state, stack = configuration
    return state == TERMINATED or (not stack and bool(machine.accepting[state]))


def accepts(machine: Machine, text: bytes) -> bool:
    """Whether ``text`` is in the machine's language."""
    configuration = run(machine, text)
    return configuration is not None and may_end(machine, configuration)


def allowed(machine: Machine, configuration: tuple[int, tuple[int, ...]]) -> list[int]:
    """The bytes that may follow, rising."""
    return [byte for byte in range(256) if step(machine, configuration, byte) is not None]
