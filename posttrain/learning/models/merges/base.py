"""The slot of the merges: what a part of it implements, and what it is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

NamedWeights = Mapping[str, "Tensor"]
"""Tensors of one model by name, float32; tied ones once."""


@dataclass(frozen=True)
class ToMerge:
    """The models that become one; all have tensors of the same names and shapes."""

    policies: Mapping[str, NamedWeights]
    """By the name under which each is connected, in alphabetical order; at least one."""
    base: NamedWeights
    """What they were trained from; empty unless the part has ``"base"`` in `NEEDS`."""
    seed: int = 0
    """Of whatever is drawn by chance."""

    def deltas(self) -> "dict[str, dict[str, Tensor]]":
        """What training added to the base, by policy and tensor."""
        return {
            policy: {name: weight - self.base[name] for name, weight in weights.items()}
            for policy, weights in self.policies.items()
        }


class Merge(Part):
    """Makes the weights of one model of those of several.

    A part that starts from what training added to a common base has ``"base"`` in `NEEDS`.
    """

    def merged(self, given: ToMerge) -> "dict[str, Tensor]":
        """Combine the weights.

        Args:
            given: The models, which are not changed.

        Returns:
            A tensor for each name, of the shape that it has in the models.

        """
        raise NotImplementedError

    def figures(self, given: ToMerge) -> Mapping[str, float]:  # noqa: ARG002 - most have none
        """Measure what is particular to this way of merging.

        Args:
            given: The models.

        Returns:
            Finite numbers by name, for the report.

        """
        return {}
