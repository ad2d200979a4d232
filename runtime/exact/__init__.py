"""Exact sampling from a model conditioned on a workflow being valid: policies, samplers, enumeration (docs/exact-sampling.md).

    environment.py histories.py policies.py     what is sampled: a compiled policy's worlds, and the model as full history -> probabilities
    abstraction.py bank.py matcher.py           which histories share certificates, the certificates, and what they exclude
    proposal.py stateful.py                     the residual, its Doob transform, Stateful CARS
    root_prefix.py action_prefix.py             root-prefix CARS keyed by observations or by actions alone, and visited grounding
    local_masking.py particles.py               rejection, masks, Metropolis; particle filter, adaptive weighted rejection
    transcript.py model_policy.py               a language model as the policy: whole labels scored, in batches, into one table
    score_table.py                              that table as a file, replayed without the model
    text.py token_trie.py token_models.py       the same on tokens: text conditioned on a grammar's language, beside plain masking
    samplers.py accounting.py                   the interface of all of them, and what they cost
    enumeration.py sqlite_validator.py          exact laws to hold samplers against; a real database as validator

>>> import numpy as np
>>> from stcc.formats import Artifact
>>> artifact = Artifact.load("refund.stc")                                                  # doctest: +SKIP
>>> environment = Environment.of(artifact)                                                  # doctest: +SKIP
>>> walk = HistoryWalk(SyntheticPolicy(environment.actions), environment.actions, Accounting())    # doctest: +SKIP
>>> sampler = StatefulCars(environment, walk, bank=compiled_bank(environment), update="none")      # doctest: +SKIP
>>> sampler.draw(10, np.random.default_rng(0))                                              # doctest: +SKIP
"""

from stcc.runtime.exact.abstraction import Abstraction, HistoryAbstraction
from stcc.runtime.exact.accounting import Accounting
from stcc.runtime.exact.action_prefix import ActionRootPrefixCars
from stcc.runtime.exact.environment import Environment
from stcc.runtime.exact.histories import HistoryWalk, MarkovWalk
from stcc.runtime.exact.local_masking import IndependenceMetropolis, LocalMasking, TerminalRejection
from stcc.runtime.exact.model_policy import ModelPolicy, live_histories
from stcc.runtime.exact.particles import AdaptiveWeightedRejection, ParticleFilter
from stcc.runtime.exact.policies import SyntheticPolicy, TablePolicy
from stcc.runtime.exact.root_prefix import RootPrefixCars, VisitedGrounding
from stcc.runtime.exact.samplers import Sample, Sampler
from stcc.runtime.exact.score_table import load_scores, save_scores
from stcc.runtime.exact.stateful import StatefulCars, compiled_bank
from stcc.runtime.exact.text import MaskedText, TextCars, TextSample
from stcc.runtime.exact.token_models import ModelTokens
from stcc.runtime.exact.transcript import Transcript

__all__ = [
    "Abstraction", "Accounting", "ActionRootPrefixCars", "AdaptiveWeightedRejection", "Environment", "HistoryAbstraction", "HistoryWalk",
    "IndependenceMetropolis", "LocalMasking", "MarkovWalk", "MaskedText", "ModelPolicy", "ModelTokens", "ParticleFilter",
    "RootPrefixCars", "Sample", "Sampler", "StatefulCars", "SyntheticPolicy", "TablePolicy", "TerminalRejection", "TextCars",
    "TextSample", "Transcript", "VisitedGrounding", "compiled_bank", "live_histories", "load_scores", "save_scores",
]
