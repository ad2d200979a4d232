"""Respell a rule: the texts it reads as they stand inside a JSON string, escaped or in an encoding of bytes as text.

In: rules that read some content, and how it is spelled. Out: rules that read the spelling; calls stay calls, so content of unbounded
nesting stays exact. A context-free language is closed under both (they are inverse images under a transducer); what has to be seen to is
that one character still decides. Escapes change bytes one by one. In an encoding the bytes do not end where characters do: a rule begins
in one of the encoding's boundary contexts and ends in another, so that it exists once for each that its callers may be in, and has an
exit for each in which it may end. Node ``n`` in context ``c`` is node ``n * contexts + c``. Cost: linear in nodes, times contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stcc.compiler.adjacency import group, reach
from stcc.compiler.dfa import Dfa
from stcc.compiler.escape import json_escape
from stcc.compiler.ir import Block, CallEdge, Grammar, Rule, RuleBuilder
from stcc.compiler.scalars.encodings import Encoding

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
Number = Callable[[int, int], int]  # (rule of the content, context in which it begins) -> rule of the spelling


def escaped(rule: Rule, number: Number) -> Rule:
    """``rule`` behind the JSON escape step: each edge reads the spellings of its bytes (``escape.py``). Its exits stay.

    Raises ValueError if an array in it is marked: marks are about the text itself.
    """
    _check_unmarked(rule)
    builder = RuleBuilder(rule.name, rule.exit_count)
    places = np.array([0, *(builder.node() for _ in range(rule.nodes - 1))], np.int32)
    for block in rule.blocks:
        spelled = json_escape(block.dfa, closing_quote=False)  # whose first states are those of the block
        base = builder.embed(Dfa(spelled.byte_class, spelled.table, np.full(spelled.states, -1, np.int32), spelled.start), ())
        places[block.base:block.base + block.dfa.states] = base + np.arange(block.dfa.states)
    for source, low, high, target in rule.bytes_.tolist():
        _read_escaped(builder, int(places[source]), low, high, int(places[target]))
    for source, target in places[rule.epsilons].tolist():
        builder.epsilon(source, target)
    for call in _moved(rule.calls, places.item):
        builder.call(call.node, number(call.rule, 0), call.returns)
    for node, exit_ in rule.exits:
        builder.exit(places.item(node), exit_)
    return builder.build()


def encoded(rule: Rule, encoding: Encoding, context: int, openings: Sequence[Bool], number: Number) -> Rule:
    """``rule`` as bytes in ``encoding``, beginning in boundary context ``context``.

    Args:
        rule: reads the content. A call in it asks ``number`` for its rule in each context that fits one of the callee's ``openings``.
        openings: of all rules of the content.

    Returns:
        Exit ``e`` in the ``b``-th boundary context is exit ``e * len(encoding.boundary) + b``.

    Raises:
        ValueError: an array in it is marked: marks are about the text itself.
    """
    _check_unmarked(rule)
    width, boundary = len(encoding.contexts), np.array(encoding.boundary, np.int32)
    spans = [encoding.span(at) for at in range(width)]
    calls = tuple(
        CallEdge(call.node * width + at, number(call.rule, at), tuple(
            node * width + after if node >= 0 else -1 for node in call.returns for after in encoding.boundary
        ))
        for call in rule.calls for at in encoding.boundary if openings[call.rule][spans[at][0]:spans[at][1] + 1].any()
    )
    exits = tuple((node * width + at, exit_ * len(boundary) + place)
                  for node, exit_ in rule.exits for place, at in enumerate(encoding.boundary))
    epsilons = (rule.epsilons[:, None, :] * width + boundary[:, None]).reshape(-1, 2)
    spelled = Rule(
        rule.name, rule.nodes * width, _encoded_reads(rule, encoding), epsilons,
        tuple(Block(_encoded_block(block.dfa, encoding), block.base * width) for block in rule.blocks), calls, exits,
        rule.exit_count * len(boundary),
    )
    return spelled if context == 0 else _begun_at(spelled, context)


def quoted(rule: Rule, endings: Sequence[bytes | None]) -> Rule:
    """A rule of one exit: ``"``, what ``rule`` reads, then where it ends through exit ``e`` the text ``endings[e]``, and ``"``.

    A way to end whose ending is None does not count.
    """
    builder = RuleBuilder(rule.name)
    first = builder.node()
    for _ in range(rule.nodes - 1):
        builder.node()
    builder.byte(0, 0x22, 0x22, first)
    end = builder.node()
    builder.exit(end, 0)
    for node, exit_ in rule.exits:
        ending = endings[exit_]
        if ending is not None:
            builder.literal(node + first, ending + b'"', end)
    own = builder.build()
    calls = _moved(rule.calls, lambda node: node + first)
    return Rule(
        own.name, own.nodes, np.concatenate([own.bytes_, rule.bytes_ + np.array([first, 0, 0, first], np.int32)]), rule.epsilons + first,
        tuple(Block(block.dfa, block.base + first) for block in rule.blocks), calls, own.exits, 1,
    )


def openings(grammar: Grammar) -> list[Bool]:
    """For each rule bool ``[256]``: the bytes it may begin with; all, if it may read nothing. Linear but for chains of calls."""
    found = [np.zeros(256, np.bool_) for _ in grammar.rules]
    while True:
        before = [int(each.sum()) for each in found]
        for number, rule in enumerate(grammar.rules):
            found[number] |= _opening(rule, found)
        if [int(each.sum()) for each in found] == before:
            return found


def _opening(rule: Rule, callees: Sequence[Bool]) -> Bool:
    epsilons = rule.epsilons.astype(np.int64)
    reached = reach(*group(epsilons[:, 0], epsilons[:, 1], rule.nodes), (0,))
    found = np.zeros(256, np.bool_)
    found[:] = any(reached[node] for node, _ in rule.exits)
    for source, low, high, _ in rule.bytes_.tolist():
        if reached[source]:
            found[low:high + 1] = True
    for block in rule.blocks:
        rows = block.dfa.table[reached[block.base:block.base + block.dfa.states]]
        opens: Bool = np.any(rows >= 0, axis=0)
        found |= opens[block.dfa.byte_class]
    for call in rule.calls:
        if reached[call.node]:
            found |= callees[call.rule]
    return found


def _moved(calls: Sequence[CallEdge], place: Callable[[int], int]) -> tuple[CallEdge, ...]:
    """``calls`` with their nodes, and those that they return to, at other places."""
    return tuple(CallEdge(place(call.node), call.rule, tuple(place(node) if node >= 0 else -1 for node in call.returns)) for call in calls)


def _check_unmarked(rule: Rule) -> None:
    if rule.marks:
        raise ValueError(f"{rule.name} holds an array whose items must differ, which cannot be respelled")


# ---- escapes


def _read_escaped(builder: RuleBuilder, source: int, low: int, high: int, target: int) -> None:
    """Edges from ``source`` to ``target`` that read the spellings of the bytes ``low..high``."""
    for first, last in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xFF)):
        if max(low, first) <= min(high, last):
            builder.byte(source, max(low, first), min(high, last), target)
    controls = np.full((2, 256), -1, np.int32)
    controls[0, [byte for byte in (*range(0x20), 0x22, 0x5C) if low <= byte <= high]] = 1
    if (controls >= 0).any():
        spelled = json_escape(Dfa(np.arange(256, dtype=np.uint8), controls, np.array([-1, 0], np.int32)), closing_quote=False)
        builder.scan(source, spelled, (target,))


# ---- encodings


def _encoded_block(dfa: Dfa, encoding: Encoding) -> Dfa:
    """``dfa`` over the encoded text: state ``s`` in context ``c`` is state ``s * contexts + c``. Labels are left to the rule's epsilons."""
    byte, after = encoding.steps
    width, characters = byte.shape
    rows = dfa.table[:, dfa.byte_class]
    table = np.full((dfa.states, width, characters + 1), -1, np.int32)
    states = np.arange(dfa.states, dtype=np.int32)
    for context in range(width):
        for character in range(characters):
            following = int(after[context, character])
            if byte[context, character] >= 0:
                target = rows[:, byte[context, character]]
                table[:, context, character] = np.where(target >= 0, target * width + following, -1)
            else:
                low, high = encoding.span(following)
                table[:, context, character] = np.where((rows[:, low:high + 1] >= 0).any(axis=1), states * width + following, -1)
    accept = np.full(dfa.states * width, -1, np.int32)
    return Dfa(encoding.byte_class, table.reshape(-1, characters + 1), accept, dfa.start * width)


def _encoded_reads(rule: Rule, encoding: Encoding) -> Int32:
    """The rule's byte edges as edges that read characters: int32 ``[n, 4]``. On the way through a byte an edge stays at its source."""
    byte, after = encoding.steps
    width = len(encoding.contexts)
    spelled = np.frombuffer(encoding.alphabet.encode(), np.uint8).astype(np.int32)
    begun, ended = np.nonzero(byte < 0), np.nonzero(byte >= 0)
    spans = np.array([encoding.span(at) for at in after[begun].tolist()], np.int32)
    edges: list[Int32] = [np.empty((0, 4), np.int32)]

    def read(places: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]], source: int, target: int) -> Int32:
        contexts, characters = places
        text = spelled[characters]
        return np.stack([source * width + contexts, text, text, target * width + after[contexts, characters]], axis=1).astype(np.int32)

    for source, low, high, target in rule.bytes_.tolist():
        fits = (spans[:, 0] <= high) & (spans[:, 1] >= low)
        completes = (byte[ended] >= low) & (byte[ended] <= high)
        edges.append(read((begun[0][fits], begun[1][fits]), source, source))
        edges.append(read((ended[0][completes], ended[1][completes]), source, target))
    return np.unique(np.concatenate(edges), axis=0)


def _begun_at(rule: Rule, start: int) -> Rule:
    """``rule`` with nodes 0 and ``start`` in each other's place."""
    place = np.arange(rule.nodes, dtype=np.int32)
    place[[0, start]] = start, 0
    bytes_ = rule.bytes_.copy()
    bytes_[:, [0, 3]] = place[bytes_[:, [0, 3]]]
    return Rule(rule.name, rule.nodes, bytes_, place[rule.epsilons], rule.blocks, _moved(rule.calls, place.item),
                tuple((place.item(node), exit_) for node, exit_ in rule.exits), rule.exit_count)
