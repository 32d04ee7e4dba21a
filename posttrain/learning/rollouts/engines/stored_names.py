"""Weights under the names, and in the shapes, of a checkpoint: what other engines read."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LAYER = re.compile(r".*?\.\d+\.")


def as_stored(
    model: "PreTrainedModel", weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Give weights the names and shapes that `save_pretrained` would write.

    transformers holds the experts of a layer in one tensor, and calls layers of some architectures
    otherwise than their checkpoints do. A layer is turned back at a time, so that no more than its
    experts are there twice.

    Args:
        model: Whose weights they are.
        weights: By the module's own names, those of a layer in a row.

    Yields:
        Name and tensor.

    """
    from transformers.core_model_loading import revert_weight_conversion

    for _, layer in groupby(weights, key=lambda each: _layer_of(each[0])):
        yield from revert_weight_conversion(model, dict(layer)).items()


def _layer_of(name: str) -> str:
    found = _LAYER.match(name)
    return found[0] if found else ""
