"""A bandit whose arms are categories of problems."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.arms import ArmStream, Category, categories, solved_share
from posttrain.learning.curriculum.base import GroupResult, ProblemPool, ProblemSampler

if TYPE_CHECKING:
    from torch import Tensor


class CategoryBandit(ProblemSampler):
    """Draw categories by softmax(Q / temperature): Q goes by TD(0) to what each paid in a step.

    Q <- (1 - rate) Q + rate pay. What pays is the mean absolute advantage of its rollouts (SEC);
    how much its solve rate moved since it was last drawn (a student's progress); or by how much the
    best rollout of a group surpasses the mean one (regret, as an antagonist's maximum does).
    """

    SOURCE: ClassVar[str] = (
        "SEC, arXiv 2505.14970, section 3; progress: Matiisen et al., arXiv 1707.00183; regret:"
        " CLUTR, arXiv 2210.10243"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "value": "mean of Q over the categories",
        "value_spread": "highest Q less the lowest",
        "difficulty": "mean difficulty of a category, weighted by its share of the draws",
        "entropy": "of the shares of the categories, as a part of the most that it can be",
    }

    kind: Literal["bandit"] = "bandit"
    by: Category = "source_and_difficulty"
    """What the problems of a category share."""
    clusters: int = Field(default=8, ge=2)
    """Categories of `by: text`."""
    paid_by: Literal["advantage", "progress", "regret"] = "advantage"
    """What a category pays in a step."""
    rate: float = Field(default=0.5, gt=0.0, le=1.0)
    """Step size of Q."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Of the softmax over Q: low draws the best category alone, high all alike."""
    idle: Literal["fade", "keep"] = "fade"
    """A category that was not drawn in a step paid 0, or keeps its Q."""

    def start(self, pool: ProblemPool) -> "BanditStream":
        """Begin with all categories alike.

        Args:
            pool: The problems; solve rates are not looked at.

        Returns:
            A stream of problems, with Q as its state.

        """
        arms = categories(pool, self.by, clusters=self.clusters)
        return BanditStream(arms, pool.problems["difficulty"].to_list(), config=self)


class BanditStream(ArmStream):
    """Q of every category, and the solve rate that it had when it was last drawn."""

    def __init__(
        self, arms: Sequence[str], difficulties: Sequence[float], *, config: CategoryBandit
    ) -> None:
        import torch

        super().__init__(arms)
        self.config = config
        self.value_A = torch.zeros(len(self.names), dtype=torch.float64)
        self.rate_A = torch.zeros(len(self.names), dtype=torch.float64)
        hard = [fmean(difficulties[problem] for problem in each) for each in self.members]
        self.difficulty_A = torch.tensor(hard, dtype=torch.float64)

    def shares(self, step: int = 0) -> "Tensor":  # noqa: ARG002 - what was paid decides
        """softmax(Q / temperature), ``[A]``; see `ArmStream.shares`."""
        import torch

        return torch.softmax(self.value_A / self.config.temperature, dim=0)

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Move Q; see `ProblemStream.observe`."""
        paid = {arm: self._pay(arm, own) for arm, own in self.by_arm(results).items()}
        if self.config.idle == "fade":
            paid = {arm: paid.get(arm, 0.0) for arm in range(len(self.names))}
        for arm, pay in paid.items():
            self.value_A[arm] += self.config.rate * (pay - self.value_A[arm])

    def _pay(self, arm: int, results: Sequence[GroupResult]) -> float:
        if self.config.paid_by == "advantage":
            sizes = [abs(each) for result in results for each in result.advantages]
            return fmean(sizes) if sizes else 0.0
        if self.config.paid_by == "regret":
            gaps = [_regret(result) for result in results]
            return fmean(gaps) if gaps else 0.0
        now = solved_share(results)
        if now is None:
            return 0.0
        before, self.rate_A[arm] = float(self.rate_A[arm]), now
        return abs(now - before)

    def state_dict(self) -> dict[str, Any]:
        """Q, and the last solve rates."""
        return {"values": self.value_A.clone(), "rates": self.rate_A.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.value_A, self.rate_A = state["values"].clone(), state["rates"].clone()

    def metrics(self) -> dict[str, float]:
        """Q, and what is drawn by it."""
        import math

        import torch

        shares_A = self.shares()
        most = math.log(len(self.names)) or 1.0
        return {
            "value": float(self.value_A.mean()),
            "value_spread": float(self.value_A.max() - self.value_A.min()),
            "difficulty": float((shares_A * self.difficulty_A).sum()),
            "entropy": float(torch.special.entr(shares_A).sum()) / most,
        }


def _regret(result: GroupResult) -> float:
    """The best reward of a group less its mean; 0 where nothing was judged."""
    judged = [each for each in result.rewards if each is not None]
    return max(judged) - fmean(judged) if judged else 0.0
