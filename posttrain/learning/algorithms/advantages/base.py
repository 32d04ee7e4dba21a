"""What all advantages share: whose rewards count, whitening, sign weights, who bears loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import (
    RolloutBatch,
    TokenAdvantages,
    TokenCost,
    needed,
)
from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor


class Advantage(AlgorithmPart):
    """How rewards become advantages."""

    IMPLEMENT_ONE_OF: ClassVar[tuple[str, ...]] = ("estimate",)

    PER_TOKEN: ClassVar[bool] = True
    """True where the tokens of one rollout may have different advantages."""

    whiten: Literal["none", "sample", "population"] = "none"
    """Shift to mean 0 and scale to deviation 1 over the tokens of the batch."""
    whiten_epsilon: float = Field(default=1e-8, ge=0.0)
    """Added to the variance under the root; counts with `whiten` only."""
    positive_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages above 0."""
    negative_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages below 0."""
    truncated: Literal["keep", "mask", "drop"] = "keep"
    """Rollouts cut off at the limit of tokens: learn from them, bear no loss for them, or leave
    them out of the statistics too."""

    def without_effect(self) -> frozenset[str]:
        """`whiten_epsilon` without whitening."""
        return frozenset({"whiten_epsilon"} if self.whiten == "none" else ())

    @model_validator(mode="after")
    def _has_a_sign(self) -> Self:
        if self.positive_weight == self.negative_weight == 0.0:
            raise ValueError(
                "positive_weight and negative_weight are both 0, which leaves no gradient;"
                " set one of them above 0"
            )
        return self

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Estimate the advantages, before whitening and sign weights.

        Args:
            rollouts: The whole generation.
            rewards_B: Its rewards, with what the algorithm adds to them.
            costs: What is taken off the reward of each token.
            include_B: Rollouts that count; None where all do.

        Returns:
            Advantages `[B, T]` or `[B, 1]`, and the targets of a critic `[B, T]`, if there is one.

        Raises:
            ValueError: A tensor that the part needs is missing.

        """
        raise NotImplementedError

    def assign(
        self, rollouts: RolloutBatch, *, rewards_B: "Tensor", costs: Sequence[TokenCost] = ()
    ) -> TokenAdvantages:
        """Estimate, whiten and weigh the advantages of a whole generation.

        Args:
            rollouts: The whole generation: its statistics are taken before it is cut up.
            rewards_B: Its rewards, with what the algorithm adds to them.
            costs: What is taken off the reward of each token.

        Returns:
            The advantages, the targets of a critic, and who bears loss.

        Raises:
            ValueError: A tensor that the part needs is missing.

        """
        import torch

        from posttrain.learning.maths.whitening import whiten

        include_B = self._included(rollouts, dropped=self.truncated == "drop")
        values_BT, returns_BT = self.estimate(
            rollouts, rewards_B=rewards_B, costs=costs, include_B=include_B
        )
        if self.whiten != "none":
            mask_BT = needed(rollouts.mask_BT, "mask_BT", "whiten").bool()
            counted_BT = mask_BT if include_B is None else mask_BT & include_B[:, None]
            values_BT = whiten(
                values_BT.expand_as(mask_BT),
                counted_BT,
                spread=self.whiten,
                epsilon=self.whiten_epsilon,
            )
        bears_loss_B = self._included(rollouts, dropped=self.truncated != "keep")
        if bears_loss_B is None:
            bears_loss_B = torch.ones_like(rollouts.group_B, dtype=torch.bool)
        else:
            values_BT = torch.where(bears_loss_B[:, None], values_BT, 0.0)
        if self.positive_weight != 1.0 or self.negative_weight != 1.0:
            values_BT = torch.where(
                values_BT > 0, values_BT * self.positive_weight, values_BT * self.negative_weight
            )
        return TokenAdvantages(values_BT, returns_BT, bears_loss_B)

    def informative(self, rollouts: RolloutBatch) -> "Tensor":
        """Tell which rollouts have something to teach by their rewards alone.

        What the reward is for is judged: no length penalty, no divergence, no critic. Where an
        advantage is more than a reward against those of its group, every rollout has.

        Args:
            rollouts: Any number of whole groups.

        Returns:
            `[B]`, true or false; a group is learned from where it holds for one of its rollouts.

        """
        import torch

        return torch.ones_like(rollouts.group_B, dtype=torch.bool)

    def describe(self) -> str:
        """Name, whitening, sign weights and what becomes of truncated rollouts."""
        text = self._name()
        if self.whiten != "none":
            text += " whitened"
        if (self.positive_weight, self.negative_weight) != (1.0, 1.0):
            text += f" x{self.positive_weight:g} good x{self.negative_weight:g} bad"
        return text if self.truncated == "keep" else f"{text}, truncated {self.truncated}"

    def refuse_group_size(self, group_size: int) -> str | None:
        """Say why groups of this size teach nothing, with the remedy; None where they do."""
        return None

    def _name(self) -> str:
        return str(self.kind)

    def _included(self, rollouts: RolloutBatch, *, dropped: bool) -> "Tensor | None":
        """Rollouts that were judged and, where `dropped`, not cut off; None where all count."""
        scored_B = None if rollouts.scored_B is None else rollouts.scored_B.bool()
        if not dropped:
            return scored_B
        whole_B = ~needed(rollouts.truncated_B, "truncated_B", "advantage.truncated").bool()
        return whole_B if scored_B is None else scored_B & whole_B
