"""What every reward component is: a part that scores the answers of a group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.score import Score

Verify = Callable[[Sequence[tuple[str, "Problem"]]], list["Score"]]
"""Scores many (text, problem) at once, each by the problem's own verifier; it remembers them."""


@dataclass(frozen=True)
class Answers:
    """The answers of one group, all to one problem; the tuples have an entry each, ``[G]``."""

    problem: "Problem"
    texts: tuple[str, ...]
    """What the policy drew; what it read between is left out."""
    lengths: tuple[int, ...]
    """Drawn tokens."""
    truncated: tuple[bool, ...]
    """True where the answer was cut off at the limit of tokens."""


class Component(Part):
    """One of the numbers that a reward is made of; derive from it and define `score`."""

    SCOPE: ClassVar[Literal["answer", "group", "turn", "token"]] = "answer"
    """What one number is about. RL on answers of one turn takes `answer` and `group`."""
    SAYS_SOLVED: ClassVar[bool] = False
    """True where a score of 1 says that the problem is solved, so that it may do so by default."""

    def score(self, group: Answers, known: Verify) -> Sequence[float | None]:
        """Score the answers of one group.

        Args:
            group: The answers.
            known: The scores of the problems' own verifiers.

        Returns:
            One number per answer, ``[G]``; None where it could not be judged.

        """
        raise NotImplementedError

    def score_all(
        self, groups: Sequence[Answers], known: Verify
    ) -> Sequence[Sequence[float | None]]:
        """Score many groups; define it where asking about all at once is quicker.

        Args:
            groups: P problems, each with its G answers.
            known: Asks a verifier, and remembers what it said.

        Returns:
            Numbers ``[P][G]``, None where an answer could not be judged.

        """
        return [self.score(group, known) for group in groups]
