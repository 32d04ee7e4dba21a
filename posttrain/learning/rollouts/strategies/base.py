"""What an inference strategy is: a part that makes one answer of several samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DrawnSamples:
    """The samples of one policy that a strategy works with, `N` of each of `P` problems.

    Attributes:
        answers: What each sample states as its answer; None where it states nothing.
        correct_PN: 1 where a sample was accepted in full, else 0; float64 ``[P, N]``.
        rewards_PN: A reward model's values, float64 ``[P, N]``; None where there is none.
        lengths_PN: Tokens of each sample, its end counted, float64 ``[P, N]``; None where they are
            not known.

    """

    answers: Sequence[Sequence[str | None]]
    correct_PN: "Tensor"
    rewards_PN: "Tensor | None" = None
    lengths_PN: "Tensor | None" = None

    @property
    def num_samples(self) -> int:
        """Samples of each problem."""
        return int(self.correct_PN.shape[1])


class Strategy(Part):
    """Makes one answer of several samples of a problem.

    One that needs a `reward_model` is left out where there is none.
    """

    def budgets(self, samples: DrawnSamples, wanted: Sequence[int]) -> Sequence[int]:
        """Choose the numbers of samples for which the strategy is graded.

        Args:
            samples: What was drawn.
            wanted: The k that the recipe asks for, rising.

        Returns:
            Some of them, or others; by default all.

        """
        return wanted

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Compute how likely the strategy's answer is right.

        Args:
            samples: What was drawn.
            k: Samples that the strategy may use.

        Returns:
            The probability over the choice of k among the N samples, float64 ``[P]``.

        """
        raise NotImplementedError
