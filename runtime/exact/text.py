"""Exact text: a model's distribution over outputs, conditioned on the output being in a grammar's language.

*What is conditioned.* The model writes tokens one after the other until it chooses a stop token. The event is: it writes at most
``max_tokens`` tokens and then a stop token, and the text that the tokens spell is in the language. All spellings of a text count, each
with its own probability, not only the tokenizer's; the stop token counts too, so that a text after which the model would rather go on is
less likely. An output that has not stopped after ``max_tokens`` tokens is outside the event, whatever it would have become.

*How.* Constrained adaptive rejection sampling (Parys et al. 2025) on ``TokenTrie``. An attempt walks down the trie. At a scored node it
draws among the tokens that the grammar's mask admits with ``p(t | h) r(h t)``. Arriving at a node it goes on with probability (the node's
``r`` now) / (the ``r`` that the draw was made with), and is rejected otherwise. For a node scored before the two are equal; for a new one
``r`` was 1, and is the mass that the mask admits now. Probabilities along an accepted path telescope to ``P(output) / r(root)``: what is
accepted is an independent draw from the conditional whatever was learned before. What an attempt scored is written into the rows above it
when it is over, so that the chance of an attempt, ``P(event) / r(root)``, never falls.

The masks do the part that needs no learning: what is invalid at once is known without being drawn. What is learned is the future, that is,
how much of a token's mass is lost further on. The text that a grammar forces is scored along with the node before it in one pass, in the
tokenizer's spelling; other spellings keep ``r = 1`` until they are met.

``MaskedText`` is plain masking, to compare with: each token is drawn from what the mask admits, renormalised. Its law is another. Its
samples carry ``P(output) / Q(output)``, whose mean estimates the probability of the event.

>>> sampler = TextCars(grammar, ModelTokens(model, prompt, vocabulary.size), max_tokens=100)      # doctest: +SKIP
>>> [one.text for one in sampler.draw(10, np.random.default_rng(0))]                              # doctest: +SKIP
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

import numpy as np

from stcc.runtime.errors import BudgetUnavailable, ConstraintError, VocabularyRequired
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.samplers import MAX_ATTEMPTS, TooManyAttemptsError
from stcc.runtime.exact.token_models import TokenModel
from stcc.runtime.exact.token_trie import MOST_BYTES, MOST_NODES, NOTHING, Row, Tokens, TokenTrie
from stcc.runtime.grammar import Grammar
from stcc.runtime.matcher import Matcher

MOST_AHEAD = 64
"""Forced tokens that a pass scores along with a node."""


class NoValidMassError(ConstraintError):
    """The model gives no valid output a chance that float64 can tell from zero."""


@dataclass(frozen=True)
class TextSample:
    """An output.

    Attributes:
        tokens: without the stop token.
        stop: the stop token.
        text: what the tokens spell.
        log_probability: of tokens and stop token under the model, natural logarithm.
        weight: 1 for exact draws; ``P / Q`` for masked ones.
    """

    tokens: tuple[int, ...]
    stop: int
    text: bytes
    log_probability: float
    weight: float = 1.0


@dataclass
class TextAccounting(Accounting):
    """``Accounting`` of text: a *sampler step* is a token drawn, a *policy call* a row asked for, a distinct one a row that was scored.

    Attributes:
        passes: forward passes of the model.
        fed: tokens that the model read.
        output_tokens: tokens of accepted outputs, stop tokens not counted.
    """

    passes: int = 0
    fed: int = 0
    output_tokens: int = 0


class TextSampler(ABC):
    """Base of both samplers.

    Args:
        grammar: loaded with the model's vocabulary.
        model: the model after its prompt.
        max_tokens: most tokens of an output, the stop token not counted.

    Attributes:
        accounting: what sampling cost so far.

    Raises:
        VocabularyRequired: the grammar was loaded without a vocabulary.
        ConstraintError: the vocabulary has no stop token, or not the model's size.
        BudgetTooSmall: no valid output fits in ``max_tokens``.
    """

    name = "sampler"

    def __init__(self, grammar: Grammar, model: TokenModel, max_tokens: int) -> None:
        if grammar.vocabulary is None:
            raise VocabularyRequired(grammar.name)
        if not grammar.vocabulary.stop_token_ids:
            raise ConstraintError("the vocabulary has no stop token, so that no output ever ends", "give it one when it is made")
        if model.size != grammar.vocabulary.size:
            raise ConstraintError(f"the model scores {model.size} ids and the vocabulary has {grammar.vocabulary.size}")
        if max_tokens < 1:
            raise ConstraintError(f"max_tokens {max_tokens} is too few", "give at least 1")
        self.grammar, self.model, self.max_tokens, self.accounting = grammar, model, max_tokens, TextAccounting()
        self._vocabulary, self._stops = grammar.vocabulary, frozenset(grammar.vocabulary.stop_token_ids)
        try:
            self._matcher, self._budgeted = grammar.matcher(max_tokens=max_tokens), True
        except BudgetUnavailable:  # masks then admit what cannot end in time; it is learned like any other loss
            self._matcher, self._budgeted = grammar.matcher(), False

    @abstractmethod
    def attempt(self, rng: np.random.Generator) -> TextSample | None:
        """One attempt: an output, or None if it was rejected."""

    def draws(self, count: int, rng: np.random.Generator, max_attempts: int = MAX_ATTEMPTS) -> Iterator[TextSample]:
        """``count`` outputs, as they are found.

        Raises:
            TooManyAttemptsError: more than ``max_attempts`` attempts in this call.
            NoValidMassError: no output has a chance.
        """
        found = 0
        for number in range(max_attempts + 1):
            if found == count:
                return
            if number == max_attempts:
                break
            with self.accounting.measured():
                before = (self.model.cost.passes, self.model.cost.tokens)
                sample = self.attempt(rng)
                self.accounting.passes += self.model.cost.passes - before[0]
                self.accounting.fed += self.model.cost.tokens - before[1]
                self.accounting.attempts += 1
            if sample is not None:
                found += 1
                self.accounting.accepted += 1
                self.accounting.output_tokens += len(sample.tokens)
                yield sample
        raise TooManyAttemptsError(f"{self.name}: {found} of {count} outputs after {max_attempts:,} attempts",
                                   "the model gives valid outputs little chance: ask for the format in the prompt, or allow more attempts")

    def draw(self, count: int, rng: np.random.Generator, max_attempts: int = MAX_ATTEMPTS) -> list[TextSample]:
        """The same as a list."""
        return list(self.draws(count, rng, max_attempts))

    def admitted(self, matcher: Matcher, taken: int) -> Tokens:
        """int32: the tokens that may follow, rising, where ``taken`` tokens were taken; stop tokens only at the limit."""
        tokens = matcher.allowed_tokens().astype(np.int32)
        if not self._budgeted and taken >= self.max_tokens:
            tokens = tokens[np.isin(tokens, list(self._stops))]
        return tokens

    def sample(self, tokens: list[int], stop: int, log_probability: float, weight: float = 1.0) -> TextSample:
        """The output of a token sequence."""
        text = b"".join(map(self._vocabulary.token, tokens))
        return TextSample(tuple(tokens), stop, text, log_probability, weight)


class TextCars(TextSampler):
    """Exact; see the module's text.

    Args:
        grammar, model, max_tokens: as for ``TextSampler``.
        ahead: whether forced text is scored along; it changes what is known when, never the law.
        most_bytes, most_nodes: as for ``TokenTrie``.

    Attributes:
        trie: what was learned.
        validity: unbiased estimate of the probability of the event: the mean over attempts of ``r(root)`` where one was accepted.
    """

    name = "text_cars"

    def __init__(self, grammar: Grammar, model: TokenModel, max_tokens: int, *, ahead: bool = True, most_bytes: int = MOST_BYTES,
                 most_nodes: int = MOST_NODES) -> None:
        super().__init__(grammar, model, max_tokens)
        self.trie, self._ahead = TokenTrie(most_bytes, most_nodes), ahead
        self._accepted_mass, self._attempts = 0.0, 0

    @property
    def validity(self) -> float:
        """See the class's text; 0 before the first attempt."""
        return self._accepted_mass / self._attempts if self._attempts else 0.0

    @property
    def bound(self) -> float:
        """``r(root)``: the probability of the event is not above it."""
        return exp(self.trie.bounds[0])

    def attempt(self, rng: np.random.Generator) -> TextSample | None:
        """One attempt; what it learned is written upwards after it. NoValidMassError if no output has a chance."""
        self.begin()
        mass = self.bound
        tokens: list[int] = []
        nodes = [0]
        try:
            sample = self._walk(tokens, nodes, rng)
        finally:
            self.trie.lift(nodes, tokens)
            self.trie.forget()
        self._attempts += 1
        self._accepted_mass += mass if sample is not None else 0.0
        self.accounting.memory_entries, self.accounting.memory_bytes = len(self.trie), self.trie.nbytes
        return sample

    def begin(self) -> None:
        """Score the root, so that the first draw knows what the mask takes there."""
        self._matcher.reset()
        row = self.arrive(0, [])
        self.trie.lift([0], [])
        if row.total == NOTHING:
            raise NoValidMassError("the model gives no valid output a chance", "ask for the format in the prompt, or raise the temperature")

    def _walk(self, tokens: list[int], nodes: list[int], rng: np.random.Generator) -> TextSample | None:
        """Fill ``tokens`` and ``nodes`` downwards; the output, or None where the attempt is rejected."""
        log_probability, node = 0.0, 0
        while True:
            row = self.arrive(node, tokens)
            if rng.random() >= self.survival(node, row):
                return None
            place = row.pick(rng)
            token = int(row.tokens[place])
            self.accounting.sampler_steps += 1
            if token in self._stops:
                return self.sample(tokens, token, log_probability + float(row.weights[place]))
            node = self.trie.child(node, token, float(row.weights[place]))  # a new child's weight is its log-probability
            log_probability += self.trie.chances[node]
            self._matcher.accept_token(token)
            tokens.append(token)
            nodes.append(node)

    def survival(self, node: int, row: Row) -> float:
        """The probability of going on at a node: its ``r`` now over the one that the draw above was made with."""
        known = self.trie.bounds[node]
        return 0.0 if row.total == NOTHING else min(exp(min(row.total - known, 0.0)), 1.0)

    def arrive(self, node: int, tokens: list[int]) -> Row:
        """The row of a node that the matcher stands at, scored if it is not held, forced text after it along with it."""
        self.accounting.policy_calls += 1
        row = self.trie.row(node)
        if row is None:
            row = self._scored(node, tokens)
        return row

    def _scored(self, node: int, tokens: list[int]) -> Row:
        plan = self._matcher.forced_tokens()[:min(MOST_AHEAD, self.max_tokens - len(tokens))] if self._ahead else []
        scores = self.model.after(tokens, plan, len(plan) + 1)
        nodes, taken = [node], 0
        for number, token in enumerate([*plan, -1]):
            here = nodes[-1]
            row = self.trie.row(here)
            if row is None:
                self.accounting.distinct_policy_calls += 1
                admitted = self.admitted(self._matcher, len(tokens) + number)
                row = self.trie.learn(here, admitted, scores[number][admitted])
            place = row.place(token) if token >= 0 else -1
            if place < 0 or row.weights[place] == NOTHING or not self._matcher.accept_token(token):
                break
            taken += 1
            nodes.append(self.trie.child(here, token, float(scores[number, token])))
        self._matcher.rollback(taken)
        self.trie.lift(nodes, plan[:taken])  # into the node's new row; what is above the node stays for the end of the attempt
        row = self.trie.row(node)
        assert row is not None
        return row


class MaskedText(TextSampler):
    """Plain masking: not exact; see the module's text. A dead end, which only grammars without budgets have, is a rejected attempt."""

    name = "masked_text"

    def attempt(self, rng: np.random.Generator) -> TextSample | None:
        """One output and its weight."""
        self._matcher.reset()
        tokens: list[int] = []
        log_probability = log_weight = 0.0
        while True:
            self.accounting.policy_calls += 1
            self.accounting.distinct_policy_calls += 1
            scores = self.model.after(tokens, (), 1)[0]
            admitted = self.admitted(self._matcher, len(tokens))
            row = Row(admitted, scores[admitted])
            if row.total == NOTHING:
                return None
            place = row.pick(rng)
            token = int(row.tokens[place])
            self.accounting.sampler_steps += 1
            log_probability += float(row.weights[place])
            log_weight += row.total
            if token in self._stops:
                return self.sample(tokens, token, log_probability, exp(log_weight))
            self._matcher.accept_token(token)
            tokens.append(token)
