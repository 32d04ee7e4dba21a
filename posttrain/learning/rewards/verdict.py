"""What a verifier returns, and where in a text the answer stands."""

from dataclasses import dataclass

MARKER = "####"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score in [0, 1] and a short stable code for it.

    Codes: "correct", "wrong_answer", "no_answer" (no line starts with the marker, or nothing
    follows it), and those that a verifier documents itself.
    """

    score: float
    reason: str

    @property
    def correct(self) -> bool:
        """True where the answer was accepted in full."""
        return self.score >= 1.0


CORRECT = Verdict(1.0, "correct")
WRONG_ANSWER = Verdict(0.0, "wrong_answer")
NO_ANSWER = Verdict(0.0, "no_answer")


def final_answer(text: str) -> str | None:
    r"""What stands behind the marker on the last line that starts with it; None if nothing does.

    >>> final_answer("2 + 3 = 6\n#### 6\nno:\n#### 5")
    '5'
    """
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith(MARKER):
            return line.lstrip().removeprefix(MARKER).strip() or None
    return None


def reference_answer(answer: str) -> str:
    r"""The answer of a problem, also where it is a worked solution with a marker of its own.

    >>> reference_answer("48 / 2 = 24\n48 + 24 = 72\n#### 72")
    '72'
    """
    return final_answer(answer) or answer.strip()
