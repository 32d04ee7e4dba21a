"""ALP-GMM: where in the space of problems a student's progress is."""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.alike import coordinates, nearest_latest
from posttrain.learning.curriculum.base import (
    GroupResult,
    ProblemPool,
    ProblemSampler,
    ProblemStream,
)

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.mixtures import GaussianMixture


class AlpGmm(ProblemSampler):
    """Draw problems where the solve rate moves, up or down, by a mixture of Gaussians.

    The progress at a problem is |its group's mean reward - that of the nearest earlier one|. A
    mixture over coordinates and progress is fitted to the last `window` groups after each `window`
    groups; then a Gaussian is drawn in proportion to its mean progress, a point from it, and the
    problem nearest to that. A share `explore` is drawn uniformly, and all before the first fit. The
    coordinates of a problem are its difficulty, from 0 to 1, and one for each source.
    """

    SOURCE: ClassVar[str] = (
        "ALP-GMM, Portelas et al., arXiv 1910.07224, algorithm 1; flowersteam/teachDeepRL,"
        " teachDRL/teachers/algos/alp_gmm.py"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "progress": "mean absolute progress of the groups of the last fit; 0 before the first",
        "gaussians": "Gaussians of the last fit; 0 before the first",
        "difficulty": "mean difficulty of the Gaussians' centers, from 0 to 1, by their progress",
    }

    kind: Literal["alp_gmm"] = "alp_gmm"
    window: int = Field(default=250, ge=10)
    """Groups between fits, and that a fit is of."""
    explore: float = Field(default=0.2, ge=0.0, le=1.0)
    """Share of the draws that are uniform."""
    most: int = Field(default=10, ge=2)
    """Gaussians of a mixture at most, of two at least; Akaike's criterion decides."""

    def start(self, pool: ProblemPool) -> "AlpGmmStream":
        """Begin without a fit.

        Args:
            pool: The problems; solve rates are not looked at.

        Returns:
            A stream of problems, with the groups that it has heard of as its state.

        """
        return AlpGmmStream(coordinates(pool), self)


class AlpGmmStream(ProblemStream):
    """All groups with their rewards, the progress of the last ones, and the mixture."""

    def __init__(self, points_PD: "Tensor", config: AlpGmm) -> None:
        import torch

        self.points_PD = points_PD
        self.config = config
        self.reward_P = torch.full((len(points_PD),), torch.nan, dtype=torch.float64)
        """Mean reward of the last group of each problem; NaN where it had none."""
        self.age_P = torch.full((len(points_PD),), -1)
        """Number of that group."""
        self.recent: list[tuple[int, float]] = []
        """Problem and progress of the last groups, `window` at most."""
        self.heard = 0
        self.fitted: list[tuple[int, float]] = []
        """What the mixture was fitted to, from which it comes again."""
        self.mixture: GaussianMixture | None = None

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Draw points, and the nearest problems to them; see `ProblemStream.draw`."""
        import torch

        from posttrain.stage.seeds import purpose_seed

        chance = Random(purpose_seed(seed, "curriculum", step, len(without)))
        left = torch.ones(len(self.points_PD), dtype=torch.bool)
        left[list(without)] = False
        chosen: list[int] = []
        for _ in range(min(count, int(left.sum()))):
            if self.mixture is None or chance.random() < self.config.explore:
                problem = chance.choice(left.nonzero().flatten().tolist())
            else:
                away_P = (self.points_PD - self._point(self.mixture, chance)).norm(dim=1)
                nearest = float(away_P[left].min())
                alike = (left & (away_P <= nearest + 1e-9)).nonzero().flatten().tolist()
                problem = chance.choice(alike)
            left[problem] = False
            chosen.append(problem)
        return chosen

    def _point(self, mixture: "GaussianMixture", chance: Random) -> "Tensor":
        """A point of a Gaussian that is drawn by its mean progress."""
        import torch

        progress = mixture.means_KD[:, -1].clamp_min(0.0).tolist()
        if not sum(progress):
            progress = [1.0] * len(progress)
        (at,) = chance.choices(range(len(progress)), progress)
        noise = [chance.gauss(0.0, 1.0) for _ in mixture.means_KD[at]]
        return mixture.point(at, torch.tensor(noise, dtype=torch.float64))[:-1]

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Compare each group with the nearest earlier one; see `ProblemStream.observe`."""
        for result in results:
            judged = [each for each in result.rewards if each is not None]
            if not judged:
                continue
            now = sum(judged) / len(judged)
            earlier = nearest_latest(self.points_PD, result.problem, self.age_P)
            if earlier is not None:
                progress = abs(now - float(self.reward_P[earlier]))
                self.recent = [*self.recent, (result.problem, progress)][-self.config.window :]
            self.reward_P[result.problem], self.age_P[result.problem] = now, self.heard
            self.heard += 1
            if self.heard % self.config.window == 0:
                self._fit(self.recent)

    def _fit(self, pairs: Sequence[tuple[int, float]]) -> None:
        import torch

        from posttrain.learning.maths.mixtures import best_mixture

        self.fitted, self.mixture = list(pairs), None
        if pairs:
            problems, progress = zip(*pairs, strict=True)
            progress_N1 = torch.tensor(progress, dtype=torch.float64)[:, None]
            points_ND = torch.cat([self.points_PD[list(problems)], progress_N1], dim=1)
            self.mixture = best_mixture(points_ND, 2, self.config.most)

    def state_dict(self) -> dict[str, Any]:
        """What it has heard, and what the mixture is of."""
        return {
            "rewards": self.reward_P.clone(),
            "ages": self.age_P.clone(),
            "recent": list(self.recent),
            "fitted": list(self.fitted),
            "heard": self.heard,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.reward_P, self.age_P = state["rewards"].clone(), state["ages"].clone()
        self.recent = [(int(problem), float(each)) for problem, each in state["recent"]]
        self.heard = int(state["heard"])
        self._fit([(int(problem), float(each)) for problem, each in state["fitted"]])

    def metrics(self) -> dict[str, float]:
        """What the last fit found."""
        if self.mixture is None:
            return {"progress": 0.0, "gaussians": 0.0, "difficulty": 0.0}
        weights_K = self.mixture.means_KD[:, -1].clamp_min(0.0)
        total = float(weights_K.sum()) or 1.0
        return {
            "progress": sum(each for _, each in self.recent) / len(self.recent),
            "gaussians": float(len(weights_K)),
            "difficulty": float((weights_K * self.mixture.means_KD[:, 0]).sum()) / total,
        }
