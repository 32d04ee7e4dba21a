"""What all advantages share: whitening, sign weights, what becomes of truncated rollouts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import Bearing, RolloutBatch, TokenCost
from posttrain.learning.algorithms.part import AlgorithmPart

if TYPE_CHECKING:
    from torch import Tensor


class Advantage(AlgorithmPart):
    """How rewards become advantages."""

    PER_TOKEN: ClassVar[bool] = True
    """True where the tokens of one rollout may have different advantages."""
    CREDITS: ClassVar[frozenset[str]] = frozenset()
    """Scopes, `turn` or `token`, of reward components that it takes: what one of these places is
    paid reaches that place and those before it alone."""

    CRITIC: ClassVar[Literal["return", "outcome"]] = "return"
    """What the values are that it asks a critic for: `critic.target` has to be the same."""

    whiten: Literal["none", "sample", "population"] = "none"
    """Shift to mean 0 and scale to deviation 1 over the tokens of the batch."""
    whiten_epsilon: float = Field(default=1e-8, ge=0.0)
    """Added to the variance under the root; counts with `whiten` only."""
    positive_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages above 0."""
    negative_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages below 0."""
    learn_from: Literal["all", "positive", "negative"] = "all"
    """Rollouts that bear loss and count in denominators: all, or those with an advantage of this
    sign, taken before the weights (arXiv 2506.01347 learns from the negative ones alone)."""
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
        if {"positive": self.positive_weight, "negative": self.negative_weight}.get(
            self.learn_from, 1.0
        ) == 0.0:
            raise ValueError(
                f"learn_from {self.learn_from} with {self.learn_from}_weight 0 leaves no gradient;"
                " set the weight above 0"
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

        Where `compares_rewards`, it is also asked which groups teach something, by rewards alone:
        then what `NEEDS` names beside `turns`, `states` and the engine's log-probabilities is None.

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

    def bearing(self, rollouts: RolloutBatch) -> Bearing | None:  # noqa: ARG002 - for a part
        """Say which drawn tokens bear the policy's loss, and which the critic's.

        Args:
            rollouts: The whole generation.

        Returns:
            Two masks, also of rollouts that are not scored; None where all tokens of a rollout that
            is learned from bear both.

        """
        return None

    @property
    def compares_rewards(self) -> bool:
        """True where equal rewards in a group teach nothing, whatever else is known of it."""
        return False

    @property
    def rewards_alone(self) -> bool:
        """True where a rollout's advantage is its own reward, and so has its sign."""
        return False

    def describe(self) -> str:
        """Name, whitening, sign weights and what becomes of truncated rollouts."""
        text = self._name()
        if self.whiten != "none":
            text += " whitened"
        if (self.positive_weight, self.negative_weight) != (1.0, 1.0):
            text += f" x{self.positive_weight:g} good x{self.negative_weight:g} bad"
        if self.learn_from != "all":
            text += f", {self.learn_from} alone"
        return text if self.truncated == "keep" else f"{text}, truncated {self.truncated}"

    def refuse_group_size(self, group_size: int) -> str | None:
        """Say why groups of this size teach nothing, with the remedy; None where they do."""
        return None

    def _name(self) -> str:
        return str(self.kind)
