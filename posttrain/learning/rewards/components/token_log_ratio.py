"""How much likelier each token is to one policy than to another: a reward for every token."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class TokenLogRatioComponent(Component):
    """`beta x (log p_of - log p_against)` at each drawn token, which is paid where it stands.

    Both policies come through the stage's port `references`. With `of` trained by DPO from
    `against` it is the reward for a token that the pairs imply. It is shown as its sum, and taken
    with `advantage` gae (as the paper does) or returns. Weights of 1 and of the verifier's or the
    model's own are those of the paper's sum; its divergence is the algorithm's `kl` in the reward.
    """

    SOURCE = "RTO, arXiv 2404.18922, and its code (zkshan2002/RTO f2c1294): scale, then clip"
    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[Range] = (-math.inf, math.inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["token_log_ratio"] = "token_log_ratio"
    of: str
    """Name under `inputs.references` of the policy whose likelihood is paid."""
    against: str
    """Name of the policy that it is held against."""
    beta: float = Field(default=0.05, gt=0.0)
    """Factor on the log-ratio."""
    clip: float | None = Field(default=None, gt=0.0)
    """The most that one token is paid or fined; null for any."""

    def ports(self) -> Sequence[str]:
        """Return the ports of both policies; see `Component.ports`."""
        return f"references.{self.of}", f"references.{self.against}"

    def score_tokens(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Give both policies all answers at once; see `Component.score_tokens`."""
        from posttrain.learning.rewards.components.answer_tokens import answers_logprobs

        above, below = (
            answers_logprobs(known.models.reference(name), groups)
            for name in (self.of, self.against)
        )
        paid = iter(
            [self._paid(each - other) for each, other in zip(one, rest, strict=True)]
            for one, rest in zip(above, below, strict=True)
        )
        return [[next(paid) for _ in group.texts] for group in groups]

    def _paid(self, log_ratio: float) -> float:
        scaled = self.beta * log_ratio
        return scaled if self.clip is None else max(-self.clip, min(self.clip, scaled))
