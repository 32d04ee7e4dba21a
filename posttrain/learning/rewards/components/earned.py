"""What the environment pays, turn by turn."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class EarnedComponent(Component):
    """What the environment of an episode paid for each turn, at the turn's last token.

    The component `verifier` pays the whole at the end; take one of the two. Answers that were not
    played are not judged.

    Source: own; each environment says its own source.
    """

    SCOPE: ClassVar[Literal["turn"]] = "turn"
    SAYS_SOLVED: ClassVar[bool] = True
    RANGE: ClassVar[Range] = (-1.0, 1.0)

    kind: Literal["earned"] = "earned"

    def score_turns(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - nobody is asked
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Give what was paid; see `Component.score_turns`."""
        return [[earned or None for earned in group.earned] for group in groups]
