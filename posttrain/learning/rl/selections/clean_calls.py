"""Of a group those whose calls all worked, and none where these are few."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.step_tries import STEP_ROLE
from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class CleanCalls(Selection):
    """Learn from episodes in which no call failed, and from all calls that were drawn again.

    So a right answer teaches no failed call. A group of which too few are left teaches nothing.
    """

    SOURCE: ClassVar[str] = (
        "THOR, arXiv 2509.13761; JingMog/THOR at eeabad0, vllm_rollout_spmd.py (filter_code)"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "left_out": "share of the episodes that are left out, as a call failed in them",
        "ran": "share of the calls drawn again that the environment answered without an error",
    }

    kind: Literal["clean_calls"] = "clean_calls"
    share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Least share of a group that has to be left."""
    errors: str = "tool_errors"
    """What the environment counts of calls that failed."""

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose by what failed; see `Selection.keep`."""
        if rollouts[0].role == STEP_ROLE:
            return range(len(rollouts))
        clean = [at for at, each in enumerate(rollouts) if not dict(each.facts).get(self.errors)]
        return clean if len(clean) >= math.ceil(self.share * len(rollouts)) else ()

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:
        """Count both; see `Selection.measure`."""
        episodes = [each for group in groups for each in group if each.role != STEP_ROLE]
        steps = [each for group in groups for each in group if each.role == STEP_ROLE]
        return {
            **({"left_out": fmean(not each.trained for each in episodes)} if episodes else {}),
            **({"ran": fmean(bool(each.solved) for each in steps)} if steps else {}),
        }
