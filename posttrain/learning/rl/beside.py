"""What a learner learns from beside the rollouts of a step: rehearsed tables, earlier rollouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.learning.models.load import Policy
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rehearsing import Rehearsing, build_rehearsing
from posttrain.learning.rl.replays.base import ReplayAtWork, RolloutReplay
from posttrain.learning.rl.rollout import Group
from posttrain.stage.started import started


@dataclass
class Replaying:
    """What recalls, and how much it did in the present step."""

    work: ReplayAtWork
    seed: int
    num_recalled: int = field(default=0, init=False)
    """Rollouts that the present step learns from again."""

    def recall(self, fresh: Sequence[Group], part: RolloutReplay, *, step: int) -> list[Group]:
        """Choose what a step learns from again.

        Args:
            fresh: All groups that were drawn for it.
            part: The replay, with the numbers of the step.
            step: 0-based step.

        Returns:
            Groups of earlier steps, numbered apart from those of this one.

        """
        found = self.work.recall(fresh, part, step=step, seed=self.seed)
        self.num_recalled = sum(map(len, found))
        return [
            [row._replace(group=-1 - place) for row in group] for place, group in enumerate(found)
        ]

    def state_dict(self) -> dict[str, Any]:
        """What is kept."""
        return {"work": self.work.state_dict(), "num_recalled": self.num_recalled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.work.load_state_dict(state["work"])
        self.num_recalled = int(state["num_recalled"])


@dataclass
class Beside:
    """What else is learned from; None of what is not."""

    rehearsing: Rehearsing | None = None
    replaying: Replaying | None = None


def build_beside(
    policy: Policy, passes: ModelPasses, inputs: Mapping[str, Path], *, seed: int
) -> Beside:
    """Put together what is learned from beside the rollouts.

    Args:
        policy: As RL begins with it.
        passes: Its forward passes, with the config of the run.
        inputs: Of the stage by port.
        seed: Of the run.

    Returns:
        What rehearses, and what recalls.

    """
    part, replaying = passes.config.updates.replay, None
    if part is not None:
        replaying = Replaying(started(part, part.start(), ReplayAtWork, where="rl"), seed)
    return Beside(build_rehearsing(policy, passes, inputs, seed=seed), replaying)
