"""The largest changes of each model, where most of them pull in one direction."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.models.merges.base import Merge, ToMerge

if TYPE_CHECKING:
    from torch import Tensor


class Ties(Merge):
    """Trim each change to its largest weights, elect a sign for each, average those that agree.

    δ̂_m: δ_m = θ_m - θ_0 where |δ_m| is among the largest share `density` of all weights of the
    model, else 0. s = sign(Σ_m δ̂_m), and where that is 0 the sign of the sum over all weights of
    s. θ = θ_0 + λ · mean of those δ̂_m ≠ 0 whose sign is s.
    """

    SOURCE = (
        "TIES-Merging, arXiv 2306.01708, section 4 (algorithm 1); prateeky2806/ties-merging at"
        " 641600e, src/utils/merge_utils.py (topk_values_mask, resolve_sign mass, disjoint_merge"
        " mean)"
    )
    NEEDS = frozenset({"base"})

    kind: Literal["ties"] = "ties"
    density: float = Field(default=0.2, gt=0.0, le=1.0)
    """Share of the weights of each model whose change is kept; equal ones at the limit all stay."""
    scale: float = 1.0
    """λ, by which the merged change is multiplied."""

    def merged(self, given: ToMerge) -> "dict[str, Tensor]":
        """Trim, elect, and average; see `Merge.merged`."""
        changes = self._trimmed(given)
        signs = _elected(changes)
        merged = {}
        for name, weight in given.base.items():
            stack = [change[name] * (change[name].sign() == signs[name]) for change in changes]
            agreeing = sum((each != 0).float() for each in stack)
            merged[name] = weight + self.scale * sum(stack) / agreeing.clamp(min=1.0)  # type: ignore[union-attr]
        return merged

    def figures(self, given: ToMerge) -> Mapping[str, float]:
        """Measure how often signs are in conflict, of the weights that several models kept."""
        import torch

        changes = self._trimmed(given)
        torn = shared = 0
        for name in given.base:
            stack = torch.stack([change[name].sign() for change in changes])
            several = (stack != 0).sum(dim=0) > 1
            torn += int((several & (stack.sum(dim=0).abs() < (stack != 0).sum(dim=0))).sum())
            shared += int(several.sum())
        return {"sign_conflicts": torn / shared if shared else 0.0}

    def _trimmed(self, given: ToMerge) -> "list[dict[str, Tensor]]":
        """The change of each model without its small weights."""
        import torch

        trimmed = []
        for delta in given.deltas().values():
            sizes = torch.cat([change.abs().flatten() for change in delta.values()])
            kept = math.ceil(self.density * len(sizes))
            least = sizes.kthvalue(len(sizes) - kept + 1).values
            trimmed.append({name: each * (each.abs() >= least) for name, each in delta.items()})
        return trimmed


def _elected(changes: "list[dict[str, Tensor]]") -> "dict[str, Tensor]":
    """The sign that the changes of each weight have in sum, and where they cancel that of most."""
    signs = {name: sum(each[name] for each in changes).sign() for name in changes[0]}  # type: ignore[union-attr]
    most = sum(int(each.sum()) for each in signs.values())
    usual = (most > 0) - (most < 0)
    return {name: each.masked_fill(each == 0, float(usual)) for name, each in signs.items()}
