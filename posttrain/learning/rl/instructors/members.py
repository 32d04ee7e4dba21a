"""The members of a population of instructions: what each has earned, and how they rank by it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class InstructionMember:
    """An instruction, and what is known of it."""

    text: str
    weight: float | None = None
    """w, a moving average of what its rollouts earned; None while there were none."""
    born: int = 0
    """Step that it was written before."""
    parent: str = ""
    """Of which it was written."""
    drawn: int = 0
    """Rollouts behind it that could be judged."""

    def credited(self, rewards: Sequence[float], rate: float) -> "InstructionMember":
        """Move w to what was earned behind it in a step.

        Args:
            rewards: Of the rollouts that could be judged; none leaves it as it is.
            rate: How far w moves; the first time it is their mean.

        Returns:
            The member with the new w.

        """
        if not rewards:
            return self
        mean = math.fsum(rewards) / len(rewards)
        moved = mean if self.weight is None else self.weight + rate * (mean - self.weight)
        return replace(self, weight=moved, drawn=self.drawn + len(rewards))


def weights_of(members: Sequence[InstructionMember]) -> list[float]:
    """Return w of each member; where nothing is known of one, the mean of the others'.

    >>> weights_of([InstructionMember("a", 0.5), InstructionMember("b"), InstructionMember("c", 1)])
    [0.5, 0.75, 1]

    """
    known = [each.weight for each in members if each.weight is not None]
    usual = math.fsum(known) / len(known) if known else 0.0
    return [usual if each.weight is None else each.weight for each in members]


def draw_shares(members: Sequence[InstructionMember], temperature: float) -> list[float]:
    """Compute the probability with which each member is drawn: softmax(w / temperature).

    Args:
        members: At least one.
        temperature: In units of the reward, above 0.

    Returns:
        A number each, which sum to 1.

    """
    weights = weights_of(members)
    most = max(weights)
    powers = [math.exp((each - most) / temperature) for each in weights]
    return [each / math.fsum(powers) for each in powers]


def ranked(members: Sequence[InstructionMember]) -> list[InstructionMember]:
    """Sort members by w, the best first; of equal ones who was there first."""
    weights = dict(zip((each.text for each in members), weights_of(members), strict=True))
    return sorted(members, key=lambda each: -weights[each.text])


def best_and_rest(
    members: Sequence[InstructionMember], share: float
) -> tuple[list[InstructionMember], list[InstructionMember]]:
    """Part members into the best and the others, the best first in both.

    Args:
        members: In any order.
        share: Of them that are the best, rounded up to a whole number.

    Returns:
        Those, and the others.

    """
    order, number = ranked(members), math.ceil(share * len(members))
    return order[:number], order[number:]
