"""The token prefixes met so far, with how much valid mass may lie below each: what constrained adaptive rejection remembers.

A node is a token sequence. Its *bound* is the logarithm of ``r``: 1 for a node of which nothing is known, and

    r(h) = sum over the tokens t that the mask admits of  p(t | h) r(h t),        r = 1 for a stop token

for one that was scored. So ``r`` is never below the probability that a completion of ``h`` is valid, and comes down to it as more of what
follows ``h`` is scored. Everything is in logarithms, since an unlikely format has masses below what float64 holds.

A scored node's *row* holds the admitted tokens and ``log p + log r`` of each. Rows take 12 bytes an admitted token and are dropped, those
used longest ago first, beyond ``most_bytes``; bounds stay, and a dropped row is scored again when it is needed.

``lift`` writes a path's new bounds into the rows above it, from the end up. It is called between attempts: a bound that a draw has used
stays what it was until the attempt is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stcc.runtime.errors import ConstraintError

MOST_BYTES = 1 << 30
MOST_NODES = 5_000_000
NOTHING = -float("inf")
Scores = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]


class TrieTooLargeError(ConstraintError):
    """More token prefixes than may be remembered."""


class Row:
    """A scored node.

    Attributes:
        tokens: int32 ``[k]``, admitted, rising.
        weights: float64 ``[k]``, ``log p + log r``; ``r`` as it was at the last lift.
        total: log of the sum of their exponentials.
    """

    __slots__ = ("_cumulated", "tokens", "total", "weights")

    def __init__(self, tokens: Tokens, weights: Scores) -> None:
        self.tokens, self.weights = tokens, weights
        self.refresh()

    def refresh(self) -> None:
        """Bring ``total`` up to date with the weights."""
        best = float(self.weights.max()) if len(self.weights) else NOTHING
        self._cumulated: Scores | None = None
        self.total = NOTHING if best == NOTHING else best + float(np.log(np.exp(self.weights - best).sum()))

    def chances(self) -> Scores:
        """float64 ``[k]``: the probabilities that ``pick`` draws with. For rows with a finite total."""
        chances: Scores = np.exp(self.weights - self.total)
        chances /= chances.sum()
        return chances

    def pick(self, rng: np.random.Generator) -> int:
        """A place, with probability proportional to the exponential of its weight. For rows with a finite total."""
        if self._cumulated is None:
            self._cumulated = np.cumsum(np.exp(self.weights - self.total))
        drawn = rng.random() * self._cumulated[-1]
        return min(int(np.searchsorted(self._cumulated, drawn, side="right")), len(self.weights) - 1)

    def place(self, token: int) -> int:
        """Where a token stands; -1 if it is not admitted."""
        place = int(np.searchsorted(self.tokens, token))
        return place if place < len(self.tokens) and self.tokens[place] == token else -1

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.tokens.nbytes + self.weights.nbytes


class TokenTrie:
    """See the module's text. Node 0 is the empty sequence.

    Attributes:
        bounds: per node, log of ``r`` as the row above it has it.
        chances: per node, log-probability of its last token after its parent.
        dropped: rows dropped for room.
        nbytes: bytes of the rows.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_nodes: int = MOST_NODES) -> None:
        if most_bytes < 0 or most_nodes < 1:
            raise ConstraintError(f"most_bytes {most_bytes} or most_nodes {most_nodes} is out of range", "give at least 0 and 1")
        self.most_bytes, self.most_nodes = most_bytes, most_nodes
        self.bounds, self.chances = [0.0], [0.0]
        self._children: list[dict[int, int]] = [{}]
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self.dropped = self.nbytes = 0

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def rows(self) -> int:
        """Rows held."""
        return len(self._rows)

    def child(self, node: int, token: int, chance: float) -> int:
        """The node after ``token``, made if need be; ``chance`` is the token's log-probability. TrieTooLargeError past ``most_nodes``."""
        found = self._children[node].get(token)
        if found is None:
            if len(self.bounds) >= self.most_nodes:
                raise TrieTooLargeError(f"more than {self.most_nodes:,} token prefixes were met", "lower max_tokens, or raise most_nodes")
            found = self._children[node][token] = len(self.bounds)
            self.bounds.append(0.0)
            self.chances.append(chance)
            self._children.append({})
        return found

    def row(self, node: int) -> Row | None:
        """A node's row, if it is held."""
        row = self._rows.get(node)
        if row is not None:
            self._rows.move_to_end(node)
        return row

    def learn(self, node: int, tokens: Tokens, scores: Scores) -> Row:
        """Give a node its row: the admitted tokens, rising, and their log-probabilities. Bounds of known children are taken in."""
        row = Row(tokens, scores.astype(np.float64, copy=True))
        changed = False
        for token, child in self._children[node].items():
            place = row.place(token)
            if place >= 0:
                self.chances[child] = float(scores[place])
                row.weights[place] += self.bounds[child]
                changed = True
        if changed:
            row.refresh()
        self._rows[node] = row
        self.nbytes += row.nbytes
        return row

    def lift(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """Write new bounds upwards along a path: ``nodes`` from any node down, all but the last with a row; ``tokens`` between them."""
        for parent, token, node in zip(reversed(nodes[:-1]), reversed(tokens), reversed(nodes[1:]), strict=True):
            below, above = self._rows.get(node), self._rows[parent]
            if below is not None and below.total != self.bounds[node]:
                self.bounds[node] = below.total
                above.weights[above.place(token)] = self.chances[node] + below.total
                above.refresh()
        first = self._rows.get(nodes[0])
        if nodes[0] == 0 and first is not None:
            self.bounds[0] = first.total

    def forget(self) -> None:
        """Drop rows beyond ``most_bytes``, those used longest ago first. Between attempts only."""
        while self.nbytes > self.most_bytes and self._rows:
            _, row = self._rows.popitem(last=False)
            self.nbytes -= row.nbytes
            self.dropped += 1
