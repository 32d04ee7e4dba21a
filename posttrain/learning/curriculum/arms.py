"""Categories of problems, and a stream that draws a category before it draws a problem of it."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

from posttrain.learning.curriculum.base import GroupResult, ProblemPool, ProblemStream

if TYPE_CHECKING:
    from torch import Tensor

Category = Literal["source", "difficulty", "source_and_difficulty", "text"]
"""What problems of one category share; `text` puts those together whose prompts read alike."""


class ArmStream(ProblemStream):
    """Draws a category by its share, with replacement, then a problem of it.

    The problems of a step are different ones: a category whose problems the step has all had is
    left out of the draw.
    """

    def __init__(self, arms: Sequence[str]) -> None:
        self.names = sorted(set(arms))
        places = {name: place for place, name in enumerate(self.names)}
        self.arm_P = [places[name] for name in arms]
        self.members: list[list[int]] = [[] for _ in self.names]
        for problem, arm in enumerate(self.arm_P):
            self.members[arm].append(problem)

    @abstractmethod
    def shares(self, step: int) -> "Tensor":
        """Share of the draws that each category has at a step, ``[A]`` float64, none negative."""
        raise NotImplementedError

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Draw categories by their shares, and problems of each; see `ProblemStream.draw`."""
        from posttrain.stage.seeds import purpose_seed

        chance = Random(purpose_seed(seed, "curriculum", step, len(without)))
        taken, shares = set(without), self.shares(step).tolist()
        left: dict[int, list[int]] = {}
        for arm, members in enumerate(self.members):
            fresh = [problem for problem in members if problem not in taken]
            if fresh and shares[arm] > 0:
                left[arm] = chance.sample(fresh, min(count, len(fresh)))
        chosen: list[int] = []
        while left and len(chosen) < count:
            (arm,) = chance.choices([*left], [shares[each] for each in left])
            chosen.append(left[arm].pop())
            if not left[arm]:
                del left[arm]
        return chosen

    def by_arm(self, results: Sequence[GroupResult]) -> dict[int, list[GroupResult]]:
        """Put the groups of a step together by category."""
        found: dict[int, list[GroupResult]] = {}
        for result in results:
            found.setdefault(self.arm_P[result.problem], []).append(result)
        return found


def solved_share(results: Sequence[GroupResult]) -> float | None:
    """Return the share of right answers among the judged ones; None where none was judged."""
    judged = [each for result in results for each in result.solved if each is not None]
    return sum(judged) / len(judged) if judged else None


def categories(pool: ProblemPool, by: Category, *, clusters: int) -> list[str]:
    """Name the category of every problem.

    Args:
        pool: The problems.
        by: What the problems of a category share.
        clusters: Categories of `text`.

    Returns:
        A name for each problem.

    """
    if by == "text":
        from posttrain.learning.curriculum.alike import clusters_of

        return [f"{each:03d}" for each in clusters_of(pool.problems["prompt"].to_list(), clusters)]
    columns = {"source": ["source"], "difficulty": ["difficulty"]}.get(by, ["source", "difficulty"])
    # Numbers with leading zeros, so that categories sort by difficulty.
    return [
        "/".join(f"{each:03d}" if isinstance(each, int) else each for each in row)
        for row in pool.problems.select(columns).rows()
    ]
