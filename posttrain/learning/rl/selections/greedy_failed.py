"""Groups of problems that the policy does not solve at its most likely answer."""

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rl.selections.base import Selection
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout

_FACT = "greedy_solved"


class GreedyFailed(Selection):
    """Learn from a group if the policy's greedy answer to its problem is wrong.

    So what is likely to be solved is not reinforced further. It takes the producer `greedy_first`.
    """

    SOURCE: ClassVar[str] = (
        "SELF, arXiv 2510.02230; mail-research/SELF-llm-interference at d17634b,"
        " verl/trainer/ppo/ray_trainer.py (RayMaxPPOTrainer)"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "solve_rate": "mean share of right answers of the groups that are learned from"
    }

    kind: Literal["greedy_failed"] = "greedy_failed"

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose all or none; see `Selection.keep`."""
        facts = dict(rollouts[0].facts)
        if _FACT not in facts:
            raise UserError(
                "rl.draw.select: greedy_failed asks whether the greedy answer was right, which"
                " nothing says; set rl.producer to greedy_first"
            )
        return () if facts[_FACT] else range(len(rollouts))

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:
        """Average the shares; see `Selection.measure`."""
        shares = [
            fmean(bool(each.solved) for each in group if each.solved is not None)
            for group in groups
            if any(each.trained and each.solved is not None for each in group)
        ]
        return {"solve_rate": fmean(shares)} if shares else {}
