"""The output head of a model, applied to one position, for all tokens or for a few of them.

In: the layer that makes scores of what the model's trunk returns: a linear layer or a tied embedding, dense or quantised. Out: a ``Head``.
A constraint often leaves a few tokens to choose from (the digits of a number, the values of an enum, a comma or a bracket), and the head is
a fifth or a fourth of all weights of a small model; ``few`` reads the rows of those tokens only.

Scores of few tokens are those of the whole head up to rounding.
"""

from __future__ import annotations

from typing import Any

QUANTISED = ("group_size", "bits", "mode")


class Head:
    """See the module's text.

    Attributes:
        width: tokens that it scores.
    """

    def __init__(self, layer: Any, tied: bool) -> None:
        """``layer`` has a ``weight`` of one row a token, and ``scales`` if it is quantised; ``tied``: it is an embedding."""
        self._layer, self._apply = layer, layer.as_linear if tied else layer
        self.width = int(layer.weight.shape[0])

    def all(self, hidden: Any) -> Any:
        """Scores ``[.., width]`` of hidden states ``[.., size]``."""
        return self._apply(hidden)

    def few(self, hidden: Any, tokens: Any) -> Any:
        """Scores ``[1, width]`` of hidden states ``[1, size]``: those of ``tokens``, int ``[n]`` on the device, and -inf for all others."""
        import mlx.core as mx

        layer = self._layer
        rows = layer.weight[tokens]
        if "scales" in layer:
            biases = layer.biases[tokens] if getattr(layer, "biases", None) is not None else None
            options = {name: getattr(layer, name) for name in QUANTISED if hasattr(layer, name)}
            scores = mx.quantized_matmul(hidden, rows, layer.scales[tokens], biases, transpose=True, **options)
        else:
            scores = hidden @ rows.T
        if "bias" in layer:
            scores = scores + layer.bias[tokens]
        others = mx.full((1, self.width), -float("inf"), dtype=scores.dtype)
        return mx.put_along_axis(others, tokens[None], scores, axis=-1)
