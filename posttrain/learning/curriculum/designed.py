"""One kind of task after the other, in an order that is designed by how alike their texts are."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.arms import ArmStream, Category, categories
from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, StepCount
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 8
"""Categories all of whose orders are scored: 40320."""


class Designed(ProblemSampler):
    """Practice on each category for `steps` steps, once, in the order that scores best or worst.

    A category's place is the mean embedding of its problems' texts; distances are one less the
    cosine, each category's divided by their sum. An order scores high that begins with the category
    whose distances differ least, goes on with what is unlike the one before, and ends with what is
    like the first ones.
    """

    SOURCE: ClassVar[str] = (
        "Curriculum Designer, arXiv 2211.15470; ZhangLab-DeepNeuroCogLab/Learning2Learn at 299241f,"
        " continual baselines/utils/curriculum_utils.py (ScoreCurriculum), curriculum designer/"
        "inter-dataset similarity.ipynb"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "phases": "categories that were practiced on to the end, one after the other",
        "score": "of the order that is gone through",
        "score_spread": "of the best order less that of the worst",
    }

    kind: Literal["designed"] = "designed"
    by: Category = "source"
    """What the problems of a category share."""
    clusters: int = Field(default=5, ge=2, le=_MOST)
    """Categories of `by: text`."""
    steps: int = Field(default=10, ge=1)
    """Steps on one category; the last one stays."""
    rank: Literal["best", "worst"] = "best"
    """Which of all orders is gone through, by their scores."""

    def start(self, pool: ProblemPool) -> "DesignedStream":
        """Embed the problems, and choose an order.

        Args:
            pool: The problems; solve rates are not looked at.

        Returns:
            A stream of problems.

        Raises:
            UserError: There are more than eight categories.

        """
        from posttrain.learning.curriculum.alike import embedded

        arms = categories(pool, self.by, clusters=self.clusters)
        if (count := len(set(arms))) > _MOST:
            raise UserError(
                f"rl.draw.sampler designed: there are {count} categories, of which it orders"
                f" {_MOST} at most; set by to text, with as many clusters"
            )
        return DesignedStream(arms, embedded(pool.problems["prompt"].to_list()), config=self)


def distances(prototype_AD: "Tensor") -> "Tensor":
    """Measure how far categories lie apart, as a share of all distances of each.

    Args:
        prototype_AD: A place of each category.

    Returns:
        ``[A, A]`` float64: one less the cosine, each row divided by its sum; 0 where that is 0.

    """
    from torch.nn.functional import normalize

    unit_AD = normalize(prototype_AD, dim=1)
    apart_AA = (1.0 - unit_AD @ unit_AD.T).clamp_min(0.0).fill_diagonal_(0.0)
    sum_A1 = apart_AA.sum(dim=1, keepdim=True)
    shares_AA: Tensor = apart_AA / sum_A1.where(sum_A1 > 0, sum_A1.new_ones(()))
    return shares_AA


def score(order: Sequence[int], apart: Sequence[Sequence[float]], vary: Sequence[float]) -> float:
    """Score an order of categories, as the authors' code does.

    The k-th category is compared with the one that follows, which should be unlike it, and with the
    k-th from the end, which should be like it, until all are looked at.

    Args:
        order: Categories by their numbers.
        apart: Distances, by `distances`.
        vary: Variance of each category's distances, as a share of their sum.

    Returns:
        The higher, the better.

    """
    found = 1.0 - vary[order[0]]
    for place in range(len(order) // 2):
        at, mirrored = order[place], order[-1 - place]
        found += 1.0 - apart[at][mirrored] + apart[at][order[place + 1]]
    # Rounded, so that orders which score alike do so on every processor.
    return round(found, 9)


class DesignedStream(StepCount, ArmStream):
    """The order, and how many steps were learned from."""

    def __init__(self, arms: Sequence[str], place_PD: "Tensor", *, config: Designed) -> None:
        import torch

        super().__init__(arms)
        self.config = config
        prototype_AD = torch.stack([place_PD[each].mean(dim=0) for each in self.members])
        apart_AA = distances(prototype_AD)
        vary_A = apart_AA.var(dim=1, correction=0)
        vary_A = vary_A / vary_A.sum().clamp_min(1e-300)
        apart, vary = apart_AA.tolist(), vary_A.tolist()
        scored = {each: score(each, apart, vary) for each in permutations(range(len(self.names)))}
        # The first of equals, in the order of the categories' names.
        chosen = max if config.rank == "best" else min
        self.order = chosen(scored, key=scored.__getitem__)
        self.score, self.spread = scored[self.order], max(scored.values()) - min(scored.values())

    def shares(self, step: int) -> "Tensor":
        """All of it to the category whose turn it is; see `ArmStream.shares`."""
        import torch

        # The others at a hair: a category with fewer problems than a step needs is made up for.
        shares_A = torch.full((len(self.order),), 1e-12, dtype=torch.float64)
        shares_A[self.order[min(step // self.config.steps, len(self.order) - 1)]] = 1.0
        return shares_A

    def metrics(self) -> dict[str, float]:
        """Where it is, and what its order scores."""
        done = min(self.observed // self.config.steps, len(self.order))
        return {"phases": float(done), "score": self.score, "score_spread": self.spread}
