"""How a learner's frozen weights are held, by the word for it in a recipe."""

from collections.abc import Callable, Mapping

from torch import nn

from posttrain.learning.models.held_weights import hold_in_bf16


def hold_as(model: nn.Module, weights: str) -> None:
    """Hold the frozen weights of a model as a learner asks for.

    Args:
        model: Changed in place.
        weights: A word of `HOLDERS`.

    """
    HOLDERS[weights](model)


def _as_they_are(model: nn.Module) -> None:
    """Leave weights alone that were loaded in float32."""


def _in_nf4(model: nn.Module) -> None:
    # A run without it needs no bitsandbytes.
    from posttrain.learning.models.nf4 import hold_in_nf4

    hold_in_nf4(model)


HOLDERS: Mapping[str, Callable[[nn.Module], None]] = {
    "fp32": _as_they_are,
    "bf16": hold_in_bf16,
    "nf4": _in_nf4,
}
"""By `learner.weights`."""
