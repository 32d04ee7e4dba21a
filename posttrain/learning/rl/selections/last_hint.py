"""What was drawn behind the last hint of a problem."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rl.hints.base import HINT_ROUND
from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class LastHint(Selection):
    """Learn from the rollouts behind the last hint that a problem was given, in place of earlier.

    For a producer that draws a group again behind a longer hint: what failed before is stored, and
    counts in no statistic.
    """

    SOURCE = (
        "GHPO's authors, hkgc-1/GHPO at af0a7dd, src/ghpo/ghpo_trainer.py: completions and rewards"
        " of a group that failed are replaced"
    )

    kind: Literal["last_hint"] = "last_hint"

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose those of the last round; see `Selection.keep`."""
        rounds = [dict(each.facts).get(HINT_ROUND, 0.0) for each in rollouts]
        return [place for place, each in enumerate(rounds) if each == max(rounds)]
