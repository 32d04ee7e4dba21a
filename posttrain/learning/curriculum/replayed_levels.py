"""Prioritized level replay: problems on which something is left to gain are drawn again."""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.base import (
    GroupResult,
    ProblemPool,
    ProblemSampler,
    ProblemStream,
)
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


class ReplayedLevels(ProblemSampler):
    """Draw a problem again by its regret, or one that was never drawn.

    A problem that was practiced on is drawn by (1 - stale) h^(-1 / temperature) + stale (steps
    since its last draw), each normalized to sum to 1, where h is its rank by regret. Regret is what
    the best attempt ever earned less what the present ones earn on average (`best`); what a
    reference policy earns less that (`reference`, from connected solve rates); or the mean absolute
    advantage (`advantage`).
    """

    SOURCE: ClassVar[str] = (
        "Prioritized Level Replay, Jiang et al., arXiv 2010.03934, algorithm 2 and equations 2 to"
        " 4; best: MaxMC of arXiv 2110.02439; reference: algorithmic regret of GROOVE, arXiv"
        " 2310.02782, equation 3"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "regret": "mean regret of the problems that were practiced on",
        "practiced": "share of all problems that were practiced on",
    }

    kind: Literal["replayed_levels"] = "replayed_levels"
    regret: Literal["best", "reference", "advantage"] = "best"
    """What a problem's priority is."""
    replay: float = Field(default=0.5, ge=0.0, le=1.0)
    """Probability of drawing a known problem again rather than a new one."""
    temperature: float = Field(default=0.1, gt=0.0)
    """Of the ranks: low draws the highest regret alone, high all alike."""
    stale: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of the draws that go by how long ago a problem was last drawn."""

    def start(self, pool: ProblemPool) -> "ReplayedLevelsStream":
        """Begin with nothing practiced on.

        Args:
            pool: The problems, with solve rates of the reference where the regret is by it.

        Returns:
            A stream of problems, with their regrets as its state.

        Raises:
            UserError: The regret is by a reference and no problem has a solve rate of it.

        """
        import torch

        reference_P = torch.full((len(pool.problems),), torch.nan, dtype=torch.float64)
        if self.regret == "reference":
            known = pool.rates()
            rates = [known.get(name) for name in pool.problems["id"].to_list()]
            if not any(each is not None for each in rates):
                raise UserError(
                    f"{pool.where}: regret against a reference needs solve rates of these problems"
                    " by the reference policy; connect its probe, or set regret to best"
                )
            filled = [torch.nan if each is None else each for each in rates]
            reference_P = torch.tensor(filled, dtype=torch.float64)
        return ReplayedLevelsStream(reference_P, self)


class ReplayedLevelsStream(ProblemStream):
    """Regret, best reward and last step of every problem that was practiced on."""

    def __init__(self, reference_P: "Tensor", config: ReplayedLevels) -> None:
        import torch

        self.reference_P = reference_P
        self.config = config
        self.regret_P = torch.full_like(reference_P, torch.nan)
        self.best_P = torch.full_like(reference_P, -torch.inf)
        self.last_P = torch.full(reference_P.shape, -1)
        self.steps = 0

    def weights(self) -> "Tensor":
        """Probability of each problem that was practiced on to be drawn again, ``[P]``."""
        import torch

        known_N = self.regret_P.isfinite().nonzero().flatten()
        weights_P = torch.zeros_like(self.regret_P)
        if not len(known_N):
            return weights_P
        order_N = known_N[self.regret_P[known_N].argsort(descending=True, stable=True)]
        ranks_N = torch.arange(1, len(order_N) + 1, dtype=torch.float64)
        by_rank_N = ranks_N ** (-1.0 / self.config.temperature)
        waited_N = (self.steps - self.last_P[order_N]).double()
        weights_P[order_N] = (
            1 - self.config.stale
        ) * by_rank_N / by_rank_N.sum() + self.config.stale * waited_N / waited_N.sum()
        return weights_P

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Draw known problems by their weight, and new ones alike; see `ProblemStream.draw`."""
        from posttrain.stage.seeds import purpose_seed

        chance = Random(purpose_seed(seed, "curriculum", step, len(without)))
        taken, weights = set(without), self.weights().tolist()
        known = {p: w for p, w in enumerate(weights) if w > 0 and p not in taken}
        new = [p for p, w in enumerate(weights) if not w and p not in taken]
        chance.shuffle(new)
        chosen: list[int] = []
        while (known or new) and len(chosen) < count:
            if known and (not new or chance.random() < self.config.replay):
                (problem,) = chance.choices([*known], [*known.values()])
                del known[problem]
            else:
                problem = new.pop()
            chosen.append(problem)
        return chosen

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Take over the regrets; see `ProblemStream.observe`."""
        for result in results:
            judged = [each for each in result.rewards if each is not None]
            if not judged:
                continue
            place, mean = result.problem, fmean(judged)
            self.best_P[place] = max(float(self.best_P[place]), max(judged))
            self.last_P[place] = self.steps
            regret = {
                "best": float(self.best_P[place]) - mean,
                "reference": float(self.reference_P[place]) - mean,
                "advantage": fmean(abs(each) for each in result.advantages),
            }[self.config.regret]
            # Without a rate of the reference nothing is known of what there is to gain.
            self.regret_P[place] = regret if regret == regret else 0.0
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """What is known of the problems."""
        return {
            "regrets": self.regret_P.clone(),
            "best": self.best_P.clone(),
            "last": self.last_P.clone(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.regret_P, self.best_P = state["regrets"].clone(), state["best"].clone()
        self.last_P, self.steps = state["last"].clone(), int(state["steps"])

    def metrics(self) -> dict[str, float]:
        """What is left to gain, and how much was looked at."""
        known = self.regret_P[self.regret_P.isfinite()]
        return {
            "regret": float(known.mean()) if len(known) else 0.0,
            "practiced": len(known) / len(self.regret_P),
        }
