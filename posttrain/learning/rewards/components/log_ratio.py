"""How much likelier an answer is to one policy than to another: what a DPO run implies."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class LogRatioComponent(Component):
    """`beta x sum over drawn tokens of log p_of - log p_against`, or its mean over the tokens.

    Both policies come through the stage's port `references`. With `of` trained by DPO from
    `against` the sum is the reward that the pairs imply, up to a constant of the problem.
    """

    SOURCE = "DPO, arXiv 2305.18290, equation 5; summed over tokens as RTO's, arXiv 2404.18922"
    RANGE: ClassVar[Range] = (-math.inf, math.inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["log_ratio"] = "log_ratio"
    of: str
    """Name under `inputs.references` of the policy whose likelihood is paid."""
    against: str
    """Name of the policy that it is held against."""
    beta: float = Field(default=0.1, gt=0.0)
    """Factor on the log-ratio, as in the loss that trained `of`."""
    per_token: bool = False
    """Take the mean over the drawn tokens in place of the sum, which grows with length."""

    def ports(self) -> Sequence[str]:
        """Return the ports of both policies; see `Component.ports`."""
        return f"references.{self.of}", f"references.{self.against}"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask about one group; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Give both policies all answers at once; see `Component.score_all`."""
        from posttrain.learning.rewards.components.answer_tokens import answers_logprobs

        drawn = [each for group in groups for each in group.drawn]
        above, below = (
            [math.fsum(row) for row in answers_logprobs(known.models.reference(name), groups)]
            for name in (self.of, self.against)
        )
        lengths = [sum(each) if self.per_token else 1 for each in drawn]
        scores = iter(
            self.beta * (one - other) / max(length, 1)
            for one, other, length in zip(above, below, lengths, strict=True)
        )
        return [[next(scores) for _ in group.texts] for group in groups]
