"""What a verifier says of an answer, and where in a text the answer stands."""

from dataclasses import dataclass

MARKER = "####"
"""What a line with the final answer starts with; GSM8K's own marker."""


MANY_UNJUDGED = 0.1
"""Share of answers that could not be judged above which a person is told."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is, with a short stable code for the reason.

    `value` is in [0, 1], and None where the answer could not be judged: that is neither right nor
    wrong, and no average counts it. Codes: "correct", "wrong_answer", "no_answer" (the text states
    none where the verifier looks for it), and those that a verifier documents itself.
    """

    value: float | None
    reason: str

    @property
    def correct(self) -> bool | None:
        """True where the answer was accepted in full; None where it could not be judged."""
        return None if self.value is None else self.value >= 1.0


CORRECT = Score(1.0, "correct")
WRONG_ANSWER = Score(0.0, "wrong_answer")
NO_ANSWER = Score(0.0, "no_answer")


def graded(value: float, *, accept: float = 1.0, reason: str = WRONG_ANSWER.reason) -> Score:
    """Return a score that counts as correct from some value on.

    >>> graded(0.6, accept=0.5), graded(0.4, accept=0.5)
    (Score(value=1.0, reason='correct'), Score(value=0.4, reason='wrong_answer'))

    Args:
        value: How good an answer is, 0 to 1.
        accept: From which value it is accepted in full.
        reason: Why it is not, where it is not.

    """
    return CORRECT if value >= accept else Score(value, reason)


def of_play(earned: float) -> Score:
    """Return the score of an episode whose environment says what it is worth.

    >>> of_play(1.0), of_play(0.25)
    (Score(value=1.0, reason='correct'), Score(value=0.25, reason='not_solved'))

    Args:
        earned: What its turns earned in all; counted from 0 to 1.

    """
    # Thirds and sevenths add up to a little less than 1.
    return graded(min(max(round(earned, 9), 0.0), 1.0), reason="not_solved")


def final_answer(text: str, *, marker: str = MARKER) -> str | None:
    r"""Return what stands behind the marker on the last line that starts with it, or None.

    >>> final_answer("2 + 3 = 6\n#### 6\nno:\n#### 5")
    '5'

    Args:
        text: What was written.
        marker: What the line starts with.

    """
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith(marker):
            return line.lstrip().removeprefix(marker).strip() or None
    return None


def reference_answer(answer: str) -> str:
    r"""Return a problem's answer, also where it is a worked solution with a marker of its own.

    >>> reference_answer("48 / 2 = 24\n48 + 24 = 72\n#### 72")
    '72'
    """
    return final_answer(answer) or answer.strip()
