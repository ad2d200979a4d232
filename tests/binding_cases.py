"""Grammars, machines and vocabularies that the binding tests share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.machine import link
from stcc.compiler.options import Deadline, Options
from stcc.formats.machine import Machine, end_states, verify_machine
from stcc.formats.vocabulary import Vocabulary

NASTY = [
    b"}]}", b'},{"', b'"]}},', b"]]", b"}}", b"]]]]", b"}}}}}", b"[[[", b'{"', b'":', b'":"', b'","', b'":[{"', b'{"n":"',
    b'","c":[', b"]}]}]}", b"],[", b"[],", b"{}", b"[]", b"},", b'"}', b'"]', b"true", b"true}", b"false,", b"tr", b"ue",
    b"12", b"1}", b"1]}", b"0,0", b"ab", b"abc", b'a"', b'a","c":[]}', b"\xc3", b"\xa9", b"\xc3\xa9", b"\xa9\"",
    b"\xe2\x82", b"\xac", b'{"k":', b'{"k":{"k":', b"true}}", b"true}},", b"false}}", b"((", b"))", b"1+", b"+1", b")+(",
    b"1))", b"))+1", b"1;", b"));", b";", b'[{"k":true},1', b" ", b"  ", b"\n", b" ]", b", ", b"zz",
]


def nasty_vocabulary() -> Vocabulary:
    """Tokens that close, open and reopen several levels, partial UTF-8, every single byte, one duplicate, a stop token."""
    tokens = [*NASTY, *(bytes([byte]) for byte in range(256)), b"}}", b"</s>"]
    return Vocabulary.from_tokens(tokens, [len(tokens) - 1], size=len(tokens) + 2)


def linked(grammar: Grammar) -> Machine:
    machine = link(grammar, Options(), Deadline(20))
    assert verify_machine(machine) == []
    return machine


def string(rule: RuleBuilder, source: int, target: int) -> None:
    """A JSON string of lower-case letters, spaces and two-byte characters."""
    inside, tail = rule.node(), rule.node()
    rule.byte(source, 34, 34, inside)
    rule.byte(inside, 97, 122, inside)
    rule.byte(inside, 32, 32, inside)
    rule.byte(inside, 0xC3, 0xC3, tail)
    rule.byte(tail, 0x80, 0xBF, inside)
    rule.byte(inside, 34, 34, target)


def words(rule: RuleBuilder, source: int, target: int, *texts: bytes) -> None:
    for text in texts:
        rule.literal(source, text, target)


def series(rule: RuleBuilder, source: int, item: int, after: int, target: int) -> None:
    """``[``, items that lead from ``item`` to ``after`` with commas between, ``]``."""
    first = rule.node()
    rule.literal(source, b"[", first)
    rule.literal(first, b"]", target)
    rule.epsilon(first, item)
    rule.literal(after, b",", item)
    rule.literal(after, b"]", target)


def closed_form() -> Grammar:
    rule = RuleBuilder("#")
    name, comma, flag, item, after, close, end = (rule.node() for _ in range(7))
    rule.literal(0, b'{"n":', name)
    string(rule, name, comma)
    rule.literal(comma, b',"k":', flag)
    tags = rule.node()
    words(rule, flag, tags, b"true", b"false")
    array = rule.node()
    rule.literal(tags, b',"c":', array)
    series(rule, array, item, after, close)
    string(rule, item, after)
    rule.literal(close, b"}", end)
    rule.exit(end, 0)
    return Grammar((rule.build(),))


def tree() -> Grammar:
    """A node is ``{"n":STRING,"c":[nodes]}``; the root is called by itself."""
    rule = RuleBuilder("#/node")
    name, comma, array, item, after, close, end = (rule.node() for _ in range(7))
    rule.literal(0, b'{"n":', name)
    string(rule, name, comma)
    rule.literal(comma, b',"c":', array)
    series(rule, array, item, after, close)
    rule.call(item, 1, [after])
    rule.literal(close, b"}", end)
    rule.exit(end, 0)
    root = RuleBuilder("#")
    finish = root.node()
    root.call(0, 1, [finish])
    root.exit(finish, 0)
    return Grammar((root.build(), rule.build()))


def any_json(space: bool = False) -> Grammar:
    """Any nesting of objects and arrays around strings, numbers and literals, with blanks between tokens if ``space``."""
    def blank(rule: RuleBuilder, node: int) -> int:
        if space:
            rule.byte(node, 32, 32, node)
            rule.byte(node, 10, 10, node)
        return node

    def value(rule: RuleBuilder, source: int, target: int) -> None:
        string(rule, source, target)
        words(rule, source, target, b"true", b"false", b"null", b"0")
        digits = rule.node()
        rule.byte(source, 49, 57, digits)
        rule.byte(digits, 48, 57, digits)
        rule.epsilon(digits, target)
        rule.call(source, 1, [target])
        rule.call(source, 2, [target])

    root = RuleBuilder("#")
    end = blank(root, root.node())
    value(root, blank(root, 0), end)
    root.exit(end, 0)
    obj = RuleBuilder("object")
    first, key, colon, held, after, close = (obj.node() for _ in range(6))
    obj.literal(0, b"{", blank(obj, first))
    obj.literal(first, b"}", close)
    obj.epsilon(first, key)
    string(obj, blank(obj, key), blank(obj, colon))
    obj.literal(colon, b":", blank(obj, held))
    value(obj, held, blank(obj, after))
    obj.literal(after, b",", key)
    obj.literal(after, b"}", close)
    obj.exit(close, 0)
    array = RuleBuilder("array")
    item, after, close = (array.node() for _ in range(3))
    series(array, 0, blank(array, item), blank(array, after), close)
    value(array, item, after)
    array.exit(close, 0)
    return Grammar((root.build(), obj.build(), array.build()))


def verdicts() -> Grammar:
    """``[V,1]`` or ``[V,0]``: a nested ``{"k":...}`` carries its truth out through its exit (0 true, 1 false)."""
    inner = RuleBuilder("V", exit_count=2)
    held, true, false, yes, no = (inner.node() for _ in range(5))
    inner.literal(0, b'{"k":', held)
    words(inner, held, true, b"true")
    words(inner, held, false, b"false")
    inner.call(held, 1, [true, false])
    inner.literal(true, b"}", yes)
    inner.literal(false, b"}", no)
    inner.exit(yes, 0)
    inner.exit(no, 1)
    root = RuleBuilder("#")
    first, true, false, close, end = (root.node() for _ in range(5))
    root.literal(0, b"[", first)
    root.call(first, 1, [true, false])
    root.literal(true, b",1", close)
    root.literal(false, b",0,0", close)
    root.literal(close, b"]", end)
    root.exit(end, 0)
    return Grammar((root.build(), inner.build()))


def sums() -> Grammar:
    """Sums without brackets around them: the rule returns lazily, on ``)`` or ``;``."""
    rule = RuleBuilder("S")
    digits, inside, after = (rule.node() for _ in range(3))
    rule.byte(0, 48, 57, digits)
    rule.byte(digits, 48, 57, digits)
    rule.epsilon(digits, after)
    rule.literal(0, b"(", inside)
    closing = rule.node()
    rule.call(inside, 1, [closing])
    rule.literal(closing, b")", after)
    rule.literal(after, b"+", 0)
    rule.exit(after, 0)
    root = RuleBuilder("#")
    semicolon, end = root.node(), root.node()
    root.call(0, 1, [semicolon])
    root.literal(semicolon, b";", end)
    root.exit(end, 0)
    return Grammar((root.build(), rule.build()))


GRAMMARS = {"closed form": closed_form(), "tree": tree(), "any JSON": any_json(), "any JSON with blanks": any_json(True),
            "verdicts": verdicts(), "sums": sums()}


SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def random_machines(draw: st.DrawFn) -> Machine:
    """Small machines with calls, several exits, eager and lazy returns, multiple pushes and accepting states; not trimmed, not minimal."""
    rng = np.random.default_rng(draw(SEEDS))
    states, sites, exits = draw(st.integers(3, 8)), draw(st.integers(0, 3)), draw(st.integers(1, 2))
    edges = draw(st.integers(1, 4)) if sites else 0
    live, calls, ending = (draw(st.sampled_from(choices)) for choices in ((0.4, 0.7, 1.0), (0.2, 0.5), (0.2, 0.5)))
    cells = np.where(rng.random((states, 3)) < calls * bool(edges), rng.integers(states, states + max(edges, 1), (states, 3)),
                     rng.integers(0, states, (states, 3)))
    table = np.where(rng.random((states, 3)) < live, cells, -1).astype(np.int32)
    ends = np.where(rng.random(states) < ending, rng.integers(0, exits, states), -1).astype(np.int16)
    table[(ends >= 0) & (rng.random(states) < 0.5)] = -1
    table[(ends >= 0)[:, None] & (rng.random((states, 3)) < 0.5)] = -1
    ends[0] = -1
    returns = np.where(rng.random((sites, exits)) < 0.8, rng.choice(np.flatnonzero(ends < 0), (sites, exits)), -1).astype(np.int32)
    sizes = rng.integers(1, 4, edges)
    machine = Machine(
        byte_class=(np.arange(256) % 3).astype(np.uint8), table=table, exits=ends, accepting=rng.random(states) < 0.2,
        edge_target=rng.integers(0, states, edges).astype(np.int32),
        edge_push_offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int32),
        edge_pushes=rng.integers(0, max(sites, 1), int(sizes.sum())).astype(np.int32), returns=returns, start=0,
    )
    assert verify_machine(machine) == []
    return machine


@st.composite
def random_vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Words of up to six bytes over three classes, some twice, some empty; one stop token at the end."""
    rng = np.random.default_rng(draw(SEEDS))
    words_ = [bytes(rng.integers(0, 3, rng.integers(0, 7)).tolist()) for _ in range(draw(st.integers(1, 25)))]
    return Vocabulary.from_tokens([*words_, b""], [len(words_)])


def inner_states(machine: Machine) -> list[int]:
    """States that a configuration can be in: end states return at once."""
    states: list[int] = np.flatnonzero(~end_states(machine)).tolist()
    return states
