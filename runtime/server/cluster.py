"""Several machines behind one server: rank 0 talks to clients and tells the others what it is about to do.

In: the commands of rank 0's inbox. Out: the same commands on every rank, in the same order and between the same steps, so that each rank
inserts, cancels and steps alike, masks alike and draws alike (draws depend on the job's seed alone). Started by ``mlx.launch``; the model
is sharded over the ranks if its class can be (``load_ranked``), else whole on each.

A message is msgpack, sent as two sums over the ranks (its length, its bytes), to which only rank 0 contributes. Grammars travel as the
bytes of their artifacts, once each. While rank 0 is idle the others wait in the first sum.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgpack
import numpy as np

from stcc.runtime.models import LoadedModel, load_model
from stcc.runtime.server.errors import ServeError
from stcc.runtime.server.job import Choosing, Guards, Job

if TYPE_CHECKING:
    from stcc.formats import Vocabulary

KEPT = 256
"""Grammars that a rank keeps; all ranks drop the same ones."""


class Channel(Protocol):
    """Makes the commands of rank 0 those of all ranks.

    Attributes:
        leads: whether commands come from this rank's inbox.
    """

    leads: bool

    def share(self, commands: list[Any]) -> list[Any]:
        """What to do before the next step."""


class SingleRank:
    """One machine: its commands are all there are."""

    leads = True

    def share(self, commands: list[Any]) -> list[Any]:
        """``commands``."""
        return commands


class Leader:
    """Rank 0 of several."""

    leads = True

    def __init__(self, group: Any) -> None:
        self._group = group
        self._known: OrderedDict[str, None] = OrderedDict()

    def share(self, commands: list[Any]) -> list[Any]:
        """``commands``, sent to the others first."""
        _broadcast(self._group, msgpack.packb([self._plain(command) for command in commands]))
        return commands

    def _plain(self, command: Any) -> dict[str, Any]:
        job = getattr(command, "job", None)
        if job is None:
            return {"cancel": command.number} if hasattr(command, "number") else {"stop": True}
        found: dict[str, Any] = {"job": asdict(job)}
        if job.grammar is not None and _remember(self._known, job.grammar, None):
            found["artifact"] = command.grammar.artifact.to_bytes()
        return found


class Follower:
    """A rank that does what rank 0 does; what its rows say goes nowhere."""

    leads = False

    def __init__(self, group: Any, vocabulary: Vocabulary) -> None:
        self._group, self._vocabulary = group, vocabulary
        self._grammars: OrderedDict[str, Any] = OrderedDict()

    def share(self, commands: list[Any]) -> list[Any]:
        """Rank 0's commands; waits for them."""
        return [self._command(plain) for plain in msgpack.unpackb(_broadcast(self._group, None), strict_map_key=False)]

    def _command(self, plain: dict[str, Any]) -> Any:
        from stcc.runtime.load import load
        from stcc.runtime.server.engine import Cancel, Stop, Submit

        if "cancel" in plain:
            return Cancel(plain["cancel"])
        if "stop" in plain:
            return Stop()
        job = job_of(plain["job"])
        grammar = None
        if job.grammar is not None:
            loaded = load(plain["artifact"], vocabulary=self._vocabulary) if "artifact" in plain else self._grammars[job.grammar]
            _remember(self._grammars, job.grammar, loaded)
            grammar = loaded
        return Submit(job, grammar, lambda event: None)


def job_of(plain: dict[str, Any]) -> Job:
    """The job that ``dataclasses.asdict`` made ``plain`` from."""
    watched = plain["guards"]
    guards = Guards(**{**watched, "tools": tuple(watched["tools"]), "previous": tuple(map(tuple, watched["previous"]))})
    return Job(**{**plain, "prompt": tuple(plain["prompt"]), "stop": tuple(plain["stop"]), "begun": tuple(plain["begun"]),
                  "choosing": Choosing(**plain["choosing"]), "guards": guards})


def channel_of(group: Any, vocabulary: Vocabulary) -> Channel:
    """The channel of this rank of a ``mlx.core.distributed.Group``."""
    if group is None or group.size() == 1:
        return SingleRank()
    return Leader(group) if group.rank() == 0 else Follower(group, vocabulary)


def load_ranked(name: str, group: Any) -> LoadedModel:
    """The model called ``name``, this rank's share of it where there are several ranks.

    With one rank as ``load_model``. On the CPU backend, which holds weights in float32, every rank reads the whole model first; elsewhere
    only its share, from a local folder.

    Raises:
        ServeError: several ranks, and a model that is neither a folder nor ``smollm2``.
        ModelError: as ``load_model``.
    """
    import mlx.core as mx

    if group is None or group.size() == 1:
        return load_model(name)
    if mx.default_device().type == mx.cpu or name == "smollm2":
        loaded = load_model(name)
        if hasattr(loaded.model, "shard") and _divides(loaded.model, group.size()):
            loaded.model.shard(group)
            mx.eval(loaded.model.parameters())
        return loaded
    if not Path(name).is_dir():
        raise ServeError(f"{name!r} is not a local folder",
                         "on several machines every rank reads its share from a folder: download it first")
    from mlx_lm.utils import sharded_load

    model, tokenizer = sharded_load(name)
    return LoadedModel(model, tokenizer, Path(name), name)


def _divides(model: Any, ranks: int) -> bool:
    """Whether the attention heads can be dealt out evenly; else the model stays whole."""
    heads = [getattr(getattr(model, "args", None), key, None) for key in ("num_attention_heads", "num_key_value_heads")]
    return all(isinstance(count, int) and count % ranks == 0 for count in heads)


def _remember(known: OrderedDict[str, Any], key: str, value: Any) -> bool:
    """Note that ``key`` was used; whether it had to be added."""
    fresh = key not in known
    known[key] = value
    known.move_to_end(key)
    while len(known) > KEPT:
        known.popitem(last=False)
    return fresh


def _broadcast(group: Any, data: bytes | None) -> bytes:
    """``data`` of rank 0 on every rank."""
    import mlx.core as mx

    total: Any = mx.distributed.all_sum(mx.array([0 if data is None else len(data)], dtype=mx.int32), group=group)
    length = int(total.item())
    mine = np.zeros(length, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    total = mx.distributed.all_sum(mx.array(mine), group=group)
    return np.array(total).astype(np.uint8).tobytes()
