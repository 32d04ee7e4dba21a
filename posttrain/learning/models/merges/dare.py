"""Changes of which most are dropped by chance, and the rest scaled up."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.models.merges.base import Merge, ToMerge
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from torch import Tensor


class Dare(Merge):
    """Drop each change with a probability, scale up the rest, and add what is left to the base.

    θ = θ_0 + λ Σ_m z_m (θ_m - θ_0) / (1 - p), with z_m = 0 with probability p and else 1, drawn
    for every weight: in expectation the sum of the changes.
    """

    SOURCE = "DARE, arXiv 2311.03099, section 3.2 (drop and rescale), merged by task arithmetic"
    NEEDS = frozenset({"base"})

    kind: Literal["dare"] = "dare"
    drop: float = Field(default=0.9, ge=0.0, lt=1.0)
    """p, the probability with which a weight's change is dropped."""
    scale: float = 1.0
    """λ, by which the sum is multiplied."""

    def merged(self, given: ToMerge) -> "dict[str, Tensor]":
        """Draw and add; see `Merge.merged`."""
        import torch

        merged = {name: weight.clone() for name, weight in given.base.items()}
        for policy, delta in given.deltas().items():
            for name, change in sorted(delta.items()):
                seed = purpose_seed(given.seed, "dare", policy, name)
                noise = torch.rand(change.shape, generator=torch.Generator().manual_seed(seed))
                kept = change * (noise >= self.drop)
                merged[name] += self.scale / (1 - self.drop) * kept
        return merged
