"""Of a group that is drawn too large: its share of failures, and the cleanest of its successes."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout

_NO_CALL = 0.5
"""Penalty of a rollout that asked no tool: between one whose calls all worked and none."""


class ResampleOnCorrect(Selection):
    """Draw more than is learned from, and keep the successes whose tools failed least.

    Failures keep their share of the group. A rollout's penalty is the share of its calls that
    failed, plus one for an answer that is not marked as it should be: so noise on the way to a
    right answer is not reinforced, and no penalty is paid. Ties go to what was drawn first. What
    could not be judged is left out.
    """

    SOURCE: ClassVar[str] = (
        "rStar2-Agent, arXiv 2508.20722, GRPO-RoC; microsoft/rStar at 73b21b5,"
        " rstar2_agent/down_sample/roc.py"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "penalty_kept": "mean penalty of the successes that are learned from",
        "penalty_left": "mean penalty of the successes that are left out, where there are any",
    }

    kind: Literal["resample_on_correct"] = "resample_on_correct"
    share: float = Field(default=0.5, gt=0.0, le=1.0)
    """Rollouts that are learned from / rollouts drawn: half of them, as 16 of 32."""
    least_right: int = Field(default=2, ge=0)
    """Successes that are kept at least, where there are as many and they leave half the room."""
    least_wrong: int = Field(default=2, ge=0)
    """Failures that are kept at least, likewise."""
    wrong: Literal["cleanest", "as_drawn"] = "cleanest"
    """Which failures: those of least penalty, as the authors' code has it, or the first, which is
    a uniform choice, as their paper does."""
    errors: str = "tool_errors"
    """What the environment counts of calls that failed."""
    answer_tags: tuple[str, str] | None = None
    """What stands before and behind an answer, such as `<answer>` and `</answer>`, once in a
    rollout: a penalty of 1 without, and of the repetitions by turn; null punishes neither."""

    def learned(self, group_size: int) -> int:
        """Return the share of a group, at least one; see `Selection.learned`."""
        return max(1, round(self.share * group_size))

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose by outcome and penalty; see `Selection.keep`."""
        penalties = [self.penalty(rollout) for rollout in rollouts]
        right = [place for place, each in enumerate(rollouts) if each.judged and each.solved]
        wrong = [place for place, each in enumerate(rollouts) if each.judged and not each.solved]
        room = min(self.learned(len(rollouts)), len(right) + len(wrong))
        num_right, num_wrong = self._numbers(len(right), len(wrong), room)
        right.sort(key=penalties.__getitem__)
        if self.wrong == "cleanest":
            wrong.sort(key=penalties.__getitem__)
        return sorted(right[:num_right] + wrong[:num_wrong])

    def _numbers(self, right: int, wrong: int, room: int) -> tuple[int, int]:
        """How many successes and failures are kept of as many, `room` in all."""
        if not room:
            return 0, 0
        least_wrong, least_right = (
            min(least, there, max(1, room // 2))
            for least, there in ((self.least_wrong, wrong), (self.least_right, right))
        )
        kept_wrong = max(round(wrong * room / (right + wrong)), least_wrong)
        kept_right = max(room - kept_wrong, least_right)
        return kept_right, room - kept_right

    def penalty(self, rollout: "Rollout") -> float:
        """Sum up what speaks against learning from a rollout, were it right.

        Args:
            rollout: Whole.

        Returns:
            0 for one whose calls all worked, whose answer is marked once.

        """
        return self._failed_calls(rollout) + self._unmarked(rollout)

    def _failed_calls(self, rollout: "Rollout") -> float:
        failed = dict(rollout.facts).get(self.errors, 0.0)
        # A call is what something was read after; what ends an episode may be in error too.
        answered = sum(
            before.drawn and not after.drawn for before, after in pairwise(rollout.spans)
        )
        calls = max(failed, answered)
        return failed / calls if calls else _NO_CALL

    def _unmarked(self, rollout: "Rollout") -> float:
        if self.answer_tags is None:
            return 0.0
        before, behind = self.answer_tags
        found = re.findall(f"{re.escape(before)}.*?{re.escape(behind)}", rollout.text, re.DOTALL)
        counts = {rollout.text.count(before), rollout.text.count(behind), len(found)}
        if len(counts) > 1 or not found:
            return 1.0
        return min((len(found) - 1) / max(1, len(rollout.drawn_by_turn)), 1.0)

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:
        """Compare the successes that are kept with those that are not; see `Selection.measure`."""
        right = [each for group in groups for each in group if each.judged and each.solved]
        kept = [self.penalty(each) for each in right if each.trained]
        left = [self.penalty(each) for each in right if not each.trained]
        return {
            **({"penalty_kept": fmean(kept)} if kept else {}),
            **({"penalty_left": fmean(left)} if left else {}),
        }
