"""How a learner's frozen weights are held, by the word for it in a recipe."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from posttrain.learning.models.held_weights import hold_in_bf16

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def hold_as(model: "PreTrainedModel", weights: str) -> None:
    """Hold the frozen weights of a model as a learner asks for.

    Args:
        model: Changed in place.
        weights: A word of `HOLDERS`.

    """
    HOLDERS[weights](model)


def _as_they_are(model: "PreTrainedModel") -> None:
    """Leave weights alone that were loaded in float32."""


def _in_nf4(model: "PreTrainedModel") -> None:
    # A run without it needs no bitsandbytes.
    from posttrain.learning.models.nf4 import hold_in_nf4

    hold_in_nf4(model)


HOLDERS: Mapping[str, Callable[["PreTrainedModel"], None]] = {
    "fp32": _as_they_are,
    "bf16": hold_in_bf16,
    "nf4": _in_nf4,
}
"""By `learner.weights`."""
