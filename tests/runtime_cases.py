"""What the runtime's tests share: grammars bound without plans, and an oracle that steps every token byte by byte."""

from __future__ import annotations

import numpy as np
from binding_cases import GRAMMARS, linked, nasty_vocabulary

from stcc.compiler.binding.actions import token_actions
from stcc.compiler.binding.need import token_needs
from stcc.compiler.stepping import Configuration, initial, may_end, run
from stcc.formats.machine import Machine
from stcc.formats.row_patterns import made_binding
from stcc.formats.vocabulary import Vocabulary
from stcc.runtime import Grammar, Matcher


def bound(machine: Machine, vocabulary: Vocabulary, **sections: np.ndarray) -> Grammar:
    """The grammar of ``machine``, without plans and covers unless ``sections`` holds them."""
    actions = token_actions(machine, vocabulary)
    needs = token_needs(machine, actions)
    plans = {"plan_offsets": np.zeros(machine.states + 1, np.int32), "plan_tokens": np.zeros(0, np.int32),
             "cover": np.zeros(machine.states, np.uint8)}
    binding = made_binding(fingerprint=vocabulary.fingerprint, vocabulary_size=vocabulary.size,
                           **{**vars(actions), **vars(needs), **plans, **sections})
    return Grammar(machine, binding, vocabulary)


def nasty(name: str) -> Grammar:
    return bound(linked(GRAMMARS[name]), nasty_vocabulary())


class Oracle:
    """Where every token leads from a configuration, by stepping its bytes."""

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        self.machine, self.vocabulary = machine, vocabulary
        self.texts = [vocabulary.token(token) for token in range(vocabulary.size)]
        self._after: dict[Configuration, dict[int, Configuration]] = {}

    def start(self) -> Configuration:
        return initial(self.machine)

    def after(self, configuration: Configuration) -> dict[int, Configuration]:
        """Token -> configuration, for the tokens with bytes that are allowed."""
        found = self._after.get(configuration)
        if found is None:
            steps = ((token, run(self.machine, text, configuration)) for token, text in enumerate(self.texts) if text)
            found = self._after[configuration] = {token: reached for token, reached in steps if reached is not None}
        return found

    def allowed(self, configuration: Configuration) -> list[int]:
        """The tokens that a mask must allow, rising."""
        stops = self.vocabulary.stop_token_ids if may_end(self.machine, configuration) else ()
        return sorted([*self.after(configuration), *stops])

    def fewest(self, configuration: Configuration, limit: int) -> int:
        """Fewest tokens to a configuration where the output may end; ``limit + 1`` if more than ``limit``."""
        layer, seen = {configuration}, {configuration}
        for tokens in range(limit + 1):
            if any(may_end(self.machine, reached) for reached in layer):
                return tokens
            layer = {reached for before in layer for reached in self.after(before).values()} - seen
            seen |= layer
        return limit + 1


def configuration_of(matcher: Matcher) -> Configuration:
    """The matcher's configuration in the oracle's form; its stop tokens have no place there."""
    return Configuration(matcher.state, matcher.stack)
