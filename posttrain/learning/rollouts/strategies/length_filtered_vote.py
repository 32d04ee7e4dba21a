"""The commonest answer among samples of the lengths at which answers agree most."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy

if TYPE_CHECKING:
    from torch import Tensor


class LengthFilteredVote(Strategy):
    """Votes among the samples of some lengths alone.

    A problem's samples are sorted into groups by length, each so many tokens wide; of the groups,
    those whose answers have the least entropy vote. A sample that states no answer has no vote, and
    a group that has no more than one voter says nothing of how far answers agree: it votes only
    where all are such.
    """

    SOURCE = (
        "Wu et al., 'When More is Less: Understanding Chain-of-Thought Length in LLMs',"
        " arXiv:2502.07266, section 5: length-filtered vote"
    )

    kind: Literal["length_filtered_vote"] = "length_filtered_vote"
    width: int = Field(default=2, ge=1)
    """Tokens from one group to the next."""
    groups: int = Field(default=3, ge=1)
    """Groups that vote."""

    def budgets(self, samples: DrawnSamples, wanted: Sequence[int]) -> Sequence[int]:
        """Grade the vote of all samples; see `Strategy.budgets`."""
        return [samples.num_samples]

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Grade the commonest answer of the groups that vote; see `Strategy.solved`."""
        import torch

        from posttrain.learning.maths.pass_at_k import majority_vote

        assert samples.lengths_PN is not None
        values_P = torch.zeros(len(samples.answers), dtype=torch.float64)
        for place, answers in enumerate(samples.answers):
            voters = self._voters(answers, samples.lengths_PN[place].tolist())
            if voters:
                numbers = {given: n for n, given in enumerate(dict.fromkeys(answers))}
                (values_P[place],) = majority_vote(
                    torch.tensor([numbers[answers[each]] for each in voters]),
                    samples.correct_PN[place, voters],
                    torch.zeros(len(voters), dtype=torch.long),
                )
        return values_P

    def _voters(self, answers: Sequence[str | None], lengths: Sequence[float]) -> list[int]:
        """Places of the samples that vote."""
        found: dict[int, list[int]] = {}
        for place, (answer, length) in enumerate(zip(answers, lengths, strict=True)):
            if answer is not None:
                found.setdefault(int(length) // self.width, []).append(place)
        several = {group: each for group, each in found.items() if len(each) > 1} or found
        ordered = sorted(
            several.items(), key=lambda item: (_entropy([answers[n] for n in item[1]]), item[0])
        )
        return sorted(place for _, each in ordered[: self.groups] for place in each)


def _entropy(answers: Sequence[str | None]) -> float:
    counts = Counter(answers).values()
    return sum(-count / len(answers) * math.log(count / len(answers)) for count in counts)
