"""The slot of the replays: what a part of it implements."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Group


class ReplayAtWork:
    """What is kept of earlier steps; `state_dict` holds it."""

    def recall(
        self, fresh: "Sequence[Group]", config: "RolloutReplay", *, step: int, seed: int
    ) -> "Sequence[Group]":
        """Choose what a step learns from again, and keep what it drew.

        Args:
            fresh: All groups that were drawn for it; `trained` says of a rollout whether it is
                learned from.
            config: The part, with the numbers of the step.
            step: 0-based step.
            seed: Of the run.

        Returns:
            Whole groups of earlier steps. They are compared among themselves as they were, and
            their ratio is to the engine that drew them.

        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        raise NotImplementedError


class RolloutReplay(Part, Schedulable):
    """Which rollouts of earlier steps are learned from again beside those of a step."""

    def start(self) -> ReplayAtWork:
        """Begin a run."""
        raise NotImplementedError
