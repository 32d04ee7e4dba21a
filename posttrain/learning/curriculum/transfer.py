"""Which difficulty to practice on next, by a model of what practice elsewhere is worth."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.arms import ArmStream, categories, solved_share
from posttrain.learning.curriculum.base import GroupResult, ProblemPool, ProblemSampler

if TYPE_CHECKING:
    from torch import Tensor


class Transfer(ProblemSampler):
    """Practice on one difficulty for `steps` steps, then on that from which most is expected.

    Of a difficulty that was practiced on, what came of it in the end is its performance; a Gaussian
    process over the difficulties says what is to be expected of the others. What practice at x is
    worth at y is the performance at x less `slope` |x - y|. Chosen is the x whose upper confidence
    bound raises the best worth of all y, on average, the most.
    """

    SOURCE: ClassVar[str] = (
        "Model-Based Transfer Learning, Cho et al., arXiv 2408.04498, section 4: equations 3 to 6"
        " and algorithm 1"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "difficulty": "difficulty that is practiced on",
        "phases": "difficulties that were practiced on to the end, one after the other",
        "worth": "mean over all difficulties of what the practice so far is estimated to be worth",
    }

    kind: Literal["transfer"] = "transfer"
    steps: int = Field(default=10, ge=1)
    """Steps on one difficulty."""
    slope: float = Field(default=0.5, ge=0.0)
    """What is lost in performance from the easiest difficulty to the hardest."""
    length_scale: float = Field(default=0.3, gt=0.0)
    """Of the process: the distance over which performances are alike, of 1 for the whole range."""
    deviation: float = Field(default=0.3, gt=0.0)
    """Of the process: how far performances lie from their mean."""
    noise: float = Field(default=0.05, gt=0.0)
    """Standard deviation of a measured performance."""
    boldness: float = Field(default=2.0, ge=0.0)
    """Standard deviations that the upper confidence bound lies above the mean."""

    def start(self, pool: ProblemPool) -> "TransferStream":
        """Begin with the difficulty in the middle.

        Args:
            pool: The problems; solve rates are not looked at.

        Returns:
            A stream of problems, with the performances as its state.

        """
        arms = categories(pool, "difficulty", clusters=0)
        return TransferStream(arms, pool.problems["difficulty"].to_list(), config=self)


class TransferStream(ArmStream):
    """The difficulty at hand, its solve rates so far, and the performances of those before."""

    def __init__(
        self, arms: Sequence[str], difficulties: Sequence[float], *, config: Transfer
    ) -> None:
        import torch

        super().__init__(arms)
        self.config = config
        self.levels = [fmean(difficulties[problem] for problem in each) for each in self.members]
        spread = (self.levels[-1] - self.levels[0]) or 1.0
        self.at_A = torch.tensor(self.levels, dtype=torch.float64)
        self.at_A = (self.at_A - self.levels[0]) / spread
        self.arm = len(self.levels) // 2
        self.rates: list[float] = []
        self.known: dict[int, float] = {}
        """Performance of each difficulty when it was last practiced on to the end."""
        self.phases = 0

    def shares(self, step: int = 0) -> "Tensor":  # noqa: ARG002 - the phase decides
        """All of it to the difficulty at hand; see `ArmStream.shares`."""
        import torch

        # The others at a hair: a difficulty with fewer problems than a step needs is made up for.
        shares_A = torch.full_like(self.at_A, 1e-12)
        shares_A[self.arm] = 1.0
        return shares_A

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Count the step, and choose again at a phase's end; see `ProblemStream.observe`."""
        share = solved_share(self.by_arm(results).get(self.arm, []))
        self.rates.append(share if share is not None else math.nan)
        if len(self.rates) < self.config.steps:
            return
        # The last quarter: what came of it in the end.
        last = [each for each in self.rates[-math.ceil(self.config.steps / 4) :] if each == each]
        if last:
            self.known[self.arm] = fmean(last)
        self.rates, self.phases = [], self.phases + 1
        if self.known:
            self.arm = int(self._gains().argmax())

    def _gains(self) -> "Tensor":
        """By how much practice at each difficulty is hoped to raise the mean worth, ``[A]``."""
        mean_A, deviation_A = self._expected()
        lost_AA = self.config.slope * (self.at_A[:, None] - self.at_A[None]).abs()
        hoped_AA = (mean_A + self.config.boldness * deviation_A)[:, None] - lost_AA
        gains_A: Tensor = (hoped_AA - self._worth()[None]).clamp_min(0.0).mean(dim=1)
        return gains_A

    def _worth(self) -> "Tensor":
        """The best that the practice so far is worth at each difficulty, ``[A]``."""
        import torch

        at = torch.tensor([*self.known])
        performance_K = torch.tensor([*self.known.values()], dtype=torch.float64)
        lost_KA = self.config.slope * (self.at_A[at][:, None] - self.at_A[None]).abs()
        return (performance_K[:, None] - lost_KA).amax(dim=0)

    def _expected(self) -> tuple["Tensor", "Tensor"]:
        """Mean and standard deviation of the process at each difficulty, ``[A]`` each."""
        import torch

        at = torch.tensor([*self.known])
        performance_K = torch.tensor([*self.known.values()], dtype=torch.float64)
        middle = performance_K.mean()
        apart_AA = (self.at_A[:, None] - self.at_A[None]) / self.config.length_scale
        alike_AA = self.config.deviation**2 * torch.exp(-0.5 * apart_AA**2)
        noise_KK = self.config.noise**2 * torch.eye(len(at), dtype=torch.float64)
        solved_KA = torch.linalg.solve(alike_AA[at][:, at] + noise_KK, alike_AA[at])
        mean_A = middle + solved_KA.T @ (performance_K - middle)
        variance_A = alike_AA.diagonal() - (alike_AA[at] * solved_KA).sum(dim=0)
        return mean_A, variance_A.clamp_min(0.0).sqrt()

    def state_dict(self) -> dict[str, Any]:
        """The phase, and what came of those before."""
        return {
            "arm": self.arm,
            "rates": list(self.rates),
            "known": list(self.known.items()),
            "phases": self.phases,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.arm, self.phases = int(state["arm"]), int(state["phases"])
        self.rates = [float(each) for each in state["rates"]]
        self.known = {int(arm): float(each) for arm, each in state["known"]}

    def metrics(self) -> dict[str, float]:
        """Where it is."""
        return {
            "difficulty": self.levels[self.arm],
            "phases": float(self.phases),
            "worth": float(self._worth().mean()) if self.known else 0.0,
        }
