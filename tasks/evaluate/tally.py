"""What one policy did on the problems, as tables of problems by samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.data.schemas import Problem
from posttrain.learning.models.reward_head import RewardModel
from posttrain.learning.rewards import final_answer
from posttrain.learning.rollouts.attempts import Attempt
from posttrain.learning.rollouts.engines.base import FinishReason


@dataclass(frozen=True)
class Tally:
    """The attempts of one policy, `num_samples` per problem in the order of the problems."""

    name: str
    digest: str
    problems: tuple[Problem, ...]
    attempts: tuple[tuple[Attempt, ...], ...]
    correct_PN: Tensor
    """1 where a sample was accepted in full, else 0; float64."""
    rewards_PN: Tensor | None
    """The reward model's values, where there is one; float64."""

    @property
    def num_samples(self) -> int:
        """Samples per problem."""
        return self.correct_PN.shape[1]

    @property
    def solve_rate_P(self) -> Tensor:
        """Share of each problem's samples that were right, `[P]`."""
        return self.correct_PN.mean(-1)

    def answers(self) -> list[list[str | None]]:
        """What each sample states as its answer; None where it states nothing."""
        return [[final_answer(made.sample.text) for made in group] for group in self.attempts]

    def mean_length(self) -> float:
        """Tokens per sample, the end token included."""
        lengths = [len(made.sample.token_ids) for group in self.attempts for made in group]
        return sum(lengths) / len(lengths)

    def truncation_rate(self) -> float:
        """Share of samples that met the token limit."""
        reasons = [made.sample.finish_reason for group in self.attempts for made in group]
        return sum(reason is FinishReason.LENGTH for reason in reasons) / len(reasons)


def tally(
    name: str,
    digest: str,
    attempts: Sequence[Attempt],
    *,
    num_samples: int,
    reward_model: RewardModel | None,
) -> Tally:
    """Arrange a policy's attempts by problem, and score them where there is a reward model."""
    grouped = tuple(
        tuple(attempts[begin : begin + num_samples])
        for begin in range(0, len(attempts), num_samples)
    )
    correct = [[float(made.verdict.correct) for made in group] for group in grouped]
    rewards_PN = None
    if reward_model is not None:
        rewards_PN = torch.tensor(_rewards(reward_model, attempts), dtype=torch.float64)
        rewards_PN = rewards_PN.view(-1, num_samples)
    return Tally(
        name=name,
        digest=digest,
        problems=tuple(group[0].problem for group in grouped),
        attempts=grouped,
        correct_PN=torch.tensor(correct, dtype=torch.float64),
        rewards_PN=rewards_PN,
    )


def _rewards(reward_model: RewardModel, attempts: Sequence[Attempt]) -> list[float]:
    """Reward of every attempt; equal texts are scored once, an empty one ranks last."""
    pairs = {(made.problem.prompt, made.sample.text) for made in attempts if made.sample.text}
    ordered = sorted(pairs)
    scores = reward_model.score([p for p, _ in ordered], [t for _, t in ordered]) if ordered else []
    known = dict(zip(ordered, scores, strict=True))
    return [known.get((m.problem.prompt, m.sample.text), float("-inf")) for m in attempts]
