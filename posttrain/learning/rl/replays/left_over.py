"""Rollouts that a selection left out, learned from together every few steps."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.rl.replays.base import ReplayAtWork, RolloutReplay

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Group


class LeftOver(RolloutReplay):
    """Keep what is not learned from of groups that are, and learn from a share of it at a time.

    Every `every` steps the groups that were kept are drawn from at random, those of the step itself
    among them, and the others are forgotten. What was left over of a problem is compared with
    itself.
    """

    SOURCE = "RoRecomp, arXiv 2509.25958, compensation batches"

    kind: Literal["left_over"] = "left_over"
    every: int = Field(default=2, ge=1)
    """Steps from one time to the next."""
    share: float = Field(default=1.0, ge=0.0, le=1.0)
    """Of the groups that were kept, rounded."""

    def start(self) -> ReplayAtWork:
        """Begin with nothing kept; see `RolloutReplay.start`."""
        return LeftOverAtWork()


class LeftOverAtWork(ReplayAtWork):
    """What was left over since it was learned from last."""

    def __init__(self) -> None:
        self._kept: list[Group] = []

    def recall(
        self, fresh: "Sequence[Group]", config: RolloutReplay, *, step: int, seed: int
    ) -> "Sequence[Group]":
        """Take in what was left, and give it back in due course; see `ReplayAtWork.recall`."""
        from posttrain.stage.seeds import shuffler

        assert isinstance(config, LeftOver)
        for group in fresh:
            left = [each for each in group if not each.trained and each.judged]
            if left and any(each.trained for each in group):
                self._kept.append(left)
        if (step + 1) % config.every:
            return []
        pool, self._kept = self._kept, []
        return shuffler(seed, "left_over", step).sample(pool, round(config.share * len(pool)))

    def state_dict(self) -> dict[str, Any]:
        """All groups that are kept."""
        from posttrain.learning.rl.rollout import plain

        return {"kept": [plain([group]) for group in self._kept]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        from posttrain.learning.rl.rollout import from_plain

        self._kept = [from_plain(rows)[0] for rows in state["kept"]]
