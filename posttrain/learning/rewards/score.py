"""What a verifier says of an answer, and where in a text the answer stands."""

from dataclasses import dataclass

MARKER = "####"
"""What a line with the final answer starts with; GSM8K's own marker."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is, with a short stable code for the reason.

    `value` is in [0, 1], and None where the answer could not be judged: that is neither right nor
    wrong, and no average counts it. Codes: "correct", "wrong_answer", "no_answer" (no line starts
    with the marker, or nothing follows it), and those that a verifier documents itself.
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


def final_answer(text: str) -> str | None:
    r"""Return what stands behind the marker on the last line that starts with it, or None.

    >>> final_answer("2 + 3 = 6\n#### 6\nno:\n#### 5")
    '5'
    """
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith(MARKER):
            return line.lstrip().removeprefix(MARKER).strip() or None
    return None


def reference_answer(answer: str) -> str:
    r"""Return a problem's answer, also where it is a worked solution with a marker of its own.

    >>> reference_answer("48 / 2 = 24\n48 + 24 = 72\n#### 72")
    '72'
    """
    return final_answer(answer) or answer.strip()
