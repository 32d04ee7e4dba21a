"""A model behind an endpoint says which of two answers is better."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.oracles.base import PairOracle
from posttrain.learning.rewards.components.pairwise import PairwiseComponent

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class JudgeOracle(PairOracle):
    """Asks a model about both orders of two answers, as the reward component `pairwise` does."""

    SOURCE = "both orders as arXiv 2306.05685"

    kind: Literal["judge"] = "judge"
    asks: PairwiseComponent
    """Where the model answers, and what it is asked: the settings of the component `pairwise`."""

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],  # noqa: ARG002 - the model says
    ) -> list[float | None]:
        """Ask about all pairs at once; see `PairOracle.prefers`."""
        groups = [
            Answers(problem, pair, lengths=(0, 0), truncated=(False, False)) for pair in pairs
        ]
        rates = self.asks.score_all(groups, Inquiry(verify=lambda _answers: []))
        return [first for first, _ in rates]
