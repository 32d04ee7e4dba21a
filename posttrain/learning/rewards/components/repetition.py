"""Answers that repeat themselves cost something."""

from collections.abc import Sequence
from itertools import compress
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class RepetitionComponent(Component):
    """`-(1 - distinct n-grams / all n-grams)` of the drawn tokens; 0 for a text of fewer than n."""

    SOURCE = "Demystifying Long CoT, arXiv 2502.03373, the authors' reward/repetition.py (sparse)"
    RANGE: ClassVar[Range] = (-1.0, 0.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["repetition"] = "repetition"
    n: int = Field(default=4, ge=1)
    """Tokens of an n-gram."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - tokens
        """Count n-grams; see `Component.score`."""
        return [
            self._paid(tuple(compress(ids, drawn)))
            for ids, drawn in zip(group.token_ids, group.drawn, strict=True)
        ]

    def _paid(self, ids: Sequence[int]) -> float:
        found = [tuple(ids[at : at + self.n]) for at in range(len(ids) - self.n + 1)]
        return len(set(found)) / len(found) - 1.0 if found else 0.0
