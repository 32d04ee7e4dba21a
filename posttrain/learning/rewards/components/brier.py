"""A stated confidence is held against what is true."""

import re
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class BrierComponent(Component):
    """`-(q - right)^2`, where q is the confidence that the text states.

    With the verifier's 0 or 1 it makes ``right - (q - right)^2``, which is greatest where the
    answer is right as often as it may be, and q is how often it is.
    """

    SOURCE = "RLCR, arXiv 2507.16806"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    RANGE: ClassVar[Range] = (-1.0, 0.0)

    kind: Literal["brier"] = "brier"
    pattern: str = r"(?i)confidence:\s*(\d+(?:\.\d+)?|\.\d+)"
    """Regular expression whose one group is the confidence; its last match in the text counts."""
    scale: float = Field(default=1.0, gt=0.0)
    """What stands for certainty: 1, or 100 for percent."""
    missing: float = Field(default=-1.0, ge=-1.0, le=0.0)
    """What a text gets without a confidence between 0 and `scale`."""

    @model_validator(mode="after")
    def _has_one_group(self) -> Self:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"the pattern must have one group, the confidence, but has {groups}")
        return self

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - texts
        """Read the confidences; see `Component.score`."""
        return [
            None if right is None else self._paid(text, right=right)
            for text, right in zip(group.texts, group.solved, strict=True)
        ]

    def confidence(self, text: str) -> float | None:
        """Return the confidence that a text states, from 0 to 1; None where it states none."""
        found = re.findall(self.pattern, text)
        try:
            share = float(found[-1]) / self.scale if found else -1.0
        except ValueError:
            return None
        return share if 0.0 <= share <= 1.0 else None

    def _paid(self, text: str, *, right: bool) -> float:
        stated = self.confidence(text)
        return self.missing if stated is None else -((stated - right) ** 2)
