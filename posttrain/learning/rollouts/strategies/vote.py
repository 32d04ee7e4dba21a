"""The commonest answer of all samples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy

if TYPE_CHECKING:
    from torch import Tensor


class VoteStrategy(Strategy):
    """Takes the commonest stated answer of all samples; wrong where none states one."""

    SOURCE = "Wang et al., 'Self-Consistency Improves Chain of Thought Reasoning', arXiv:2203.11171"

    kind: Literal["vote"] = "vote"

    def budgets(self, samples: DrawnSamples, wanted: Sequence[int]) -> Sequence[int]:
        """Grade the vote of all samples; see `Strategy.budgets`."""
        return [samples.num_samples]

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Grade the commonest answer, 0 or 1; see `Strategy.solved`."""
        import torch

        from posttrain.learning.maths.pass_at_k import majority_vote

        votes = [
            (problem, index, answer)
            for problem, given in enumerate(samples.answers)
            for index, answer in enumerate(given)
            if answer is not None
        ]
        values_P = torch.zeros(len(samples.answers), dtype=torch.float64)
        if not votes:
            return values_P
        problems, indices, stated = zip(*votes, strict=True)
        numbers = {answer: number for number, answer in enumerate(dict.fromkeys(stated))}
        problem_B = torch.tensor(problems)
        values_P[torch.unique(problem_B)] = majority_vote(
            torch.tensor([numbers[answer] for answer in stated]),
            samples.correct_PN[problem_B, torch.tensor(indices)],
            problem_B,
        )
        return values_P
