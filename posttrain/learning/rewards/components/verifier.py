"""What the problem's own verifier says of the answer."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Verify


class VerifierComponent(Component):
    """1 for an answer that the problem's verifier accepts in full, else 0; or its graded score.

    Partial credit would pay the policy for being wrong: reasoning-gym's arithmetic grants it for an
    answer that merely contains the right digits.
    """

    SAYS_SOLVED: ClassVar[bool] = True

    kind: Literal["verifier"] = "verifier"
    graded: bool = False
    """Pay the verifier's score in [0, 1] rather than 0 or 1."""

    def score(self, group: Answers, known: Verify) -> Sequence[float | None]:
        """Ask the verifier; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self, groups: Sequence[Answers], known: Verify
    ) -> Sequence[Sequence[float | None]]:
        """Ask about all answers at once."""
        answers = [(text, group.problem) for group in groups for text in group.texts]
        scores = iter(known(answers))
        earned = [[next(scores) for _ in group.texts] for group in groups]
        if self.graded:
            return [[score.value for score in group] for group in earned]
        return [[_paid(score.correct) for score in group] for group in earned]


def _paid(correct: bool | None) -> float | None:
    return None if correct is None else float(correct)
