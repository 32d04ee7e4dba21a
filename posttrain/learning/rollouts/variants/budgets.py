"""Graded at several budgets of tokens, and on average over them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem


class Budgets(Variant):
    """Counts a sample as right at a budget where it is right and had ended by then.

    `at_B` is that share for each budget, `ended_B` the share that had ended, `average` the mean
    over all budgets, by which a policy is judged that is to do well at any of them. Nothing is
    drawn anew: a sampler that stops at B writes the first B tokens of the same sample.
    """

    SOURCE = (
        "Patel and Siegelmann, 'Overcoming Slow Decision Frequencies in Continuous Control',"
        " arXiv:2410.08979, section 5: the score averaged over decision frequencies; budgets of"
        " tokens stand for frequencies"
    )

    kind: Literal["budgets"] = "budgets"
    tokens: tuple[int, ...] = Field(min_length=1)
    """The budgets, the end token counted, each above 0."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if min(self.tokens) < 1 or sorted(set(self.tokens)) != [*self.tokens]:
            raise ValueError(f"tokens are budgets above 0 that rise, got {[*self.tokens]}")
        return self

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,  # noqa: ARG002 - see `Variant.measured`
        problems: Sequence["Problem"],  # noqa: ARG002
    ) -> Mapping[str, "Tensor"]:
        """Grade at each budget; see `Variant.measured`."""
        import torch

        assert drawn.lengths_PN is not None
        found = {}
        for budget in self.tokens:
            ended_PN = (drawn.lengths_PN <= budget).double()
            found[f"at_{budget}"] = (ended_PN * drawn.correct_PN).mean(-1)
            found[f"ended_{budget}"] = ended_PN.mean(-1)
        at = torch.stack([found[f"at_{budget}"] for budget in self.tokens])
        return {**found, "average": at.mean(0)}
