"""Tokens of phrases that right answers to many problems share count more where they did well."""

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor

Gram = tuple[int, ...]


class PlanningGramsWeight(TokenWeight):
    """`1 + alpha sign(A)` at planning tokens, so that A becomes `A + alpha |A|`; 1 elsewhere.

    Planning tokens lie in a strategic gram: of all n-grams that stand in right answers (those whose
    reward is above 0), the `share` that stands in most of them, and in at least two. All that
    have the count of the last one belong to it.
    """

    SOURCE = "HICRA, arXiv 2509.03646"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"token_ids"})

    kind: Literal["planning_grams"] = "planning_grams"
    """What plans is pushed more, and pushed back less, than what carries out."""
    alpha: float = Field(default=0.2, ge=0.0, le=1.0)
    """How much of its size is added to the advantage of a planning token."""
    shortest: int = Field(default=3, ge=1)
    """Tokens of the shortest gram."""
    longest: int = Field(default=5, ge=1)
    """Tokens of the longest gram."""
    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Of the different n-grams of right answers, by the number of those that have them."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.longest < self.shortest:
            raise ValueError(
                f"longest {self.longest} is below shortest {self.shortest}; make it at least that"
            )
        return self

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Find the grams, then the tokens in them; see `TokenWeight.of_generation`."""
        import torch

        what = "token weight planning_grams"
        mask_BT = needed(rollouts.mask_BT, "mask_BT", what).bool()
        ids_BT = needed(rollouts.token_ids_BT, "token_ids_BT", what)
        rows = [ids_BT[row, mask_BT[row]].tolist() for row in range(len(mask_BT))]
        right = (rollouts.rewards_B > 0).tolist()
        strategic = self._strategic([ids for ids, good in zip(rows, right, strict=True) if good])
        planning_BT = torch.zeros_like(mask_BT)
        for row, ids in enumerate(rows):
            for begin, gram in self._grams(ids):
                if gram in strategic:
                    planning_BT[row, begin : begin + len(gram)] = True
        return 1.0 + self.alpha * planning_BT * advantages_BT.sign()

    def _strategic(self, answers: list[list[int]]) -> set[Gram]:
        """The grams that stand in most of some answers."""
        found = Counter(gram for ids in answers for gram in {each for _, each in self._grams(ids)})
        if not found:
            return set()
        ranked = sorted(found.values(), reverse=True)
        least = max(2, ranked[max(1, round(self.share * len(ranked))) - 1])
        return {gram for gram, count in found.items() if count >= least}

    def _grams(self, ids: list[int]) -> list[tuple[int, Gram]]:
        """All n-grams of an answer with the places where they begin."""
        return [
            (begin, tuple(ids[begin : begin + n]))
            for n in range(self.shortest, self.longest + 1)
            for begin in range(len(ids) - n + 1)
        ]

    def describe(self) -> str:
        """`planning grams 0.2`."""
        return f"planning grams {self.alpha:g}"
