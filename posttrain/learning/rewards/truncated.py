"""What becomes of an answer that was cut off at the limit of tokens: the same in every stage."""

from typing import Literal

from posttrain.learning.rewards.score import Score

Truncated = Literal["counts", "fails", "masked", "dropped"]
"""`counts`: judged as it stands. `fails`: wrong, whatever it states. `masked`: judged as it stands,
but nothing is learned from it; where nothing is learned it counts. `dropped`: not judged."""

CUT_OFF = Score(0.0, "cut_off")
"""Of an answer that fails as it was cut off."""
NOT_JUDGED = Score(None, "cut_off")
"""Of one that is left out for the same reason."""


def judged(score: Score, *, truncated: bool, rule: Truncated) -> Score:
    """Return the score of an answer by the recipe's rule for those that were cut off.

    Args:
        score: What the verifier says of the text.
        truncated: True where it was cut off at the limit of tokens.
        rule: What becomes of it then.

    Returns:
        The score that counts.

    """
    if not truncated or rule in ("counts", "masked"):
        return score
    return CUT_OFF if rule == "fails" else NOT_JUDGED
