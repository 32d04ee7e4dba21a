"""What training added, scaled and put together on one base."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.models.merges.average import shares_of
from posttrain.learning.models.merges.base import Merge, ToMerge

if TYPE_CHECKING:
    from torch import Tensor


class TaskArithmetic(Merge):
    """Add to the base what training added to each model, scaled: θ = θ_0 + Σ λ_m (θ_m - θ_0).

    A negative λ takes away what one training taught.
    """

    SOURCE = (
        "Task arithmetic, arXiv 2212.04089, section 2 (addition and negation of task vectors);"
        " mlfoundations/task_vectors at 826a64c, src/task_vectors.py (apply_to)"
    )
    NEEDS = frozenset({"base"})

    kind: Literal["task_arithmetic"] = "task_arithmetic"
    scale: float = 0.4
    """λ of every model. The paper chooses it on held-out data; the default of its code is 1, and
    the examples of its README have 0.5 for a negation and 0.8 for a sum of two. 0.4 is own, a
    beginning: what several models learned, added in full, may lead too far from the base."""
    scales: dict[str, float] = Field(default_factory=dict)
    """λ of single models, by the name under which they are connected, in place of `scale`."""

    def merged(self, given: ToMerge) -> "dict[str, Tensor]":
        """Compute the sum; see `Merge.merged`."""
        scales = shares_of(self.scales, given, otherwise=self.scale)
        merged = {name: weight.clone() for name, weight in given.base.items()}
        for policy, delta in given.deltas().items():
            for name, change in delta.items():
                merged[name] += scales[policy] * change
        return merged
