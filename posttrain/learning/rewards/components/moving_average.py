"""What a role has earned of late: a baseline for roles whose luck differs."""

from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class MovingAverageComponent(Component):
    """The moving average of another component's scores by role, as it was before these answers.

    With a negative weight beside that component, and an advantage without a baseline, every role is
    held against what it usually earns (role-conditioned advantage estimation). The average moves
    once a round of sampling, by the mean of the role's scores; it is in the checkpoint.
    """

    SOURCE = "SPIRAL, arXiv 2506.24119, section 3.3: role-conditioned advantage estimation"
    SCOPE: ClassVar[Literal["group"]] = "group"
    RANGE: ClassVar[Range] = (-1.0, 1.0)

    kind: Literal["moving_average"] = "moving_average"
    of: str
    """The component whose scores are averaged."""
    decay: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Weight of what was known before a round; the first round has an average of 0 before it."""

    def reads(self) -> Sequence[str]:
        """Read that component; see `Component.reads`."""
        return (self.of,)

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Give what was usual, then learn what is; see `Component.score_all`."""
        usual: dict[str, float] = dict(known.state)
        met: dict[str, list[float]] = {}
        for group in groups:
            scores = [each for each in group.scores[self.of] if each is not None]
            met[group.role] = [*met.get(group.role, ()), *scores]
        for role, scores in met.items():
            if scores:
                before = usual.get(role, 0.0)
                known.state[role] = self.decay * before + (1.0 - self.decay) * fmean(scores)
        return [[usual.get(group.role, 0.0)] * len(group.texts) for group in groups]
