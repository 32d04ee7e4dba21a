"""Tokens cost as much as the prompt says that they do."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from posttrain.data.contexts import PromptContext
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class ToldLengthComponent(Component):
    """`-cost x length / limit`, where the cost is that of the words that the prompt is told in.

    Where `Briefly: ` stands before a prompt a token may cost more than where nothing does, so that
    one policy learns several lengths, and whoever asks it chooses. Whether an answer is right makes
    no difference.
    """

    SOURCE = (
        "Zhang et al., 'Making Small Language Models Efficient Reasoners', arXiv:2505.07961,"
        " abstract: a length-regularized reward with several levels (TLDR)"
    )
    RANGE: ClassVar[Range] = (-1.0, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["told_length"] = "told_length"
    costs: Mapping[str, float] = Field(min_length=1)
    """Words before the prompt, or in its system prompt -> what an answer of the limit's length
    costs, from 0 to 1. The longest words that are found count; `""` is for prompts without any."""
    limit: int | None = Field(default=None, ge=1)
    """Tokens at which the cost is whole; null takes the limit of generation."""

    @field_validator("costs")
    @classmethod
    def _within_the_range(cls, costs: Mapping[str, float]) -> Mapping[str, float]:
        for words, cost in costs.items():
            if not 0 <= cost <= 1:
                raise ValueError(f"the cost of {words!r} must lie in [0, 1], got {cost}")
        return costs

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Look for the words, then at the lengths; see `Component.score`."""
        context = PromptContext.read(group.problem.context)
        told = [words for words in self.costs if words in context.system + context.before]
        cost = self.costs[max(told, key=len)] if told else 0.0
        limit = known.longest(self.limit)
        return [-cost * min(1.0, length / limit) for length in group.lengths]
