"""What the problem's own verifier says of an answer, or the environment that it was played in."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Verify
from posttrain.learning.rewards.score import Score, of_play
from posttrain.learning.rewards.verifiers.base import ByPlay
from posttrain.learning.rewards.verify import Answer, verifier_of
from posttrain.stage.hashing import canonical_json
from posttrain.stage.identity import identity

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class VerifierComponent(Component):
    """1 for an answer that the problem's verifier accepts in full, else 0; or its graded score.

    Partial credit would pay the policy for being wrong: reasoning-gym's arithmetic grants it for an
    answer that merely contains the right digits.

    Source: DeepSeek-R1, arXiv 2501.12948 (accuracy rewards).
    """

    SAYS_SOLVED: ClassVar[bool] = True

    kind: Literal["verifier"] = "verifier"
    graded: bool = False
    """Pay the verifier's score in [0, 1] rather than 0 or 1."""

    def judged_by(self, problem: "Problem") -> str:
        """Name the problem's verifier, with its source's parameters; see `Component.judged_by`."""
        from posttrain.data.schemas import row_id

        # Parameters of the row itself, such as its tests, are a part of what is asked.
        said = [identity(self), problem.verifier or problem.scored_by]
        return f"{verifier_of(problem).kind}.{row_id(canonical_json(said))}"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask the verifier; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Ask about all answers at once; see `Component.score_all`."""
        answers = [(text, group.problem) for group in groups for text in group.texts]
        played = [earned for group in groups for earned in group.earned]
        scores = iter(scores_of(answers, played, known.verify))
        earned = [[next(scores) for _ in group.texts] for group in groups]
        if self.graded:
            return [[score.value for score in group] for group in earned]
        return [[_paid(score.correct) for score in group] for group in earned]


def scores_of(
    answers: Sequence[Answer], played: Sequence[Sequence[float]], verify: Verify
) -> list[Score]:
    """Score answers, of which some may have been played.

    Args:
        answers: Texts and what they answer.
        played: What the environment paid for each turn of each answer; empty for an answer that
            was not played, and for all where none was.
        verify: Asks the verifiers of the others.

    Returns:
        One score per answer, in their order.

    """
    if not any(played):
        return verify(answers)
    known = {
        place: of_play(math.fsum(earned))
        for place, (earned, (_, problem)) in enumerate(zip(played, answers, strict=True))
        if earned and isinstance(verifier_of(problem), ByPlay)
    }
    asked = iter(verify([each for place, each in enumerate(answers) if place not in known]))
    return [known[place] if place in known else next(asked) for place in range(len(answers))]


def _paid(correct: bool | None) -> float | None:
    return None if correct is None else float(correct)
