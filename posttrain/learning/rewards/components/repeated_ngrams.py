"""Tokens that repeat what was said before cost something, where they stand."""

from collections.abc import Sequence
from itertools import compress
from math import inf
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class RepeatedNgramsComponent(Component):
    """`-penalty` at each drawn token of an n-gram that stood in the answer before.

    Each token bears the discounted sum of what follows, `R_t = sum gamma^(s - t) p_s`: it is paid
    `R_t - R_(t+1)`, so that the plain sums of a `gae` or `returns` without discount come to it, and
    the rest of the reward keeps a discount of its own. The answer's score is then R at its first
    token. Take it with an advantage by tokens whose `gamma` is 1.
    """

    SOURCE = (
        "Demystifying Long CoT, arXiv 2502.03373; eddycmu/demystify-long-cot at e90cf9b,"
        " reward/repetition.py (RepetitionDensePenalty), experience_maker.py (several gammas)"
    )
    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[Range] = (-inf, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["repeated_ngrams"] = "repeated_ngrams"
    n: int = Field(default=40, ge=1)
    """Tokens of an n-gram."""
    penalty: float = Field(default=0.05, gt=0.0)
    """What each token of a repeated one costs."""
    discount: float = Field(default=0.99, ge=0.0, le=1.0)
    """How much less a token bears of what is repeated behind it, for each token in between."""

    def score_tokens(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - tokens alone
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Find what is repeated; see `Component.score_tokens`."""
        return [
            [
                self._paid(tuple(compress(ids, drawn)))
                for ids, drawn in zip(group.token_ids, group.drawn, strict=True)
            ]
            for group in groups
        ]

    def _paid(self, ids: Sequence[int]) -> list[float]:
        costs, seen = [0.0] * len(ids), set()
        for begin in range(len(ids) - self.n + 1):
            ngram = tuple(ids[begin : begin + self.n])
            if ngram in seen:
                costs[begin : begin + self.n] = [-self.penalty] * self.n
            seen.add(ngram)
        paid, behind = [], 0.0
        for cost in reversed(costs):
            here = cost + self.discount * behind
            paid.append(here - behind)
            behind = here
        return paid[::-1]
