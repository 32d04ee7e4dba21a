"""Models averaged weight by weight."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.models.merges.base import Merge, ToMerge
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor


class Average(Merge):
    """Average the models weight by weight: θ = Σ w_m θ_m / Σ w_m."""

    SOURCE = "Model soups, arXiv 2203.05482, section 2 (uniform soup); weighted as in WiSE-FT"

    kind: Literal["average"] = "average"
    shares: dict[str, float] = Field(default_factory=dict)
    """Weight of a model by the name under which it is connected; 1 for those that are left out."""

    def merged(self, given: ToMerge) -> "dict[str, Tensor]":
        """Compute the weighted mean; see `Merge.merged`."""
        shares = shares_of(self.shares, given)
        total = sum(shares.values())
        if min(shares.values()) < 0 or not total > 0:
            raise UserError(
                f"merge.method.shares: they are {shares}; give weights from 0 on, and one above 0"
            )
        merged: dict[str, Tensor] = {}
        for policy, weights in given.policies.items():
            for name, weight in weights.items():
                part = weight * (shares[policy] / total)
                merged[name] = merged[name] + part if name in merged else part
        return merged


def shares_of(
    stated: dict[str, float], given: ToMerge, *, otherwise: float = 1.0
) -> dict[str, float]:
    """Give every model its number.

    Args:
        stated: By the name of a model.
        given: The models.
        otherwise: The number of those that are not stated.

    Returns:
        Numbers by model, in the order of the models.

    Raises:
        UserError: One is stated that is not there.

    """
    for name in stated:
        if name not in given.policies:
            hint = nearest(name, given.policies) or f"; there are {', '.join(given.policies)}"
            raise UserError(f"merge.method: no policy '{name}' is connected{hint}")
    return {name: stated.get(name, otherwise) for name in given.policies}
