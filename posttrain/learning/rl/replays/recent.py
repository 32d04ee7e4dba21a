"""Groups of the last steps, mixed into each step at a share."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.rl.replays.base import ReplayAtWork, RolloutReplay

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Group


class Recent(RolloutReplay):
    """Let groups of the last steps make up a share of what a step learns from.

    They are drawn at random, without replacement. What drew them was an older policy, so the ratio
    to its log-probabilities is what a clip or a weight by importance goes by.
    """

    SOURCE = "ReMix, arXiv 2507.06892, mix-policy proximal policy gradient"

    kind: Literal["recent"] = "recent"
    share: float = Field(default=0.4, ge=0.0, lt=1.0)
    """Of the groups that a step learns from so many are earlier ones, as far as there are any."""
    window: int = Field(default=4, ge=1)
    """Steps whose groups are kept."""

    def start(self) -> ReplayAtWork:
        """Begin with nothing kept; see `RolloutReplay.start`."""
        return RecentAtWork()


class RecentAtWork(ReplayAtWork):
    """The groups of the last steps, by step."""

    def __init__(self) -> None:
        self._kept: deque[list[Group]] = deque()

    def recall(
        self, fresh: "Sequence[Group]", config: RolloutReplay, *, step: int, seed: int
    ) -> "Sequence[Group]":
        """Draw from what is kept; see `ReplayAtWork.recall`."""
        from posttrain.learning.rl.rollout import learned_from
        from posttrain.stage.seeds import shuffler

        assert isinstance(config, Recent)
        learned = learned_from(fresh)
        pool = [group for groups in self._kept for group in groups]
        count = round(len(learned) * config.share / (1 - config.share))
        chosen = shuffler(seed, "replay", step).sample(pool, min(count, len(pool)))
        self._kept.append(learned)
        while len(self._kept) > config.window:
            self._kept.popleft()
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """All groups that are kept."""
        from posttrain.learning.rl.rollout import plain

        return {"kept": [[plain([group]) for group in groups] for groups in self._kept]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        from posttrain.learning.rl.rollout import from_plain

        self._kept = deque([from_plain(rows)[0] for rows in groups] for groups in state["kept"])
