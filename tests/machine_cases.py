"""Grammars by hand, and the oracle of the machine tests: what a grammar denotes, by a least fixpoint over its nodes.

The oracle computes every text up to a length that leads from a node to each exit of its rule. It knows nothing of automata: no
closures, no determinisation, no stack.
"""

from __future__ import annotations

from collections.abc import Callable

from stcc.compiler.inline import inline
from stcc.compiler.ir import Grammar, Rule, RuleBuilder, verify_grammar
from stcc.compiler.machine import link
from stcc.compiler.options import Options
from stcc.compiler.stepping import allowed, initial, may_end, step
from stcc.compiler.trim import trim, verify_trimmed
from stcc.formats.machine import Machine

Language = dict[tuple[int, int], set[tuple[bytes, int]]]  # (rule, node) -> (text, exit)


def denotation(grammar: Grammar, longest: int) -> set[bytes]:
    """Every text of at most ``longest`` bytes in the grammar's language."""
    language: Language = {(number, node): set() for number, rule in enumerate(grammar.rules) for node in range(rule.nodes)}
    while True:
        before = sum(map(len, language.values()))
        for number, rule in enumerate(grammar.rules):
            _grow(language, number, rule, longest)
        if before == sum(map(len, language.values())):
            return {text for text, exit_ in language[grammar.root, 0] if exit_ == 0}


def _grow(language: Language, number: int, rule: Rule, longest: int) -> None:
    for node, exit_ in rule.exits:
        language[number, node].add((b"", exit_))
    reads = [(source, bytes([byte]), target) for source, low, high, target in rule.bytes_.tolist() for byte in range(low, high + 1)]
    for block in rule.blocks:
        reads += [(block.base + state, bytes([byte]), block.base + int(block.dfa.table[state, block.dfa.byte_class[byte]]))
                  for state in range(block.dfa.states) for byte in b"ab()[]" if block.dfa.table[state, block.dfa.byte_class[byte]] >= 0]
    for source, byte, target in reads:
        language[number, source] |= {(byte + text, exit_) for text, exit_ in language[number, target] if len(text) < longest}
    for source, target in rule.epsilons.tolist():
        language[number, source] |= language[number, target]
    for call in rule.calls:
        for inner, exit_ in list(language[call.rule, 0]):
            if call.returns[exit_] >= 0:
                language[number, call.node] |= {(inner + text, outer) for text, outer in language[number, call.returns[exit_]]
                                                if len(inner) + len(text) <= longest}


def texts(machine: Machine, longest: int) -> set[bytes]:
    """Every accepted text of at most ``longest`` bytes, by stepping."""
    found, level = set(), {b"": initial(machine)}
    for _ in range(longest + 1):
        found |= {text for text, configuration in level.items() if may_end(machine, configuration)}
        level = {text + bytes([byte]): following for text, configuration in level.items() for byte in allowed(machine, configuration)
                 if (following := step(machine, configuration, byte)) is not None}
    return found


def built(grammar: Grammar, small: int = 64, **options: int) -> Machine:
    assert verify_grammar(grammar) == []
    trimmed = trim(grammar)
    assert verify_grammar(trimmed) == [] and verify_trimmed(trimmed) == []
    inlined = inline(trimmed, small=small)
    assert verify_grammar(inlined) == [] and verify_trimmed(inlined) == []
    return link(inlined, Options(**options))  # type: ignore[arg-type]


def rule(name: str, exit_count: int, fill: Callable[[RuleBuilder], None]) -> Rule:
    builder = RuleBuilder(name, exit_count)
    fill(builder)
    return builder.build()


def sums(wrapped: bool) -> Grammar:
    """S -> A ('+' A)*, A -> '(' S ')' | digits; wrapped: the root reads '=' and calls S, then ';'."""

    def fill(builder: RuleBuilder) -> None:
        after, digits, inside, closed = (builder.node() for _ in range(4))
        builder.byte(0, 40, 40, inside)
        builder.call(inside, number, [closed])
        builder.byte(closed, 41, 41, after)
        builder.byte(0, 48, 57, digits)
        builder.byte(digits, 48, 57, digits)
        builder.epsilon(digits, after)
        builder.byte(after, 43, 43, 0)
        builder.exit(after, 0)

    def wrap(builder: RuleBuilder) -> None:
        start, back, end = (builder.node() for _ in range(3))
        builder.byte(0, 61, 61, start)
        builder.call(start, 1, [back])
        builder.byte(back, 59, 59, end)
        builder.exit(end, 0)

    number = 1 if wrapped else 0
    expression = rule("#/S", 1, fill)
    return Grammar((rule("#", 1, wrap), expression)) if wrapped else Grammar((expression,))


def verdicts() -> Grammar:
    """Object -> '{' ('t' | 'f' | Object) '}' says whether its innermost letter was t or f; the root demands the same letter after it."""

    def fill(builder: RuleBuilder) -> None:
        inside, true, false, end_true, end_false = (builder.node() for _ in range(5))
        builder.byte(0, 123, 123, inside)
        builder.literal(inside, b"t", true)
        builder.literal(inside, b"f", false)
        builder.call(inside, 1, [false, true])
        builder.byte(true, 125, 125, end_true)
        builder.byte(false, 125, 125, end_false)
        builder.exit(end_false, 0)
        builder.exit(end_true, 1)

    def root(builder: RuleBuilder) -> None:
        true, false, end = (builder.node() for _ in range(3))
        builder.call(0, 1, [false, true])
        builder.literal(true, b"t", end)
        builder.literal(false, b"f", end)
        builder.exit(end, 0)

    return Grammar((rule("#", 1, root), rule("#/object", 2, fill)))


def json_values(called_root: bool) -> Grammar:
    """'{' (k ':' V)? '}' and '[' V? ']' with V either of the two or a digit; the root is V, or an array that is called itself."""

    def value(builder: RuleBuilder, node: int, after: int) -> None:
        builder.call(node, first, [after])
        builder.call(node, first + 1, [after])
        builder.byte(node, 48, 57, after)

    def root(builder: RuleBuilder) -> None:
        end = builder.node()
        value(builder, 0, end)
        builder.exit(end, 0)

    def array(builder: RuleBuilder) -> None:
        inside, after, end = (builder.node() for _ in range(3))
        builder.byte(0, 91, 91, inside)
        value(builder, inside, after)
        builder.byte(inside, 93, 93, end)
        builder.byte(after, 93, 93, end)
        builder.exit(end, 0)

    def obj(builder: RuleBuilder) -> None:
        inside, colon, after, end = (builder.node() for _ in range(4))
        builder.byte(0, 123, 123, inside)
        builder.literal(inside, b"k:", colon)
        value(builder, colon, after)
        builder.byte(inside, 125, 125, end)
        builder.byte(after, 125, 125, end)
        builder.exit(end, 0)

    first = 0 if called_root else 1
    rules = (rule("#/array", 1, array), rule("#/object", 1, obj))
    return Grammar(rules if called_root else (rule("#", 1, root), *rules))


def shared(uses: int, size: int) -> Grammar:
    """A root that calls one rule of ``size`` nodes ``uses`` times."""

    def root(builder: RuleBuilder) -> None:
        node = 0
        for _ in range(uses):
            comma, after = builder.node(), builder.node()
            builder.call(node, 1, [after])
            builder.byte(after, 44, 44, comma)
            node = comma
        builder.exit(node, 0)

    def item(builder: RuleBuilder) -> None:
        end = builder.node()
        builder.literal(0, b"{" + b"x" * (size - 3) + b"}", end)
        builder.exit(end, 0)

    return Grammar((rule("#", 1, root), rule("#/item", 1, item)))
