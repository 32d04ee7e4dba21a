"""How many words an answer shares with the reference: SQuAD's F1."""

import re
import string
from collections import Counter
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rewards.score import Score, graded
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class TokenF1Verifier(ComparingVerifier):
    """Score the F1 of the answer's words, as SQuAD does: no case, punctuation or articles.

    With several right answers the best one counts.
    """

    SOURCE = "SQuAD 2.0, arXiv:1806.03822: normalize_answer and compute_f1 of its evaluate script"

    kind: Literal["token_f1"] = "token_f1"
    accept: float = Field(default=1.0, gt=0.0, le=1.0)
    """F1 from which an answer counts as correct and scores 1."""
    also: tuple[str, ...] = ()
    """Further right answers: usually of each row."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Take the best F1; see `ComparingVerifier.compare`."""
        right = (self.expected(problem), *self.also)
        return graded(max(token_f1(answer, each) for each in right), accept=self.accept)


def token_f1(answer: str, reference: str) -> float:
    """Compute the F1 of two bags of words.

    >>> token_f1("the cat sat", "A cat.")
    0.6666666666666666

    Args:
        answer: What is graded.
        reference: What is right.

    Returns:
        Twice precision times recall over their sum; where either text has no word left, whether
        neither has.

    """
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return float(given == wanted)
    shared = (Counter(given) & Counter(wanted)).total()
    return 2 * shared / (len(given) + len(wanted))


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
