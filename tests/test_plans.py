"""Plans against the tokenizers library: canonical whatever follows and whatever stands before; and blocks, merges and locality."""

from __future__ import annotations

import random
from pathlib import Path

import binding_cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import REAL, SHARED, TEXTS, TRAINED
from tokenizers import Tokenizer

from stcc.compiler.binding.canonical import CanonicalEncoder, canonical_encoder
from stcc.compiler.binding.locality import check_locality
from stcc.compiler.binding.plans import MAX_CHAIN, MAX_TOKENS, Plans, plan_states
from stcc.compiler.errors import BudgetError
from stcc.compiler.ir import Grammar, RuleBuilder
from stcc.compiler.options import Deadline
from stcc.compiler.stepping import TERMINATED, Configuration, initial, run, step
from stcc.compiler.vocabularies import vocabulary_from_tokenizer
from stcc.formats import Vocabulary
from stcc.formats.machine import Machine

Case = tuple[Tokenizer, Vocabulary, CanonicalEncoder]


def case_of(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Case:
    encoder = canonical_encoder(vocabulary)
    assert encoder is not None
    return tokenizer, vocabulary, encoder


LOADED = {name: case_of(tokenizer, vocabulary_from_tokenizer(tokenizer)) for name, tokenizer in TRAINED.items()}


def loaded(name: str) -> Case:
    if name not in LOADED:
        folder = SHARED / name
        if not folder.is_dir():
            pytest.skip("the real tokenizers are not beside the repository")
        LOADED[name] = case_of(Tokenizer.from_file(str(folder / "tokenizer.json")), vocabulary_from_tokenizer(folder))
    return LOADED[name]


every_tokenizer = pytest.mark.parametrize("name", [*TRAINED, *REAL])

# -- machines --------------------------------------------------------------------------------------------------------------


def string(rule: RuleBuilder, source: int, target: int) -> None:
    """A JSON string: any UTF-8 of two to three bytes, short escapes."""
    inside, escape, last, second = (rule.node() for _ in range(4))
    rule.literal(source, b'"', inside)
    for low, high in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E)):
        rule.byte(inside, low, high, inside)
    rule.literal(inside, b"\\", escape)
    for mark in b'"\\/bfnrt':
        rule.byte(escape, mark, mark, inside)
    rule.byte(inside, 0xC3, 0xDF, last)
    rule.byte(inside, 0xE3, 0xEC, second)
    rule.byte(second, 0x80, 0xBF, last)
    rule.byte(last, 0x80, 0xBF, inside)
    rule.literal(inside, b'"', target)


def number(rule: RuleBuilder, source: int, target: int) -> None:
    digits = rule.node()
    rule.byte(source, 49, 57, digits)
    rule.byte(digits, 48, 57, digits)
    rule.epsilon(digits, target)


def form(fields: list[tuple[str, object]], colon: str = ":", comma: str = ",") -> Grammar:
    """An object of required fields: a string, a number, or one of several literals."""
    rule = RuleBuilder("#")
    place = 0
    for position, (key, kind) in enumerate(fields):
        value, after = rule.node(), rule.node()
        rule.literal(place, f'{"{" if position == 0 else comma}"{key}"{colon}'.encode(), value)
        if kind == "string":
            string(rule, value, after)
        elif kind == "number":
            number(rule, value, after)
        else:
            for literal in kind:  # type: ignore[attr-defined]
                rule.literal(value, literal.encode(), after)
        place = after
    end = rule.node()
    rule.literal(place, b"}", end)
    rule.exit(end, 0)
    return Grammar((rule.build(),))


def words(*texts: str) -> Grammar:
    """One of several texts, then a number that any of them may run into."""
    rule = RuleBuilder("#")
    middle, end = rule.node(), rule.node()
    for text in texts:
        rule.literal(0, text.encode(), middle)
    number(rule, middle, end)
    rule.exit(end, 0)
    return Grammar((rule.build(),))


FIELDS: list[tuple[str, object]] = [
    ("name", "string"), ("age", "number"), ("status", ('"active"', '"inactive"', '"pending"', '"in progress"')), ("ok", ("true", "false")),
    ("user_id", "string"), ("straßeÄÖ", "string"), ("x", ("null",)), ("it's", "number"),
    ("中文B", ("[]", "{}", "[1]")), ("final_score", "number"),
]
GRAMMARS = {
    "compact": form(FIELDS), "spaced": form(FIELDS, ": ", ", "), "lines": form(FIELDS, ": ", ",\n  "), "tree": binding_cases.tree(),
    "any": binding_cases.any_json(), "blanks": binding_cases.any_json(True), "verdicts": binding_cases.verdicts(),
    "words": words("year 20", "years ago ", "12", "1234567", "don't say\n\n  ",
                   "<think>x", "<thi", "<b>", "a  b", "A中B", "A中Bm", "a' ", "a's "),
    "long": form([("k" * 5 + "_".join(f"part{i}" for i in range(90)), "string"), ("y" * 400, "number")]),
}
MACHINES: dict[str, Machine] = {name: binding_cases.linked(grammar) for name, grammar in GRAMMARS.items()}
PLANS: dict[tuple[str, str], Plans] = {}


def planned(grammar: str, name: str) -> Plans:
    if (grammar, name) not in PLANS:
        PLANS[grammar, name] = plan_states(MACHINES[grammar], loaded(name)[1])
    return PLANS[grammar, name]


def random_text(machine: Machine, source: random.Random, steps: int) -> bytes:
    """A random word of the machine, biased to letters while long, to whatever ends it after ``steps`` bytes."""
    text, here = bytearray(), initial(machine)
    while len(text) < steps * 8 + 2_000:
        ending = here.state == TERMINATED or (not here.stack and machine.accepting[here.state])
        live = [] if here.state == TERMINATED else live_bytes(machine, here)
        if ending and (not live or len(text) > steps or source.random() < 0.1):
            return bytes(text)
        closing = [byte for byte in live if byte in b'"]}']
        pool = closing if closing and (len(text) > steps or source.random() < 0.1) else live
        favoured = [byte for byte in pool if byte in b"abst 1,:'\\-."]
        text.append(source.choice(favoured if favoured and source.random() < 0.5 else pool))
        following = step(machine, here, text[-1])
        assert following is not None
        here = following
    return bytes(text) if here.state == TERMINATED else b""


def live_bytes(machine: Machine, here: Configuration) -> list[int]:
    """Bytes that the machine reads next."""
    live = machine.table[here.state] >= 0
    if here.stack and machine.exits[here.state] >= 0:
        live = live | (machine.table[machine.returns[here.stack[-1], machine.exits[here.state]]] >= 0)
    return [int(byte) for byte in np.flatnonzero(live[machine.byte_class])]


# -- plans -----------------------------------------------------------------------------------------------------------------


def assert_canonical(grammar: str, name: str, text: bytes) -> int:
    """At every boundary between ``text``'s own tokens: the plan is what comes next, and the next token spans the cover. Tokens planned."""
    tokenizer, vocabulary, _ = loaded(name)
    machine, plans = MACHINES[grammar], planned(grammar, name)
    ids = tokenizer.encode(text.decode(), add_special_tokens=False).ids
    if name == "sentencepiece" and ids and vocabulary.token(ids[0]).startswith(b" ") and not text.startswith(b" "):
        return 0  # the space that this tokenizer puts before a text; tests of the middle of a text cover it
    if b"".join(map(vocabulary.token, ids)) != text:
        return 0  # rewritten by Unicode normalization
    here: Configuration | None = initial(machine)
    count = 0
    for place, token in enumerate(ids):
        assert here is not None
        plan = plans.tokens(here.state)
        assert plan == tuple(ids[place:place + len(plan)]), (here.state, [vocabulary.token(t) for t in plan], text)
        span = int(plans.cover[here.state])
        if len(vocabulary.token(token)) < span:  # only where the held block goes on, so that the tokenizer may cut it elsewhere
            behind = len(b"".join(map(vocabulary.token, ids[:place]))) + span
            assert len(text[:behind].decode()) not in (loaded(name)[2].boundaries(text.decode()) or ()), (here.state, text)
        count += len(plan)
        here = run(machine, vocabulary.token(token), here)
    return count


@every_tokenizer
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_plans_are_what_the_tokenizer_writes(grammar: str, name: str) -> None:
    source = random.Random(f"{grammar} {name}")
    texts = [random_text(MACHINES[grammar], source, steps) for steps in (2, 10, 10, 30)]
    count = sum(assert_canonical(grammar, name, text) for text in texts if text)
    assert count > 0 or grammar in ("any", "blanks", "words") or name == "sentencepiece"


@every_tokenizer
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_plans_spell_forced_text(grammar: str, name: str) -> None:
    _, vocabulary, _ = loaded(name)
    machine, plans = MACHINES[grammar], planned(grammar, name)
    sizes = np.bincount(machine.byte_class, minlength=machine.classes)
    live = (machine.table >= 0) @ sizes
    for state in range(machine.states):
        forced = live[state] == 1 and machine.exits[state] < 0 and not machine.accepting[state]
        assert len(plans.tokens(state)) <= MAX_TOKENS + MAX_CHAIN
        if not forced:
            assert plans.tokens(state) == () and plans.cover[state] == 0
            continue
        assert not (plans.tokens(state) and plans.cover[state])
        here: Configuration | None = Configuration(state, ())
        for byte in b"".join(map(vocabulary.token, plans.tokens(state))):
            assert here is not None and live[here.state] == 1 and machine.exits[here.state] < 0 and not machine.accepting[here.state]
            here = step(machine, here, byte)
        if plans.cover[state]:  # some token that is allowed here spans it
            text, here = bytearray(), Configuration(state, ())
            while here is not None and live_bytes(machine, here) and len(text) < 32 and live[here.state] == 1:
                text += bytes(live_bytes(machine, here)[:1])
                here = step(machine, here, text[-1])
            spans = range(int(plans.cover[state]), len(text) + 1)
            assert any(len(loaded(name)[2].encode(bytes(text[:length])) or ()) == 1 for length in spans)


@pytest.mark.parametrize("name", ["byte-level", *REAL])
def test_most_forced_text_is_planned(name: str) -> None:
    """Key, colon and separator are written unasked but for what may run into the value."""
    _, vocabulary, _ = loaded(name)
    machine, plans = MACHINES["compact"], planned("compact", name)
    here = run(machine, b'{"name":"Ada"')
    assert here is not None
    assert b"".join(map(vocabulary.token, plans.tokens(here.state))) == b',"age":'
    here = run(machine, b'{"name":"Ada","age":3,')
    assert here is not None
    assert b"".join(map(vocabulary.token, plans.tokens(here.state))).startswith(b'"status":')


def test_the_start_is_planned_as_the_start_of_a_text() -> None:
    tokenizer, _, _ = loaded("byte-level")
    start = MACHINES["compact"].start
    plan = planned("compact", "byte-level").tokens(start)
    assert plan and plan == tuple(tokenizer.encode('{"name":"Ada"').ids[:len(plan)])


def test_held_back_text_sets_the_cover() -> None:
    """A quote that opens a free string may be the start of a longer block, so the next token must span what is forced."""
    machine, plans = MACHINES["compact"], planned("compact", "qwen3" if (SHARED / "qwen3").is_dir() else "byte-level")
    here = run(machine, b'{"name')
    assert here is not None
    assert plans.tokens(here.state) == ()
    assert plans.cover[here.state] == 3  # ":"


def test_added_tokens_are_planned_and_waited_for() -> None:
    tokenizer, vocabulary, _ = loaded("byte-level")
    think = tokenizer.token_to_id("<think>")
    machine = binding_cases.linked(words("<think>go:", "<th"))
    plans = plan_states(machine, vocabulary)
    here = run(machine, b"<thi")
    assert here is not None and plans.tokens(here.state)
    machine = binding_cases.linked(words("<think>go:"))
    plans = plan_states(machine, vocabulary)
    assert plans.tokens(machine.start)[0] == think
    rule = RuleBuilder("#")
    middle, end = rule.node(), rule.node()
    rule.literal(0, b"go:<th", middle)
    rule.byte(middle, 97, 122, end)
    rule.byte(end, 97, 122, end)
    rule.byte(end, 62, 62, end)
    rule.exit(end, 0)
    machine = binding_cases.linked(Grammar((rule.build(),)))
    assert b"".join(map(vocabulary.token, plan_states(machine, vocabulary).tokens(machine.start))) == b"go"


def test_an_added_token_is_planned_whatever_stands_left_of_it() -> None:
    """A start that is come back to, as that of a reply with several calls: something stands left of the token, or nothing."""
    tokenizer, vocabulary, _ = loaded("byte-level")
    rule = RuleBuilder("#")
    end = rule.node()
    rule.literal(0, b"<think>go:", end)
    rule.literal(end, b"\n", 0)
    rule.exit(end, 0)
    machine = binding_cases.linked(Grammar((rule.build(),)))
    tokens = plan_states(machine, vocabulary).tokens(machine.start)
    assert tokens[0] == tokenizer.token_to_id("<think>")
    for left in ("", "\n", "x", "go:\n", "<", "<think>"):
        written = tokenizer.encode(left + "<think>go:\n", add_special_tokens=False)
        place = [start for start, _ in written.offsets].index(len(left))
        assert tuple(written.ids[place:place + len(tokens)]) == tokens


def test_an_added_token_that_another_may_reach_into(tmp_path: Path) -> None:
    """``<think>`` is none in ``ab<think>`` to a tokenizer that has ``ab<`` too."""
    tokenizer = Tokenizer.from_str(TRAINED["byte-level"].to_str())
    tokenizer.add_tokens(["ab<"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    think = tokenizer.token_to_id("<think>")
    assert think not in tokenizer.encode("ab<think>", add_special_tokens=False).ids
    vocabulary = vocabulary_from_tokenizer(str(tmp_path / "tokenizer.json"))
    encoder = canonical_encoder(vocabulary)
    assert encoder is not None and not encoder.begins_alone("<think>go:") and not encoder.begins_alone("go:")
    plain = canonical_encoder(loaded("byte-level")[1])
    assert plain is not None and plain.begins_alone("<think>go:") and not plain.begins_alone("x<think>")


def test_nothing_is_planned_without_a_record_or_a_forced_state() -> None:
    vocabulary = binding_cases.nasty_vocabulary()
    for machine in MACHINES.values():
        plans = plan_states(machine, vocabulary)
        assert len(plans.plan_tokens) == 0 and not plans.cover.any() and plans.plan_offsets.tolist() == [0] * (machine.states + 1)


def test_the_deadline_holds() -> None:
    with pytest.raises(BudgetError):
        _, vocabulary, _ = loaded("byte-level")
        plan_states(binding_cases.linked(form([(f"field{i}", "string") for i in range(80)])), vocabulary, Deadline(1e-9))


# -- blocks and merges -----------------------------------------------------------------------------------------------------

ASSORTED = st.text(st.sampled_from("abcXYZ019 \t\n\"':{}[],.-_/\\<>étmsdl中🙂Ä٣—\u0301"), max_size=40)


@pytest.mark.parametrize("name", [*TRAINED, *REAL])
@settings(max_examples=80, deadline=None)
@given(text=st.one_of(ASSORTED, st.sampled_from(TEXTS)))
def test_the_encoder_is_the_tokenizer(name: str, text: str) -> None:
    tokenizer, vocabulary, encoder = loaded(name)
    tokens = encoder.tokens(text)
    if name == "sentencepiece":  # in the middle of a text: behind a line break, and without the space it puts before a text
        behind = tokenizer.encode("\n" + text, add_special_tokens=False).ids
        line = [token for token in tokenizer.encode("\n", add_special_tokens=False).ids]
        expected = behind[len(line):] if behind[:len(line)] == line else None
    else:
        expected = tokenizer.encode(text, add_special_tokens=False).ids
    if tokens is None:
        assert expected is None or b"".join(map(vocabulary.token, expected)) != text.encode()
    elif expected is not None:
        assert list(tokens) == expected


STRUCTURE = '{}[]":,'


@every_tokenizer
@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=STRUCTURE, min_size=1, max_size=6), st.text(alphabet=STRUCTURE + "-.!/*`'\\0aé \n", min_size=1, max_size=6))
def test_firm_tokens_stay_whatever_follows(name: str, piece: str, more: str) -> None:
    """As long as the pre-tokenizer leaves the piece whole; a piece is firm for all that begins with the bytes given."""
    tokenizer, vocabulary, encoder = loaded(name)
    firm = encoder.firm_tokens(piece.encode(), more.encode()[:1])
    assert firm == encoder.encode(piece.encode())[:len(firm)]
    cuts = encoder.boundaries(piece + more)
    if cuts is not None and all(cut >= len(piece) for cut in cuts):
        assert tuple(tokenizer.encode(piece + more, add_special_tokens=False).ids[:len(firm)]) == firm


def test_firm_tokens_are_found() -> None:
    """A token is firm where no token goes on across its end, and not where one does."""
    _, vocabulary, encoder = loaded("byte-level")
    texts = {vocabulary.token(token) for token in range(vocabulary.size)}
    pairs = [bytes([one, other]) for one in STRUCTURE.encode() for other in STRUCTURE.encode()]
    joined = [pair for pair in pairs if pair in texts and encoder.encode(pair) == encoder.encode(pair)[:1]]
    apart = [pair for pair in pairs if not any(text[:2] == pair for text in texts)]
    assert joined and apart
    assert all(encoder.firm_tokens(pair[:1], pair[1:]) == () for pair in joined)
    assert all(encoder.firm_tokens(pair[:1], pair[1:]) == encoder.encode(pair[:1]) for pair in apart)


@pytest.mark.parametrize("name", TRAINED)
def test_locality_of_trained_tokenizers(name: str) -> None:
    report = check_locality(loaded(name)[2], 3_000, seed=1)
    assert report.violations == ()
    assert report.skipped < report.pairs / 2


@pytest.mark.parametrize("name", REAL)
def test_locality_of_real_tokenizers(name: str) -> None:
    assert check_locality(loaded(name)[2], 5_000, seed=1).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_locality_of_real_tokenizers_at_length(name: str) -> None:
    assert check_locality(loaded(name)[2], 100_000, seed=0).violations == ()
