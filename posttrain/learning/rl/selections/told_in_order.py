"""What was drawn behind the problem as it is told, and not behind its events in another order."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.order import SHUFFLED
from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class ToldInOrder(Selection):
    """Learn from all rollouts but those behind a shuffled prompt, which the reward compares with.

    It goes with the producer `two_orders` and the component `order`.
    """

    SOURCE = "TimeHC-RL, arXiv 2505.24500, section 3.2.3: the shuffled group gives p alone"
    GOES_WITH: ClassVar[frozenset[str]] = frozenset({"component.order", "producer.two_orders"})
    """See `InCompany`."""

    kind: Literal["told_in_order"] = "told_in_order"

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose all of a side, or none; see `Selection.keep`."""
        return [place for place, each in enumerate(rollouts) if each.role != SHUFFLED]
