"""Why one byte does not decide: the shortest text that leads to a state of a determinised grammar.

In: the inlined grammar that linking refused, and the error, which names a state of its ``Subsets``. Out: a text that leads there.

Two shortest-path computations over texts: from each rule's start within the rule, where a call costs the shortest text of what is called
(Knuth, "A generalization of Dijkstra's algorithm", 1977); then from the root through calls. Cost: edges times the log of states, texts
compared by length.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from stcc.compiler.calls import ConflictError
from stcc.compiler.determinize import SetCall, Subsets, determinize
from stcc.compiler.ir import Grammar
from stcc.compiler.nfa import lower
from stcc.compiler.options import Deadline, Options

UInt8 = npt.NDArray[np.uint8]
Text = tuple[int, bytes]  # its length first: shorter texts come first, then those earlier in the alphabet


def conflict_place(error: ConflictError, grammar: Grammar, options: Options, deadline: Deadline) -> str:
    """``after "(a": ``, the shortest text that leads to the state of ``error``; empty where there is no time left to find one."""
    if deadline.passed:
        return ""
    nfa = lower(grammar, deadline)
    subsets = determinize(nfa, root=grammar.root, max_states=options.max_states, deadline=deadline)
    text = shortest_text(subsets, grammar.root, error.state, nfa.byte_class)
    if text is None:
        return ""
    return f"after {_shown(text)}: " if text else "at the start of the text: "


def shortest_text(subsets: Subsets, root: int, state: int, byte_class: UInt8) -> bytes | None:
    """A shortest text that leads from the root's start to ``state``, calls included; None where none does."""
    inside = _within_rules(subsets, _samples(byte_class))
    begins: dict[int, Text] = {root: (0, b"")}
    queue: list[tuple[Text, int]] = [(begins[root], root)]
    calls: dict[int, list[SetCall]] = {}
    for call in subsets.calls:
        calls.setdefault(int(subsets.owner[call.state]), []).append(call)
    done: set[int] = set()
    while queue:
        begin, rule = heapq.heappop(queue)
        if rule in done:
            continue
        done.add(rule)
        for call in calls.get(rule, ()):
            if call.state in inside:
                reached = _joined(begin, inside[call.state])
                if call.rule not in begins or reached < begins[call.rule]:
                    begins[call.rule] = reached
                    heapq.heappush(queue, (reached, call.rule))
    owner = int(subsets.owner[state])
    return _joined(begins[owner], inside[state])[1] if owner in begins and state in inside else None


def _within_rules(subsets: Subsets, samples: list[bytes]) -> dict[int, Text]:
    """For each state a shortest text that leads to it from its rule's start, what it calls on the way included."""
    found: dict[int, Text] = {}
    ends: dict[tuple[int, int], Text] = {}
    waiting: dict[int, list[tuple[int, SetCall]]] = {}
    calls: dict[int, list[SetCall]] = {}
    for call in subsets.calls:
        calls.setdefault(call.state, []).append(call)
    queue: list[tuple[Text, int]] = [((0, b""), start) for start in subsets.starts if start >= 0]
    heapq.heapify(queue)
    while queue:
        text, state = heapq.heappop(queue)
        if state in found:
            continue
        found[state] = text
        for column in np.flatnonzero(subsets.table[state] >= 0).tolist():
            heapq.heappush(queue, ((text[0] + 1, text[1] + samples[column]), int(subsets.table[state, column])))
        for call in calls.get(state, ()):
            waiting.setdefault(call.rule, []).append((state, call))
            for exit_, target in enumerate(call.returns):
                if target >= 0 and (call.rule, exit_) in ends:
                    heapq.heappush(queue, (_joined(text, ends[call.rule, exit_]), target))
        exit_, rule = int(subsets.accept[state]), int(subsets.owner[state])
        if exit_ >= 0 and (rule, exit_) not in ends:
            ends[rule, exit_] = text
            for caller, call in waiting.get(rule, ()):
                if call.returns[exit_] >= 0:
                    heapq.heappush(queue, (_joined(found[caller], text), call.returns[exit_]))
    return found


def _joined(one: Text, other: Text) -> Text:
    return one[0] + other[0], one[1] + other[1]


def _samples(byte_class: UInt8) -> list[bytes]:
    """One byte of each class, a letter or at least a printable one where there is one."""
    order = sorted(range(256), key=lambda byte: (not chr(byte).isalnum() or byte > 0x7E, not 0x20 < byte < 0x7F, byte))
    found: dict[int, bytes] = {}
    for byte in order:
        found.setdefault(int(byte_class[byte]), bytes([byte]))
    return [found[column] for column in range(len(found))]


def _shown(text: bytes) -> str:
    try:
        return repr(text.decode())
    except UnicodeDecodeError:
        return repr(text)
