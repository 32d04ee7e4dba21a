"""Right answers are paid where the order in which a story is told helped to find them."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range

SHUFFLED = "shuffled"
"""Role of what the producer `two_orders` draws behind the other order."""


class OrderComponent(Component):
    """`bonus` for a right answer to what was told in its order, if `p > ratio x p_shuffled`.

    p is the share of right answers of the group, p_shuffled that of the group behind the same
    events in another order, which the producer `two_orders` draws. Where there is none, as where a
    problem has no order, nothing is paid.
    """

    SOURCE = "TimeHC-RL, arXiv 2505.24500, section 3.2.3 (temporal reward, alpha and mu)"
    SCOPE: ClassVar[Literal["group"]] = "group"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    GOES_WITH: ClassVar[frozenset[str]] = frozenset(
        {"producer.two_orders", "selection.told_in_order"}
    )
    """See `InCompany`."""

    kind: Literal["order"] = "order"
    bonus: float = Field(default=0.4, gt=0.0, le=1.0)
    """What such an answer earns, alpha."""
    ratio: float = Field(default=0.9, gt=0.0)
    """How much of the shuffled group's share is to be passed, mu."""

    def bounds(self, *, solved: bool) -> Range:
        """Return the ends; a wrong answer is paid nothing."""
        return (0.0, self.bonus) if solved else (0.0, 0.0)

    def score_all(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - who is right
    ) -> Sequence[Sequence[float | None]]:
        """Compare each group with the shuffled one behind it; see `Component.score_all`."""
        return [
            [self.bonus * bool(right and pays) for right in group.solved]
            for group, pays in zip(groups, self._which_pay(groups), strict=True)
        ]

    def _which_pay(self, groups: Sequence[Answers]) -> Iterator[bool]:
        for group, following in zip(groups, (*groups[1:], None), strict=True):
            yield (
                following is not None
                and following.role == SHUFFLED != group.role
                and following.problem.id == group.problem.id
                and _share(group) > self.ratio * _share(following)
            )


def _share(group: Answers) -> float:
    """The share of right answers of those that could be judged."""
    judged = [each for each in group.solved if each is not None]
    return sum(judged) / len(judged) if judged else 0.0
