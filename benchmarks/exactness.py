"""Exactness on real vocabularies: every token of every mask against reading the token's bytes, and canonical plans against the tokenizer.

    python benchmarks/exactness.py [--quick] [--json OUT] [--tokenizers DIR] [--names qwen3,llama3,gemma3,gptoss] [--prefixes N]

DIR holds one folder a tokenizer (``tokenizer.json`` and what lies beside it). For each grammar, at N sampled prefixes (500; 25 of three
grammars with ``--quick``):

* *masks*: ``fill_next_token_bitmask`` against ``TrieWalk``, (``trie_walk.py``), which reads the bytes of all tokens through the bare
  machine and knows nothing of actions. Every (prefix, token) pair counts, tokens without bytes and stop tokens included.
* *tokens*: 20 allowed tokens lead where ``stcc.compiler.stepping`` says, byte by byte, and are undone; 20 others are refused.
* *forced*: ``forced_bytes`` is the machine's chain, ``forced_tokens`` spells a prefix of it.

Prefixes come from random outputs cut into random tokens, and from walks on from there that take, at each step, a random one of the
configurations that any token leads to: those open, close and reopen several levels at once.

* *canonical*, on random outputs: at each boundary between the tokenizer's own tokens, what is forced must be what the tokenizer has
  there (Theorem 20). ``unasked`` of the outputs' tokens are written that way; ``cut`` tokens are shorter than the boundary cover, so that
  a canonical mask leaves them out and the model chooses a longer one.

Every column named ``wrong`` must be 0; the exit status is 1 if one is not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from trie_walk import TrieWalk, random_tokens, tokens_by_bytes

from stcc.compiler import Options, bind, compile_json_schema, vocabulary_from_tokenizer
from stcc.compiler.stepping import Configuration, initial, may_end, run
from stcc.formats import Artifact, Vocabulary
from stcc.runtime import Grammar, Matcher, allocate_token_bitmask, load
from stcc.runtime.sampling import Walker
from stcc.runtime.seam import compile_file

Int32 = npt.NDArray[np.int32]

ROOT = Path(__file__).resolve().parents[1]
TOKENIZERS = ROOT / "../shared/tokenizers"
NAMES = "qwen3,llama3,gemma3,gptoss"
PREFIXES, QUICK_PREFIXES = 500, 25
TOKENS = 20
"""Allowed tokens, and refused ones, tried at each prefix."""
CANONICAL_TEXTS = 25
FREE_STEPS = 24
"""Steps of a walk that no output guides."""
DRAWS, SHORT = 40, 16
"""An output shorter than ``SHORT`` bytes is drawn again, ``DRAWS`` times in all."""
MORE_BYTES = (20, 120, 400)
"""Bytes that a random output may have beyond the shortest one."""
CUTS = 10
"""Prefixes taken from one random output."""

OPEN_OBJECT: dict[str, Any] = {
    "type": "object", "required": ["id"],
    "properties": {
        "id": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[A-Z]{2}-"}]},
        "shape": {"oneOf": [
            {"type": "object", "properties": {"r": {"type": "number"}}, "required": ["r"]},
            {"type": "object", "properties": {"w": {"type": "integer"}, "h": {"type": "integer"}}, "required": ["w"]},
            {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "boolean"}}}, "maxItems": 3}]},
    },
    "not": {"required": ["forbidden"]},
}
LONG_STRING: dict[str, Any] = {
    "type": "object", "required": ["text", "tag"], "additionalProperties": False,
    "properties": {"text": {"type": "string", "maxLength": 300}, "tag": {"type": "string", "minLength": 2, "maxLength": 40}},
}
SAMPLES = ("person", "event", "form48", "tree", "thread", "expression")
QUICK_GRAMMARS = ("person", "any JSON", "open object")


def grammars() -> dict[str, Artifact]:
    """The grammars, portable."""
    found = {name: compile_file(ROOT / f"samples/{name}.schema.json") for name in SAMPLES}
    found["any JSON"] = compile_json_schema(True)
    found["any JSON, blanks"] = compile_json_schema(True, options=Options(whitespace="flexible"))
    found["open object"] = compile_json_schema(OPEN_OBJECT)
    found["long string"] = compile_json_schema(LONG_STRING)
    found["semver"] = compile_file(ROOT / "samples/semver.regex")
    return found


@dataclass
class Count:
    """What was compared for one tokenizer and one grammar. Fields that end in ``wrong`` count differences."""

    prefixes: int = 0
    configurations: int = 0
    deepest: int = 0
    pairs: int = 0
    allowed: int = 0
    mask_wrong: int = 0
    tokens: int = 0
    token_wrong: int = 0
    refused: int = 0
    refused_wrong: int = 0
    forced: int = 0
    forced_wrong: int = 0
    texts: int = 0
    text_tokens: int = 0
    unasked: int = 0
    planned: int = 0
    planned_wrong: int = 0
    cut: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def wrong(self) -> int:
        """Differences of every kind."""
        return self.mask_wrong + self.token_wrong + self.refused_wrong + self.forced_wrong + self.planned_wrong

    def note(self, text: str) -> None:
        """Keep the first few differences, to be looked into."""
        if len(self.examples) < 5:
            self.examples.append(text)


class Comparison:
    """One grammar on one vocabulary, compared at sampled prefixes."""

    def __init__(self, grammar: Grammar, seed: int) -> None:
        assert grammar.vocabulary is not None
        self.grammar, self.machine, self.vocabulary = grammar, grammar.machine, grammar.vocabulary
        self.count = Count()
        self.rng = np.random.default_rng(seed)
        self._walk, self._walker = TrieWalk(self.machine, self.vocabulary), Walker(self.machine)
        self._shortest = len(self._walker.output(self.rng, 0))
        self._bitmask = allocate_token_bitmask(1, self.vocabulary.size)
        self._spelled = tokens_by_bytes(self.vocabulary)
        self._seen: set[Configuration] = set()

    def output(self) -> bytes:
        """One random valid output, drawn again while it is very short: where scalars are valid, most outputs are one."""
        most, text = self._shortest + int(self.rng.choice(MORE_BYTES)), b""
        for _ in range(DRAWS):
            text = self._walker.output(self.rng, most)
            if len(text) >= SHORT:
                break
        return text

    def masks(self, prefixes: int) -> None:
        """Compare at ``prefixes`` prefixes."""
        for number in itertools.count():
            for matcher, configuration in self._free() if number % 2 else self._cut_output():
                self._at(matcher, configuration)
                if self.count.prefixes >= prefixes:
                    return

    def _cut_output(self) -> Iterator[tuple[Matcher, Configuration]]:
        """Some prefixes of a random output, cut into random tokens; half the time its end is one of them."""
        tokens = random_tokens(self.output(), self._spelled, self.rng)
        chosen = set(self.rng.integers(0, len(tokens) + 1, CUTS).tolist()) | ({len(tokens)} if self.rng.random() < 0.5 else set())
        matcher: Matcher = self.grammar.matcher()
        configuration: Configuration | None = initial(self.machine)
        for place, token in enumerate([*tokens, -1]):
            if configuration is None:
                return
            if place in chosen:
                yield matcher, configuration
            if token >= 0:
                configuration = self._accept(matcher, configuration, token)

    def _free(self) -> Iterator[tuple[Matcher, Configuration]]:
        """A walk from somewhere in a random output: each configuration that some token leads to is as likely as the next.

        At first it often goes to the deepest ones, so that there is something to close.
        """
        tokens, matcher = random_tokens(self.output(), self._spelled, self.rng), self.grammar.matcher()
        configuration: Configuration | None = initial(self.machine)
        for token in tokens[:int(self.rng.integers(len(tokens)))]:
            configuration = configuration and self._accept(matcher, configuration, token)
        for place in range(FREE_STEPS):
            if configuration is None:
                return
            yield matcher, configuration
            reached = self._walk.reach(configuration)
            landings = np.unique(reached[reached >= 0])
            if not len(landings):
                return
            depths = np.array([len(self._walk.configurations[landing].stack) for landing in landings.tolist()])
            deep = self.rng.random() < (0.6 if 2 * place < FREE_STEPS else 0.2)
            landing = self.rng.choice(landings[depths == depths.max()] if deep else landings)
            token = int(self.vocabulary.byte_order[self.rng.choice(np.flatnonzero(reached == landing))])
            configuration = self._accept(matcher, configuration, token)

    def _accept(self, matcher: Matcher, configuration: Configuration, token: int) -> Configuration | None:
        """Where an allowed token leads; None, and a difference, if the matcher refuses it."""
        after = run(self.machine, self.vocabulary.token(token), configuration)
        if after is None or not matcher.accept_token(token):
            self.count.token_wrong += 1
            self.count.note(f"token {token} {self.vocabulary.token(token)!r} refused at {configuration}")
            return None
        return after

    def _at(self, matcher: Matcher, configuration: Configuration) -> None:
        """Everything that is compared at one prefix."""
        count, vocabulary = self.count, self.vocabulary
        count.prefixes += 1
        self._seen.add(configuration)
        count.configurations = len(self._seen)
        count.deepest = max(count.deepest, len(configuration.stack))
        if (matcher.state, matcher.stack) != configuration:
            count.token_wrong += 1
            count.note(f"the matcher is at {(matcher.state, matcher.stack)}, stepping at {configuration}")
            return
        reached = self._walk.reach(configuration)
        expected = self._expected(configuration, reached)
        restricts = matcher.fill_next_token_bitmask(self._bitmask)
        mask = np.unpackbits(self._bitmask[0].view(np.uint8), bitorder="little")
        wrong = np.flatnonzero(mask != expected)
        count.pairs += vocabulary.size
        count.allowed += int(expected.sum())
        count.mask_wrong += len(wrong) + (restricts != (int(expected.sum()) < vocabulary.size))
        if len(wrong):
            count.note(f"mask at {configuration}: tokens {[(int(token), vocabulary.token(int(token))) for token in wrong[:3]]}")
        self._tokens(matcher, configuration, reached)
        self._refusals(matcher, configuration, expected[:vocabulary.size])
        self._forced(matcher, configuration)

    def _expected(self, configuration: Configuration, reached: Int32) -> npt.NDArray[np.uint8]:
        """The mask, one byte a token, padded to whole words."""
        expected = np.zeros(self._bitmask.shape[1] * 32, np.uint8)
        expected[self.vocabulary.byte_order[reached >= 0]] = 1
        if may_end(self.machine, configuration):
            expected[list(self.vocabulary.stop_token_ids)] = 1
        return expected

    def _tokens(self, matcher: Matcher, configuration: Configuration, reached: Int32) -> None:
        """Allowed tokens lead where their bytes do, in the matcher and in the walk."""
        alive = np.flatnonzero(reached >= 0)
        for rank in self.rng.choice(alive, min(TOKENS, len(alive)), replace=False).tolist():
            token = int(self.vocabulary.byte_order[rank])
            after = run(self.machine, self.vocabulary.token(token), configuration)
            good = after == self._walk.configurations[int(reached[rank])] and matcher.accept_token(token)
            good = good and (matcher.state, matcher.stack) == after
            if good:
                matcher.rollback()
                good = (matcher.state, matcher.stack) == configuration
            self.count.tokens += 1
            if not good:
                self.count.token_wrong += 1
                self.count.note(f"token {token} {self.vocabulary.token(token)!r} at {configuration}, which should lead to {after}")
                return

    def _refusals(self, matcher: Matcher, configuration: Configuration, expected: npt.NDArray[np.uint8]) -> None:
        """Tokens that are not allowed are refused and change nothing; stop tokens are taken where the output may end."""
        barred = np.flatnonzero(expected == 0)
        special = [token for token in self.vocabulary.special.values() if not expected[token]]
        chosen = self.rng.choice(barred, min(TOKENS, len(barred)), replace=False).tolist()
        for token in [*chosen, *special[:3], *self.vocabulary.stop_token_ids]:
            ends = token in self.vocabulary.stop_token_ids and may_end(self.machine, configuration)
            stepped = run(self.machine, self.vocabulary.token(token), configuration) if self.vocabulary.token(token) else None
            taken = matcher.accept_token(token)
            if taken:
                matcher.rollback()
            self.count.refused += 1
            if taken != ends or stepped is not None or (matcher.state, matcher.stack) != configuration:
                self.count.refused_wrong += 1
                verdict = "taken" if ends else "refused"
                self.count.note(f"token {token} {self.vocabulary.token(token)!r} at {configuration} should be {verdict}")

    def _forced(self, matcher: Matcher, configuration: Configuration) -> None:
        chain, tokens, expected = matcher.forced_bytes(), matcher.forced_tokens(), self._walk.chain(configuration)
        spelled = b"".join(map(self.vocabulary.token, tokens))
        self.count.forced += bool(chain)
        if chain != expected or not chain.startswith(spelled):
            self.count.forced_wrong += 1
            self.count.note(f"forced at {configuration}: bytes {chain!r}, tokens spell {spelled!r}, {expected!r} expected")

    def canonical(self, tokenizer: Any, texts: int) -> None:
        """Compare what is forced with ``tokenizer.encode`` on random outputs; ``tokenizer`` is one of the tokenizers library."""
        for _ in range(texts):
            text = self.output()
            ids = tokenizer.encode(text.decode(), add_special_tokens=False).ids
            if b"".join(map(self.vocabulary.token, ids)) == text:  # else the tokenizer rewrites the text (Unicode normalization)
                self.count.texts += 1
                self.count.text_tokens += len(ids)
                self._canonical_text(text, ids)

    def _canonical_text(self, text: bytes, ids: list[int]) -> None:
        matcher, count, until = self.grammar.matcher(canonical=True), self.count, 0
        for place, token in enumerate(ids):
            forced = matcher.forced_tokens()
            count.planned += len(forced)
            differ = [got for got, own in itertools.zip_longest(forced, ids[place:place + len(forced)]) if got != own]
            if differ:
                count.planned_wrong += len(differ)
                shown = [self.vocabulary.token(got) for got in forced]
                count.note(f"plan {shown} at token {place} of {text!r}: the tokenizer has {ids[place:place + len(forced)]}")
            if place >= until and forced:
                count.unasked += len(forced)
                until = place + len(forced)
            elif place >= until:
                matcher.fill_next_token_bitmask(self._bitmask)
                count.cut += not int(self._bitmask[0, token >> 5]) >> (token & 31) & 1
            if not matcher.accept_token(token):
                count.token_wrong += 1
                count.note(f"the tokenizer's token {token} of {text!r} is refused")
                return


def compare(artifact: Artifact, vocabulary: Vocabulary, tokenizer: Any, prefixes: int, texts: int, seed: int = 0) -> Count:
    """Bind, and compare everything; ``tokenizer`` None leaves the canonical part out."""
    started = time.perf_counter()
    bound = bind(artifact, vocabulary).to_bytes()  # through the file's form, as a server reads it
    comparison = Comparison(load(bound, vocabulary=vocabulary), seed)
    comparison.masks(prefixes)
    if tokenizer is not None:
        comparison.canonical(tokenizer, texts)
    comparison.count.seconds = round(time.perf_counter() - started, 1)
    return comparison.count


COLUMNS = {"prefixes": "prefixes", "configurations": "configurations", "deepest": "deepest stack", "pairs": "(prefix, token) pairs",
           "mask_wrong": "wrong", "tokens": "tokens taken", "token_wrong": "wrong", "refused": "refused", "refused_wrong": "wrong",
           "forced": "forced", "forced_wrong": "wrong", "text_tokens": "tokens of outputs", "unasked": "unasked", "planned": "plan tokens",
           "planned_wrong": "wrong", "cut": "cut", "seconds": "s"}


def row(tokenizer: str, grammar: str, count: Count) -> str:
    """One line of the table."""
    values = asdict(count)
    return f"| {tokenizer} | {grammar} | " + " | ".join(f"{values[name]:,}" for name in COLUMNS) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", type=Path, default=TOKENIZERS)
    parser.add_argument("--names", default=NAMES)
    parser.add_argument("--prefixes", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PREFIXES} prefixes of {', '.join(QUICK_GRAMMARS)}")
    parser.add_argument("--json", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    names = [name for name in arguments.names.split(",") if (arguments.tokenizers / name / "tokenizer.json").is_file()]
    if not names:
        parser.error(f"{arguments.tokenizers} holds none of {arguments.names}")
    from tokenizers import Tokenizer

    chosen = {name: artifact for name, artifact in grammars().items() if not arguments.quick or name in QUICK_GRAMMARS}
    prefixes = arguments.prefixes or (QUICK_PREFIXES if arguments.quick else PREFIXES)
    texts = 4 if arguments.quick else CANONICAL_TEXTS
    result: dict[str, dict[str, Any]] = {}
    total = Count()
    print("| tokenizer | grammar | " + " | ".join(COLUMNS.values()) + " |\n" + "|---" * (len(COLUMNS) + 2) + "|")
    for name in names:
        vocabulary = vocabulary_from_tokenizer(arguments.tokenizers / name)
        tokenizer = Tokenizer.from_file(str(arguments.tokenizers / name / "tokenizer.json"))
        for grammar, artifact in chosen.items():
            count = compare(artifact, vocabulary, tokenizer, prefixes, texts, arguments.seed)
            print(row(name, grammar, count), flush=True)
            for example in count.examples:
                print(example, file=sys.stderr)
            result.setdefault(name, {})[grammar] = asdict(count)
            for column in COLUMNS:
                joined = max if column == "deepest" else lambda *both: round(sum(both), 1)
                setattr(total, column, joined(getattr(total, column), getattr(count, column)))
    print(row("all", "all", total))
    if arguments.json:
        arguments.json.write_text(json.dumps({"tokenizers": result, "total": asdict(total)}, indent=1) + "\n", encoding="utf-8")
    return int(total.wrong() > 0)


if __name__ == "__main__":
    sys.exit(main())
